//! Refusals of all, moved remotes and second tries: no branch keeps another back.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

use git_batch::{
    Class, Commit, GitBatch, OnMoved, OpErrorKind, Operation, Outcome, Place, Report, Settings,
    Worktree,
};
use support::{Fixture, kind, landed, run};

/// A commit on a branch of its own and the push of it.
fn task(branch: &str) -> [Operation; 2] {
    let commit = Commit::new(branch, "m").write(format!("{branch}.txt"), "x\n");
    [Operation::commit(format!("commit {branch}"), commit), push(branch)]
}

fn push(branch: &str) -> Operation {
    Operation::push(format!("push {branch}"), branch)
}

fn with(fixture: &Fixture, on_moved: OnMoved) -> GitBatch {
    let settings = Settings::default().with_on_moved(on_moved);
    GitBatch::open(fixture.work(), settings).unwrap()
}

fn is_refused(report: &Report, id: &str) -> bool {
    matches!(report.get(id), Some(Outcome::Rejected { class: Class::Permanent, .. }))
}

/// `shared`, which the remote has moved on since it was pushed.
fn with_moved_branch(path: &str) -> Fixture {
    let fixture = Fixture::new();
    let first = Commit::new("shared", "First").write("first.txt", "1\n");
    let operations = vec![Operation::commit("c", first), push("shared")];
    landed(&fixture.open().apply(operations).unwrap(), "push shared");
    fixture.move_remote("shared", path, "theirs\n");
    fixture
}

#[test]
fn a_refusal_of_all_is_taken_apart_until_the_culprit_is_alone() {
    for bad in [0, 7, 15] {
        let fixture = Fixture::new();
        fixture.hook("pre-receive", &format!("! grep -q 'refs/heads/t{bad:02}$'"));
        let operations = (0..16).flat_map(|n| task(&format!("t{n:02}"))).collect();
        let report = fixture.open().apply(operations).unwrap();
        for n in 0..16 {
            let id = format!("push t{n:02}");
            if n == bad {
                assert!(is_refused(&report, &id), "{:?}", report.get(&id));
            } else {
                landed(&report, &id);
            }
            landed(&report, &format!("commit t{n:02}"));
        }
        // 1 + 2 * ceil(log2 16)
        assert!(report.pushes() <= 9, "{}", report.pushes());
        fixture.assert_sound();
    }
}

#[test]
fn several_culprits_are_found() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "! grep -q 'refs/heads/bad'");
    let names = ["a", "bad1", "b", "c", "bad2", "d", "e", "f"];
    let report = fixture.open().apply(names.iter().flat_map(|name| task(name)).collect()).unwrap();
    for name in names {
        let id = format!("push {name}");
        if name.starts_with("bad") {
            assert!(is_refused(&report, &id), "{name}");
        } else {
            landed(&report, &id);
        }
    }
}

#[test]
fn where_all_are_refused_the_tries_come_to_an_end() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "exit 1");
    let operations = (0..64).flat_map(|n| task(&format!("t{n}"))).collect();
    let report = fixture.open().apply(operations).unwrap();
    for n in 0..64 {
        assert!(is_refused(&report, &format!("push t{n}")));
    }
    assert!(report.pushes() <= 1 + 2 * 7 * 8, "{}", report.pushes());
}

/// `main` is checked out, so it does not follow.
#[test]
fn a_commit_that_is_at_the_remote_only_is_named_as_it_is_there() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "theirs.txt", "theirs\n");
    let commit = Commit::new("main", "m").write("m.txt", "m\n");
    let operations = vec![Operation::commit("m", commit), push("main")];
    let report = with(&fixture, OnMoved::Rebase).apply(operations).unwrap();
    assert_eq!(landed(&report, "m"), landed(&report, "push main"));
    let there = fixture.at_remote(["rev-parse", "main"]);
    assert_eq!(there.trim(), landed(&report, "m").to_string());
}

#[test]
fn a_remote_that_moved_is_merged() {
    let fixture = with_moved_branch("theirs.txt");
    let git = with(&fixture, OnMoved::Merge);
    let more = Commit::new("shared", "More").write("more.txt", "2\n");
    let report = git.apply(vec![Operation::commit("c", more), push("shared")]).unwrap();
    let (commit, pushed) = (landed(&report, "c"), landed(&report, "push shared"));
    assert_eq!(fixture.at_remote(["rev-parse", "shared"]).trim(), pushed.to_string());
    assert_eq!(fixture.id("shared"), pushed, "the local branch follows");
    assert_eq!(fixture.id("shared^1"), commit);
    let files = fixture.git(["ls-tree", "--name-only", "shared"]);
    for file in ["first.txt", "more.txt", "theirs.txt"] {
        assert!(files.contains(file), "{files}");
    }
    let log = fixture.at_remote(["reflog", "--format=%gs", "shared"]);
    assert_eq!(log.lines().count(), 3, "{log}");
    let moves = &report.receipts[0].refs;
    assert_eq!(moves.iter().filter(|change| change.place == Place::Remote).count(), 1);
    fixture.assert_sound();
}

