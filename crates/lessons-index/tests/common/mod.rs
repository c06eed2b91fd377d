//! Helpers of the tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::sync::Arc;

use lessons_index::{Fsync, Lesson, LessonsIndex, Options};
use proptest::prelude::ProptestConfig;

/// Is a file of lessons in a folder of its own.
pub(crate) struct Scratch {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn scratch(content: impl AsRef<[u8]>) -> Scratch {
    let scratch = missing();
    std::fs::write(&scratch.path, content).unwrap();
    scratch
}

pub(crate) fn missing() -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lessons.jsonl");
    Scratch { dir, path }
}

pub(crate) fn options() -> Options {
    Options::default().with_fsync(Fsync::Never)
}

impl Scratch {
    pub(crate) fn open(&self) -> LessonsIndex {
        LessonsIndex::open(&self.path, options()).unwrap()
    }

    pub(crate) fn content(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

pub(crate) fn lesson(id: &str) -> Lesson {
    Lesson::builder(id).build().unwrap()
}

/// Parses a line that is a lesson.
pub(crate) fn parsed(line: &str) -> Lesson {
    Lesson::parse_line(line).unwrap()
}

pub(crate) fn add_all(index: &LessonsIndex, lines: &[&str]) {
    for added in index.add_all(lines.iter().map(|line| parsed(line))) {
        added.unwrap();
    }
}

pub(crate) fn ids(lessons: &[Arc<Lesson>]) -> Vec<&str> {
    lessons.iter().map(|lesson| lesson.id.as_str()).collect()
}

/// Runs `cases` random cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        ProptestConfig { cases, ..config }
    }
}
