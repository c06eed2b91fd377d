//! Folders of refs where a file system cannot be made durable as a whole.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use git_batch::disk::{self, Change};
use git_batch::{Commit, Operation};
use support::{Fixture, landed};

#[test]
fn each_folder_is_made_durable_where_the_file_system_cannot_be() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..5).map(|n| format!("agent/{n}/work")).collect();
    for name in &names {
        fixture.git(["update-ref", &format!("refs/heads/{name}"), "main"]);
    }
    let operations = names.iter().map(|name| {
        let commit = Commit::new(name, "m").write("more", "x");
        Operation::commit(name, commit)
    });
    disk::refuse_file_systems();
    disk::record();
    let report = fixture.open().apply(operations.collect()).unwrap();
    let changes = disk::record();
    for name in &names {
        landed(&report, name);
        let folder = format!("refs/heads/{}", name.strip_suffix("/work").unwrap());
        let is_of =
            |change: &Change| matches!(change, Change::SyncFolder(path) if path.ends_with(&folder));
        assert!(changes.iter().any(is_of), "{folder}: {changes:?}");
    }
    assert!(report.receipt().fsyncs >= 5, "{report:?}");
    fixture.assert_sound();
}
