//! Which paths may stand in a tree.

use bstr::{BStr, BString};

/// Why a path may not stand in a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty; name a file below the root of the repository")]
    Empty,
    /// The path holds a component that is a disguise of `.git`.
    #[error("path {path:?} holds {component:?}, which some file systems read as \".git\"")]
    DotGit {
        /// The whole path.
        path: BString,
        /// The component at fault.
        component: BString,
    },
}

/// Checks a path.
///
/// # Errors
/// The path is refused.
pub fn check(path: &BStr) -> Result<(), PathError> {
    if path.is_empty() { Err(PathError::Empty) } else { Ok(()) }
}

/// Checks the path of a symlink.
///
/// # Errors
/// The path is refused.
pub fn check_symlink(path: &BStr) -> Result<(), PathError> {
    check(path)
}
