//! Ranking: the exact best lessons for a text, without scoring all of them.

use std::borrow::Cow;
use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::bits::ones;
use crate::fold;
use crate::lesson::Lesson;
use crate::planes::{Planes, Sums};
use crate::recall::{Why, better};
use crate::segment::Segment;
use crate::select::Selection;
use crate::stamp;
use crate::state::State;
use crate::tail::Slot;
use crate::terms::{MAX_LEN, Terms, for_each_word, part_words, ranked_text};
use crate::view::LessonRef;
use crate::walk::Walk;

/// The constants of BM25.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Words of a text that count, the rarest first.
const MAX_WORDS: usize = 64;

/// Planes that are filled together, so that each row of bits is read in longer pieces.
const TOGETHER: usize = 8;

/// Lessons that are scored before all others, for a first idea of what is good.
const SEED: usize = 512;

const FREQUENCY: f64 = 0.1;
const RECENCY: f64 = 0.2;
const VOTES: f64 = 0.3;

/// Is a lesson with its score.
#[derive(Clone, Copy)]
pub(crate) struct Ranked<'s> {
    pub(crate) lesson: LessonRef<'s>,
    pub(crate) score: f64,
    text: f64,
    boosts: Boosts,
    /// Bits of the words that it has.
    words: u64,
}

#[derive(Clone, Copy)]
struct Boosts {
    frequency: f64,
    recency: f64,
    votes: f64,
}

impl Boosts {
    /// Returns what the text is multiplied by.
    fn factor(self) -> f64 {
        1.0 + self.frequency + self.recency + self.votes
    }
}

struct Word {
    hash: u64,
    text: String,
    count: u64,
    weight: f64,
}

/// Is a text to rank by, with what its words are worth in a state.
pub(crate) struct Ranking<'s> {
    state: &'s State,
    words: Vec<Word>,
    /// What a lesson's number of words makes of its sum.
    norms: Vec<f64>,
    half_life: f64,
    now: (i64, i32),
}

impl<'s> Ranking<'s> {
    pub(crate) fn new(
        state: &'s State,
        text: &str,
        half_life: SignedDuration,
        now: Timestamp,
    ) -> Self {
        let mut words: Vec<Word> = Vec::new();
        let mut seen = HashSet::new();
        let mut text = fold::fold(text);
        part_words(&mut text);
        for_each_word(&text, |hash, word| {
            if seen.insert(hash) {
                let text = String::from_utf8_lossy(word).into_owned();
                words.push(Word { hash, text, count: 0, weight: 0.0 });
            }
        });
        let (mut lessons, mut len) = (0_u64, 0_u64);
        for segment in state.segments.iter() {
            let terms = segment.terms();
            if segment.is_whole() {
                for word in &mut words {
                    word.count += u64::from(terms.count(word.hash));
                }
                lessons += u64::from(segment.len());
                len += terms.total_len();
            } else {
                let visible = segment.visible(state.seq);
                for word in &mut words {
                    let bits = terms.bits(word.hash);
                    word.count += bits.map_or(0, |bits| common(&bits, &visible));
                }
                lessons += visible.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
                let gone = visible.iter().enumerate().flat_map(|(at, word)| ones(!word, at));
                let gone = gone.filter_map(|doc| terms.lens().get(doc as usize));
                len += terms.total_len() - gone.map(|len| u64::from(*len)).sum::<u64>();
            }
        }
        for slot in state.slots() {
            let own = slot.words();
            for word in &mut words {
                word.count += u64::from(own.has(word.hash));
            }
            lessons += 1;
            len += u64::from(own.len());
        }
        words.retain(|word| word.count > 0);
        // The rarest first; equals stay in the order of the text.
        words.sort_by_key(|word| word.count);
        words.truncate(MAX_WORDS);
        for word in &mut words {
            let (all, with) = (number(lessons), number(word.count));
            word.weight = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        }
        let mean = (number(len) / number(lessons.max(1))).max(1.0);
        let norm = |len| (K1 + 1.0) / (1.0 + K1 * (1.0 - B + B * f64::from(len) / mean));
        let norms = (0..=MAX_LEN).map(norm).collect();
        let half_life = half_life.as_secs_f64();
        Self { state, words, norms, half_life, now: stamp::parts(Some(now)) }
    }

