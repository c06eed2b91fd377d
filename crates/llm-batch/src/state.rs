//! What is known on disk of every create: intents, what became of them, and what was delivered.
//!
//! ```text
//! lock                 held by the one process that uses the folder
//! 000001.intent.json   written before the first byte of a create leaves
//! 000001.status.json   written when it is known what became of it; absent = unknown
//! delivered.jsonl      one line a request that was handed over
//! ```

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::accounting::Delivered;
use crate::answer::{RequestError, Status, Usage};
use crate::durable::{self, check_header, private};
use crate::error::Error;

const INTENT: &str = "llm-batch intent";
const STATUS: &str = "llm-batch status";
const DELIVERED: &str = "llm-batch delivered";
const LOCK_FILE: &str = "lock";
const DELIVERED_FILE: &str = "delivered.jsonl";

/// One create, as it was about to be sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) nonce: String,
    pub(crate) provider: String,
    pub(crate) endpoint: String,
    pub(crate) kind: String,
    pub(crate) model: String,
    /// Id and digest of each request; the position is its number on the wire.
    pub(crate) requests: Vec<(String, String)>,
}

/// What became of a create.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub(crate) enum Fate {
    /// The provider took it.
    Submitted { batch_id: String },
    /// Nothing was created.
    Refused { code: Option<u16>, kind: String, message: String, retryable: bool },
    /// It may exist or not.
    Ambiguous { reason: String },
}

impl Fate {
    /// Returns the outcome that a refusal is for each of its requests.
    pub(crate) fn refusal(&self) -> Option<RequestError> {
        match self {
            Fate::Refused { code, kind, message, retryable } => Some(RequestError::Refused {
                status: *code,
                kind: kind.clone(),
                message: message.clone(),
                retryable: *retryable,
            }),
            _ => None,
        }
    }
}

/// One create with what is known of it. No fate: the process ended before it was known.
#[derive(Debug)]
pub(crate) struct Record {
    number: u64,
    pub(crate) intent: Intent,
    pub(crate) fate: Option<Fate>,
    /// This process is sending it right now.
    on_its_way: bool,
}

