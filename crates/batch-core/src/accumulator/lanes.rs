//! The lanes of all keys that have work.

use std::collections::{BTreeMap, VecDeque};

use super::lane::{Fresh, Lane, LaneId};

/// The lanes, by key and by id. Each is listed in both, and none is kept for a key without work.
#[derive(Debug)]
pub(super) struct Lanes<K, I, S> {
    by_key: BTreeMap<K, LaneId>,
    by_id: BTreeMap<LaneId, Box<Lane<K, I, S>>>,
    /// The lane that the last item went to, which the next one likely goes to; it may be gone.
    last: LaneId,
    next: LaneId,
    /// Empty queues of lanes that are gone, for those to come; a few at most.
    spare: Vec<VecDeque<Fresh<I, S>>>,
}

/// How many queues are kept.
const SPARE: usize = 16;

impl<K: Ord + Clone, I, S> Lanes<K, I, S> {
    pub(super) fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_id: BTreeMap::new(),
            last: 0,
            next: 1,
            spare: Vec::new(),
        }
    }

    /// Does something to the lane of `key`, made if there is none.
    #[inline]
    pub(super) fn enter<R>(
        &mut self,
        key: K,
        change: impl FnOnce(LaneId, &mut Lane<K, I, S>) -> R,
    ) -> R {
        if let Some(lane) = self.by_id.get_mut(&self.last)
            && lane.key == key
        {
            return change(self.last, lane);
        }
        self.last = self.by_key.get(&key).copied().unwrap_or_else(|| self.add(key));
        change(self.last, self.by_id.get_mut(&self.last).expect("it was found or just added"))
    }

    fn add(&mut self, key: K) -> LaneId {
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        let fresh = self.spare.pop().unwrap_or_default();
        self.by_id.insert(id, Box::new(Lane::new(key, fresh)));
        id
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Lane<K, I, S>> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane<K, I, S>> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    pub(super) fn remove(&mut self, id: LaneId) {
        if let Some(lane) = self.by_id.remove(&id) {
            self.by_key.remove(&lane.key);
            if self.spare.len() < SPARE {
                self.spare.push(lane.fresh);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane<K, I, S>> {
        self.by_id.values().map(Box::as_ref)
    }

    pub(super) fn ids(&self) -> Vec<LaneId> {
        self.by_id.keys().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn iter_ids(&self) -> impl Iterator<Item = (LaneId, &Lane<K, I, S>)> {
        self.by_id.iter().map(|(id, lane)| (*id, &**lane))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.by_key.len(), self.by_id.len())
    }
}
