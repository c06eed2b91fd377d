use std::fmt;

use crate::text;

/// Bytes of a broken line that a [`Fault`] shows at most.
pub const EXCERPT_MAX_BYTES: usize = 80;

/// Bytes that say what exactly is wrong.
const DETAIL_MAX_BYTES: usize = 200;

/// Names what is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// No JSON, or a known key with a value of the wrong type.
    Malformed,
    /// JSON, but a list, a string, a number, `true`, `false` or `null`.
    NotAnObject,
    /// An object whose `id` is missing, empty or no string.
    NoId,
    /// A line that a version control system left: `<<<<<<<`, `|||||||`, `=======` or `>>>>>>>`.
    ConflictMarker,
    /// A last line without a line end that is cut short: its writer died, or still writes.
    TornTail,
    /// Two records on one line: a line end between them is missing.
    Welded,
    /// Text in UTF-16, as some shells write it.
    Utf16,
    /// Bytes that are no UTF-8.
    NotUtf8,
    /// A line over the cap of [`Options::with_max_line_bytes`](crate::Options::with_max_line_bytes).
    TooLong,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Malformed,
        Self::NotAnObject,
        Self::NoId,
        Self::ConflictMarker,
        Self::TornTail,
        Self::Welded,
        Self::Utf16,
        Self::NotUtf8,
        Self::TooLong,
    ];

    /// Returns the name in lowercase with underscores, as reports print it.
    ///
    /// ```
    /// assert_eq!(lessons_index::FaultKind::TornTail.as_str(), "torn_tail");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotAnObject => "not_an_object",
            Self::NoId => "no_id",
            Self::ConflictMarker => "conflict_marker",
            Self::TornTail => "torn_tail",
            Self::Welded => "welded",
            Self::Utf16 => "utf16",
            Self::NotUtf8 => "not_utf8",
            Self::TooLong => "too_long",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Is one broken line: where it stands, what is wrong, and how it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The number of the line, from 1.
    pub line: u64,
    /// Where the line begins, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong.
    pub kind: FaultKind,
    /// The start of the line, at most [`EXCERPT_MAX_BYTES`]; bytes that are no UTF-8 are replaced.
    pub excerpt: String,
    /// What exactly is wrong, in words; at most 200 bytes.
    pub detail: String,
}

impl Fault {
    pub(crate) fn new(line: u64, offset: u64, bytes: &[u8], error: LineError) -> Self {
        let excerpt = text::excerpt(bytes, EXCERPT_MAX_BYTES);
        Self { line, offset, kind: error.kind, excerpt, detail: error.detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} (byte {}): {}: {} in {:?}",
            self.line, self.offset, self.kind, self.detail, self.excerpt
        )
    }
}

/// Says why a line is no lesson.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
#[non_exhaustive]
pub struct LineError {
    /// What is wrong.
    pub kind: FaultKind,
    /// What exactly is wrong, in words.
    pub detail: String,
}

impl LineError {
    /// A parser may quote the whole line; of what it says only the start is kept.
    pub(crate) fn new(kind: FaultKind, detail: impl AsRef<str>) -> Self {
        Self { kind, detail: text::excerpt(detail.as_ref().as_bytes(), DETAIL_MAX_BYTES) }
    }
}
