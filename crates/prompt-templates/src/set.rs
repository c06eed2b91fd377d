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
use crate::table::Table;
use crate::{Error, ErrorKind, LoadError};

/// Errors of one change that list all names there are: each costs as much as there are templates.
const MAX_LISTS: usize = 100;

/// Never changed once it is published; every template in it has all it includes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    entries: Table<Entry>,
    /// The names that were compiled by call.
    sieve: Sieve,
    /// The number of the last new text.
    version: u64,
    /// A call has replaced or removed what came from the folder since that was last loaded.
    is_astray: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    linked: Arc<Linked>,
    /// Used since the hand of the sieve came by. What came from the folder is never evicted and has none.
    mark: Option<Arc<AtomicBool>>,
    /// Here as well, so that most need not be looked at when others change.
    has_partials: bool,
}

impl Entry {
    /// Returns whether it came from the folder.
    fn is_resident(&self) -> bool {
        self.mark.is_none()
    }
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
    /// Those templates of the folder that have a new text; all others are what was last loaded.
    Reload(Vec<Arc<Compiled>>),
    Remove(Arc<str>),
    Clear,
}

/// What a change did.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The prompt of a compile.
    pub(crate) prompt: Option<Prompt>,
    /// Templates of the folder that are new or have a new text.
    pub(crate) changed: usize,
    /// Templates that are gone because the change says so.
    pub(crate) removed: usize,
    /// Templates that are gone because there were too many.
    pub(crate) evicted: usize,
    /// Nothing was done: what was last loaded is not all there, so everything has to be.
    pub(crate) wants_all: bool,
}

