//! A file of results that a later run goes on with: whole lines, each id once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use llm_batch::{Answer, Delivered, RequestError, Status, Usage};

use crate::exit::Stop;
use crate::input::plain_file;
use crate::json::{Fault, Object};
use crate::wire::results;

/// The longest result line that is read back, in bytes: an answer with its whole response.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// An open results file.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    file: File,
    held: HashMap<String, Delivered>,
    /// The first failure to write; nothing is written after it.
    broken: Option<io::Error>,
}

/// What one line says.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) usage: Option<Usage>,
    pub(crate) text: Option<String>,
    /// Kind and message of what went wrong.
    pub(crate) error: Option<(String, String)>,
}

impl Results {
    /// Opens the file, making it where it is not there; a last line that was cut short is
    /// removed, so that it can be written again.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for reading and writing, or holds something else than results.
    pub(crate) fn open(path: &Path) -> Result<Results, Stop> {
        let name = path.display();
        plain_file(path)?;
        let cannot = |error: io::Error| Stop::refused(format_args!("cannot open {name}: {error}"));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(cannot)?;
        let mut held = HashMap::new();
        let whole = scan(&file, path, |recorded| {
            let delivered = Delivered { status: recorded.status, usage: recorded.usage };
            held.insert(recorded.id, delivered).is_none()
        })?;
        if file.metadata().map_err(cannot)?.len() != whole {
            file.set_len(whole).map_err(cannot)?;
        }
        file.seek(SeekFrom::Start(whole)).map_err(cannot)?;
        Ok(Results { path: path.to_owned(), file, held, broken: None })
    }

    /// Returns what the file holds already.
    pub(crate) fn held(&self) -> &HashMap<String, Delivered> {
        &self.held
    }

    /// Appends one result. A failure is kept for [`finish`](Results::finish).
    ///
    /// Returns whether it could be written.
    pub(crate) fn put(&mut self, id: &str, outcome: &Result<Answer, RequestError>) -> bool {
        if self.broken.is_none() {
            self.broken = results::write(&mut self.file, id, outcome).err();
        }
        self.broken.is_none()
    }

    /// Makes the file durable.
    ///
    /// # Errors
    ///
    /// Status 3 if a result could not be written: it comes again with the next run.
    pub(crate) fn finish(self) -> Result<(), Stop> {
        let written = self.broken.map_or_else(|| self.file.sync_all(), Err);
        written.map_err(|error| {
            Stop::unfinished(format_args!("cannot write to {}: {error}", self.path.display()))
                .help("make room, then run again; nothing is paid for twice")
        })
    }
}

/// Reads all results of a file that [`Results`] wrote.
pub(crate) fn read_all(path: &Path) -> Result<Vec<Recorded>, Stop> {
    let file = crate::input::open_file(path)?;
    let mut all = Vec::new();
    scan(&file, path, |recorded| {
        all.push(recorded);
        true
    })?;
    Ok(all)
}

/// Reads whole lines and returns where the last of them ends. `take` says whether an id is new.
fn scan(file: &File, path: &Path, mut take: impl FnMut(Recorded) -> bool) -> Result<u64, Stop> {
    let name = path.display();
    let mut reader = BufReader::new(file);
    let (mut whole, mut number) = (0, 0);
    loop {
        let mut bytes = Vec::new();
        let read = (&mut reader)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| Stop::refused(format_args!("cannot read {name}: {error}")))?;
        if read as u64 == MAX_LINE_BYTES {
            return Err(Stop::refused(format_args!("{name}: the line {} is too long", number + 1)));
        }
        if bytes.pop() != Some(b'\n') {
            return Ok(whole);
        }
        number += 1;
        let line = std::str::from_utf8(&bytes).map_err(|error| Fault(error.to_string()));
        let new = line.and_then(recorded).map(&mut take);
        let fault = match new {
            Ok(true) => {
                whole += read as u64;
                continue;
            }
            Ok(false) => "its id stands twice in the file".to_owned(),
            Err(fault) => fault.to_string(),
        };
        return Err(Stop::refused(format_args!("{name}:{number} is no result: {fault}"))
            .help("move the file away, or name another with --out"));
    }
}

fn recorded(line: &str) -> Result<Recorded, Fault> {
    let mut object = Object::parse(line)?;
    let id: String = object.required("id")?;
    let name: String = object.required("status")?;
    let text: Option<String> = object.optional("text")?;
    let status = [Status::Succeeded, Status::Errored, Status::Expired, Status::Canceled]
        .into_iter()
        .find(|status| status.as_str() == name)
        .ok_or_else(|| object.fault("status", &format!("unknown status {name:?}")))?;
    let usage = match object.raw("usage") {
        Some(usage) => serde_json::from_str(usage.get())
            .map_err(|error| object.fault("usage", &error.to_string()))?,
        None => None,
    };
    let error = match object.object("error")? {
        Some(mut error) => Some((error.required("kind")?, error.required("message")?)),
        None => None,
    };
    Ok(Recorded { id, status, usage, text, error })
}
