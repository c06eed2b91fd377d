//! A repository and its remote, and the way of an input through both.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::batch::{Ran, Session, Writer};
use crate::earlier::Earlier;
use crate::lock::WriterLock;
use crate::outcome::causes;
use crate::passage::{Judged, Passage};
use crate::plan::plan;
use crate::program::Git;
use crate::record::Key;
use crate::store::Store;
use crate::{
    ApplyError, Extent, OpError, OpErrorKind, OpenError, Operation, Outcome, Report, Settings,
};

/// What [`GitBatch`](crate::GitBatch) and its processor share.
pub(crate) struct Repository {
    pub(crate) dir: PathBuf,
    pub(crate) common_dir: PathBuf,
    pub(crate) settings: Settings,
    git: Git,
}

/// How an input is run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run<'a> {
    /// Nothing is done.
    Dry,
    /// By callers who do not know each other.
    Queued,
    /// If it is not done yet, by its key; and by its name, if it was given one.
    Once { key: Key, name: Option<&'a str> },
}

/// What came of a batch.
enum Ended {
    /// All of it has its end.
    Done,
    /// Nothing: while the gate ran, somebody has done the same input, and has cut it otherwise.
    Recut,
}

/// One batch of an input.
struct Batch<'a, 'b> {
    operations: &'b [&'b Operation],
    order: &'b [usize],
    earlier: &'a Earlier,
    how: Run<'b>,
}

impl Repository {
    pub(crate) fn open(dir: &Path, settings: Settings) -> Result<Repository, OpenError> {
        let store = Store::open(dir, settings.executor)?;
        store.check_remote(dir, &settings.remote)?;
        let git = Git::open(store.git_dir())
            .map_err(|error| OpenError::Git(causes(&error)))?
            .with_time_limit(settings.time_limit);
        let common_dir = store.common_dir().to_owned();
        Ok(Repository { dir: store.git_dir().to_owned(), common_dir, settings, git })
    }

    /// Runs `operations`, whose ids are all different, in batches of at most `max_items`.
    pub(crate) fn run(
        &self,
        operations: &[&Operation],
        max_items: usize,
        earlier: &Earlier,
        how: &Run<'_>,
    ) -> Result<Report, ApplyError> {
        let plan = plan(operations, max_items);
        let mut outcomes = vec![None; operations.len()];
        for (index, error) in plan.refused {
            outcomes[index] = Some(Outcome::Failed(error));
        }
        let mut report = Report::default();
        if !plan.batches.is_empty() {
            let is_dry = matches!(how, Run::Dry);
            let extent = if is_dry { Extent::Preview } else { Extent::All };
            let session = self.session(earlier, extent)?;
            // Of batches that are only tried, later ones would miss what earlier ones have built.
            let mut batches = if is_dry { vec![plan.batches.concat()] } else { plan.batches };
            if let Run::Once { key, name } = how {
                // Before anything is done.
                batches = session.cut_as_before(operations, batches, *key, *name)?;
            }
            let mut session = Some(session);
            let mut number = 0;
            while let Some(order) = batches.get(number) {
                let part = match how {
                    Run::Once { key, name } => Run::Once { key: key.part(number), name: *name },
                    other => *other,
                };
                let batch = Batch { operations, order, earlier, how: part };
                let ended = self.run_batch(&batch, &mut session, &mut outcomes, &mut report);
                let recut = match (ended, how, &session) {
                    (Ok(Ended::Recut), Run::Once { key, name }, Some(session)) => {
                        let now = batches.clone();
                        session.cut_as_before(operations, now, *key, *name).map(Some)
                    }
                    (ended, ..) => ended.map(|_| None),
                };
                match recut {
                    Ok(Some(cut)) => batches = cut,
                    Ok(None) => number += 1,
                    Err(error) if report.receipts.is_empty() => return Err(error),
                    Err(error) => {
                        fill(&mut outcomes, &cut_off(&error));
                        break;
                    }
                }
            }
        }
        report.outcomes = collect(operations, outcomes);
        Ok(report)
    }

