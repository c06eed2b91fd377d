//! A real repository with a real bare remote that counts what it receives.
#![allow(dead_code, reason = "every test file uses its own part of the fixture")]
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

pub(crate) mod worktree;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use git_batch::{GitBatch, ObjectId, OpErrorKind, Outcome, Report, Settings};
use tempfile::TempDir;

pub(crate) struct Fixture {
    dir: TempDir,
}

impl Fixture {
    /// `main` with three files, in a clone and at its remote.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture::empty();
        fixture.write("README.md", "one\ntwo\nthree\n");
        fixture.write("src/lib.rs", "fn a() {}\n");
        fixture.write("old/kept.txt", "kept\n");
        fixture.git(["add", "-A"]);
        fixture.git(["commit", "-q", "-m", "Start"]);
        fixture.git(["push", "-q", "origin", "main"]);
        fs::remove_file(fixture.counter()).unwrap();
        fixture
    }

    /// A clone and its remote without any commit.
    pub(crate) fn empty() -> Fixture {
        let fixture = Fixture { dir: TempDir::new().unwrap() };
        let remote = fixture.remote();
        run(fixture.dir.path(), ["init", "-q", "--bare", "-b", "main", "remote.git"]);
        run(&remote, ["config", "core.logAllRefUpdates", "true"]);
        run(&remote, ["config", "receive.fsckObjects", "true"]);
        fixture.hook("post-receive", "cat >/dev/null; echo x >> received");
        let url = remote.to_str().unwrap();
        run(fixture.dir.path(), ["init", "-q", "-b", "main", "work"]);
        for (key, value) in [
            ("user.name", "A U Thor"),
            ("user.email", "author@example.com"),
            ("commit.gpgSign", "false"),
            ("core.autocrlf", "false"),
            ("core.logAllRefUpdates", "true"),
        ] {
            fixture.git(["config", key, value]);
        }
        fixture.git(["remote", "add", "origin", url]);
        fixture
    }

    /// The same once more, with all that has happened so far.
    pub(crate) fn copy(&self) -> Fixture {
        let copy = Fixture { dir: TempDir::new().unwrap() };
        let from = self.dir.path().join(".");
        let status = Command::new("cp").arg("-a").args([&from, copy.dir.path()]).status().unwrap();
        assert!(status.success());
        copy.git(["remote", "set-url", "origin", copy.remote().to_str().unwrap()]);
        copy
    }

    /// A copy of `before`, with the remote of `after` if that `has_pushed`.
    pub(crate) fn beside_of(before: &Fixture, has_pushed: bool, after: &Fixture) -> Fixture {
        let copy = before.copy();
        if has_pushed {
            fs::remove_dir_all(copy.remote()).unwrap();
            let args = [after.remote(), copy.remote()];
            assert!(Command::new("cp").arg("-a").args(args).status().unwrap().success());
        }
        copy
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn remote(&self) -> PathBuf {
        self.dir.path().join("remote.git")
    }

    /// A folder beside both.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn counter(&self) -> PathBuf {
        self.remote().join("received")
    }

    /// How often the remote received something.
    pub(crate) fn received(&self) -> usize {
        fs::read_to_string(self.counter()).map_or(0, |text| text.lines().count())
    }

    /// Installs a hook at the remote.
    pub(crate) fn hook(&self, name: &str, script: &str) {
        let path = self.remote().join("hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        make_executable(&path);
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn git<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        run(&self.work(), args)
    }

    pub(crate) fn at_remote<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        run(&self.remote(), args)
    }

    pub(crate) fn id(&self, revision: &str) -> ObjectId {
        ObjectId::from_hex(self.git(["rev-parse", revision]).trim().as_bytes()).unwrap()
    }

    pub(crate) fn open(&self) -> GitBatch {
        GitBatch::open(self.work(), Settings::default()).unwrap()
    }

    /// Commits `content` to `branch` by hand, starting at `base`, without touching the checkout.
    pub(crate) fn branch(&self, branch: &str, base: &str, path: &str, content: &str) {
        let dir = self.beside("side");
        self.git(["worktree", "add", "-q", "-B", branch, dir.to_str().unwrap(), base]);
        let file = dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        run(&dir, ["add", "-A"]);
        run(&dir, ["commit", "-q", "-m", branch]);
        self.git(["worktree", "remove", "--force", dir.to_str().unwrap()]);
    }

    /// Moves `branch` at the remote behind this repository's back.
    pub(crate) fn move_remote(&self, branch: &str, path: &str, content: &str) {
        let dir = self.beside("other");
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        run(self.dir.path(), ["clone", "-q", "remote.git", "other"]);
        run(&dir, ["config", "user.name", "Other"]);
        run(&dir, ["config", "user.email", "other@example.com"]);
        run(&dir, ["checkout", "-q", branch]);
        fs::write(dir.join(path), content).unwrap();
        run(&dir, ["add", "-A"]);
        run(&dir, ["commit", "-q", "-m", "Other"]);
        run(&dir, ["push", "-q", "origin", branch]);
    }

    /// Both sides hold only sound and complete objects.
    pub(crate) fn assert_sound(&self) {
        self.git(["fsck", "--strict", "--full"]);
        self.at_remote(["fsck", "--strict", "--full"]);
    }

    /// Everything of the source that a batch must leave alone.
    pub(crate) fn untouchable(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.work(), &mut files);
        let git_dir = self.work().join(".git");
        files.retain(|path, _| {
            let Ok(inner) = path.strip_prefix(&git_dir) else { return true };
            let written =
                ["objects", "batchyard", "refs/heads", "refs/batchyard", "logs/refs/heads"];
            inner != Path::new("packed-refs") && !written.iter().any(|dir| inner.starts_with(dir))
        });
        files
    }
}

