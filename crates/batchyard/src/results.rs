//! A file of results that a later run goes on with: whole lines, each id once.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use llm_batch::{Answer, Delivered, RequestError, Status, Usage};

use crate::exit::Stop;
use crate::input::plain_file;
use crate::json::{Fault, Object};
use crate::lock;
use crate::wire::results;

/// The longest result line that is read back, in bytes: an answer with its whole response.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// How each line begins that is written here.
const BEGINNING: &[u8] = b"{\"id\":";

/// A results file that was looked at and is as it was; nobody else goes on with it meanwhile.
#[derive(Debug)]
pub(crate) struct Found {
    path: PathBuf,
    /// Locked; `None` where nothing was there.
    file: Option<File>,
    held: HashMap<String, Delivered>,
    /// Where the last whole line ends.
    whole: u64,
}

/// An open results file.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    /// Locked, and each write goes to its end.
    file: File,
    held: HashMap<String, Delivered>,
    /// Nothing was there before.
    is_new: bool,
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

impl Found {
    /// Locks the file and reads what it holds. Nothing is made and nothing is changed.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for reading and writing, or holds something else than results;
    /// status 3 if another run goes on with it.
    pub(crate) fn look(path: &Path) -> Result<Found, Stop> {
        let Some(file) = open(path, &OpenOptions::new())? else {
            let (path, held) = (path.to_owned(), HashMap::new());
            return Ok(Found { path, file: None, held, whole: 0 });
        };
        let mut held = HashMap::new();
        let (whole, end) = scan(&file, path, |recorded| {
            let delivered = Delivered { status: recorded.status, usage: recorded.usage };
            held.insert(recorded.id, delivered).is_none()
        })?;
        if !is_cut_short(&end) {
            return Err(Stop::refused(format_args!("the end of {} is no result", path.display()))
                .help("move the file away, or name another with --out"));
        }
        Ok(Found { path: path.to_owned(), file: Some(file), held, whole })
    }

    /// Locks the file and reads nothing of it, as none of it counts.
    ///
    /// # Errors
    ///
    /// As [`look`](Found::look).
    pub(crate) fn unread(path: &Path) -> Result<Found, Stop> {
        let file = open(path, &OpenOptions::new())?;
        Ok(Found { path: path.to_owned(), file, held: HashMap::new(), whole: 0 })
    }

    /// Returns what the file holds already.
    pub(crate) fn held(&self) -> &HashMap<String, Delivered> {
        &self.held
    }

    /// Moves the file to `PATH.1`, `PATH.2` and so on, if there is one that is not empty. Returns its
    /// new name.
    pub(crate) fn set_aside(&mut self) -> Result<Option<PathBuf>, Stop> {
        let Some(file) = &self.file else { return Ok(None) };
        let path = &self.path;
        let cannot = |error: io::Error| {
            Stop::refused(format_args!("cannot rename {}: {error}", path.display()))
        };
        if file.metadata().map_err(cannot)?.len() == 0 {
            return Ok(None);
        }
        let numbered = |number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let is_free = |name: &PathBuf| fs::symlink_metadata(name).is_err();
        let aside = (1..u32::MAX).map(numbered).find(is_free);
        let aside = aside.ok_or_else(|| Stop::refused("no name is left for the old results"))?;
        fs::rename(path, &aside).map_err(cannot)?;
        self.file = None;
        Ok(Some(aside))
    }

    /// Makes the file where it is not there, and removes a last line that was cut short, so that it can
    /// be written again.
    ///
    /// # Errors
    ///
    /// It cannot be made or cut; status 3 if somebody has made it meanwhile.
    pub(crate) fn begin(self) -> Result<Results, Stop> {
        let name = self.path.display();
        let cannot = |error: io::Error| Stop::refused(format_args!("cannot open {name}: {error}"));
        let is_new = self.file.is_none();
        let file = if let Some(file) = self.file {
            // Nobody else writes to it, so what is there was there when it was read.
            if file.metadata().map_err(cannot)?.len() != self.whole {
                file.set_len(self.whole).map_err(cannot)?;
            }
            file
        } else {
            let made = open(&self.path, OpenOptions::new().create(true))?;
            let file = made.ok_or_else(|| cannot(io::ErrorKind::NotFound.into()))?;
            if file.metadata().map_err(cannot)?.len() != 0 {
                return Err(busy(&self.path));
            }
            file
        };
        Ok(Results { path: self.path, file, held: self.held, is_new, broken: None })
    }
}

/// Opens and locks a results file; `None` where nothing is there.
fn open(path: &Path, how: &OpenOptions) -> Result<Option<File>, Stop> {
    let name = path.display();
    plain_file(path)?;
    let file = match how.clone().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A file cannot be made in a folder that is not there, which is to be known early.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            return match folder {
                Some(folder) if !folder.is_dir() => Err(Stop::refused(format_args!(
                    "cannot open {name}: there is no folder {}",
                    folder.display()
                ))),
                _ => Ok(None),
            };
        }
        Err(error) => return Err(Stop::refused(format_args!("cannot open {name}: {error}"))),
    };
    match lock::hold(&file, path) {
        Ok(true) => Ok(Some(file)),
        Ok(false) => Err(busy(path)),
        // There the lock of the state has to do.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Some(file)),
        Err(error) => Err(Stop::refused(format_args!("cannot lock {name}: {error}"))),
    }
}

fn busy(path: &Path) -> Stop {
    Stop::unfinished(format_args!("another run writes to {}", path.display()))
        .help("wait until it has ended, then run again")
}

/// A last line without its end was cut short only if it is the beginning of a result; else it is
/// somebody's. What a power cut leaves of a line may be zeros.
fn is_cut_short(end: &[u8]) -> bool {
    let zeros = end.iter().rev().take_while(|byte| **byte == 0).count();
    let end = &end[..end.len() - zeros];
    if end.len() < BEGINNING.len() {
        return BEGINNING.starts_with(end);
    }
    let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(end).is_ok();
    let is_result = || std::str::from_utf8(end).is_ok_and(|line| recorded(line).is_ok());
    end.starts_with(BEGINNING) && (!is_whole || is_result())
}

impl Results {
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

    /// Removes the file if it was made here and nothing is in it.
    pub(crate) fn abandon(self) {
        if self.is_new && self.file.metadata().is_ok_and(|data| data.len() == 0) {
            // It is still locked, so nobody else has begun to write to it.
            let _ = fs::remove_file(&self.path);
        }
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

/// Reads whole lines; returns where the last of them ends, and what is behind it. `take` says whether
/// an id is new.
fn scan(
    file: &File,
    path: &Path,
    mut take: impl FnMut(Recorded) -> bool,
) -> Result<(u64, Vec<u8>), Stop> {
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
            return Err(Stop::refused(format_args!("{name}: the line {} is too long", number + 1))
                .help("move the file away, or name another with --out"));
        }
        if bytes.pop_if(|last| *last == b'\n').is_none() {
            return Ok((whole, bytes));
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
