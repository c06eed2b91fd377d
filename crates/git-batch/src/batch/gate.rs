//! Asks the gate before a landing is pushed.

use gix::ObjectId;
use gix::refs::FullName;

use super::Batch;
use crate::gate::{Scratch, Verdict, Verdicts};
use crate::{Gate, OpError, OpErrorKind};

/// What the gate has to say of a landing that is built.
#[derive(Debug)]
pub(crate) enum Judged {
    /// It is pushed.
    Passes,
    /// The gate has to look at this tree first, in this folder; the commit is what the remote has.
    Ask(ObjectId, Scratch, Option<ObjectId>),
    /// The landing has to be done without this operation.
    LeaveOut(usize, OpError),
    /// Nothing can land.
    Stop(OpError),
}

impl Batch<'_, '_> {
    pub(super) fn judge(&mut self, onto: &FullName, verdicts: &mut Verdicts<'_>) -> Judged {
        let Some(branch) = self.branches.get(onto) else { return Judged::Passes };
        let Some(base) = branch.steps.first().map(|step| step.old_tree) else {
            return Judged::Passes;
        };
        let steps: Vec<ObjectId> = branch.steps.iter().map(|step| step.new_tree).collect();
        let start = branch.start;
        match verdicts.judge(base, &steps) {
            Verdict::Passes => Judged::Passes,
            Verdict::Culprit(step, why) => {
                let operation = branch.steps[step].operation;
                Judged::LeaveOut(operation, OpError::new(OpErrorKind::Gate, why))
            }
            Verdict::Base(why) => {
                let why = format!("what the remote has fails already without any branch: {why}");
                Judged::Stop(OpError::new(OpErrorKind::Gate, why))
            }
            Verdict::Ask(tree) => match self.prepare(tree, verdicts.gate()) {
                Ok(scratch) => Judged::Ask(tree, scratch, start),
                Err(error) => Judged::Stop(error),
            },
        }
    }

    fn prepare(&mut self, tree: ObjectId, gate: &Gate) -> Result<Scratch, OpError> {
        let parent = gate.scratch_parent();
        let scratch = Scratch::new(self.session.lock.state_dir(), &parent).map_err(|error| {
            let message =
                format!("cannot make a folder for the gate in {}: {error}", parent.display());
            OpError::new(OpErrorKind::Gate, message)
        })?;
        let git = self.session.git.clone();
        self.session.store.export(tree, &git, &scratch)?;
        Ok(scratch)
    }
}
