//! The index against SQLite: after any changes, by whatever way they came, both answer the same.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fmt::Write as _;
use std::io::Write as _;

use common::{missing, options};
use jiff::Timestamp;
use lessons_index::{Compaction, Failure, Lesson, LessonsIndex, Snapshot, Sort};
use proptest::prelude::*;
use rusqlite::{Connection, params, params_from_iter};

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<Lesson>),
    /// By a program that knows nothing of this crate.
    Append(Vec<Lesson>),
    Forget(Vec<u8>),
    /// The same failure again and again.
    Record(u8, i64),
    Compact,
    Reload,
    /// More lessons than fit in the pages, so that a segment comes up.
    Many(u16),
}

const MESSAGES: [&str; 5] =
    ["", "out of memory", "linker: OUT of memory", "memory 100% \"full\"", "it's _not_ here"];

fn lesson() -> impl Strategy<Value = Lesson> {
    let last = prop::option::weighted(0.8, 0..8_i64);
    (0..30_u8, 0..3_u8, 0..3_u8, 0..3_u8, prop::sample::select(&MESSAGES[..]), 0..4_u64, last)
        .prop_map(|(id, task, failure, pattern, message, times, last)| {
            let mut lesson = Lesson::builder(format!("id-{id:02}"))
                .task_type(format!("t{task}"))
                .failure_type(format!("f{failure}"))
                .pattern(format!("p{pattern}"))
                .failure_msg(message)
                .times_seen(times);
            if let Some(last) = last {
                lesson = lesson.last_seen(Timestamp::from_second(last * 100).unwrap());
            }
            lesson.build().unwrap()
        })
}

fn step() -> impl Strategy<Value = Step> {
    let lessons = || prop::collection::vec(lesson(), 1..5);
    prop_oneof![
        8 => lessons().prop_map(Step::Add),
        4 => lessons().prop_map(Step::Append),
        3 => prop::collection::vec(0..30_u8, 1..4).prop_map(Step::Forget),
        3 => (0..4_u8, 0..8_i64).prop_map(|(kind, at)| Step::Record(kind, at)),
        1 => Just(Step::Compact),
        1 => Just(Step::Reload),
        1 => (500..2600_u16).prop_map(Step::Many),
    ]
}

struct Sqlite(Connection);

impl Sqlite {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE lessons (id TEXT PRIMARY KEY, task TEXT, failure TEXT, pattern TEXT,
                     message TEXT, times INTEGER, last INTEGER, kind INTEGER);",
            )
            .unwrap();
        Self(connection)
    }

    fn put(&self, lesson: &Lesson, kind: Option<u8>) {
        let times = i64::try_from(lesson.times_seen).unwrap();
        let last = lesson.last_seen.map(Timestamp::as_second);
        self.0
            .execute(
                "INSERT OR REPLACE INTO lessons VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    lesson.id,
                    lesson.task_type,
                    lesson.failure_type,
                    lesson.pattern,
                    lesson.failure_msg,
                    times,
                    last,
                    kind
                ],
            )
            .unwrap();
    }

    fn forget(&self, id: &str) -> bool {
        self.0.execute("DELETE FROM lessons WHERE id = ?1", [id]).unwrap() > 0
    }

    /// Counts a failure; returns whether it was known.
    fn count(&self, kind: u8, at: i64) -> bool {
        let sql = "UPDATE lessons SET times = times + 1, last = max(last, ?2) WHERE kind = ?1";
        self.0.execute(sql, params![kind, at]).unwrap() > 0
    }

    fn ids(&self, sql: &str, values: &[String]) -> Vec<String> {
        let mut statement = self.0.prepare(sql).unwrap();
        let ids = statement.query_map(params_from_iter(values), |row| row.get(0)).unwrap();
        ids.map(Result::unwrap).collect()
    }
}

fn apply(index: &LessonsIndex, sqlite: &Sqlite, step: &Step) {
    match step {
        Step::Add(lessons) => {
            for added in index.add_all(lessons.iter().cloned()) {
                sqlite.put(&added.unwrap(), None);
            }
        }
        Step::Append(lessons) => {
            append(index, lessons);
            for lesson in lessons {
                sqlite.put(lesson, None);
            }
        }
        Step::Forget(ids) => {
            for id in ids.iter().map(|id| format!("id-{id:02}")) {
                let was_there = index.forget(&id).unwrap().is_some();
                assert_eq!(was_there, sqlite.forget(&id));
            }
        }
        Step::Record(kind, at) => {
            let name = char::from(b'a' + kind);
            let failure = Failure::new("counted", format!("no {name} in file{at}.rs:{at}"))
                .at(Timestamp::from_second(at * 100).unwrap());
            let was_known = index.snapshot().seen_before(&failure).is_some();
            let lesson = index.record(failure).unwrap();
            assert_eq!(was_known, sqlite.count(*kind, at * 100));
            if !was_known {
                sqlite.put(&lesson, Some(*kind));
            }
        }
        Step::Compact => {
            index.compact(&Compaction::default()).unwrap();
        }
        Step::Reload => index.reload().unwrap(),
        Step::Many(count) => {
            let lessons: Vec<Lesson> = (0..*count)
                .map(|n| Lesson::builder(format!("many-{:03}", n % 700)).build().unwrap())
                .collect();
            append(index, &lessons);
            for lesson in &lessons {
                sqlite.put(lesson, None);
            }
        }
    }
}

