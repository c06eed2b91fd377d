//! Where each task of a run stands.

use serde::{Deserialize, Serialize};

use crate::answer::Edit;
use crate::plan::{Plan, Task};

/// Where one task stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It has no answer yet.
    Waiting,
    /// Its answer is usable.
    Answered { text: String, edit: Edit },
    /// Its commit is where the plan wants it.
    Landed { commit: String },
    /// It failed.
    Failed(Failure),
    /// Its answer is there and something that is no fault of it keeps it from landing.
    Held(Failure),
    /// It was not tried, because a task that it needs did not succeed.
    Skipped { because: String },
}

/// Why a task failed: one word for machines, one sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) kind: String,
    pub(crate) message: String,
    /// The commit on its branch, if it came that far.
    pub(crate) commit: Option<String>,
}

impl Failure {
    /// The kind of a prompt that cannot be made of its template.
    pub(crate) const PROMPT: &str = "prompt";

    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { kind: kind.into(), message: message.into(), commit: None }
    }

    /// Says which commit is on the branch of the task.
    pub(crate) fn with_commit(self, commit: impl Into<String>) -> Failure {
        Failure { commit: Some(commit.into()), ..self }
    }
}

/// The standings of all tasks, by their index in the plan.
#[derive(Debug)]
pub(crate) struct Board<'p> {
    pub(crate) plan: &'p Plan,
    standings: Vec<Standing>,
}

impl<'p> Board<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Board<'p> {
        Board { plan, standings: plan.tasks.iter().map(|_| Standing::Waiting).collect() }
    }

    pub(crate) fn get(&self, at: usize) -> &Standing {
        &self.standings[at]
    }

    pub(crate) fn set(&mut self, at: usize, standing: Standing) {
        self.standings[at] = standing;
    }

    /// Returns tasks and standings in the order of the plan.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &'p Task, &Standing)> {
        let numbered = self.plan.tasks.iter().zip(&self.standings).enumerate();
        numbered.map(|(at, (task, standing))| (at, task, standing))
    }

    /// Returns the tasks with a usable answer that has not landed.
    pub(crate) fn answered(&self) -> Vec<usize> {
        let usable = |standing: &Standing| matches!(standing, Standing::Answered { .. });
        self.iter().filter(|(_, _, standing)| usable(standing)).map(|(at, ..)| at).collect()
    }

    /// Skips the tasks of a wave that need a task without a usable answer; returns the others.
    pub(crate) fn ready(&mut self, wave: &[usize]) -> Vec<usize> {
        let mut ready = Vec::new();
        for &at in wave {
            let needed = &self.plan.tasks[at].after;
            let missing = needed
                .iter()
                .find(|before| !matches!(self.standings[**before], Standing::Answered { .. }));
            match missing {
                None => ready.push(at),
                Some(&before) => {
                    let because = self.plan.tasks[before].id.clone();
                    self.standings[at] = Standing::Skipped { because };
                }
            }
        }
        ready
    }

    /// Returns how many tasks succeeded so far.
    pub(crate) fn succeeded(&self) -> usize {
        let is_well = |standing: &Standing| {
            matches!(standing, Standing::Landed { .. } | Standing::Answered { .. })
        };
        self.iter().filter(|(_, _, standing)| is_well(standing)).count()
    }

    /// Returns how many tasks wait for something that is no fault of them.
    pub(crate) fn held(&self) -> usize {
        self.iter().filter(|(_, _, standing)| matches!(standing, Standing::Held(_))).count()
    }

    /// Returns how many tasks did not succeed, and whether that is exactly what the plan expects.
    pub(crate) fn verdict(&self) -> (usize, bool) {
        let mut failed = 0;
        let mut as_expected = true;
        for (_, task, standing) in self.iter() {
            let has_failed = matches!(standing, Standing::Failed(_) | Standing::Skipped { .. });
            failed += usize::from(has_failed);
            as_expected &= has_failed == task.expect_failure;
        }
        (failed, as_expected)
    }
}
