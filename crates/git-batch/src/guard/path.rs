//! Which paths may stand in a tree.

use bstr::{BStr, BString, ByteSlice};

/// Why a path may not stand in a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty; name a file below the root of the repository")]
    Empty,
    /// The path begins with a slash.
    #[error(
        "path {0:?} is absolute; name it from the root of the repository, without a leading slash"
    )]
    Absolute(BString),
    /// The path ends with a slash.
    #[error("path {0:?} ends with a slash; name a file, folders come with their files")]
    TrailingSlash(BString),
    /// The path holds two slashes in a row.
    #[error("path {0:?} holds an empty component; write one slash between two names")]
    EmptyComponent(BString),
    /// The path holds a `.` or `..` component.
    #[error(
        "path {0:?} holds a \".\" or \"..\" component; name it from the root of the repository"
    )]
    Relative(BString),
    /// The path holds a NUL byte.
    #[error("path {0:?} holds a NUL byte, which no tree can hold")]
    Nul(BString),
    /// The path is longer than git handles everywhere.
    #[error("path {start:?}... is {len} bytes long; use one of at most {} bytes", MAX_PATH_LEN)]
    TooLong {
        /// How the path begins.
        start: BString,
        /// The length of the path in bytes.
        len: usize,
    },
    /// The path has more folders in each other than can be walked everywhere.
    #[error("path {start:?}... is {depth} folders deep; use at most {}", MAX_DEPTH)]
    TooDeep {
        /// How the path begins.
        start: BString,
        /// How many folders it has.
        depth: usize,
    },
    /// The path holds `.git`, or what some file system takes for it.
    #[error(
        "path {path:?} holds {component:?}, which git or a file system reads as \".git\"; choose another name"
    )]
    DotGit {
        /// The whole path.
        path: BString,
        /// The component at fault.
        component: BString,
    },
    /// A folder or a submodule has the name `.gitmodules` or `.gitattributes`, or what some file
    /// system takes for it.
    #[error(
        "path {path:?} makes {component:?} something else than a file, which git needs to read; choose another name"
    )]
    NotAFile {
        /// The whole path.
        path: BString,
        /// The component at fault.
        component: BString,
    },
    /// A symlink has the name `.gitmodules`, or what some file system takes for it.
    #[error(
        "symlink {path:?} holds {component:?}, which git or a file system reads as \".gitmodules\"; make it a file"
    )]
    GitModules {
        /// The whole path.
        path: BString,
        /// The component at fault.
        component: BString,
    },
}

/// The longest path, in bytes: the longest single name that `git fsck` takes.
const MAX_PATH_LEN: usize = 4096;

/// The most folders in each other. Git itself stops at 2,048; trees are walked by recursion, here
/// and elsewhere, on threads with a small stack too.
const MAX_DEPTH: usize = 512;

