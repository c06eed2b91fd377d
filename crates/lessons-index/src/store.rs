//! Publishing, and putting what was published in order meanwhile.

mod merge;

use std::sync::Arc;

use crate::draft::MAX_SEGMENT_BYTES;
use crate::segment::Segment;
use crate::state::{Change, State};
use crate::sync::{Mutex, Swap, lock};
use crate::tail::{PAGE, Page};
use merge::Merge;

/// Is the one place that readers look at and the writer changes.
///
/// The writer appends to the last page and marks what it replaces; both are seen by nobody until
/// the next state is stored. Full pages and small segments are put into one segment beside that.
/// What ends meanwhile is noted, and marked in the new segment before it takes its place.
pub(crate) struct Store {
    current: Swap<State>,
    work: Mutex<Work>,
    /// No merge makes a longer segment.
    max_segment_bytes: usize,
}

impl Default for Store {
    fn default() -> Self {
        let (current, work) = Default::default();
        Self { current, work, max_segment_bytes: MAX_SEGMENT_BYTES }
    }
}

/// A segment that is more than so many times as large as what comes to it stays as it is. Of 100,000
/// lessons that come one by one each is copied eight times, of a million eleven times, and there are
/// two or three segments; with half of this it would be five and seven times, and three or four.
const GROWTH: usize = 4;

/// Is held by who merges. If that ends by a panic, the next change begins anew.
struct Turn<'a>(&'a Store);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut work = lock(&self.0.work);
            work.is_merging = false;
            work.ended = Vec::new();
        }
    }
}

/// Is held by who changes the current state, for as long as that takes.
#[derive(Default)]
struct Work {
    /// Changes when all is replaced.
    epoch: u64,
    is_merging: bool,
    /// What ended since the merge began: hash, id, and the first snapshot without it.
    ended: Vec<(u64, Box<str>, u64)>,
    /// How many lessons ended since that was last a reason to look for something to merge.
    deaths: usize,
}

impl Store {
    pub(crate) fn current(&self) -> Arc<State> {
        self.current.load()
    }

    /// Makes a change visible. Returns whether there is something to merge and nobody at it: the
    /// caller then has to see to it that [`merge`](Self::merge) is called.
    pub(crate) fn publish(&self, change: Change) -> bool {
        let mut work = lock(&self.work);
        let is_fresh = change.fresh.is_some();
        let is_merging = work.is_merging && !is_fresh;
        let mut deaths = work.deaths;
        let ended = &mut work.ended;
        let mut note = |hash: u64, id: &str, seq: u64| {
            deaths += 1;
            if is_merging {
                ended.push((hash, id.into(), seq));
            }
        };
        let now = self.current.load();
        let next = now.with(change, &mut note);
        work.epoch += u64::from(is_fresh);
        let is_changed = !Arc::ptr_eq(&now.segments, &next.segments) || deaths >= PAGE;
        work.deaths = deaths % PAGE;
        let is_due = !work.is_merging && self.is_due(&next, is_changed, work.epoch);
        work.is_merging |= is_due;
        self.current.store(Arc::new(next));
        is_due
    }

    /// Empties the index.
    pub(crate) fn clear(&self, change: Change) {
        self.publish(Change { fresh: Some(Vec::new()), ..change });
    }

    /// Merges until there is nothing to merge.
    pub(crate) fn merge(&self) {
        let _turn = Turn(self);
        loop {
            let merge = {
                let mut work = lock(&self.work);
                work.ended.clear();
                let Some(merge) = self.plan(&self.current.load(), work.epoch) else {
                    work.is_merging = false;
                    return;
                };
                merge
            };
            let segments = merge.build(self.max_segment_bytes);
            self.replace(&merge, segments);
        }
    }

    /// Returns whether building the text indexes takes a while.
    pub(crate) fn is_large(&self) -> bool {
        const LARGE: usize = 20_000;
        self.current().alive >= LARGE
    }

    /// Builds what queries for text need, before they come.
    pub(crate) fn warm(&self) {
        for segment in self.current().segments.iter() {
            segment.warm();
        }
    }

