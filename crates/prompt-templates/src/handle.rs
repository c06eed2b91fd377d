//! A folder that is open, so that its files can be asked for without the way to them.

#[cfg(unix)]
use std::ffi::CString;
use std::io;
use std::path::Path;

use crate::sighting::Stamp;

/// The name of a file in its folder, as the system takes it: it is asked for at each look.
#[cfg(unix)]
pub(crate) type Name = CString;

/// Returns the name of a file, which has no NUL: the system says that there is such a file.
#[cfg(unix)]
pub(crate) fn name(text: &str) -> Name {
    CString::new(text).unwrap_or_default()
}

/// A folder that is open.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Handle(rustix::fd::OwnedFd);

#[cfg(unix)]
impl Handle {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        // Never a pipe, which would be waited for.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Returns the stamp of the folder, which changes when something in it comes, goes or gets another name.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        rustix::fs::fstat(&self.0).ok().as_ref().map(stamp)
    }

    /// Returns the stamp of a file in the folder, or of what it leads to if it is a link.
    pub(crate) fn stamp_of(&self, name: &Name, is_link: bool) -> Option<Stamp> {
        use rustix::fs::AtFlags;
        let flags = if is_link { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        rustix::fs::statat(&self.0, name.as_c_str(), flags).ok().as_ref().map(stamp)
    }
}

/// Returns the stamp of a file, or nothing for what is no file, or a link to one.
#[cfg(unix)]
pub(crate) fn stamp_of_file(path: &Path) -> Option<Stamp> {
    use rustix::fs::FileType;
    let stat = rustix::fs::lstat(path).ok()?;
    FileType::from_raw_mode(stat.st_mode).is_file().then(|| stamp(&stat))
}

/// The types of the fields differ from system to system.
#[cfg(unix)]
fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    Stamp {
        modified: (stat.st_mtime.into(), stat.st_mtime_nsec.into()),
        changed: (stat.st_ctime.into(), stat.st_ctime_nsec.into()),
        length: stat.st_size.into(),
        node: (stat.st_dev.into(), stat.st_ino.into()),
    }
}

#[cfg(not(unix))]
pub(crate) type Name = String;

#[cfg(not(unix))]
pub(crate) fn name(text: &str) -> Name {
    text.to_owned()
}

/// The path of a folder, where there is no asking without the way.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Handle(std::path::PathBuf);

#[cfg(not(unix))]
impl Handle {
    #[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(path.to_owned()))
    }

    /// Nothing that is certain to change with what the folder holds: it is listed each time.
    #[expect(clippy::unused_self, reason = "it is used on other systems")]
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        None
    }

    pub(crate) fn stamp_of(&self, name: &Name, is_link: bool) -> Option<Stamp> {
        let path = self.0.join(name);
        let data = if is_link { path.metadata() } else { path.symlink_metadata() };
        data.ok().as_ref().and_then(stamp)
    }
}

#[cfg(not(unix))]
pub(crate) fn stamp_of_file(path: &Path) -> Option<Stamp> {
    path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).as_ref().and_then(stamp)
}

#[cfg(not(unix))]
fn stamp(data: &std::fs::Metadata) -> Option<Stamp> {
    let since = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let modified = (since.as_secs().into(), since.subsec_nanos().into());
    Some(Stamp { modified, changed: modified, length: data.len().into(), node: (0, 0) })
}
