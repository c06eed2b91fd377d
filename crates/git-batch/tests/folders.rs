//! Folders of refs where a file system cannot be made durable as a whole.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

use git_batch::disk::{self, Change};
use git_batch::{ApplyError, Commit, Operation};
use rustix::io::Errno;
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
    let state = fixture.work().canonicalize().unwrap().join(".git/batchyard");
    let open = || fs::read_dir(state.join("open")).unwrap().count();
    fixture.git(["update-ref", "refs/heads/x/y", "main"]);
    let commit =
        |id: &str, branch: &str| Operation::commit(id, Commit::new(branch, id).write(id, "x"));
    let delete = Commit::new("x/y", "delete").delete("README.md");
    let operations =
        || vec![Operation::commit("one", delete.clone()), commit("two", "agent/0/work")];
    disk::fail_for_refs(Errno::IO.raw_os_error());
    landed(&fixture.open().apply(operations()).unwrap(), "one");
    assert_eq!(open(), 1);
    // It is not done once more.
    let tip = fixture.id("x/y");
    let error = fixture.open().apply(operations()).unwrap_err();
    assert!(matches!(error, ApplyError::State { .. }), "{error}");
    assert!(error.to_string().contains("durable: Input/output error"), "{error}");
    assert_eq!((fixture.id("x/y"), open()), (tip, 1));
    disk::fail_for_refs(0);
    disk::record();
    landed(&fixture.open().apply(vec![commit("three", "z")]).unwrap(), "three");
    let changes = disk::record();
    let over = |change: &Change| matches!(change, Change::Rename(_, to) if to.starts_with(&state));
    let before = &changes[..changes.iter().position(over).unwrap()];
    // They were packed, by a process that may have been killed before it made that durable.
    for folder in ["refs/heads/x", ""] {
        let path = state.parent().unwrap().join(folder);
        let is_of = |change: &Change| matches!(change, Change::SyncFolder(found) if *found == path);
        assert!(before.iter().any(is_of), "{folder}: {changes:?}");
    }
    assert_eq!(open(), 0);
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!(again.replayed.len(), 2);
    // A process that has too many files open cannot do it now; that is no reason to trust the disk.
    disk::fail_for_refs(Errno::MFILE.raw_os_error());
    landed(
        &fixture.open().apply(vec![commit("files", "w"), commit("more", "z")]).unwrap(),
        "files",
    );
    assert_eq!(open(), 1);
    disk::fail_for_refs(0);
    // Where folders cannot be made durable at all, there is nothing to wait for.
    disk::fail_for_refs(Errno::BADF.raw_os_error());
    let delete = || {
        let delete = Commit::new("z", "delete").delete("src/lib.rs");
        vec![Operation::commit("four", delete), commit("five", "agent/1/work")]
    };
    landed(&fixture.open().apply(delete()).unwrap(), "four");
    assert_eq!(open(), 0);
    assert_eq!(fixture.open().apply(delete()).unwrap().replayed.len(), 2);
    disk::fail_for_refs(0);
    what_a_remote_has_said_is_not_durable_by_that(fixture);
}

/// A push that nobody has heard of is found out; the disk fails then, and not the remote.
fn what_a_remote_has_said_is_not_durable_by_that(fixture: &Fixture) {
    let (remote, away) = (fixture.remote(), fixture.beside("away.git"));
    let vanish = format!("mv '{}' '{}'; kill -9 $PPID", remote.display(), away.display());
    fixture.hook("pre-receive", &format!("{vanish}; exit 1"));
    let commit =
        |id: &str| Operation::commit(id, Commit::new(id, id).with_base("main").write(id, "x"));
    let operations = || {
        let push = Operation::push("push", "there");
        [commit("here"), commit("there"), push].map(|operation| operation.in_group("g")).to_vec()
    };
    fixture.open().apply(operations()).unwrap();
    fs::rename(&away, &remote).unwrap();
    fixture.hook("pre-receive", "exit 0");
    disk::fail_for_refs(Errno::IO.raw_os_error());
    let error = fixture.open().apply(operations()).unwrap_err();
    assert!(matches!(error, ApplyError::State { .. }), "{error}");
    assert!(error.to_string().contains("durable: Input/output error"), "{error}");
    disk::fail_for_refs(0);
    let report = fixture.open().apply(operations()).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(fixture.at_remote(["rev-list", "--count", "main..there"]).trim(), "1");
}
