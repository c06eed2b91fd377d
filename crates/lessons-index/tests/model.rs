//! The index against a plain map: after any operations, every question has the same answer.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use common::{missing, options};
use jiff::Timestamp;
use lessons_index::{Lesson, LessonsIndex, Snapshot, Sort};
use proptest::prelude::*;

type Model = BTreeMap<String, Lesson>;

#[derive(Clone, Debug)]
enum Step {
    /// Through the index.
    Add(Vec<Lesson>),
    /// By another writer, found by a refresh.
    Append(Vec<Lesson>),
    Reload,
}

const MESSAGES: [&str; 7] =
    ["", "out of memory", "OUT OF MEMORY", "Ünïcode ẞ", "ünïcode ß", "σς Σ", "a\"b\\c\nd"];

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    prop::option::weighted(0.8, (0..6_i64).prop_map(|s| Timestamp::from_second(s * 1000).unwrap()))
}

fn lesson() -> impl Strategy<Value = Lesson> {
    (
        0..12_u8,
        0..3_u8,
        0..3_u8,
        0..2_u8,
        0..3_u8,
        prop::sample::select(&MESSAGES[..]),
        0..4_u64,
        time(),
    )
        .prop_map(|(id, task, activity, failure, pattern, message, times, last)| {
            let name = |letter: &str, n: u8| {
                if n == 0 { String::new() } else { format!("{letter}{n}") }
            };
            let mut lesson = Lesson::builder(format!("id{id}"))
                .task_type(name("t", task))
                .activity_type(name("a", activity))
                .failure_type(name("f", failure))
                .pattern(name("p", pattern))
                .failure_msg(message)
                .times_seen(times);
            if let Some(last) = last {
                lesson = lesson.last_seen(last);
            }
            lesson.build().unwrap()
        })
}

fn step() -> impl Strategy<Value = Step> {
    let lessons = || prop::collection::vec(lesson(), 1..6);
    prop_oneof![
        6 => lessons().prop_map(Step::Add),
        3 => lessons().prop_map(Step::Append),
        1 => Just(Step::Reload),
    ]
}

fn apply(index: &LessonsIndex, model: &mut Model, step: &Step) {
    match step {
        Step::Add(lessons) => {
            assert!(index.add_all(lessons.iter().cloned()).iter().all(Result::is_ok));
        }
        Step::Append(lessons) => {
            let mut content = std::fs::read(index.path()).unwrap_or_default();
            for lesson in lessons {
                content.extend(lesson.raw().as_bytes());
                content.push(b'\n');
            }
            std::fs::write(index.path(), content).unwrap();
            index.refresh().unwrap();
        }
        Step::Reload => index.reload().unwrap(),
    }
    if let Step::Add(lessons) | Step::Append(lessons) = step {
        model.extend(lessons.iter().map(|lesson| (lesson.id.clone(), lesson.clone())));
    }
}

/// Is a query that both sides can answer.
#[derive(Clone, Debug)]
struct Question {
    task: Option<String>,
    activity: Option<String>,
    failure: Option<String>,
    pattern: Option<String>,
    needle: Option<String>,
    range: (Bound<Timestamp>, Bound<Timestamp>),
    sort: Sort,
    limit: usize,
}

fn question() -> impl Strategy<Value = Question> {
    let value = |letter: &'static str| {
        prop::option::weighted(
            0.3,
            (0..3_u8)
                .prop_map(move |n| if n == 0 { String::new() } else { format!("{letter}{n}") }),
        )
    };
    let bound = || {
        (time(), any::<bool>()).prop_map(|(time, included)| match (time, included) {
            (None, _) => Bound::Unbounded,
            (Some(time), true) => Bound::Included(time),
            (Some(time), false) => Bound::Excluded(time),
        })
    };
    let needle = prop::option::weighted(
        0.4,
        prop::sample::select(vec!["memory", "OF", "ß", "ς", "Ï", "\"B", "zzz"]),
    );
    let sort = prop::sample::select(vec![Sort::Recent, Sort::Frequent, Sort::Id]);
    (value("t"), value("a"), value("f"), value("p"), needle, (bound(), bound()), sort, 0..15_usize)
        .prop_map(|(task, activity, failure, pattern, needle, range, sort, limit)| Question {
            task,
            activity,
            failure,
            pattern,
            needle: needle.map(str::to_owned),
            range,
            sort,
            limit,
        })
}

