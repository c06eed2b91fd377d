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

    /// Lets go of all that is held of a batch. Two processes, one if there is nothing.
    pub(crate) fn let_go(&mut self, batch: &str) {
        let args = ["for-each-ref", "--format=delete %(refname)", &format!("{UNHEARD}/{batch}/")];
        let Ok(output) = self.ask_program(args, None) else { return };
        self.update(&String::from_utf8_lossy(&output.stdout));
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
