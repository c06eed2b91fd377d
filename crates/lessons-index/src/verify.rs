use std::collections::BTreeSet;
use std::path::Path;

use crate::error::OpenError;
use crate::options::Options;
use crate::query::Query;
use crate::source::Source;
use crate::state::{Change, State};

/// Says whether an index is what its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Lessons of the file.
    pub lessons: usize,
    /// The ids, in order, whose line in memory is not the one of the file, or is in one of the two
    /// only. [`reload`](crate::LessonsIndex::reload) sets it right.
    pub stale: Vec<String>,
}

impl Verified {
    /// Returns whether nothing differs.
    pub fn is_right(&self) -> bool {
        self.stale.is_empty()
    }
}

/// Reads a file beside what is in memory, and compares.
pub(crate) fn verify(state: &State, path: &Path, options: &Options) -> Result<Verified, OpenError> {
    let mut source = Source::new(path.to_owned(), options.clone());
    source.reload()?;
    let (pending, summary) = source.take_pending();
    let change = Change { fresh: pending.fresh, lessons: pending.lessons, summary };
    let file = State::default().with(change, &mut |_, _, _| {});
    let mut differing = BTreeSet::new();
    for (one, other) in [(state, &file), (&file, state)] {
        for lesson in Query::new(one).iter() {
            if other.find(lesson.id()) != Some(lesson) {
                differing.insert(lesson.id().to_owned());
            }
        }
    }
    Ok(Verified { lessons: file.alive, stale: differing.into_iter().collect() })
}
