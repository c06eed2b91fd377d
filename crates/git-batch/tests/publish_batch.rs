//! Many operations, one push, nothing else touched.

mod support;

use bstr::BString;
use git_batch::{
    Action, Author, Change, Commit, GitBatch, Mode, OpErrorKind, Operation, Place, Settings,
};
use support::{Fixture, kind, landed, no_change};

#[test]
fn thirty_commits_and_thirty_pushes_are_one_receive() {
    let fixture = Fixture::new();
    // Work in progress that must survive.
    fixture.write("README.md", "edited\n");
    fixture.write("staged.txt", "staged\n");
    fixture.git(["add", "staged.txt"]);
    fixture.write("untracked.txt", "untracked\n");
    let before = fixture.untouchable();

    let mut operations = Vec::new();
    for n in 0..30 {
        let commit = Commit::new(format!("agent/{n}"), format!("Task {n}"))
            .write(format!("task/{n}.txt"), format!("{n}\n"));
        operations.push(Operation::commit(format!("c{n}"), commit));
        operations
            .push(Operation::push(format!("p{n}"), format!("agent/{n}")).after(format!("c{n}")));
    }
    let report = fixture.open().apply(operations).unwrap();

    for n in 0..30 {
        let commit = landed(&report, &format!("c{n}"));
        assert_eq!(landed(&report, &format!("p{n}")), commit);
        let branch = format!("refs/heads/agent/{n}");
        assert_eq!(fixture.id(&branch), commit);
        assert_eq!(fixture.at_remote(["rev-parse", &branch]).trim(), commit.to_string());
        assert_eq!(fixture.at_remote(["reflog", &branch]).lines().count(), 1);
        assert_eq!(
            fixture.at_remote(["show", &format!("{branch}:task/{n}.txt")]),
            format!("{n}\n")
        );
        assert_eq!(
            fixture.git(["rev-parse", &format!("{branch}^")]),
            fixture.git(["rev-parse", "main"])
        );
        assert!(fixture.git(["reflog", &branch]).contains(&format!("commit: Task {n}")));
    }
    assert_eq!(fixture.received(), 1);
    assert_eq!(report.pushes(), 1);
    assert_eq!(report.receipts.len(), 1);
    let receipt = &report.receipts[0];
    assert_eq!(receipt.refs.iter().filter(|r| r.place == Place::Remote).count(), 30);
    assert_eq!(receipt.refs.iter().filter(|r| r.place == Place::Local).count(), 30);
    assert_eq!(fixture.untouchable(), before);
    fixture.assert_sound();
}

#[test]
fn names_arrive_as_they_are() {
    let fixture = Fixture::new();
    let paths: [&[u8]; 8] = [
        b"with space.txt",
        b"quote\"and'quote",
        b"new\nline",
        b"-leading-dash",
        "gr\u{fc}n/\u{65e5}\u{672c}".as_bytes(),
        b"not-utf8-\xff\xfe",
        b"tab\there",
        b"$HOME/`id`;*?[x]",
    ];
    let mut commit = Commit::new("f\u{fc}r/alle", "Gr\u{fc}\u{df}e \"quoted\"\n\nBody")
        .with_author(Author::new("Zo\u{eb} O'Neil", "zoe@example.com"));
    for path in paths {
        commit = commit.write(BString::from(path), path.to_vec());
    }
    let id = "an id\nwith \"anything\"";
    let report = fixture
        .open()
        .apply(vec![Operation::commit(id, commit), Operation::push("p", "f\u{fc}r/alle")])
        .unwrap();
    let commit = landed(&report, id).to_string();
    landed(&report, "p");
    let files = fixture.at_remote(["ls-tree", "-r", "-z", "--name-only", &commit]);
    for path in paths.iter().filter_map(|path| std::str::from_utf8(path).ok()) {
        assert!(files.split('\0').any(|file| file == path), "{path:?}");
    }
    assert_eq!(
        fixture.at_remote(["log", "-1", "--format=%an|%ae|%cn|%B", &commit]),
        "Zo\u{eb} O'Neil|zoe@example.com|A U Thor|Gr\u{fc}\u{df}e \"quoted\"\n\nBody\n\n"
    );
    fixture.assert_sound();
}

