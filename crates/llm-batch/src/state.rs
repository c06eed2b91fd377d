//! What is known on disk of every create: intents, what became of them, and what was delivered.
//!
//! ```text
//! lock                 held by the one process that uses the folder
//! 000001.intent.json   written before the first byte of a create leaves
//! 000001.status.json   written when it is known what became of it; absent = unknown
//! 000001.answer.json   the answer, where one request was asked alone
//! delivered.jsonl      one line a request that was handed over
//! ```

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::accounting::Delivered;
use crate::answer::{Status, Usage};
use crate::bodies;
use crate::digest::{Digest, from_hex};
use crate::durable::{self, check_header, private};
use crate::error::Error;
use crate::record::{
    AnswerFile, Fate, Intent, IntentFile, IntentToWrite, Members, Record, StatusFile,
};
use crate::table::Table;

const INTENT: &str = "llm-batch intent";
const STATUS: &str = "llm-batch status";
const ANSWER: &str = "llm-batch answer";
const DELIVERED: &str = "llm-batch delivered";
const LOCK_FILE: &str = "lock";
const DELIVERED_FILE: &str = "delivered.jsonl";

/// Where a request went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The record of its latest create, and its position there.
    pub(crate) at: usize,
    pub(crate) seq: usize,
    pub(crate) digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct DeliveredLine<I> {
    id: I,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// The open state folder.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    records: Vec<Record>,
    known: HashMap<Arc<str>, Known>,
    /// Requests of creates that were given up and may have been paid for.
    doubted: HashSet<Arc<str>>,
    delivered: HashMap<Arc<str>, Delivered>,
    log: File,
    /// The end of the last whole line of the log.
    log_end: u64,
    /// Whether something may stand behind that.
    is_torn: bool,
    lock: File,
    /// Whether the folder was made here.
    is_new: bool,
}

/// What the files of a folder say of its creates.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) list: Vec<Record>,
    pub(crate) known: HashMap<Arc<str>, Known>,
    doubted: HashSet<Arc<str>>,
}

impl Records {
    fn read(dir: &Path, numbers: Vec<u64>) -> Result<Records, Error> {
        let mut all = Records::default();
        for number in numbers {
            let path = dir.join(intent_file(number));
            let IntentFile { mut intent, requests } = durable::read(&path, INTENT)?;
            let path = dir.join(status_file(number));
            let status: Option<StatusFile> =
                if exists(&path)? { Some(durable::read(&path, STATUS)?) } else { None };
            let (fate, attempts) = match status {
                Some(StatusFile { fate, attempts, anchor }) => {
                    intent.anchor = anchor.unwrap_or(intent.anchor);
                    (Some(fate), attempts)
                }
                None if intent.preparing => (Some(Fate::Preparing), 0),
                None => (None, 1),
            };
            let is_doubted =
                intent.may_be_paid || matches!(fate, Some(Fate::Void { may_be_paid: true, .. }));
            let (at, size) = (all.list.len(), requests.len());
            for (seq, (id, hex)) in requests.into_iter().enumerate() {
                // Of an unknown digest nothing else has the same.
                let digest = from_hex(&hex).unwrap_or_default();
                let id: Arc<str> = id.into();
                if is_doubted {
                    all.doubted.insert(Arc::clone(&id));
                }
                all.known.insert(id, Known { at, seq, digest });
            }
            all.list.push(Record { number, intent, size, fate, attempts });
        }
        Ok(all)
    }
}

/// Reads a folder that another process may be using, without changing anything in it.
pub(crate) fn peek(dir: &Path) -> Result<(Records, HashMap<Arc<str>, Delivered>), Error> {
    let records = Records::read(dir, scan(dir)?)?;
    Ok((records, read_log(dir)?.delivered))
}

