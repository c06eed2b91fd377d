//! Ranking against scoring every lesson by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeSet;

use common::{add_all, ids, lesson, missing, options, parsed};
use jiff::{SignedDuration, Timestamp, ToSpan};
use lessons_index::{Feedback, Lesson, LessonsIndex, Recalled, Snapshot};
use proptest::prelude::*;

const NOW: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// The words that a text is ranked by.
fn words(text: &str) -> BTreeSet<String> {
    text.to_lowercase()
        .split(|c: char| {
            c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' || "‘’—…".contains(c)
        })
        .filter(|word| word.len() > 1)
        .map(str::to_owned)
        .collect()
}

/// Scores every lesson as the documentation says.
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn by_hand(snapshot: &Snapshot, text: &str) -> Vec<(String, f64)> {
    let all = snapshot.all();
    let of = |lesson: &Lesson| {
        words(&format!("{} {} {}", lesson.failure_msg, lesson.resolution, lesson.pattern))
    };
    let lens: Vec<f64> = all.iter().map(|lesson| of(lesson).len().min(255) as f64).collect();
    let mean = (lens.iter().sum::<f64>() / all.len().max(1) as f64).max(1.0);
    let weights: Vec<(String, f64)> = words(text)
        .into_iter()
        .map(|word| {
            let with = all.iter().filter(|lesson| of(lesson).contains(&word)).count() as f64;
            let weight = (1.0 + (all.len() as f64 - with + 0.5) / (with + 0.5)).ln();
            (word, weight)
        })
        .collect();
    let mut scored: Vec<(f64, &Lesson)> = all
        .iter()
        .zip(&lens)
        .filter_map(|(lesson, len)| {
            let own = of(lesson);
            let sum: f64 = weights.iter().filter(|(w, _)| own.contains(w)).map(|(_, x)| x).sum();
            let text = sum * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * len / mean));
            let times = lesson.times_seen as f64;
            let age = lesson.last_seen.map(|last| (NOW - last.as_second()).max(0) as f64);
            let recency = age.map_or(0.0, |age| (-age / (14 * DAY) as f64).exp2());
            let (helpful, harmful) = (lesson.helpful as f64, lesson.harmful as f64);
            let votes = (helpful - harmful) / (helpful + harmful + 2.0);
            let boost = 1.0 + 0.1 * times / (times + 10.0) + 0.2 * recency + 0.3 * votes;
            (sum > 0.0).then_some((text * boost, &**lesson))
        })
        .collect();
    scored.sort_by(|(a, x), (b, y)| {
        let same = (a - b).abs() < 1e-9;
        let by_score = if same { std::cmp::Ordering::Equal } else { b.total_cmp(a) };
        by_score.then_with(|| y.last_seen.cmp(&x.last_seen)).then_with(|| x.id.cmp(&y.id))
    });
    scored.into_iter().map(|(score, lesson)| (lesson.id.clone(), score)).collect()
}

const VOCABULARY: [&str; 12] = [
    "linker",
    "memory",
    "out",
    "of",
    "cannot",
    "find",
    "value",
    "E0425",
    "zeit",
    "überlauf",
    "timeout",
    "parse_token",
];

fn text(words: &[usize]) -> String {
    words.iter().map(|word| VOCABULARY[word % VOCABULARY.len()]).collect::<Vec<_>>().join(" ")
}

fn lessons() -> impl Strategy<Value = Vec<Lesson>> {
    let words = || prop::collection::vec(0..12_usize, 0..7);
    let votes = prop::option::weighted(0.2, (0..4_u64, 0..4_u64));
    let last = prop::option::weighted(0.8, -3..60_i64);
    let one = (words(), words(), 0..30_u64, last, votes).prop_map(
        |(message, resolution, times, last, votes)| {
            let mut lesson = Lesson::builder("x")
                .failure_msg(text(&message))
                .resolution(text(&resolution))
                .times_seen(times);
            if let Some(days) = last {
                lesson = lesson.last_seen(Timestamp::from_second(NOW - days * DAY).unwrap());
            }
            let mut lesson = lesson.build().unwrap();
            if let Some((helpful, harmful)) = votes {
                (lesson.helpful, lesson.harmful) = (helpful, harmful);
            }
            lesson
        },
    );
    prop::collection::vec(one, 1..150)
}

