//! All templates of a store at one moment, and how a change makes the next moment of it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::compiled::Compiled;
use crate::linked::Linked;
use crate::prompt::Prompt;
use crate::sieve::Sieve;
use crate::stats::Counters;
use crate::{Error, ErrorKind, LoadError};

/// Errors of one change that list all names there are: each costs as much as there are templates.
const MAX_LISTS: usize = 100;

/// Never changed once it is published; every template in it has all it includes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    entries: BTreeMap<Arc<str>, Entry>,
    /// The names that were compiled by call.
    sieve: Sieve,
    /// The number of the last new text.
    version: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    linked: Arc<Linked>,
    /// Used since the hand of the sieve came by.
    mark: Arc<AtomicBool>,
    /// Came from the folder and is never evicted.
    is_resident: bool,
}

/// What holds for all templates of a store.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Templates compiled by call that are kept.
    pub(crate) capacity: usize,
    pub(crate) max_output_bytes: usize,
    pub(crate) totals: Arc<Counters>,
}

impl Terms {
    pub(crate) fn new(capacity: usize, max_output_bytes: usize, totals: Counters) -> Self {
        Self { capacity, max_output_bytes, totals: Arc::new(totals) }
    }
}

/// A change that is made whole or not at all.
#[derive(Debug)]
pub(crate) enum Change {
    Compile(Arc<Compiled>),
    /// Everything that the folder holds now, ordered by name.
    Load(Vec<Arc<Compiled>>),
    Remove(Arc<str>),
    Clear,
}

/// What a change did.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The prompt of a compile.
    pub(crate) prompt: Option<Prompt>,
    /// Templates in the folder, and how many of them are new or have a new text.
    pub(crate) loaded: usize,
    pub(crate) changed: usize,
    /// Templates that are gone because the change says so.
    pub(crate) removed: usize,
    /// Templates that are gone because there were too many.
    pub(crate) evicted: usize,
}

