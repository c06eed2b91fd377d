//! What a state folder says, for people who look on.

use std::path::Path;

use crate::answer::Status;
use crate::error::Error;
use crate::lane::Lane;
use crate::record::{Fate, Record};
use crate::state::peek;

/// What a state folder says of its creates and requests.
///
/// ```
/// use llm_batch::Overview;
///
/// let dir = tempfile::tempdir()?;
/// let overview = Overview::read(dir.path())?;
/// assert_eq!((overview.requests, overview.submissions.len()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overview {
    /// Requests that were in a create.
    pub requests: usize,
    /// Those of them whose outcome was handed over.
    pub delivered: usize,
    /// Those of them that were answered.
    pub succeeded: usize,
    /// Every create, the oldest first.
    pub submissions: Vec<Submission>,
}

/// A create as the state folder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// Its number in the folder, from 1.
    pub number: u64,
    /// The provider's name.
    pub provider: String,
    /// Where the provider is.
    pub endpoint: String,
    /// The lane it took.
    pub lane: Lane,
    /// The kind of its requests.
    pub kind: String,
    /// The model they ask.
    pub model: String,
    /// How many requests it carries.
    pub requests: usize,
    /// How many of them have no outcome yet.
    pub waiting: usize,
    /// Where it stands.
    pub stage: Stage,
    /// The provider's id of the batch, where there is one.
    pub batch_id: Option<String>,
    /// What happened, where it did not go well.
    pub reason: Option<String>,
}

/// Where a create stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// It may be on its way, or the process that sent it has ended: a run will find out.
    Unknown,
    /// Nothing was created; a run sends it.
    Unsent,
    /// The provider has it.
    Submitted,
    /// The provider had it, and all outcomes were handed over.
    Done,
    /// The provider said no.
    Refused,
    /// Its requests went elsewhere.
    Void,
}

impl Stage {
    /// Returns the name as it is printed: `unknown`, `submitted` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Unknown => "unknown",
            Stage::Unsent => "unsent",
            Stage::Submitted => "submitted",
            Stage::Done => "done",
            Stage::Refused => "refused",
            Stage::Void => "void",
        }
    }
}

impl Overview {
    /// Reads a folder, also one that a run is using right now. Nothing in it is changed.
    ///
    /// # Errors
    ///
    /// [`Error::StateFile`] when something in it is foreign, damaged or of another version,
    /// [`Error::StateIo`] when it cannot be read.
    pub fn read(state: impl AsRef<Path>) -> Result<Overview, Error> {
        let (all, told) = peek(state.as_ref())?;
        let (mut waiting, mut delivered, mut succeeded) = (vec![0; all.list.len()], 0, 0);
        all.known.iter().for_each(|(id, known)| {
            match told.get(id).filter(|told| told.is_of(known.digest)) {
                Some(told) => {
                    delivered += 1;
                    succeeded += usize::from(told.delivered.status == Status::Succeeded);
                }
                None => waiting[known.at] += 1,
            }
        });
        let submissions = all.list.into_iter().zip(waiting).map(submission).collect();
        Ok(Overview { requests: all.known.len(), delivered, succeeded, submissions })
    }
}

fn submission((record, waiting): (Record, usize)) -> Submission {
    let Record { number, intent, size, fate, .. } = record;
    let (stage, batch_id, reason) = match fate {
        // One request, asked alone, is done when its outcome was handed over.
        _ if intent.lane == Lane::Sync && waiting == 0 => (Stage::Done, None, None),
        None | Some(Fate::Sending) => (Stage::Unknown, None, None),
        Some(Fate::Ambiguous { reason }) => (Stage::Unknown, None, Some(reason)),
        Some(Fate::Preparing) => (Stage::Unsent, None, None),
        Some(Fate::Unsent { reason }) => (Stage::Unsent, None, Some(reason)),
        Some(Fate::Submitted { batch_id }) if waiting == 0 => (Stage::Done, Some(batch_id), None),
        Some(Fate::Submitted { batch_id }) => (Stage::Submitted, Some(batch_id), None),
        Some(Fate::Refused { kind, message, .. }) => {
            (Stage::Refused, None, Some(format!("{kind}: {message}")))
        }
        Some(Fate::Void { reason, .. }) => (Stage::Void, None, Some(reason)),
    };
    Submission {
        number,
        provider: intent.provider,
        endpoint: intent.endpoint,
        lane: intent.lane,
        kind: intent.kind,
        model: intent.model,
        requests: size,
        waiting,
        stage,
        batch_id,
        reason,
    }
}
