//! Prints all rows for all engines as Markdown.

use std::process::ExitCode;
use std::thread;

use crate::candidate;
use crate::rows;
use crate::verdict::Verdict;
use crate::watchdog;

/// Prints the table. Fails when one of ours failed.
pub(crate) fn print() -> ExitCode {
    let engines = candidate::all();
    let names: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
    println!("| test | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(engines.len()));
    let mut ours_failed = false;
    for row in &rows::ALL {
        // Together: what they do most is wait.
        let verdicts: Vec<Verdict> = thread::scope(|scope| {
            let tests: Vec<_> = engines
                .iter()
                .map(|engine| scope.spawn(move || watchdog::run(row, engine)))
                .collect();
            let verdict = |test: thread::ScopedJoinHandle<'_, std::io::Result<Verdict>>| {
                test.join()
                    .ok()
                    .and_then(Result::ok)
                    .unwrap_or_else(|| Verdict::Fail("the test could not be started".to_owned()))
            };
            tests.into_iter().map(verdict).collect()
        });
        ours_failed |= engines
            .iter()
            .zip(&verdicts)
            .any(|(engine, verdict)| engine.is_ours() && matches!(verdict, Verdict::Fail(_)));
        let cells: Vec<String> = verdicts.iter().map(Verdict::cell).collect();
        println!("| {}: {} | {} |", row.name, row.title, cells.join(" | "));
    }
    if ours_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
