//! What an accumulator did, for traces that can be compared byte for byte.

use super::eras::EraId;
use super::lane::LaneId;
use super::policy::Time;
use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;

/// One step of an accumulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Items joined a batch while it was lent.
    Joined {
        lane: LaneId,
        ids: Vec<ItemId>,
    },
    Admitted {
        id: ItemId,
        lane: LaneId,
    },
    Dispatched {
        batch: BatchId,
        lane: LaneId,
        reason: DispatchReason,
        ids: Vec<ItemId>,
    },
    Overdue {
        batch: BatchId,
    },
    Settled {
        batch: BatchId,
        items: usize,
    },
    Retried {
        batch: BatchId,
        due: Time,
        ids: Vec<ItemId>,
    },
    Split {
        batch: BatchId,
        first: Vec<ItemId>,
        second: Vec<ItemId>,
    },
    Denied {
        batch: BatchId,
        ids: Vec<ItemId>,
    },
    Finished {
        batch: BatchId,
    },
    Expired {
        lane: LaneId,
        ids: Vec<ItemId>,
    },
    Cancelled {
        id: ItemId,
    },
    /// Everything accepted so far is asked for; `None` if all of it is final.
    Flushed {
        era: Option<EraId>,
    },
    EraDone {
        era: EraId,
    },
    Closed,
    Halted {
        over: ItemId,
    },
    Drained {
        ids: Vec<ItemId>,
    },
}