#[test]
fn every_kind_of_change_is_stored_as_git_does() {
    let fixture = Fixture::new();
    let readme = fixture.id("main:README.md");
    let write = |content: &str, mode| Action::Write { content: content.into(), mode };
    let submodule = fixture.id("main");
    let commit = Commit::new("kinds", "All kinds")
        .change(Change::new("run.sh", write("#!/bin/sh\n", Mode::Executable)))
        .change(Change::new("link", write("src/lib.rs", Mode::Symlink)))
        .change(Change::new("copy", Action::Object { oid: readme, mode: Mode::File }))
        .change(Change::new("sub", Action::Object { oid: submodule, mode: Mode::Submodule }))
        .change(Change::new("moved/lib.rs", Action::Copy { from: "src/lib.rs".into() }))
        .delete("src")
        // A folder becomes a file, a file becomes a folder.
        .write("old", "a file now\n")
        .delete("README.md")
        .write("README.md/inside", "a folder now\n")
        .write("empty", "");
    let report = fixture.open().apply(vec![Operation::commit("c", commit)]).unwrap();
    let commit = landed(&report, "c").to_string();
    let tree = fixture.git(["ls-tree", "-r", "--format=%(objectmode) %(path)", &commit]);
    assert_eq!(
        tree.lines().collect::<Vec<_>>(),
        [
            "100644 README.md/inside",
            "100644 copy",
            "100644 empty",
            "120000 link",
            "100644 moved/lib.rs",
            "100644 old",
            "100755 run.sh",
            "160000 sub",
        ]
    );
    assert_eq!(fixture.received(), 0);
    fixture.assert_sound();
}

#[test]
fn commits_on_one_branch_stack_in_order() {
    let fixture = Fixture::new();
    let step = |n: u32| Commit::new("stack", format!("Step {n}")).write("n", n.to_string());
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("1", step(1)),
            Operation::commit("2", step(2)),
            Operation::push("p", "stack"),
            Operation::commit("3", step(3)),
        ])
        .unwrap();
    let ids: Vec<String> = ["1", "2", "3"].map(|id| landed(&report, id).to_string()).into();
    assert_eq!(
        fixture.git(["log", "--format=%s", "main..stack"]).lines().collect::<Vec<_>>(),
        ["Step 3", "Step 2", "Step 1"]
    );
    assert_eq!(fixture.git(["rev-parse", "stack~1"]).trim(), ids[1]);
    // What was committed after the push stays here.
    assert_eq!(fixture.at_remote(["rev-parse", "stack"]).trim(), ids[1]);
    assert_eq!(landed(&report, "p").to_string(), ids[1]);
    assert_eq!(fixture.received(), 1);
}

#[test]
fn identical_content_is_no_change() {
    let fixture = Fixture::new();
    fixture.git(["branch", "other", "main"]);
    let same = || Commit::new("same", "m").write("README.md", "one\ntwo\nthree\n");
    let git = fixture.open();
    let report = git
        .apply(vec![
            Operation::commit("c", same()),
            Operation::push("p", "same").after("c"),
            Operation::merge("m", "same", "other"),
        ])
        .unwrap();
    let main = fixture.id("main");
    assert_eq!(report.get("c"), Some(&no_change(main)));
    assert_eq!(report.get("p"), Some(&no_change(main)));
    assert_eq!(report.get("m"), Some(&no_change(main)));
    assert_eq!(fixture.received(), 0);
    assert_eq!(fixture.git(["branch", "--list", "same"]), "");
}

