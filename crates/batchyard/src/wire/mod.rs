//! The JSON shapes of the program: what it reads and what it prints.

pub(crate) mod changes;
pub(crate) mod ops;
pub(crate) mod outcomes;
pub(crate) mod requests;
pub(crate) mod results;

use crate::exit::Stop;
use crate::json::Fault;

/// Puts the file and the line before what is wrong there.
pub(crate) fn at_line(file: &str, line: usize, fault: &Fault) -> Stop {
    Stop::refused(format_args!("{file}:{line}: {fault}"))
        .help("nothing was done; put the line right and run again")
}
