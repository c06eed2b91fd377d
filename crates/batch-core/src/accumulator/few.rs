//! An ordered map that mostly has one entry.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;

/// An ordered map whose first entry stands outside the tree: with no other there is nothing to
/// search and nothing to allocate.
///
/// An engine of one key has one lane, one timer and one batch in flight, and each comes and goes
/// with every batch.
#[derive(Debug)]
pub(super) struct Few<K, V> {
    /// The smallest key; `None` if there is none.
    first: Option<(K, V)>,
    rest: BTreeMap<K, V>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self { first: None, rest: BTreeMap::new() }
    }
}

impl<K: Ord, V> Few<K, V> {
    /// Compares a key with the first; it is greater than none.
    fn side(&self, key: &K) -> Ordering {
        self.first.as_ref().map_or(Ordering::Less, |(first, _)| key.cmp(first))
    }

    /// Adds an entry, in place of the one of the same key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.side(&key) {
            Ordering::Greater => {
                self.rest.insert(key, value);
            }
            Ordering::Equal => self.first = Some((key, value)),
            Ordering::Less => {
                let second = self.first.replace((key, value));
                self.rest.extend(second);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match self.side(key) {
            Ordering::Less => None,
            Ordering::Equal => self.pop_first().map(|(_, value)| value),
            Ordering::Greater => self.rest.remove(key),
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<(K, V)> {
        let second = if self.rest.is_empty() { None } else { self.rest.pop_first() };
        mem::replace(&mut self.first, second)
    }

    pub(super) fn first(&self) -> Option<&(K, V)> {
        self.first.as_ref()
    }

    pub(super) fn last_key(&self) -> Option<&K> {
        let last = self.rest.last_key_value().map(|(key, _)| key);
        last.or(self.first.as_ref().map(|(key, _)| key))
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match self.side(key) {
            Ordering::Less => None,
            Ordering::Equal => self.first.as_ref().map(|(_, value)| value),
            Ordering::Greater => self.rest.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.side(key) {
            Ordering::Less => None,
            Ordering::Equal => self.first.as_mut().map(|(_, value)| value),
            Ordering::Greater => self.rest.get_mut(key),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.first.iter().map(|(key, _)| key).chain(self.rest.keys())
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is done, it holds what a tree would.
        #[test]
        fn it_is_an_ordered_map(steps in prop::collection::vec((0_u8..4, 0_u8..6, any::<u8>()), 0..60)) {
            let (mut few, mut tree) = (Few::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 | 1 => {
                        few.insert(key, value);
                        tree.insert(key, value);
                    }
                    2 => prop_assert_eq!(few.remove(&key), tree.remove(&key)),
                    _ => prop_assert_eq!(few.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(few.first().copied(), tree.first_key_value().map(|(k, v)| (*k, *v)));
                prop_assert_eq!(few.last_key(), tree.last_key_value().map(|(k, _)| k));
                prop_assert_eq!(few.keys().collect::<Vec<_>>(), tree.keys().collect::<Vec<_>>());
                prop_assert_eq!((few.len(), few.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert_eq!(few.get(&key), tree.get(&key));
                prop_assert_eq!(few.get_mut(&key), tree.get_mut(&key));
            }
        }
    }
}
