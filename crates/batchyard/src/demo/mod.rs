//! A scratch remote and clone, so that a plan runs on a machine with nothing but Rust and git.

mod one_by_one;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use one_by_one::{OneByOne, compare};

use crate::exit::Stop;
use crate::git::{Git, absolute};
use crate::lock::FolderLock;
use crate::output::Output;
use crate::plan::{Demo, Plan};

/// The base branch of a demo whose plan names none.
pub(crate) const DEFAULT_BASE: &str = "main";

/// Settings of the scratch repositories: nothing of the user's reaches them.
const GIT_CONFIG: &str = "\
[user]
\tname = Batchyard demo
\temail = demo@batchyard.invalid
[safe]
\tdirectory = *
[init]
\tdefaultBranch = main
[gc]
\tauto = 0
[maintenance]
\tauto = false
[protocol \"file\"]
\tallow = always
[advice]
\tdetachedHead = false
";

/// The folder of a demo: everything in it is made anew by each run, but an unfinished state.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    base: String,
    git: Git,
    /// Held until the run is over.
    _lock: FolderLock,
}

impl Scratch {
    /// Takes the demo's folder: `batchyard-demo` in the target folder of the build.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or another run holds it.
    pub(crate) fn take(plan: &Plan, demo: &Demo) -> Result<Scratch, Stop> {
        let root = root(plan, demo)?;
        let failed = |error: io::Error| {
            Stop::refused(format_args!("cannot write to {}: {error}", root.display()))
                .help("set CARGO_TARGET_DIR to a folder that can be written to")
        };
        fs::create_dir_all(&root).map_err(failed)?;
        let lock = FolderLock::take(&root)?;
        fs::write(root.join(".gitconfig"), GIT_CONFIG).map_err(failed)?;
        let base = plan.land.onto.clone().unwrap_or_else(|| DEFAULT_BASE.to_owned());
        let git = Git::at(&root).with_home(&root);
        Ok(Scratch { root, base, git, _lock: lock })
    }

    /// Makes the remote, its clone and the copy of the lessons, in place of an earlier run's.
    pub(crate) fn build(&self, plan: &Plan, demo: &Demo, output: &Output) -> Result<(), Stop> {
        let failed = |error: io::Error| {
            Stop::refused(format_args!("cannot prepare {}: {error}", self.root.display()))
        };
        for name in
            ["remote.git", "clone", "seed", "one-by-one.git", "one-by-one", "one-by-one.state"]
        {
            remove(&self.root.join(name)).map_err(failed)?;
        }
        source::fill(&self.git, &self.root, &demo.source, &self.base, output)?;
        self.clone("remote.git", "clone").map_err(Stop::refused)?;
        if demo.one_by_one {
            // Now, while the remote is as it was.
            let args =
                ["clone", "--quiet", "--bare", "--template=", "remote.git", "one-by-one.git"];
            self.git.run(args).map_err(Stop::refused)?;
        }
        remove(&self.lessons()).map_err(failed)?;
        if plan.lessons.exists() {
            // Read and written, not copied: a read-only file must not make a read-only copy.
            let lessons = fs::read(&plan.lessons).map_err(failed)?;
            fs::write(self.lessons(), lessons).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the clone that the run works in.
    pub(crate) fn repository(&self) -> PathBuf {
        self.root.join("clone")
    }

    /// Returns the copy of the lessons, the only one that is written to.
    pub(crate) fn lessons(&self) -> PathBuf {
        self.root.join("lessons.jsonl")
    }

    /// Returns where an unfinished run keeps its state, unless the plan says otherwise.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Returns the base branch.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the remote of the run.
    pub(crate) fn remote(&self) -> PathBuf {
        self.root.join("remote.git")
    }

    /// Clones one scratch repository into another and gives it settings of its own.
    fn clone(&self, from: &str, to: &str) -> Result<(), String> {
        self.git.run(["clone", "--quiet", "--branch", &self.base, from, to])?;
        let clone = self.git.in_folder(self.root.join(to));
        // The user's own settings are read there too; these win over them.
        let settings = [
            ("user.name", "Batchyard demo"),
            ("user.email", "demo@batchyard.invalid"),
            ("commit.gpgSign", "false"),
            ("push.gpgSign", "false"),
            ("core.autocrlf", "false"),
            ("protocol.file.allow", "always"),
        ];
        for (key, value) in settings {
            clone.run(["config", key, value])?;
        }
        without_hooks(&clone, &self.root)
    }
}

/// Keeps hooks that the user has for all repositories out of a scratch one.
fn without_hooks(git: &Git, root: &Path) -> Result<(), String> {
    let nowhere = root.join("no-hooks");
    git.run(["config".as_ref(), "core.hooksPath".as_ref(), nowhere.as_os_str()]).map(drop)
}

/// The target folder: `CARGO_TARGET_DIR`, else `target` beside the next `Cargo.toml` above the
/// source, else the folder of the plan's state.
fn root(plan: &Plan, demo: &Demo) -> Result<PathBuf, Stop> {
    let named = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
    if let Some(folder) = named {
        return Ok(absolute(Path::new(&folder))?.join("batchyard-demo"));
    }
    let source = fs::canonicalize(&demo.source).map_err(|error| {
        Stop::refused(format_args!(
            "{}: the source {} cannot be opened: {error}",
            plan.file.display(),
            demo.source.display()
        ))
    })?;
    let beside = source.ancestors().find(|folder| folder.join("Cargo.toml").is_file());
    match beside {
        Some(folder) => Ok(folder.join("target").join("batchyard-demo")),
        None => Ok(absolute(&plan.default_state())?.join("batchyard-demo")),
    }
}

/// Removes a folder or file if it is there.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
