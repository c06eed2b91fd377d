//! Partial clones: contents that are only at the remote until somebody needs them.

use gix::ObjectId;

use super::Store;
use crate::publish::scrub;
use crate::{OpError, OpErrorKind};

impl Store {
    /// Makes contents available that a partial clone has left at its remote: one process and one
    /// round trip if any is missing, nothing in other repositories.
    pub(super) fn fetch_missing(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<(), OpError> {
        let Some(remote) = &self.promisor else { return Ok(()) };
        let mut missing: Vec<ObjectId> =
            ids.into_iter().filter(|id| !self.repo.has_object(*id)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let input: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let input = input.join("\n") + "\n";
        // As git itself does it.
        let args = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet"];
        let more = ["--no-tags", "--no-write-fetch-head", "--recurse-submodules=no"];
        let last = ["--no-auto-maintenance", "--filter=blob:none", "--stdin", "--", remote];
        let args = args.into_iter().chain(more).chain(last);
        let output = self.ask_program(args, Some(input.as_bytes()))?;
        if output.is_success() {
            return Ok(());
        }
        let said = scrub::excerpt(&output.stderr);
        let message =
            format!("cannot fetch {} objects that this partial clone lacks: {said}", missing.len());
        Err(OpError::new(OpErrorKind::Remote, message))
    }
}