impl Set {
    /// Returns a template, and marks it as used.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Linked>> {
        let entry = self.entries.get(name)?;
        // A mark that is there is not written again: readers share the line.
        if !entry.mark.load(Ordering::Relaxed) {
            entry.mark.store(true, Ordering::Relaxed);
        }
        Some(&entry.linked)
    }

    /// Returns a template without marking it as used.
    pub(crate) fn peek(&self, name: &str) -> Option<&Arc<Linked>> {
        self.entries.get(name).map(|entry| &entry.linked)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Linked>> {
        self.entries.values().map(|entry| &entry.linked)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn called(&self) -> usize {
        self.sieve.len()
    }

    /// Makes a change, whole or not at all: after an error the set is what it was.
    pub(crate) fn apply(&mut self, change: &Change, terms: &Terms) -> Result<Applied, LoadError> {
        match change {
            Change::Compile(compiled) => self.compile(compiled, terms),
            Change::Load(all) => self.load(all, terms),
            Change::Remove(name) => self.remove(name, terms),
            Change::Clear => {
                let removed = self.len();
                *self = Self { version: self.version, ..Self::default() };
                Ok(Applied { removed, ..Applied::default() })
            }
        }
    }

    fn compile(&mut self, compiled: &Arc<Compiled>, terms: &Terms) -> Result<Applied, LoadError> {
        let name = &compiled.name;
        let mut applied = Applied::default();
        let is_resident = self.entries.get(name).is_some_and(|entry| entry.is_resident);
        // Another caller may have brought the same text meanwhile.
        if self.peek(name).is_none_or(|old| old.root.text != compiled.text) {
            self.replace(&[(compiled, is_resident)], &BTreeSet::new(), terms)?;
        }
        if !is_resident {
            self.sieve.insert(name);
            applied.evicted = self.evict(name, terms.capacity);
        }
        applied.prompt = self.peek(name).map(|linked| Prompt { linked: Arc::clone(linked) });
        Ok(applied)
    }

    fn load(&mut self, all: &[Arc<Compiled>], terms: &Terms) -> Result<Applied, LoadError> {
        let mut new = Vec::new();
        let mut gone = BTreeSet::new();
        // Both are ordered by name, so one is walked along the other.
        let mut residents = self.entries.iter().filter(|(_, entry)| entry.is_resident).peekable();
        for compiled in all {
            while let Some((name, _)) = residents.next_if(|(name, _)| **name < compiled.name) {
                gone.insert(Arc::clone(name));
            }
            let old = residents.next_if(|(name, _)| **name == compiled.name);
            let is_same = old.map(|(_, entry)| &entry.linked.root).is_some_and(|old| {
                Arc::ptr_eq(old, compiled) || old.text == compiled.text && old.path == compiled.path
            });
            if !is_same {
                new.push((compiled, true));
            }
        }
        gone.extend(residents.map(|(name, _)| Arc::clone(name)));
        self.replace(&new, &gone, terms)?;
        // Those that were compiled by call are the folder's now.
        for (compiled, _) in &new {
            self.sieve.remove(&compiled.name);
        }
        let (loaded, changed, removed) = (all.len(), new.len(), gone.len());
        Ok(Applied { loaded, changed, removed, ..Applied::default() })
    }

    fn remove(&mut self, name: &Arc<str>, terms: &Terms) -> Result<Applied, LoadError> {
        if !self.entries.contains_key(name) {
            return Ok(Applied::default());
        }
        self.check_unused(name)?;
        self.replace(&[], &BTreeSet::from([Arc::clone(name)]), terms)?;
        self.sieve.remove(name);
        Ok(Applied { removed: 1, ..Applied::default() })
    }

    /// Puts templates in and takes others out, and links again whatever includes one of them.
    ///
    /// Nothing is touched before all of it is known to go.
    fn replace(
        &mut self,
        new: &[(&Arc<Compiled>, bool)],
        gone: &BTreeSet<Arc<str>>,
        terms: &Terms,
    ) -> Result<(), LoadError> {
        let overlay: BTreeMap<_, _> = new.iter().map(|(c, _)| (&*c.name, *c)).collect();
        let is_touched = |name: &str| overlay.contains_key(name) || gone.contains(name);
        let residents: BTreeMap<_, _> =
            new.iter().map(|(c, resident)| (&*c.name, *resident)).collect();
        let misses = Cell::new(0);
        let draft = Draft { entries: &self.entries, overlay: &overlay, gone, misses };
        let mut version = self.version;
        let mut linked: Vec<(Arc<Linked>, Option<bool>)> = Vec::new();
        let mut errors = Vec::new();
        let mut link = |root: &Arc<Compiled>, version, counters: &_, is_resident| match Linked::new(
            root,
            &draft,
            version,
            counters,
            terms.max_output_bytes,
        ) {
            Ok(one) => linked.push((Arc::new(one), is_resident)),
            Err(error) => errors.push(error),
        };
        for (compiled, _) in new {
            version += 1;
            // Counts go on over the versions of a name.
            let counters = match self.peek(&compiled.name) {
                Some(old) => Arc::clone(&old.counters),
                None => Arc::new(Counters::part_of(&terms.totals)),
            };
            link(compiled, version, &counters, residents.get(&*compiled.name).copied());
        }
        for (name, entry) in &self.entries {
            let old = &entry.linked;
            if old.partials().any(|partial| is_touched(&partial.name)) && !is_touched(name) {
                link(&old.root, old.version, &old.counters, None);
            }
        }
        if !errors.is_empty() {
            errors.sort_by_key(|error| (error.file().map(std::path::Path::to_owned), error.line()));
            return Err(LoadError::new(errors));
        }
        self.version = version;
        self.entries.retain(|name, _| !gone.contains(name));
        for (linked, is_resident) in linked {
            let old = self.entries.get(&linked.root.name);
            let entry = Entry {
                mark: old.map_or_else(Arc::default, |old| Arc::clone(&old.mark)),
                is_resident: is_resident.unwrap_or_else(|| old.is_some_and(|old| old.is_resident)),
                linked,
            };
            self.entries.insert(Arc::clone(&entry.linked.root.name), entry);
        }
        Ok(())
    }

    fn check_unused(&self, name: &str) -> Result<(), LoadError> {
        let includes = |linked: &&Arc<Linked>| linked.root.includes.iter().any(|i| i.name == name);
        let users: Vec<_> = self.iter().filter(includes).map(|user| &*user.root.name).collect();
        if users.is_empty() {
            return Ok(());
        }
        let message = format!("'{name}' is included by '{}'", users.join("', '"));
        Err(Error::new(ErrorKind::InUse, message).named(name).help("remove those first").into())
    }

    /// Evicts down to the capacity; returns how many. `newest` stays, and so does what is included,
    /// which is not counted either.
    fn evict(&mut self, newest: &str, capacity: usize) -> usize {
        let mut evicted = 0;
        while self.sieve.len() > capacity {
            let Self { entries, sieve, .. } = self;
            let partials = entries.values().flat_map(|entry| entry.linked.partials());
            let included: BTreeSet<_> = partials.map(|partial| Arc::clone(&partial.name)).collect();
            if sieve.len() - sieve.count(|name| included.contains(name)) <= capacity {
                break;
            }
            let is_pinned = |name: &str| name == newest || included.contains(name);
            let take_mark = |name: &str| {
                entries.get(name).is_some_and(|entry| entry.mark.swap(false, Ordering::Relaxed))
            };
            let Some(victim) = sieve.evict(is_pinned, take_mark) else { break };
            self.entries.remove(&victim);
            evicted += 1;
        }
        evicted
    }
}

/// A set as it will be, in which includes are looked up.
pub(crate) struct Draft<'d> {
    entries: &'d BTreeMap<Arc<str>, Entry>,
    overlay: &'d BTreeMap<&'d str, &'d Arc<Compiled>>,
    gone: &'d BTreeSet<Arc<str>>,
    /// Names that were asked for and are not there.
    misses: Cell<usize>,
}

impl Draft<'_> {
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Compiled>> {
        if let Some(compiled) = self.overlay.get(name) {
            return Some(compiled);
        }
        let entry = self.entries.get(name).filter(|_| !self.gone.contains(name))?;
        Some(&entry.linked.root)
    }

    /// Returns the error for a name that `by` includes and that is not there.
    pub(crate) fn unknown(&self, name: &str, by: &str) -> Error {
        self.misses.set(self.misses.get() + 1);
        let old = self.entries.keys().filter(|name| !self.gone.contains(*name)).map(|name| &**name);
        let names: BTreeSet<_> = old.chain(self.overlay.keys().copied()).collect();
        let is_listed = self.misses.get() <= MAX_LISTS;
        let names = names.into_iter().filter(|name| is_listed && *name != by);
        Error::unknown(ErrorKind::UnknownInclude, "template", name, names)
    }
}
