//! One batch on its way through the gate: built, looked at, and built again without what fails.

use std::collections::BTreeMap;

use gix::ObjectId;
use gix::refs::FullName;

use crate::gate::{self, Ran, Scratch, Verdicts};
use crate::lock;
use crate::publish::scrub;
use crate::repository::Repository;
use crate::{Class, OpError, OpErrorKind, Outcome, Receipt};

/// How often a branch may change while the gate runs.
const MAX_CHANGES: usize = 5;

/// What has to be remembered while the gate runs and nothing is locked.
#[derive(Debug)]
pub(crate) struct Passage<'a> {
    /// What the gate says, if there is one.
    pub(crate) verdicts: Option<Verdicts<'a>>,
    /// Operations that are not run again: what the gate keeps out, and what is done.
    pub(crate) ended: BTreeMap<usize, Outcome>,
    /// The local branches as they were when they were first looked at: what others do to them while
    /// the gate runs is not built on, so that there is an end.
    pub(crate) tips: BTreeMap<FullName, Option<ObjectId>>,
    /// How often the gate was asked for all of a branch.
    asked: BTreeMap<FullName, usize>,
    /// What it has cost since the last receipt.
    pub(crate) spent: Receipt,
}

/// What the gate has to say of a batch that is built.
#[derive(Debug, Default)]
pub(crate) enum Judged {
    /// It has been carried out.
    #[default]
    Passes,
    /// The gate has to look at these trees first, each in its folder.
    Ask(Vec<(ObjectId, Scratch)>),
    /// The batch has to be done without these operations.
    LeaveOut(Vec<(usize, Outcome)>),
    /// Nothing of it can be done.
    Stop(Outcome),
}

impl<'a> Passage<'a> {
    pub(crate) fn new(repository: &'a Repository) -> Passage<'a> {
        let state = lock::state_of(&repository.common_dir);
        let gate = repository.settings.gate.as_ref();
        Passage {
            verdicts: gate.map(|gate| Verdicts::of(gate, &state)),
            ended: BTreeMap::new(),
            tips: BTreeMap::new(),
            asked: BTreeMap::new(),
            spent: Receipt::default(),
        }
    }

    /// Notes that the gate is asked for all of a branch; an error is that it has changed too often.
    pub(crate) fn note_asked(&mut self, branch: &FullName) -> Result<(), Outcome> {
        let count = self.asked.entry(branch.clone()).or_default();
        *count += 1;
        if *count <= MAX_CHANGES + self.ended.len() {
            return Ok(());
        }
        let reason = format!(
            "the branch {:?} changed {MAX_CHANGES} times while the gate ran",
            branch.shorten()
        );
        Err(Outcome::Rejected { class: Class::Transient, reason })
    }

    /// Lets the gate look at trees. Nothing is to be locked meanwhile.
    pub(crate) fn ask(&mut self, questions: Vec<(ObjectId, Scratch)>) -> Result<(), OpError> {
        let Some(verdicts) = &mut self.verdicts else { return Ok(()) };
        for (tree, scratch) in questions {
            if verdicts.gate().is_stopped() {
                return Err(OpError::new(OpErrorKind::Gate, "the gate was stopped"));
            }
            self.spent.gate_runs += 1;
            let started = std::time::Instant::now();
            let ran = run(verdicts, &scratch)?;
            self.spent.seconds += started.elapsed();
            verdicts.note(tree, ran);
        }
        Ok(())
    }
}

/// Runs the command once.
pub(crate) fn run(verdicts: &Verdicts<'_>, scratch: &Scratch) -> Result<Ran, OpError> {
    gate::run(verdicts.gate(), scratch).map_err(|error| {
        let command = scrub::line(verdicts.gate().to_string().as_bytes());
        OpError::new(OpErrorKind::Gate, format!("the gate `{command}` cannot be run: {error}"))
    })
}