impl Set {
    /// Returns a template, and marks it as used.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Linked>> {
        let entry = self.entries.get(name)?;
        // A mark that is there is not written again: readers share the line.
        if let Some(mark) = entry.mark.as_ref().filter(|mark| !mark.load(Ordering::Relaxed)) {
            mark.store(true, Ordering::Relaxed);
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
            Change::Reload(_) if self.is_astray => {
                Ok(Applied { wants_all: true, ..Applied::default() })
            }
            Change::Reload(new) => self.reload(new, terms),
            Change::Remove(name) => self.remove(name),
            Change::Clear => {
                let removed = self.len();
                *self = Self { version: self.version, is_astray: true, ..Self::default() };
                Ok(Applied { removed, ..Applied::default() })
            }
        }
    }

    fn compile(&mut self, compiled: &Arc<Compiled>, terms: &Terms) -> Result<Applied, LoadError> {
        let name = &compiled.name;
        let mut applied = Applied::default();
        let is_resident = self.entries.get(name).is_some_and(Entry::is_resident);
        // Another caller may have brought the same text meanwhile.
        if self.peek(name).is_none_or(|old| old.root.text != compiled.text) {
            self.replace(&[compiled], is_resident, &BTreeSet::new(), terms)?;
            self.is_astray |= is_resident;
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
        let mut residents = self.entries.iter().filter(|(_, entry)| entry.is_resident()).peekable();
        for compiled in all {
            while let Some((name, _)) = residents.next_if(|(name, _)| **name < compiled.name) {
                gone.insert(Arc::clone(name));
            }
            let old = residents.next_if(|(name, _)| **name == compiled.name);
            if !old.is_some_and(|(_, entry)| is_same(&entry.linked.root, compiled)) {
                new.push(compiled);
            }
        }
        gone.extend(residents.map(|(name, _)| Arc::clone(name)));
        self.replace(&new, true, &gone, terms)?;
        self.is_astray = false;
        // Those that were compiled by call are the folder's now.
        for compiled in &new {
            self.sieve.remove(&compiled.name);
        }
        Ok(Applied { changed: new.len(), removed: gone.len(), ..Applied::default() })
    }

    /// Does what a load of everything would: templates of the folder are what they were, but for these.
    fn reload(&mut self, new: &[Arc<Compiled>], terms: &Terms) -> Result<Applied, LoadError> {
        let is_new =
            |new: &&Arc<Compiled>| self.peek(&new.name).is_none_or(|old| !is_same(&old.root, new));
        let new: Vec<_> = new.iter().filter(is_new).collect();
        self.replace(&new, true, &BTreeSet::new(), terms)?;
        Ok(Applied { changed: new.len(), ..Applied::default() })
    }

    fn remove(&mut self, name: &Arc<str>) -> Result<Applied, LoadError> {
        let Some(entry) = self.entries.get(name) else { return Ok(Applied::default()) };
        let is_resident = entry.is_resident();
        self.check_unused(name)?;
        self.is_astray |= is_resident;
        self.entries.remove(name);
        self.sieve.remove(name);
        Ok(Applied { removed: 1, ..Applied::default() })
    }

    /// Puts templates in, of the folder or not, and takes others out, and links again whatever includes
    /// one of them.
    ///
    /// Nothing is touched before all of it is known to go.
    fn replace(
        &mut self,
        new: &[&Arc<Compiled>],
        is_resident: bool,
        gone: &BTreeSet<Arc<str>>,
        terms: &Terms,
    ) -> Result<(), LoadError> {
        let overlay: BTreeMap<_, _> = new.iter().map(|c| (&*c.name, *c)).collect();
        let is_touched = |name: &str| overlay.contains_key(name) || gone.contains(name);
        let misses = Cell::new(0);
        let draft = Draft { entries: &self.entries, overlay: &overlay, gone, misses };
        let mut version = self.version;
        let mut linked: Vec<Arc<Linked>> = Vec::with_capacity(new.len());
        let mut errors = Vec::new();
        let mut link = |root: &Arc<Compiled>, version, counters: &_| match Linked::new(
            root,
            &draft,
            version,
            counters,
            terms.max_output_bytes,
        ) {
            Ok(one) => linked.push(Arc::new(one)),
            Err(error) => errors.push(error),
        };
        for compiled in new {
            version += 1;
            // Counts go on over the versions of a name.
            let counters = match self.peek(&compiled.name) {
                Some(old) => Arc::clone(&old.counters),
                None => Arc::new(Counters::part_of(&terms.totals)),
            };
            link(compiled, version, &counters);
        }
        for (name, entry) in self.entries.iter().filter(|(_, entry)| entry.has_partials) {
            let old = &entry.linked;
            if old.partials().any(|partial| is_touched(&partial.name)) && !is_touched(name) {
                link(&old.root, old.version, &old.counters);
            }
        }
        if !errors.is_empty() {
            errors.sort_by_key(|error| (error.file().map(std::path::Path::to_owned), error.line()));
            return Err(LoadError::new(errors));
        }
        self.version = version;
        for name in gone {
            self.entries.remove(name);
        }
        for (index, linked) in linked.into_iter().enumerate() {
            let old = self.entries.get(&linked.root.name).map(|old| old.mark.clone());
            // The new ones come first; the others stay what they are.
            let mark = if index >= new.len() {
                old.flatten()
            } else if is_resident {
                None
            } else {
                Some(old.flatten().unwrap_or_default())
            };
            let name = Arc::clone(&linked.root.name);
            let has_partials = linked.partials().next().is_some();
            self.entries.insert(&name, Entry { linked, mark, has_partials });
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
                let mark = entries.get(name).and_then(|entry| entry.mark.as_ref());
                mark.is_some_and(|mark| mark.swap(false, Ordering::Relaxed))
            };
            let Some(victim) = sieve.evict(is_pinned, take_mark) else { break };
            self.entries.remove(&victim);
            evicted += 1;
        }
        evicted
    }
}

/// Returns whether what the folder holds is what a template of it was made from.
fn is_same(old: &Arc<Compiled>, new: &Arc<Compiled>) -> bool {
    Arc::ptr_eq(old, new) || old.text == new.text && old.path == new.path
}

/// A set as it will be, in which includes are looked up.
pub(crate) struct Draft<'d> {
    entries: &'d Table<Entry>,
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
        let names = self.entries.iter().map(|(name, _)| name);
        let old = names.filter(|name| !self.gone.contains(*name)).map(|name| &**name);
        let names: BTreeSet<_> = old.chain(self.overlay.keys().copied()).collect();
        let is_listed = self.misses.get() <= MAX_LISTS;
        let names = names.into_iter().filter(|name| is_listed && *name != by);
        Error::unknown(ErrorKind::UnknownInclude, "template", name, names)
    }
}
