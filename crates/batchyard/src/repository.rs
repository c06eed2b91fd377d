//! What a run asks a repository and its remote beside its batch of commits and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use git_batch::publish;
use git_batch::{ObjectId, program};

use crate::exit::{Exit, Stop, chain};
use crate::git::Git;
use crate::lock::FolderLock;

/// A repository and one of its remotes.
#[derive(Debug)]
pub(crate) struct Repository {
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

/// A branch that is in the way of another.
#[derive(Debug)]
pub(crate) struct Clash {
    pub(crate) name: String,
    pub(crate) is_remote: bool,
    pub(crate) wanted: String,
}

/// Where it is noted what a run has left on which branch.
const LEFT: &str = "refs/batchyard/run/";

/// A local branch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalBranch {
    pub(crate) tip: ObjectId,
    pub(crate) is_checked_out: bool,
    /// It is as a run has left it: nobody has committed to it since.
    pub(crate) is_of_a_run: bool,
}

impl Repository {
    /// Opens a repository; nothing is written.
    pub(crate) fn open(folder: &Path, remote: &str) -> Result<Repository, Stop> {
        let git = Git::at(folder);
        let ask = |what| git.path(["rev-parse", "--path-format=absolute", what]);
        let (own, common) = ask("--git-dir")
            .and_then(|own| ask("--git-common-dir").map(|common| (own, common)))
            .map_err(Stop::refused)?;
        let network = program::Git::open(&own).map_err(|error| Stop::refused(chain(&error)))?;
        let held = common.join("batchyard").join("run");
        Ok(Repository { remote: remote.to_owned(), network, git, held })
    }

    /// Says which remote of which repository it is; the latter by its folder, at the end.
    pub(crate) fn place(&self) -> String {
        let common = self.held.ancestors().nth(2).unwrap_or(&self.held);
        format!("{}{}", self.remote_of(), common.display())
    }

    /// Returns how every [`place`](Repository::place) begins that has a remote of that name.
    pub(crate) fn remote_of(&self) -> String {
        format!("remote {} of ", self.remote)
    }