    fn replace(&self, merge: &Merge, merged: Vec<Segment>) {
        let work = lock(&self.work);
        if work.epoch != merge.epoch {
            return;
        }
        for (hash, id, seq) in &work.ended {
            merged.iter().find_map(|segment| segment.end(*hash, id, *seq));
        }
        let now = self.current.load();
        let is_other = |old: &&Arc<Segment>| !merge.segments.iter().any(|m| Arc::ptr_eq(m, old));
        let mut segments: Vec<_> = now.segments.iter().filter(is_other).cloned().collect();
        segments.extend(merged.into_iter().map(Arc::new));
        segments.sort_by_key(|segment| std::cmp::Reverse(segment.len()));
        let is_other = |old: &&Arc<Page>| !merge.pages.iter().any(|m| Arc::ptr_eq(m, old));
        let pages: Arc<[_]> = now.pages.iter().filter(is_other).cloned().collect();
        let last_len = if pages.is_empty() { 0 } else { now.last_len };
        let summary = now.summary.clone();
        let segments = segments.into();
        self.current.store(Arc::new(State { segments, pages, last_len, summary, ..*now }));
    }

    /// Returns whether there is something to merge. What a plan tells beyond full pages and segments
    /// that are all dead is asked for only if segments came, or many lessons ended.
    fn is_due(&self, next: &State, is_changed: bool, epoch: u64) -> bool {
        let has_full_page = next.pages.len() > 1 || next.last_len == PAGE;
        let is_dead = |segment: &Arc<Segment>| segment.dead_count() == segment.len();
        has_full_page
            || next.segments.iter().any(is_dead)
            || (is_changed && self.plan(next, epoch).is_some())
    }

