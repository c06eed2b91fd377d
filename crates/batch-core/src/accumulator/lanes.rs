//! The lanes of all keys that have work.

use std::collections::BTreeMap;

use super::lane::{Lane, LaneId};

/// The lanes, by key and by id. Each is listed in both, and none is kept for a key without work.
#[derive(Debug)]
pub(super) struct Lanes<K, I, S> {
    by_key: BTreeMap<K, LaneId>,
    by_id: BTreeMap<LaneId, Lane<K, I, S>>,
    /// The lane that the last item went to, which the next one likely goes to; it may be gone.
    last: LaneId,
    next: LaneId,
}

impl<K: Ord + Clone, I, S> Lanes<K, I, S> {
    pub(super) fn new() -> Self {
        Self { by_key: BTreeMap::new(), by_id: BTreeMap::new(), last: 0, next: 1 }
    }

    /// Returns the lane of `key`, made if there is none.
    pub(super) fn enter(&mut self, key: K) -> (LaneId, &mut Lane<K, I, S>) {
        let is_last = self.by_id.get(&self.last).is_some_and(|lane| lane.key == key);
        if !is_last {
            self.last = self.by_key.get(&key).copied().unwrap_or_else(|| self.add(key));
        }
        (self.last, self.by_id.get_mut(&self.last).expect("the lane was found or just added"))
    }

    fn add(&mut self, key: K) -> LaneId {
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        self.by_id.insert(id, Lane::new(key));
        id
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Lane<K, I, S>> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane<K, I, S>> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: LaneId) {
        if let Some(lane) = self.by_id.remove(&id) {
            self.by_key.remove(&lane.key);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane<K, I, S>> {
        self.by_id.values()
    }

    pub(super) fn ids(&self) -> Vec<LaneId> {
        self.by_id.keys().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn iter_ids(&self) -> impl Iterator<Item = (LaneId, &Lane<K, I, S>)> {
        self.by_id.iter().map(|(id, lane)| (*id, lane))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.by_key.len(), self.by_id.len())
    }
}
