use std::collections::VecDeque;
use std::sync::Arc;

/// The SIEVE order of eviction: a queue from old to new, and a hand that passes over what was used.
///
/// A name that was used since the hand last came by stays, and loses its mark; the first one without a
/// mark goes. Unlike in LRU a use moves nothing, so readers need no lock: a mark is all they leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sieve {
    /// From the oldest to the newest.
    queue: VecDeque<Arc<str>>,
    /// Where the hand stands; beyond the end, it begins at the oldest again.
    hand: usize,
}

impl Sieve {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn count(&self, is_counted: impl Fn(&str) -> bool) -> usize {
        self.queue.iter().filter(|name| is_counted(name)).count()
    }

    /// Adds a name, unless it is there.
    pub(crate) fn insert(&mut self, name: &Arc<str>) {
        if !self.queue.contains(name) {
            self.queue.push_back(Arc::clone(name));
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(index) = self.queue.iter().position(|other| &**other == name) {
            self.remove_at(index);
        }
    }

    fn remove_at(&mut self, index: usize) -> Option<Arc<str>> {
        if index < self.hand {
            self.hand -= 1;
        }
        self.queue.remove(index)
    }

    /// Takes out the name that is to go. `take_mark` says whether a name was used, and clears that.
    ///
    /// Returns `None` if every name is pinned.
    pub(crate) fn evict(
        &mut self,
        is_pinned: impl Fn(&str) -> bool,
        take_mark: impl Fn(&str) -> bool,
    ) -> Option<Arc<str>> {
        // In two rounds each mark has been cleared, so whatever is not pinned is found.
        for _ in 0..2 * self.queue.len() {
            if self.hand >= self.queue.len() {
                self.hand = 0;
            }
            let name = &self.queue[self.hand];
            if is_pinned(name) || take_mark(name) {
                self.hand += 1;
            } else {
                return self.remove_at(self.hand);
            }
        }
        // A reader may have marked everything again meanwhile; then the oldest one goes.
        let index = self.queue.iter().position(|name| !is_pinned(name))?;
        self.remove_at(index)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    fn sieve(names: &[&str]) -> Sieve {
        let mut sieve = Sieve::default();
        for name in names {
            sieve.insert(&Arc::from(*name));
        }
        sieve
    }

    fn evict(sieve: &mut Sieve, used: &RefCell<BTreeSet<&str>>, pinned: &str) -> Option<Arc<str>> {
        sieve.evict(|name| name == pinned, |name| used.borrow_mut().remove(name))
    }

    #[test]
    fn the_oldest_unused_name_goes_and_the_hand_stays_where_it_was() {
        let mut sieve = sieve(&["a", "b", "c", "d"]);
        let used = RefCell::new(BTreeSet::from(["a", "c"]));
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("b"));
        sieve.insert(&Arc::from("e"));
        // `a` was passed and is unmarked, but the hand is beyond it: first `c` is passed, `d` goes.
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("d"));
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("e"));
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("a"));
        assert_eq!(sieve.len(), 1);
    }

    #[test]
    fn pinned_names_never_go() {
        let mut sieve = sieve(&["a", "b"]);
        let used = RefCell::default();
        assert_eq!(evict(&mut sieve, &used, "a").as_deref(), Some("b"));
        assert_eq!(evict(&mut sieve, &used, "a"), None);
    }

    #[test]
    fn names_that_are_always_used_end_no_eviction_without_a_victim() {
        let mut sieve = sieve(&["a", "b"]);
        assert_eq!(sieve.evict(|_| false, |_| true).as_deref(), Some("a"));
    }

    #[test]
    fn removing_in_front_of_the_hand_moves_it_along() {
        let mut sieve = sieve(&["a", "b", "c"]);
        let used = RefCell::new(BTreeSet::from(["a"]));
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("b"));
        sieve.remove("a");
        assert_eq!(evict(&mut sieve, &used, "").as_deref(), Some("c"));
    }
}
