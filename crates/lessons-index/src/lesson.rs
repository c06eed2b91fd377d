use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::error::InvalidLesson;
use crate::fast::Fast;
use crate::fault::LineError;
use crate::members::{self, Members};
use crate::parse::Parser;
use crate::record::{Field, Record};
use crate::stamp;
use crate::text;

/// Is one lesson: a failure, what it belongs to, and what resolved it.
///
/// The fields can be changed; [`raw`](Self::raw) stays the line that the lesson was read from,
/// with the keys this crate does not know, and [`to_line`](Self::to_line) combines both.
///
/// ```
/// use lessons_index::Lesson;
///
/// let mut lesson = Lesson::parse_line(r#"{"id":"oom-1","team":7,"times_seen":2}"#)?;
/// assert_eq!((lesson.id.as_str(), lesson.times_seen), ("oom-1", 2));
///
/// lesson.times_seen += 1;
/// assert_eq!(lesson.to_line(), r#"{"id":"oom-1","team":7,"times_seen":3}"#);
/// # Ok::<(), lessons_index::LineError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lesson {
    /// Identifies the lesson; a later lesson with the same id takes its place. Never empty.
    pub id: String,
    /// The type of the task, such as `fix_bug`. Empty when unknown.
    pub task_type: String,
    /// The activity that failed, such as `implementer`. Empty when unknown.
    pub activity_type: String,
    /// The type of the failure, such as `timeout`. Empty when unknown.
    pub failure_type: String,
    /// What the failure said.
    pub failure_msg: String,
    /// What resolved it.
    pub resolution: String,
    /// A name for failures of the same kind. Empty when unknown.
    pub pattern: String,
    /// How often the failure was seen; 1 when the line does not say.
    pub times_seen: u64,
    /// When it was seen last. The year 1, as Go writes a time that was never set, is `None`.
    pub last_seen: Option<Timestamp>,
    /// When it was seen first; `None` as above.
    pub first_seen: Option<Timestamp>,
    /// Where the lesson holds, such as a repository; part of its [`Fingerprint`](crate::Fingerprint).
    /// Empty when it holds everywhere.
    pub scope: String,
    /// How often the lesson was said to have helped.
    pub helpful: u64,
    /// How often the lesson was said to have done harm.
    pub harmful: u64,
    is_tombstone: bool,
    raw: Box<str>,
}

impl Lesson {
    /// Starts a lesson with an id.
    pub fn builder(id: impl Into<String>) -> LessonBuilder {
        let mut lesson = Self::blank();
        lesson.id = id.into();
        LessonBuilder { lesson, metadata: Map::new() }
    }

    /// Parses one line of JSON; blanks and line ends around it are taken away.
    ///
    /// Unknown keys are kept, of a repeated key the last value holds, `null` is the same as an
    /// absent key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong: no JSON, no object, no `id`, or a known key of the wrong type.
    pub fn parse_line(line: &str) -> Result<Self, LineError> {
        let (record, raw) = Parser::new().parse(text::trim(line.as_bytes()), true)?;
        Ok(Self::of(record, raw))
    }

    /// Returns whether this line removes the lesson with its id: it has a `deleted_at`.
    ///
    /// A later line with the same id and without `deleted_at` brings the lesson back.
    pub fn is_tombstone(&self) -> bool {
        self.is_tombstone
    }

    /// Returns the line that this lesson was read from, byte for byte without blanks around it;
    /// for a lesson from a builder, the line it was built as.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Decodes the `metadata` object, which is empty when the line has none. Parses on each call.
    pub fn metadata(&self) -> Map<String, Value> {
        self.member("metadata")
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// Replaces `metadata`; an empty map removes it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Map<String, Value>) -> Self {
        let value = (!metadata.is_empty()).then(|| Value::Object(metadata).to_string());
        if let Ok(members) = Members::of(&self.raw) {
            self.raw = members.with(&[("metadata", value)]).into();
        }
        self
    }

