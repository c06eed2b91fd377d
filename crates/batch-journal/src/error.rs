//! Why a journal cannot be opened, and what SQLite's errors mean for one that is.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch_core::{JournalError, JournalErrorKind};
use rusqlite::ErrorCode;

/// Why a journal cannot be opened. Nothing that it holds has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another part of this one, has the journal open.
    #[error("\"{path}\" is held by {holder}; end it, or wait for it", path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What the holder said of itself.
        holder: String,
    },
    /// A newer version of this program wrote the file.
    #[error(
        "\"{path}\" has version {version}, and only version {known} is known; \
         use the program that wrote it",
        path = .path.display()
    )]
    Newer {
        /// The data file.
        path: PathBuf,
        /// The version of the file.
        version: i32,
        /// The version that is known.
        known: i32,
    },
    /// The file was made by something else.
    #[error("\"{path}\" is not a journal: {what}; choose another folder", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How that can be seen.
        what: String,
    },
    /// The file does not hold what was stored.
    #[error(
        "\"{path}\" is damaged: {what}; keep a copy of the folder, then restore it from a backup, \
         or move it away and start with nothing",
        path = .path.display()
    )]
    Corrupt {
        /// The data file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is no journal in the folder.
    #[error("there is no journal in \"{path}\"", path = .path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Others may write to the folder, and could put another file in the place of ours.
    #[error(
        "\"{path}\" may be written to by others (mode {mode:o}); use a folder of its own, \
         or `chmod 700`",
        path = .path.display()
    )]
    Exposed {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The operating system or SQLite could not do something.
    #[error("cannot {action} \"{path}\"", path = .path.display())]
    Io {
        /// What could not be done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Whatever SQLite says of a file that it has opened and cannot read is damage, unless the
    /// reason lies outside the file.
    pub(crate) fn sqlite(action: &'static str, path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        move |error| match outside(&error) {
            Some(kind) => {
                let source = io::Error::new(kind, error);
                Self::Io { action, path: path.to_owned(), source }
            }
            None => Self::Corrupt { path: path.to_owned(), what: error.to_string() },
        }
    }
}

/// Returns the kind of an error that is not about the content of the file.
fn outside(error: &rusqlite::Error) -> Option<io::ErrorKind> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(io::ErrorKind::StorageFull),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Some(io::ErrorKind::PermissionDenied),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Some(io::ErrorKind::WouldBlock),
        ErrorCode::OutOfMemory => Some(io::ErrorKind::OutOfMemory),
        ErrorCode::CannotOpen
        | ErrorCode::SystemIoFailure
        | ErrorCode::NoLargeFileSupport
        | ErrorCode::FileLockingProtocolFailed => Some(io::ErrorKind::Other),
        _ => None,
    }
}

/// What became of a request, in a form that all who shared a transaction can have.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: JournalErrorKind,
    pub(crate) message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
    /// Whether the file is in doubt afterwards. If not, the request is refused and others go on.
    pub(crate) stops: bool,
}

impl Failure {
    pub(crate) fn new(kind: JournalErrorKind, message: String) -> Self {
        Self { kind, message, source: None, stops: false }
    }

    pub(crate) fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    pub(crate) fn stopping(mut self) -> Self {
        self.stops = true;
        self
    }

    /// Says whether a request of its own may fare better: what it asks for is the reason.
    pub(crate) fn is_of_a_request(&self) -> bool {
        use JournalErrorKind::{Duplicate, Full, TooLarge};
        matches!(self.kind, Duplicate | Full | TooLarge)
    }

    /// The one who wrote for others is gone.
    pub(crate) fn panicked() -> Self {
        let what = "the thread that wrote for several panicked; open the journal anew";
        Self::new(JournalErrorKind::Stopped, what.to_owned())
    }

    /// What SQLite says to a transaction.
    pub(crate) fn sqlite(action: &str, path: &Path, error: rusqlite::Error) -> Self {
        let (kind, stops) = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => (JournalErrorKind::Full, false),
            Some(ErrorCode::TooBig) => (JournalErrorKind::TooLarge, false),
            Some(ErrorCode::OutOfMemory | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (JournalErrorKind::Io, false)
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                (JournalErrorKind::Corrupt, true)
            }
            _ => (JournalErrorKind::Io, true),
        };
        let message = format!("cannot {action} \"{}\"", path.display());
        Self { kind, message, source: Some(Arc::new(error)), stops }
    }
}

impl From<Failure> for JournalError {
    fn from(failure: Failure) -> Self {
        let error = JournalError::new(failure.kind, failure.message);
        match failure.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}
