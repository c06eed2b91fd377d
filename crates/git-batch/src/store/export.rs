//! Puts the files of a tree into a folder, also of a tree that is only in memory.

use std::ffi::OsString;

use gix::ObjectId;
use gix::objs::Write;

use super::Store;
use super::oracle::quoted_always;
use crate::gate::Scratch;
use crate::program::Git;
use crate::{OpError, OpErrorKind};

impl Store {
    /// Checks `tree` out into the folder of a gate, with filters and line ends as git has them. The
    /// repository's own work trees and indexes are not touched. Two processes.
    ///
    /// # Errors
    /// There is no room, or it is the tree that cannot be checked out, as where a filter is missing.
    pub(crate) fn export(
        &mut self,
        tree: ObjectId,
        git: &Git,
        scratch: &Scratch,
    ) -> Result<(), OpError> {
        let what = "cannot check out the merged tree for the gate";
        let fault = |error: &dyn std::error::Error| OpError::repository(what, error);
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
                return Err(OpError::new(OpErrorKind::Repository, format!("{what}: {said}")));
            }
        }
        Ok(())
    }
}
