//! Folders and files of a work tree, opened one component at a time and never through a symlink.
//!
//! A path is looked up while an agent may be writing there. Were it opened as a whole, a folder
//! that is replaced by a symlink in between would lead out of the work tree.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use bstr::{BStr, BString};
use gix::index::entry::{Stat, stat::Time};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

/// How often a file is read again that changes while it is read.
const MAX_READS: u32 = 5;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// What stands under a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) stat: Stat,
    /// The whole size, in bytes.
    pub(super) size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        is_executable: bool,
    },
    Symlink,
    Folder,
    /// A pipe, a socket or a device.
    Special,
}

impl Folder {
    /// Opens the top of a work tree.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens a folder in this one.
    pub(super) fn enter(&self, name: &BStr) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::openat(&self.0, &**name, flags, Mode::empty())?))
    }

    /// The names in the folder, sorted.
    pub(super) fn names(&self) -> io::Result<Vec<BString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.0.as_fd())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(BString::from(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// What stands under `name`; `None` if nothing does.
    pub(super) fn look(&self, name: &BStr) -> io::Result<Option<Found>> {
        match rustix::fs::statat(&self.0, &**name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::of(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of the file or the target of the symlink `name`, with what was there when all
    /// of it was read. `Ok(None)` if it is neither any more.
    pub(super) fn read(&self, name: &BStr) -> io::Result<Option<(Found, Vec<u8>)>> {
        for _ in 0..MAX_READS {
            let Some(before) = self.look(name)? else { return Ok(None) };
            let content = match before.kind {
                Kind::File { .. } => self.read_file(name),
                Kind::Symlink => self.read_symlink(name),
                Kind::Folder | Kind::Special => return Ok(None),
            };
            let content = match content {
                Ok(content) => content,
                // It is another kind of file by now, or gone.
                Err(error) if is_swapped(&error) => continue,
                Err(error) => return Err(error),
            };
            let after = self.look(name)?;
            if after.is_some_and(|after| after.stat == before.stat) {
                return Ok(Some((before, content)));
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "it changes while it is read"))
    }

    fn read_file(&self, name: &BStr) -> io::Result<Vec<u8>> {
        // Not to be held up by a pipe that took the place of the file.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(rustix::fs::openat(&self.0, &**name, flags, Mode::empty())?);
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut content = Vec::with_capacity(usize::try_from(data.len()).unwrap_or_default());
        file.read_to_end(&mut content)?;
        Ok(content)
    }

    fn read_symlink(&self, name: &BStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, &**name, Vec::new())?.into_bytes())
    }
}

impl Found {
    fn of(stat: &rustix::fs::Stat) -> Found {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File { is_executable: stat.st_mode & 0o100 != 0 },
            FileType::Symlink => Kind::Symlink,
            FileType::Directory => Kind::Folder,
            _ => Kind::Special,
        };
        let stat_of = Stat {
            mtime: Time { secs: low(stat.st_mtime), nsecs: low(stat.st_mtime_nsec) },
            ctime: Time { secs: low(stat.st_ctime), nsecs: low(stat.st_ctime_nsec) },
            dev: low(stat.st_dev),
            ino: low(stat.st_ino),
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: low(stat.st_size),
        };
        Found { kind, stat: stat_of, size: u64::try_from(stat.st_size).unwrap_or_default() }
    }
}

/// The low 32 bits, which are all that an index keeps.
fn low(value: impl Into<i128>) -> u32 {
    u32::try_from(value.into() & 0xffff_ffff).unwrap_or_default()
}

/// Whether the name stands for something else than it did a moment ago.
fn is_swapped(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == io::ErrorKind::NotFound
        || [Errno::LOOP, Errno::INVAL, Errno::NOTDIR, Errno::NXIO]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