fn append(index: &LessonsIndex, lessons: &[Lesson]) {
    let mut text = String::new();
    for lesson in lessons {
        writeln!(text, "{}", lesson.raw()).unwrap();
    }
    let mut file =
        std::fs::OpenOptions::new().append(true).create(true).open(index.path()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    index.refresh().unwrap();
}

#[derive(Clone, Debug)]
struct Question {
    tasks: Vec<u8>,
    failure: Option<u8>,
    pattern: Option<u8>,
    needle: Option<&'static str>,
    since: Option<i64>,
    until: Option<i64>,
    min_times: u64,
    sort: Sort,
    limit: usize,
}

fn question() -> impl Strategy<Value = Question> {
    let value = || prop::option::weighted(0.4, 0..4_u8);
    let bound = || prop::option::weighted(0.3, -1..9_i64);
    let needle = prop::option::weighted(
        0.4,
        prop::sample::select(vec!["Memory", "of", "100%", "_", "\"", "zz"]),
    );
    let sort = prop::sample::select(vec![Sort::Recent, Sort::Oldest, Sort::Frequent, Sort::Id]);
    let tasks = prop::collection::vec(0..4_u8, 0..3);
    (tasks, value(), value(), needle, bound(), bound(), 0..3_u64, sort, 0..40_usize).prop_map(
        |(tasks, failure, pattern, needle, since, until, min_times, sort, limit)| Question {
            tasks,
            failure,
            pattern,
            needle,
            since,
            until,
            min_times,
            sort,
            limit,
        },
    )
}

impl Question {
    fn ours(&self, snapshot: &Snapshot) -> (Vec<String>, usize) {
        let mut query = snapshot.query().seen_at_least(self.min_times).sort(self.sort);
        if !self.tasks.is_empty() {
            query = query.task_type_any(self.tasks.iter().map(|task| format!("t{task}")));
        }
        if let Some(failure) = self.failure {
            query = query.failure_type(format!("f{failure}"));
        }
        if let Some(pattern) = self.pattern {
            query = query.pattern(format!("p{pattern}"));
        }
        if let Some(needle) = self.needle {
            query = query.contains(needle).unwrap();
        }
        let time = |second: i64| Timestamp::from_second(second * 100).unwrap();
        query = match (self.since, self.until) {
            (None, None) => query,
            (Some(since), None) => query.last_seen(time(since)..),
            (None, Some(until)) => query.last_seen(..time(until)),
            (Some(since), Some(until)) => query.last_seen(time(since)..time(until)),
        };
        let count = query.count();
        (query.limit(self.limit).iter().map(|lesson| lesson.id().to_owned()).collect(), count)
    }

    fn theirs(&self, sqlite: &Sqlite) -> (Vec<String>, usize) {
        let mut sql = format!("SELECT id FROM lessons WHERE times >= {}", self.min_times);
        let mut values = Vec::new();
        if !self.tasks.is_empty() {
            let tasks: Vec<String> = self.tasks.iter().map(|task| format!("'t{task}'")).collect();
            write!(sql, " AND task IN ({})", tasks.join(",")).unwrap();
        }
        for (column, value) in [("failure", self.failure), ("pattern", self.pattern)] {
            if let Some(value) = value {
                write!(sql, " AND {column} = '{}{value}'", &column[..1]).unwrap();
            }
        }
        if let Some(needle) = self.needle {
            values.push(needle.to_lowercase());
            sql.push_str(" AND instr(lower(message), ?1) > 0");
        }
        if let Some(since) = self.since {
            write!(sql, " AND last >= {}", since * 100).unwrap();
        }
        if let Some(until) = self.until {
            write!(sql, " AND last < {}", until * 100).unwrap();
        }
        sql.push_str(match self.sort {
            Sort::Oldest => " ORDER BY last ASC NULLS FIRST, id DESC",
            Sort::Frequent => " ORDER BY times DESC, last DESC NULLS LAST, id",
            Sort::Id => " ORDER BY id",
            _ => " ORDER BY last DESC NULLS LAST, id",
        });
        let mut ids = sqlite.ids(&sql, &values);
        let count = ids.len();
        ids.truncate(self.limit);
        (ids, count)
    }
}

proptest! {
    #![proptest_config(common::cases(64))]

    #[test]
    fn every_answer_is_that_of_sqlite(
        steps in prop::collection::vec(step(), 1..20),
        questions in prop::collection::vec(question(), 8),
    ) {
        let file = missing();
        let index = file.open();
        let sqlite = Sqlite::new();
        for step in &steps {
            apply(&index, &sqlite, step);
            let snapshot = index.snapshot();
            for question in &questions {
                prop_assert_eq!(question.ours(&snapshot), question.theirs(&sqlite));
            }
        }
        let reopened = LessonsIndex::open(&file.path, options()).unwrap().snapshot();
        for question in &questions {
            prop_assert_eq!(question.ours(&reopened), question.theirs(&sqlite));
        }
    }
}
