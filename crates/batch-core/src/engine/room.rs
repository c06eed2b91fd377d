//! Submits that wait for room, served in the order in which they came.

use std::collections::VecDeque;
use std::task::Waker;

/// The queue of those who wait for room.
#[derive(Default)]
pub(super) struct Room {
    waiting: VecDeque<Waiting>,
    next: u64,
}

struct Waiting {
    id: u64,
    weight: u64,
    /// `None` once it was woken, until it waits again.
    waker: Option<Waker>,
}

impl Room {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Says whether one with this place, or with none yet, is next.
    pub(super) fn is_next(&self, place: Option<u64>) -> bool {
        self.waiting.front().map(|first| first.id) == place
    }

    /// Waits at `place`, or at the end of the queue; returns the place, and the waker before.
    pub(super) fn wait(
        &mut self,
        place: Option<u64>,
        weight: u64,
        waker: Waker,
    ) -> (u64, Option<Waker>) {
        let known = place.and_then(|place| self.waiting.iter_mut().find(|one| one.id == place));
        if let Some(waiting) = known {
            waiting.weight = weight;
            return (waiting.id, waiting.waker.replace(waker));
        }
        let id = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { id, weight, waker: Some(waker) });
        (id, None)
    }

    /// Gives up a place.
    pub(super) fn leave(&mut self, place: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|one| one.id == place)?;
        self.waiting.remove(at)?.waker
    }

    /// Hands out the wakers of those who have to look: the first if there is room for it, or all
    /// if there will never be any.
    pub(super) fn call(
        &mut self,
        is_closed: bool,
        has_room: impl Fn(u64) -> bool,
        mut wake: impl FnMut(Waker),
    ) {
        if is_closed {
            self.waiting.iter_mut().filter_map(|one| one.waker.take()).for_each(wake);
        } else if let Some(first) = self.waiting.front_mut()
            && has_room(first.weight)
            && let Some(waker) = first.waker.take()
        {
            wake(waker);
        }
    }
}