    /// Keeps other runs from landing in the repository; one that does so is not waited for.
    ///
    /// # Errors
    ///
    /// Status 3, as the answers are there by then.
    pub(crate) fn hold(&self) -> Result<FolderLock, Stop> {
        let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.held);
        let cannot = |error| format!("cannot write to {}: {error}", self.held.display());
        private.map_err(|error| Stop::unfinished(cannot(error)).kept())?;
        FolderLock::take(&self.held).map_err(|stop| match stop.exit {
            // Another run, which says when to run again.
            Exit::Unfinished => stop,
            _ => stop.once_begun().kept(),
        })
    }

    /// Checks that commits and branches can be written, before anything is paid that needs them. Nothing is
    /// left behind.
    ///
    /// # Errors
    ///
    /// The folder that cannot be written to.
    pub(crate) fn check_writable(&self) -> Result<(), Stop> {
        let common = self.held.ancestors().nth(2).unwrap_or(&self.held);
        let state = self.held.ancestors().find(|folder| folder.exists());
        for folder in [state, Some(&common.join("objects")), Some(&common.join("refs"))] {
            let Some(folder) = folder else { continue };
            tempfile::tempfile_in(folder).map_err(|error| {
                Stop::refused(format_args!("cannot write to {}: {error}", folder.display()))
                    .help("make the repository writable")
            })?;
        }
        Ok(())
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

    /// Makes the commits of some branches that the remote has available here, in one fetch.
    pub(crate) fn fetch_all(&self, branches: &BTreeSet<&String>) -> Result<(), String> {
        let name = |branch: &&String| format!("refs/heads/{branch}").into();
        let names: Vec<_> = branches.iter().map(name).collect();
        publish::fetch(&self.network, &self.remote, &names).map(drop).map_err(|error| chain(&error))
    }

    /// Returns the local branches below `folder`, with their commits and whether they are checked out.
    pub(crate) fn branches(&self, folder: &str) -> Result<BTreeMap<String, LocalBranch>, String> {
        let format = "--format=%(objectname) %(refname:lstrip=2)%00%(worktreepath)";
        let said = self.git.run(["for-each-ref", format, &format!("refs/heads/{folder}/")])?;
        let left = self.git.run(["for-each-ref", "--format=%(objectname) %(refname)", LEFT])?;
        let left: BTreeSet<&str> = left.lines().collect();
        let read = |line: &str| {
            let (id, rest) = line.split_once(' ')?;
            let (name, place) = rest.split_once('\0')?;
            let tip = ObjectId::from_hex(id.as_bytes()).ok()?;
            let is_of_a_run = left.contains(format!("{id} {LEFT}{name}").as_str());
            let branch = LocalBranch { tip, is_checked_out: !place.is_empty(), is_of_a_run };
            Some((name.to_owned(), branch))
        };
        Ok(said.lines().filter_map(read).collect())
    }

    /// Returns a branch that one of `wanted` cannot be beside, with that one: of two names one is a folder
    /// of the other. Looked for here and, where they are to be pushed, at the remote.
    pub(crate) fn clash(
        &self,
        wanted: &[String],
        remote: Option<&RemoteBranches>,
    ) -> Result<Option<Clash>, String> {
        let pattern = "refs/heads/batchyard";
        let local = self.git.run(["for-each-ref", "--format=%(refname:lstrip=2)", pattern])?;
        let here = local.lines().map(|name| (name, false));
        let there = remote.iter().flat_map(|remote| remote.tips.keys());
        let there = there.map(|name| (name.as_str(), true));
        let is_inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|r| r.starts_with('/'))
        };
        Ok(here.chain(there).find_map(|(name, is_remote)| {
            let other = wanted.iter().find(|w| is_inside(w, name) || is_inside(name, w))?;
            Some(Clash { name: name.to_owned(), is_remote, wanted: other.clone() })
        }))
    }

    /// Notes where a run leaves branches.
    pub(crate) fn note_left(&self, branches: &[(String, ObjectId)]) -> Result<(), String> {
        let line = |(name, tip): &(String, ObjectId)| format!("update {LEFT}{name} {tip}\n");
        self.update_refs(branches.iter().map(line))
    }

    /// Does what lines for `git update-ref` say, all or nothing.
    fn update_refs(&self, lines: impl Iterator<Item = String>) -> Result<(), String> {
        let lines: String = lines.collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.fed(&["update-ref", "--no-deref", "--stdin"], &lines).map(drop)
    }

    /// Runs git with something to read, and returns what it printed.
    fn fed(&self, args: &[&str], stdin: &str) -> Result<Vec<u8>, String> {
        let ran = self.network.run(args, Some(stdin.as_bytes())).map_err(|error| chain(&error))?;
        if ran.is_success() {
            return Ok(ran.stdout);
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        Err(format!("git {} failed: {}", args.first().unwrap_or(&""), said.trim()))
    }

    /// Forgets where runs have left branches that are gone or somewhere else by now, or whose commit is in
    /// `base`: it would be kept from `git gc` for ever. What the branch has still is kept by the branch.
    pub(crate) fn forget_left(
        &self,
        known: &BTreeMap<String, LocalBranch>,
        base: ObjectId,
    ) -> Result<(), String> {
        let left = self.git.run(["for-each-ref", "--format=%(refname)", LEFT])?;
        if left.is_empty() {
            return Ok(());
        }
        let merged = format!("--merged={base}");
        let landed = self.git.run(["for-each-ref", "--format=%(refname)", &merged, LEFT])?;
        let landed: BTreeSet<&str> = landed.lines().collect();
        let is_there = |branch: &str| known.get(branch).is_some_and(|branch| branch.is_of_a_run);
        let is_over = |name: &&str| {
            landed.contains(name) || name.strip_prefix(LEFT).is_some_and(|branch| !is_there(branch))
        };
        let delete = |name: &str| format!("delete {name}\n");
        self.update_refs(left.lines().filter(is_over).map(delete))
    }

    /// Returns those of some commits that are here; where git can ask a remote for others, it does not.
    pub(crate) fn present(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, String> {
        let options = ["--no-walk=unsorted", "--ignore-missing", "--missing=allow-any"];
        self.listed(&options, commits, "")
    }

    /// Returns those of some commits, which are all here, that are not `base` and not before it.
    pub(crate) fn outside(
        &self,
        commits: &[ObjectId],
        base: ObjectId,
    ) -> Result<BTreeSet<ObjectId>, String> {
        self.listed(&[], commits, &format!("^{base}\n"))
    }

    /// Returns what `git rev-list` lists of some commits.
    fn listed(
        &self,
        options: &[&str],
        commits: &[ObjectId],
        more: &str,
    ) -> Result<BTreeSet<ObjectId>, String> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let ids: Vec<String> = commits.iter().map(|id| format!("{id}\n")).collect();
        let args = [&["rev-list"], options, &["--stdin"]].concat();
        let said = self.fed(&args, &(ids.concat() + more))?;
        let listed = said.split(|byte| *byte == b'\n');
        Ok(listed.filter_map(|line| ObjectId::from_hex(line).ok()).collect())
    }

    /// Tells whether there is a hook here that git asks before it pushes.
    pub(crate) fn has_push_hook(&self) -> bool {
        let args = ["rev-parse", "--path-format=absolute", "--git-path", "hooks/pre-push"];
        let hook = self
            .git
            .path(args)
            .and_then(|hook| fs::metadata(hook).map_err(|error| error.to_string()));
        hook.is_ok_and(|hook| hook.is_file() && hook.permissions().mode() & 0o111 != 0)
    }

    /// Returns the first parent of a commit, if it has one.
    pub(crate) fn parent(&self, commit: ObjectId) -> Option<ObjectId> {
        let said =
            self.git.run(["rev-parse", "--verify", "--quiet", &format!("{commit}^")]).ok()?;
        ObjectId::from_hex(said.trim().as_bytes()).ok()
    }

    /// Tells whether a commit is another one or before it.
    pub(crate) fn is_ancestor(&self, commit: ObjectId, of: ObjectId) -> bool {
        let ids = [commit, of].map(|id| id.to_string());
        commit == of || self.git.run(["merge-base", "--is-ancestor", &ids[0], &ids[1]]).is_ok()
    }

    /// Moves a local branch from one commit to another, whatever they have in common; from `None` it is
    /// made.
    pub(crate) fn set_branch(
        &self,
        name: &str,
        from: Option<ObjectId>,
        to: ObjectId,
    ) -> Result<(), String> {
        let (name, to) = (format!("refs/heads/{name}"), to.to_string());
        let from = from.map_or_else(String::new, |from| from.to_string());
        let why = "batchyard: begun anew";
        // Also where none is kept by default, as in a bare repository.
        let command = ["update-ref", "--no-deref", "--create-reflog", "-m", why, &name, &to, &from];
        self.git.run(command).map(drop)
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
