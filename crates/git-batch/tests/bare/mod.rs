//! A checkout and its bare remote in a temporary folder.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use git_batch::ObjectId;
use git_batch::program::Git;
use tempfile::TempDir;

/// The runner under test, and the same repositories by hand.
pub(crate) struct Fixture {
    pub(crate) remote: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) git: Git,
    /// The commit of `main`, here and at the remote.
    pub(crate) base: ObjectId,
    root: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let root = TempDir::new().expect("a folder");
        let (work, remote) = (root.path().join("work"), root.path().join("remote.git"));
        by_hand(root.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
        by_hand(root.path(), &["init", "-q", "-b", "main", "work"]);
        let url = remote.to_str().expect("UTF-8");
        by_hand(&work, &["remote", "add", "origin", url]);
        let tree = by_hand(&work, &["write-tree"]);
        let base = by_hand(&work, &["commit-tree", "-m", "base", &tree]);
        by_hand(&work, &["update-ref", "refs/heads/main", &base]);
        by_hand(&work, &["push", "-q", url, "main"]);
        let git = open(root.path(), &work.join(".git"), r#"exec "$REAL" "$@""#);
        Fixture { remote, work, git, base: id(&base), root }
    }

    /// Returns a runner for another git directory.
    pub(crate) fn open(&self, git_dir: &Path) -> Git {
        open(self.root.path(), git_dir, r#"exec "$REAL" "$@""#)
    }

    /// Returns a runner whose program is the shell text `body`; git itself is `$REAL`.
    pub(crate) fn git_through(&self, body: &str) -> Git {
        open(self.root.path(), self.git.git_dir(), body)
    }

    /// Writes a program and returns its path.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        script(&self.root.path().join(name), body)
    }

    pub(crate) fn remote_hook(&self, name: &str, body: &str) {
        script(&self.remote.join("hooks").join(name), body);
    }

    pub(crate) fn work_hook(&self, name: &str, body: &str) {
        script(&self.work.join(".git/hooks").join(name), body);
    }

    pub(crate) fn in_work(&self, args: &[&str]) -> String {
        by_hand(&self.work, args)
    }

    pub(crate) fn in_remote(&self, args: &[&str]) -> String {
        by_hand(&self.remote, args)
    }

    pub(crate) fn second_remote(&self, name: &str) -> PathBuf {
        by_hand(self.root.path(), &["init", "-q", "--bare", name]);
        self.root.path().join(name)
    }

    /// Makes a commit here without any ref.
    pub(crate) fn commit(&self, parent: Option<ObjectId>, message: &str) -> ObjectId {
        let tree = self.in_work(&["write-tree"]);
        let parent = parent.map(|parent| parent.to_string());
        let mut args = vec!["commit-tree", "-m", message, &tree];
        if let Some(parent) = &parent {
            args.extend(["-p", parent]);
        }
        id(&self.in_work(&args))
    }

    pub(crate) fn merge(&self, ours: ObjectId, theirs: ObjectId) -> ObjectId {
        let tree = self.in_work(&["write-tree"]);
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        id(&self.in_work(&["commit-tree", "-m", "merge", &tree, "-p", &ours, "-p", &theirs]))
    }

    /// Makes a commit on `base` that only the remote has.
    pub(crate) fn commit_in_remote(&self, message: &str) -> ObjectId {
        let tree = format!("{}^{{tree}}", self.base);
        let base = self.base.to_string();
        id(&self.in_remote(&["commit-tree", "-m", message, &tree, "-p", &base]))
    }

    /// Moves a ref of the remote; the commit goes there first.
    pub(crate) fn set_remote(&self, name: &str, id: ObjectId) {
        let id = id.to_string();
        if by_hand_status(&self.remote, &["cat-file", "-e", &id]) {
            self.in_remote(&["update-ref", name, &id]);
        } else {
            let url = self.remote.to_str().expect("UTF-8");
            self.in_work(&["push", "-q", "--force", url, &format!("{id}:{name}")]);
        }
    }

    pub(crate) fn remote_ref(&self, name: &str) -> Option<ObjectId> {
        self.ref_of(&self.remote, name)
    }

    /// Returns what `name` is in another repository of this folder.
    pub(crate) fn ref_of(&self, repository: &Path, name: &str) -> Option<ObjectId> {
        let text = by_hand(
            &self.root.path().join(repository),
            &["for-each-ref", "--format=%(objectname)", name],
        );
        (!text.is_empty()).then(|| id(&text))
    }

    /// Returns the content of every file of the git directory but objects and our own refs.
    pub(crate) fn shared_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.work.join(".git")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.ends_with("objects") || path.ends_with("refs/batchyard") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let content = std::fs::read(&path).expect("a file");
                    files.insert(path, content);
                }
            }
        }
        files
    }
}

fn id(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).expect("an object id")
}

/// Returns a runner whose git sees the settings of the repository and no others.
fn open(root: &Path, git_dir: &Path, body: &str) -> Git {
    let count = std::fs::read_dir(root).expect("a folder").count();
    let program = script(
        &root.join(format!("git-{count}")),
        &format!(
            "export HOME='{home}' XDG_CONFIG_HOME='{home}' GIT_CONFIG_NOSYSTEM=1 \
             GIT_CONFIG_GLOBAL=/dev/null REAL=git\n{body}",
            home = root.display()
        ),
    );
    Git::open_with(program.as_os_str(), git_dir).expect("git is installed")
}

fn script(path: &Path, body: &str) -> PathBuf {
    // Written by a child: were it open for writing here while another thread starts a process,
    // that process would hold it open too, and running it would fail with "text file busy".
    let written = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod +x \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            let mut pipe = child.stdin.take().expect("piped");
            pipe.write_all(format!("#!/bin/sh\n{body}\n").as_bytes())?;
            drop(pipe);
            child.wait()
        })
        .expect("a shell");
    assert!(written.success());
    let mode = std::fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o100, 0o100);
    path.to_owned()
}

/// Runs git without any setting but those of the repository.
fn clean_git(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", OsStr::new("/nonexistent"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "Test")
            .env(format!("GIT_{who}_EMAIL"), "test@example.org")
            .env(format!("GIT_{who}_DATE"), "1700000000 +0000");
    }
    command
}

fn by_hand_status(dir: &Path, args: &[&str]) -> bool {
    clean_git(dir, args).output().expect("git runs").status.success()
}

fn by_hand(dir: &Path, args: &[&str]) -> String {
    let output = clean_git(dir, args).output().expect("git runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}
