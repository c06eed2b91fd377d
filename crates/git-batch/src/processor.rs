//! The batch processor behind [`GitBatch::submit`](crate::GitBatch::submit).

use std::collections::BTreeSet;
use std::path::PathBuf;

use batch_core::{BatchOf, BatchProcessor};

use crate::earlier::Earlier;
use crate::repository::{Repository, Run};
use crate::{ApplyError, OpError, OpErrorKind, Operation, Outcome};

/// Runs a batch of operations against one repository and one remote.
#[derive(Debug)]
pub struct GitProcessor {
    repository: Repository,
    key: (PathBuf, String),
    earlier: Earlier,
}

impl GitProcessor {
    pub(crate) fn new(repository: Repository) -> GitProcessor {
        let key = (repository.common_dir.clone(), repository.settings.remote.clone());
        GitProcessor { repository, key, earlier: Earlier::default() }
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }
}

impl BatchProcessor for GitProcessor {
    /// The repository and the name of its remote.
    type Key = (PathBuf, String);
    type Item = Operation;
    type Output = Outcome;
    type Error = ApplyError;

    fn key(&self, _: &Operation) -> Self::Key {
        self.key.clone()
    }

    fn process(&self, _: &Self::Key, batch: BatchOf<Self>) {
        // The callers do not know each other's ids: the first one keeps it.
        let mut ids = BTreeSet::new();
        let (slots, repeated): (Vec<_>, Vec<_>) =
            batch.slots().partition(|slot| ids.insert(slot.item().id.as_str()));
        for slot in repeated {
            let message =
                format!("another operation of the same batch has the id {:?}", slot.item().id);
            let error = OpError::new(OpErrorKind::DuplicateId, message);
            slot.resolve(Ok(Outcome::Failed(error)));
        }
        let operations: Vec<&Operation> = slots.iter().map(|slot| slot.item()).collect();
        match self.repository.run(&operations, usize::MAX, &self.earlier, &Run::Queued) {
            Ok(report) => {
                // Before the callers wake, so that what they submit next finds it.
                self.earlier.record(&report);
                for (slot, (_, outcome)) in slots.into_iter().zip(report.outcomes) {
                    slot.resolve(Ok(outcome));
                }
            }
            Err(error) => batch.fail_all(error),
        }
    }
}
