//! The git program as the executor: for repositories whose refs are not files, and as the reference
//! that the other one is held against.
//!
//! Each call is a process, so it is slower; git takes its own locks, and leaves them behind where it is
//! killed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use bstr::{BStr, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::executor::Executor;
use super::pack::{Keep, Pack};
use super::refs::{Faults, Moved, RefMove};
use super::unwritten::Unwritten;
use super::worktrees::{CheckedOut, Place};
use super::{Signer, Store};
use crate::program::Output;
use crate::publish::scrub;
use crate::{OpError, OpErrorKind};

/// See the module.
#[derive(Debug)]
pub(super) struct GitProgram;

/// What a local branch is: its commit, and whether it is a name for another branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) commit: ObjectId,
    pub(super) is_symbolic: bool,
}

/// How many branches git is asked for by name.
const MAX_NAMED: usize = 500;

impl Executor for GitProgram {
    fn tip(&self, store: &Store, branch: &FullName) -> Result<Option<ObjectId>, OpError> {
        Ok(store.tips_by_git(&[branch])?.get(branch).map(|tip| tip.commit))
    }

    fn branches(&self, store: &Store) -> Result<Vec<FullName>, OpError> {
        Ok(store.tips_by_git(&[])?.into_keys().collect())
    }

    fn refs_below(&self, store: &Store, folder: &str) -> Vec<String> {
        let args = ["for-each-ref", "--format=%(refname)", &format!("{folder}/")];
        let Ok(output) = store.ask_program(args, None) else { return Vec::new() };
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn head(&self, store: &Store) -> Option<FullName> {
        let output = store.ask_program(["symbolic-ref", "--quiet", "HEAD"], None).ok()?;
        FullName::try_from(output.stdout.trim_ascii().as_bstr()).ok()
    }

    fn resolve(&self, store: &Store, revision: &str) -> Option<ObjectId> {
        let commit = format!("{revision}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let output = store.ask_program(args, None).ok().filter(Output::is_success)?;
        ObjectId::from_hex(output.stdout.trim_ascii()).ok()
    }

    fn clashing_branch(
        &self,
        store: &Store,
        branch: &FullName,
    ) -> Result<Option<FullName>, OpError> {
        let is_inside = |inner: &FullName, outer: &FullName| {
            inner
                .as_bstr()
                .strip_prefix(outer.as_bstr().as_bytes())
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let branches = self.branches(store)?;
        Ok(branches.into_iter().find(|other| is_inside(other, branch) || is_inside(branch, other)))
    }

    fn checked_out(&self, store: &Store) -> CheckedOut {
        // The files say who rebases or bisects what, also where `HEAD` is none.
        let mut found = store.checked_out_by_files();
        let listed = store.ask_program(["worktree", "list", "--porcelain", "-z"], None);
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        for (top, branch) in worktrees(&listed) {
            let top = gix::path::from_bstr(top).map(Cow::into_owned).unwrap_or_default();
            let git_dir = store.git_dir_of_worktree(&top);
            let places: &mut Vec<Place> = found.entry(branch).or_default();
            if !places.iter().any(|place| place.git_dir == git_dir) {
                places.push(Place { git_dir, top });
            }
        }
        found
    }

    fn merge_trees(
        &self,
        _: &mut Store,
        _: ObjectId,
        _: ObjectId,
        _: ObjectId,
    ) -> Result<Option<ObjectId>, OpError> {
        // `git merge-tree` judges all.
        Ok(None)
    }

    fn write(&self, store: &mut Store, objects: &[Unwritten]) -> Result<Keep, OpError> {
        let pack = Pack::build(objects, store.hash_kind())
            .map_err(|error| OpError::repository("cannot build a pack", &error))?;
        let mut args = vec!["-c", "core.fsync=committed,loose-object,reference"];
        args.extend(["-c", "core.fsyncMethod=fsync", "index-pack", "--stdin", "--keep=git-batch"]);
        // Git looks at each object, and at whether all that they name is there. What is missing in a
        // partial clone it would fetch, one by one.
        args.extend(store.promisor.is_none().then_some("--strict"));
        let output = store.ask_program(args, Some(&pack.data))?;
        let name = output.stdout.trim_ascii().split_once_str("\t");
        let Some((_, name)) = name.filter(|_| output.is_success()) else {
            let said = scrub::excerpt(&output.stderr);
            let message = format!("git does not take the new objects: {said}");
            return Err(OpError::new(OpErrorKind::Repository, message));
        };
        store.fsyncs += 3;
        store.bytes += pack.data.len() as u64;
        let keep = format!("objects/pack/pack-{}.keep", name.as_bstr());
        Ok(Keep::of(store.common_dir.join(keep)))
    }

    fn move_refs(
        &self,
        store: &mut Store,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults> {
        store.move_by_git(moves, signer)
    }
}

impl Store {
    /// Runs git in the repository.
    pub(super) fn ask_program<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        stdin: Option<&[u8]>,
    ) -> Result<Output, OpError> {
        let mut command = self.program()?.command();
        command.args(args);
        self.finish_program(command, stdin)
    }

    pub(super) fn finish_program(
        &self,
        command: std::process::Command,
        stdin: Option<&[u8]>,
    ) -> Result<Output, OpError> {
        self.processes.set(self.processes.get() + 1);
        self.program()?
            .finish(command, stdin)
            .map_err(|error| OpError::repository("cannot run git", &error))
    }

    /// What local branches are; all of them if none is named.
    pub(super) fn tips_by_git(
        &self,
        branches: &[&FullName],
    ) -> Result<BTreeMap<FullName, Tip>, OpError> {
        // A tag can have been made a branch, which then stands for its commit.
        let format = "--format=%(objectname) %(*objectname) %(symref)%00%(refname)";
        let mut args: Vec<OsString> = vec!["for-each-ref".into(), format.into(), "--".into()];
        // A command line is not without end.
        if branches.is_empty() || branches.len() > MAX_NAMED {
            args.push("refs/heads/".into());
        } else {
            args.extend(branches.iter().map(|name| name.as_bstr().to_os_str_lossy().into_owned()));
        }
        let wanted: BTreeSet<&FullName> = branches.iter().copied().collect();
        let output = self.ask_program(args, None)?;
        if !output.is_success() {
            let said = scrub::excerpt(&output.stderr);
            let message = format!("git cannot list the local branches: {said}");
            return Err(OpError::new(OpErrorKind::Repository, message));
        }
        let mut tips = BTreeMap::new();
        for line in output.stdout.lines() {
            let Some((name, tip)) = tip(line) else { continue };
            // What is named can be the folder of others, too.
            if wanted.is_empty() || wanted.contains(&name) {
                tips.insert(name, tip);
            }
        }
        Ok(tips)
    }

    /// The git directory of a work tree that git lists.
    fn git_dir_of_worktree(&self, top: &Path) -> std::path::PathBuf {
        let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
            (Ok(a), Ok(b)) => a == b,
            _ => a == b,
        };
        let linked = std::fs::read_dir(self.common_dir.join("worktrees"));
        let mut linked = linked.into_iter().flatten().flatten().map(|entry| entry.path());
        let names = |git_dir: &std::path::PathBuf| {
            let named = std::fs::read(git_dir.join("gitdir")).unwrap_or_default();
            let named = gix::path::from_bstr(named.trim_ascii().as_bstr()).unwrap_or_default();
            named.parent().is_some_and(|named| same(named, top))
        };
        linked.find(names).unwrap_or_else(|| self.common_dir.clone())
    }
}

/// Reads one line about a branch.
fn tip(line: &[u8]) -> Option<(FullName, Tip)> {
    let (values, name) = line.split_once_str("\0")?;
    let mut values = values.splitn_str(3, " ");
    let (id, peeled, target) = (values.next()?, values.next()?, values.next()?);
    let commit = ObjectId::from_hex(if peeled.is_empty() { id } else { peeled }).ok()?;
    let name = FullName::try_from(name.as_bstr()).ok()?;
    Some((name, Tip { commit, is_symbolic: !target.is_empty() }))
}

/// The work trees that stand on a branch, in the output of `git worktree list --porcelain -z`.
fn worktrees(listed: &[u8]) -> Vec<(&BStr, FullName)> {
    let mut found = Vec::new();
    let mut top = BStr::new("");
    for field in listed.split_str("\0") {
        if let Some(path) = field.strip_prefix(b"worktree ") {
            top = path.as_bstr();
        } else if let Some(name) = field.strip_prefix(b"branch ")
            && let Ok(name) = FullName::try_from(name.as_bstr())
        {
            found.push((top, name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_branches_are_read() {
        let id = "a".repeat(40);
        let line = format!("{id}  refs/heads/b\0refs/heads/a");
        let (name, read) = tip(line.as_bytes()).expect("a branch");
        assert_eq!(name.as_bstr(), "refs/heads/a");
        assert!(read.is_symbolic);
        let line = format!("{} {id} \0refs/heads/t", "b".repeat(40));
        let (_, read) = tip(line.as_bytes()).expect("a branch");
        assert_eq!((read.commit.to_string(), read.is_symbolic), (id, false));
        for text in ["", "x", "  \0refs/heads/a", "zz  \0refs/heads/a"] {
            assert_eq!(tip(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn worktrees_without_a_branch_are_passed_over() {
        let listed =
            b"worktree /a b\0HEAD 1\0branch refs/heads/x\0\0worktree /c\0HEAD 1\0detached\0\0\
                       worktree /d\nline\0branch refs/heads/y\0locked why\0\0";
        let read: Vec<_> = worktrees(listed);
        let read: Vec<_> = read.iter().map(|(top, name)| (*top, name.as_bstr())).collect();
        assert_eq!(
            read,
            [("/a b".into(), "refs/heads/x".into()), ("/d\nline".into(), "refs/heads/y".into())]
        );
    }
}
