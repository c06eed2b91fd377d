use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::{Fault, LineError};

/// Says why a file of lessons could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist, and was to.
    #[error("no such file {path:?}; check the path, or add a first lesson to create it")]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The folder that is to hold the file does not exist.
    #[error("no such folder {folder:?} for the file {path:?}; create it first")]
    NoFolder {
        /// The path that was given.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// The path names a folder, a device or another thing that is no file.
    #[error("{path:?} is {found}, not a file; name a file of JSON lines")]
    NotAFile {
        /// The path that was given.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file cannot be opened or read.
    #[error("cannot read {path:?}; check that it is there, and who may read it")]
    Read {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is over the cap.
    #[error("{path:?} has {bytes} bytes, the cap is {max}; compact it, or raise max_file_bytes")]
    TooLarge {
        /// The path that was given.
        path: PathBuf,
        /// How long the file is.
        bytes: u64,
        /// The cap.
        max: u64,
    },
    /// A line is broken, in strict mode.
    #[error("{path:?}, {fault}")]
    Fault {
        /// The path that was given.
        path: PathBuf,
        /// The first broken line.
        fault: Box<Fault>,
    },
    /// No thread or no watch of the system could be had.
    #[error("cannot watch {path:?}; call refresh instead")]
    Watch {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The writer could not be set up.
    #[error("cannot start the writer for {path:?}")]
    Writer {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Says why a lesson cannot be stored as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLesson {
    /// The id is empty.
    #[error("a lesson needs an id that is not empty")]
    EmptyId,
    /// The line is over the cap.
    #[error("lesson {id:?} takes {bytes} bytes, the cap is {max}; shorten failure_msg or metadata")]
    TooLong {
        /// The id of the lesson.
        id: String,
        /// The length of its line.
        bytes: usize,
        /// The cap.
        max: usize,
    },
    /// The line would not be read back.
    #[error("lesson {id:?} cannot be written as a line")]
    Unreadable {
        /// The id of the lesson.
        id: String,
        /// What is wrong with the line.
        source: LineError,
    },
}

/// Says why a batch of lessons was not added. Nothing of the batch is in the file then, except
/// after [`Torn`](Self::Torn), [`Unread`](Self::Unread) and [`Replaced`](Self::Replaced).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The lock file beside the data cannot be taken.
    #[error(
        "cannot lock {path:?}; its folder must exist and be writable, or the lock file be there and \
         readable, and the file system must have locks"
    )]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the lock for longer than a writer may wait.
    #[error(
        "{path:?} is still locked after {waited:?}, by {}; end that process, or wait longer with \
         lock_timeout",
        by.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// How long the writer waited.
        waited: Duration,
        /// The process that has the lock, where the system tells; never one of another machine.
        by: Option<u32>,
    },
    /// What other processes wrote before cannot be read.
    #[error(transparent)]
    Refresh(#[from] OpenError),
    /// The file cannot be opened for writing.
    #[error("cannot open {path:?} for writing; check who may write to it and to its folder")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file would be over the cap, and was left as it is.
    #[error(
        "{path:?} would have {bytes} bytes, the cap is {max}; compact it, or raise max_file_bytes"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// How long the file would be.
        bytes: u64,
        /// The cap.
        max: u64,
    },
    /// The write or the sync failed and was undone.
    #[error("cannot write to {path:?}; the file is as it was before")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The write failed, and so did undoing it.
    #[error("cannot write to {path:?}, and its end may be torn ({undo}); check the file")]
    Torn {
        /// The file.
        path: PathBuf,
        /// Why the write failed.
        source: io::Error,
        /// Why undoing it failed.
        undo: io::Error,
    },
    /// The batch is in the file, but what another process wrote right behind it cannot be read.
    /// The next refresh reads the file again.
    #[error("the lessons were written, but the file cannot be read back")]
    Unread(#[source] OpenError),
    /// Another program replaced the file while it was written, and then the new one could not be
    /// written, or was replaced as well, again and again. The batch may be in the file that is there
    /// now, if that was made of the one before, or in none.
    #[error("{path:?} was replaced while it was written; look whether the lessons are in it")]
    Replaced {
        /// The file.
        path: PathBuf,
        /// Why the new one was not written; `None` if each was replaced.
        source: Option<Box<Self>>,
    },
}

impl WriteError {
    /// Returns whether something of the batch may be in the file in spite of the error.
    pub fn has_changed_file(&self) -> bool {
        matches!(self, Self::Torn { .. } | Self::Unread(_) | Self::Replaced { .. })
    }
}

/// Says why a lesson was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The lesson cannot be stored as it is.
    #[error(transparent)]
    Invalid(#[from] InvalidLesson),
    /// The batch that the lesson was in could not be written; all of its lessons get this error.
    #[error("cannot add lesson {id:?}")]
    Write {
        /// The id of the lesson.
        id: String,
        /// What went wrong.
        source: Arc<WriteError>,
    },
    /// The writer did not take the lesson, or gave no answer for it.
    #[error("lesson {id:?} was not added: {reason}")]
    Refused {
        /// The id of the lesson.
        id: String,
        /// What the writer said.
        reason: String,
    },
}

/// Says that text to look for is empty, which would be in every lesson.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text to look for is empty; leave the condition out to find all lessons")]
#[non_exhaustive]
pub struct EmptyNeedle;