fn collect(dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            files.insert(
                path.clone(),
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            );
        } else if path.is_dir() {
            collect(&path, files);
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

/// Waits for what another process or thread does; fails the test if that takes for ever.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < std::time::Duration::from_mins(1), "it never was so");
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

/// A line of a shell script that waits for a file, but not for ever.
pub(crate) fn waits_for(file: &Path) -> String {
    let file = file.display();
    format!(
        "for n in $(seq 6000); do test -e '{file}' && break; sleep 0.01; done; test -e '{file}' || exit 1"
    )
}

pub(crate) fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs git without anybody's settings; fails the test if git fails.
pub(crate) fn run<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> String {
    let (code, stdout) = try_run(dir, args);
    assert_eq!(code, Some(0), "git failed in {}: {stdout}", dir.display());
    stdout
}

pub(crate) fn try_run<A: AsRef<OsStr>>(
    dir: &Path,
    args: impl IntoIterator<Item = A>,
) -> (Option<i32>, String) {
    let args: Vec<_> = args.into_iter().collect();
    let output = Command::new("git")
        .args(&args)
        .current_dir(dir)
        .env_remove("GIT_DIR")
        .env_remove("GIT_INDEX_FILE")
        .env_remove("GIT_WORK_TREE")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        text = format!("{text}{args:?}: {errors}");
    }
    (output.status.code(), text)
}

/// The commit of an operation that landed.
#[track_caller]
pub(crate) fn landed(report: &Report, id: &str) -> ObjectId {
    match report.get(id) {
        Some(Outcome::Landed { commit, .. }) => *commit,
        other => panic!("{id:?} did not land: {other:?}"),
    }
}

/// The outcome of an operation that found all there already.
pub(crate) fn no_change(commit: ObjectId) -> Outcome {
    Outcome::NoChange { commit, left_out: Vec::new() }
}

/// The kind of error of an operation that failed.
pub(crate) fn kind(outcome: Option<&Outcome>) -> Option<OpErrorKind> {
    match outcome {
        Some(Outcome::Failed(error)) => Some(error.kind),
        _ => None,
    }
}
