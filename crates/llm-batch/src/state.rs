//! What is known on disk of every create: intents, what became of them, and what was delivered.
//!
//! ```text
//! lock                 held by the one process that uses the folder, with its number in it
//! 000001.intent.json   written before the first byte of a create leaves
//! 000001.status.json   written when it is known what became of it; absent = unknown
//! 000001.answer.json   the answer, where one request was asked alone
//! delivered.jsonl      one line a request that was handed over
//! 000001.bodies.tmp    what a batch of tickets sends, as long as somebody works on it; where the
//!                      process ends before that, until the folder is opened again
//! ```

mod lock;
mod place;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::bodies;
use crate::deliveries::{self, Deliveries, Told};
use crate::digest::{Digest, from_hex};
use crate::durable;
use crate::error::Error;
use crate::record::{
    AnswerFile, Fate, Intent, IntentFile, IntentToWrite, Members, Record, StatusFile,
};
use crate::table::{Item, Table};

const INTENT: &str = "llm-batch intent";
const STATUS: &str = "llm-batch status";
const ANSWER: &str = "llm-batch answer";

/// Where a request went. One whose id comes again with another content is another request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The record of its latest create, and its position there.
    pub(crate) at: usize,
    pub(crate) seq: usize,
    pub(crate) digest: Digest,
}

/// The open state folder.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    records: Vec<Record>,
    known: HashMap<Arc<str>, Known>,
    pub(crate) deliveries: Deliveries,
    lock: File,
    /// What tells the folder from a copy of it.
    place: String,
    /// Whether the folder was made here.
    is_new: bool,
}

/// What the files of a folder say of its creates.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) list: Vec<Record>,
    pub(crate) known: HashMap<Arc<str>, Known>,
    /// The ids that creates carried with more than one content.
    reused: HashSet<Arc<str>>,
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
            let (at, size) = (all.list.len(), requests.len());
            for (seq, (id, hex)) in requests.into_iter().enumerate() {
                // Of an unknown digest nothing else has the same.
                let digest = from_hex(&hex).unwrap_or_default();
                let id: Arc<str> = id.into();
                let before = all.known.insert(Arc::clone(&id), Known { at, seq, digest });
                if before.is_some_and(|before| before.digest != digest) {
                    all.reused.insert(id);
                }
            }
            all.list.push(Record { number, intent, size, fate, attempts });
        }
        Ok(all)
    }

    /// Returns the content of an id, where it had only one.
    fn only_content(&self, id: &str) -> Option<Digest> {
        let known = self.known.get(id).filter(|_| !self.reused.contains(id))?;
        Some(known.digest)
    }
}