    /// Returns the line as it would be stored: fields that were changed take the place of the
    /// old values, all else stays as it was read. Without a change that is [`raw`](Self::raw),
    /// except that line ends inside become blanks and `times_seen` is always written.
    pub fn to_line(&self) -> String {
        let was = Self::parse_line(&self.raw).unwrap_or_else(|_| Self::blank());
        let mut changes = Vec::new();
        for ((key, text), (_, old)) in self.texts().into_iter().zip(was.texts()) {
            if text != old {
                changes.push((key, Some(members::quote(text))));
            }
        }
        if self.times_seen != was.times_seen || self.member("times_seen").is_none() {
            changes.push(("times_seen", Some(self.times_seen.to_string())));
        }
        let stamps = [
            ("last_seen", self.last_seen, was.last_seen),
            ("first_seen", self.first_seen, was.first_seen),
        ];
        for (key, time, old) in stamps {
            if time != old {
                changes.push((key, time.map(|time| members::quote(&time.to_string()))));
            }
        }
        let votes =
            [("helpful", self.helpful, was.helpful), ("harmful", self.harmful, was.harmful)];
        for (key, count, old) in votes {
            if count != old {
                changes.push((key, Some(count.to_string())));
            }
        }
        let line = match Members::of(&self.raw) {
            Ok(members) if !changes.is_empty() => members.with(&changes),
            _ => self.raw.to_string(),
        };
        // Inside a string a line end is escaped, so these stand between two tokens.
        line.replace(['\n', '\r'], " ")
    }

    pub(crate) fn blank() -> Self {
        Self::of(Record::default(), "{}")
    }

    /// Returns the lesson of a record and of the line that it was parsed from.
    pub(crate) fn of(record: Record<'_>, raw: &str) -> Self {
        let [task_type, activity_type, failure_type, pattern] = record.exact.map(Into::into);
        Self {
            id: record.id.into(),
            task_type,
            activity_type,
            failure_type,
            failure_msg: record.failure_msg.into(),
            resolution: record.resolution.into(),
            pattern,
            times_seen: record.times_seen,
            last_seen: record.last_seen,
            first_seen: record.first_seen,
            scope: record.scope.into(),
            helpful: record.helpful,
            harmful: record.harmful,
            is_tombstone: record.is_tombstone,
            raw: raw.into(),
        }
    }

    pub(crate) fn exact(&self, field: Field) -> &str {
        match field {
            Field::TaskType => &self.task_type,
            Field::ActivityType => &self.activity_type,
            Field::FailureType => &self.failure_type,
            Field::Pattern => &self.pattern,
        }
    }

    pub(crate) fn set_raw(&mut self, raw: &str) {
        self.raw = raw.into();
    }

    /// Returns the lesson as it is to be stored, with the line in `raw`.
    pub(crate) fn stored(self, max_line_bytes: usize) -> Result<Self, InvalidLesson> {
        if self.id.is_empty() {
            return Err(InvalidLesson::EmptyId);
        }
        let changed = (!self.is_as_read()).then(|| self.to_line());
        let line = changed.as_deref().unwrap_or(&self.raw);
        if line.len() > max_line_bytes {
            let (id, bytes) = (self.id, line.len());
            return Err(InvalidLesson::TooLong { id, bytes, max: max_line_bytes });
        }
        let Some(line) = changed.filter(|line| **line != *self.raw) else { return Ok(self) };
        Self::parse_line(&line).map_err(|source| InvalidLesson::Unreadable { id: self.id, source })
    }

