//! What the measurements of the workspace ask for and no caller can reach.

use std::sync::Arc;

use crate::fault::LineError;
use crate::index::LessonsIndex;
use crate::lesson::Lesson;

/// Publishes lessons that are in no file, as the writer of an index does once it has written.
#[derive(Debug)]
pub struct Publisher(LessonsIndex);

impl Publisher {
    /// Takes an index, which does not follow its file from then on.
    pub fn of(index: LessonsIndex) -> Self {
        Self(index)
    }

    /// Parses a line and makes its lesson visible, in place of the one with its id.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the line.
    pub fn publish(&self, line: &str) -> Result<(), LineError> {
        let lesson = Arc::new(Lesson::parse_line(line)?);
        self.0.publish_only(lesson);
        Ok(())
    }
}
