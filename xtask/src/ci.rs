//! Everything that a change has to pass, one step after the other.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::count::Counts;
use crate::{Failure, features, models, perf, run, tidy};

/// What runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// A process for each test, with a time limit; doc tests by cargo.
    Nextest,
    /// What the README tells a newcomer to run.
    CargoTest,
}

impl Runner {
    /// Returns nextest if it is installed.
    pub(crate) fn installed() -> Runner {
        if installed("cargo-nextest") { Runner::Nextest } else { Runner::CargoTest }
    }
}

/// What a step does; a step that runs tests adds them to the counts.
type Action<'a> = Box<dyn Fn(&mut Counts) -> Result<(), Failure> + 'a>;

/// One step: what it is called, how long it may take on two cores, and what it does.
struct Step<'a> {
    name: &'static str,
    budget: Duration,
    action: Action<'a>,
}

impl<'a> Step<'a> {
    fn new(
        name: &'static str,
        seconds: u64,
        action: impl Fn(&mut Counts) -> Result<(), Failure> + 'a,
    ) -> Step<'a> {
        Step { name, budget: Duration::from_secs(seconds), action: Box::new(action) }
    }
}

/// Runs every step up to the first that fails; the last line says how many tests passed and failed.
/// A step that fails without a failed test counts as one.
///
/// The hosted form starts from a fresh clone; elsewhere the files may be on the way to a commit.
pub(crate) fn ci(root: &Path, hosted: bool) -> ExitCode {
    let mut counts = Counts::default();
    let before = if hosted { Ok(Vec::new()) } else { changes(root) };
    let runner = if hosted { Runner::CargoTest } else { Runner::installed() };
    let outcome = before.and_then(|before| follow(&steps(root, runner, before), &mut counts));
    if let Err(failure) = &outcome {
        eprintln!("xtask: {failure}");
        counts.failed = counts.failed.max(1);
    }
    println!("{counts}");
    if outcome.is_ok() && counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is not as committed.
fn changes(root: &Path) -> Result<Vec<u8>, Failure> {
    run::read(&mut run::git(root, ["diff"]))
}

/// The steps, cheap ones first where the order is free. `before` is what may differ from the
/// commit when they are through.
fn steps(root: &Path, runner: Runner, before: Vec<u8>) -> Vec<Step<'_>> {
    vec![
        Step::new("fmt", 10, |_| run::run(&mut run::cargo(root, ["fmt", "--all", "--check"]))),
        Step::new("clippy", 300, |_| {
            let mut cargo =
                run::cargo(root, ["clippy", "--workspace", "--all-targets", "--locked"]);
            run::run(cargo.args(["--all-features", "--", "-D", "warnings"]))
        }),
        Step::new("tidy", 30, |_| tidy::tidy(root)),
        Step::new("test", 540, move |counts| {
            *counts = test(root, runner)?;
            Ok(())
        }),
        Step::new("models", 300, |counts| models::models(root, counts)),
        Step::new("features", 120, |_| features::features(root)),
        Step::new("doc", 180, |_| doc(root)),
        Step::new("deny", 30, |_| deny(root)),
        Step::new("perf", 300, |_| perf::perf(root, &perf::Gate::ALL, false)),
        Step::new("unchanged", 10, move |_| {
            if changes(root)? == before {
                return Ok(());
            }
            run::run(&mut run::git(root, ["--no-pager", "diff", "--exit-code"]))
        }),
    ]
}

fn follow(steps: &[Step<'_>], counts: &mut Counts) -> Result<(), Failure> {
    for step in steps {
        println!("--- {}", step.name);
        let start = Instant::now();
        let outcome = (step.action)(counts);
        println!("{}", closing_line(step.name, outcome.is_ok(), start.elapsed(), step.budget));
        outcome?;
    }
    Ok(())
}

/// A step over its budget is marked, not failed: how busy the machine is decides too.
fn closing_line(name: &str, passed: bool, took: Duration, budget: Duration) -> String {
    let verdict = if passed { "ok" } else { "FAILED" };
    let over = if took > budget { ", OVER BUDGET" } else { "" };
    format!(
        "ci: {name} {verdict} in {:.1} s (budget {} s{over})",
        took.as_secs_f64(),
        budget.as_secs()
    )
}

/// Runs every test of the workspace. Returns an error when one of them failed.
pub(crate) fn test(root: &Path, runner: Runner) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let mut outcome = Ok(());
    for arguments in test_commands(runner) {
        let mut cargo = run::cargo(root, arguments.split(' '));
        let one = run::count(cargo.env("INSTA_UPDATE", "no"), &mut counts);
        outcome = outcome.and(one);
    }
    outcome.map_err(|failure| format!("{counts}; {failure}"))?;
    if counts.passed == 0 {
        return Err("no test ran".into());
    }
    Ok(counts)
}

/// The plain form runs what the README says, and then what is no default member. `batchyard` is
/// named for its features only, so that dependencies are not built a second time without them.
fn test_commands(runner: Runner) -> &'static [&'static str] {
    match runner {
        Runner::Nextest => &[
            "nextest run --profile ci --workspace --all-features",
            "test --workspace --all-features --doc --no-fail-fast",
        ],
        Runner::CargoTest => &[
            "test",
            "test -p xtask -p benches -p batchyard --lib --bin xtask",
            "test -p benches -p batchyard --doc",
            "test -p conformance",
            "test -p batch-core --all-features --test tracing --test metrics --test observer",
        ],
    }
}

/// Builds the documentation; a warning is an error.
pub(crate) fn doc(root: &Path) -> Result<(), Failure> {
    let mut cargo =
        run::cargo(root, ["doc", "--workspace", "--no-deps", "--all-features", "--locked"]);
    run::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Asks cargo-deny where it is installed; `tidy` has checked licences and sources in any case.
fn deny(root: &Path) -> Result<(), Failure> {
    if !installed("cargo-deny") {
        println!(
            "cargo-deny is not installed: licences and sources were checked by tidy, bans were not"
        );
        return Ok(());
    }
    run::run(&mut run::cargo(root, ["deny", "check", "bans", "licenses", "sources"]))
}

fn installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_first_failure_ends_the_run() {
        let ran = RefCell::new(Vec::new());
        let steps = [
            Step::new("one", 1, |counts| {
                counts.passed += 3;
                ran.borrow_mut().push("one");
                Ok(())
            }),
            Step::new("two", 1, |_| Err("no".into())),
            Step::new("three", 1, |_| {
                ran.borrow_mut().push("three");
                Ok(())
            }),
        ];
        let mut counts = Counts::default();
        let failure = follow(&steps, &mut counts).unwrap_err();
        assert_eq!(failure.to_string(), "no");
        assert_eq!(*ran.borrow(), ["one"]);
        assert_eq!(counts.passed, 3);
    }

    #[test]
    fn a_closing_line_has_seconds_and_budget() {
        let seconds = Duration::from_secs;
        assert_eq!(
            closing_line("fmt", true, seconds(2), seconds(10)),
            "ci: fmt ok in 2.0 s (budget 10 s)"
        );
        assert_eq!(
            closing_line("test", false, seconds(12), seconds(10)),
            "ci: test FAILED in 12.0 s (budget 10 s, OVER BUDGET)"
        );
    }

    #[test]
    fn the_plain_form_runs_what_the_readme_says() {
        assert_eq!(test_commands(Runner::CargoTest)[0], "test");
    }
}
