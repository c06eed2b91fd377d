//! Landings: onto what the remote has now, through the gate, and again if the remote moves.

use gix::refs::FullName;

use crate::batch::pause;
use crate::earlier::Earlier;
use crate::passage::{Bases, Judged, Passage, branch_of};
use crate::plan::plan;
use crate::repository::{Repository, collect, cut_off, fill};
use crate::{
    ApplyError, Class, Extent, OpError, OpErrorKind, Operation, OperationKind, Outcome, Report,
};

/// How often a landing is tried when the remote moves under it.
const MAX_LANDINGS: u32 = 5;

impl Repository {
    /// Does `operations` with the branch `onto` on top of what the remote has of it.
    pub(crate) fn land(
        &self,
        operations: &[&Operation],
        onto: &FullName,
        extent: Extent,
    ) -> Result<Report, ApplyError> {
        let plan = plan(operations, usize::MAX);
        let mut outcomes = vec![None; operations.len()];
        for (index, error) in plan.refused {
            outcomes[index] = Some(Outcome::Failed(error));
        }
        let mut batches = plan.batches.into_iter();
        let order = batches.next().unwrap_or_default();
        for index in batches.flatten() {
            outcomes[index] = Some(Outcome::Failed(after_a_push(operations[index])));
        }
        let earlier = Earlier::default();
        let mut passage = Passage::new(self);
        let mut report = Report::default();
        let mut session = Some(self.session(&earlier, extent)?);
        let mut attempt = 0;
        loop {
            let mut at_work = match session.take() {
                Some(session) => session,
                None => match self.session(&earlier, extent) {
                    Ok(session) => session,
                    // Nothing of it is done before the first push.
                    Err(error) if attempt == 0 => return Err(error),
                    Err(error) => {
                        for outcome in &mut outcomes {
                            *outcome = outcome.take().filter(Outcome::is_success);
                        }
                        fill(&mut outcomes, &cut_off(&error));
                        break;
                    }
                },
            };
            let judged = at_work.run_onto(operations, &order, &mut outcomes, onto, &mut passage);
            match judged {
                Judged::LeaveOut(ends) => {
                    passage.ended.extend(ends);
                    session = Some(at_work);
                    continue;
                }
                Judged::Ask(questions) => {
                    // The gate may take long: others can work meanwhile. What is built then gives
                    // the same trees, unless somebody has moved something.
                    drop(at_work);
                    match passage.ask(questions) {
                        Ok(()) => continue,
                        Err(error) => fill(&mut outcomes, &error.into()),
                    }
                }
                Judged::Stop(end) => fill(&mut outcomes, &end),
                // What waits has been refused because the remote has moved, so all is tried again.
                Judged::Passes | Judged::Moved(..) => {
                    drop(at_work);
                    if has_moved(operations, onto, &outcomes) && attempt < MAX_LANDINGS {
                        report.receipts.push(std::mem::take(&mut passage.spent));
                        passage.ended.extend(done(operations, onto, &outcomes));
                        passage.tips.clear();
                        passage.bases = Bases::default();
                        // In full jitter, as others land too.
                        std::thread::park_timeout(pause(attempt));
                        attempt += 1;
                        continue;
                    }
                }
            }
            break;
        }
        report.receipts.push(passage.spent);
        report.outcomes = collect(operations, outcomes);
        Ok(report)
    }
}

/// Whether the remote did not take the push because it had moved.
fn has_moved(operations: &[&Operation], onto: &FullName, outcomes: &[Option<Outcome>]) -> bool {
    operations.iter().zip(outcomes).any(|(operation, outcome)| {
        matches!(operation.kind, OperationKind::Push(_))
            && branch_of(operation).as_ref() == Some(onto)
            && matches!(outcome, Some(Outcome::Rejected { class: Class::Transient, .. }))
    })
}

/// What is done whatever the remote has of `onto`.
fn done(
    operations: &[&Operation],
    onto: &FullName,
    outcomes: &[Option<Outcome>],
) -> Vec<(usize, Outcome)> {
    let is_done = |index: &usize| branch_of(operations[*index]).as_ref() != Some(onto);
    let success = |index: usize| {
        let outcome = outcomes[index].clone()?;
        outcome.is_success().then_some((index, outcome))
    };
    (0..operations.len()).filter(is_done).filter_map(success).collect()
}

fn after_a_push(operation: &Operation) -> OpError {
    let message = format!(
        "operation {:?} comes after a push, and a landing has one push at its end; land it later",
        operation.id
    );
    OpError::new(OpErrorKind::UnknownDependency, message)
}
