use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::lesson::Lesson;
use crate::query::Query;
use crate::rank::{Ranked, Ranking};
use crate::select::Selection;
use crate::state::State;

/// Looks for the lessons that say most about a text, and picks as many as there is room for.
///
/// A lesson scores by the words of its message, resolution and pattern that are in the text too
/// (BM25 with each word counted once), times `1 + 0.1 f + 0.2 r + 0.3 v`: `f` grows from 0 to 1
/// with how often it was seen, `r` is 1 for one seen now and halves with each half-life, `v` lies
/// between -1 and 1 and is what feedback says. Lessons that share no word are left out; equal
/// scores come newest first and then by id. Nothing is stored, so that the same question at the
/// same time has the same answer in every process.
///
/// ```
/// use lessons_index::{Lesson, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// index.add(Lesson::builder("a").failure_msg("linker: out of memory").build()?)?;
/// index.add(Lesson::builder("b").failure_msg("unknown host").build()?)?;
///
/// let found = index.snapshot().recall("the linker has no memory left").limit(5).run();
/// assert_eq!(found.len(), 1);
/// assert_eq!(found[0].lesson.id, "a");
/// assert_eq!(found[0].why.terms.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a recall does nothing until it is run"]
pub struct Recall<'s> {
    state: &'s State,
    text: String,
    among: Option<Selection<'s>>,
    limit: usize,
    budget: Option<usize>,
    one_per_pattern: bool,
    half_life: SignedDuration,
    now: Option<Timestamp>,
}

/// Is a lesson that was found, with its score and what that is made of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recalled {
    /// The lesson.
    pub lesson: Arc<Lesson>,
    /// The score: `why.text` times `1 + why.frequency + why.recency + why.votes`.
    pub score: f64,
    /// What the score is made of.
    pub why: Why,
    /// Tokens that the lesson counts for, about a quarter of its bytes.
    pub tokens: usize,
}

/// Says what a score is made of.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Why {
    /// What the words are worth together.
    pub text: f64,
    /// For how often it was seen; 0 to 0.1.
    pub frequency: f64,
    /// For when it was seen last; 0 to 0.2.
    pub recency: f64,
    /// For what was said about it; -0.3 to 0.3.
    pub votes: f64,
    /// The words of the text that are in the lesson, and what each is worth, best first.
    pub terms: Vec<(String, f64)>,
}

impl<'s> Recall<'s> {
    pub(crate) fn new(state: &'s State, text: &str) -> Self {
        Self {
            state,
            text: text.to_owned(),
            among: None,
            limit: 10,
            budget: None,
            one_per_pattern: false,
            half_life: SignedDuration::from_hours(24 * 14),
            now: None,
        }
    }

    /// Looks only among the lessons that a query of the same snapshot selects; its order and limit
    /// do not matter.
    ///
    /// # Panics
    ///
    /// Panics when the query is of another snapshot.
    pub fn among(mut self, query: &Query<'s>) -> Self {
        assert!(
            std::ptr::eq(query.selection().state, self.state),
            "the query is of another snapshot"
        );
        self.among = Some(query.selection().clone());
        self
    }

    /// Asks for so many lessons at most; 10 by default.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Asks for lessons of so many tokens together at most. One that does not fit is passed, and
    /// smaller ones behind it are taken.
    pub fn budget_tokens(mut self, tokens: usize) -> Self {
        self.budget = Some(tokens);
        self
    }

    /// Asks for the best lesson of each pattern only, and of each fingerprint for those that have
    /// no pattern.
    pub fn one_per_pattern(mut self) -> Self {
        self.one_per_pattern = true;
        self
    }

    /// Sets after what time what a lesson gains by being recent is half as much; 14 days by
    /// default. Zero or less takes the gain away.
    pub fn half_life(mut self, time: SignedDuration) -> Self {
        self.half_life = time;
        self
    }

    /// Sets what time it is, for answers that can be repeated.
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Returns the lessons that were picked, best first.
    ///
    /// The first call after loading makes the index of words, if the thread in the background has
    /// not done so yet.
    pub fn run(&self) -> Vec<Recalled> {
        self.search().0
    }