/// Reads a folder that another process may be using, without changing anything in it.
pub(crate) fn peek(dir: &Path) -> Result<(Records, HashMap<Arc<str>, Told>), Error> {
    let records = Records::read(dir, scan(dir)?)?;
    let told = Deliveries::peek(dir, &|id| records.only_content(id))?;
    Ok((records, told))
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
        let lock = lock::take(dir)?;
        bodies::clear(dir)?;
        let records = Records::read(dir, scan(dir)?)?;
        let deliveries = Deliveries::open(dir, &|id| records.only_content(id))?;
        let place = place::of(dir, &dir.join(deliveries::FILE))?;
        let Records { list: mut records, known, .. } = records;
        for Record { intent, .. } in &mut records {
            let before = intent.place_of_before.take().filter(|before| *before == place);
            intent.place = intent.place.take().or(before);
        }
        Ok(State { dir: dir.to_owned(), records, known, deliveries, lock, place, is_new })
    }

    /// Lets others open the folder, while this one is not used any more.
    ///
    /// A folder that was made for nothing is removed: no request came that anything is known of.
    pub(crate) fn release(&mut self) {
        if self.is_new && self.records.is_empty() && self.deliveries.is_empty() {
            self.is_new = false;
            let files = [deliveries::FILE, lock::FILE];
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

    /// Returns where the latest request with an id went, whatever its content was.
    pub(crate) fn find(&self, id: &str) -> Option<Known> {
        self.known.get(id).copied()
    }

    /// Tells whether a request with an id may have been paid for, whatever its content was.
    pub(crate) fn may_be_paid(&self, id: &str) -> bool {
        self.find(id).is_some_and(|Known { at, .. }| {
            let record = &self.records[at];
            let is_submitted = matches!(record.fate, Some(Fate::Submitted { .. }));
            is_submitted || record.is_lost() || self.doubts(at) > 0
        })
    }

    /// Returns where a request went, if it did.
    pub(crate) fn known(&self, item: &Item) -> Option<Known> {
        self.find(&item.id).filter(|known| known.digest == item.digest)
    }

    /// Returns what was handed over for a request, if anything was.
    pub(crate) fn told(&self, item: &Item) -> Option<Told> {
        self.deliveries.get(&item.id, item.digest)
    }

    pub(crate) fn record(&self, at: usize) -> &Record {
        &self.records[at]
    }

    /// Returns the record of that number.
    pub(crate) fn numbered(&self, number: u64) -> Option<usize> {
        self.records.binary_search_by_key(&number, |record| record.number).ok()
    }

    /// Returns the records whose requests this one sent again.
    pub(crate) fn replaced_by(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let numbers = self.records[at].intent.replaces.iter();
        // What comes later cannot be replaced: a damaged folder leads into no circle.
        numbers.filter_map(|number| self.numbered(*number)).filter(move |older| *older < at)
    }

    /// Returns how many creates that carried the requests of this one, itself included, were given
    /// up although they may have been paid for.
    pub(crate) fn doubts(&self, at: usize) -> u32 {
        u32::from(self.records[at].is_doubted()) + self.doubts_before(at)
    }

    /// Returns the same without the create itself.
    pub(crate) fn doubts_before(&self, at: usize) -> u32 {
        let Intent { replaces, may_be_paid, .. } = &self.records[at].intent;
        self.chain(replaces, *may_be_paid, at).map(|(_, is_doubt)| u32::from(is_doubt)).sum()
    }

    /// Returns the same for a create that replaces these, and is not written down yet. `may_be_paid`
    /// tells whether they are left at the provider, which may run them.
    pub(crate) fn doubts_behind(&self, replaces: &[u64], may_be_paid: bool) -> u32 {
        let chain = self.chain(replaces, may_be_paid, self.records.len());
        chain.map(|(_, is_doubt)| u32::from(is_doubt)).sum()
    }

    /// Tells whether a create is the first one that sends its requests again although one before
    /// may have been paid for.
    pub(crate) fn is_first_in_doubt(&self, at: usize) -> bool {
        let Intent { replaces, may_be_paid, .. } = &self.records[at].intent;
        let mut older = self.chain(replaces, *may_be_paid, at).map(|(older, _)| older);
        let before = older.find(|older| self.records[*older].attempts > 0);
        self.doubts_before(at) > 0 && before.is_none_or(|older| self.doubts_before(older) == 0)
    }

    /// Returns the creates that carried the same requests before, the latest first, each with
    /// whether it may have been paid for although another one replaced it.
    fn chain<'s>(
        &'s self,
        mut replaces: &'s [u64],
        mut is_left: bool,
        mut before: usize,
    ) -> impl Iterator<Item = (usize, bool)> + 's {
        iter::from_fn(move || {
            // One that replaces several has no doubts among them. What comes later cannot be
            // replaced: a damaged folder leads into no circle.
            let [number] = replaces else { return None };
            let at = self.numbered(*number).filter(|at| *at < before)?;
            let record = &self.records[at];
            let is_submitted = matches!(record.fate, Some(Fate::Submitted { .. }));
            let is_doubt = record.is_doubted() || (is_left && is_submitted);
            (replaces, is_left, before) = (&record.intent.replaces, record.intent.may_be_paid, at);
            Some((at, is_doubt))
        })
    }

    /// Tells whether a create says in which folder it was written down.
    pub(crate) fn is_placed(&self, at: usize) -> bool {
        self.records[at].intent.place.is_some()
    }

    /// Tells whether the folder was copied, moved or restored since a create was written down, as far
    /// as that can be told: then somebody may go on with another copy of it, or have gone on with it.
    pub(crate) fn is_copied(&self, at: usize) -> bool {
        self.records[at].intent.place.as_ref() != Some(&self.place)
    }

    /// Returns the ids of all batches that creates of this folder are known to have made.
    pub(crate) fn batch_ids(&self) -> Vec<String> {
        let id = |record: &Record| match &record.fate {
            Some(Fate::Submitted { batch_id }) => Some(batch_id.clone()),
            _ => None,
        };
        self.records.iter().filter_map(id).collect()
    }

    /// Writes down that a create is about to be sent, or prepared where the intent says so. It is
    /// on the disk when this returns.
    pub(crate) fn begin(
        &mut self,
        mut intent: Intent,
        members: &[u32],
        table: &Table,
    ) -> Result<usize, Error> {
        intent.place = Some(self.place.clone());
        let number = self.records.last().map_or(1, |last| last.number + 1);
        let document = IntentToWrite { intent: &intent, requests: Members(members, table) };
        durable::write(&self.dir, &intent_file(number), INTENT, &document)?;
        let at = self.records.len();
        self.known.reserve(members.len());
        for (seq, &member) in members.iter().enumerate() {
            let item = &table.items()[member as usize];
            let known = Known { at, seq, digest: item.digest };
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
        let (fate, before) = (record.fate.clone(), record.intent.anchor.clone());
        record.attempts += 1;
        anchor.clone_into(&mut record.intent.anchor);
        let written = self.settle(at, Fate::Sending);
        if written.is_err() {
            // It is not sent, so it is what it was.
            let record = &mut self.records[at];
            (record.fate, record.intent.anchor) = (fate, before);
            record.attempts -= 1;
        }
        written
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
            _ if is_rest && numbered(bodies::OF_TICKETS).is_some() => true,
            _ => !is_rest && (stem == lock::FILE || stem == deliveries::FILE),
        };
        if !is_file || !ours {
            return Err(Error::StateFile {
                path: entry.path(),
                problem: "is no file of this state; move it away, or use another folder".to_owned(),
            });
        }
    }
    with_late(dir, intents, &statuses)
}

