//! Items that go from the processor back to the waiting ones.

use super::parcel::Parcel;
use super::reruns::Rerun;
use super::run::Slot;
use super::{Accumulator, Again, Entry, Event, Parted, Time};
use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    /// Puts items of a batch back to be sent again; returns those that are not.
    ///
    /// The retried ones stay together and go when the one that has to wait longest may. The split
    /// ones go at once, in two halves. An item is refused a retry after too many, at or past its
    /// deadline, and without budget; a split when it was alone; both once nothing is sent any more.
    pub(super) fn send_again(
        &mut self,
        batch: BatchId,
        mut again: Vec<(I, Entry<S>, Again)>,
    ) -> Parted<I, S> {
        let now = self.now;
        again.sort_by_key(|(_, entry, _)| (entry.accepted, entry.id));
        let flight = self.flight(batch);
        let (lane, was_alone) = (flight.lane, flight.items == 1);
        let (mut retried, mut split, mut denied) = (Vec::new(), Vec::new(), Vec::new());
        let mut longest = 0;
        for (item, entry, wish) in again {
            let list = match wish {
                _ if self.halted.is_some() => &mut denied,
                Again::Split if was_alone => &mut denied,
                Again::Split => &mut split,
                Again::Retry { after } => {
                    let after = after.unwrap_or(0);
                    if self.retries.allows(entry.retries)
                        && now.saturating_add(after) < entry.deadline
                    {
                        longest = longest.max(after);
                        &mut retried
                    } else {
                        &mut denied
                    }
                }
            };
            list.push((item, entry));
        }
        let due = self.schedule(&mut retried, &mut denied, longest);
        for (_, entry) in &mut retried {
            entry.retries = entry.retries.saturating_add(1);
        }
        let second = split.split_off(split.len().div_ceil(2));
        if !retried.is_empty() {
            let ids = || ids(&retried);
            self.note(|| Event::Retried { batch, due, ids: ids() });
        }
        if !split.is_empty() {
            let halves = || (ids(&split), ids(&second));
            self.note(|| {
                let (first, second) = halves();
                Event::Split { batch, first, second }
            });
        }
        // With FIFO order the last one put back is the first to go.
        self.put_back(batch, retried, DispatchReason::Retry, due);
        self.put_back(batch, second, DispatchReason::Split, now);
        self.put_back(batch, split, DispatchReason::Split, now);
        self.place(lane);
        denied.sort_by_key(|(_, entry)| entry.id);
        if !denied.is_empty() {
            let ids = || ids(&denied);
            self.note(|| Event::Denied { batch, ids: ids() });
        }
        denied
    }

    /// Decides when the retried items go, and denies those for which it would be too late.
    fn schedule(
        &mut self,
        retried: &mut Parted<I, S>,
        denied: &mut Parted<I, S>,
        longest: u64,
    ) -> Time {
        let Some(most) = retried.iter().map(|(_, entry)| entry.retries).max() else {
            return self.now;
        };
        let due = self.now.saturating_add(self.retries.delay(most, longest));
        denied.extend(retried.extract_if(.., |(_, entry)| entry.deadline <= due));
        if !retried.is_empty() && !self.retries.pay() {
            denied.append(retried);
        }
        due
    }

    fn put_back(
        &mut self,
        batch: BatchId,
        mut items: Parted<I, S>,
        reason: DispatchReason,
        due: Time,
    ) {
        let len = items.len();
        if len == 0 {
            return;
        }
        for (_, entry) in &mut items {
            entry.attempt = entry.attempt.saturating_add(1);
        }
        let parcel = Parcel::of(items, &mut self.pool);
        let flight = self.flights.get_mut(&batch).expect("a batch is listed until it is finished");
        flight.open -= len;
        flight.again += len;
        let is_over = flight.open == 0;
        let lane = self.lanes.get_mut(flight.lane).expect("a lane stays while it is in flight");
        lane.reruns.put_back(self.policy.order, Rerun { parcel, reason, since: self.now, due });
        self.books.put_back(len);
        if is_over {
            self.remember(batch);
        }
    }
}

fn ids<I, S>(items: &[(I, Entry<S>)]) -> Vec<ItemId> {
    items.iter().map(|(_, entry)| entry.id).collect()
}
