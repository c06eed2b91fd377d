//! Which names a branch may have.

use gix::refs::FullName;

/// Why a name is no branch name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefNameError {
    /// The name is empty.
    #[error("the branch name is empty")]
    Empty,
    /// The name is the full name of a ref.
    #[error(
        "{name:?} is the full name of a ref; give a branch by its short name, such as {short:?}"
    )]
    Full {
        /// The name at fault.
        name: String,
        /// The part after `refs/heads/`, or after `refs/` if it names no branch.
        short: String,
    },
    /// The name breaks one of git's rules.
    #[error("{name:?} is no branch name: {why}")]
    Invalid {
        /// The name at fault.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
}

/// Returns the full name `refs/heads/<name>` of the branch `name`.
///
/// Refuses what `git check-ref-format --branch` refuses, what no file system can hold (a component
/// of more than 250 bytes), and two kinds of names that git takes but nobody means: `refs/...`,
/// which would become `refs/heads/refs/...`, and the shorthands `@{-1}` and `@`, which mean another
/// branch from one moment to the next.
///
/// # Errors
/// The first rule that the name breaks, with the name.
///
/// # Examples
/// ```
/// use git_batch::guard::refname::branch;
///
/// assert_eq!(branch("agent/fix-7").expect("valid").as_bstr(), "refs/heads/agent/fix-7");
/// assert_eq!(
///     branch("--force").expect_err("an option").to_string(),
///     r#""--force" is no branch name: it begins with "-""#
/// );
/// ```
pub fn branch(name: &str) -> Result<FullName, RefNameError> {
    if name.is_empty() {
        return Err(RefNameError::Empty);
    }
    if let Some(rest) = name.strip_prefix("refs/") {
        let short = rest.strip_prefix("heads/").unwrap_or(rest);
        return Err(RefNameError::Full { name: name.to_owned(), short: short.to_owned() });
    }
    let invalid = |why| RefNameError::Invalid { name: name.to_owned(), why };
    if let Some(why) = broken_rule(name) {
        return Err(invalid(why));
    }
    // The rules above are meant to be complete; gix has the last word.
    FullName::try_from(format!("refs/heads/{name}")).map_err(|_| invalid("git does not allow it"))
}

/// A ref is a file, and beside it stands its lock with five bytes more.
const MAX_COMPONENT_LEN: usize = 250;

fn broken_rule(name: &str) -> Option<&'static str> {
    if name.starts_with('-') {
        return Some("it begins with \"-\"");
    }
    if name == "HEAD" || name == "@" {
        return Some("it means the commit that is checked out");
    }
    if name.contains("@{") {
        return Some("it holds \"@{\"");
    }
    if name.contains("..") {
        return Some("it holds \"..\"");
    }
    if name.ends_with('.') {
        return Some("it ends with a dot");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return Some("it holds a control character");
    }
    if name.contains([' ', '~', '^', ':', '?', '*', '[', '\\']) {
        return Some("it holds a space or one of ~ ^ : ? * [ \\");
    }
    for component in name.split('/') {
        if component.is_empty() {
            return Some("it begins or ends with a slash, or holds two in a row");
        }
        if component.starts_with('.') {
            return Some("a component begins with a dot");
        }
        if component.len() > MAX_COMPONENT_LEN {
            return Some("a component is longer than 250 bytes, which no file system takes");
        }
        if component.strip_suffix(".lock").is_some() {
            return Some("a component ends with \".lock\"");
        }
    }
    None
}