fn assert_same(found: &[Recalled], wanted: &[(String, f64)]) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), wanted.len());
    for (found, (_, score)) in found.iter().zip(wanted) {
        prop_assert!((found.score - score).abs() < 1e-6, "{} is not {score}", found.score);
    }
    Ok(())
}

proptest! {
    #![proptest_config(common::cases(96))]

    /// The best are those of scoring all, and the same whatever way the lessons came in.
    #[test]
    fn the_best_are_those_of_scoring_every_lesson(
        lessons in lessons(),
        replaced in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        asked in prop::collection::vec(0..12_usize, 1..8),
        limit in 1..40_usize,
    ) {
        let file = missing();
        let index = file.open();
        let named = lessons.iter().enumerate().map(|(n, lesson)| {
            let mut lesson = lesson.clone();
            lesson.id = format!("{n:03}");
            lesson
        });
        index.add_all(named);
        // From a segment, where some are dead, and from the pages, where the new ones are.
        let loaded = LessonsIndex::open(&file.path, options()).unwrap();
        for (n, at) in replaced.iter().enumerate() {
            let mut lesson = lessons[(at.index(lessons.len()) + n) % lessons.len()].clone();
            lesson.id = format!("{:03}", at.index(lessons.len()));
            loaded.add(lesson).unwrap();
        }
        index.refresh().unwrap();
        let text = text(&asked);
        let wanted = by_hand(&index.snapshot(), &text);
        let wanted = &wanted[..limit.min(wanted.len())];
        let mut answers = Vec::new();
        for snapshot in [index.snapshot(), loaded.snapshot(), file.open().snapshot()] {
            let found = snapshot.recall(&text).limit(limit).now(now()).run();
            assert_same(&found, wanted)?;
            answers.push(found);
        }
        prop_assert_eq!(&answers[0], &answers[1]);
        prop_assert_eq!(&answers[0], &answers[2]);
    }
}

/// Enough lessons for every shortcut: dense words, groups of 512, a seed that is left early.
#[test]
fn the_best_of_many_are_those_of_scoring_every_lesson() {
    let file = missing();
    let mut state = 9_usize;
    let mut next = |end: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut lines = String::new();
    for n in 0..6_000 {
        let message: Vec<String> =
            (0..3 + next(9)).map(|_| format!("word{}", next(40) * next(40) / 20)).collect();
        let mut lesson = Lesson::builder(format!("{n:05}"))
            .failure_msg(message.join(" "))
            .times_seen(next(50) as u64)
            .last_seen(Timestamp::from_second(NOW - 60 * n).unwrap());
        if n % 3 == 0 {
            lesson = lesson.pattern(format!("rare{}", next(500)));
        }
        lines.push_str(lesson.build().unwrap().raw());
        lines.push('\n');
    }
    std::fs::write(&file.path, lines).unwrap();
    let snapshot = file.open().snapshot();
    for text in
        ["word1 word2 word3 rare7", "word0 word5 word60 word70 rare1 rare2", "rare3", "none"]
    {
        let wanted = by_hand(&snapshot, text);
        for limit in [1, 10, 100] {
            let found = snapshot.recall(text).limit(limit).now(now()).run();
            assert_same(&found, &wanted[..limit.min(wanted.len())]).unwrap();
        }
        let query = snapshot.query().seen_at_least(20);
        let found = snapshot.recall(text).among(&query).limit(20).now(now()).run();
        let among: Vec<&(String, f64)> =
            wanted.iter().filter(|(id, _)| snapshot.find(id).unwrap().times_seen() >= 20).collect();
        assert_eq!(found.len(), among.len().min(20));
        for (found, (_, score)) in found.iter().zip(among) {
            assert!((found.score - score).abs() < 1e-6);
        }
    }
}

#[test]
fn a_budget_is_kept_and_smaller_lessons_fill_it() {
    let file = missing();
    let index = file.open();
    let long = format!("disk full {}", "x".repeat(400));
    index.add(Lesson::builder("long").failure_msg(long).times_seen(9).build().unwrap()).unwrap();
    for n in 0..50 {
        let lesson = Lesson::builder(format!("{n}")).failure_msg("disk full").build().unwrap();
        index.add(lesson).unwrap();
    }
    let snapshot = index.snapshot();
    for budget in [0, 3, 4, 20, 110, 1_000] {
        let found = snapshot.recall("disk full").limit(40).budget_tokens(budget).now(now()).run();
        assert!(found.iter().map(|found| found.tokens).sum::<usize>() <= budget);
        assert_eq!(found.len(), (budget / 4).min(40), "{budget}");
    }
}

