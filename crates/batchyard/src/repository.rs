//! What a run asks a repository and its remote beside its batch of commits and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use git_batch::publish::{self, PushReport, RefUpdate};
use git_batch::{ObjectId, program};

use crate::exit::{Exit, Stop, chain};
use crate::git::Git;
use crate::lock::FolderLock;

/// A repository and one of its remotes.
#[derive(Debug)]
pub(crate) struct Repository {
    folder: PathBuf,
    remote: String,
    /// For what goes over the network: with the user's credentials, proxies and hooks.
    network: program::Git,
    /// For the rest.
    git: Git,
    /// Where only one run at a time may land.
    held: PathBuf,
}

/// The branches of a remote, by their short names.
#[derive(Debug)]
pub(crate) struct RemoteBranches {
    pub(crate) tips: BTreeMap<String, ObjectId>,
    default: Option<String>,
}

impl Repository {
    /// Opens a repository; nothing is written.
    pub(crate) fn open(folder: &Path, remote: &str) -> Result<Repository, Stop> {
        let git = Git::at(folder);
        let ask = |what| git.run(["rev-parse", "--path-format=absolute", what]);
        let (own, common) = ask("--git-dir")
            .and_then(|own| ask("--git-common-dir").map(|common| (own, common)))
            .map_err(Stop::refused)?;
        let network =
            program::Git::open(Path::new(&own)).map_err(|error| Stop::refused(chain(&error)))?;
        let held = Path::new(&common).join("batchyard").join("run");
        Ok(Repository { folder: folder.to_owned(), remote: remote.to_owned(), network, git, held })
    }

    /// Keeps other runs from landing in the repository; one that does so is not waited for.
    pub(crate) fn hold(&self) -> Result<FolderLock, Stop> {
        fs::create_dir_all(&self.held).map_err(|error| {
            Stop::unfinished(format_args!("cannot write to {}: {error}", self.held.display()))
        })?;
        // The answers are there by now, so nothing about it is a refusal.
        FolderLock::take(&self.held).map_err(|mut stop| {
            stop.exit = Exit::Unfinished;
            stop
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Asks the remote what it has.
    pub(crate) fn remote_branches(&self) -> Result<RemoteBranches, String> {
        let state =
            publish::remote_refs(&self.network, &self.remote).map_err(|error| chain(&error))?;
        let short = |name: String| name.strip_prefix("refs/heads/").map(str::to_owned);
        let tips = state.refs.iter().filter_map(|(name, id)| Some((short(name.to_string())?, *id)));
        let here = self.git.run(["symbolic-ref", "--quiet", "HEAD"]).ok();
        let default = state.default_branch(here.as_deref().map(Into::into));
        Ok(RemoteBranches {
            tips: tips.collect(),
            default: default.and_then(|head| short(head.to_string())),
        })
    }

    /// Makes the commit of a branch of the remote available here, and returns it.
    pub(crate) fn fetch(&self, remote: &RemoteBranches, branch: &str) -> Result<ObjectId, String> {
        if let Some(tip) = remote.tips.get(branch)
            && self.git.run(["cat-file", "-e", &format!("{tip}^{{commit}}")]).is_ok()
        {
            return Ok(*tip);
        }
        let name = format!("refs/heads/{branch}");
        let fetched = publish::fetch(&self.network, &self.remote, &[name.into()])
            .map_err(|error| chain(&error))?;
        let tip = fetched.first().map(|(_, id)| *id);
        tip.ok_or_else(|| format!("the remote has no branch \"{branch}\""))
    }

    /// Pushes all updates with one command.
    pub(crate) fn push(&self, updates: &[RefUpdate]) -> Result<PushReport, String> {
        publish::push(&self.network, &self.remote, updates).map_err(|error| chain(&error))
    }

    /// Returns the commit of a local branch.
    pub(crate) fn branch(&self, name: &str) -> Option<ObjectId> {
        let full = format!("refs/heads/{name}^{{commit}}");
        let said = self.git.run(["rev-parse", "--quiet", "--verify", &full]).ok()?;
        ObjectId::from_hex(said.as_bytes()).ok()
    }

    /// Returns the names of all local branches.
    pub(crate) fn branches(&self) -> Result<BTreeSet<String>, String> {
        let names = self.git.run(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"])?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Makes a local branch, or moves it.
    pub(crate) fn set_branch(&self, name: &str, to: ObjectId) -> Result<(), String> {
        let (name, to) = (format!("refs/heads/{name}"), to.to_string());
        self.git.run(["update-ref", "--no-deref", &name, &to]).map(drop)
    }

    /// Removes a local branch.
    pub(crate) fn delete_branch(&self, name: &str) -> Result<(), String> {
        let name = format!("refs/heads/{name}");
        self.git.run(["update-ref", "--no-deref", "-d", &name]).map(drop)
    }

    /// Fast-forwards a local branch that is behind and checked out nowhere; otherwise nothing.
    pub(crate) fn follow(&self, branch: &str, source: &str) {
        let name = format!("refs/heads/{branch}");
        let args = ["for-each-ref", "--format=:%(worktreepath)", "--", &name];
        // One line with nothing behind the colon: it exists, and no work tree has it.
        if self.git.run(args).is_ok_and(|said| said == ":") {
            let refspec = format!("refs/heads/{source}:refs/heads/{branch}");
            // Git itself refuses what is checked out or would lose a commit.
            // And nothing but the branch is to move.
            let args = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
            let args = args.into_iter().chain(["--no-recurse-submodules", "--no-auto-maintenance"]);
            let _ = self.git.run(args.chain([".", &refspec]));
        }
    }
}

impl RemoteBranches {
    /// Returns the branch to land on: the one that is named, or else the remote's default.
    pub(crate) fn base(&self, named: Option<&str>) -> Result<String, Stop> {
        let Some(base) = named.map(str::to_owned).or_else(|| self.default.clone()) else {
            return Err(Stop::refused("the remote names no default branch")
                .help("name the base branch with `onto` in [land]"));
        };
        if self.tips.contains_key(&base) {
            return Ok(base);
        }
        let known: Vec<&str> = self.tips.keys().map(String::as_str).take(20).collect();
        let hint = crate::suggest::hint(&base, &known);
        Err(Stop::refused(format_args!("the remote has no branch \"{base}\"{hint}"))
            .help("push the base branch first, or name another with `onto` in [land]"))
    }
}
