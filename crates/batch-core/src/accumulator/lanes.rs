//! The lanes of all keys that have work.

use std::collections::VecDeque;

use super::eras::EraId;
use super::few::Few;
use super::lane::{Fresh, Lane, LaneId};
use super::run::Slot;

/// The lanes, by key and by id. Each is listed in both, and none is kept for a key without work.
#[derive(Debug)]
pub(super) struct Lanes<K, I, S: Slot> {
    by_key: Few<K, LaneId>,
    /// `None` for the one that is in `last`.
    by_id: Few<LaneId, Option<Boxed<K, I, S>>>,
    /// The lane that the last item went to, which the next one likely goes to.
    last: Option<(LaneId, Boxed<K, I, S>)>,
    next: LaneId,
    /// Empty queues of lanes that are gone, for those to come; a few at most, and none that is large.
    spare: Vec<VecDeque<Fresh<I, S>>>,
}

/// Does not move when its lane is listed elsewhere.
type Boxed<K, I, S> = Box<Lane<K, I, S>>;

/// How many queues are kept.
const SPARE: usize = 16;

impl<K: Ord + Clone, I, S: Slot> Lanes<K, I, S> {
    pub(super) fn new() -> Self {
        let (by_key, by_id) = (Few::default(), Few::default());
        Self { by_key, by_id, last: None, next: 1, spare: Vec::new() }
    }

    /// Returns the lane of `key`, made if there is none.
    #[inline]
    pub(super) fn of(&mut self, key: K) -> (LaneId, &mut Lane<K, I, S>) {
        if !self.is_last(&key) {
            self.turn_to(key);
        }
        let (id, lane) = self.last.as_mut().expect("it was just turned to");
        (*id, lane)
    }

    /// Says whether the last item was one of `key`.
    #[inline]
    pub(super) fn is_last(&self, key: &K) -> bool {
        self.last.as_ref().is_some_and(|(_, lane)| lane.key == *key)
    }

    /// Returns the batch that the last item joined, if it takes more of this era.
    pub(super) fn last_open(&mut self, era: EraId) -> Option<(LaneId, &mut Fresh<I, S>)> {
        let (id, lane) = self.last.as_mut()?;
        let fresh = lane.fresh.back_mut()?;
        fresh.is_open(era).then_some((*id, fresh))
    }

    /// Makes the lane of `key` the last one.
    #[cold]
    fn turn_to(&mut self, key: K) {
        if let Some((id, lane)) = self.last.take() {
            *self.by_id.get_mut(&id).expect("every lane is listed") = Some(lane);
        }
        let known = self.by_key.get(&key).copied();
        self.last = Some(match known {
            Some(id) => {
                let lane = self.by_id.get_mut(&id).and_then(Option::take);
                (id, lane.expect("a lane that is not the last one is in the list"))
            }
            None => self.add(key),
        });
    }

    fn add(&mut self, key: K) -> (LaneId, Boxed<K, I, S>) {
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        self.by_id.insert(id, None);
        let fresh = self.spare.pop().unwrap_or_default();
        (id, Box::new(Lane::new(key, fresh)))
    }

    /// Says whether no key has work.
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the id of the lane that is made next.
    pub(super) fn upcoming(&self) -> LaneId {
        self.next
    }

    /// Has no lane made with that id.
    pub(super) fn skip(&mut self) {
        self.next += 1;
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Lane<K, I, S>> {
        match &self.last {
            Some((last, lane)) if *last == id => Some(lane),
            _ => self.by_id.get(&id)?.as_deref(),
        }
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane<K, I, S>> {
        match &mut self.last {
            Some((last, lane)) if *last == id => Some(lane),
            _ => self.by_id.get_mut(&id)?.as_deref_mut(),
        }
    }

    pub(super) fn remove(&mut self, id: LaneId) {
        let listed = self.by_id.remove(&id).flatten();
        let last = self.last.take_if(|(last, _)| *last == id);
        if let Some(lane) = listed.or(last.map(|(_, lane)| lane)) {
            self.by_key.remove(&lane.key);
            if self.spare.len() < SPARE {
                self.spare.push(lane.fresh);
            }
        }
    }

    /// Returns all lanes, in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LaneId, &Lane<K, I, S>)> {
        self.by_id.keys().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    pub(super) fn ids(&self) -> Vec<LaneId> {
        self.by_id.keys().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.by_key.len(), self.by_id.len())
    }
}
