//! Checks, tests and gates of the workspace: `cargo xtask help` lists them.
//!
//! Nothing but the standard library and one flag parser, so that it builds in seconds and before
//! everything else.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program run by people: what it prints is its work"
)]

mod ci;
mod count;
mod features;
mod flat;
mod json;
mod metadata;
mod models;
mod peers;
mod perf;
mod run;
mod tidy;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  ci [--hosted]  every check that a change has to pass, in the order of the hosted run;
                 --hosted: the tests by `cargo test` as the README says, and the files have
                 to be as committed
  tidy           house rules that no compiler knows
  test           every test of the workspace: nextest where it is installed, and doc tests
  doc            documentation of the workspace; a warning is an error
  models         the engine under many orders of events: loom and shuttle, each in a build
                 of its own
  features       each feature alone, none and all, for every crate that has features
  perf [allocs|ratio] [--bless]
                 measures, and compares with perf/*.toml; --bless writes what was measured
  peers llm-contract [--python PATH] [--openapi FILE]
                 on demand: the official Python packages against the provider simulator, and
                 our requests against their types, and against an OpenAPI document (by Prism);
                 needs Python 3.12, npm for the latter, and the package indexes
  peers llm-speed [--python PATH]
                 on demand: CPU time and memory of the official package and of ours, for the
                 same batch; needs Python 3.12 and the package index
  peers llm [--python PATH]
                 on demand: llm run against OGX with a small real model, which is killed while
                 a batch runs; needs Python 3.12 and the package index
";

/// What a command did not manage, for a person to read.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let root = root();
    match command(&root) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line and does what it names.
fn command(root: &Path) -> Result<ExitCode, Failure> {
    use lexopt::Arg::{Long, Short, Value};

    let mut words = Vec::new();
    let (mut hosted, mut bless) = (false, false);
    let (mut python, mut openapi) = (None, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => words.insert(0, "help".to_owned()),
            Long("hosted") => hosted = true,
            Long("bless") => bless = true,
            Long("python") => python = Some(arguments.value()?.to_string_lossy().into_owned()),
            Long("openapi") => openapi = Some(arguments.value()?.to_string_lossy().into_owned()),
            Value(word) => words.push(word.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().into()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if hosted && words != ["ci"] {
        return Err("`--hosted` belongs to `ci`".into());
    }
    if python.is_some() && words.first() != Some(&"peers") {
        return Err("`--python` belongs to `peers`".into());
    }
    if openapi.is_some() && words != ["peers", "llm-contract"] {
        return Err("`--openapi` belongs to `peers llm-contract`".into());
    }
    if bless && words.first() != Some(&"perf") {
        return Err("`--bless` belongs to `perf`".into());
    }
    match words.as_slice() {
        [] | ["help", ..] => print!("{HELP}"),
        ["ci"] => return Ok(ci::ci(root, hosted)),
        ["tidy"] => tidy::tidy(root)?,
        ["test"] => println!("{}", ci::test(root, ci::Runner::installed())?),
        ["doc"] => ci::doc(root)?,
        ["models"] => {
            let mut counts = count::Counts::default();
            let outcome = models::models(root, &mut counts);
            println!("{counts}");
            outcome?;
        }
        ["features"] => features::features(root)?,
        ["perf"] => perf::perf(root, &perf::Gate::ALL, bless)?,
        ["perf", "allocs"] => perf::perf(root, &[perf::Gate::Allocs], bless)?,
        ["perf", "ratio"] => perf::perf(root, &[perf::Gate::Ratio], bless)?,
        ["peers", "llm-contract"] => {
            peers::llm_contract(root, python.as_deref(), openapi.as_deref())?;
        }
        ["peers", "llm-speed"] => peers::llm_speed(root, python.as_deref())?,
        ["peers", "llm"] => peers::llm(root, python.as_deref())?,
        _ => return Err(format!("unknown command `{}`\n\n{HELP}", words.join(" ")).into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder of the workspace: the one above this package's own.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
