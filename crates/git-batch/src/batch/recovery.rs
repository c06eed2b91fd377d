//! Writes down what a batch is about to do, and finishes what another process had begun.

use std::collections::BTreeMap;
use std::path::Path;

use gix::ObjectId;
use gix::refs::FullName;

use super::finish::wanted;
use super::session::{Job, Session};
use super::{Batch, Pending};
use crate::record::{Built, Key, Record};
use crate::{
    ApplyError, OnMoved, OpError, OpErrorKind, Operation, OperationKind, Outcome, Push, disk, stops,
};

impl Session<'_> {
    /// Does what is left of a batch that another process had begun: what each ref is, here and at the
    /// remote, says what that is.
    pub(super) fn complete(&mut self, path: &Path, record: Record) -> Result<(), ApplyError> {
        let Record { built, passed, unchanged, caught_up, remade, done } = record;
        let key = path.file_name().and_then(|name| name.to_str()).and_then(Key::from_name);
        let refuse = |reason: String| ApplyError::State { path: path.to_owned(), reason };
        let key = key.ok_or_else(|| refuse("its name is none that this crate gives".to_owned()))?;
        let file =
            self.records.resume(path.to_owned()).map_err(|error| refuse(error.to_string()))?;
        if done.is_some() {
            return file.close().map_err(|error| refuse(error.to_string()));
        }
        // Nothing may point to what a power cut can take.
        self.store.sync_packs().map_err(|error| refuse(error.to_string()))?;
        let operations: Vec<Operation> = built.operations.iter().map(stand_in).collect();
        let operations: Vec<&Operation> = operations.iter().collect();
        let settings = self.settings.clone();
        self.settings.remote.clone_from(&built.remote);
        self.settings.on_moved = built.on_moved;
        self.settings.push_options.clone_from(&built.push_options);
        let mut outcomes = built.outcomes;
        let order = built.order;
        let receipt = self.measured(&operations, &order, |batch| {
            batch.is_landing = built.onto.is_some();
            batch.last_push = built.last_push;
            batch.branches = built.branches;
            batch.resumed = Some(caught_up);
            batch.images = remade.iter().map(|(old, new)| (*old, *new)).collect();
            batch.remade = remade;
            batch.record = Some(file);
            batch.passed = passed;
            batch.unchanged = unchanged;
            let mut pending = built.pending;
            batch.fetch_missing(&pending);
            batch.drop_missing(&mut pending, &mut outcomes);
            batch.carry_out(pending, &mut outcomes, built.onto.as_ref());
            batch.close(&order, &outcomes);
        });
        self.settings = settings;
        self.finished.insert(key, receipt);
        Ok(())
    }
}

impl Batch<'_, '_> {
    /// Makes durable what was built, and writes down what is about to be done.
    pub(super) fn keep_built(
        &mut self,
        tips: &[ObjectId],
        pending: &mut Vec<Pending>,
        outcomes: &[Option<Outcome>],
        job: &Job<'_>,
    ) -> Result<(), OpError> {
        let settings = &self.session.settings;
        let of = |op: &&Operation| (op.id.clone(), op.group.clone());
        let built = Built {
            remote: settings.remote.clone(),
            // Whoever finishes it may not have the gate that would have to see the merge.
            on_moved: if settings.gate.is_some() { OnMoved::Fail } else { settings.on_moved },
            push_options: settings.push_options.clone(),
            onto: job.onto.cloned(),
            operations: self.operations.iter().map(of).collect(),
            order: job.recorded.to_vec(),
            references: std::mem::take(&mut self.references),
            outcomes: outcomes.to_vec(),
            pending: std::mem::take(pending),
            branches: std::mem::take(&mut self.branches),
            last_push: std::mem::take(&mut self.last_push),
        };
        let key = job.key.unwrap_or_else(Key::unique);
        let Session { store, records, .. } = &mut *self.session;
        let (passed, unchanged) = (&self.passed, &self.unchanged);
        let (record, keep) = disk::together(
            || records.write(key, &built, passed, unchanged),
            || store.persist(tips),
        );
        // Only when the objects are there.
        let record = keep.map(|keep| {
            let is_kept = job.key.is_some();
            let begun = record.and_then(|record| records.begin(record, is_kept, || keep.sync()));
            self.keeps.push(keep);
            begun
        });
        // Only lent, so that nothing of it has to be copied.
        *pending = built.pending;
        self.branches = built.branches;
        self.last_push = built.last_push;
        let record = record?.map_err(|error| {
            OpError::repository("cannot write down what the batch is about to do", &error)
        })?;
        self.record = Some(record);
        stops::reach("built");
        Ok(())
    }

