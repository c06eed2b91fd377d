//! Fault tests that every batching engine should pass, run against ours and its peers.
//!
//! `cargo run -p conformance --features peers` prints the table. Each test of each engine runs in
//! a process of its own, so that a deadlock, a panic or a killed runtime is a result, not the end.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is what it is for")]

mod candidate;
mod engine;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod rows;
mod script;
mod table;
mod verdict;
mod watchdog;

use std::process::ExitCode;

const USAGE: &str = "usage: conformance [ROW ENGINE]\n\
    Without arguments every row is run on every engine and the table is printed.\n\
    With a row and an engine that one test is run: `pass`, `fail` or `absent`, a tab, what was seen.";

/// The argument with which the watchdog starts a test in the process that it watches.
const HERE: &str = "here";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (row, engine, is_watched) = match arguments[..] {
        [] => return table::print(),
        [row, engine] => (row, engine, false),
        [row, engine, HERE] => (row, engine, true),
        _ => return usage("wrong arguments"),
    };
    let Some(row) = rows::ALL.iter().find(|known| known.name == row) else {
        return usage(&format!("no row `{row}`"));
    };
    let Some(engine) = candidate::all().into_iter().find(|known| known.name == engine) else {
        return usage(&format!("no engine `{engine}`"));
    };
    if is_watched {
        println!("{}", (row.run)(&engine));
        return ExitCode::SUCCESS;
    }
    match watchdog::run(row, &engine) {
        Ok(verdict) => {
            println!("{verdict}");
            ExitCode::SUCCESS
        }
        Err(error) => usage(&format!("the test could not be started: {error}")),
    }
}

fn usage(fault: &str) -> ExitCode {
    eprintln!("conformance: {fault}\n{USAGE}");
    ExitCode::from(2)
}
