//! A file that is open, and which one it is.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Is a file that is open. Which one that is never changes, so it is asked for once.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    identity: Identity,
}

/// Names a file by its device and its number there. Good only while one of the two that are compared
/// is open: the number of a file that was removed is given to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Opened {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let identity = Identity::of(&file.metadata()?);
        Ok(Self { file, identity })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether `other` is the metadata of this file.
    pub(crate) fn is(&self, other: &Metadata) -> bool {
        self.identity == Identity::of(other)
    }
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}