/// Returns the numbers of the intents in order, with those that were written while the folder was read:
/// of them only what came later may have been seen.
fn with_late(dir: &Path, mut intents: Vec<u64>, later: &[u64]) -> Result<Vec<u64>, Error> {
    intents.sort_unstable();
    let mut late = BTreeSet::new();
    for number in later {
        let path = dir.join(intent_file(*number));
        if intents.binary_search(number).is_ok() || late.contains(number) {
            continue;
        }
        if !exists(&path)? {
            let problem = "is missing; restore it, or use a new state folder".to_owned();
            return Err(Error::StateFile { path, problem });
        }
        late.insert(*number);
    }
    intents.extend(late);
    intents.sort_unstable();
    Ok(intents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who looked on while a create was written down was told that its intent is missing.
    #[test]
    fn an_intent_that_is_written_while_the_folder_is_read_is_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(intent_file(3)), "").unwrap();
        let scanned = |later: &[u64]| with_late(dir.path(), vec![2, 1], later);
        assert_eq!(scanned(&[3, 2, 3]).unwrap(), [1, 2, 3]);
        let said = scanned(&[3, 4]).unwrap_err().to_string();
        assert!(said.contains("000004.intent.json` is missing"), "{said}");
    }

    #[test]
    fn doubts_are_counted_along_the_creates_that_replaced_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let provider = crate::providers::Anthropic::new("key").unwrap();
        let table = Table::of_sizes(&[(0, 1)]);
        let void = |may_be_paid| Fate::Void { reason: String::new(), may_be_paid };
        let submitted = || Fate::Submitted { batch_id: "b".to_owned() };
        let unsent = || Fate::Unsent { reason: String::new() };
        let mut doubts = |replaces: &[u64], may_be_paid, fate| {
            let nonce = "0".repeat(16);
            let intent = Intent::new(&provider, table.group(0), nonce, crate::Lane::Batch);
            let intent = Intent { replaces: replaces.to_vec(), may_be_paid, ..intent };
            let at = state.begin(intent, &[0], &table).unwrap();
            state.settle(at, fate).unwrap();
            state.doubts(at)
        };
        assert_eq!(doubts(&[], false, void(true)), 1, "1 was given up");
        assert_eq!(doubts(&[1], false, submitted()), 1, "2");
        assert_eq!(doubts(&[2], true, void(false)), 2, "3: 2 may still run");
        assert_eq!(doubts(&[3], true, unsent()), 2, "4: 3 was nothing");
        assert_eq!(doubts(&[4], false, submitted()), 2, "5");
        assert_eq!(doubts(&[5], false, submitted()), 2, "6: 5 came back unpaid");
        assert_eq!(doubts(&[], false, unsent()), 0, "7");
        assert_eq!(doubts(&[7, 4], false, submitted()), 0, "8 replaces several");
        assert_eq!(doubts(&[9], false, submitted()), 0, "9 leads into a circle");
    }

    /// It was taken for sent, in this process alone: an ask that never went out was of unknown fate.
    #[test]
    fn a_create_that_cannot_be_written_down_once_more_is_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let mut state = State::open(&folder).unwrap();
        let provider = crate::providers::Anthropic::new("key").unwrap();
        let table = Table::of_sizes(&[(0, 1)]);
        let nonce = "0".repeat(16);
        let intent = Intent::new(&provider, table.group(0), nonce, crate::Lane::Sync);
        let at = state.begin(intent, &[0], &table).unwrap();
        state.settle(at, Fate::Unsent { reason: "busy".to_owned() }).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(state.begin_again(at, "anchor").is_err());
        let record = state.record(at);
        assert!(record.is_unsent() && !record.is_lost(), "{record:?}");
        assert_eq!((record.attempts, &*record.intent.anchor), (1, ""));
    }

    /// What a folder of before says is no damage: in a new folder all of it would be paid again.
    #[test]
    fn an_intent_that_names_what_it_replaces_by_one_number_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            (
                "000001.intent.json",
                r#"{"format":"llm-batch intent","version":1,"nonce":"5f3a9c0d7e21b846","provider":"anthropic","endpoint":"https://api.anthropic.com","kind":"prompt","model":"model-a","lane":"batch","requests":[["a","00"]]}"#,
            ),
            (
                "000001.status.json",
                r#"{"format":"llm-batch status","version":1,"status":"void","reason":"lost","may_be_paid":true,"attempts":1}"#,
            ),
            (
                "000002.intent.json",
                r#"{"format":"llm-batch intent","version":1,"nonce":"6a3a9c0d7e21b847","provider":"anthropic","endpoint":"https://api.anthropic.com","kind":"prompt","model":"model-a","lane":"batch","replaces":1,"resent":1,"requests":[["a","00"]]}"#,
            ),
            (
                "000003.intent.json",
                r#"{"format":"llm-batch intent","version":1,"nonce":"7b3a9c0d7e21b848","provider":"anthropic","endpoint":"https://api.anthropic.com","kind":"prompt","model":"model-a","lane":"batch","replaces":[2],"requests":[["a","00"]]}"#,
            ),
        ];
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let state = State::open(dir.path()).unwrap();
        assert_eq!((0..3).filter(|at| state.is_copied(*at)).count(), 3, "nobody knows");
        let replaced = |at| state.replaced_by(at).collect::<Vec<_>>();
        assert_eq!([replaced(0), replaced(1), replaced(2)], [vec![], vec![0], vec![1]]);
        assert_eq!([0, 1, 2].map(|at| state.doubts(at)), [1; 3]);
    }

    /// What was told before contents were told apart belongs to the only one there was, if any.
    #[test]
    fn an_outcome_of_an_unknown_content_is_that_of_no_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let contents = [1, 2].map(|n: u8| format!("{n:02}").repeat(32));
        let intent = |number: u8, requests: &[(&str, &String)]| {
            let intent = serde_json::json!({"format": INTENT, "version": 1, "nonce": "5f3a9c0d7e21b846",
                "provider": "p", "endpoint": "e", "kind": "other", "model": "m", "requests": requests});
            fs::write(dir.path().join(intent_file(number.into())), intent.to_string()).unwrap();
        };
        intent(1, &[("once", &contents[0]), ("twice", &contents[0])]);
        intent(2, &[("twice", &contents[1])]);
        let line = |id| format!("{{\"id\":\"{id}\",\"status\":\"succeeded\"}}\n");
        let header = "{\"format\":\"llm-batch delivered\",\"version\":1}\n".to_owned();
        let lines = header + &["once", "twice", "never sent"].map(line).concat();
        fs::write(dir.path().join(deliveries::FILE), lines).unwrap();
        let state = State::open(dir.path()).unwrap();
        let is_told = |id, n: u8| state.deliveries.get(id, [n; 32]).is_some();
        assert_eq!([is_told("once", 1), is_told("once", 2)], [true, false]);
        assert_eq!([is_told("twice", 1), is_told("twice", 2)], [false, false]);
        assert!(!is_told("never sent", 1));
    }
}
