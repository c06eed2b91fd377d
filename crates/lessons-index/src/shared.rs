//! What the readers and the writer of an index share.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::compact::{CompactError, Compacted, Compaction};
use crate::error::{OpenError, WriteError};
use crate::index::Refresh;
use crate::op::{self, Before, Op, Outcome};
use crate::source::{Locked, Source};
use crate::state::{Change, State};
use crate::store::Store;
use crate::verify::{self, Verified};

/// Says when an index was last read whole from its file, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastLoad {
    /// When it began.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
}

pub(crate) struct Shared {
    store: Arc<Store>,
    /// Held while the file is read or written, never by a reader.
    source: Mutex<Source>,
    last_load: ArcSwap<LastLoad>,
    compactions: AtomicU64,
    /// Why the last one that was due by itself did not come about.
    failed_compaction: ArcSwapOption<CompactError>,
    /// A shorter file is not compacted by itself.
    compact_from: AtomicU64,
}

impl Shared {
    /// Reads the file for the first time.
    pub(crate) fn load(source: Source) -> Result<Self, OpenError> {
        let shared = Self {
            store: Arc::default(),
            source: Mutex::new(source),
            last_load: ArcSwap::from_pointee(LastLoad {
                at: SystemTime::now(),
                took: Duration::ZERO,
            }),
            compactions: AtomicU64::new(0),
            failed_compaction: ArcSwapOption::empty(),
            compact_from: AtomicU64::new(0),
        };
        shared.reload()?;
        Ok(shared)
    }

    pub(crate) fn current(&self) -> Arc<State> {
        self.store.current()
    }

    pub(crate) fn last_load(&self) -> LastLoad {
        **self.last_load.load()
    }

    pub(crate) fn reload(&self) -> Result<(), OpenError> {
        let mut source = self.source();
        let (at, start) = (SystemTime::now(), Instant::now());
        source.reload()?;
        self.publish(&mut source);
        self.last_load.store(Arc::new(LastLoad { at, took: start.elapsed() }));
        Ok(())
    }

    pub(crate) fn refresh(&self) -> Result<Refresh, OpenError> {
        let mut source = self.source();
        source.refresh()?;
        Ok(self.publish(&mut source))
    }

    pub(crate) fn verify(&self, path: &Path) -> Result<Verified, OpenError> {
        let mut source = self.source();
        source.refresh()?;
        self.publish(&mut source);
        // Nothing of ours is written meanwhile.
        verify::verify(&self.current(), path, source.options())
    }

    /// Carries out what was asked for, in order, as one write and one publication.
    pub(crate) fn append(&self, ops: &[Op]) -> Result<Vec<Outcome>, WriteError> {
        /// How often a file may be replaced while it is written.
        const TRIES: usize = 8;
        let mut source = self.source();
        let (mut before, mut held) = (Before::default(), None);
        for _ in 0..TRIES {
            match self.try_append(&mut source, ops, &mut before, &mut held) {
                Ok(Some(outcomes)) => return Ok(outcomes),
                Ok(None) => {}
                Err(error) if before.is_empty() || error.has_changed_file() => return Err(error),
                // It tells of the new file only, which may have what was appended to the one before.
                Err(error) => return Err(source.replaced(Some(error))),
            }
        }
        Err(source.replaced(None))
    }

    /// Returns `None` if another file has taken the place of the one that was written; `held` is the
    /// lock then.
    fn try_append(
        &self,
        source: &mut Source,
        ops: &[Op],
        before: &mut Before,
        held: &mut Option<Locked>,
    ) -> Result<Option<Vec<Outcome>>, WriteError> {
        let locked = source.lock(held.take());
        // What others wrote comes first; what is asked for may depend on it.
        self.publish(source);
        let locked = locked?;
        if source.is_cleared() && !ops.iter().all(|op| matches!(op, Op::Put(_))) {
            source.reload()?;
            self.publish(source);
        }
        let max = source.options().max_line_bytes();
        let (outcomes, lessons) = op::carry_out(ops, &self.current(), max, before);
        if lessons.is_empty() && before.is_empty() {
            return Ok(Some(outcomes));
        }
        let appended = source.append(&locked, &lessons);
        self.publish(source);
        if appended? {
            return Ok(Some(outcomes));
        }
        before.keep(outcomes, lessons);
        *held = Some(locked);
        Ok(None)
    }

    /// Compacts the file if that would drop over half of it.
    pub(crate) fn compact_if_due(&self) {
        let mut source = self.source();
        let (len, dead) = (source.len(), self.current().dead_bytes);
        let Some(from) = source.options().auto_compact else { return };
        // Reading the file again would bring back what was cleared.
        if source.is_cleared() {
            return;
        }
        if dead > len / 2 && len >= from.max(self.compact_from.load(Relaxed)) {
            let compacted = source.compact(&Compaction::default());
            self.publish(&mut source);
            self.compactions.fetch_add(u64::from(compacted.is_ok()), Relaxed);
            self.failed_compaction.store(compacted.err().map(Arc::new));
            // A conflict is an error: the next time is when the file has twice the length, so that
            // the work is paid for by what was written.
            self.compact_from.store(source.len().saturating_mul(2), Relaxed);
        }
    }

    pub(crate) fn compact(&self, policy: &Compaction) -> Result<Compacted, CompactError> {
        let mut source = self.source();
        let compacted = source.compact(policy);
        self.publish(&mut source);
        if compacted.is_ok() {
            self.compactions.fetch_add(1, Relaxed);
            self.failed_compaction.store(None);
        }
        compacted
    }

    pub(crate) fn failed_compaction(&self) -> Option<Arc<CompactError>> {
        self.failed_compaction.load_full()
    }

    pub(crate) fn compactions(&self) -> u64 {
        self.compactions.load(Relaxed)
    }

    pub(crate) fn clear(&self) {
        let mut source = self.source();
        source.clear();
        self.store.clear(Change::default());
    }

    fn publish(&self, source: &mut Source) -> Refresh {
        let (pending, summary) = source.take_pending();
        if !pending.is_changed {
            return Refresh::Unchanged;
        }
        let (fresh, lessons) = (pending.fresh, pending.lessons);
        let refresh = match &fresh {
            Some(_) => Refresh::Reloaded,
            None => Refresh::Appended { records: lessons.len() },
        };
        let is_fresh = fresh.is_some();
        self.make_visible(Change { fresh, lessons, summary });
        if is_fresh && source.options().is_eager && self.store.is_large() {
            in_background("lessons-text", &self.store, Store::warm);
        }
        refresh
    }

    fn make_visible(&self, change: Change) {
        if self.store.publish(change) {
            in_background("lessons-merge", &self.store, Store::merge);
        }
    }

    #[cfg(feature = "measure")]
    pub(crate) fn publish_only(&self, lesson: Arc<crate::lesson::Lesson>) {
        let summary = self.current().summary.clone();
        self.make_visible(Change { fresh: None, lessons: vec![lesson], summary });
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            // A panic left it half read.
            self.source.clear_poison();
            let mut source = poisoned.into_inner();
            source.distrust();
            source
        })
    }
}

/// Runs what readers do not wait for; on this thread, if there can be no other.
fn in_background(name: &str, store: &Arc<Store>, work: fn(&Store)) {
    let shared = Arc::clone(store);
    let thread = thread::Builder::new().name(name.to_owned());
    if thread.spawn(move || work(&shared)).is_err() {
        work(store);
    }
}
