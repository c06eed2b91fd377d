//! Writes down what a batch is about to do, and finishes what another process had begun.

use std::collections::BTreeMap;
use std::path::Path;

use gix::ObjectId;
use gix::refs::FullName;

use super::session::{Job, Session};
use super::{Batch, Pending};
use crate::record::{Built, Key, Record};
use crate::{
    ApplyError, OnMoved, OpError, OpErrorKind, Operation, OperationKind, Outcome, Push, stops,
};

impl Session<'_> {
    /// Does what is left of a batch that another process had begun: what each ref is, here and at the
    /// remote, says what that is.
    pub(super) fn complete(&mut self, path: &Path, record: Record) -> Result<(), ApplyError> {
        let Record { built, caught_up, remade, done } = record;
        let key = path.file_name().and_then(|name| name.to_str()).and_then(Key::from_name);
        let refuse = |reason: String| ApplyError::State { path: path.to_owned(), reason };
        let key = key.ok_or_else(|| refuse("its name is none that this crate gives".to_owned()))?;
        let file =
            self.records.resume(path.to_owned()).map_err(|error| refuse(error.to_string()))?;
        if done.is_some() {
            return file.close().map_err(|error| refuse(error.to_string()));
        }
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
            batch.remade = remade;
            batch.record = Some(file);
            let mut pending = built.pending;
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
    /// Writes down what is about to be done.
    pub(super) fn open_record(
        &mut self,
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
        let record = self.session.records.begin(key, job.key.is_some(), &built);
        // Only lent, so that nothing of it has to be copied.
        *pending = built.pending;
        self.branches = built.branches;
        self.last_push = built.last_push;
        let record = record.map_err(|error| {
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
        // If that fails, the next one does again what is done already, which harms nothing.
        let _ = if self.unheard.is_empty() || self.is_landing {
            record.finish(ends)
        } else {
            record.close()
        };
        self.receipt.fsyncs += record.fsyncs();
    }

    /// Fails what stands on commits that are not here any more.
    fn drop_missing(&mut self, pending: &mut Vec<Pending>, outcomes: &mut [Option<Outcome>]) {
        let store = &self.session.store;
        let gone = pending.iter().find(|p| !store.has_object(p.commit)).map(|p| p.commit);
        let Some(gone) = gone else { return };
        let error = OpError::new(
            OpErrorKind::Repository,
            format!("commit {gone} of an interrupted batch is not in the repository any more"),
        );
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
