//! What a remote is called, how it is set up, and what it has.

use std::collections::BTreeMap;
use std::ffi::OsString;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;

use super::{PublishError, scrub};
use crate::program::{Git, GitError};

/// What a remote has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteState {
    /// Every ref by full name. Without `HEAD`, and without what annotated tags point to.
    pub refs: BTreeMap<BString, ObjectId>,
    /// The full name of the branch that the remote's `HEAD` names, if it names one that exists.
    pub head: Option<BString>,
}

impl RemoteState {
    /// Returns the full name of the default branch: the one that the remote's `HEAD` names.
    ///
    /// Where that was never made (a bare repository that was filled under another name), it is
    /// `checked_out`, the branch that stands checked out here, if the remote has it, or else the
    /// only branch that it has. `None` if that leaves it open.
    pub fn default_branch(&self, checked_out: Option<&BStr>) -> Option<&BStr> {
        let named = self.head.as_deref().map(BStr::new).into_iter().chain(checked_out);
        let mut known = named.filter_map(|name| self.refs.get_key_value(name));
        if let Some((name, _)) = known.next() {
            return Some(name.as_bstr());
        }
        let mut branches = self.refs.keys().filter(|name| name.starts_with(b"refs/heads/"));
        match (branches.next(), branches.next()) {
            (Some(only), None) => Some(only.as_bstr()),
            _ => None,
        }
    }
}

/// Returns every ref of `remote` (a configured name, a URL or a path) and the branch of its
/// `HEAD`. One process, one round trip; blocks up to the time limit of `git`.
///
/// # Errors
/// The remote is unknown, cannot be reached, or answers what is no list of refs.
pub fn remote_refs(git: &Git, remote: &str) -> Result<RemoteState, PublishError> {
    check_remote(remote)?;
    let output = git.run(["ls-remote", "--symref", "--", remote], None)?;
    if !output.is_success() {
        return Err(PublishError::failed("list the refs of", remote, &output));
    }
    parse(&output.stdout).map_err(|line| PublishError::BadAnswer {
        remote: scrub::line(remote.as_bytes()),
        line: scrub::line(line),
    })
}

/// Reads the output of `git ls-remote --symref`; the error is the line at fault.
fn parse(stdout: &[u8]) -> Result<RemoteState, &[u8]> {
    let mut state = RemoteState::default();
    for line in stdout.lines() {
        let (value, name) = line.split_once_str("\t").ok_or(line)?;
        if let Some(target) = value.strip_prefix(b"ref: ") {
            if name == b"HEAD" {
                state.head = Some(target.into());
            }
            continue;
        }
        let id = ObjectId::from_hex(value).map_err(|_| line)?;
        // The rest is HEAD, peeled tags (`^{}`), and names that git would not take from anybody.
        if is_full_name(name.as_bstr()) {
            state.refs.insert(name.into(), id);
        }
    }
    Ok(state)
}

/// Returns true if `name` is the full name of a ref, below `refs/`.
pub(super) fn is_full_name(name: &BStr) -> bool {
    name.starts_with(b"refs/") && <&gix::refs::FullNameRef>::try_from(name).is_ok()
}

/// Refuses what cannot be passed to git as the name of a remote.
pub(super) fn check_remote(remote: &str) -> Result<(), PublishError> {
    if remote.is_empty() || remote.starts_with('-') || remote.contains(char::is_control) {
        return Err(PublishError::BadName { what: "remote", name: remote.to_owned() });
    }
    Ok(())
}

/// A remote under a name for one command, with the settings of another but for those that make a
/// push write refs here, or push something else than it was asked to.
///
/// Git has no option against moving `refs/remotes/<name>/*` after a push. A push to the bare URL
/// would not move them, but it would lose `pushurl`, `receivepack`, `proxy` and the like.
#[derive(Debug)]
pub(crate) struct Untracked {
    /// The name to push to.
    pub(super) name: String,
    /// Options of `git` that define it.
    pub(super) options: Vec<OsString>,
    /// A name that no remote has, for a remote that has none.
    free: String,
}

impl Untracked {
    /// Settings of a remote that make git write or read other refs than those named.
    const LEFT_OUT: [&str; 7] =
        ["fetch", "push", "mirror", "prune", "prunetags", "tagopt", "followremotehead"];

    /// A name for settings of this remote, and what makes it one if it is a URL.
    pub(super) fn named(&self) -> (String, Vec<OsString>) {
        if self.name == self.free {
            return (self.name.clone(), Vec::new());
        }
        let url = format!("remote.{}.url={}", self.free, self.name);
        (self.free.clone(), vec!["-c".into(), url.into()])
    }

