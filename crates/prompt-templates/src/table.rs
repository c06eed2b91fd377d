//! A map by name whose copies share what they have in common.

use std::fmt;
use std::sync::Arc;

/// Entries of a part before it is split.
const MAX: usize = 16;

/// A map in parts: a copy shares them all, and a change copies the one that it is in.
///
/// So to publish a set with one other template costs neither the copy of all others nor their end. Parts
/// are not joined again; one that is empty goes.
#[derive(Clone)]
pub(crate) struct Table<V> {
    /// In order of their names, none empty.
    parts: Vec<Part<V>>,
    len: usize,
}

/// Entries are added in place where no copy shares the part.
type Part<V> = Arc<Vec<(Arc<str>, V)>>;

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

impl<V> Table<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        let (part, place) = self.find(name);
        Some(&self.parts.get(part)?[place.ok()?].1)
    }

    /// Returns the entries, ordered by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.parts.iter().flat_map(|part| part.iter().map(|(name, value)| (name, value)))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the part that a name belongs to, and where in it the name is or would be.
    fn find(&self, name: &str) -> (usize, Result<usize, usize>) {
        let behind = self.parts.partition_point(|part| *part[0].0 <= *name);
        let part = behind.saturating_sub(1);
        let place = self
            .parts
            .get(part)
            .map_or(Err(0), |part| part.binary_search_by(|(other, _)| (**other).cmp(name)));
        (part, place)
    }
}

impl<V: Clone> Table<V> {
    pub(crate) fn insert(&mut self, name: &Arc<str>, value: V) {
        let (index, place) = self.find(name);
        let Some(part) = self.parts.get_mut(index).map(Arc::make_mut) else {
            self.parts.push(Arc::new(vec![(Arc::clone(name), value)]));
            self.len += 1;
            return;
        };
        match place {
            Ok(place) => part[place].1 = value,
            Err(place) => {
                part.insert(place, (Arc::clone(name), value));
                self.len += 1;
                if part.len() > MAX {
                    let second = part.split_off(MAX / 2);
                    self.parts.insert(index + 1, Arc::new(second));
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let (index, Ok(place)) = self.find(name) else { return };
        let part = Arc::make_mut(&mut self.parts[index]);
        part.remove(place);
        if part.is_empty() {
            self.parts.remove(index);
        }
        self.len -= 1;
    }
}

impl<V: fmt::Debug> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It is a map, and what is done to it does not show in a copy.
        #[test]
        fn it_holds_what_a_map_holds_and_copies_stay(
            steps in prop::collection::vec((0..120_u32, any::<bool>(), 0..20_u8), 0..400),
        ) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (number, (name, is_insert, copy)) in steps.into_iter().enumerate() {
                if copy == 0 {
                    copies.push((table.clone(), map.clone()));
                }
                let name: Arc<str> = name.to_string().into();
                if is_insert {
                    table.insert(&name, number);
                    map.insert(name, number);
                } else {
                    table.remove(&name);
                    map.remove(&name);
                }
            }
            copies.push((table, map));
            for (table, map) in copies {
                prop_assert!(table.iter().eq(map.iter()));
                prop_assert_eq!(table.len(), map.len());
                prop_assert!(table.values().eq(map.values()));
                for name in (0..120_u32).map(|name| name.to_string()) {
                    prop_assert_eq!(table.get(&name), map.get(&*name));
                }
                prop_assert!(table.parts.iter().all(|part| (1..=MAX).contains(&part.len())));
            }
        }
    }

    #[test]
    fn a_change_copies_one_part_and_shares_the_others() {
        let mut table = Table::default();
        for n in 0..1_000_u32 {
            table.insert(&format!("{n:03}").into(), n);
        }
        let before = table.clone();
        table.insert(&"500".into(), 0);
        let same = table.parts.iter().zip(&before.parts).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!((table.parts.len(), same.count()), (before.parts.len(), table.parts.len() - 1));
    }
}