impl Question {
    fn ask(&self, snapshot: &Snapshot) -> (Vec<Arc<Lesson>>, usize) {
        let mut query = snapshot.query().last_seen(self.range).sort(self.sort).limit(self.limit);
        if let Some(value) = &self.task {
            query = query.task_type(value);
        }
        if let Some(value) = &self.activity {
            query = query.activity_type(value);
        }
        if let Some(value) = &self.failure {
            query = query.failure_type(value);
        }
        if let Some(value) = &self.pattern {
            query = query.pattern(value);
        }
        if let Some(needle) = &self.needle {
            query = query.contains(needle).unwrap();
        }
        (query.run(), query.count())
    }

    fn answer(&self, model: &Model) -> (Vec<Lesson>, usize) {
        // Enough for the messages of this test.
        let fold = |text: &str| text.to_lowercase().replace('ς', "σ");
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|w| w == value);
        let in_range = |last: Option<Timestamp>| match (self.range, last) {
            ((Bound::Unbounded, Bound::Unbounded), _) => true,
            (_, None) => false,
            ((since, until), Some(time)) => {
                (match since {
                    Bound::Included(since) => time >= since,
                    Bound::Excluded(since) => time > since,
                    Bound::Unbounded => true,
                }) && (match until {
                    Bound::Included(until) => time <= until,
                    Bound::Excluded(until) => time < until,
                    Bound::Unbounded => true,
                })
            }
        };
        let mut found: Vec<Lesson> = model
            .values()
            .filter(|lesson| {
                is(&self.task, &lesson.task_type)
                    && is(&self.activity, &lesson.activity_type)
                    && is(&self.failure, &lesson.failure_type)
                    && is(&self.pattern, &lesson.pattern)
                    && self
                        .needle
                        .as_ref()
                        .is_none_or(|n| fold(&lesson.failure_msg).contains(&fold(n)))
                    && in_range(lesson.last_seen)
            })
            .cloned()
            .collect();
        // The map is by id already, and sorting keeps that order among equals.
        match self.sort {
            Sort::Recent => found.sort_by_key(|l| std::cmp::Reverse(l.last_seen)),
            Sort::Frequent => found.sort_by_key(|l| std::cmp::Reverse((l.times_seen, l.last_seen))),
            _ => {}
        }
        let count = found.len();
        found.truncate(self.limit);
        (found, count)
    }
}

proptest! {
    #![proptest_config(common::cases(96))]

    #[test]
    fn every_answer_is_that_of_a_plain_map(
        steps in prop::collection::vec(step(), 1..25),
        questions in prop::collection::vec(question(), 12),
    ) {
        let file = missing();
        let index = file.open();
        let mut model = Model::new();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for step in &steps {
            apply(&index, &mut model, step);
            held.push((index.snapshot(), model.clone()));
        }
        // Older snapshots still show what was then: nothing more, nothing less.
        for (snapshot, model) in &held {
            prop_assert_eq!(snapshot.len(), model.len());
            let all: Vec<Lesson> = snapshot.all().iter().map(|l| (**l).clone()).collect();
            prop_assert_eq!(&all, &model.values().cloned().collect::<Vec<_>>());
            for id in (0..12).map(|n| format!("id{n}")) {
                let got = snapshot.get(&id);
                prop_assert_eq!(got.as_deref(), model.get(&id));
            }
            let distinct = |of: fn(&Lesson) -> &str| {
                let mut values: Vec<&str> = model.values().map(of).filter(|v| !v.is_empty()).collect();
                values.sort_unstable();
                values.dedup();
                values.len()
            };
            let stats = snapshot.stats();
            prop_assert_eq!(stats.task_types, distinct(|l| &l.task_type));
            prop_assert_eq!(stats.activity_types, distinct(|l| &l.activity_type));
            prop_assert_eq!(stats.failure_types, distinct(|l| &l.failure_type));
            prop_assert_eq!(stats.patterns, distinct(|l| &l.pattern));
        }
        for question in &questions {
            for (snapshot, model) in held.iter().rev().take(5) {
                let (found, count) = question.ask(snapshot);
                let (wanted, wanted_count) = question.answer(model);
                let found: Vec<Lesson> = found.iter().map(|l| (**l).clone()).collect();
                prop_assert_eq!(found, wanted);
                prop_assert_eq!(count, wanted_count);
            }
        }
        // What was built step by step is what a new reader loads.
        let report = index.report();
        let reopened = LessonsIndex::open(&file.path, options()).unwrap();
        prop_assert_eq!(reopened.report(), report);
        prop_assert_eq!(reopened.snapshot().all(), index.snapshot().all());
    }
}
