//! Which names a branch may have.

/// Why a name is no branch name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefNameError {
    /// The name is empty.
    #[error("the branch name is empty")]
    Empty,
    /// The name is against git's rules.
    #[error("{name:?} is no branch name: {why}")]
    Invalid {
        /// The name at fault.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
}

/// Returns the full name of the branch `name`, `refs/heads/<name>`.
///
/// # Errors
/// The name is refused.
pub fn branch(name: &str) -> Result<gix::refs::FullName, RefNameError> {
    if name.is_empty() {
        return Err(RefNameError::Empty);
    }
    gix::refs::FullName::try_from(format!("refs/heads/{name}"))
        .map_err(|_| RefNameError::Invalid { name: name.to_owned(), why: "git refuses it" })
}
