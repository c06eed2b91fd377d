//! What comes back: an answer, or what became of a request instead.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::error::PendingReason;

/// What the model answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer {
    /// The text of the answer, all text blocks joined; `None` when it has none (tool use only).
    pub text: Option<String>,
    /// The provider's whole response, byte for byte.
    pub response: Box<RawValue>,
    /// The tokens it took, where the provider says so.
    pub usage: Option<Usage>,
}

impl Answer {
    /// Returns an answer with a response of the provider and no more.
    pub fn new(response: Box<RawValue>) -> Answer {
        Answer { text: None, response, usage: None }
    }

    /// Returns the answer with its text.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Answer {
        self.text = Some(text.into());
        self
    }

    /// Returns the answer with its token counts.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Answer {
        self.usage = Some(usage);
        self
    }
}

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, those out of a cache and into one included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens written.
    #[serde(default)]
    pub output_tokens: u64,
    /// Of the tokens read, those that came out of a cache.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cache_read_tokens: u64,
    /// Of the tokens read, those that went into a cache.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cache_write_tokens: u64,
    /// Of the tokens that went into a cache, those that stay there for an hour.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cache_write_1h_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

/// Where a request stands at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Answered.
    Succeeded,
    /// Refused before, at or after the create, or failed at the provider.
    Errored,
    /// Not run by the provider in time.
    Expired,
    /// Cancelled at the provider.
    Canceled,
    /// Not finished; the same run again goes on.
    Pending,
    /// Sent in a create whose fate is unknown. It is not sent again.
    Ambiguous,
}

impl Status {
    /// Tells whether nothing more will come for the request.
    pub fn is_final(self) -> bool {
        !matches!(self, Status::Pending | Status::Ambiguous)
    }

    /// Returns the name as it is printed: `succeeded`, `errored` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Succeeded => "succeeded",
            Status::Errored => "errored",
            Status::Expired => "expired",
            Status::Canceled => "canceled",
            Status::Pending => "pending",
            Status::Ambiguous => "ambiguous",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of a request that has no answer.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request cannot be sent as it is. It was not sent.
    #[error("{reason}")]
    Invalid {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The request alone is over the provider's limit. It was not sent.
    #[error("the request takes {bytes} bytes, over the provider's limit of {max}; make it shorter")]
    TooLarge {
        /// What a batch of this request alone would take.
        bytes: u64,
        /// What the provider takes.
        max: u64,
    },
    /// The create was refused, or never reached the provider. Nothing ran and nothing was paid.
    #[error("the batch was not created: {message}")]
    Refused {
        /// The HTTP status; `None` when there was no connection.
        status: Option<u16>,
        /// The provider's word for it, or `not_sent`.
        kind: String,
        /// What the provider said.
        message: String,
        /// Whether the same request may well be taken later.
        retryable: bool,
    },
    /// The provider ran the request and reports an error.
    #[error("the provider reports {kind}: {message}")]
    Errored {
        /// The provider's word for it.
        kind: String,
        /// What the provider said.
        message: String,
        /// Whether the same request may well be answered later.
        retryable: bool,
    },
    /// The provider did not run the request in time. It is not billed.
    #[error("the provider did not run the request in time")]
    Expired,
    /// The batch was cancelled before the request ran. It is not billed.
    #[error("the request was cancelled at the provider")]
    Canceled,
    /// The batch has ended and its results, read more than once, hold no line for the request.
    #[error("batch `{batch_id}` has ended without a result for the request")]
    Missing {
        /// The provider's batch.
        batch_id: String,
    },
    /// The answer was not there at the request's deadline.
    #[error("the answer was not there at the deadline{}", if *may_be_paid {
        "; the provider may still answer and bill it"
    } else {
        ""
    })]
    DeadlineMissed {
        /// Whether the request is at the provider all the same, which may bill it.
        may_be_paid: bool,
    },
    /// The request may cost more than its own budget. It was not sent.
    #[error("the request may cost {estimate:.4} USD, more than its budget of {budget:.4} USD")]
    OverBudget {
        /// What it may cost, in dollars: an estimate, and rather too high.
        estimate: f64,
        /// What it may cost at most, in dollars.
        budget: f64,
    },
    /// The request went out in a create whose fate is unknown, and the settings say to end it then
    /// ([`OnAmbiguous::Fail`](crate::OnAmbiguous::Fail)), or the code of a provider panicked. It may
    /// have been paid for.
    #[error("it is unknown whether the request was taken: {reason}")]
    Unknown {
        /// What happened, and what was found.
        reason: String,
    },
    /// The request went out in a create whose fate is unknown, and the time is up. Submit it again
    /// to go on looking.
    ///
    /// Comes through tickets only; a run reports it as [`Error::Ambiguous`](crate::Error).
    #[error(
        "it is unknown whether the request was taken ({reason}); submit it again with the state in \
         `{}` to go on", state.display()
    )]
    Ambiguous {
        /// The state folder.
        state: PathBuf,
        /// What happened to the create, and what was found.
        reason: String,
    },
    /// The wait ended first; what is at the provider goes on there.
    ///
    /// Comes through tickets only; a run reports it as [`Error::Pending`](crate::Error).
    #[error("not finished: {reason}; submit it again with the state in `{}` to go on", state.display())]
    Pending {
        /// The state folder.
        state: PathBuf,
        /// Why the wait ended.
        reason: PendingReason,
    },
    /// The batcher itself failed, for example because the state folder cannot be written.
    ///
    /// Comes through tickets only.
    #[error("{reason}")]
    Failed {
        /// What went wrong, and what to do.
        reason: String,
    },
}

