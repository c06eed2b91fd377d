use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::InvalidLesson;
use crate::fingerprint::Fingerprint;
use crate::lesson::Lesson;

/// Is something that failed just now, to be counted or looked for.
///
/// ```
/// use lessons_index::{Failure, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// index.record(Failure::new("build", "src/a.rs:1: cannot find `x` (E0425)"))?;
/// let lesson = index.record(Failure::new("build", "src/b.rs:7: cannot find `y` (E0425)"))?;
/// assert_eq!(lesson.times_seen, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Failure {
    kind: String,
    message: String,
    scope: String,
    task_type: String,
    activity_type: String,
    pattern: String,
    resolution: String,
    at: Option<Timestamp>,
    metadata: Map<String, Value>,
}

impl Failure {
    /// Returns a failure of a type, with what it said.
    pub fn new(failure_type: impl Into<String>, failure_msg: impl Into<String>) -> Self {
        Self {
            kind: failure_type.into(),
            message: failure_msg.into(),
            scope: String::new(),
            task_type: String::new(),
            activity_type: String::new(),
            pattern: String::new(),
            resolution: String::new(),
            at: None,
            metadata: Map::new(),
        }
    }

    /// Sets where it holds, such as a repository. Failures of two scopes are two.
    pub fn scope(mut self, text: impl Into<String>) -> Self {
        self.scope = text.into();
        self
    }

    /// Sets the type of the task. A failure that is known keeps the one it has.
    pub fn task_type(mut self, text: impl Into<String>) -> Self {
        self.task_type = text.into();
        self
    }

    /// Sets the activity that failed. A failure that is known keeps the one it has.
    pub fn activity_type(mut self, text: impl Into<String>) -> Self {
        self.activity_type = text.into();
        self
    }

    /// Sets the pattern. A failure that is known keeps the one it has.
    pub fn pattern(mut self, text: impl Into<String>) -> Self {
        self.pattern = text.into();
        self
    }

    /// Sets what resolved it. Takes the place of what is known, unless it is empty.
    pub fn resolution(mut self, text: impl Into<String>) -> Self {
        self.resolution = text.into();
        self
    }

    /// Sets when it was; by default, when it is recorded.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.at = Some(time);
        self
    }

    /// Sets further facts. A failure that is known keeps those it has.
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// Returns what the failure is known by. Under one microsecond for a message of usual length.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.scope, &self.kind, &self.message)
    }

    /// Returns about how many bytes it takes as a line.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [
            &self.kind,
            &self.message,
            &self.scope,
            &self.task_type,
            &self.activity_type,
            &self.pattern,
            &self.resolution,
        ];
        let metadata = serde_json::to_string(&self.metadata).map_or(0, |text| text.len());
        texts.iter().map(|text| text.len()).sum::<usize>() + metadata + 512
    }

    /// Returns the lesson of a failure that was not seen before.
    pub(crate) fn first(&self, id: String, now: Timestamp) -> Result<Lesson, InvalidLesson> {
        let at = self.at.unwrap_or(now);
        Lesson::builder(id)
            .task_type(&self.task_type)
            .activity_type(&self.activity_type)
            .failure_type(&self.kind)
            .failure_msg(&self.message)
            .resolution(&self.resolution)
            .pattern(&self.pattern)
            .scope(&self.scope)
            .first_seen(at)
            .last_seen(at)
            .metadata(self.metadata.clone())
            .build()
    }

    /// Counts a failure that was seen before once more.
    pub(crate) fn again(&self, lesson: &mut Lesson, now: Timestamp) {
        let at = self.at.unwrap_or(now);
        lesson.times_seen = lesson.times_seen.saturating_add(1);
        lesson.last_seen = lesson.last_seen.max(Some(at));
        lesson.first_seen = Some(lesson.first_seen.map_or(at, |first| first.min(at)));
        if !self.resolution.is_empty() {
            lesson.resolution.clone_from(&self.resolution);
        }
        let kept = [
            (&mut lesson.task_type, &self.task_type),
            (&mut lesson.activity_type, &self.activity_type),
            (&mut lesson.pattern, &self.pattern),
        ];
        for (known, new) in kept {
            if known.is_empty() {
                known.clone_from(new);
            }
        }
    }
}