    /// Returns what is to be merged: pages that are full, and the segments that are not more than
    /// [`GROWTH`] times as large as what they are merged with, so that a lesson is copied O(log n)
    /// times and there are O(log n) segments, however large the changes are that come in.
    fn plan(&self, state: &State, epoch: u64) -> Option<Merge> {
        let is_full = |(_, len): &(&Page, usize)| *len == PAGE;
        let full = state.pages_with_len().take_while(is_full).count();
        let pages = state.pages[..full].to_vec();
        let mut by_size: Vec<&Arc<Segment>> = state.segments.iter().collect();
        let alive = |segment: &Segment| (segment.len() - segment.dead_count()) as usize;
        by_size.sort_by_key(|segment| alive(segment));
        let mut lessons = full * PAGE;
        let mut bytes: usize = pages.iter().map(|page| page.raw_bytes()).sum();
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for segment in by_size {
            let is_first = full == 0 && segments.is_empty();
            if !is_first && alive(segment) > GROWTH * lessons {
                break;
            }
            // Of a segment whose lessons are all dead nothing is copied.
            let copied = if alive(segment) > 0 { segment.raw_bytes() } else { 0 };
            if bytes.saturating_add(copied) <= self.max_segment_bytes {
                bytes += copied;
                lessons += alive(segment);
                segments.push(Arc::clone(segment));
            }
        }
        // One segment alone would be copied for nothing, unless all of it is dead.
        let is_alone = segments.is_empty() || (segments.len() == 1 && lessons > 0);
        if full == 0 && is_alone {
            return None;
        }
        let is_warm = state.segments.iter().any(|segment| segment.is_warm());
        Some(Merge { epoch, seq: state.seq, pages, segments, is_warm })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprint;
    use crate::lesson::Lesson;

    /// Publishes lessons with these numbers as ids, and merges what is due then.
    fn publish(store: &Store, ids: std::ops::Range<usize>, end: &str) {
        let line = |n| format!("{{\"id\":\"{n}\"{end}}}");
        let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).expect("it is a line"));
        let lessons = ids.map(lesson).collect();
        if store.publish(Change { lessons, ..Change::default() }) {
            store.merge();
        }
    }

    /// Full pages may have any number of bytes: 512 lessons of 16 MiB are over what one segment
    /// can count.
    #[test]
    fn a_merge_makes_no_longer_segment_than_it_may() {
        const MAX: usize = 64 << 10;
        let store = Store { max_segment_bytes: MAX, ..Store::default() };
        let lesson = |n: usize, text: &str| {
            let line = format!("{{\"id\":\"{n}\",\"failure_msg\":\"{text}\"}}");
            Arc::new(Lesson::parse_line(&line).unwrap())
        };
        let publish = |lessons| {
            if store.publish(Change { lessons, ..Change::default() }) {
                store.merge();
            }
        };
        let long = "x".repeat(500);
        for page in 0..4 {
            publish((0..PAGE).map(|n| lesson(page * PAGE + n, &long)).collect());
        }
        // Replaces every other one.
        publish((0..2 * PAGE).map(|n| lesson(2 * n, "new")).collect());
        // A line that is over the cap by itself gets a segment of its own.
        publish((0..PAGE).map(|n| lesson(5 * PAGE + n, &"y".repeat(MAX / PAGE))).collect());
        publish(vec![lesson(9 * PAGE, &"z".repeat(2 * MAX))]);
        publish((0..PAGE).map(|n| lesson(10 * PAGE + n, "last")).collect());

        let state = store.current();
        assert!(state.pages.len() <= 1, "all full pages are merged");
        assert_eq!(state.alive, 6 * PAGE + 1);
        let is_long = |segment: &&Arc<Segment>| segment.raw_bytes() > MAX;
        let over: Vec<u32> = state.segments.iter().filter(is_long).map(|s| s.len()).collect();
        assert_eq!(over, [1]);
        for n in 0..4 * PAGE {
            let found = state.find(&n.to_string()).unwrap();
            assert_eq!(found.failure_msg().len(), if n % 2 == 0 { 3 } else { 500 }, "{n}");
        }
        let query = crate::query::Query::new(&state);
        assert_eq!(query.iter().count(), state.alive);
        assert_eq!(query.contains("Z").unwrap().count(), 1);
    }

    /// It was sorted first for its few lessons and was too long for its many bytes, so that no other
    /// was merged.
    #[test]
    fn a_dead_segment_that_is_long_stops_no_merge() {
        const MAX: usize = 64 << 10;
        let store = Store { max_segment_bytes: MAX, ..Store::default() };
        let publish = |round: usize, text: &str| {
            let line = |n| format!("{{\"id\":\"{n}\",\"failure_msg\":\"{text}\"}}");
            let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).unwrap());
            let lessons = (round * PAGE..(round + 1) * PAGE).map(lesson).collect();
            if store.publish(Change { lessons, ..Change::default() }) {
                store.merge();
            }
        };
        publish(0, &"x".repeat(MAX / PAGE));
        publish(0, "");
        (1..4).for_each(|round| publish(round, ""));
        let state = store.current();
        assert!(state.segments.iter().all(|segment| segment.dead_count() == 0));
        assert_eq!((state.alive, state.segments.len()), (4 * PAGE, 1));
    }

    /// A fingerprint of another lesson would have failures counted for that one, in the file. And they
    /// were made anew for an index that nobody asks for texts.
    #[test]
    fn fingerprints_go_along_with_their_lessons() {
        for is_warm in [false, true] {
            let store = Store::default();
            let publish = |ids: std::ops::Range<usize>, text: &str| {
                let message = |n: usize| format!("error {text}{} in E{n:04}", "x".repeat(n % 7));
                let line = |n| format!("{{\"id\":\"{n}\",\"failure_msg\":\"{}\"}}", message(n));
                let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).unwrap());
                let lessons = ids.map(lesson).collect();
                store.publish(Change { lessons, ..Change::default() })
            };
            assert!(!publish(0..6 * PAGE, "first"));
            let first = Arc::clone(&store.current().segments[0]);
            first.failures();
            if is_warm {
                first.warm();
            }
            assert!(publish(5 * PAGE / 2..7 * PAGE / 2, "second"));
            assert!(!publish(8 * PAGE..9 * PAGE, "third"));
            store.merge();
            let state = store.current();
            assert_eq!((state.segments.len(), state.pages.len(), state.alive), (1, 0, 7 * PAGE));
            let merged = &state.segments[0];
            assert!(merged.failures.get().is_some());
            for doc in 0..merged.len() {
                let wanted = Fingerprint::of_record(&merged.record(doc));
                assert_eq!(merged.failures().kind(doc), Some(wanted));
                let found = state.find_kind(wanted, |id| id == merged.id(doc));
                assert_eq!(found.map(|lesson| lesson.id()), Some(merged.id(doc)));
            }
        }
    }

    /// It took the next larger one with it, which was copied for nothing.
    #[test]
    fn a_dead_segment_goes_alone() {
        let store = Store::default();
        let publish = |ids, end| publish(&store, ids, end);
        publish(0..10 * PAGE, "");
        publish(10 * PAGE..11 * PAGE, "");
        let before = store.current();
        assert_eq!((before.segments.len(), before.pages.len()), (2, 0));
        publish(10 * PAGE..11 * PAGE, ",\"deleted_at\":\"now\"");
        let state = store.current();
        assert_eq!((state.segments.len(), state.alive), (1, 10 * PAGE));
        assert!(Arc::ptr_eq(&state.segments[0], &before.segments[0]), "it is where it was");
    }

    /// Removing fills no page, and a segment that shrank stayed apart with its dead lessons.
    #[test]
    fn a_segment_that_shrinks_is_merged() {
        let store = Store::default();
        let publish = |ids, end| publish(&store, ids, end);
        publish(0..20 * PAGE, "");
        publish(20 * PAGE..24 * PAGE, "");
        assert_eq!(store.current().segments.len(), 2);
        for n in 0..5 * PAGE {
            publish(n..n + 1, ",\"deleted_at\":\"now\"");
        }
        let state = store.current();
        assert_eq!((state.segments.len(), state.alive), (1, 19 * PAGE));
        assert!(state.segments[0].dead_count() as usize <= PAGE);
    }

    /// No merge was ever due again, and what ended was noted for it without end.
    #[test]
    fn a_merge_that_panics_is_not_the_last() {
        let store = Store::default();
        let publish = |from: usize| {
            let line = |n| format!("{{\"id\":\"{n}\"}}");
            let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).unwrap());
            let lessons = (from..from + PAGE).map(lesson).collect();
            store.publish(Change { lessons, ..Change::default() })
        };
        assert!(publish(0));
        // Whoever sees to it notes what ends meanwhile.
        assert!(!publish(0));
        assert!(!lock(&store.work).ended.is_empty());
        let merge = std::panic::AssertUnwindSafe(|| {
            let _turn = Turn(&store);
            std::panic::resume_unwind(Box::new("out of luck"));
        });
        std::panic::catch_unwind(merge).unwrap_err();
        assert!(lock(&store.work).ended.is_empty());
        assert!(publish(PAGE));
        store.merge();
        let state = store.current();
        assert_eq!((state.pages.len(), state.alive), (0, 2 * PAGE));
    }

    /// A change of that many lessons is a segment at once, and leaves no full page behind.
    #[test]
    fn large_changes_leave_few_segments() {
        let store = Store::default();
        let lessons = |from: usize, text: &str| {
            let line = |n| format!("{{\"id\":\"{n}\",\"failure_msg\":\"{text}\"}}");
            let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).unwrap());
            (from..from + 4 * PAGE).map(lesson).collect()
        };
        for round in 0..24 {
            // Every third is the one before again.
            let lessons = lessons((round - round % 3 / 2) * 4 * PAGE, &format!("round {round}"));
            if store.publish(Change { lessons, ..Change::default() }) {
                store.merge();
            }
        }
        let state = store.current();
        assert_eq!(state.alive, 16 * 4 * PAGE);
        assert!(state.segments.len() <= 5, "{} segments", state.segments.len());
        let dead: u32 = state.segments.iter().map(|segment| segment.dead_count()).sum();
        assert!((dead as usize) < state.alive, "{dead} dead lessons stay");
        let query = crate::query::Query::new(&state);
        assert_eq!(query.iter().count(), state.alive);
        assert_eq!(query.contains("round 23").unwrap().count(), 4 * PAGE);
    }
}