#[test]
fn a_remote_that_moved_is_rebased_onto() {
    let fixture = with_moved_branch("theirs.txt");
    let git = with(&fixture, OnMoved::Rebase);
    let commit = |n: u32| Commit::new("shared", format!("More {n}")).write(format!("{n}"), "x\n");
    let operations =
        vec![Operation::commit("1", commit(1)), Operation::commit("2", commit(2)), push("shared")];
    let report = git.apply(operations).unwrap();
    let pushed = landed(&report, "push shared");
    assert_eq!(fixture.id("shared"), pushed);
    assert_eq!(fixture.at_remote(["rev-parse", "shared"]).trim(), pushed.to_string());
    let log = fixture.git(["log", "--format=%s %p", "main..shared"]);
    let subjects: Vec<&str> = log.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(subjects, ["More 2", "More 1", "Other", "First"]);
    fixture.assert_sound();
}

#[test]
fn a_clash_with_what_the_remote_has_is_a_conflict_of_that_push_alone() {
    for on_moved in [OnMoved::Merge, OnMoved::Rebase] {
        let fixture = with_moved_branch("more.txt");
        let git = with(&fixture, on_moved);
        let more = Commit::new("shared", "More").write("more.txt", "ours\n");
        let mut operations = vec![Operation::commit("c", more), push("shared")];
        operations.extend(task("free"));
        let report = git.apply(operations).unwrap();
        let Some(Outcome::Conflict { paths, .. }) = report.get("push shared") else {
            panic!("{:?}", report.get("push shared"));
        };
        assert_eq!(paths, &["more.txt"]);
        landed(&report, "c");
        landed(&report, "push free");
    }
}

#[test]
fn what_is_locked_at_the_remote_is_tried_again_and_keeps_nothing_back() {
    let fixture = Fixture::new();
    fs::write(fixture.remote().join("refs/heads/x.lock"), "").unwrap();
    // The lock goes once the others have landed.
    fixture.hook("post-receive", "cat >/dev/null; rm -f refs/heads/x.lock; echo x >> received");
    let operations = ["x", "y", "z"].iter().flat_map(|name| task(name)).collect();
    let report = fixture.open().apply(operations).unwrap();
    for name in ["x", "y", "z"] {
        landed(&report, &format!("push {name}"));
    }
    assert_eq!(report.pushes(), 2);
    assert_eq!(fixture.at_remote(["reflog", "show", "y"]).lines().count(), 1);
}

#[test]
fn hooks_of_the_remote_get_the_push_options() {
    let fixture = Fixture::new();
    run(&fixture.remote(), ["config", "receive.advertisePushOptions", "true"]);
    fixture.hook("pre-receive", "echo $GIT_PUSH_OPTION_COUNT \"$GIT_PUSH_OPTION_0\" > options");
    let settings = Settings::default().with_push_option("ci.skip=a b");
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report = git.apply(task("x").into()).unwrap();
    landed(&report, "push x");
    assert_eq!(fs::read_to_string(fixture.remote().join("options")).unwrap(), "1 ci.skip=a b\n");
}

#[test]
fn more_branches_than_one_command_line_takes_are_two_pushes() {
    let fixture = Fixture::new();
    let long = ["x"; 4].map(|x| x.repeat(240)).join("/");
    let operations = (0..300)
        .flat_map(|n| {
            let branch = format!("{long}/{n}");
            let commit = Commit::new(&branch, "m").write("n", n.to_string());
            [Operation::commit(format!("c{n}"), commit), Operation::push(format!("p{n}"), branch)]
        })
        .collect();
    let report = fixture.open().apply(operations).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()));
    assert_eq!(report.pushes(), 2);
}

#[test]
fn the_worktree_keeps_its_commit_where_the_remote_had_moved() {
    let fixture = with_moved_branch("theirs.txt");
    let dir = fixture.beside("shared");
    fixture.git(["worktree", "add", "-q", dir.to_str().unwrap(), "shared"]);
    fs::write(dir.join("more.txt"), "2\n").unwrap();
    let capture = Commit::new("shared", "Work").with_worktree(Worktree::all(&dir));
    let report =
        fixture.open().apply(vec![Operation::commit("c", capture), push("shared")]).unwrap();
    let (commit, pushed) = (landed(&report, "c"), landed(&report, "push shared"));
    assert_eq!(fixture.id("shared"), commit, "its files are not ours to change");
    assert_eq!(run(&dir, ["status", "--porcelain"]), "");
    assert_eq!(fixture.at_remote(["rev-parse", "shared"]).trim(), pushed.to_string());
    assert_eq!(fixture.at_remote(["rev-parse", "shared^1"]).trim(), commit.to_string());
}

