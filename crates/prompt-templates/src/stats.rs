use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Threads count in one of so many shards.
const SHARDS: usize = 8;

/// The clock is read for one render in so many of a shard; the first is among them.
const SAMPLE: u64 = 64;

/// Counts of one name, or of a whole store. Counting shares no cache line between few threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    /// Where everything is counted once more.
    total: Option<Arc<Self>>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    renders: AtomicU64,
    failures: AtomicU64,
    hits: AtomicU64,
    timed: AtomicU64,
    timed_nanos: AtomicU64,
}

/// A render that is being counted.
pub(crate) struct Running<'c> {
    shards: [Option<&'c Shard>; 2],
    start: Option<Instant>,
}

impl Counters {
    /// Returns counters that count into `total` as well.
    pub(crate) fn part_of(total: &Arc<Self>) -> Self {
        Self { shards: Default::default(), total: Some(Arc::clone(total)) }
    }

    fn here(&self) -> [Option<&Shard>; 2] {
        thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let shard = SHARD.with(|shard| {
            if shard.get() == usize::MAX {
                shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            shard.get()
        });
        [Some(&self.shards[shard]), self.total.as_ref().map(|total| &total.shards[shard])]
    }

    /// Counts a compile that found its text compiled.
    pub(crate) fn hit(&self) {
        for shard in self.here().into_iter().flatten() {
            shard.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a render that begins.
    pub(crate) fn render(&self) -> Running<'_> {
        let shards = self.here();
        let count = |shard: &Shard| shard.renders.fetch_add(1, Ordering::Relaxed);
        let [own, _] = shards.map(|shard| shard.map(count));
        let is_sampled = own.is_some_and(|before| before.is_multiple_of(SAMPLE));
        Running { shards, start: is_sampled.then(Instant::now) }
    }

    fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn renders(&self) -> u64 {
        self.sum(|shard| &shard.renders)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.sum(|shard| &shard.failures)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.sum(|shard| &shard.hits)
    }

    pub(crate) fn avg_render(&self) -> Option<Duration> {
        let nanos = self.sum(|shard| &shard.timed_nanos);
        nanos.checked_div(self.sum(|shard| &shard.timed)).map(Duration::from_nanos)
    }
}

impl Running<'_> {
    /// Counts the end of the render.
    pub(crate) fn end(self, is_ok: bool) {
        let nanos =
            self.start.map(|start| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        for shard in self.shards.into_iter().flatten() {
            if !is_ok {
                shard.failures.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(nanos) = nanos {
                shard.timed.fetch_add(1, Ordering::Relaxed);
                shard.timed_nanos.fetch_add(nanos, Ordering::Relaxed);
            }
        }
    }
}

/// The figures of one template. Counts are exact and go on over new texts of the name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TemplateStats {
    /// The name.
    pub name: String,
    /// The version of the text; see [`Prompt::version`](crate::Prompt::version).
    pub version: u64,
    /// How long this text took to compile.
    pub compile_time: Duration,
    /// When this text was compiled.
    pub compiled_at: SystemTime,
    /// Renders begun, failed ones included.
    pub renders: u64,
    /// Renders that failed.
    pub render_failures: u64,
    /// Compiles that found the text compiled already.
    pub hits: u64,
    /// Average time of a render, from a sample of one in 64; `None` before the first.
    pub avg_render: Option<Duration>,
}

/// The figures of a store. Counts are exact and include templates that are gone.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Templates in the store, those of the folder included.
    pub templates: usize,
    /// Templates that were compiled by call.
    pub called: usize,
    /// The most that `called` can be, those not counted that others include.
    pub capacity: usize,
    /// Texts compiled.
    pub compiles: u64,
    /// Texts that did not compile, or did not fit what they include.
    pub compile_failures: u64,
    /// Compiles that found the text compiled already.
    pub hits: u64,
    /// Renders begun, failed ones included.
    pub renders: u64,
    /// Renders that failed.
    pub render_failures: u64,
    /// Average time of a render, from a sample of one in 64; `None` before the first.
    pub avg_render: Option<Duration>,
    /// Templates given up for others.
    pub evictions: u64,
    /// Sets published: one for all changes that came together.
    pub publications: u64,
    /// Loads of the folder that succeeded.
    pub reloads: u64,
    /// Loads of the folder that failed, and left everything as it was.
    pub reload_failures: u64,
}

impl Stats {
    /// Returns how much of the capacity is used, from 0 to 1.
    pub fn usage_ratio(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "nobody holds 2^52 templates")]
        let ratio = self.called as f64 / self.capacity.max(1) as f64;
        ratio
    }
}

/// The counters of a store that only changes touch.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) compiles: AtomicU64,
    pub(crate) compile_failures: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) publications: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) reload_failures: AtomicU64,
}

/// Adds to a counter of [`Events`].
pub(crate) fn count(counter: &AtomicU64, events: usize) {
    counter.fetch_add(events as u64, Ordering::Relaxed);
}