    /// Returns the best lessons, best first.
    pub(crate) fn best(&self, count: usize, among: Option<&Selection<'s>>) -> Vec<Ranked<'s>> {
        let mut best = Best { ranked: Vec::new(), count, floor: 0.0 };
        if self.words.is_empty() {
            return best.ranked;
        }
        let slots: Box<dyn Iterator<Item = LessonRef<'s>>> = match among {
            Some(selection) => Box::new(selection.slots()),
            None => Box::new(self.state.slots().map(LessonRef::slot)),
        };
        for lesson in slots {
            let slot = lesson.as_slot().expect("pages have slots");
            best.offer(self.score_slot(slot));
        }
        for segment in self.state.segments.iter() {
            self.search(segment, among, &mut best);
        }
        best.finish()
    }

    pub(crate) fn explain(&self, found: &Ranked<'_>) -> Why {
        let norm = if found.words == 0 { 1.0 } else { found.text / self.sum(found.words) };
        let mut terms: Vec<(String, f64)> = (self.words.iter().enumerate())
            .filter(|(at, _)| found.words >> at & 1 == 1)
            .map(|(_, word)| (word.text.clone(), word.weight * norm))
            .collect();
        terms.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let Boosts { frequency, recency, votes } = found.boosts;
        Why { text: found.text, frequency, recency, votes, terms }
    }

    fn search(&self, segment: &'s Segment, among: Option<&Selection<'s>>, best: &mut Best<'s>) {
        let terms = segment.terms();
        let allowed = match among {
            Some(selection) => Some(selected(segment, selection)),
            None if segment.is_whole() => None,
            None => Some(segment.visible(self.state.seq)),
        };
        // Each word with its bits and its place among the words.
        let rows: Vec<Row<'_>> = (self.words.iter().enumerate())
            .filter_map(|(at, word)| Some((at, word.weight, terms.bits(word.hash)?)))
            .collect();
        if rows.is_empty() {
            return;
        }
        let search =
            Search { ranking: self, segment, terms, rows: &rows, allowed: allowed.as_deref() };
        search.seed(best);
        search.run(best);
    }

    fn score_slot(&self, slot: &'s Slot) -> Ranked<'s> {
        let own = slot.words();
        let has = |(at, word): (usize, &Word)| u64::from(own.has(word.hash)) << at;
        let words = self.words.iter().enumerate().map(has).sum();
        self.score(LessonRef::slot(slot), words, own.len())
    }

    fn score(&self, lesson: LessonRef<'s>, words: u64, len: u8) -> Ranked<'s> {
        let text = self.sum(words) * self.norms[usize::from(len)];
        let boosts = self.boosts(&lesson);
        let score = text * boosts.factor();
        Ranked { lesson, score, text, boosts, words }
    }

    fn sum(&self, words: u64) -> f64 {
        let has = |at: usize| words >> at & 1 == 1;
        self.words.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, word)| word.weight).sum()
    }

    fn boosts(&self, lesson: &LessonRef<'_>) -> Boosts {
        let times = number(lesson.times_seen());
        let votes = lesson.votes();
        let (helpful, harmful) = (number(votes.helpful), number(votes.harmful));
        Boosts {
            frequency: FREQUENCY * times / (times + 10.0),
            recency: RECENCY * self.recency(lesson.time_parts()),
            votes: VOTES * (helpful - harmful) / (helpful + harmful + 2.0),
        }
    }

    /// Returns 1 for now and later, half of it for each half-life before, 0 for never.
    fn recency(&self, (seconds, nanos): (i64, i32)) -> f64 {
        if (seconds, nanos) == stamp::parts(None) || self.half_life <= 0.0 {
            return 0.0;
        }
        let nanos = f64::from(self.now.1) - f64::from(nanos);
        let age = signed(self.now.0.saturating_sub(seconds)) + nanos / 1e9;
        (-age.max(0.0) / self.half_life).exp2()
    }
}

type Row<'a> = (usize, f64, Cow<'a, [u64]>);

