//! What git makes of a file's content before it stores it, and which files it ignores.

use std::ffi::OsString;
use std::path::Path;

use bstr::BStr;
use gix::ObjectId;
use gix::attrs::StateRef;
use gix::attrs::search::Outcome;
use gix::filter::plumbing::pipeline::convert::ToGitOutcome;
use gix::index::entry::Mode;
use gix::worktree::Stack;
use gix::worktree::stack::state::{attributes, ignore};

use super::super::Store;
use super::super::oracle::quoted_always;
use crate::outcome::causes;
use crate::program::Git;
use crate::publish::scrub;
use crate::{OpError, OpErrorKind};

/// Where objects go that git makes, below the folder of the writer.
const QUARANTINE: &str = "quarantine/objects";

/// The rules of one work tree.
pub(super) struct Rules<'a> {
    store: &'a Store,
    repo: &'a gix::Repository,
    git: &'a Git,
    state: &'a Path,
    stack: Stack,
    pipeline: gix::filter::plumbing::Pipeline,
    /// The filters that have a program.
    drivers: Vec<gix::filter::plumbing::Driver>,
    special: Outcome,
    processes: u32,
}

impl<'a> Rules<'a> {
    /// Reads the settings of the work tree; `git` runs there, `state` is the writer's folder.
    pub(super) fn read(
        store: &'a Store,
        repo: &'a gix::Repository,
        index: &gix::index::State,
        git: &'a Git,
        state: &'a Path,
    ) -> Result<Rules<'a>, OpError> {
        let fault = |error: gix::Error| {
            OpError::repository("cannot read the attributes and ignore rules", &error)
        };
        let stack = repo
            .attributes(
                index,
                attributes::Source::WorktreeThenIdMapping,
                ignore::Source::WorktreeThenIdMappingIfNotSkipped,
                None,
            )
            .map_err(fault)?
            .detach();
        let mut options = gix::filter::Pipeline::options(repo).map_err(fault)?;
        // They are run by git alone.
        let drivers = std::mem::take(&mut options.drivers);
        let context = repo.command_context().map_err(fault)?;
        let pipeline = gix::filter::plumbing::Pipeline::new(context, repo.object_hash(), options);
        let special =
            stack.selected_attribute_matches(["filter", "ident", "working-tree-encoding"]);
        Ok(Rules { store, repo, git, state, stack, pipeline, drivers, special, processes: 0 })
    }

    /// How many `git` programs were started.
    pub(super) fn processes(&self) -> u32 {
        self.processes
    }

    /// Whether git would ignore the path if it is not tracked.
    pub(super) fn is_ignored(&mut self, path: &BStr, is_folder: bool) -> Result<bool, OpError> {
        let mode = if is_folder { Mode::DIR } else { Mode::FILE };
        let at = self.stack.at_path(path, Some(mode), &self.repo.objects);
        Ok(at.map_err(|error| unreadable(path, &error))?.is_excluded())
    }

    /// Makes the blob of a file's content; `tracked` is the blob that the index has for the path.
    /// What equals that one is not kept.
    pub(super) fn blob(
        &mut self,
        path: &BStr,
        content: &[u8],
        tracked: Option<ObjectId>,
    ) -> Result<ObjectId, OpError> {
        let (repo, store) = (self.repo, self.store);
        let at = self.stack.at_path(path, Some(Mode::FILE), &repo.objects);
        let at = at.map_err(|error| unreadable(path, &error))?;
        self.special.reset();
        at.matching_attributes(&mut self.special);
        let is_special = self.special.iter_selected().any(|found| {
            match (found.assignment.name.as_str(), found.assignment.state) {
                ("filter", StateRef::Value(name)) => self.drivers.iter().any(|driver| {
                    driver.name == name.as_bstr()
                        && (driver.clean.is_some() || driver.process.is_some() || driver.required)
                }),
                ("ident", StateRef::Set) | ("working-tree-encoding", StateRef::Value(_)) => true,
                _ => false,
            }
        });
        if is_special {
            return self.ask_git(path, content);
        }
        let from_index = &mut |buffer: &mut Vec<u8>| match tracked {
            None => Ok(None),
            Some(id) => Ok(gix::objs::Find::try_find(&repo.objects, &id, buffer)?
                .filter(|object| object.kind == gix::objs::Kind::Blob)
                .map(|_| ())),
        };
        let rela_path = gix::path::from_bstr(path).map_err(|error| unreadable(path, &error))?;
        let converted = self
            .pipeline
            .convert_to_git(
                content,
                &rela_path,
                &mut |_, found| {
                    at.matching_attributes(found);
                },
                from_index,
            )
            .map_err(|error| unconverted(path, &causes(&error)))?;
        let content = match converted {
            ToGitOutcome::Unchanged(content) | ToGitOutcome::Buffer(content) => content,
            ToGitOutcome::Process(_) => unreachable!("no filter has a program here"),
        };
        if let Some(tracked) = tracked
            && hash(store, content)? == tracked
        {
            return Ok(tracked);
        }
        store.write_blob(content)
    }

    /// Makes the blob of a symlink, to which no rule applies.
    pub(super) fn link(&self, target: &[u8]) -> Result<ObjectId, OpError> {
        self.store.write_blob(target)
    }

    /// The blob as git makes it, by whatever program the attributes name.
    fn ask_git(&mut self, path: &BStr, content: &[u8]) -> Result<ObjectId, OpError> {
        let objects = self.state.join(QUARANTINE);
        std::fs::create_dir_all(objects.join("pack"))
            .map_err(|error| OpError::repository("cannot make a folder for objects", &error))?;
        let alternates = quoted_always(&self.store.common_dir.join("objects"));
        let os = |bytes: &[u8]| -> Result<OsString, OpError> {
            let path = gix::path::from_byte_slice(bytes);
            Ok(path.map_err(|error| OpError::repository("cannot name a path", &error))?.into())
        };
        let mut command = self.git.command();
        command
            .env("GIT_OBJECT_DIRECTORY", &objects)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates)
            .args(["hash-object", "-w", "--stdin"])
            .arg(os(&[b"--path=".as_slice(), path].concat())?);
        self.processes += 1;
        let output = self
            .git
            .finish(command, Some(content))
            .map_err(|error| OpError::repository("cannot run git", &error))?;
        let id =
            ObjectId::from_hex(output.stdout.trim_ascii()).ok().filter(|_| output.is_success());
        let Some(id) = id else {
            return Err(unconverted(path, &scrub::excerpt(&output.stderr)));
        };
        let loose = gix::odb::loose::Store::at(objects, self.repo.object_hash());
        self.store.import(&loose, id)?;
        Ok(id)
    }
}

fn hash(store: &Store, content: &[u8]) -> Result<ObjectId, OpError> {
    gix::objs::compute_hash(store.hash_kind(), gix::objs::Kind::Blob, content)
        .map_err(|error| OpError::repository("cannot hash a file", &error))
}

fn unreadable(path: &BStr, error: &dyn std::error::Error) -> OpError {
    OpError::repository(&format!("cannot read {path:?} or the rules for it"), error)
}

fn unconverted(path: &BStr, why: &str) -> OpError {
    OpError::new(OpErrorKind::Filtered, format!("git cannot store {path:?} as it is: {why}"))
}
