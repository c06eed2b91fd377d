//! The JSON shapes of the program: what it reads and what it prints.

pub(crate) mod changes;
pub(crate) mod ops;
pub(crate) mod outcomes;
pub(crate) mod requests;
pub(crate) mod results;

use std::collections::HashMap;

use crate::exit::Stop;
use crate::input::Input;
use crate::json::{Fault, Object};

/// Puts the file and the line before what is wrong there.
pub(crate) fn at_line(file: &str, line: usize, fault: &Fault) -> Stop {
    Stop::refused(format_args!("{file}:{line}: {fault}"))
        .help("nothing was done; put the line right and run again")
}

/// Reads one thing a line, each under an id of its own, and checks all of them.
fn read_lines<T>(
    input: &Input,
    parse: impl Fn(&str) -> Result<T, Fault>,
    id_of: impl Fn(&T) -> &str,
) -> Result<Vec<T>, Stop> {
    let file = input.name();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::new();
    for line in input.lines()? {
        let one = parse(&line.text).map_err(|fault| at_line(&file, line.number, &fault))?;
        let id = id_of(&one);
        if let Some(first) = seen.insert(id.to_owned(), line.number) {
            let what = format!("\"id\": {id:?} stands in line {first} already");
            return Err(at_line(&file, line.number, &Fault(what)));
        }
        all.push(one);
    }
    Ok(all)
}

/// Takes the id of a line, which must say something.
fn take_id(object: &mut Object<'_>) -> Result<String, Fault> {
    let id: String = object.required("id")?;
    if id.is_empty() {
        return Err(object.fault("id", "is empty"));
    }
    Ok(id)
}
