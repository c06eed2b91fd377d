//! Input that means harm, or that nobody thought of: it fails alone, with a reason.

mod support;

use std::fs;

use git_batch::guard::path::{check, check_not_a_file};
use git_batch::publish::{self, PushStatus, RefUpdate};
use git_batch::{
    Action, Change, Commit, ExecutorKind, GitBatch, Mode, ObjectId, OpErrorKind, Operation,
    Outcome, Settings, program,
};
use support::{Fixture, kind, landed, make_executable, run};

/// Applies one commit on a new branch and tells what kind of error it ended with.
fn refusal(fixture: &Fixture, changes: Vec<Change>) -> Option<OpErrorKind> {
    let commit = Commit { changes, ..Commit::new("task", "m") };
    let report = fixture.open().apply(vec![Operation::commit("a", commit)]).expect("it runs");
    kind(report.get("a"))
}

fn write(path: &str) -> Change {
    Change::new(path, Action::Write { content: b"x".to_vec(), mode: Mode::File })
}

fn copy(from: &str, to: &str) -> Change {
    Change::new(to, Action::Copy { from: from.into() })
}

/// A `main` with a symlink and a submodule in it, here and at the remote.
fn with_link_and_submodule() -> Fixture {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("src", fixture.work().join("link")).expect("a symlink");
    fixture.git(["add", "link"]);
    let submodule = format!("160000,{},sub", "1".repeat(40));
    fixture.git(["update-index", "--add", "--cacheinfo", &submodule]);
    fixture.git(["commit", "-q", "-m", "Links"]);
    fixture.git(["push", "-q", "origin", "main"]);
    fixture
}

#[test]
fn folders_without_end_do_not_overflow_the_stack() {
    let fixture = Fixture::new();
    assert_eq!(
        refusal(&fixture, vec![write(&"a/".repeat(50_000))]),
        Some(OpErrorKind::InvalidPath)
    );
    let deepest = format!("{}file", "a/".repeat(512));
    assert_eq!(
        refusal(&fixture, vec![write(&format!("a/{deepest}"))]),
        Some(OpErrorKind::InvalidPath)
    );
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("deep", Commit::new("deep", "m").write(deepest, "x")),
            Operation::commit("long", Commit::new("long", "m").write("x".repeat(4_096), "x")),
            Operation::commit("over", Commit::new("over", "m").write("x".repeat(4_097), "x")),
            Operation::push("p", "deep"),
            Operation::push("q", "long"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("over")), Some(OpErrorKind::InvalidPath));
    for id in ["deep", "long", "p", "q"] {
        landed(&report, id);
    }
    fixture.assert_sound();
}

#[test]
fn nothing_is_written_behind_a_symlink_or_a_submodule() {
    let fixture = with_link_and_submodule();
    for path in ["link/x", "sub/x"] {
        assert_eq!(refusal(&fixture, vec![write(path)]), Some(OpErrorKind::InvalidPath), "{path}");
        let copied = vec![copy("README.md", path)];
        assert_eq!(refusal(&fixture, copied), Some(OpErrorKind::InvalidPath), "{path}");
    }
    let replaced = vec![Change::new("link", Action::Delete), write("link/x")];
    assert_eq!(refusal(&fixture, replaced), None);
    fixture.assert_sound();
}

#[test]
fn files_that_git_reads_stay_files() {
    let fixture = with_link_and_submodule();
    let oid = ObjectId::from_hex("2".repeat(40).as_bytes()).unwrap();
    let submodule = |path: &str| Change::new(path, Action::Object { oid, mode: Mode::Submodule });
    for change in [
        write(".gitmodules/x"),
        write("a/.GITMODULES/x"),
        write(".gitattributes/x"),
        copy("link", ".gitmodules"),
        copy("src", ".gitmodules"),
        copy("sub", "a/.gitattributes"),
        submodule(".gitmodules"),
        submodule(".gitattributes"),
    ] {
        let path = change.path.clone();
        assert_eq!(refusal(&fixture, vec![change]), Some(OpErrorKind::InvalidPath), "{path:?}");
    }
    assert_eq!(refusal(&fixture, vec![write("a/.gitattributes"), write(".gitmodules")]), None);
    fixture.assert_sound();
}

