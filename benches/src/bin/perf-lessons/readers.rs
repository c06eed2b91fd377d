//! Reading beside a writer that never rests.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use benches::lessons::Corpus;
use lessons_index::{Lesson, LessonsIndex};

use crate::clock::{cpu, number, over};
use crate::{Result, options, query, ratio, say, warm};

/// Rounds of each kind; a round is some milliseconds of the reader's processor time.
const ROUNDS: usize = 30;

const PAUSE: u8 = 0;
const WRITE: u8 = 1;
const END: u8 = 2;

/// Compares reading an index that nobody writes to with reading one that is written to all the time,
/// in turns, so that whatever else the machine does slows both.
///
/// What counts is the reader's own time on a processor, and not what the writer and its merges take of
/// the processors: there may be fewer of those than threads. Rounds in which the writer came to less
/// than half of what it usually does are no rounds beside a writer, and are left out.
pub(crate) fn beside_a_writer(path: &Path, lessons: usize) -> Result {
    // A copy, so that nothing of what is written is behind the other index.
    let copy = path.with_extension("written");
    std::fs::copy(path, &copy)?;
    let (quiet, busy) =
        (LessonsIndex::open(path, options())?, LessonsIndex::open(&copy, options())?);
    warm(&quiet)?;
    warm(&busy)?;
    let mut corpus = Corpus::new(1);
    let ids: Vec<String> =
        (0..50_000).map(|_| format!("lesson-{:07}", corpus.below(lessons))).collect();
    let get = |index: &LessonsIndex| {
        let found = ids.iter().filter(|id| index.snapshot().find(id).is_some());
        assert_eq!(found.count(), ids.len());
    };
    let three: Vec<[String; 3]> = (ids.iter().take(2_000))
        .filter_map(|id| {
            let lesson = quiet.snapshot().get(id)?;
            let lesson = &*lesson;
            Some([&lesson.task_type, &lesson.activity_type, &lesson.failure_type].map(Clone::clone))
        })
        .collect();
    let and = |index: &LessonsIndex| {
        for [task, activity, failure] in &three {
            let snapshot = index.snapshot();
            black_box(query(&snapshot, task, activity, failure).iter().count());
        }
    };
    let (order, written) = (AtomicU8::new(PAUSE), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&busy, lessons, &order, &written));
        let shared = Shared {
            quiet: &quiet,
            busy: &busy,
            writer: &writer,
            order: &order,
            written: &written,
        };
        let looked_up = shared.compare("a look-up by id", get);
        let found = shared.compare("three fields, newest 10", and);
        drop(shared);
        let written = writer.join().map_err(|_| "the writer of the measurement panicked")?;
        written.map_err(|error| error.to_string())?;
        ratio("lessons_reading_beside_a_writer", looked_up?);
        ratio("lessons_and_of_three_beside_a_writer", found?);
        Ok(())
    })
}

struct Shared<'a> {
    quiet: &'a LessonsIndex,
    busy: &'a LessonsIndex,
    writer: &'a Writer<'a>,
    order: &'a AtomicU8,
    written: &'a AtomicU64,
}

type Failed = Box<dyn Error + Send + Sync>;
type Writer<'a> = ScopedJoinHandle<'a, std::result::Result<(), Failed>>;

impl Drop for Shared<'_> {
    /// Ends the writer, also where a check of the reader fails: it would be waited for.
    fn drop(&mut self) {
        self.say(END);
    }
}

impl Shared<'_> {
    fn say(&self, order: u8) {
        self.order.store(order, Relaxed);
        self.writer.thread().unpark();
    }

    fn compare(&self, what: &str, read: impl Fn(&LessonsIndex)) -> Result<f64> {
        let (mut alone, mut rested, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            warm_up(|| read(self.quiet));
            alone.push(took(|| read(self.quiet)).0);
            warm_up(|| read(self.busy));
            rested.push(took(|| read(self.busy)).0);
            let before = self.written.load(Relaxed);
            self.say(WRITE);
            // It has to be at work first.
            while self.written.load(Relaxed) < before + 20 {
                if self.writer.is_finished() {
                    return Err("the writer of the measurement has ended".into());
                }
                thread::yield_now();
            }
            warm_up(|| read(self.busy));
            let before = self.written.load(Relaxed);
            let (cpu, wall) = took(|| read(self.busy));
            let written = self.written.load(Relaxed) - before;
            self.say(PAUSE);
            beside.push((cpu, number(written) / wall.as_secs_f64()));
        }
        let usual = median(beside.iter().map(|(_, rate)| *rate).collect());
        let kept = beside.iter().filter(|(_, rate)| *rate >= usual / 2.0);
        let kept: Vec<Duration> = kept.map(|(cpu, _)| *cpu).collect();
        let (rounds, alone, beside) = (kept.len(), median(alone), median(kept));
        let rested = median(rested);
        let segments = format!("{:?}", self.busy.snapshot());
        say(
            &format!("{what}, beside a writer"),
            &format!(
                "{beside:?} in {rounds} rounds, alone {alone:?}, when the writer rests {rested:?}; \
                 {usual:.0} written a second; {segments}"
            ),
        );
        Ok(over(alone, beside))
    }
}

/// Replaces lessons, one after the other, while it may. Those that take their place are of the same
/// kinds as all, so that a reader finds as many of each as before.
fn write(
    index: &LessonsIndex,
    lessons: usize,
    order: &AtomicU8,
    written: &AtomicU64,
) -> std::result::Result<(), Failed> {
    let (mut corpus, mut line) = (Corpus::new(2), String::new());
    loop {
        match order.load(Relaxed) {
            WRITE => {}
            PAUSE => {
                thread::park();
                continue;
            }
            _ => return Ok(()),
        }
        line.clear();
        let number = corpus.below(lessons);
        corpus.line(number, &mut line);
        index.add(Lesson::parse_line(&line)?)?;
        written.fetch_add(1, Relaxed);
    }
}

/// Does it some times, so that the next time finds in the cache what it needs, and not what others have
/// left there.
fn warm_up(work: impl Fn()) {
    (0..3).for_each(|_| work());
}

fn took(work: impl FnOnce()) -> (Duration, Duration) {
    let (wall, start) = (Instant::now(), cpu());
    work();
    (cpu().saturating_sub(start), wall.elapsed())
}

fn median<T: PartialOrd + Copy + Default>(mut all: Vec<T>) -> T {
    all.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    all.get(all.len() / 2).copied().unwrap_or_default()
}
