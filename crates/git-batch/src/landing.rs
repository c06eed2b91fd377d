//! Landings: onto what the remote has now, through the gate, and again if the remote moves.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use crate::batch::{Judged, Session};
use crate::earlier::Earlier;
use crate::gate::{self, Ran, Scratch, Verdicts};
use crate::git_batch::{Repository, collect};
use crate::publish::scrub;
use crate::{ApplyError, Class, OpError, OpErrorKind, Operation, Outcome, Receipt, Report, lock};

/// How often a landing is tried when the remote moves under it.
const MAX_LANDINGS: usize = 5;

/// One landing on its way.
struct Landing<'a> {
    operations: &'a [&'a Operation],
    onto: &'a FullName,
    /// What the gate keeps out.
    refused: BTreeMap<usize, Outcome>,
    /// What the gate's questions have cost since the last receipt.
    spent: Receipt,
    /// What the remote had each time that the gate was asked.
    starts: BTreeSet<Option<ObjectId>>,
}

impl Repository {
    /// Does `operations`, the last of which is the push of `onto`, on top of what the remote has.
    pub(crate) fn land(
        &self,
        operations: &[&Operation],
        onto: &FullName,
        is_dry: bool,
    ) -> Result<Report, ApplyError> {
        let state = lock::state_of(&self.common_dir);
        let gate = self.settings.gate.as_ref();
        let mut verdicts = gate.map(|gate| Verdicts::of(gate, &state));
        let earlier = Earlier::default();
        let mut landing = Landing {
            operations,
            onto,
            refused: BTreeMap::new(),
            spent: Receipt::default(),
            starts: BTreeSet::new(),
        };
        let mut report = Report::default();
        let mut outcomes = Vec::new();
        let mut session = self.session(&earlier, is_dry)?;
        let mut attempt = 1;
        loop {
            let judged = landing.build(&mut session, verdicts.as_mut(), &mut outcomes);
            match judged {
                Judged::Passes => {
                    report.receipts.push(std::mem::take(&mut landing.spent));
                    if has_moved(&outcomes) && attempt < MAX_LANDINGS {
                        attempt += 1;
                        continue;
                    }
                    break;
                }
                Judged::LeaveOut(index, error) => {
                    landing.refused.insert(index, error.into());
                    continue;
                }
                Judged::Ask(tree, scratch, start) => {
                    landing.starts.insert(start);
                    if landing.starts.len() > MAX_LANDINGS {
                        fill(&mut outcomes, &moved_too_often(onto));
                    } else {
                        // The gate may take long: others can work meanwhile. What is built then
                        // gives the same trees, unless somebody has moved something.
                        drop(session);
                        let ran = match &mut verdicts {
                            Some(verdicts) => landing.ask(verdicts, tree, &scratch),
                            None => Ok(()),
                        };
                        drop(scratch);
                        session = self.session(&earlier, is_dry)?;
                        match ran {
                            Ok(()) => continue,
                            Err(error) => fill(&mut outcomes, &error.into()),
                        }
                    }
                }
                Judged::Stop(error) => fill(&mut outcomes, &error.into()),
            }
            report.receipts.push(std::mem::take(&mut landing.spent));
            break;
        }
        report.outcomes = collect(operations, outcomes);
        Ok(report)
    }
}

impl Landing<'_> {
    /// Builds all but what is refused, and pushes it if the gate lets it pass.
    fn build(
        &mut self,
        session: &mut Session<'_>,
        verdicts: Option<&mut Verdicts<'_>>,
        outcomes: &mut Vec<Option<Outcome>>,
    ) -> Judged {
        let all = 0..self.operations.len();
        *outcomes = all.clone().map(|index| self.refused.get(&index).cloned()).collect();
        let order: Vec<usize> = all.filter(|index| !self.refused.contains_key(index)).collect();
        let (receipt, judged) =
            session.run_onto(self.operations, &order, outcomes, self.onto, verdicts);
        self.spent = std::mem::take(&mut self.spent).and(receipt);
        judged
    }

    fn ask(
        &mut self,
        verdicts: &mut Verdicts<'_>,
        tree: ObjectId,
        scratch: &Scratch,
    ) -> Result<(), OpError> {
        let gate = verdicts.gate();
        self.spent.gate_runs += 1;
        let started = std::time::Instant::now();
        let ran: Ran = gate::run(gate, &scratch.tree()).map_err(|error| {
            let command = scrub::line(gate.to_string().as_bytes());
            OpError::new(OpErrorKind::Gate, format!("the gate `{command}` cannot be run: {error}"))
        })?;
        self.spent.seconds += started.elapsed();
        verdicts.note(tree, ran);
        Ok(())
    }
}

/// Whether the remote did not take the push because it had moved.
fn has_moved(outcomes: &[Option<Outcome>]) -> bool {
    matches!(outcomes.last(), Some(Some(Outcome::Rejected { class: Class::Transient, .. })))
}

fn moved_too_often(onto: &FullName) -> Outcome {
    let reason = format!(
        "the remote's branch {:?} moved {MAX_LANDINGS} times while the gate ran",
        onto.shorten()
    );
    Outcome::Rejected { class: Class::Transient, reason }
}

/// Ends all that has no end yet.
fn fill(outcomes: &mut [Option<Outcome>], end: &Outcome) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
        *outcome = Some(end.clone());
    }
}
