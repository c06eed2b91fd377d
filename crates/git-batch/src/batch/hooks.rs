//! Hooks of the repository that are asked for.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use bstr::{BString, ByteSlice};

use super::Batch;
use crate::publish::scrub;
use crate::store::check_message;
use crate::{Extent, Hook, OpError, OpErrorKind};

/// Where the message is while the hook looks at it, in the folder of the writer.
const MESSAGE: &str = "message";

impl Batch<'_, '_> {
    /// Lets the hook `commit-msg` see and change a message, in the work tree that `git_dir` is of.
    pub(super) fn hooked(
        &mut self,
        message: BString,
        git_dir: Option<&Path>,
    ) -> Result<BString, OpError> {
        if self.extent == Extent::Preview || !self.session.settings.hooks.contains(&Hook::CommitMsg)
        {
            return Ok(message);
        }
        let path = self.session.lock.state_dir().join(MESSAGE);
        let fault = |error: &dyn std::error::Error| {
            OpError::repository("cannot run the hook commit-msg", error)
        };
        fs::write(&path, &message).map_err(|error| fault(&error))?;
        let git = match git_dir {
            Some(git_dir) => self.session.git.in_git_dir(git_dir),
            None => self.session.git.clone(),
        };
        self.receipt.processes += 1;
        let arguments = ["hook", "run", "--ignore-missing", "commit-msg", "--"].map(OsStr::new);
        let output = git
            .run(arguments.into_iter().chain([path.as_os_str()]), None)
            .map_err(|error| fault(&error))?;
        if !output.is_success() {
            // Git sends what a hook prints to standard error.
            let said = scrub::excerpt(&output.stderr);
            let message = format!("the hook commit-msg refused the message: {said}");
            return Err(OpError::new(OpErrorKind::Hook, message));
        }
        let message = fs::read(&path).map_err(|error| fault(&error))?;
        let _ = fs::remove_file(&path);
        check_message(message.as_bstr())
    }
}