/// Looks for the best lessons of one segment.
///
/// The weights of the words, rounded up to whole numbers, are added for 512 lessons at a time, bit
/// by bit. Only a lesson whose sum could beat the worst of the best so far is looked at, and only
/// one that still could with its own length is scored. So the result is that of scoring all.
struct Search<'a, 's> {
    ranking: &'a Ranking<'s>,
    segment: &'s Segment,
    terms: &'s Terms,
    rows: &'a [Row<'a>],
    allowed: Option<&'a [u64]>,
}

impl<'s> Search<'_, 's> {
    /// Scores some lessons with the rarest words, so that most others can be passed.
    fn seed(&self, best: &mut Best<'s>) {
        let mut sample = Best { ranked: Vec::new(), count: best.count, floor: best.floor };
        let mut seen = HashSet::new();
        for (_, _, bits) in self.rows {
            for (at, word) in bits.iter().enumerate() {
                for doc in ones(word & self.allowed_at(at), at) {
                    if seen.insert(doc) {
                        sample.offer(self.score(doc));
                    }
                }
                if seen.len() >= SEED {
                    break;
                }
            }
        }
        sample.cut();
        best.floor = sample.floor;
    }

    fn run(&self, best: &mut Best<'s>) {
        let distinct = self.distinct_rows();
        let weights: Vec<f64> = distinct.iter().map(|(weight, _)| *weight).collect();
        let (unit, weights) = whole_weights(&weights);
        let longest_norm = self.ranking.norms[usize::from(self.terms.shortest_len())];
        let votes = if self.segment.votes.is_empty() { 0.0 } else { VOTES };
        let width = self.rows[0].2.len();
        for first in (0..width).step_by(Planes::WORDS * TOGETHER) {
            let mut planes: [Planes; TOGETHER] = Default::default();
            let starts = (first..width).step_by(Planes::WORDS);
            for ((_, bits), weight) in distinct.iter().zip(&weights) {
                for (planes, start) in planes.iter_mut().zip(starts.clone()) {
                    planes.add(&bits[start..(start + Planes::WORDS).min(width)], *weight);
                }
            }
            for (planes, start) in planes.into_iter().zip(starts) {
                // The lessons behind are older.
                let newest = narrow(start * 64);
                let recency = RECENCY * self.ranking.recency(self.segment.time_parts(newest));
                let boost = 1.0 + FREQUENCY + recency + votes;
                self.offer(best, &planes.sums(), start, unit, boost, longest_norm);
            }
        }
    }

    /// Returns the rows with their weights, those that are the same as one: the words of one template
    /// are in the same lessons.
    fn distinct_rows(&self) -> Vec<(f64, &[u64])> {
        let mut distinct: Vec<(f64, &[u64])> = Vec::with_capacity(self.rows.len());
        let mut last_count = None;
        for (at, weight, bits) in self.rows {
            let count = Some(self.ranking.words[*at].count);
            match distinct.last_mut() {
                // The words are in order of their counts. Of rare ones comparing costs more than
                // adding.
                Some((sum, last))
                    if count == last_count
                        && matches!(bits, Cow::Borrowed(_))
                        && *last == &**bits =>
                {
                    *sum += weight;
                }
                _ => distinct.push((*weight, bits)),
            }
            last_count = count;
        }
        distinct
    }

    /// Scores the lessons whose sum is enough for the highest boost there is among them.
    fn offer(
        &self,
        best: &mut Best<'s>,
        sums: &Sums,
        first: usize,
        unit: f64,
        boost: f64,
        longest_norm: f64,
    ) {
        let norms = &self.ranking.norms;
        let least = best.floor / (longest_norm * boost * unit);
        let width = self.rows[0].2.len();
        for word in 0..Planes::WORDS.min(width - first) {
            let maybe = sums.at_least(word, least) & self.allowed_at(first + word);
            // Behind the last lesson there are bits that stand for none.
            let docs = ones(maybe, first + word);
            for doc in docs.take_while(|doc| *doc < self.segment.len()) {
                let sum = f64::from(sums.sum(word, doc % 64)) * unit;
                let norm = norms[usize::from(self.terms.lens()[doc as usize])];
                // Its own boost is most often far less than the highest there may be.
                if sum > 0.0
                    && sum * norm * boost >= best.floor
                    && sum * norm * self.boost(doc) >= best.floor
                {
                    best.offer(self.score(doc));
                }
            }
        }
    }

    fn boost(&self, doc: u32) -> f64 {
        self.ranking.boosts(&LessonRef::doc(self.segment, doc)).factor()
    }

    fn score(&self, doc: u32) -> Ranked<'s> {
        let (at, bit) = (doc as usize / 64, doc % 64);
        let has = |(word, _, bits): &Row<'_>| (bits[at] >> bit & 1) << word;
        let words = self.rows.iter().map(has).sum();
        let len = self.terms.lens()[doc as usize];
        self.ranking.score(LessonRef::doc(self.segment, doc), words, len)
    }

    fn allowed_at(&self, word: usize) -> u64 {
        self.allowed.map_or(u64::MAX, |allowed| allowed[word])
    }
}