/// Every order of events that matters: a writer that replaces and removes, a thread that merges,
/// and readers that hold snapshots meanwhile.
///
/// `RUSTFLAGS="--cfg shuttle" cargo test -p lessons-index --lib shuttle`
#[cfg(all(test, shuttle))]
mod shuttle_model {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lesson::Lesson;
    use shuttle::thread;

    type Model = BTreeMap<String, u64>;

    const IDS: u64 = 3;
    const CHANGES: u64 = 8;

    /// What the snapshot with this number holds: each change is a pair of lessons, of which every
    /// fourth removes one.
    fn model(seq: u64) -> Model {
        let mut model = Model::new();
        for change in 1..=seq {
            for lesson in change_of(change) {
                if lesson.is_tombstone() {
                    model.remove(&lesson.id);
                } else {
                    model.insert(lesson.id.clone(), lesson.times_seen);
                }
            }
        }
        model
    }

    fn change_of(change: u64) -> Vec<Arc<Lesson>> {
        let id = change % IDS;
        let other = if change.is_multiple_of(4) {
            format!("{{\"id\":\"{}\",\"deleted_at\":\"now\"}}", (id + 1) % IDS)
        } else {
            format!("{{\"id\":\"new-{change}\",\"times_seen\":{change}}}")
        };
        let lines = [format!("{{\"id\":\"{id}\",\"times_seen\":{change}}}"), other];
        lines.iter().map(|line| Arc::new(Lesson::parse_line(line).expect("a lesson"))).collect()
    }

