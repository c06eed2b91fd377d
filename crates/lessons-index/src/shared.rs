//! What the readers and the writer of an index share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;

use crate::error::{OpenError, WriteError};
use crate::index::Refresh;
use crate::lesson::Lesson;
use crate::snapshot::State;
use crate::source::Source;

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
    current: ArcSwap<State>,
    /// Held while the file is read or written, never by a reader.
    source: Mutex<Source>,
    last_load: ArcSwap<LastLoad>,
}

impl Shared {
    /// Reads the file for the first time.
    pub(crate) fn load(source: Source) -> Result<Self, OpenError> {
        let shared = Self {
            current: ArcSwap::default(),
            source: Mutex::new(source),
            last_load: ArcSwap::from_pointee(LastLoad {
                at: SystemTime::now(),
                took: Duration::ZERO,
            }),
        };
        shared.reload()?;
        Ok(shared)
    }

    pub(crate) fn current(&self) -> Arc<State> {
        self.current.load_full()
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

    pub(crate) fn append(&self, lessons: &[Arc<Lesson>]) -> Result<(), WriteError> {
        let mut source = self.source();
        let appended = source.append(lessons);
        self.publish(&mut source);
        appended
    }

    pub(crate) fn clear(&self) {
        let mut source = self.source();
        source.forget_counts();
        let seq = self.current.load().seq + 1;
        self.current.store(Arc::new(State { seq, ..State::default() }));
    }

    fn publish(&self, source: &mut Source) -> Refresh {
        let (pending, summary) = source.take_pending();
        if !pending.is_changed {
            return Refresh::Unchanged;
        }
        let refresh = if pending.fresh {
            Refresh::Reloaded
        } else {
            Refresh::Appended { records: pending.lessons.len() }
        };
        let next = self.current.load().with(pending.lessons, pending.fresh, summary);
        self.current.store(Arc::new(next));
        refresh
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
