//! The repository while this process is its writer, batch by batch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use gix::refs::FullName;

use super::again::to_try_again;
use super::{Batch, last_pushes};
use crate::earlier::Earlier;
use crate::gate;
use crate::lock::WriterLock;
use crate::passage::{Bases, Judged, Passage};
use crate::program::Git;
use crate::publish;
use crate::record::{Key, Passed, Record, Records, References};
use crate::store::{Signer, Store, held, sweep_indexes, sweep_quarantine};
use crate::{ApplyError, Extent, Operation, Outcome, Receipt, Settings};

/// The repository while this process is its writer.
pub(crate) struct Session<'a> {
    pub(crate) store: Store,
    pub(super) git: Git,
    pub(super) settings: Settings,
    pub(super) signer: Signer,
    pub(super) lock: WriterLock,
    pub(super) records: Records,
    /// How much of a batch is done.
    pub(super) extent: Extent,
    /// What became of operations of earlier inputs.
    pub(super) earlier: &'a Earlier,
    /// What it took to finish batches that earlier processes had begun.
    pub(super) finished: BTreeMap<Key, Receipt>,
    /// What is in a receipt by now: calls of `fsync`, processes, bytes.
    pub(super) counted: (u32, u32, u64),
    /// Why records of batches that are done could not be put away, by their names.
    pub(super) unclosed: BTreeMap<String, String>,
}

/// What the repository is opened with for writing.
pub(crate) struct Writer<'a> {
    pub(crate) store: Store,
    pub(crate) git: Git,
    pub(crate) settings: &'a Settings,
    pub(crate) lock: WriterLock,
    pub(crate) earlier: &'a Earlier,
    /// How much of a batch is done.
    pub(crate) extent: Extent,
}

/// How one batch is run.
#[derive(Debug, Default)]
pub(super) struct Job<'a> {
    /// All operations of the batch that are written down, those included that are not run again.
    pub(super) recorded: &'a [usize],
    /// Under which key, if anybody will ask for what became of it.
    pub(super) key: Option<Key>,
    pub(super) references: References,
    /// The branch that starts at what the remote has.
    pub(super) onto: Option<&'a FullName>,
    /// What is known of its operations from the last time.
    pub(super) ends: Option<&'a BTreeMap<usize, Outcome>>,
}

/// What a batch came to.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// What it took; nothing if all was known.
    pub(crate) receipt: Option<Receipt>,
    /// The operations whose outcome was known.
    pub(crate) replayed: BTreeSet<usize>,
    /// What the gate has to say; unless it passes, nothing was done.
    pub(crate) judged: Judged,
}