impl Record {
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self.fate, None | Some(Fate::Ambiguous { .. }))
    }

    /// Tells whether the fate is unknown, and nobody is about to learn it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_ambiguous() && !self.on_its_way
    }

    pub(crate) fn ambiguity(&self) -> &str {
        match &self.fate {
            Some(Fate::Ambiguous { reason }) => reason,
            _ => "the process ended while the create was on its way",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct DeliveredLine {
    id: String,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// The open state folder.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    records: Vec<Record>,
    /// Request id to record and position.
    known: HashMap<String, (usize, usize)>,
    delivered: HashMap<String, Delivered>,
    log: File,
    /// The end of the last whole line of the log.
    log_end: u64,
    lock: File,
}

impl State {
    /// Opens the folder, making it where it is not there, and reads everything in it.
    pub(crate) fn open(dir: &Path) -> Result<State, Error> {
        if dir.exists() {
            // Before anything is changed: a folder of somebody else stays as it is.
            scan(dir)?;
        }
        durable::private_dir(dir)?;
        let lock = lock(dir)?;
        let mut records = Vec::new();
        let mut known = HashMap::new();
        for number in scan(dir)? {
            let intent: Intent = durable::read(&dir.join(intent_file(number)), INTENT)?;
            let status = dir.join(status_file(number));
            let fate = if status.exists() { Some(durable::read(&status, STATUS)?) } else { None };
            for (seq, (id, _)) in intent.requests.iter().enumerate() {
                known.insert(id.clone(), (records.len(), seq));
            }
            records.push(Record { number, intent, fate, on_its_way: false });
        }
        let (delivered, log) = open_log(dir)?;
        let log_file = dir.join(DELIVERED_FILE);
        let log_end = log.metadata().map_err(durable::io("read", &log_file))?.len();
        Ok(State { dir: dir.to_owned(), records, known, delivered, log, log_end, lock })
    }

    /// Lets others open the folder, while this one is not used any more.
    pub(crate) fn release(&mut self) {
        // It is released with the file in any case; this is only earlier.
        let _ = self.lock.unlock();
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the record of a request's create and its position in there.
    pub(crate) fn find(&self, id: &str) -> Option<(usize, usize)> {
        self.known.get(id).copied()
    }

    pub(crate) fn record(&self, at: usize) -> &Record {
        &self.records[at]
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn delivered(&self, id: &str) -> Option<Delivered> {
        self.delivered.get(id).copied()
    }

    /// Writes down that a create is about to be sent. It is on the disk when this returns.
    pub(crate) fn begin(&mut self, intent: Intent) -> Result<usize, Error> {
        let number = self.records.last().map_or(1, |last| last.number + 1);
        durable::write(&self.dir, &intent_file(number), INTENT, &intent)?;
        let at = self.records.len();
        for (seq, (id, _)) in intent.requests.iter().enumerate() {
            self.known.insert(id.clone(), (at, seq));
        }
        self.records.push(Record { number, intent, fate: None, on_its_way: true });
        Ok(at)
    }

    /// Notes that a create is on its way no more, whatever came of it.
    pub(crate) fn arrive(&mut self, at: usize) {
        self.records[at].on_its_way = false;
    }

    /// Writes down what became of a create. It is on the disk when this returns.
    pub(crate) fn settle(&mut self, at: usize, fate: Fate) -> Result<(), Error> {
        let record = &mut self.records[at];
        let written = durable::write(&self.dir, &status_file(record.number), STATUS, &fate);
        let batch = match &fate {
            Fate::Submitted { batch_id } => format!("record batch `{batch_id}` in"),
            _ => "record the end of a create in".to_owned(),
        };
        record.fate = Some(fate);
        written.map_err(|error| match error {
            Error::StateIo { path, source, .. } => {
                Error::StateIo { action: batch.into(), path, source }
            }
            other => other,
        })
    }

    /// Notes that a request was handed over. Survives the death of the process at once, and a
    /// power cut after [`sync`](State::sync).
    pub(crate) fn deliver(&mut self, id: &str, delivered: Delivered) -> Result<(), Error> {
        let line =
            DeliveredLine { id: id.to_owned(), status: delivered.status, usage: delivered.usage };
        let path = self.dir.join(DELIVERED_FILE);
        let mut bytes =
            serde_json::to_vec(&line).map_err(|e| durable::io("write", &path)(e.into()))?;
        bytes.push(b'\n');
        // What a write left that failed half way must not run into this line.
        let torn = self.log.metadata().map_err(durable::io("read", &path))?.len() != self.log_end;
        let cut = if torn { self.log.set_len(self.log_end) } else { Ok(()) };
        cut.and_then(|()| self.log.write_all(&bytes)).map_err(durable::io("write", &path))?;
        self.log_end += bytes.len() as u64;
        self.delivered.insert(line.id, delivered);
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.log.sync_data().map_err(durable::io("write", &self.dir.join(DELIVERED_FILE)))
    }
}

fn intent_file(number: u64) -> String {
    format!("{number:06}.intent.json")
}

fn status_file(number: u64) -> String {
    format!("{number:06}.status.json")
}

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK_FILE);
    let file = private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(durable::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::StateBusy { state: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(durable::io("lock", &path)(source)),
    }
}

/// Returns the numbers of the intents in order, and refuses a folder with anything unknown in it.
fn scan(dir: &Path) -> Result<Vec<u64>, Error> {
    let mut intents = Vec::new();
    let mut statuses = Vec::new();
    for entry in fs::read_dir(dir).map_err(durable::io("read", dir))? {
        let entry = entry.map_err(durable::io("read", dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_file = entry.file_type().map_err(durable::io("read", dir))?.is_file();
        // A file that a crash left half written was never renamed, so it says nothing.
        let (stem, is_rest) = match name.strip_suffix(".tmp") {
            Some(stem) => (stem, true),
            None => (&*name, false),
        };
        let numbered = |suffix: &str| {
            let number: u64 = stem.strip_suffix(suffix)?.parse().ok()?;
            (number > 0 && stem == format!("{number:06}{suffix}")).then_some(number)
        };
        let ours = match (numbered(".intent.json"), numbered(".status.json")) {
            (Some(number), _) => {
                intents.extend((!is_rest).then_some(number));
                true
            }
            (_, Some(number)) => {
                statuses.extend((!is_rest).then_some(number));
                true
            }
            _ => !is_rest && (stem == LOCK_FILE || stem == DELIVERED_FILE),
        };
        if !is_file || !ours {
            return Err(Error::StateFile {
                path: entry.path(),
                problem: "is no file of this state; move it away, or use another folder".to_owned(),
            });
        }
    }
    intents.sort_unstable();
    if let Some(orphan) = statuses.iter().find(|number| intents.binary_search(number).is_err()) {
        return Err(Error::StateFile {
            path: dir.join(intent_file(*orphan)),
            problem: "is missing; restore it, or use a new state folder".to_owned(),
        });
    }
    Ok(intents)
}

/// Reads the log of deliveries, cuts a torn last line off, and opens it for more.
fn open_log(dir: &Path) -> Result<(HashMap<String, Delivered>, File), Error> {
    let path = dir.join(DELIVERED_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(durable::io("read", &path)(error)),
    };
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    let header = format!("{{\"format\":\"{DELIVERED}\",\"version\":{}}}\n", durable::VERSION);
    if whole == 0 && !header.as_bytes().starts_with(&bytes) {
        check_header(&path, &bytes, DELIVERED)?;
    }
    let mut delivered = HashMap::new();
    let mut lines = bytes[..whole].split_inclusive(|b| *b == b'\n');
    if let Some(first) = lines.next() {
        check_header(&path, first, DELIVERED)?;
    }
    for (number, line) in lines.enumerate() {
        let line: DeliveredLine = serde_json::from_slice(line).map_err(|e| Error::StateFile {
            path: path.clone(),
            problem: format!(
                "is damaged in line {} ({e}); restore it, or use a new state folder",
                number + 2
            ),
        })?;
        delivered.insert(line.id, Delivered { status: line.status, usage: line.usage });
    }
    let mut log =
        private().append(true).create(true).open(&path).map_err(durable::io("open", &path))?;
    let prepared = log.set_len(whole as u64).and_then(|()| {
        if whole == 0 {
            log.write_all(header.as_bytes())?;
        }
        log.sync_all()
    });
    prepared.map_err(durable::io("write", &path))?;
    durable::sync_dir(dir)?;
    Ok((delivered, log))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a write left that failed half way, on a full disk for example, ran into the next
    /// line: the folder was refused as damaged ever after.
    #[test]
    fn a_line_that_was_cut_by_a_failed_write_harms_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let delivered = Delivered { status: Status::Succeeded, usage: None };
        state.deliver("a", delivered).unwrap();
        let mut log = File::options().append(true).open(dir.path().join(DELIVERED_FILE)).unwrap();
        log.write_all(b"{\"id\":\"b\",\"sta").unwrap();
        state.deliver("b", delivered).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(["a", "b"].map(|id| state.delivered(id)), [Some(delivered); 2]);
    }
}
