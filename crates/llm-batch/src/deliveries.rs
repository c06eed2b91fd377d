//! The log of what was handed over: one line a request, each whole or absent.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::accounting::Delivered;
use crate::answer::{Status, Usage};
use crate::digest::Digest;
use crate::durable::{self, check_header, private};
use crate::error::Error;

const FORMAT: &str = "llm-batch delivered";
/// The name of the file in the state folder.
pub(crate) const FILE: &str = "delivered.jsonl";

/// Returns the content of an id that never had another one.
pub(crate) type OnlyContent<'c> = dyn Fn(&str) -> Option<Digest> + 'c;

/// The outcome of a request as it was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) delivered: Delivered,
    /// Whether it may have been paid for although there is no answer.
    pub(crate) may_be_paid: bool,
    /// Of which content it is the outcome, by the beginning of its digest, which is enough to tell
    /// the contents that one id had apart.
    of: u64,
}

impl Told {
    pub(crate) fn new(delivered: Delivered, may_be_paid: bool, digest: Digest) -> Told {
        Told { delivered, may_be_paid, of: beginning(digest) }
    }

    /// Tells whether it is the outcome of a request with this content.
    pub(crate) fn is_of(&self, digest: Digest) -> bool {
        self.of == beginning(digest)
    }
}

fn beginning(digest: Digest) -> u64 {
    digest[..8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

#[derive(Serialize, Deserialize)]
struct Entry<'l> {
    #[serde(borrow)]
    id: Cow<'l, str>,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_be_paid: bool,
    /// The first 16 hexadecimal digits of the digest of the request.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    of: Option<Cow<'l, str>>,
}

/// The open log.
#[derive(Debug)]
pub(crate) struct Deliveries {
    path: PathBuf,
    told: HashMap<Arc<str>, Told>,
    log: File,
    /// The end of the last whole line.
    end: u64,
    /// Whether something may stand behind that.
    is_torn: bool,
}

impl Deliveries {
    /// Reads the log, cuts a torn last line off, and opens it for more. `only_content` tells what is
    /// meant where a line of before does not say; where that is not known, it says nothing.
    pub(crate) fn open(dir: &Path, only_content: &OnlyContent<'_>) -> Result<Deliveries, Error> {
        let path = dir.join(FILE);
        let (told, whole) = read_whole(&path, only_content)?;
        let mut log =
            private().append(true).create(true).open(&path).map_err(durable::io("open", &path))?;
        let prepared = log.set_len(whole).and_then(|()| {
            if whole == 0 {
                log.write_all(header().as_bytes())?;
            }
            log.sync_all()?;
            log.metadata()
        });
        let end = prepared.map_err(durable::io("write", &path))?.len();
        durable::sync_dir(dir)?;
        Ok(Deliveries { path, told, log, end, is_torn: false })
    }

    /// Reads the log of a folder that another process may be using.
    pub(crate) fn peek(
        dir: &Path,
        only_content: &OnlyContent<'_>,
    ) -> Result<HashMap<Arc<str>, Told>, Error> {
        Ok(read_whole(&dir.join(FILE), only_content)?.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Makes room for so many outcomes, so that the table does not grow by leaps.
    pub(crate) fn expect(&mut self, outcomes: usize) {
        self.told.reserve(outcomes.saturating_sub(self.told.len()));
    }

    /// Returns the outcome of a request with this content, if it was handed over.
    pub(crate) fn get(&self, id: &str, digest: Digest) -> Option<Told> {
        self.told.get(id).copied().filter(|told| told.is_of(digest))
    }

    /// Notes an outcome. Survives the death of the process at once, and a power cut after
    /// [`sync`](Deliveries::sync).
    pub(crate) fn note(&mut self, id: &Arc<str>, told: Told) -> Result<(), Error> {
        let line = Entry {
            id: Cow::Borrowed(id),
            status: told.delivered.status,
            usage: told.delivered.usage,
            may_be_paid: told.may_be_paid,
            of: Some(format!("{:016x}", told.of).into()),
        };
        let mut bytes =
            serde_json::to_vec(&line).map_err(|e| durable::io("write", &self.path)(e.into()))?;
        bytes.push(b'\n');
        // What a write left that failed half way must not run into this line.
        let cut = if self.is_torn { self.log.set_len(self.end) } else { Ok(()) };
        self.is_torn = true;
        cut.and_then(|()| self.log.write_all(&bytes)).map_err(durable::io("write", &self.path))?;
        self.is_torn = false;
        self.end += bytes.len() as u64;
        self.told.insert(Arc::clone(id), told);
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.log.sync_data().map_err(durable::io("write", &self.path))
    }
}

/// Returns what the whole lines say, and where the last of them ends.
fn read_whole(
    path: &Path,
    only_content: &OnlyContent<'_>,
) -> Result<(HashMap<Arc<str>, Told>, u64), Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(durable::io("read", path)(error)),
    };
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    if whole == 0 && !header().as_bytes().starts_with(&bytes) {
        check_header(path, &bytes, FORMAT)?;
    }
    let mut all = HashMap::new();
    let mut lines = bytes[..whole].split_inclusive(|b| *b == b'\n');
    if let Some(first) = lines.next() {
        check_header(path, first, FORMAT)?;
    }
    for (number, line) in lines.enumerate() {
        let damaged = |what: &str| Error::StateFile {
            path: path.to_owned(),
            problem: format!(
                "is damaged in line {} ({what}); restore it, or use a new state folder",
                number + 2
            ),
        };
        let Entry { id, status, usage, may_be_paid, of } =
            serde_json::from_slice(line).map_err(|error| damaged(&error.to_string()))?;
        let of = match of {
            Some(of) => {
                Some(u64::from_str_radix(&of, 16).map_err(|error| damaged(&error.to_string()))?)
            }
            None => only_content(&id).map(beginning),
        };
        if let Some(of) = of {
            let delivered = Delivered { status, usage };
            all.insert(Arc::from(&*id), Told { delivered, may_be_paid, of });
        }
    }
    Ok((all, whole as u64))
}

fn header() -> String {
    format!("{{\"format\":\"{FORMAT}\",\"version\":{}}}\n", durable::VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: Digest = [7; 32];

    fn told() -> Told {
        Told::new(Delivered { status: Status::Succeeded, usage: None }, false, DIGEST)
    }

    /// What a write left that failed half way, on a full disk for example, ran into the next
    /// line: the folder was refused as damaged ever after.
    #[test]
    fn a_line_that_was_cut_by_a_failed_write_harms_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Deliveries::open(dir.path(), &|_| None).unwrap();
        log.note(&"a".into(), told()).unwrap();
        let mut other = File::options().append(true).open(dir.path().join(FILE)).unwrap();
        other.write_all(b"{\"id\":\"b\",\"sta").unwrap();
        log.is_torn = true;
        log.note(&"b".into(), told()).unwrap();
        drop(log);
        let log = Deliveries::open(dir.path(), &|_| None).unwrap();
        assert_eq!(["a", "b"].map(|id| log.get(id, DIGEST)), [Some(told()); 2]);
        assert_eq!(log.get("a", [8; 32]), None, "of another content");
    }

    /// It was taken for the outcome of whatever content came with its id.
    #[test]
    fn a_line_without_a_digest_is_of_the_only_content_that_its_id_had() {
        let dir = tempfile::tempdir().unwrap();
        let line = |id| format!("{{\"id\":\"{id}\",\"status\":\"expired\"}}\n");
        let lines = [r"a\n", "reused"].map(line).concat();
        fs::write(dir.path().join(FILE), header() + &lines).unwrap();
        let log = Deliveries::open(dir.path(), &|id| (id == "a\n").then_some(DIGEST)).unwrap();
        assert_eq!(log.get("a\n", DIGEST).unwrap().delivered.status, Status::Expired);
        assert_eq!(log.get("a\n", [8; 32]), None);
        assert_eq!(log.get("reused", DIGEST), None);
    }
}
