//! The items that wait: open batches by key, and the order in which they may go.
//!
//! Time comes in as an argument, and every order is that of batch ids or keys, so the same calls
//! give the same batches.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::block::{Block, EngineLink, SharedBlock};
use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;
use crate::sync::Arc;

/// When a batch that could take more items may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// As soon as the processor is idle.
    Natural,
    /// Once its oldest item has waited this long.
    Linger(Duration),
}

/// The hard caps of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_items: usize,
    pub(crate) max_weight: u64,
}

/// Whether batches of one key may overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Fifo,
    Unordered,
}

/// A batch that waits.
pub(crate) struct Open<I, O, E> {
    pub(crate) id: BatchId,
    pub(crate) items: Vec<I>,
    pub(crate) ids: Vec<ItemId>,
    pub(crate) block: SharedBlock<O, E>,
    pub(crate) opened: Instant,
    weight: u64,
    sealed: Option<DispatchReason>,
}

/// A batch that may go now.
pub(crate) struct Ready<K, I, O, E> {
    pub(crate) key: K,
    pub(crate) batch: Open<I, O, E>,
    pub(crate) reason: DispatchReason,
}

/// The waiting batches of one key, the oldest first.
struct Lane<I, O, E> {
    batches: VecDeque<Open<I, O, E>>,
    /// A batch of this key is in flight, and no other may overtake it.
    muted: bool,
}

/// All waiting batches.
///
/// The first batch of a lane that is not muted stands in `ready` or in `lingering`; no other does.
pub(crate) struct Queue<K, I, O, E> {
    lanes: BTreeMap<K, Lane<I, O, E>>,
    ready: BTreeMap<BatchId, K>,
    lingering: BTreeMap<BatchId, (Instant, K)>,
    next_batch: u64,
    len: usize,
    dispatch: Dispatch,
    limits: Limits,
    order: Order,
}

impl<K: Ord + Clone, I, O, E> Queue<K, I, O, E> {
    pub(crate) fn new(dispatch: Dispatch, limits: Limits, order: Order) -> Self {
        Self {
            lanes: BTreeMap::new(),
            ready: BTreeMap::new(),
            lingering: BTreeMap::new(),
            next_batch: 0,
            len: 0,
            dispatch,
            limits,
            order,
        }
    }

