//! The command that must succeed on a merged tree before it is pushed.

mod child;
mod processes;
mod scratch;
mod verdicts;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use self::child::{Ran, run};
pub(crate) use self::scratch::{Scratch, sweep};
pub(crate) use self::verdicts::{Verdict, Verdicts};

/// A command that says whether a landing may be pushed.
///
/// It runs in a folder of its own that holds the files of the merged tree and nothing else, not even a
/// `.git`, and passes if it ends with status 0. Nothing of the repository is locked while it runs, only
/// while the files are put there, which can be a download where filters fetch them. A tree that cannot
/// be checked out, as where a filter is missing, has failed; but where what stood there before cannot
/// be checked out either, nobody is left out for it
/// ([`OpErrorKind::Repository`](crate::OpErrorKind::Repository)), and nothing of that branch is pushed.
/// If it fails, the landing is taken apart: the first branch with which it fails is left out
/// ([`OpErrorKind::Gate`](crate::OpErrorKind::Gate)), and the others are merged without it and looked
/// at again, so that all that is pushed has passed as a whole. Nobody is left out for a failure that
/// was seen only once. Of `n` branches one bad one costs at most `4 + log2(n)` runs. Where what the
/// remote has fails already, branches that repair it land with those before them, if not more than
/// eight that fail come behind; else nothing does.
///
/// [`GitBatch::apply`](crate::GitBatch::apply) and [`submit`](crate::GitBatch::submit) ask it for each
/// branch that is pushed, so branches that fail only together pass there. An operation that a branch
/// fails with is left out; what had been committed before and fails is not pushed. A branch that the
/// remote has moved meanwhile waits until the others have landed; then the gate looks at what both make
/// together, and a second push brings that. If the remote moves again each time, the fifth time is the
/// last ([`Class::Transient`](crate::Class::Transient)).
///
/// What is looked at is what the local branches were when the batch began. Who commits to one of them
/// while the gate runs keeps the commit, and the operations on that branch fail
/// ([`OpErrorKind::BranchMoved`](crate::OpErrorKind::BranchMoved)); done again, they build on it. Of a
/// branch that waits for a second look, what others commit meanwhile stays here and is not pushed.
///
/// What it says of a tree is kept: a pass for 30 days, a failure for an hour; not that of another
/// program, `PATH` or script. A run that was ended by its time limit or by a signal, or that a shell
/// could not start (status 126 and 127), counts for that landing only.
///
/// There is no shell: arguments reach the program as they are. Variables of the environment that
/// begin with `GIT_` are removed, and `BATCHYARD_GATE` names the run; standard input is empty. The end of
/// what it prints, at most 4 KiB, stands in the error. When it ends, all processes that it started and
/// that are still in its process group are ended too. What a killed process was running is ended by who
/// writes to the repository next, on Linux. A server that a build has set apart in a session of its own
/// stays in both cases.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use git_batch::{Gate, Settings};
///
/// let gate = Gate::new("cargo").with_args(["test", "--workspace"]);
/// let gate = gate.with_time_limit(Some(Duration::from_mins(10)));
/// assert_eq!(gate.to_string(), "cargo test --workspace");
/// let settings = Settings::default().with_gate(gate);
/// # let _ = settings;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    argv: Vec<OsString>,
    time_limit: Option<Duration>,
    hidden: Vec<OsString>,
    /// All that the command sees; `None` is everything.
    seen: Option<Vec<OsString>>,
    folder: Option<PathBuf>,
    is_fresh: bool,
    stop: Option<StopFlag>,
}

/// Set from outside; two are equal if they are one.
#[derive(Debug, Clone)]
struct StopFlag(Arc<AtomicBool>);