    /// Runs one batch, with a session that is given up while the gate runs.
    fn run_batch<'a>(
        &'a self,
        batch: &Batch<'a, '_>,
        kept: &mut Option<Session<'a>>,
        outcomes: &mut [Option<Outcome>],
        report: &mut Report,
    ) -> Result<Ended, ApplyError> {
        let Batch { operations, order, earlier, how } = *batch;
        let extent = if matches!(how, Run::Dry) { Extent::Preview } else { Extent::All };
        let mut passage = Passage::new(self);
        let mut is_done = false;
        loop {
            let mut session = if let Some(session) = kept.take() {
                session
            } else {
                let session = self.session(earlier, extent)?;
                if let Run::Once { key, .. } = how
                    && session.is_cut_otherwise(&key, order)?
                {
                    *kept = Some(session);
                    return Ok(Ended::Recut);
                }
                session
            };
            let mut ran = if let Run::Once { key, name } = how {
                session.run_once(operations, order, outcomes, (key, name), &mut passage)?
            } else {
                let judged = session.run(operations, order, outcomes, &mut passage);
                let receipt = judged.is_done().then(|| std::mem::take(&mut passage.spent));
                Ran { receipt, judged, ..Ran::default() }
            };
            if ran.judged.is_done() {
                report.receipts.extend(ran.receipt.take());
                // What this call has done itself is not replayed.
                if !std::mem::replace(&mut is_done, true) {
                    let ids = ran.replayed.into_iter().map(|index| operations[index].id.clone());
                    report.replayed.extend(ids);
                }
            }
            if let Judged::Moved(branches, _) = &ran.judged {
                passage.end_all_but(branches, operations, order, outcomes);
                passage.keep_ends(order, outcomes);
            }
            let end = match ran.judged {
                Judged::Passes => {
                    *kept = Some(session);
                    return Ok(Ended::Done);
                }
                Judged::LeaveOut(ends) => {
                    *kept = Some(session);
                    passage.ended.extend(ends);
                    continue;
                }
                Judged::Ask(questions) | Judged::Moved(_, questions) => {
                    // The gate may take long: others can work meanwhile.
                    drop(session);
                    match passage.ask(questions) {
                        Ok(()) => continue,
                        Err(error) => error.into(),
                    }
                }
                Judged::Stop(end) => {
                    *kept = Some(session);
                    end
                }
            };
            report.receipts.push(passage.spent);
            for &index in order {
                outcomes[index].get_or_insert_with(|| end.clone());
            }
            return Ok(Ended::Done);
        }
    }

    pub(crate) fn session<'a>(
        &'a self,
        earlier: &'a Earlier,
        extent: Extent,
    ) -> Result<Session<'a>, ApplyError> {
        let lock = WriterLock::acquire(&self.common_dir, self.settings.wait)?;
        // Opened behind the lock, so that it sees all that earlier writers did.
        let (git, settings) = (self.git.clone(), &self.settings);
        let store = Store::open(&self.dir, settings.executor)?.with_git(git.clone());
        Session::begin(Writer { store, git, settings, lock, earlier, extent })
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository")
            .field("dir", &self.dir)
            .field("remote", &self.settings.remote)
            .finish_non_exhaustive()
    }
}

pub(crate) fn collect(
    operations: &[&Operation],
    outcomes: Vec<Option<Outcome>>,
) -> Vec<(String, Outcome)> {
    operations
        .iter()
        .zip(outcomes)
        .map(|(operation, outcome)| {
            let outcome = outcome.expect("every operation of a batch gets its outcome");
            (operation.id.clone(), outcome)
        })
        .collect()
}

/// Ends all that has no end yet.
pub(crate) fn fill(outcomes: &mut [Option<Outcome>], end: &Outcome) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
        *outcome = Some(end.clone());
    }
}

/// What was to come after something else was done, and cannot be done now.
pub(crate) fn cut_off(error: &ApplyError) -> Outcome {
    Outcome::Failed(OpError::new(OpErrorKind::Repository, causes(error)))
}
