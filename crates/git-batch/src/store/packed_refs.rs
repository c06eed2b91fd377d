//! The file `packed-refs`, read and rewritten with everything in it that is not ours to change.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;

use crate::disk;

/// The name of the file below the common directory.
pub(super) const NAME: &str = "packed-refs";

/// Where the new one is written before it takes the place of the old one.
const TEMPORARY: &str = "batchyard/packed-refs";

const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// What the file says.
#[derive(Debug)]
pub(super) struct PackedRefs {
    path: PathBuf,
    header: Vec<u8>,
    /// The lines of each ref: its own, and what the tag points to.
    entries: BTreeMap<BString, Vec<u8>>,
}

impl PackedRefs {
    /// Reads the file; that there is none is fine.
    pub(super) fn read(common_dir: &Path) -> io::Result<PackedRefs> {
        let path = common_dir.join(NAME);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut packed = PackedRefs { path, header: Vec::new(), entries: BTreeMap::new() };
        let mut last: Option<&mut Vec<u8>> = None;
        for (at, line) in text.lines_with_terminator().enumerate() {
            match (line.first(), last.take()) {
                (Some(b'#'), None) => packed.header.extend_from_slice(line),
                (Some(b'^'), Some(entry)) => {
                    entry.extend_from_slice(line);
                    last = Some(entry);
                }
                _ => {
                    // A name may end in what Unicode takes for a blank.
                    let name = line.strip_suffix(b"\n").and_then(|line| line.split_once_str(" "));
                    let Some((_, name)) = name else {
                        let message = format!("{NAME}: line {} is no line about a ref", at + 1);
                        return Err(io::Error::other(message));
                    };
                    let entry = packed.entries.entry(name.into()).or_default();
                    line.clone_into(entry);
                    last = Some(entry);
                }
            }
        }
        if text.is_empty() {
            HEADER.clone_into(&mut packed.header);
        }
        Ok(packed)
    }

    /// What the file has for a ref; an error where that is no id.
    pub(super) fn get(&self, name: &BStr) -> io::Result<Option<ObjectId>> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let hex = entry.split_once_str(" ").map_or(&entry[..], |(hex, _)| hex);
        ObjectId::from_hex(hex).map(Some).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Sets what the file has for a ref that points to a commit.
    pub(super) fn set(&mut self, name: &BStr, id: ObjectId) {
        self.entries.insert(name.to_owned(), format!("{id} {name}\n").into_bytes());
    }

    /// Writes the new file, durable, beside the old one. Only with the lock of the file.
    pub(super) fn prepare(&self) -> io::Result<NewPackedRefs> {
        // The file may be a link to that of another repository.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let temporary = self.path.with_file_name(TEMPORARY);
        let mut text = self.header.clone();
        self.entries.values().for_each(|lines| text.extend_from_slice(lines));
        disk::write_synced(&temporary, &text)?;
        Ok(NewPackedRefs { temporary, path })
    }
}

/// The new file, not in place yet.
#[derive(Debug)]
pub(super) struct NewPackedRefs {
    temporary: PathBuf,
    path: PathBuf,
}

impl NewPackedRefs {
    /// Puts the new file in the place of the old one, all its refs at once.
    pub(super) fn commit(self) -> io::Result<()> {
        disk::rename(&self.temporary, &self.path)
    }
}