impl PartialEq for StopFlag {
    fn eq(&self, other: &StopFlag) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StopFlag {}

impl Gate {
    /// Returns a gate that runs `program`, without arguments and for half an hour at most. A program
    /// with a slash in its name is one of the merged tree, unless the name is absolute; a branch
    /// without which it could be run is left out.
    pub fn new(program: impl Into<OsString>) -> Gate {
        Gate {
            argv: vec![program.into()],
            time_limit: Some(Duration::from_mins(30)),
            hidden: Vec::new(),
            seen: None,
            folder: None,
            is_fresh: false,
            stop: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn with_args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Gate {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets how long one run may take; `None` waits without end.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Option<Duration>) -> Gate {
        self.time_limit = limit;
        self
    }

    /// Keeps a variable of the environment from the command, such as a secret: what is tested may
    /// have been written by somebody who must not see it.
    #[must_use]
    pub fn without_variable(mut self, name: impl Into<OsString>) -> Gate {
        self.hidden.push(name.into());
        self
    }

    /// Keeps all variables of the environment from the command but these; a name that ends with `*` stands
    /// for all that begin so. What is kept from it by name stays so.
    #[must_use]
    pub fn with_only_variables<N: Into<OsString>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Gate {
        self.seen = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Whether the command sees a variable of the environment.
    pub(crate) fn sees(&self, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        let is_named = |pattern: &OsString| match pattern.as_encoded_bytes() {
            [start @ .., b'*'] => name.starts_with(start),
            whole => name == whole,
        };
        let is_hidden = self.hidden.iter().any(|hidden| hidden.as_encoded_bytes() == name);
        !name.starts_with(b"GIT_")
            && !is_hidden
            && self.seen.as_ref().is_none_or(|seen| seen.iter().any(is_named))
    }

    /// Sets the folder in which each run gets a folder of its own, by default that of the system for
    /// temporary files. It should not be inside a checkout: many tools look for their settings in the
    /// folders above.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Gate {
        self.folder = Some(folder.into());
        self
    }

    /// Ends a run soon after somebody sets the flag, such as a handler of signals. Nothing is pushed
    /// then, and the tree counts as one that nobody has looked at.
    #[must_use]
    pub fn stopped_by(mut self, flag: Arc<AtomicBool>) -> Gate {
        self.stop = Some(StopFlag(flag));
        self
    }

    /// Runs the command also for trees whose verdict is known from earlier landings.
    #[must_use]
    pub fn afresh(mut self) -> Gate {
        self.is_fresh = true;
        self
    }

    /// Whether the run is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|flag| flag.0.load(Ordering::SeqCst))
    }

    /// What tells this command from another one: its arguments, where programs are looked for, and for
    /// a program that is not of the tree which file it is.
    pub(crate) fn fingerprint(&self) -> Vec<Vec<u8>> {
        let bytes = |text: &OsString| text.as_encoded_bytes().to_vec();
        let mut parts: Vec<Vec<u8>> = self.argv.iter().map(bytes).collect();
        let list = |names: &[OsString]| {
            names.iter().flat_map(|name| [bytes(name), vec![0]].concat()).collect()
        };
        parts.push(list(&self.hidden));
        parts.extend(self.seen.as_deref().map(list));
        let path = std::env::var_os("PATH").unwrap_or_default();
        parts.push(bytes(&path));
        // Arguments too: often the program is a shell or an interpreter, and they are the script.
        for arg in &self.argv {
            let named = Path::new(arg);
            let found = match named.is_absolute() {
                true => Some(named.to_owned()),
                false if named.components().count() == 1 => std::env::split_paths(&path)
                    .map(|folder| folder.join(named))
                    .find(|file| file.is_file()),
                false => None,
            };
            let data = found.and_then(|file| std::fs::metadata(file).ok());
            let state = data.map(|data| (data.len(), data.modified().ok()));
            parts.push(format!("{state:?}").into_bytes());
        }
        parts
    }

    /// The folder in which each run gets its own.
    pub(crate) fn scratch_parent(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// The command as it would be typed, without quotes.
impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, arg) in self.argv.iter().enumerate() {
            write!(f, "{}{}", if n == 0 { "" } else { " " }, arg.display())?;
        }
        Ok(())
    }
}