/// Keeps the best.
struct Best<'s> {
    /// Up to twice as many as are wanted, in no order.
    ranked: Vec<Ranked<'s>>,
    count: usize,
    /// So many are known to have this score or more.
    floor: f64,
}

impl<'s> Best<'s> {
    fn offer(&mut self, ranked: Ranked<'s>) {
        if ranked.words == 0 || ranked.score < self.floor {
            return;
        }
        self.ranked.push(ranked);
        if self.ranked.len() >= self.count.saturating_mul(2).max(16) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.ranked.len() > self.count {
            self.ranked.select_nth_unstable_by(self.count, better);
            self.ranked.truncate(self.count);
        }
        if self.ranked.len() == self.count {
            let worst = self.ranked.iter().map(|ranked| ranked.score).min_by(f64::total_cmp);
            self.floor = self.floor.max(worst.unwrap_or(0.0));
        }
    }

    fn finish(mut self) -> Vec<Ranked<'s>> {
        self.cut();
        self.ranked.sort_unstable_by(better);
        self.ranked
    }
}

/// Returns whole numbers that are not below the weights in some unit, and that unit. Together they
/// fit in the planes.
fn whole_weights(weights: &[f64]) -> (f64, Vec<u32>) {
    let room = f64::from(Planes::MAX) - signed(weights.len().try_into().unwrap_or(i64::MAX));
    let unit = weights.iter().sum::<f64>() / room;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "weights are positive, and so many units fit in the planes"
    )]
    let whole = weights.iter().map(|weight| (weight / unit).ceil() as u32).collect();
    // A little more, so that rounding never makes a sum too small.
    (unit * (1.0 + 1e-9), whole)
}

fn selected<'s>(segment: &'s Segment, selection: &Selection<'s>) -> Vec<u64> {
    let range = selection.time_range(segment);
    bitmap(segment, Walk::new(selection, segment, range))
}

fn bitmap(segment: &Segment, docs: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut bits = vec![0; (segment.len() as usize).div_ceil(64)];
    for doc in docs {
        bits[doc as usize / 64] |= 1 << (doc % 64);
    }
    bits
}

fn common(a: &[u64], b: &[u64]) -> u64 {
    a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum()
}

fn narrow(number: usize) -> u32 {
    crate::draft::narrow(number)
}

#[expect(clippy::cast_precision_loss, reason = "counts are estimates of worth here")]
fn number(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "seconds beyond 2^53 are out of every range")]
fn signed(number: i64) -> f64 {
    number as f64
}

/// Holds the words of a lesson that is in no segment yet.
#[derive(Debug)]
pub(crate) struct Words {
    /// In order.
    hashes: Box<[u64]>,
}

impl Words {
    pub(crate) fn of(lesson: &Lesson) -> Self {
        let mut text = Vec::new();
        ranked_text(&[&lesson.failure_msg, &lesson.resolution, &lesson.pattern], &mut text);
        let mut hashes = Vec::new();
        for_each_word(&text, |hash, _| hashes.push(hash));
        hashes.sort_unstable();
        hashes.dedup();
        Self { hashes: hashes.into() }
    }

    fn has(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }

    fn len(&self) -> u8 {
        u8::try_from(self.hashes.len()).unwrap_or(MAX_LEN)
    }
}
