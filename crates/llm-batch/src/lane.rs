//! The ways in which requests go to a provider.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How requests go to a provider.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Lane {
    /// Many in one batch, at the provider's lower price, within hours.
    #[default]
    Batch,
    /// One by one, several at a time, each answered at once.
    Sync,
}

impl Lane {
    /// Returns the name as it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Batch => "batch",
            Lane::Sync => "sync",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which lane the requests of a run take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LaneChoice {
    /// All in batches. A batch whose requests have a deadline is cancelled a while before it; what
    /// it has not answered by then ends as
    /// [`DeadlineMissed`](crate::RequestError::DeadlineMissed).
    #[default]
    Batch,
    /// One by one, several at a time, each answered at once. What cannot be asked before its
    /// deadline is not asked.
    Sync,
    /// In batches, but for what is needed sooner than a batch takes
    /// ([`batch_time`](crate::Builder::batch_time)): that is asked one by one. A batch whose
    /// deadline comes near is cancelled, and what it reports as not run is asked one by one, so
    /// that it is paid for once.
    Auto,
}

impl FromStr for LaneChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<LaneChoice, Error> {
        match name {
            "batch" => Ok(LaneChoice::Batch),
            "sync" => Ok(LaneChoice::Sync),
            "auto" => Ok(LaneChoice::Auto),
            other => Err(Error::Setting {
                problem: format!("`{other}` is unknown; write batch, sync or auto"),
            }),
        }
    }
}

impl LaneChoice {
    /// Returns the lane by whose price an estimate is on the safe side.
    pub(crate) fn dearest(self) -> Lane {
        match self {
            LaneChoice::Batch => Lane::Batch,
            LaneChoice::Sync | LaneChoice::Auto => Lane::Sync,
        }
    }

    /// Returns the lane that a request takes which was not sent yet.
    pub(crate) fn lane(self) -> Lane {
        match self {
            LaneChoice::Batch | LaneChoice::Auto => Lane::Batch,
            LaneChoice::Sync => Lane::Sync,
        }
    }
}

/// What is done about a create whose fate is unknown, once the provider's list was looked at.
///
/// Where the batch is found, its answers are delivered whatever is chosen here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnAmbiguous {
    /// Looks again. What is absent from two lists, far enough apart
    /// ([`list_lag`](crate::Builder::list_lag)), is sent once more; what stays undecided is kept
    /// when the time is up, and so is what is absent where the state folder is a copy of the one
    /// that it was sent from.
    #[default]
    Hold,
    /// Ends the requests as errored at once. Nothing is sent again.
    Fail,
    /// Sends what is absent from the first list once more at once, and counts its requests as
    /// possibly paid twice. Where the answer to that create is lost, too, it is as with
    /// [`Hold`](OnAmbiguous::Hold): nothing may be paid three times.
    Resubmit,
}

impl FromStr for OnAmbiguous {
    type Err = Error;

    fn from_str(name: &str) -> Result<OnAmbiguous, Error> {
        match name {
            "hold" => Ok(OnAmbiguous::Hold),
            "fail" => Ok(OnAmbiguous::Fail),
            "resubmit" => Ok(OnAmbiguous::Resubmit),
            other => Err(Error::Setting {
                problem: format!("`{other}` is unknown; write hold, fail or resubmit"),
            }),
        }
    }
}