#[test]
fn names_of_attributes_files_are_known_in_every_disguise() {
    for name in [
        ".gitattributes",
        ".GitAttributes",
        ".gitattributes . ",
        ".gitattributes:$DATA",
        "gitatt~1",
        "GI7D29~1",
        ".gitattri\u{200c}butes",
        "gitmod~2",
    ] {
        assert!(check(format!("{name}/x").as_str().into()).is_err(), "{name}");
        assert!(check_not_a_file(name.into()).is_err(), "{name}");
        assert_eq!(check(name.into()), Ok(()), "{name} is a fine name of a file");
    }
    for name in ["gitatt~5", "gi7d29~a", ".gitattribute", "gitattributes"] {
        assert_eq!(check_not_a_file(name.into()), Ok(()), "{name}");
    }
}

#[test]
fn ids_of_another_hash_are_refused_and_not_looked_up() {
    let fixture = Fixture::new();
    let foreign = ObjectId::from_hex("a".repeat(64).as_bytes()).unwrap();
    for mode in [Mode::File, Mode::Submodule] {
        let change = Change::new("x", Action::Object { oid: foreign, mode });
        assert_eq!(refusal(&fixture, vec![change]), Some(OpErrorKind::InvalidChange), "{mode:?}");
    }
    let expecting = write("README.md").with_expect(foreign);
    assert_eq!(refusal(&fixture, vec![expecting]), Some(OpErrorKind::InvalidChange));
    let based = Commit::new("task", "m").with_base("a".repeat(64)).write("x", "x");
    let report = fixture.open().apply(vec![Operation::commit("a", based)]).unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::UnknownBase));

    let git = program::Git::open(&fixture.work().join(".git")).unwrap();
    let update = |expect, new| RefUpdate { name: "refs/heads/x".into(), expect, new };
    for update in [update(None, foreign), update(Some(foreign), fixture.id("main"))] {
        let report = publish::push(&git, "origin", &[update]).unwrap();
        assert!(matches!(report.refs[0].1, PushStatus::Rejected { .. }), "{report:?}");
    }
}

#[test]
fn a_remote_of_another_hash_is_an_error() {
    let fixture = Fixture::new();
    let other = fixture.beside("sha256.git");
    let path = other.to_str().unwrap();
    run(&fixture.work(), ["init", "-q", "--bare", "-b", "main", "--object-format=sha256", path]);
    let tree = run(&other, ["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let who = ["-c", "user.name=a", "-c", "user.email=b"];
    let make = [&who[..], &["commit-tree", "-m", "x", tree.trim()]].concat();
    let commit = run(&other, make);
    run(&other, ["update-ref", "refs/heads/main", commit.trim()]);
    fixture.git(["config", "remote.origin.url", path]);
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", Commit::new("task", "m").write("x", "x")),
            Operation::commit("b", Commit::new("main2", "m").with_base("main").write("x", "x")),
            Operation::push("p", "main2"),
            Operation::push("q", "main"),
        ])
        .unwrap();
    landed(&report, "b");
    for id in ["a", "p", "q"] {
        assert!(!report.get(id).is_some_and(Outcome::is_success), "{id}: {:?}", report.get(id));
    }
}

#[test]
fn hooks_in_a_folder_relative_to_the_checkout_count() {
    let fixture = Fixture::new();
    let hook = fixture.work().join(".githooks/reference-transaction");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nexit 0\n").unwrap();
    make_executable(&hook);
    fixture.git(["config", "core.hooksPath", ".githooks"]);
    let by_gix = Settings::default().with_executor(ExecutorKind::Gix);
    let refused = GitBatch::open(fixture.work(), by_gix).unwrap_err().to_string();
    assert!(refused.contains("reference-transaction"), "{refused}");
}

#[test]
fn a_url_given_for_a_remote_does_not_show_its_password() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_remote("https://me:s3cret@example.org/r");
    let refused = GitBatch::open(fixture.work(), settings).unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused:?}");
}

#[test]
fn a_branch_name_that_no_file_system_takes_is_refused_by_name() {
    let fixture = Fixture::new();
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("long", Commit::new("b".repeat(251), "m").write("x", "x")),
            Operation::commit("most", Commit::new("b".repeat(250), "m").write("x", "x")),
            Operation::push("p", "b".repeat(250)),
        ])
        .unwrap();
    assert_eq!(kind(report.get("long")), Some(OpErrorKind::InvalidBranch));
    landed(&report, "p");
}

/// Merges ask git in a scratch repository that names the objects of this one in a file of lines.
#[test]
fn a_repository_whose_path_holds_a_line_end_can_merge() {
    let fixture = Fixture::new();
    let odd = fixture.beside("odd\n\"name\\");
    fs::rename(fixture.work(), &odd).unwrap();
    let git = GitBatch::open(&odd, Settings::default()).unwrap();
    let moved = Commit::new("moved", "m").change(copy("src", "lib")).delete("src");
    let report = git
        .apply(vec![
            Operation::commit("a", moved),
            Operation::commit("b", Commit::new("changed", "m").write("src/lib.rs", "fn b() {}\n")),
            Operation::merge("m", "changed", "moved"),
        ])
        .unwrap();
    landed(&report, "m");
}