#[test]
fn a_new_branch_starts_at_the_remotes_default_branch() {
    let fixture = Fixture::new();
    // The local main is behind, and its own commits are not the base.
    fixture.move_remote("main", "ahead.txt", "ahead\n");
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", Commit::new("fresh", "m").write("a", "a")),
            Operation::commit("b", Commit::new("local", "m").with_base("main").write("a", "a")),
            Operation::commit("c", Commit::new("fresh", "m").with_base("main").write("c", "c")),
            Operation::commit("d", Commit::new("local", "m").with_base("fresh").write("c", "c")),
        ])
        .unwrap();
    landed(&report, "a");
    landed(&report, "b");
    landed(&report, "c");
    assert_eq!(kind(report.get("d")), Some(OpErrorKind::BaseNotAncestor));
    assert_eq!(fixture.git(["rev-parse", "fresh~2"]), fixture.at_remote(["rev-parse", "main"]));
    assert_eq!(fixture.git(["rev-parse", "local^"]), fixture.git(["rev-parse", "main"]));
    assert!(!fixture.work().join(".git/FETCH_HEAD").exists());
    let tracking =
        fixture.git(["for-each-ref", "refs/remotes/origin/main", "--format=%(objectname)"]);
    assert_eq!(tracking, fixture.git(["rev-parse", "main"]));
    fixture.assert_sound();
}

#[test]
fn a_remote_whose_head_names_no_branch_still_has_a_default() {
    let fixture = Fixture::new();
    fixture.at_remote(["symbolic-ref", "HEAD", "refs/heads/never-made"]);
    let git = fixture.open();
    for n in 0..2 {
        let branch = format!("b{n}");
        let report = git
            .apply(vec![
                Operation::commit("c", Commit::new(&branch, "m").write("n", "n")),
                Operation::push("p", &branch),
            ])
            .unwrap();
        landed(&report, "p");
        assert_eq!(fixture.id(&format!("{branch}^")), fixture.id("main"));
    }
    fixture.git(["checkout", "-q", "--detach"]);
    let report =
        git.apply(vec![Operation::commit("c", Commit::new("b9", "m").write("n", "n"))]).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::UnknownBase));
}

#[test]
fn the_first_commit_of_all_has_no_parent() {
    let fixture = Fixture::empty();
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", Commit::new("first", "m").write("a", "a")),
            Operation::push("p", "first"),
        ])
        .unwrap();
    landed(&report, "a");
    landed(&report, "p");
    assert_eq!(fixture.at_remote(["rev-list", "--count", "first"]).trim(), "1");
    fixture.assert_sound();
}

#[test]
fn what_waits_for_a_push_goes_into_a_second_one() {
    let fixture = Fixture::new();
    let commit = |branch: &str| Commit::new(branch, "m").write("n", branch);
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", commit("x")),
            Operation::push("pa", "x"),
            Operation::commit("b", commit("y")).after("pa"),
            Operation::push("pb", "y"),
        ])
        .unwrap();
    for id in ["a", "pa", "b", "pb"] {
        landed(&report, id);
    }
    assert_eq!((report.pushes(), fixture.received()), (2, 2));
}

#[test]
fn nothing_is_written_when_the_remote_has_it_all() {
    let fixture = Fixture::new();
    let report = fixture.open().apply(vec![Operation::push("p", "main")]).unwrap();
    assert_eq!(landed(&report, "p"), fixture.id("main"));
    assert_eq!((report.pushes(), fixture.received()), (0, 0));
}

#[test]
fn max_items_cuts_the_input() {
    let fixture = Fixture::new();
    let git = GitBatch::open(fixture.work(), Settings::default().with_max_items(2)).unwrap();
    let operations = (0..4)
        .flat_map(|n| {
            let branch = format!("b{n}");
            let commit = Commit::new(&branch, "m").write("n", n.to_string());
            [Operation::commit(format!("c{n}"), commit), Operation::push(format!("p{n}"), branch)]
        })
        .collect();
    let report = git.apply(operations).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()));
    assert_eq!((report.receipts.len(), report.pushes(), fixture.received()), (4, 4, 4));
}