    /// Makes commits durable that are pushed in place of the tips of their branches, and writes that
    /// down.
    pub(super) fn keep_caught_up(
        &mut self,
        tips: Vec<(FullName, ObjectId)>,
    ) -> Result<(), OpError> {
        if tips.is_empty() {
            return Ok(());
        }
        let ids: Vec<ObjectId> = tips.iter().map(|(_, id)| *id).collect();
        let keep = self.session.store.persist(&ids)?;
        keep.sync().map_err(|error| OpError::repository("cannot keep a new pack", &error))?;
        self.keeps.push(keep);
        if let Some(record) = &mut self.record {
            let remade = self.remade.iter().map(|(old, new)| (*old, *new)).collect();
            record.catch_up(tips, remade).map_err(|error| {
                OpError::repository("cannot write down what the batch is about to push", &error)
            })?;
        }
        stops::reach("caught up");
        Ok(())
    }

    /// Writes down what became of the operations. Where that is not known, whoever runs them again
    /// asks the remote first: done once more, they would be done twice.
    pub(super) fn close(&mut self, order: &[usize], outcomes: &[Option<Outcome>]) {
        let Some(mut record) = self.record.take() else { return };
        let ends = order.iter().filter_map(|index| outcomes[*index].clone()).collect();
        let is_heard = self.unheard.is_empty() || self.is_landing;
        if !is_heard && record.is_kept() {
            self.session.store.hold(record.name(), &self.own_commits());
        }
        let name = record.name().to_owned();
        let closed = match self.session.store.take_unsynced() {
            Some(error) => Err(error),
            None if is_heard => record.finish(ends),
            None => record.close(),
        };
        // It stays open then, and the next writer makes sure that the branches are where they are.
        match closed {
            Ok(()) => drop(self.session.unclosed.remove(&name)),
            Err(error) => drop(self.session.unclosed.insert(name, error.to_string())),
        }
        self.receipt.fsyncs += record.fsyncs();
    }

    /// The commits that this batch has made of branches, or pushed in their place.
    fn own_commits(&self) -> Vec<ObjectId> {
        let made = self.branches.values().filter(|branch| !branch.steps.is_empty());
        let tips = made.filter_map(|branch| branch.tip);
        let instead = self.resumed.iter().flat_map(BTreeMap::values).copied();
        let sent = self.sent.values().flatten().copied();
        tips.chain(instead).chain(sent).filter(|id| self.session.store.has_object(*id)).collect()
    }

    /// Asks the remote for commits that are not here any more: those that have arrived are there.
    fn fetch_missing(&mut self, pending: &[Pending]) {
        let instead = self.resumed.iter().flat_map(BTreeMap::values);
        let mut all = pending.iter().map(|p| &p.commit).chain(instead);
        if all.all(|id| self.session.store.has_object(*id)) {
            return;
        }
        let wanted = wanted(pending);
        if self.look_behind(&wanted).is_err() {
            self.unheard.extend(wanted.into_keys());
        }
    }

    /// Fails what stands on commits that are not here any more.
    fn drop_missing(&mut self, pending: &mut Vec<Pending>, outcomes: &mut [Option<Outcome>]) {
        let store = &self.session.store;
        let gone = pending.iter().find(|p| !store.has_object(p.commit)).map(|p| p.commit);
        let Some(gone) = gone else { return };
        let what =
            format!("commit {gone} of an interrupted batch is not in the repository any more");
        let error = if self.unheard.is_empty() {
            OpError::new(OpErrorKind::Repository, what)
        } else {
            let what = format!("{what}, and the remote, which may have it, cannot be asked");
            OpError::new(OpErrorKind::Remote, what)
        };
        for p in pending.drain(..) {
            outcomes[p.operation] = Some(Outcome::Failed(error.clone()));
        }
    }

    /// Learns what the remote has where it may have gone on from what was pushed before.
    pub(super) fn look_behind(
        &mut self,
        wanted: &BTreeMap<FullName, ObjectId>,
    ) -> Result<(), OpError> {
        for name in wanted.keys() {
            if self.may_be_there(name)
                && let Some(id) = self.remote_tip(name)?
                && let Some(remote) = &mut self.remote
            {
                remote.refs.insert(name.as_bstr().to_owned(), id);
            }
        }
        Ok(())
    }
}

/// An operation of another process, as far as it is known.
fn stand_in((id, group): &(String, Option<String>)) -> Operation {
    let kind = OperationKind::Push(Push::default());
    Operation { id: id.clone(), kind, after: Vec::new(), group: group.clone() }
}