impl State {
    /// Opens the folder, making it where it is not there, and reads everything in it.
    pub(crate) fn open(dir: &Path) -> Result<State, Error> {
        let is_new = !exists(dir)?;
        if !is_new {
            // Before anything is changed: a folder of somebody else stays as it is.
            scan(dir)?;
        }
        durable::private_dir(dir)?;
        let lock = lock(dir)?;
        let Records { list: records, known, doubted } = Records::read(dir, scan(dir)?)?;
        let (delivered, log) = open_log(dir)?;
        let log_file = dir.join(DELIVERED_FILE);
        let log_end = log.metadata().map_err(durable::io("read", &log_file))?.len();
        let dir = dir.to_owned();
        Ok(State {
            dir,
            records,
            known,
            doubted,
            delivered,
            log,
            log_end,
            is_torn: false,
            lock,
            is_new,
        })
    }

    /// Lets others open the folder, while this one is not used any more.
    ///
    /// A folder that was made for nothing is removed: no request came that anything is known of.
    pub(crate) fn release(&mut self) {
        if self.is_new && self.records.is_empty() && self.delivered.is_empty() {
            self.is_new = false;
            let files = [DELIVERED_FILE, LOCK_FILE];
            // Whatever else is in there keeps it in place.
            let _ = files.iter().try_for_each(|file| fs::remove_file(self.dir.join(file)));
            let _ = fs::remove_dir(&self.dir);
        }
        // It is released with the file in any case; this is only earlier.
        let _ = self.lock.unlock();
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns where a request went, if it did.
    pub(crate) fn find(&self, id: &str) -> Option<Known> {
        self.known.get(id).copied()
    }

    pub(crate) fn record(&self, at: usize) -> &Record {
        &self.records[at]
    }

    /// Returns how often the requests of a record came back without an answer before.
    pub(crate) fn resent(&self, number: u64) -> u32 {
        let at = self.records.binary_search_by_key(&number, |record| record.number);
        at.map_or(0, |at| self.records[at].intent.resent)
    }

    /// Returns the record whose requests this one sent again.
    pub(crate) fn replaced_by(&self, at: usize) -> Option<usize> {
        let number = self.records[at].intent.replaces?;
        self.records.binary_search_by_key(&number, |record| record.number).ok()
    }

    /// Returns the ids of all batches that creates of this folder are known to have made.
    pub(crate) fn batch_ids(&self) -> Vec<String> {
        let id = |record: &Record| match &record.fate {
            Some(Fate::Submitted { batch_id }) => Some(batch_id.clone()),
            _ => None,
        };
        self.records.iter().filter_map(id).collect()
    }

    /// Returns the ids of the requests whose latest create this was; looks at all that are known.
    pub(crate) fn ids_of(&self, at: usize) -> Vec<Arc<str>> {
        let here = self.known.iter().filter(|(_, known)| known.at == at);
        here.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// Tells whether a create that was given up may have been paid for with this request in it.
    pub(crate) fn is_doubted(&self, id: &str) -> bool {
        self.doubted.contains(id)
    }

    /// Makes room for so many outcomes, so that the table does not grow by leaps.
    pub(crate) fn expect(&mut self, outcomes: usize) {
        self.delivered.reserve(outcomes.saturating_sub(self.delivered.len()));
    }

    pub(crate) fn delivered(&self, id: &str) -> Option<Delivered> {
        self.delivered.get(id).copied()
    }

    /// Writes down that a create is about to be sent, or prepared where the intent says so. It is
    /// on the disk when this returns.
    pub(crate) fn begin(
        &mut self,
        intent: Intent,
        members: &[u32],
        table: &Table,
    ) -> Result<usize, Error> {
        let number = self.records.last().map_or(1, |last| last.number + 1);
        let document = IntentToWrite { intent: &intent, requests: Members(members, table) };
        durable::write(&self.dir, &intent_file(number), INTENT, &document)?;
        let at = self.records.len();
        self.known.reserve(members.len());
        for (seq, &member) in members.iter().enumerate() {
            let item = &table.items()[member as usize];
            let known = Known { at, seq, digest: item.digest };
            if intent.may_be_paid {
                self.doubted.insert(Arc::clone(&item.id));
            }
            self.known.insert(Arc::clone(&item.id), known);
        }
        let size = members.len();
        let fate = intent.preparing.then_some(Fate::Preparing);
        let attempts = u64::from(!intent.preparing);
        self.records.push(Record { number, intent, size, fate, attempts });
        Ok(at)
    }

    /// Writes down that a create of a record is about to be sent, found by `anchor`. It is on the
    /// disk when this returns.
    pub(crate) fn begin_again(&mut self, at: usize, anchor: &str) -> Result<(), Error> {
        let record = &mut self.records[at];
        record.attempts += 1;
        anchor.clone_into(&mut record.intent.anchor);
        self.settle(at, Fate::Sending)
    }

    /// Writes down what became of a create. It is on the disk when this returns.
    pub(crate) fn settle(&mut self, at: usize, fate: Fate) -> Result<(), Error> {
        let record = &mut self.records[at];
        let anchor = record.intent.preparing.then(|| record.intent.anchor.clone());
        let status = StatusFile { fate, attempts: record.attempts, anchor };
        let written = durable::write(&self.dir, &status_file(record.number), STATUS, &status);
        let batch = match &status.fate {
            Fate::Submitted { batch_id } => format!("record batch `{batch_id}` in"),
            _ => "record the end of a create in".to_owned(),
        };
        record.fate = Some(status.fate);
        written.map_err(|error| match error {
            Error::StateIo { path, source, .. } => {
                Error::StateIo { action: batch.into(), path, source }
            }
            other => other,
        })
    }

    /// Gives a create up; its requests go elsewhere. It is on the disk when this returns.
    pub(crate) fn void(
        &mut self,
        at: usize,
        reason: String,
        paid: Option<&mut dyn Iterator<Item = Arc<str>>>,
    ) -> Result<(), Error> {
        let may_be_paid = paid.is_some();
        self.settle(at, Fate::Void { reason, may_be_paid })?;
        self.doubted.extend(paid.into_iter().flatten());
        Ok(())
    }

    /// Keeps the answer to a request that was asked alone. It is on the disk when this returns.
    pub(crate) fn keep_answer(&self, at: usize, response: &RawValue) -> Result<(), Error> {
        let name = answer_file(self.records[at].number);
        durable::write(&self.dir, &name, ANSWER, &AnswerFile { response })
    }

    /// Returns the answer that was kept, if one was.
    pub(crate) fn kept_answer(&self, at: usize) -> Result<Option<Box<RawValue>>, Error> {
        let path = self.dir.join(answer_file(self.records[at].number));
        if !exists(&path)? {
            return Ok(None);
        }
        let file: AnswerFile<Box<RawValue>> = durable::read(&path, ANSWER)?;
        Ok(Some(file.response))
    }

    /// Notes that a request was handed over. Survives the death of the process at once, and a
    /// power cut after [`sync`](State::sync).
    pub(crate) fn deliver(&mut self, id: &Arc<str>, delivered: Delivered) -> Result<(), Error> {
        let line = DeliveredLine { id, status: delivered.status, usage: delivered.usage };
        let path = self.dir.join(DELIVERED_FILE);
        let mut bytes =
            serde_json::to_vec(&line).map_err(|e| durable::io("write", &path)(e.into()))?;
        bytes.push(b'\n');
        // What a write left that failed half way must not run into this line.
        let cut = if self.is_torn { self.log.set_len(self.log_end) } else { Ok(()) };
        self.is_torn = true;
        cut.and_then(|()| self.log.write_all(&bytes)).map_err(durable::io("write", &path))?;
        self.is_torn = false;
        self.log_end += bytes.len() as u64;
        self.delivered.insert(Arc::clone(id), delivered);
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

fn answer_file(number: u64) -> String {
    format!("{number:06}.answer.json")
}

/// Tells whether there is something; that nobody can tell is an error, not a no.
fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(durable::io("read", path))
}

/// Tells whether the path leads to the open file, and not to another or none.
#[cfg(unix)]
fn is_still_at(file: &File, path: &Path) -> Result<bool, Error> {
    use std::os::unix::fs::MetadataExt;

    let open = file.metadata().map_err(durable::io("read", path))?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(durable::io("read", path)(error)),
    }
}

/// Elsewhere a file that is open is not removed.
#[cfg(not(unix))]
fn is_still_at(_: &File, path: &Path) -> Result<bool, Error> {
    exists(path)
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
        Ok(()) if is_still_at(&file, &path)? => Ok(file),
        // Somebody has it, or had it and has removed the folder just now.
        Ok(()) | Err(TryLockError::WouldBlock) => Err(Error::StateBusy { state: dir.to_owned() }),
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
        let status = numbered(".status.json").or_else(|| numbered(".answer.json"));
        let ours = match (numbered(".intent.json"), status) {
            (Some(number), _) => {
                intents.extend((!is_rest).then_some(number));
                true
            }
            (_, Some(number)) => {
                statuses.extend((!is_rest).then_some(number));
                true
            }
            _ if name == bodies::FILE => true,
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

/// The log of deliveries, as far as it is whole.
struct Log {
    delivered: HashMap<Arc<str>, Delivered>,
    whole: u64,
}

fn read_log(dir: &Path) -> Result<Log, Error> {
    let path = dir.join(DELIVERED_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(durable::io("read", &path)(error)),
    };
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    if whole == 0 && !log_header().as_bytes().starts_with(&bytes) {
        check_header(&path, &bytes, DELIVERED)?;
    }
    let mut delivered = HashMap::new();
    let mut lines = bytes[..whole].split_inclusive(|b| *b == b'\n');
    if let Some(first) = lines.next() {
        check_header(&path, first, DELIVERED)?;
    }
    for (number, line) in lines.enumerate() {
        let line: DeliveredLine<String> =
            serde_json::from_slice(line).map_err(|e| Error::StateFile {
                path: path.clone(),
                problem: format!(
                    "is damaged in line {} ({e}); restore it, or use a new state folder",
                    number + 2
                ),
            })?;
        let end = Delivered { status: line.status, usage: line.usage };
        delivered.insert(line.id.into(), end);
    }
    Ok(Log { delivered, whole: whole as u64 })
}

fn log_header() -> String {
    format!("{{\"format\":\"{DELIVERED}\",\"version\":{}}}\n", durable::VERSION)
}

/// Reads the log of deliveries, cuts a torn last line off, and opens it for more.
fn open_log(dir: &Path) -> Result<(HashMap<Arc<str>, Delivered>, File), Error> {
    let path = dir.join(DELIVERED_FILE);
    let Log { delivered, whole } = read_log(dir)?;
    let mut log =
        private().append(true).create(true).open(&path).map_err(durable::io("open", &path))?;
    let prepared = log.set_len(whole).and_then(|()| {
        if whole == 0 {
            log.write_all(log_header().as_bytes())?;
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

    #[cfg(unix)]
    #[test]
    fn a_lock_on_a_file_that_was_removed_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK_FILE);
        let open = File::create(&path).unwrap();
        assert!(is_still_at(&open, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_still_at(&open, &path).unwrap());
        File::create(&path).unwrap();
        assert!(!is_still_at(&open, &path).unwrap());
    }

    /// What a write left that failed half way, on a full disk for example, ran into the next
    /// line: the folder was refused as damaged ever after.
    #[test]
    fn a_line_that_was_cut_by_a_failed_write_harms_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let delivered = Delivered { status: Status::Succeeded, usage: None };
        state.deliver(&"a".into(), delivered).unwrap();
        let mut log = File::options().append(true).open(dir.path().join(DELIVERED_FILE)).unwrap();
        log.write_all(b"{\"id\":\"b\",\"sta").unwrap();
        state.is_torn = true;
        state.deliver(&"b".into(), delivered).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(["a", "b"].map(|id| state.delivered(id)), [Some(delivered); 2]);
    }
}