impl RequestError {
    pub(crate) fn invalid(reason: impl Into<String>) -> RequestError {
        RequestError::Invalid { reason: reason.into() }
    }

    /// Returns a short name of the error for machines: `invalid_request`, `too_large`, the
    /// provider's own word, and so on.
    pub fn kind(&self) -> &str {
        match self {
            RequestError::Invalid { .. } => "invalid_request",
            RequestError::TooLarge { .. } => "too_large",
            RequestError::Refused { kind, .. } | RequestError::Errored { kind, .. } => kind,
            RequestError::Expired => "expired",
            RequestError::Canceled => "canceled",
            RequestError::Missing { .. } => "missing_result",
            RequestError::DeadlineMissed { .. } => "deadline_missed",
            RequestError::OverBudget { .. } => "over_budget",
            RequestError::Unknown { .. } | RequestError::Ambiguous { .. } => "ambiguous",
            RequestError::Pending { .. } => "pending",
            RequestError::Failed { .. } => "failed",
        }
    }

    /// Returns where the request stands.
    pub fn status(&self) -> Status {
        match self {
            RequestError::Expired => Status::Expired,
            RequestError::Canceled => Status::Canceled,
            RequestError::Ambiguous { .. } => Status::Ambiguous,
            RequestError::Pending { .. } => Status::Pending,
            _ => Status::Errored,
        }
    }

    /// Tells whether the provider may have run the request, and bill it, although no answer came.
    pub fn may_be_paid(&self) -> bool {
        match self {
            RequestError::DeadlineMissed { may_be_paid } => *may_be_paid,
            RequestError::Missing { .. }
            | RequestError::Unknown { .. }
            | RequestError::Ambiguous { .. }
            | RequestError::Pending { .. } => true,
            _ => false,
        }
    }

    /// Tells whether the same request, asked anew, may well succeed without any change.
    pub fn is_retryable(&self) -> bool {
        match self {
            RequestError::Refused { retryable, .. } | RequestError::Errored { retryable, .. } => {
                *retryable
            }
            RequestError::Expired | RequestError::Canceled => true,
            _ => false,
        }
    }
}
