use std::fmt;

use crate::draft::narrow;
use crate::lesson::Lesson;
use crate::mask::mask_into;
use crate::record::{Field, Record};
use crate::segment::Segment;
use crate::table::Table;

/// Names a failure, whatever file, line, number or name it speaks of.
///
/// It is made of the scope, the type and the message with its changing parts masked out: paths,
/// numbers, hashes, quoted and qualified names. Codes such as `E0308` stay. The same on every
/// machine and in every version.
///
/// ```
/// use lessons_index::Fingerprint;
///
/// let one = Fingerprint::of("", "build", "src/a.rs:10: cannot find value `x` (E0425)");
/// let two = Fingerprint::of("", "build", "src/b.rs:99: cannot find value `y` (E0425)");
/// let other = Fingerprint::of("", "build", "src/b.rs:99: cannot find value `y` (E0308)");
/// assert_eq!(one, two);
/// assert_ne!(one, other);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Makes the fingerprint of a failure.
    pub fn of(scope: &str, failure_type: &str, failure_msg: &str) -> Self {
        let len = scope.len() + failure_type.len() + failure_msg.len() + 16;
        let mut text = String::with_capacity(len);
        // With their lengths, so that no text can pass for two others.
        for part in [scope, failure_type] {
            text.push_str(&part.len().to_string());
            text.push(':');
            text.push_str(part);
        }
        mask_into(failure_msg, &mut text);
        let hash = blake3::derive_key("lessons-index 2026-01 fingerprint", text.as_bytes());
        Self(hash[..16].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
    }

    /// Half of it, for a table.
    fn hash(self) -> u64 {
        u64::try_from(self.0 >> 64).expect("half of the bits")
    }

    pub(crate) fn of_lesson(lesson: &Lesson) -> Self {
        Self::of(&lesson.scope, &lesson.failure_type, &lesson.failure_msg)
    }

    pub(crate) fn of_record(record: &Record<'_>) -> Self {
        let failure_type = &record.exact[Field::FailureType as usize];
        Self::of(&record.scope, failure_type, &record.failure_msg)
    }
}

/// Writes 32 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Finds the lessons of a segment by fingerprint.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The newest of each. Eight bytes of a fingerprint tell it apart from nearly all others, and
    /// its lesson from all.
    newest: Table,
    /// The next older lesson with the same fingerprint, or the lesson itself.
    older: Box<[u32]>,
    /// Those of all lessons, for merges, if there are no more than [`Failures::KEPT`]; else empty.
    kinds: Box<[Fingerprint]>,
}

impl Failures {
    /// The fingerprints of so many lessons are kept: a MiB.
    pub(crate) const KEPT: usize = 64 << 10;

    pub(crate) fn of(segment: &Segment) -> Self {
        let kind = |doc| Fingerprint::of_record(&segment.record(doc));
        Self::of_kinds((0..segment.len()).map(kind).collect())
    }

    /// Takes the fingerprints of all lessons in order.
    pub(crate) fn of_kinds(kinds: Vec<Fingerprint>) -> Self {
        let mut all = Table::with_capacity(kinds.len());
        let mut older: Box<[u32]> = (0..narrow(kinds.len())).collect();
        let mut is_newest = vec![true; kinds.len()];
        for doc in (0..narrow(kinds.len())).rev() {
            let kind = kinds[doc as usize];
            if let Some(before) = all.put(kind.hash(), doc, |old| kinds[old as usize] == kind) {
                older[doc as usize] = before;
                is_newest[before as usize] = false;
            }
        }
        // Failures repeat, so that there is far less to keep than room was made for.
        let heads = || (0_u32..).zip(&is_newest).filter(|(_, is_newest)| **is_newest);
        let mut newest = Table::with_capacity(heads().count());
        for (doc, _) in heads() {
            newest.put(kinds[doc as usize].hash(), doc, |_| false);
        }
        let kinds = if kinds.len() <= Self::KEPT { kinds.into() } else { Box::default() };
        Self { newest, older, kinds }
    }

    /// Returns the fingerprint of a lesson, if that is kept.
    pub(crate) fn kind(&self, doc: u32) -> Option<Fingerprint> {
        self.kinds.get(doc as usize).copied()
    }

    /// Returns the lessons with a fingerprint, newest first.
    pub(crate) fn of_kind(
        &self,
        segment: &Segment,
        kind: Fingerprint,
    ) -> impl Iterator<Item = u32> {
        let is_it = |doc| segment.kind(doc) == kind;
        let newest = self.newest.find(kind.hash(), is_it);
        std::iter::successors(newest, |doc| {
            let older = self.older[*doc as usize];
            (older != *doc).then_some(older)
        })
    }
}