impl<'a> Session<'a> {
    /// Clears up what a killed process left, and finishes what it had begun.
    pub(crate) fn begin(writer: Writer<'a>) -> Result<Session<'a>, ApplyError> {
        let Writer { store, git, settings, lock, earlier, extent } = writer;
        let store = if extent == Extent::Preview { store.without_signing() } else { store };
        let signer = Signer::of(&store, settings.author.as_ref());
        let records = Records::in_folder(lock.state_dir());
        let (settings, finished) = (settings.clone(), BTreeMap::new());
        let mut session = Session {
            store,
            git,
            settings,
            signer,
            lock,
            records,
            extent,
            earlier,
            finished,
            counted: (0, 0, 0),
            unclosed: BTreeMap::new(),
        };
        if extent == Extent::Preview {
            return Ok(session);
        }
        // What cannot be made is made, or named, when it is needed.
        let _ = session.records.prepare(&held(session.lock.state_dir()));
        let unfinished = session.records.unfinished()?;
        session.store.sweep_ref_locks();
        sweep_quarantine(session.lock.state_dir());
        sweep_indexes(session.lock.state_dir());
        gate::sweep(session.lock.state_dir());
        for (path, record) in unfinished {
            session.complete(&path, record)?;
        }
        // Only now: it kept the packs of those batches.
        session.store.sweep_packs();
        session.records.prune();
        let Session { store, records, git, .. } = &mut session;
        store.let_go(|batch| records.is_unheard(batch));
        let forgotten = publish::forget(git, store.common_dir());
        store.note_processes(forgotten);
        Ok(session)
    }

    /// Runs one batch whose operations nobody will ask for again. Nothing is done unless the gate lets it
    /// pass; of a batch that does not the outcomes mean nothing.
    pub(crate) fn run(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        outcomes: &mut [Option<Outcome>],
        passage: &mut Passage,
    ) -> Judged {
        let job = Job { recorded: order, ..Job::default() };
        self.run_job(operations, order, outcomes, &job, passage)
    }

    /// Like [`Session::run`], where the branch `onto` starts at what the remote has.
    pub(crate) fn run_onto(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        outcomes: &mut [Option<Outcome>],
        onto: &FullName,
        passage: &mut Passage,
    ) -> Judged {
        let job = Job { recorded: order, onto: Some(onto), ..Job::default() };
        self.run_job(operations, order, outcomes, &job, passage)
    }

    /// Runs one batch of an input, or gives what became of it if it is done. What has failed then is
    /// tried again. If the input `has_name`, its content does not count.
    pub(crate) fn run_once(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        outcomes: &mut [Option<Outcome>],
        (key, name): (Key, Option<&str>),
        passage: &mut Passage,
    ) -> Result<Ran, ApplyError> {
        self.check_closed(&key)?;
        let mut ran = Ran::default();
        let mut again = order.to_vec();
        let mut references = self.tips(operations, order, &BTreeMap::new());
        let ids = |indexes: &[usize], all: &[(String, Option<String>)]| -> Vec<String> {
            indexes.iter().map(|index| all[*index].0.clone()).collect()
        };
        let mut recorded = BTreeMap::new();
        if let Some(record) = self.known(&key)? {
            let built = record.built;
            let known = ids(&built.order, &built.operations);
            let asked: Vec<String> =
                order.iter().map(|index| operations[*index].id.clone()).collect();
            if name.is_none() {
                self.capture_references(operations, order, &mut references);
            }
            let is_same = name.is_some() || built.references == references;
            if let Some(ends) = record.done.filter(|_| is_same && known == asked) {
                recorded = order.iter().copied().zip(ends).collect();
                again = to_try_again(operations, order, &recorded);
                let receipt = self.finished.remove(&key);
                ran.receipt = receipt;
            }
        }
        for (&index, end) in &recorded {
            outcomes[index] = (!again.contains(&index)).then(|| end.clone());
        }
        if !again.is_empty() {
            // What it is built on, and not what others have made of that since.
            references.extend(self.tips(operations, order, &passage.tips));
            let (recorded, ends) = (order, Some(&recorded));
            let job = Job { recorded, key: Some(key), references, onto: None, ends };
            ran.judged = self.run_job(operations, &again, outcomes, &job, passage);
            let receipt = ran.receipt.take().unwrap_or_default();
            passage.spent = receipt.and(std::mem::take(&mut passage.spent));
            if !ran.judged.is_done() {
                return Ok(ran);
            }
            ran.receipt = Some(std::mem::take(&mut passage.spent));
        }
        let is_known = |(index, end): (usize, Outcome)| {
            (outcomes[index].as_ref() == Some(&end)).then_some(index)
        };
        ran.replayed = recorded.into_iter().filter_map(is_known).collect();
        Ok(ran)
    }

    /// A batch that is done but cannot be put away is not done once more.
    fn check_closed(&self, key: &Key) -> Result<(), ApplyError> {
        match self.records.open_path_of(key) {
            Some(path) => Err(self.not_durable(key, path)),
            None => Ok(()),
        }
    }

    fn not_durable(&self, key: &Key, path: PathBuf) -> ApplyError {
        let why = self.unclosed.get(&key.to_string());
        let why = why.map_or("its record cannot be moved", String::as_str);
        let reason =
            format!("it is done, but cannot be made durable: {why}; run again when it can");
        ApplyError::State { path, reason }
    }

    /// What is known of a batch that has ended. What was not known then is asked now.
    fn known(&mut self, key: &Key) -> Result<Option<Record>, ApplyError> {
        let Some(record) = self.records.done(key)? else { return Ok(None) };
        if record.done.is_some() {
            return Ok(Some(record));
        }
        let remote = record.built.remote.clone();
        let path = self.records.path_of(key);
        self.complete(&path, record)?;
        match self.records.done(key)? {
            // The remote has said it.
            Some(record)
                if record.done.is_none() && self.unclosed.contains_key(&key.to_string()) =>
            {
                Err(self.not_durable(key, path))
            }
            Some(record) if record.done.is_none() => Err(ApplyError::Unheard { remote }),
            known => Ok(known),
        }
    }

    /// Cuts an input as it was cut when it was begun: what is known of it is known by its batches. `batches`
    /// are what it would be now.
    ///
    /// # Errors
    /// What is known cannot be read, or is of other operations with that name.
    pub(crate) fn cut_as_before(
        &self,
        operations: &[&Operation],
        mut batches: Vec<Vec<usize>>,
        key: Key,
        name: Option<&str>,
    ) -> Result<Vec<Vec<usize>>, ApplyError> {
        let mut known: Vec<Vec<usize>> = Vec::new();
        while let Some(record) = self.records.done(&key.part(known.len()))? {
            let ids = record.built.operations.iter().map(|(id, _)| id);
            if !ids.eq(operations.iter().map(|operation| &operation.id)) {
                match name {
                    Some(name) => return Err(ApplyError::OtherInput { id: name.to_owned() }),
                    None => break,
                }
            }
            let done: BTreeSet<usize> = record.built.order.iter().copied().collect();
            for batch in &mut batches {
                batch.retain(|index| !done.contains(index));
            }
            known.push(record.built.order);
        }
        batches.retain(|batch| !batch.is_empty());
        known.append(&mut batches);
        Ok(known)
    }

    /// Whether a batch with that key has other operations than `order`.
    ///
    /// # Errors
    /// As [`cut_as_before`](Session::cut_as_before).
    pub(crate) fn is_cut_otherwise(&self, key: &Key, order: &[usize]) -> Result<bool, ApplyError> {
        Ok(self.records.done(key)?.is_some_and(|record| record.built.order != order))
    }

    fn run_job(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        outcomes: &mut [Option<Outcome>],
        job: &Job<'_>,
        passage: &mut Passage,
    ) -> Judged {
        let onto = job.onto;
        passage.keep_ends(order, outcomes);
        let order: Vec<usize> =
            order.iter().copied().filter(|index| outcomes[*index].is_none()).collect();
        let order = order.as_slice();
        let mut judged = Judged::Passes;
        self.signer = passage.signer.get_or_insert_with(|| self.signer.clone()).clone();
        self.store.swap_signed(&mut passage.signed);
        let receipt = self.measured(operations, order, |batch| {
            batch.is_landing = onto.is_some();
            batch.note_landed(operations, |index| {
                let known = outcomes[index].as_ref().or_else(|| passage.ended.get(&index));
                known.or_else(|| job.ends?.get(&index))
            });
            batch.hold_tips(passage);
            batch.bases = std::mem::take(&mut passage.bases);
            // What later operations on the same new branch go by.
            let is_noted = |end: &Outcome| !matches!(end, Outcome::Landed { .. });
            for (&index, end) in passage.ended.iter().filter(|(_, end)| is_noted(end)) {
                batch.note_failure(index, &operations[index].kind, end);
            }
            if let Some(onto) = onto
                && let Err(error) = batch.start_at_remote(onto)
            {
                for &index in order {
                    outcomes[index] = Some(Outcome::Failed(error.clone()));
                }
            } else {
                batch.references = job.references.clone();
                let pending = batch.build(order, outcomes);
                judged = batch.judge(&pending, onto, passage);
                if matches!(judged, Judged::Passes) {
                    batch.passage = std::mem::take(passage);
                    batch.finish(pending, outcomes, job);
                    *passage = std::mem::take(&mut batch.passage);
                    if !batch.waiting.is_empty() {
                        passage.hold_tips(&batch.session.store);
                        let waiting = std::mem::take(&mut batch.waiting);
                        judged = Judged::Moved(waiting, std::mem::take(&mut batch.questions));
                    }
                } else {
                    batch.forget_unchanged(outcomes);
                }
            }
            passage.bases = std::mem::take(&mut batch.bases);
        });
        self.store.swap_signed(&mut passage.signed);
        passage.spent = std::mem::take(&mut passage.spent).and(receipt);
        judged
    }

    /// Lets `work` do what it does with a new batch, and says what it took, with what nobody has counted
    /// before.
    pub(super) fn measured(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        work: impl FnOnce(&mut Batch<'_, '_>),
    ) -> Receipt {
        let started = Instant::now();
        let before = self.counted;
        let checked_out = self.store.checked_out();
        let extent = self.extent;
        let mut batch = Batch {
            session: self,
            operations,
            last_push: last_pushes(operations, order),
            checked_out,
            branches: BTreeMap::new(),
            landed: BTreeMap::new(),
            landed_fault: None,
            later: BTreeSet::new(),
            remote: None,
            ahead: None,
            named: None,
            bases: Bases::default(),
            worktree_end: None,
            folded: None,
            extent,
            keeps: Vec::new(),
            record: None,
            references: References::new(),
            resumed: None,
            sent: BTreeMap::new(),
            remade: BTreeMap::new(),
            images: BTreeSet::new(),
            confirmed: BTreeMap::new(),
            unheard: BTreeSet::new(),
            is_landing: false,
            unchanged: BTreeMap::new(),
            starts: BTreeMap::new(),
            passed: Passed::new(),
            passage: Passage::default(),
            waiting: BTreeSet::new(),
            questions: Vec::new(),
            receipt: Receipt::default(),
        };
        work(&mut batch);
        let mut receipt = batch.receipt;
        self.store.drop_scratch(self.lock.state_dir());
        receipt.refs.sort();
        self.counted = (self.store.fsyncs(), self.store.processes(), self.store.bytes());
        receipt.fsyncs += self.counted.0 - before.0;
        receipt.processes += self.counted.1 - before.1;
        receipt.bytes += self.counted.2 - before.2;
        receipt.seconds = started.elapsed();
        receipt
    }
}
