//! What can end a run.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::accounting::Run;

/// What is told of a panic in a provider's code. Its message may have anything in it, the key too.
pub(crate) const PANICKED: &str = "the provider's code panicked";

/// Returns two amounts as they are where they are the same in cents.
fn exactly(estimate: f64, max: f64) -> String {
    let is_same = format!("{estimate:.2}") == format!("{max:.2}");
    if !is_same {
        return String::new();
    }
    // No more than tells them apart.
    let told = (3..20).map(|places| [estimate, max].map(|dollars| format!("{dollars:.places$}")));
    let apart = told.into_iter().find(|[estimate, max]| estimate != max);
    apart.map_or_else(String::new, |[estimate, max]| format!(" ({estimate} against {max})"))
}

/// What ended a run, or kept it from starting.
///
/// Two families: [`run`](Error::run) returns `Some` for a run that was done in part and goes on
/// when it is run again with the same state; everything else says what has to be put right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No state folder was named.
    #[error("no state folder is set; name one with `LlmBatch::builder(..).state(dir)`")]
    NoState,
    /// A setting cannot be used.
    #[error("{problem}")]
    Setting {
        /// Which, why, and what to do.
        problem: String,
    },
    /// Two requests of a run have one id.
    #[error("two requests have the id `{id}`; give each its own")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// A request of a run has an empty id.
    #[error("a request has an empty id; give each its own, so that a run can be taken up again")]
    EmptyId,
    /// The state folder knows the id with another content.
    #[error(
        "the request `{id}` was sent before with another content (model, body, provider or base \
         URL) under `{}`; give it a new id or use a new state folder", state.display()
    )]
    Conflict {
        /// The id.
        id: String,
        /// The state folder.
        state: PathBuf,
    },
    /// The run may cost more than it must.
    #[error(
        "the run may cost {estimate:.2} USD, more than the {max:.2} USD allowed{}; allow more, or ask \
         for less", exactly(*estimate, *max)
    )]
    OverBudget {
        /// What it may cost, in dollars: an estimate, and rather too high.
        estimate: f64,
        /// What it must cost at most, in dollars.
        max: f64,
    },
    /// A limit to the cost was set, and the price of a model is not known.
    #[error("no price is known for the model `{model}`, so a limit to the cost cannot be kept")]
    NoPrice {
        /// The model.
        model: String,
    },
    /// A limit to the cost was set, and a request sets none to the length of its answer.
    #[error(
        "the request `{id}` does not say how long its answer may be, so a limit to the cost cannot \
         be kept; set `max_tokens`"
    )]
    NoLongestAnswer {
        /// The request.
        id: String,
    },
    /// The requests could not all be read. Nothing was sent.
    #[error("{0}")]
    Input(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The same id is being worked on in this process.
    #[error("the request `{id}` is in flight; wait for it or give the second one its own id")]
    InFlight {
        /// The id.
        id: String,
    },
    /// A file or folder of the state cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    StateIo {
        /// What was tried.
        action: Cow<'static, str>,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the state folder is not what this version wrote.
    #[error("`{}` {problem}", path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// Another process holds the state folder.
    #[error(
        "`{}` is in use by {}; wait for it or use another folder", state.display(),
        process.map_or("another process".to_owned(), |id| format!("process {id}"))
    )]
    StateBusy {
        /// The state folder.
        state: PathBuf,
        /// The process that holds it, where it could say so.
        process: Option<u32>,
    },
    /// The engine for tickets cannot be started.
    #[error("cannot start the batcher: {0}")]
    Batcher(#[source] io::Error),
    /// It could not be found out in time whether a create was taken, so it is not sent again. What
    /// else could be done is done. Run it again with the same state to go on looking.
    #[error(
        "it is unknown whether the provider took {requests} of the requests ({reason}); run again with \
         the state in `{}` to go on", state.display()
    )]
    Ambiguous {
        /// The state folder.
        state: PathBuf,
        /// How many requests are concerned.
        requests: usize,
        /// What happened to the first of the creates.
        reason: String,
        /// What the run came to.
        run: Box<Run>,
    },
    /// The run is not finished; run it again with the same state to go on.
    #[error("not finished: {reason}; run again with the state in `{}` to go on", state.display())]
    Pending {
        /// The state folder.
        state: PathBuf,
        /// Why the wait ended.
        reason: PendingReason,
        /// What the run came to so far.
        run: Box<Run>,
    },
}

impl Error {
    /// Returns what a run that was cut short came to; `None` when nothing was started.
    pub fn run(&self) -> Option<&Run> {
        match self {
            Error::Ambiguous { run, .. } | Error::Pending { run, .. } => Some(run),
            _ => None,
        }
    }
}

/// Why a run ended before its requests did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PendingReason {
    /// The time-out passed.
    TimedOut,
    /// [`Stop::stop`](crate::Stop::stop) was called.
    Stopped,
    /// The state folder could not be read or written any more.
    State {
        /// Which file, and why not.
        problem: String,
    },
    /// What is still to be sent, or to be sent again, may cost more than is allowed, or nobody knows what
    /// it may cost.
    OverBudget {
        /// What it may cost, and what is allowed, or why that is not known.
        problem: String,
    },
    /// A create did not get through, time after time.
    Unreachable {
        /// What happened to the last one.
        reason: String,
    },
    /// Results that the provider counts as answered, and which are paid for, were not among those
    /// that it gave out, time after time.
    Incomplete {
        /// The provider's batch.
        batch_id: String,
        /// How many are missing.
        missing: u64,
    },
    /// The provider refuses to tell about a batch it took, for example because the key changed.
    Refused {
        /// The provider's batch.
        batch_id: String,
        /// What the provider said.
        message: String,
    },
}

impl fmt::Display for PendingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PendingReason::TimedOut => f.write_str("the time-out has passed"),
            PendingReason::Stopped => f.write_str("interrupted"),
            PendingReason::State { problem } | PendingReason::OverBudget { problem } => {
                f.write_str(problem)
            }
            PendingReason::Unreachable { reason } => {
                write!(f, "the provider cannot be reached: {reason}")
            }
            PendingReason::Incomplete { batch_id, missing } => {
                write!(f, "{missing} paid results of batch `{batch_id}` are not given out yet")
            }
            PendingReason::Refused { batch_id, message } => {
                write!(f, "the provider does not tell about batch `{batch_id}`: {message}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_as_many_places_as_tell_them_apart() {
        assert_eq!(exactly(0.1 + 0.2, 0.299_9), " (0.3000 against 0.2999)");
        assert_eq!(exactly(5.0, 4.0), "");
    }
}