#[test]
fn a_branch_with_merges_is_not_rebased() {
    let fixture = with_moved_branch("theirs.txt");
    let git = with(&fixture, OnMoved::Rebase);
    let side = Commit::new("side", "Side").write("side.txt", "s\n");
    let operations =
        vec![Operation::commit("s", side), Operation::merge("m", "side", "shared"), push("shared")];
    let report = git.apply(operations).unwrap();
    landed(&report, "m");
    assert_eq!(kind(report.get("push shared")), Some(OpErrorKind::NotLinear));
}

#[test]
fn after_a_rebase_the_outcome_names_the_commits_that_are_on_the_branch() {
    let fixture = with_moved_branch("theirs.txt");
    let commit = |id: &str| Operation::commit(id, Commit::new("shared", id).write(id, "x\n"));
    let operations = vec![commit("one"), commit("two"), push("shared")];
    let report = with(&fixture, OnMoved::Rebase).apply(operations).unwrap();
    let (one, two) = (landed(&report, "one"), landed(&report, "two"));
    assert_eq!(two, landed(&report, "push shared"));
    assert_eq!((fixture.id("shared"), fixture.id("shared~1")), (two, one));
    assert_eq!(fixture.at_remote(["rev-parse", "shared"]).trim(), two.to_string());
    assert_eq!(fixture.git(["log", "-1", "--format=%s", &one.to_string()]), "one\n");
}

#[test]
fn a_server_that_limits_the_refs_of_a_push_gets_several() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "test $(wc -l) -le 5");
    let settings = Settings::default().with_max_refs_per_push(5);
    let operations = (0..12).flat_map(|n| task(&format!("t{n:02}"))).collect();
    let report = GitBatch::open(fixture.work(), settings).unwrap().apply(operations).unwrap();
    assert!(report.outcomes.iter().all(|(_, end)| end.is_success()), "{report:?}");
    assert_eq!(report.pushes(), 3);
    // Who does not know the limit finds it out.
    let operations = (0..12).flat_map(|n| task(&format!("u{n:02}"))).collect();
    let report = fixture.open().apply(operations).unwrap();
    assert!(report.outcomes.iter().all(|(_, end)| end.is_success()), "{report:?}");
}

/// However many folders loose branches are in.
#[test]
fn branches_in_many_folders_cost_no_more_than_a_few_calls() {
    let mut counts = Vec::new();
    for count in [3, 30] {
        let fixture = Fixture::new();
        let names: Vec<String> = (0..count).map(|n| format!("agent/{n}/work")).collect();
        for name in &names {
            fixture.git(["update-ref", &format!("refs/heads/{name}"), "main"]);
        }
        let operations = names.iter().flat_map(|name| {
            let commit = Commit::new(name, "m").write("more", "x");
            [Operation::commit(format!("c {name}"), commit), push(name)]
        });
        let receipt = fixture.open().apply(operations.collect()).unwrap().receipt();
        assert_eq!(receipt.refs.len(), 2 * names.len());
        counts.push(receipt.fsyncs);
        fixture.assert_sound();
    }
    assert!(counts[0] <= 10 && counts[0] == counts[1], "{counts:?}");
}

/// However many branches, and whether they are new, packed or loose.
#[test]
fn few_files_are_made_durable_whatever_the_branches_are() {
    for count in [1, 2, 12] {
        let fixture = Fixture::new();
        let first = (0..count).flat_map(|n| task(&format!("loose{n}")));
        fixture.open().apply(first.collect()).unwrap();
        for n in 0..count {
            let tip = fixture.id(&format!("loose{n}")).to_string();
            fixture.git(["update-ref", "-d", &format!("refs/heads/loose{n}")]);
            fixture.git(["update-ref", &format!("refs/heads/loose{n}"), &tip]);
        }
        let on = |branch: String| {
            let commit = Commit::new(&branch, "m").write("more", "x");
            [Operation::commit(format!("c {branch}"), commit), push(&branch)]
        };
        let loose: Vec<_> = (0..count).flat_map(|n| on(format!("loose{n}"))).collect();
        let receipt = fixture.open().apply(loose).unwrap().receipt();
        assert!(receipt.fsyncs <= 9, "{count} loose: {}", receipt.fsyncs);
        assert!(receipt.processes <= 4, "{count} loose: {}", receipt.processes);
        let new: Vec<_> = (0..count).flat_map(|n| on(format!("new{n}"))).collect();
        let receipt = fixture.open().apply(new).unwrap().receipt();
        assert!(receipt.fsyncs <= 8, "{count} new: {}", receipt.fsyncs);
        assert_eq!((receipt.processes, receipt.pushes), (3, 1));
        let log = fixture.at_remote(["reflog", "show", "new0"]);
        assert_eq!(log.lines().count(), 1);
        fixture.assert_sound();
    }
}