    /// Returns the number of items that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns when the oldest item of all came, if one waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        // A lane's batches are in order of age.
        self.lanes.values().filter_map(|lane| lane.batches.front()).map(|open| open.opened).min()
    }

    /// Adds an item to the youngest batch of its key, or to a new one.
    pub(crate) fn push(
        &mut self,
        key: &K,
        id: ItemId,
        item: I,
        weight: u64,
        now: Instant,
        link: &EngineLink,
    ) -> (SharedBlock<O, E>, usize) {
        let limits = self.limits;
        if !self.lanes.contains_key(key) {
            self.lanes.insert(key.clone(), Lane { batches: VecDeque::new(), muted: false });
        }
        let lane = self.lanes.get_mut(key).expect("the lane was just added");
        let was_empty = lane.batches.is_empty();
        let fits = |open: &Open<I, O, E>| {
            open.sealed.is_none() && open.weight.saturating_add(weight) <= limits.max_weight
        };
        if !lane.batches.back().is_some_and(fits) {
            if let Some(full) = lane.batches.back_mut() {
                full.sealed.get_or_insert(DispatchReason::Full);
            }
            lane.batches.push_back(Open {
                id: BatchId(self.next_batch),
                items: Vec::new(),
                ids: Vec::new(),
                block: Arc::new(Block::new(link.clone())),
                opened: now,
                weight: 0,
                sealed: None,
            });
            self.next_batch += 1;
        }
        let open = lane.batches.back_mut().expect("a batch was found or just added");
        open.items.push(item);
        open.ids.push(id);
        open.weight = open.weight.saturating_add(weight);
        if open.items.len() >= limits.max_items || open.weight >= limits.max_weight {
            open.sealed = Some(DispatchReason::Full);
        }
        let place = (Arc::clone(&open.block), open.block.push());
        self.len += 1;
        // The head changed, or a head that lingered may just have been sealed.
        if was_empty || self.dispatch != Dispatch::Natural {
            self.place_head(key);
        }
        place
    }

    /// Takes the oldest batch that may go.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Ready<K, I, O, E>> {
        self.end_lingers(now);
        let (_, key) = self.ready.pop_first()?;
        let lane = self.lanes.get_mut(&key).expect("a ready key has a lane");
        let batch = lane.batches.pop_front().expect("a ready lane has a batch");
        self.len -= batch.items.len();
        match self.order {
            Order::Fifo => lane.muted = true,
            Order::Unordered => self.place_head(&key),
        }
        let waited = batch.sealed.unwrap_or(match self.dispatch {
            Dispatch::Natural => DispatchReason::Natural,
            Dispatch::Linger(_) => DispatchReason::Linger,
        });
        Some(Ready { key, batch, reason: waited })
    }

    /// Lets the next batch of a key go, after the one in flight is final.
    pub(crate) fn unmute(&mut self, key: &K) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.muted = false;
            self.place_head(key);
        }
    }

    /// Seals every waiting batch, so that it goes without linger.
    pub(crate) fn seal_all(&mut self, reason: DispatchReason) {
        for (key, lane) in &mut self.lanes {
            for open in &mut lane.batches {
                open.sealed.get_or_insert(reason);
            }
            // Also a head that would linger for ever, and so stands nowhere yet.
            if let (false, Some(head)) = (lane.muted, lane.batches.front()) {
                self.ready.entry(head.id).or_insert_with(|| key.clone());
            }
        }
        self.lingering.clear();
    }

    /// Says whether a batch may go at `now`.
    pub(crate) fn has_ready(&mut self, now: Instant) -> bool {
        self.end_lingers(now);
        !self.ready.is_empty()
    }

    /// Returns the block of the batch that `pop` would take.
    pub(crate) fn head_block(&self) -> Option<SharedBlock<O, E>> {
        let (_, key) = self.ready.first_key_value()?;
        self.lanes.get(key)?.batches.front().map(|open| Arc::clone(&open.block))
    }

    /// Returns when the next lingering batch may go.
    pub(crate) fn next_linger_end(&self) -> Option<Instant> {
        self.lingering.first_key_value().map(|(_, (until, _))| *until)
    }

    /// Returns the blocks of all waiting batches.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &SharedBlock<O, E>> {
        self.lanes.values().flat_map(|lane| &lane.batches).map(|open| &open.block)
    }

    /// Takes every waiting batch out, in the order in which they were opened.
    pub(crate) fn drain(&mut self) -> Vec<Open<I, O, E>> {
        self.ready.clear();
        self.lingering.clear();
        self.len = 0;
        let mut all: Vec<_> =
            self.lanes.values_mut().flat_map(|lane| lane.batches.drain(..)).collect();
        self.lanes.retain(|_, lane| lane.muted);
        all.sort_by_key(|open| open.id);
        all
    }

    /// Puts the first batch of a lane where it belongs, and forgets a lane that is idle.
    fn place_head(&mut self, key: &K) {
        let Some(lane) = self.lanes.get(key) else { return };
        if lane.muted {
            return;
        }
        let Some(head) = lane.batches.front() else {
            self.lanes.remove(key);
            return;
        };
        match self.dispatch {
            Dispatch::Linger(linger) if head.sealed.is_none() => {
                // An end beyond what the clock can tell never comes: such a batch waits for a
                // full batch, a flush or a close.
                if let Some(until) = head.opened.checked_add(linger) {
                    self.lingering.entry(head.id).or_insert_with(|| (until, key.clone()));
                }
            }
            _ => {
                self.lingering.remove(&head.id);
                self.ready.entry(head.id).or_insert_with(|| key.clone());
            }
        }
    }

    /// Moves batches whose oldest item has waited long enough. Their ends are in order of their
    /// ids, since all linger equally long.
    fn end_lingers(&mut self, now: Instant) {
        while let Some(first) = self.lingering.first_entry() {
            if first.get().0 > now {
                break;
            }
            let (id, (_, key)) = first.remove_entry();
            self.ready.insert(id, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = Queue<u8, u32, (), ()>;

    const LINGER: Duration = Duration::from_millis(100);

    struct Bench {
        queue: Plain,
        start: Instant,
        seq: u64,
    }

    impl Bench {
        fn new(dispatch: Dispatch, max_items: usize) -> Self {
            let limits = Limits { max_items, max_weight: u64::MAX };
            let queue = Queue::new(dispatch, limits, Order::Fifo);
            Self { queue, start: Instant::now(), seq: 0 }
        }

        fn push(&mut self, ms: u64, key: u8, item: u32) {
            let id = ItemId { epoch: 0, seq: self.seq };
            self.seq += 1;
            let link = EngineLink { id: usize::MAX, lead: None };
            self.queue.push(&key, id, item, 1, self.start + Duration::from_millis(ms), &link);
        }

        fn pop(&mut self, ms: u64) -> Option<(Vec<u32>, DispatchReason)> {
            let ready = self.queue.pop(self.start + Duration::from_millis(ms))?;
            Some((ready.batch.items, ready.reason))
        }
    }

    /// A trickle of items must not put the linger off: it runs from the oldest.
    #[test]
    fn linger_is_not_reset_by_later_items() {
        let mut bench = Bench::new(Dispatch::Linger(LINGER), 100);
        for ms in 0..10 {
            bench.push(ms * 10, 0, 0);
        }
        assert!(bench.pop(99).is_none());
        assert_eq!(bench.pop(100), Some((vec![0; 10], DispatchReason::Linger)));
    }

    /// An item that comes after a full batch left must not inherit the time of that batch.
    #[test]
    fn linger_is_not_inherited_from_a_full_batch() {
        let mut bench = Bench::new(Dispatch::Linger(LINGER), 2);
        bench.push(0, 0, 1);
        bench.push(60, 0, 2);
        assert_eq!(bench.pop(60), Some((vec![1, 2], DispatchReason::Full)));
        bench.queue.unmute(&0);
        bench.push(70, 0, 3);
        assert!(bench.pop(169).is_none());
        assert_eq!(bench.pop(170), Some((vec![3], DispatchReason::Linger)));
    }

    #[test]
    fn keys_linger_on_their_own() {
        let mut bench = Bench::new(Dispatch::Linger(LINGER), 100);
        bench.push(0, 0, 1);
        bench.push(50, 1, 2);
        assert_eq!(bench.queue.next_linger_end(), Some(bench.start + LINGER));
        assert_eq!(bench.pop(100), Some((vec![1], DispatchReason::Linger)));
        assert!(bench.pop(149).is_none());
        assert_eq!(bench.pop(150), Some((vec![2], DispatchReason::Linger)));
    }

    #[test]
    fn a_muted_key_holds_its_batches_and_no_others() {
        let mut bench = Bench::new(Dispatch::Natural, 1);
        bench.push(0, 0, 1);
        bench.push(0, 0, 2);
        bench.push(0, 1, 3);
        assert_eq!(bench.pop(0).unwrap().0, [1]);
        assert_eq!(bench.pop(0).unwrap().0, [3]);
        assert!(bench.pop(0).is_none());
        bench.queue.unmute(&0);
        assert_eq!(bench.pop(0).unwrap().0, [2]);
    }

    #[test]
    fn the_oldest_batch_goes_first_and_idle_keys_are_forgotten() {
        let mut bench = Bench::new(Dispatch::Natural, 10);
        for key in [3, 1, 2] {
            bench.push(0, key, u32::from(key));
        }
        let order: Vec<_> = (0..3).map(|_| bench.pop(0).unwrap().0[0]).collect();
        assert_eq!(order, [3, 1, 2]);
        for key in 1..4 {
            bench.queue.unmute(&key);
        }
        assert_eq!((bench.queue.lanes.len(), bench.queue.len()), (0, 0));
    }

    #[test]
    fn a_linger_beyond_the_clock_waits_for_a_seal() {
        let mut bench = Bench::new(Dispatch::Linger(Duration::MAX), 10);
        bench.push(0, 0, 1);
        assert!(bench.pop(1_000_000).is_none());
        bench.queue.seal_all(DispatchReason::Flush);
        assert_eq!(bench.pop(0), Some((vec![1], DispatchReason::Flush)));
    }
}