    fn assert_holds(state: &State, wanted: &Model) {
        assert_eq!(state.alive, wanted.len());
        for (id, times) in wanted {
            let found = state.find(id).unwrap_or_else(|| panic!("{id} at {}", state.seq));
            assert_eq!(found.times_seen(), *times, "{id} at {}", state.seq);
        }
        let gone = (0..IDS).map(|id| id.to_string()).filter(|id| !wanted.contains_key(id));
        gone.for_each(|id| assert!(state.find(&id).is_none(), "{id} at {}", state.seq));
        let query = crate::query::Query::new(state);
        let listed: Model =
            query.iter().map(|lesson| (lesson.id().to_owned(), lesson.times_seen())).collect();
        assert_eq!(&listed, wanted);
        assert_eq!(query.seen_at_least(1).count(), wanted.len());
    }

    fn run() {
        let store = Arc::new(Store::default());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    let mut held = vec![store.current()];
                    while held.last().is_some_and(|last| last.seq < CHANGES) {
                        // What was replaced, removed and merged meanwhile makes no difference.
                        for state in &held {
                            assert_holds(state, &model(state.seq));
                        }
                        let next = store.current();
                        assert!(held.iter().all(|state| state.seq <= next.seq));
                        if held.iter().all(|state| state.seq < next.seq) {
                            held.push(next);
                        }
                        thread::yield_now();
                    }
                    for state in &held {
                        assert_holds(state, &model(state.seq));
                    }
                })
            })
            .collect();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let mut mergers = Vec::new();
                for change in 1..=CHANGES {
                    let lessons = change_of(change);
                    if store.publish(Change { lessons, ..Change::default() }) {
                        let store = Arc::clone(&store);
                        mergers.push(thread::spawn(move || store.merge()));
                    }
                }
                for merger in mergers {
                    merger.join().expect("it does not panic");
                }
            })
        };
        writer.join().expect("it does not panic");
        for reader in readers {
            reader.join().expect("it does not panic");
        }
        let last = store.current();
        assert_eq!(last.seq, CHANGES);
        assert_holds(&last, &model(CHANGES));
        assert!(last.pages.len() <= 1, "full pages are merged");
    }

    /// All is replaced while a merge may be at work: what it made must not come back.
    fn replace() {
        let store = Arc::new(Store::default());
        let mut mergers = Vec::new();
        for change in 1..=4 {
            if change == 3 {
                store.clear(Change::default());
            }
            let lessons = change_of(change);
            if store.publish(Change { lessons, ..Change::default() }) {
                let store = Arc::clone(&store);
                mergers.push(thread::spawn(move || store.merge()));
            }
        }
        for merger in mergers {
            merger.join().expect("it does not panic");
        }
        let mut wanted = Model::new();
        for lesson in [change_of(3), change_of(4)].concat() {
            if lesson.is_tombstone() {
                wanted.remove(&lesson.id);
            } else {
                wanted.insert(lesson.id.clone(), lesson.times_seen);
            }
        }
        assert_holds(&store.current(), &wanted);
    }

    #[test]
    fn shuttle_a_merge_brings_nothing_back_that_was_replaced() {
        shuttle::check_random(replace, 1_000);
    }

    #[test]
    fn shuttle_snapshots_show_one_version_whatever_is_merged() {
        shuttle::check_random(run, 1_000);
    }

    #[test]
    fn shuttle_snapshots_show_one_version_under_rare_orders() {
        shuttle::check_pct(run, 1_000, 4);
    }
}