#[test]
fn one_lesson_stands_for_each_pattern_or_failure() {
    let file = missing();
    let index = file.open();
    add_all(
        &index,
        &[
            r#"{"id":"a","failure_msg":"disk full","pattern":"disk","times_seen":1}"#,
            r#"{"id":"b","failure_msg":"disk full","pattern":"disk","times_seen":9}"#,
            r#"{"id":"c","failure_msg":"disk full after 10 s"}"#,
            r#"{"id":"d","failure_msg":"disk full after 20 s"}"#,
        ],
    );
    let snapshot = index.snapshot();
    let found = snapshot.recall("disk full").one_per_pattern().now(now()).run();
    let found: Vec<&str> = found.iter().map(|found| found.lesson.id.as_str()).collect();
    assert_eq!(found, ["b", "c"]);
    assert_eq!(snapshot.recall("disk full").run().len(), 4);
}

#[test]
fn a_lesson_fades_with_time_and_nothing_is_written_back() {
    let file = missing();
    let index = file.open();
    index
        .add(parsed(r#"{"id":"a","failure_msg":"disk full","last_seen":"2001-09-09T00:00:00Z"}"#))
        .unwrap();
    let before = file.content();
    let snapshot = index.snapshot();
    let recency = |days: i64, half_life: SignedDuration| {
        let now = now().checked_add((days * 24).hours()).unwrap();
        let found = snapshot.recall("disk").half_life(half_life).now(now).run();
        found[0].why.recency
    };
    let day = SignedDuration::from_hours(24);
    let gains: Vec<f64> = (-2..40).map(|days| recency(days, day * 7)).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
    assert!((recency(-100, day) - 0.2).abs() < 1e-12, "a time to come counts as now");
    let half = recency(8, day * 7) / recency(1, day * 7);
    assert!((half - 0.5).abs() < 1e-9, "{half}");
    assert!(recency(0, SignedDuration::ZERO).abs() < 1e-12);
    assert_eq!(file.content(), before);
}

#[test]
fn what_helped_comes_first() {
    let file = missing();
    let index = file.open();
    add_all(
        &index,
        &[r#"{"id":"a","failure_msg":"disk full"}"#, r#"{"id":"b","failure_msg":"disk full"}"#],
    );
    let order = || {
        let found: Vec<_> = index
            .snapshot()
            .recall("disk")
            .now(now())
            .run()
            .into_iter()
            .map(|f| f.lesson)
            .collect();
        ids(&found).join(" ")
    };
    assert_eq!(order(), "a b");
    index.feedback("b", Feedback::Helpful).unwrap();
    assert_eq!(order(), "b a");
    index.feedback("b", Feedback::Harmful).unwrap();
    index.feedback("b", Feedback::Harmful).unwrap();
    assert_eq!(order(), "a b");
}

#[test]
fn a_text_without_a_known_word_finds_nothing() {
    let file = missing();
    let index = file.open();
    assert!(index.snapshot().recall("anything").run().is_empty());
    index.add(lesson("a")).unwrap();
    for text in ["", " ", "a", "?!", "unknown words"] {
        assert!(index.snapshot().recall(text).run().is_empty(), "{text:?}");
    }
    let numbered: Vec<String> = (0..500).map(|n| format!("w{n}")).collect();
    let long = "word ".repeat(10) + &numbered.join(" ");
    add_all(&index, &[r#"{"id":"b","failure_msg":"w7 w8"}"#]);
    assert_eq!(index.snapshot().recall(&long).run().len(), 1);
    assert!(index.snapshot().recall("w7").limit(0).run().is_empty());
}

#[test]
#[should_panic(expected = "another snapshot")]
fn a_query_of_another_snapshot_is_refused() {
    let (one, two) = (missing().open().snapshot(), missing().open().snapshot());
    let _ = one.recall("text").among(&two.query());
}
