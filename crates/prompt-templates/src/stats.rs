use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Threads count in one of so many shards.
const SHARDS: usize = 8;

/// The clock is read for one render in so many of a shard; the first is among them.
const SAMPLE: u64 = 64;

/// Buckets of a histogram: up to 2^39 nanoseconds, nine minutes.
const BUCKETS: usize = 40;

/// Counts of one name, or of a whole store. Counting shares no cache line between few threads.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    /// Not in shards: it is written when the clock was read, which costs more.
    buckets: [AtomicU64; BUCKETS],
    /// One render in so many is timed.
    sample: u64,
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
    counters: &'c Counters,
    shard: usize,
    start: Option<Instant>,
}

impl Default for Counters {
    fn default() -> Self {
        Self::sampled(SAMPLE)
    }
}

impl Counters {
    fn sampled(sample: u64) -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Self { shards: Default::default(), buckets, sample, total: None }
    }

    /// Returns counters that time every render.
    pub(crate) fn exact() -> Self {
        Self::sampled(1)
    }

    /// Returns counters that count into `total` as well.
    pub(crate) fn part_of(total: &Arc<Self>) -> Self {
        Self { total: Some(Arc::clone(total)), ..Self::sampled(total.sample) }
    }

    /// Returns the shard of this thread.
    fn here() -> usize {
        thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        SHARD.with(|shard| {
            if shard.get() == usize::MAX {
                shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            shard.get()
        })
    }

    fn both(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.total.as_deref())
    }

    /// Counts a compile that found its text compiled.
    pub(crate) fn hit(&self) {
        let shard = Self::here();
        for counters in self.both() {
            counters.shards[shard].hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a render that begins.
    pub(crate) fn render(&self) -> Running<'_> {
        let shard = Self::here();
        let before = self.shards[shard].renders.fetch_add(1, Ordering::Relaxed);
        if let Some(total) = &self.total {
            total.shards[shard].renders.fetch_add(1, Ordering::Relaxed);
        }
        let start = before.is_multiple_of(self.sample).then(Instant::now);
        Running { counters: self, shard, start }
    }

    /// Sets every count to zero. What is counted meanwhile is counted before or after it.
    pub(crate) fn reset(&self) {
        let clear = |counter: &AtomicU64| counter.store(0, Ordering::Relaxed);
        for shard in &self.shards {
            let Shard { renders, failures, hits, timed, timed_nanos } = shard;
            [renders, failures, hits, timed, timed_nanos].into_iter().for_each(clear);
        }
        self.buckets.iter().for_each(clear);
    }

    pub(crate) fn histogram(&self) -> Histogram {
        Histogram(std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed)))
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
        if is_ok && self.start.is_none() {
            return;
        }
        let nanos =
            self.start.map(|start| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        for counters in self.counters.both() {
            let shard = &counters.shards[self.shard];
            if !is_ok {
                shard.failures.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(nanos) = nanos {
                shard.timed.fetch_add(1, Ordering::Relaxed);
                shard.timed_nanos.fetch_add(nanos, Ordering::Relaxed);
                counters.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn bucket(nanos: u64) -> usize {
    (nanos.checked_ilog2().unwrap_or(0) as usize).min(BUCKETS - 1)
}

/// How long renders took: a count for each power of two of nanoseconds.
///
/// It counts the renders that were timed: one in 64, or each with
/// [`Builder::exact_timing`](crate::Builder::exact_timing).
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Returns the number of renders that were timed.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the buckets that hold something: the time below which its renders are, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let limit = |index| Duration::from_nanos(2_u64 << index);
        self.0
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(move |(index, count)| (limit(index), *count))
    }

    /// Returns the time below which a share of the renders are, such as 0.99 of them; at most twice the
    /// true one. `None` before the first.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count, clamped to it"
        )]
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets().find_map(|(limit, count)| {
            seen += count;
            (seen >= wanted).then_some(limit)
        })
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
    /// Average time of a render, from those that were timed; `None` before the first.
    pub avg_render: Option<Duration>,
    /// How long the renders took that were timed.
    pub render_times: Histogram,
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
    /// Average time of a render, from those that were timed; `None` before the first.
    pub avg_render: Option<Duration>,
    /// How long the renders took that were timed.
    pub render_times: Histogram,
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

impl Events {
    pub(crate) fn reset(&self) {
        let Self { compiles, compile_failures, evictions, publications, reloads, reload_failures } =
            self;
        let all = [compiles, compile_failures, evictions, publications, reloads, reload_failures];
        for counter in all {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a counter of [`Events`].
pub(crate) fn count(counter: &AtomicU64, events: usize) {
    counter.fetch_add(events as u64, Ordering::Relaxed);
}
