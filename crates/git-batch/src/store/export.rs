//! Puts the files of a tree into a folder, also of a tree that is only in memory.

use std::ffi::OsString;

use gix::ObjectId;
use gix::objs::Write;

use super::Store;
use super::oracle::quoted_always;
use crate::gate::Scratch;
use crate::program::Git;
use crate::{OpError, OpErrorKind};

/// Why a tree was not checked out.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The machine has no room for it, or could not run git to its end: that says nothing of the tree.
    Machine(OpError),
    /// Git says that it cannot be, as where a filter is missing.
    Tree(OpError),
}

/// What git says where it is the machine that has no room.
const NO_ROOM: [&str; 4] = [
    "No space left on device",
    "Disk quota exceeded",
    "Too many open files",
    "Cannot allocate memory",
];

impl Unfit {
    pub(crate) fn into_error(self) -> OpError {
        let (Self::Machine(error) | Self::Tree(error)) = self;
        error
    }
}

impl Store {
    /// Checks `tree` out into the folder of a gate, with filters and line ends as git has them. The
    /// repository's own work trees and indexes are not touched. Two processes.
    pub(crate) fn export(
        &mut self,
        tree: ObjectId,
        git: &Git,
        scratch: &Scratch,
    ) -> Result<(), Unfit> {
        let what = "cannot check out the merged tree for the gate";
        let fault =
            |error: &dyn std::error::Error| Unfit::Machine(OpError::repository(what, error));
        let loose = gix::odb::loose::Store::at(scratch.objects(), self.repo.object_hash());
        for (id, kind, data) in self.unwritten(&[tree]) {
            loose.write_buf_with_known_id(kind, &data, id).map_err(|error| fault(&error))?;
        }
        let folder = scratch.tree();
        let mut work_tree = OsString::from("--work-tree=");
        work_tree.push(&folder);
        let tree = tree.to_string();
        for args in [["read-tree", tree.as_str(), ""], ["checkout-index", "--all", "--quiet"]] {
            let mut command = git.command();
            command
                .env("GIT_INDEX_FILE", scratch.index())
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted_always(&scratch.objects()))
                .current_dir(&folder)
                .args(["-c", "core.sparseCheckout=false", "-c", "core.fsmonitor=false"])
                .args(["-c", "core.splitIndex=false"])
                .arg(&work_tree)
                .args(args.iter().filter(|arg| !arg.is_empty()));
            self.processes.set(self.processes.get() + 1);
            let output = git.finish(command, None).map_err(|error| fault(&error))?;
            if !output.is_success() {
                let said = crate::publish::scrub::excerpt(&output.stderr);
                let error = OpError::new(OpErrorKind::Repository, format!("{what}: {said}"));
                let is_killed = output.code.is_none();
                let is_machine = is_killed || NO_ROOM.iter().any(|sign| said.contains(sign));
                return Err(if is_machine { Unfit::Machine(error) } else { Unfit::Tree(error) });
            }
        }
        Ok(())
    }
}
