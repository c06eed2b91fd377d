//! The JSON shapes of the program: what it reads and what it prints.

pub(crate) mod changes;
pub(crate) mod ops;
pub(crate) mod outcomes;
pub(crate) mod requests;
pub(crate) mod results;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::exit::Stop;
use crate::input::Input;
use crate::json::{Fault, Object};

/// Puts the file and the line before what is wrong there.
pub(crate) fn at_line(file: &str, line: usize, fault: &Fault) -> Stop {
    Stop::refused(format_args!("{file}:{line}: {fault}"))
        .help("nothing was done; put the line right and run again")
}

/// Reads one thing a line, each under an id of its own, and checks each as it comes.
fn each_line<T, P, I>(
    input: &Input,
    parse: P,
    id_of: I,
) -> Result<impl Iterator<Item = Result<T, Stop>> + use<T, P, I>, Stop>
where
    P: Fn(&str) -> Result<T, Fault>,
    I: Fn(&T) -> &str,
{
    let file = input.name();
    // Of an id a digest is kept, so that ids of any length take the same.
    let keys = [(); 2].map(|()| RandomState::new());
    let mut seen: HashMap<[u64; 2], usize> = HashMap::new();
    Ok(input.each_line()?.map(move |line| {
        let line = line?;
        let one = parse(&line.text).map_err(|fault| at_line(&file, line.number, &fault))?;
        let id = id_of(&one);
        if let Some(first) = seen.insert(keys.each_ref().map(|key| key.hash_one(id)), line.number) {
            let what = format!("\"id\": {id:?} stands in line {first} already");
            return Err(at_line(&file, line.number, &Fault(what)));
        }
        Ok(one)
    }))
}

/// Reads one thing a line, each under an id of its own, and checks all of them.
fn read_lines<T>(
    input: &Input,
    parse: impl Fn(&str) -> Result<T, Fault>,
    id_of: impl Fn(&T) -> &str,
) -> Result<Vec<T>, Stop> {
    each_line(input, parse, id_of)?.collect()
}

/// Takes the id of a line, which must say something.
fn take_id(object: &mut Object<'_>) -> Result<String, Fault> {
    let id: String = object.required("id")?;
    if id.is_empty() {
        return Err(object.fault("id", "is empty"));
    }
    Ok(id)
}