/// Checks that a file may be written at `path`, given with `/` between components.
///
/// Refused are empty and absolute paths, empty, `.` and `..` components, NUL bytes, and `.git` in
/// each form that git guards against: any case, the NTFS short name `git~1`, trailing dots and
/// spaces, alternate data streams such as `.git::$INDEX_ALLOCATION`, code points that HFS+
/// ignores, and any of these behind a backslash. A backslash alone is allowed, as git allows it.
/// Refused too is what is found broken later: a path of more than 4,096 bytes or 512 folders, and a
/// folder with the name of `.gitmodules` or `.gitattributes`.
///
/// # Errors
/// The first rule that the path breaks, with the path.
///
/// # Examples
/// ```
/// use git_batch::guard::path::{PathError, check};
///
/// assert_eq!(check("src/main.rs".into()), Ok(()));
/// assert_eq!(check("../secrets".into()), Err(PathError::Relative("../secrets".into())));
/// assert!(matches!(check("vendor/GIT~1/config".into()), Err(PathError::DotGit { .. })));
/// ```
pub fn check(path: &BStr) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.len() > MAX_PATH_LEN {
        return Err(PathError::TooLong { start: path[..64].into(), len: path.len() });
    }
    let depth = path.find_iter("/").count();
    if depth > MAX_DEPTH {
        return Err(PathError::TooDeep { start: path[..64].into(), depth });
    }
    if path.contains(&0) {
        return Err(PathError::Nul(path.to_owned()));
    }
    if path.starts_with(b"/") {
        return Err(PathError::Absolute(path.to_owned()));
    }
    if path.ends_with(b"/") {
        return Err(PathError::TrailingSlash(path.to_owned()));
    }
    let mut components = components(path).peekable();
    while let Some(component) = components.next() {
        match component {
            b"" => return Err(PathError::EmptyComponent(path.to_owned())),
            b"." | b".." => return Err(PathError::Relative(path.to_owned())),
            _ if is_dot_git(component) => {
                return Err(PathError::DotGit {
                    path: path.to_owned(),
                    component: component.into(),
                });
            }
            _ if components.peek().is_some() => check_not_read_by_git(path, component)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a folder or a submodule may be put at `path`: all of [`check`], and no name of a
/// file that git reads, `.gitmodules` and `.gitattributes`.
///
/// # Errors
/// The first rule that the path breaks, with the path.
pub fn check_not_a_file(path: &BStr) -> Result<(), PathError> {
    check(path)?;
    components(path).try_for_each(|component| check_not_read_by_git(path, component))
}

fn check_not_read_by_git(path: &BStr, component: &[u8]) -> Result<(), PathError> {
    if is_dot_gitmodules(component) || is_dot_gitattributes(component) {
        return Err(PathError::NotAFile { path: path.to_owned(), component: component.into() });
    }
    Ok(())
}

/// Checks that a symlink may be written at `path`: all of [`check`], and no disguise of
/// `.gitmodules`, which git must be able to read as a file.
///
/// # Errors
/// The first rule that the path breaks, with the path.
pub fn check_symlink(path: &BStr) -> Result<(), PathError> {
    check(path)?;
    match components(path).find(|component| is_dot_gitmodules(component)) {
        Some(component) => {
            Err(PathError::GitModules { path: path.to_owned(), component: component.into() })
        }
        None => Ok(()),
    }
}

fn components(path: &BStr) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

fn is_dot_git(component: &[u8]) -> bool {
    is_hfs_dot(component, "git") || after_backslashes(component).any(is_ntfs_dot_git)
}

fn is_dot_gitmodules(component: &[u8]) -> bool {
    let is_ntfs = |name| is_ntfs_dot(name, b".gitmodules", b"gitmod~", *b"gi7eba");
    is_hfs_dot(component, "gitmodules") || after_backslashes(component).any(is_ntfs)
}

fn is_dot_gitattributes(component: &[u8]) -> bool {
    let is_ntfs = |name| is_ntfs_dot(name, b".gitattributes", b"gitatt~", *b"gi7d29");
    is_hfs_dot(component, "gitattributes") || after_backslashes(component).any(is_ntfs)
}

/// Yields `name`, and what follows each backslash in it: NTFS separates components there.
fn after_backslashes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(name)
        .chain(name.iter().enumerate().filter(|(_, b)| **b == b'\\').map(|(at, _)| &name[at + 1..]))
}

/// Returns true if HFS+ takes `component` for `.` and `name`: it compares without case and skips
/// code points that are not seen.
///
/// What is no UTF-8 ends the comparison, as it does in git, so that `.git\xff` is refused.
fn is_hfs_dot(component: &[u8], name: &str) -> bool {
    let mut rest = component;
    let mut next = || loop {
        let (decoded, len) = bstr::decode_utf8(rest);
        rest = &rest[len..];
        match decoded? {
            '\u{fffe}' | '\u{ffff}' => return None,
            '\u{200c}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}' => {}
            seen => return Some(seen),
        }
    };
    next() == Some('.')
        && name.chars().all(|want| next().is_some_and(|got| got.eq_ignore_ascii_case(&want)))
        && next().is_none()
}

/// Returns true if NTFS takes `name` for `.git`: without case, by the short name `git~1`, and
/// without regard to trailing dots, spaces and what follows a colon or a backslash.
fn is_ntfs_dot_git(name: &[u8]) -> bool {
    strip_prefix_ignore_case(name, b".git")
        .or_else(|| strip_prefix_ignore_case(name, b"git~1"))
        .is_some_and(|rest| is_ntfs_end(rest, b":\\"))
}

/// Returns true if NTFS takes `name` for `plain`: by its name, by the short names `short` with 1 to
/// 4, or by the hashed short names that follow those, `hashed` with `~1` and on.
fn is_ntfs_dot(name: &[u8], plain: &[u8], short: &[u8], hashed: [u8; 6]) -> bool {
    let short = || {
        strip_prefix_ignore_case(name, short)
            .and_then(|rest| rest.split_first())
            .and_then(|(digit, rest)| matches!(digit, b'1'..=b'4').then_some(rest))
    };
    strip_prefix_ignore_case(name, plain)
        .or_else(short)
        .or_else(|| hashed_short_name(name, hashed))
        .is_some_and(|rest| is_ntfs_end(rest, b":"))
}

/// Returns what follows the eight bytes of a hashed short name: some of `hashed`, `~`, a number.
fn hashed_short_name(name: &[u8], hashed: [u8; 6]) -> Option<&[u8]> {
    let (short, rest) = name.split_at_checked(8)?;
    let tilde = short.find_byte(b'~').filter(|at| *at <= 6)?;
    let (prefix, number) = (&short[..tilde], &short[tilde + 1..]);
    let is_number =
        matches!(number.first(), Some(b'1'..=b'9')) && number.iter().all(u8::is_ascii_digit);
    (prefix.eq_ignore_ascii_case(&hashed[..tilde]) && is_number).then_some(rest)
}

/// Returns true if `rest` does not make a name differ on NTFS: dots and spaces up to its end, or
/// up to one of `ends`.
fn is_ntfs_end(rest: &[u8], ends: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b'.' | b' ')).is_none_or(|byte| ends.contains(byte))
}

fn strip_prefix_ignore_case<'a>(name: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}
