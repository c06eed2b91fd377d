//! A file that is open, and which one it is.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;

/// Is a file that is open. Which one that is never changes, so it is asked for once.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    identity: Identity,
}

/// Tells files apart, of which one at least is open: the number of a file that was removed goes to
/// the next.
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

    /// Returns whether this is what is known of the same file, whatever it was found by.
    pub(crate) fn is(&self, other: &Metadata) -> bool {
        self.identity == Identity::of(other)
    }
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}