    /// Returns whether the line is plain and says just what the fields do, so that it can be stored
    /// as it is.
    fn is_as_read(&self) -> bool {
        let mut fast = Fast::default();
        let Some(plain) = fast.parse(&self.raw) else { return false };
        let [id, task_type, activity_type, failure_type, message, resolution, pattern, scope] =
            self.texts().map(|(_, text)| text);
        // In the order of the numbers of a plain line's texts.
        let texts =
            [id, task_type, activity_type, failure_type, pattern, message, resolution, scope];
        // What changes most often comes first.
        plain.has_times_seen
            && (self.times_seen, self.helpful, self.harmful)
                == (plain.times_seen, plain.helpful, plain.harmful)
            && stamp::parts(self.last_seen) == plain.last_seen
            && stamp::parts(self.first_seen) == plain.first_seen
            && texts.into_iter().enumerate().all(|(text, wanted)| plain.text(text) == wanted)
            && memchr::memchr2(b'\n', b'\r', self.raw.as_bytes()).is_none()
    }

    fn texts(&self) -> [(&'static str, &str); 8] {
        [
            ("id", &self.id),
            ("task_type", &self.task_type),
            ("activity_type", &self.activity_type),
            ("failure_type", &self.failure_type),
            ("failure_msg", &self.failure_msg),
            ("resolution", &self.resolution),
            ("pattern", &self.pattern),
            ("scope", &self.scope),
        ]
    }

    /// Returns the last value of a key as JSON text; `None` when it is absent or `null`.
    fn member(&self, name: &str) -> Option<String> {
        let members = Members::of(&self.raw).ok()?;
        let value = members
            .0
            .iter()
            .rev()
            .find(|(key, value)| {
                value.get() != "null" && members::decode(key).as_deref() == Some(name)
            })?
            .1;
        Some(value.get().to_owned())
    }
}

/// The keys of the seed are always written, others when they say something.
fn is_written((key, text): &(&'static str, &str)) -> bool {
    *key != "scope" || !text.is_empty()
}

/// Writes the known fields; times are RFC 3339 text. Keys that this crate does not know are only
/// in [`Lesson::raw`].
impl Serialize for Lesson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, text) in self.texts().into_iter().filter(is_written) {
            map.serialize_entry(key, text)?;
        }
        map.serialize_entry("times_seen", &self.times_seen)?;
        for (key, votes) in [("helpful", self.helpful), ("harmful", self.harmful)] {
            if votes > 0 {
                map.serialize_entry(key, &votes)?;
            }
        }
        for (key, time) in [("last_seen", self.last_seen), ("first_seen", self.first_seen)] {
            if let Some(time) = time {
                map.serialize_entry(key, &time.to_string())?;
            }
        }
        let metadata = self.metadata();
        if !metadata.is_empty() {
            map.serialize_entry("metadata", &metadata)?;
        }
        map.end()
    }
}

/// Builds a [`Lesson`].
///
/// ```
/// use lessons_index::Lesson;
///
/// let lesson = Lesson::builder("oom-1")
///     .failure_type("oom")
///     .failure_msg("out of memory")
///     .last_seen("2026-01-31T09:30:00Z".parse()?)
///     .build()?;
/// assert_eq!(lesson.times_seen, 1);
/// assert!(lesson.raw().starts_with(r#"{"id":"oom-1","#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LessonBuilder {
    lesson: Lesson,
    metadata: Map<String, Value>,
}

impl LessonBuilder {
    /// Sets the type of the task.
    pub fn task_type(mut self, text: impl Into<String>) -> Self {
        self.lesson.task_type = text.into();
        self
    }

    /// Sets the activity that failed.
    pub fn activity_type(mut self, text: impl Into<String>) -> Self {
        self.lesson.activity_type = text.into();
        self
    }

    /// Sets the type of the failure.
    pub fn failure_type(mut self, text: impl Into<String>) -> Self {
        self.lesson.failure_type = text.into();
        self
    }

    /// Sets what the failure said.
    pub fn failure_msg(mut self, text: impl Into<String>) -> Self {
        self.lesson.failure_msg = text.into();
        self
    }

    /// Sets what resolved the failure.
    pub fn resolution(mut self, text: impl Into<String>) -> Self {
        self.lesson.resolution = text.into();
        self
    }

