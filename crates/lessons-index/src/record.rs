//! One line as it was parsed, borrowed from the line where that can be.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::fault::{FaultKind, LineError};
use crate::stamp;
use crate::text;

/// A field with an exact index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    TaskType,
    ActivityType,
    FailureType,
    Pattern,
}

impl Field {
    pub(crate) const ALL: [Self; 4] =
        [Self::TaskType, Self::ActivityType, Self::FailureType, Self::Pattern];
}

/// A key that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Id,
    Exact(Field),
    FailureMsg,
    Resolution,
    TimesSeen,
    LastSeen,
    FirstSeen,
    Metadata,
    /// The keys from here on are not the seed's: a value of the wrong type is no fault.
    Scope,
    Helpful,
    Harmful,
    DeletedAt,
}

impl Key {
    /// How many there are.
    pub(crate) const COUNT: usize = 15;

    /// Numbers the keys from 0.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Id => 0,
            Self::Exact(field) => 1 + field as usize,
            Self::FailureMsg => 5,
            Self::Resolution => 6,
            Self::TimesSeen => 7,
            Self::LastSeen => 8,
            Self::FirstSeen => 9,
            Self::Metadata => 10,
            Self::Scope => 11,
            Self::Helpful => 12,
            Self::Harmful => 13,
            Self::DeletedAt => 14,
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "task_type" => Self::Exact(Field::TaskType),
            "activity_type" => Self::Exact(Field::ActivityType),
            "failure_type" => Self::Exact(Field::FailureType),
            "pattern" => Self::Exact(Field::Pattern),
            "failure_msg" => Self::FailureMsg,
            "resolution" => Self::Resolution,
            "times_seen" => Self::TimesSeen,
            "last_seen" => Self::LastSeen,
            "first_seen" => Self::FirstSeen,
            "metadata" => Self::Metadata,
            "scope" => Self::Scope,
            "helpful" => Self::Helpful,
            "harmful" => Self::Harmful,
            "deleted_at" => Self::DeletedAt,
            _ => return None,
        })
    }
}

/// A value as far as a lesson needs it.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Text(Cow<'a, str>),
    Count(u64),
    Null,
    Object,
    /// A string with half of a surrogate pair.
    Broken,
    Other,
}

/// Is a line, field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) id: Cow<'a, str>,
    /// By [`Field`].
    pub(crate) exact: [Cow<'a, str>; 4],
    pub(crate) failure_msg: Cow<'a, str>,
    pub(crate) resolution: Cow<'a, str>,
    pub(crate) scope: Cow<'a, str>,
    pub(crate) times_seen: u64,
    pub(crate) last_seen: Option<Timestamp>,
    pub(crate) first_seen: Option<Timestamp>,
    pub(crate) helpful: u64,
    pub(crate) harmful: u64,
    pub(crate) is_tombstone: bool,
}

impl Default for Record<'_> {
    fn default() -> Self {
        Self {
            id: Cow::Borrowed(""),
            exact: Default::default(),
            failure_msg: Cow::Borrowed(""),
            resolution: Cow::Borrowed(""),
            scope: Cow::Borrowed(""),
            times_seen: 1,
            last_seen: None,
            first_seen: None,
            helpful: 0,
            harmful: 0,
            is_tombstone: false,
        }
    }
}

impl<'a> Record<'a> {
    /// Takes a value. Of a repeated key the last holds, as in every JSON library that keeps one;
    /// `null` is the same as an absent key.
    pub(crate) fn set(&mut self, name: &str, key: Key, value: Value<'a>) -> Result<(), LineError> {
        match key {
            Key::Id => match value {
                Value::Text(id) => self.id = id,
                Value::Null => {}
                _ => return Err(LineError::new(FaultKind::NoId, "\"id\" is not a string")),
            },
            Key::Exact(field) => put(&mut self.exact[field as usize], name, value)?,
            Key::FailureMsg => put(&mut self.failure_msg, name, value)?,
            Key::Resolution => put(&mut self.resolution, name, value)?,
            Key::TimesSeen => match value {
                Value::Count(count) => self.times_seen = count,
                Value::Null => {}
                _ => return Err(wrong(name, "a whole number from 0 to 2^64 - 1")),
            },
            Key::LastSeen => put_time(&mut self.last_seen, name, &value)?,
            Key::FirstSeen => put_time(&mut self.first_seen, name, &value)?,
            Key::Metadata => match value {
                Value::Object | Value::Null => {}
                _ => return Err(wrong(name, "an object")),
            },
            Key::Scope => {
                if let Value::Text(text) = value {
                    self.scope = text;
                }
            }
            Key::Helpful | Key::Harmful => {
                let votes = if key == Key::Helpful { &mut self.helpful } else { &mut self.harmful };
                if let Value::Count(count) = value {
                    *votes = count;
                }
            }
            Key::DeletedAt => {
                if let Value::Text(text) = value {
                    self.is_tombstone = !text.is_empty();
                }
            }
        }
        Ok(())
    }

    /// Returns the record if it has an id.
    pub(crate) fn finish(self) -> Result<Self, LineError> {
        if self.id.is_empty() {
            return Err(LineError::new(FaultKind::NoId, "\"id\" is missing or empty"));
        }
        Ok(self)
    }
}

fn put<'a>(field: &mut Cow<'a, str>, key: &str, value: Value<'a>) -> Result<(), LineError> {
    match value {
        Value::Text(text) => *field = text,
        Value::Null => {}
        Value::Broken => return Err(wrong(key, "text: it has half of a surrogate pair")),
        _ => return Err(wrong(key, "a string")),
    }
    Ok(())
}

fn put_time(field: &mut Option<Timestamp>, key: &str, value: &Value<'_>) -> Result<(), LineError> {
    const WANTED: &str = "an RFC 3339 time such as 2026-01-31T09:30:00Z";
    match value {
        Value::Text(text) => {
            *field = stamp::parse(text).map_err(|_| {
                wrong(key, &format!("{WANTED}: {:?}", text::excerpt(text.as_bytes(), 40)))
            })?;
        }
        Value::Null => {}
        _ => return Err(wrong(key, WANTED)),
    }
    Ok(())
}

fn wrong(key: &str, wanted: &str) -> LineError {
    LineError::new(FaultKind::Malformed, format!("{key:?} is not {wanted}"))
}
