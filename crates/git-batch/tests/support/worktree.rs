//! Linked worktrees, and what git itself makes of them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use git_batch::{Commit, Operation, Outcome, Report, Worktree};

use super::{Fixture, landed, run};

/// Makes a linked worktree on a new branch.
pub(crate) fn linked(fixture: &Fixture, branch: &str) -> PathBuf {
    let dir = fixture.beside(&branch.replace('/', "-"));
    fixture.git(["worktree", "add", "-q", "-b", branch, dir.to_str().unwrap(), "main"]);
    dir
}

pub(crate) fn put(dir: &Path, path: &str, content: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub(crate) fn capture(id: &str, branch: &str, dir: &Path) -> Operation {
    Operation::commit(id, Commit::new(branch, "Agent's work").with_worktree(Worktree::all(dir)))
}

pub(crate) fn capture_files(id: &str, branch: &str, dir: &Path, files: &[&str]) -> Operation {
    let worktree = Worktree::files(dir, files.iter().copied());
    Operation::commit(id, Commit::new(branch, "Agent's work").with_worktree(worktree))
}

pub(crate) fn apply(fixture: &Fixture, operation: Operation) -> Report {
    fixture.open().apply(vec![operation]).unwrap()
}

pub(crate) fn left_out(report: &Report, id: &str) -> Vec<(String, &'static str)> {
    let Some(Outcome::Landed { left_out, .. } | Outcome::NoChange { left_out, .. }) =
        report.get(id)
    else {
        panic!("{:?}", report.get(id));
    };
    left_out.iter().map(|left| (left.path.to_string(), left.why.as_str())).collect()
}

pub(crate) fn status(dir: &Path) -> String {
    run(dir, ["status", "--porcelain"])
}

/// Contents, modes and times of all files.
pub(crate) fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            if path.ends_with(".git") {
                continue;
            }
            let content = if data.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if data.is_dir() {
                walk(&path, found);
                continue;
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path, (content, data.mode(), data.mtime(), data.mtime_nsec()));
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, &mut found);
    found
}

/// The tree that `git add -A` makes of a worktree, with an index of its own.
pub(crate) fn git_adds(fixture: &Fixture, dir: &Path) -> String {
    let git_dir = run(dir, ["rev-parse", "--absolute-git-dir"]);
    let index = fixture.beside("reference-index");
    let own = Path::new(git_dir.trim()).join("index");
    fs::copy(&own, &index).unwrap();
    // Git looks again at files that are as old as the index: the copy must not be younger.
    let modified = fs::metadata(&own).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&index).unwrap().set_modified(modified).unwrap();
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("GIT_INDEX_FILE", &index)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["add", "-A", "--sparse"]);
    git(&["write-tree"])
}

/// Captures all of a worktree and compares the result with git's own; the status is clean then.
#[track_caller]
pub(crate) fn captures_as_git(fixture: &Fixture, branch: &str, dir: &Path) {
    let want = git_adds(fixture, dir);
    let before = files(dir);
    let report = apply(fixture, capture("c", branch, dir));
    let commit = landed(&report, "c");
    let tree = fixture.git(["rev-parse", &format!("{commit}^{{tree}}")]);
    let diff = fixture.git(["diff-tree", "-r", &want, tree.trim()]);
    assert_eq!(diff, "", "from what git adds to what was captured");
    assert_eq!(status(dir), "");
    assert_eq!(files(dir), before);
    assert_eq!(run(dir, ["rev-parse", "HEAD"]).trim(), commit.to_string());
    // The index holds together and is what the next commit would take.
    assert_eq!(run(dir, ["write-tree"]), tree);
    fixture.git(["fsck", "--strict"]);
}
