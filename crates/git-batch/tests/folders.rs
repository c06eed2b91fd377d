//! Folders of refs where a file system cannot be made durable as a whole.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

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
    a_branch_that_is_not_durable_is_so_before_its_batch_is_over(&fixture);
    fixture.assert_sound();
}

/// In one test with the other: what the disk does is the same for all of a process.
fn a_branch_that_is_not_durable_is_so_before_its_batch_is_over(fixture: &Fixture) {
    let open = || fs::read_dir(fixture.work().join(".git/batchyard/open")).unwrap().count();
    fixture.git(["update-ref", "refs/heads/x/y", "main"]);
    let commit =
        |id: &str, branch: &str| Operation::commit(id, Commit::new(branch, id).write(id, "x"));
    disk::fail_for_refs(true);
    let operations = || vec![commit("one", "x/y"), commit("two", "agent/0/work")];
    landed(&fixture.open().apply(operations()).unwrap(), "one");
    assert_eq!(open(), 1);
    disk::fail_for_refs(false);
    disk::record();
    landed(&fixture.open().apply(vec![commit("three", "z")]).unwrap(), "three");
    let changes = disk::record();
    let is_of =
        |change: &Change| matches!(change, Change::SyncFolder(path) if path.ends_with("heads/x"));
    assert!(changes.iter().any(is_of), "{changes:?}");
    assert_eq!(open(), 0);
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!(again.replayed.len(), 2);
}