/// A name is looked up below `refs/tags` and `refs/heads` too where it is not a ref by itself.
#[test]
fn a_tag_with_the_full_name_of_a_branch_is_not_that_branch() {
    let fixture = Fixture::new();
    fixture.git(["update-ref", "refs/tags/refs/heads/ghost", "main"]);
    fixture.git(["update-ref", "refs/heads/refs/heads/ghost", "main"]);
    let report = fixture
        .open()
        .apply(vec![
            Operation::push("none", "ghost"),
            Operation::commit("a", Commit::new("ghost", "m").write("x", "x")),
            Operation::push("p", "ghost"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("none")), Some(OpErrorKind::UnknownBranch));
    landed(&report, "p");
}

/// Names that git takes and some other system would not: each is an ordinary branch here.
#[test]
fn branch_names_that_only_windows_forbids_are_branches() {
    let fixture = Fixture::new();
    let names = [
        "a/x\"y",
        "a/<b>",
        "a/b|c",
        "a/it's",
        "a./b",
        "con",
        "nul/x",
        "a/{b",
        "#a",
        "$a",
        ";rm",
        "a/-dash",
        "a/%41",
        "a/(b)&",
        "a/@x",
        "a/\u{65e5}\u{672c}",
        "aux.txt/y",
    ];
    let ops = |round: &str| {
        let commit = |name: &&str| Commit::new(*name, round).write("f", format!("{name} {round}"));
        let commits = names.iter().map(|n| Operation::commit(format!("c {n}"), commit(n)));
        commits.chain(names.iter().map(|n| Operation::push(format!("p {n}"), *n))).collect()
    };
    for round in ["new", "loose or packed", "packed"] {
        let report = fixture.open().apply(ops(round)).expect("it runs");
        for (id, outcome) in &report.outcomes {
            assert!(matches!(outcome, Outcome::Landed { .. }), "{round}: {id}: {outcome:?}");
        }
        for name in names {
            // By its id: git would not look for a colon behind an open brace.
            let tip = fixture.at_remote(["rev-parse", &format!("refs/heads/{name}")]);
            let file = format!("{}:f", tip.trim());
            assert_eq!(fixture.at_remote(["show", &file]), format!("{name} {round}"));
        }
        fixture.git(["pack-refs", "--all"]);
    }
    let into = Operation::commit("into", Commit::new("into/<t>", "m").write("other", "x"));
    let merge = Operation::merge("m", "a/x\"y", "into/<t>");
    landed(&fixture.open().apply(vec![into, merge]).expect("it runs"), "m");
    // What stands below a branch is seen whether it is packed or loose.
    for loose in [false, true] {
        if loose {
            fixture.git(["branch", "loose/<x>/y", "main"]);
        }
        let above = if loose { "loose/<x>" } else { "nul" };
        let commit = Operation::commit("above", Commit::new(above, "m").write("f", "x"));
        let report = fixture.open().apply(vec![commit]).expect("it runs");
        assert_eq!(kind(report.get("above")), Some(OpErrorKind::BranchClash), "{above}");
    }
}

/// Git would refuse to fetch it, and a remote that checks what it gets refuses all that comes with it.
#[test]
fn settings_of_submodules_that_git_refuses_fail_alone() {
    for executor in [ExecutorKind::Gix, ExecutorKind::GitProgram] {
        let fixture = Fixture::new();
        let evil = "[submodule \"x\"]\n\tpath = x\n\turl = -evil\n";
        let bad = Commit::new("bad", "m").write("deep/.gitmodules", evil);
        let good = Commit::new("good", "m").write("good", "x");
        let operations = vec![
            Operation::commit("bad", bad),
            Operation::push("push bad", "bad"),
            Operation::commit("good", good),
            Operation::push("push good", "good"),
        ];
        let settings = Settings::default().with_executor(executor);
        let git = GitBatch::open(fixture.work(), settings).expect("a repository");
        let report = git.apply(operations).expect("it runs");
        assert_eq!(kind(report.get("bad")), Some(OpErrorKind::InvalidChange), "{report:?}");
        assert!(format!("{report:?}").contains("-evil"));
        landed(&report, "push good");
        assert_eq!(report.pushes(), 1);
    }
}