    /// Sets the name for failures of the same kind.
    pub fn pattern(mut self, text: impl Into<String>) -> Self {
        self.lesson.pattern = text.into();
        self
    }

    /// Sets how often the failure was seen; 1 by default.
    pub fn times_seen(mut self, times: u64) -> Self {
        self.lesson.times_seen = times;
        self
    }

    /// Sets when the failure was seen last.
    pub fn last_seen(mut self, time: Timestamp) -> Self {
        self.lesson.last_seen = stamp::known(time);
        self
    }

    /// Sets when the failure was seen first.
    pub fn first_seen(mut self, time: Timestamp) -> Self {
        self.lesson.first_seen = stamp::known(time);
        self
    }

    /// Sets where the lesson holds, such as a repository.
    pub fn scope(mut self, text: impl Into<String>) -> Self {
        self.lesson.scope = text.into();
        self
    }

    /// Sets further facts.
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// Returns the lesson.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidLesson::EmptyId`] when the id is empty.
    pub fn build(self) -> Result<Lesson, InvalidLesson> {
        let mut changes: Vec<(&str, Option<String>)> = Vec::new();
        for (key, text) in self.lesson.texts().into_iter().filter(is_written) {
            changes.push((key, Some(members::quote(text))));
        }
        changes.push(("times_seen", Some(self.lesson.times_seen.to_string())));
        for (key, time) in
            [("last_seen", self.lesson.last_seen), ("first_seen", self.lesson.first_seen)]
        {
            changes.push((key, time.map(|time| members::quote(&time.to_string()))));
        }
        if !self.metadata.is_empty() {
            changes.push(("metadata", Some(Value::Object(self.metadata).to_string())));
        }
        let mut lesson = self.lesson;
        lesson.set_raw(&Members(Vec::new()).with(&changes));
        lesson.stored(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_is_stored_as_it_is_exactly_if_it_would_be_written_so() {
        const TIME: &str =
            r#""last_seen":"2026-01-31T09:30:00Z","first_seen":"2026-01-31T09:30:00Z""#;
        for line in [
            r#"{"id":"a","times_seen":1}"#,
            r#"{"id":"a"}"#,
            r#"{"id":"a","times_seen":null}"#,
            r#"{"id":"a","times_seen":2,"times_seen":null}"#,
            r#"{"id":"a","x":{"times_seen":1}}"#,
            "{\"id\":\"a\",\n\"times_seen\":1}",
            "{\"id\":\"a\",\r\"times_seen\":1}",
            r#"{"id":"a\u00e9\n","times_seen":3,"failure_msg":"\"","helpful":2,"scope":7}"#,
            r#"{"id":"a","id":"b","times_seen":3,"deleted_at":"now","metadata":{"k":1}}"#,
            &format!(r#"{{"id":"a","times_seen":5,"task_type":"t",{TIME}}}"#),
        ] {
            let lesson = Lesson::parse_line(line).unwrap();
            assert_eq!(lesson.is_as_read(), lesson.to_line() == line, "{line}");
            let changes: [fn(&mut Lesson); 13] = [
                |l| l.id.push('!'),
                |l| l.task_type.push('!'),
                |l| l.activity_type.push('!'),
                |l| l.failure_type.push('!'),
                |l| l.failure_msg.push('!'),
                |l| l.resolution.push('!'),
                |l| l.pattern.push('!'),
                |l| l.scope.push('!'),
                |l| l.times_seen += 1,
                |l| l.helpful += 1,
                |l| l.harmful += 1,
                |l| l.last_seen = Some(Timestamp::UNIX_EPOCH),
                |l| l.first_seen = Some(Timestamp::UNIX_EPOCH),
            ];
            for change in changes {
                let mut lesson = lesson.clone();
                change(&mut lesson);
                assert!(!lesson.is_as_read(), "{line}");
                assert_ne!(lesson.stored(999).unwrap().raw(), line);
            }
        }
    }
}
