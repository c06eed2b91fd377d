//! Files that are whole or absent after any crash, for the owner's eyes only.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The version of every file that is written here.
pub(crate) const VERSION: u32 = 1;

/// The first thing that is read of any file: what it is, and of which version.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) format: Cow<'static, str>,
    pub(crate) version: u32,
}

#[derive(Serialize)]
struct Document<'a, T> {
    format: &'a str,
    version: u32,
    #[serde(flatten)]
    value: &'a T,
}

pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::StateIo { action: action.into(), path: path.to_owned(), source }
}

/// Makes `dir` with mode 0700, or closes an existing one to others, durably.
pub(crate) fn private_dir(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        let mode = fs::metadata(dir).map_err(io("read", dir))?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(dir, Permissions::from_mode(0o700))
                .map_err(io("close to others", dir))?;
        }
        return Ok(());
    }
    make(dir)
}

/// Makes `dir` and what is missing above it. Each entry is on the disk when this returns: with an
/// entry lost, all that is recorded below would be lost.
fn make(dir: &Path) -> Result<(), Error> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent
        && !parent.exists()
    {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        // Somebody else made it meanwhile, or it ends in a dot.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made.map_err(io("create", dir))?,
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(io("write", dir))
}

/// Returns options for a file that only the owner may open.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Writes `value` under a header to `dir/name`, and returns when it is on the disk.
pub(crate) fn write<T: Serialize>(
    dir: &Path,
    name: &str,
    format: &str,
    value: &T,
) -> Result<(), Error> {
    let path = dir.join(name);
    let temporary = dir.join(format!("{name}.tmp"));
    let written = (|| {
        let file = private().write(true).create(true).truncate(true).open(&temporary)?;
        let mut file = BufWriter::new(file);
        serde_json::to_writer(&mut file, &Document { format, version: VERSION, value })?;
        file.write_all(b"\n")?;
        file.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, &path)
    })();
    written.map_err(io("write", &path))?;
    sync_dir(dir)
}

/// Checks that `header` is JSON of `format` in a version that is known.
pub(crate) fn check_header(path: &Path, header: &[u8], format: &str) -> Result<(), Error> {
    let fault = |problem: String| Error::StateFile { path: path.to_owned(), problem };
    let header: Header = serde_json::from_slice(header).map_err(|error| {
        fault(format!("is damaged ({error}); restore it, or use a new state folder"))
    })?;
    if header.format != format {
        return Err(fault(format!("is a `{}`, not a `{format}`; move it away", header.format)));
    }
    if header.version != VERSION {
        return Err(fault(format!(
            "has version {}, and only version {VERSION} is known; use the program that wrote it",
            header.version
        )));
    }
    Ok(())
}

/// Reads what [`write`] wrote.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, format: &str) -> Result<T, Error> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    check_header(path, &bytes, format)?;
    serde_json::from_slice(&bytes).map_err(|error| Error::StateFile {
        path: path.to_owned(),
        problem: format!("is damaged ({error}); restore it, or use a new state folder"),
    })
}
