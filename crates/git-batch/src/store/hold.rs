//! Keeps commits that no branch has from `git gc`, as long as it is not known whether a remote has them.

use gix::ObjectId;

use super::Store;

/// Where they are kept, by batches.
const UNHEARD: &str = "refs/batchyard/unheard";

impl Store {
    /// Holds the commits of a batch. One process.
    pub(crate) fn hold(&mut self, batch: &str, commits: &[ObjectId]) {
        let commits = commits.iter().enumerate();
        let update = |(n, id): (usize, &ObjectId)| format!("update {UNHEARD}/{batch}/{n} {id}\n");
        let input: String = commits.map(update).collect();
        self.update(&input);
    }

    /// Lets go of all that is held of batches that nobody needs to hear of any more. One process if
    /// there is any; where the git program reads the refs, one more.
    pub(crate) fn let_go(&mut self, is_needed: impl Fn(&str) -> bool) {
        let is_over = |name: &&String| {
            let batch = name.strip_prefix(UNHEARD).and_then(|rest| rest.strip_prefix('/'));
            batch.and_then(|rest| rest.split_once('/')).is_some_and(|(batch, _)| !is_needed(batch))
        };
        let held = self.refs_below(UNHEARD);
        let over = held.iter().filter(is_over);
        let input: String = over.flat_map(|name| ["delete ", name, "\n"]).collect();
        self.update(&input);
    }

    /// Where it cannot be done, the record alone has to do: what has arrived can be fetched again.
    fn update(&mut self, input: &str) {
        if input.is_empty() {
            return;
        }
        let Ok(mut command) = self.program().map(crate::program::Git::command) else { return };
        command
            .args(["-c", "core.fsync=reference", "-c", "core.fsyncMethod=fsync"])
            .args(["-c", "core.logAllRefUpdates=false"])
            .args(["update-ref", "--no-deref", "--stdin"]);
        let _ = self.finish_program(command, Some(input.as_bytes()));
    }
}