    /// Returns what was picked, and of how many that were ranked.
    fn search(&self) -> (Vec<Recalled>, usize) {
        if self.limit == 0 {
            return (Vec::new(), 0);
        }
        let now = self.now.unwrap_or_else(Timestamp::now);
        let ranking = Ranking::new(self.state, &self.text, self.half_life, now);
        // What is passed for its pattern or size makes room for what is behind it.
        let picks = self.one_per_pattern || self.budget.is_some();
        let mut wanted = if picks { self.limit.saturating_mul(4).max(32) } else { self.limit };
        loop {
            let ranked = ranking.best(wanted, self.among.as_ref());
            let is_all = ranked.len() < wanted;
            let (picked, left) = self.pick(&ranking, &ranked);
            if is_all || picked.len() == self.limit || left < LEAST_TOKENS || !picks {
                return (picked, ranked.len());
            }
            wanted = wanted.saturating_mul(4);
        }
    }

    /// Returns what is picked of the best, and how many tokens are left.
    fn pick(&self, ranking: &Ranking<'s>, ranked: &[Ranked<'s>]) -> (Vec<Recalled>, usize) {
        let mut left = self.budget.unwrap_or(usize::MAX);
        let mut seen = HashSet::new();
        let mut picked = Vec::new();
        for found in ranked {
            if picked.len() == self.limit || left < LEAST_TOKENS {
                break;
            }
            let tokens = tokens(found);
            if tokens > left || (self.one_per_pattern && !seen.insert(kind(found))) {
                continue;
            }
            left -= tokens;
            picked.push(Recalled {
                lesson: found.lesson.to_lesson(),
                score: found.score,
                why: ranking.explain(found),
                tokens,
            });
        }
        (picked, left)
    }
}

/// Tokens of the smallest lesson that shares a word with a text.
const LEAST_TOKENS: usize = 2;

/// Estimates what a lesson takes in a prompt.
fn tokens(found: &Ranked<'_>) -> usize {
    let texts = [found.lesson.failure_msg().len(), found.lesson.resolution().len()];
    (texts.iter().sum::<usize>() + found.lesson.pattern().len()).div_ceil(4) + 1
}

fn kind(found: &Ranked<'_>) -> String {
    match found.lesson.pattern() {
        "" => format!("fp-{}", found.lesson.fingerprint()),
        pattern => format!("p-{pattern}"),
    }
}

impl fmt::Debug for Recall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall")
            .field("text", &self.text)
            .field("limit", &self.limit)
            .field("budget", &self.budget)
            .field("one_per_pattern", &self.one_per_pattern)
            .field("half_life", &self.half_life)
            .finish_non_exhaustive()
    }
}

/// Orders by score, the best first, then as listings do.
pub(crate) fn better(a: &Ranked<'_>, b: &Ranked<'_>) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| a.lesson.recent(&b.lesson))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::state::Change;

    /// All that share a word were ranked and decoded where a budget was spent before the limit.
    #[test]
    fn a_search_ends_when_the_budget_is_spent() {
        const LESSONS: usize = 5_000;
        let line =
            |n| format!("{{\"id\":\"{n}\",\"failure_msg\":\"disk full\",\"pattern\":\"p\"}}");
        let lesson = |n| Arc::new(Lesson::parse_line(&line(n)).unwrap());
        let lessons = (0..LESSONS).map(lesson).collect();
        let change = Change { lessons, ..Change::default() };
        let state = State::default().with(change, &mut |_, _, _| {});
        let recall = || Recall::new(&state, "disk full").limit(50);
        let (found, ranked) = recall().budget_tokens(80).search();
        assert_eq!((found.len(), found[0].tokens, ranked), (20, 4, 200));
        // Where something else stands in the way, all are.
        let (found, ranked) = recall().budget_tokens(80).one_per_pattern().search();
        assert_eq!((found.len(), ranked), (1, LESSONS));
    }
}
