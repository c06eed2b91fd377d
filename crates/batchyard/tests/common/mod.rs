//! Runs the real program on scratch repositories, apart from the user's settings.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod plan;
pub(crate) mod server;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What one run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The JSON objects on stdout; anything else there fails the test.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{self:?}"))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The summary, which is the last line.
    pub(crate) fn summary(&self) -> Value {
        let last = self.objects().pop().unwrap_or_else(|| panic!("no output: {self:?}"));
        last["summary"].clone()
    }

    /// The result line of one id.
    pub(crate) fn line(&self, id: &str) -> Value {
        let found = self.objects().into_iter().find(|line| line["id"] == id);
        found.unwrap_or_else(|| panic!("no line {id}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn code(self, expected: i32) -> Ran {
        assert_eq!(self.code, Some(expected), "{self:#?}");
        self
    }

    /// Checks a refusal: status 2, nothing on stdout, and each text on stderr.
    #[track_caller]
    pub(crate) fn refused(self, texts: &[&str]) {
        let ran = self.code(2);
        assert_eq!(ran.stdout, "", "{ran:#?}");
        for text in texts {
            assert!(ran.stderr.contains(text), "stderr lacks {text:?}: {ran:#?}");
        }
        assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
    }
}

/// A folder with everything that a test needs, and a home that belongs to it.
pub(crate) struct Yard {
    folder: TempDir,
}

impl Yard {
    pub(crate) fn new() -> Yard {
        let folder = tempfile::tempdir().expect("a scratch folder");
        fs::create_dir(folder.path().join("home")).expect("a home");
        Yard { folder }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("its folder");
        fs::write(&path, content).expect("it is written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it is read")
    }

    fn clean(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.folder.path()).env("HOME", self.path("home"));
        for key in ["PATH", "TMPDIR", "LD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(key) {
                command.env(key, value);
            }
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// A command that runs the program in this folder.
    pub(crate) fn program(&self) -> Command {
        self.clean(env!("CARGO_BIN_EXE_batchyard"))
    }

    /// Runs the program.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        finish(self.program().args(args), b"")
    }

    /// Runs the program with something on stdin.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        stdin: impl AsRef<[u8]>,
    ) -> Ran {
        finish(self.program().args(args), stdin.as_ref())
    }

    /// Runs git and returns what it printed.
    #[track_caller]
    pub(crate) fn git(&self, folder: &str, args: &[&str]) -> String {
        let ran = finish(self.clean("git").arg("-C").arg(self.path(folder)).args(args), b"");
        assert_eq!(ran.code, Some(0), "git {args:?}: {ran:?}");
        ran.stdout.trim_end().to_owned()
    }

    /// Makes `remote.git` with one commit on `main`, and its clone `repo` with settings: with few processes, as
    /// nearly every test begins with it.
    pub(crate) fn with_repository() -> Yard {
        let yard = Yard::new();
        yard.git(".", &["init", "--quiet", "-b", "main", "repo"]);
        let settings = format!(
            "[core]\nrepositoryformatversion = 0\nlogallrefupdates = true\n\
             [user]\nname = Tester\nemail = tester@example.invalid\n\
             [remote \"origin\"]\nurl = {}\nfetch = +refs/heads/*:refs/remotes/origin/*\n\
             [branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n",
            yard.path("remote.git").display()
        );
        yard.write("repo/.git/config", settings);
        yard.write("repo/README.md", "# A project\n");
        yard.git("repo", &["add", "--all"]);
        yard.git("repo", &["commit", "--quiet", "--message", "Begin"]);
        let tip = yard.read("repo/.git/refs/heads/main");
        yard.write("repo/.git/refs/remotes/origin/main", tip);
        yard.git(".", &["clone", "--quiet", "--bare", "repo", "remote.git"]);
        let settings =
            "[core]\nrepositoryformatversion = 0\nbare = true\nlogallrefupdates = true\n";
        yard.write("remote.git/config", settings);
        yard.write("remote.git/hooks/post-receive", "#!/bin/sh\necho received >> received.log\n");
        make_executable(&yard.path("remote.git/hooks/post-receive"));
        yard
    }

    /// Has somebody push to a branch between what each push of `repo` has looked at and that push itself,
    /// until the hook that does so is removed; returns it.
    pub(crate) fn overtake(&self, branch: &str) -> PathBuf {
        let hook = format!(
            "#!/bin/sh\ncat > /dev/null; unset GIT_DIR; cd '{}' || exit\n\
             at=$(git rev-parse --verify --quiet {branch} || git rev-parse main)\n\
             now=$(git -c user.name=O -c user.email=o@o commit-tree -p $at -m Theirs $at^{{tree}})\n\
             git update-ref refs/heads/{branch} $now\n",
            self.path("remote.git").display()
        );
        let hook = self.write("repo/.git/hooks/pre-push", hook);
        make_executable(&hook);
        hook
    }

    /// How many pushes the remote received since it was made.
    pub(crate) fn receives(&self) -> usize {
        fs::read_to_string(self.path("remote.git/received.log"))
            .map_or(0, |log| log.lines().count())
    }

    /// Everything in a folder: paths, kinds and contents. Equal before and after means untouched.
    pub(crate) fn everything(&self, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        collect(&self.path(folder), &mut found);
        found.sort();
        found
    }
}

fn collect(path: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(path).expect("a folder is read") {
        let entry = entry.expect("an entry is read");
        if entry.file_type().expect("its kind").is_dir() {
            found.push((entry.path(), Vec::new()));
            collect(&entry.path(), found);
        } else {
            found.push((entry.path(), fs::read(entry.path()).unwrap_or_default()));
        }
    }
}

pub(crate) fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the mode is set");
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command, stdin: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    // A program that refuses its arguments does not read.
    let _ = pipe.write_all(stdin);
    drop(pipe);
    let output = child.wait_with_output().expect("the program ends");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