    /// Reads the settings of `remote`; one process. A URL or path has none and stays as it is.
    pub(super) fn of(git: &Git, remote: &str) -> Result<Untracked, GitError> {
        let settings = git.run(["config", "-z", "--get-regexp", r"^remote\..*\."], None)?.stdout;
        Ok(Untracked::from_settings(remote, &settings))
    }

    pub(super) fn from_settings(remote: &str, settings: &[u8]) -> Untracked {
        let settings = || settings.split(|byte| *byte == 0);
        let mut name = "batchyard".to_owned();
        while settings().any(|setting| variable_of(&name, setting).is_some()) {
            name.push('-');
        }
        let options: Vec<OsString> = settings()
            .filter_map(|setting| variable_of(remote, setting))
            .filter(|variable| {
                let end = variable.find_byte(b'\n').unwrap_or(variable.len());
                !Untracked::LEFT_OUT.iter().any(|left_out| left_out.as_bytes() == &variable[..end])
            })
            .flat_map(|variable| {
                let setting = [b"remote.", name.as_bytes(), b".", variable].concat();
                // The first line end stands between the name and the value.
                [OsString::from("-c"), setting.replacen("\n", "=", 1).to_os_str_lossy().into()]
            })
            .collect();
        let free = name;
        let name = if options.is_empty() { remote.to_owned() } else { free.clone() };
        Untracked { name, options, free }
    }
}

/// Returns the variable and value of `setting` if it is one of `remote`.
fn variable_of<'a>(remote: &str, setting: &'a [u8]) -> Option<&'a [u8]> {
    setting.strip_prefix(b"remote.")?.strip_prefix(remote.as_bytes())?.strip_prefix(b".")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_answer_is_a_list_or_an_error(stdout: Vec<u8>) {
            if let Ok(state) = parse(&stdout) {
                prop_assert!(state.refs.keys().all(|name| is_full_name(name.as_bstr())));
            }
        }

        #[test]
        fn what_is_listed_comes_back(
            refs in prop::collection::btree_map("refs/heads/[a-z]{1,9}", "[0-9a-f]{40}", 0..20),
        ) {
            let lines: Vec<String> =
                refs.iter().map(|(name, id)| format!("{id}\t{name}\n")).collect();
            let state = parse(lines.concat().as_bytes()).expect("a list");
            let read: BTreeMap<String, String> =
                state.refs.iter().map(|(name, id)| (name.to_string(), id.to_string())).collect();
            prop_assert_eq!(read, refs);
        }
    }

    #[test]
    fn refs_and_head_are_read_and_the_rest_is_passed_over() {
        let a = "a".repeat(40);
        let stdout = format!(
            "ref: refs/heads/main\tHEAD\n{a}\tHEAD\n{a}\trefs/heads/main\n\
             ref: refs/heads/main\trefs/remotes/x/HEAD\n{a}\trefs/tags/v1\n{a}\trefs/tags/v1^{{}}\n\
             {a}\trefs/heads/..\n"
        );
        let state = parse(stdout.as_bytes()).expect("a list of refs");
        let names: Vec<_> = state.refs.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["refs/heads/main", "refs/tags/v1"]);
        assert_eq!(state.head, Some("refs/heads/main".into()));
    }

    #[test]
    fn what_is_no_list_of_refs_is_an_error() {
        for text in ["hello", "zz\trefs/heads/main", "\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn settings_are_taken_over_but_those_for_refs() {
        let settings = b"remote.origin.url\nhttps://h/a=b\nc\0\
            remote.origin.fetch\n+refs/heads/*:refs/remotes/origin/*\0\
            remote.origin.mirror\0remote.origin.skipfetchall\0\
            remote.origin.dev.url\nother\0remote.batchyard.url\ntaken\0";
        let remote = Untracked::from_settings("origin", settings);
        assert_eq!(remote.name, "batchyard-");
        assert_eq!(
            remote.options,
            [
                "-c",
                "remote.batchyard-.url=https://h/a=b\nc",
                "-c",
                "remote.batchyard-.skipfetchall",
                "-c",
                // A variable of the remote `origin.dev`: harmless, git knows no such variable.
                "remote.batchyard-.dev.url=other",
            ]
        );
        assert_eq!(Untracked::from_settings("/srv/r.git", settings).name, "/srv/r.git");
    }
}
