//! Lessons as agents write them, and the ways to keep them that ours is compared with.

mod corpus;
mod port;
mod sqlite;

pub use corpus::Corpus;
pub use port::{Lesson, Port};
pub use sqlite::Sqlite;
