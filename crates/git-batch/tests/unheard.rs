//! A push that nobody has said the end of: it is found out before anything is done once more.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use git_batch::{ApplyError, Commit, GitBatch, OnMoved, OpErrorKind, Operation, Settings, stops};
use support::{Fixture, landed};

fn commit(id: &str, branch: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, "Once").write(format!("{id}.txt"), "x\n"))
}

/// A group with a branch that stays here, and a branch that is checked out.
fn operations(is_grouped: bool) -> Vec<Operation> {
    if !is_grouped {
        return vec![commit("main", "main"), Operation::push("push", "main")];
    }
    let there = Commit::new("there", "Once").with_base("main").write("there.txt", "x\n");
    let here = Commit::new("here", "Once").with_base("main").write("here.txt", "x\n");
    vec![
        Operation::commit("here", here).in_group("g"),
        Operation::commit("there", there).in_group("g"),
        Operation::push("push", "there").in_group("g"),
    ]
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("UNHEARD_WORK") else { return };
    let what = std::env::var("UNHEARD_WHAT").unwrap();
    match what.as_str() {
        "caught up" => stops::kill_at("caught up", 1),
        what => stops::kill_at("pushed", if what == "twice" { 2 } else { 1 }),
    }
    let settings = Settings::default().with_on_moved(OnMoved::Merge);
    let git = GitBatch::open(work, settings).unwrap();
    let operations = match what.as_str() {
        "twice" => twice(),
        what => operations(what == "group"),
    };
    git.apply(operations).unwrap();
}

fn kill(fixture: &Fixture, what: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "runs_a_batch_and_is_killed"])
        .env("UNHEARD_WORK", fixture.work())
        .env("UNHEARD_WHAT", what)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert_eq!(command.status().unwrap().code(), None, "it was not killed");
}

/// All of it is at the remote, once, and the same input again says so.
fn is_once(fixture: &Fixture, is_grouped: bool) {
    let report = fixture.open().apply(operations(is_grouped)).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
    let pushed = if is_grouped { "there" } else { "main" };
    let count = fixture.at_remote(["rev-list", "--count", pushed, "--grep=^Once"]);
    assert_eq!(count.trim(), "1");
    assert_eq!(fixture.at_remote(["reflog", "show", pushed]).lines().count(), 1);
    assert_eq!(fixture.at_remote(["rev-list", "--count", "--merges", pushed]).trim(), "0");
    if is_grouped {
        assert_eq!(fixture.id("here"), landed(&report, "here"));
        assert_eq!(fixture.id("there"), landed(&report, "there"));
        assert_eq!(fixture.git(["rev-list", "--count", "main..here"]).trim(), "1");
    }
    let again = fixture.open().apply(operations(is_grouped)).unwrap();
    assert_eq!((again.replayed.len(), again.pushes()), (again.outcomes.len(), 0));
    assert_eq!(held(fixture), "");
    fixture.assert_sound();
}

/// What is kept of pushes that nobody has heard of.
fn held(fixture: &Fixture) -> String {
    fixture.git(["for-each-ref", "--format=%(refname)", "refs/batchyard/unheard"])
}

fn collect_garbage(fixture: &Fixture) {
    fixture.git(["reflog", "expire", "--expire=now", "--all"]);
    fixture.git(["gc", "-q", "--prune=now"]);
}

#[test]
fn a_push_of_a_killed_process_is_not_made_again_while_the_remote_is_away() {
    for is_grouped in [true, false] {
        let fixture = Fixture::new();
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        kill(&fixture, if is_grouped { "group" } else { "single" });
        let away = fixture.beside("away.git");
        fs::rename(fixture.remote(), &away).unwrap();
        // Others can work.
        let other = Commit::new("other", "m").with_base("main").write("other.txt", "x");
        let report = fixture.open().apply(vec![Operation::commit("other", other)]).unwrap();
        landed(&report, "other");
        let here = fixture.git(["for-each-ref", "refs/heads"]);
        let error = fixture.open().apply(operations(is_grouped)).unwrap_err();
        assert!(matches!(&error, ApplyError::Unheard { remote } if remote == "origin"), "{error}");
        assert_eq!(fixture.git(["for-each-ref", "refs/heads"]), here);
        fs::rename(&away, fixture.remote()).unwrap();
        is_once(&fixture, is_grouped);
    }
}

/// The remote takes the push, and is gone before it can say so.
#[test]
fn a_push_whose_answer_was_lost_is_not_made_again() {
    for is_grouped in [true, false] {
        let fixture = Fixture::new();
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        let (remote, away) = (fixture.remote(), fixture.beside("away.git"));
        let vanish = format!(
            "test $1 = committed || exit 0; mv '{}' '{}'; kill -9 $PPID",
            remote.display(),
            away.display()
        );
        fixture.hook("reference-transaction", &vanish);
        let report = fixture.open().apply(operations(is_grouped)).unwrap();
        assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
        collect_garbage(&fixture);
        fs::rename(&away, &remote).unwrap();
        fixture.hook("reference-transaction", "exit 0");
        is_once(&fixture, is_grouped);
    }
}

/// Somebody has removed what keeps the commit here: the remote has it still.
#[test]
fn a_push_whose_commits_are_gone_here_is_looked_for_at_the_remote() {
    let fixture = Fixture::new();
    fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
    kill(&fixture, "single");
    let away = fixture.beside("away.git");
    fs::rename(fixture.remote(), &away).unwrap();
    fixture.open().apply(operations(false)).unwrap_err();
    let names = held(&fixture);
    assert!(!names.is_empty());
    for name in names.lines() {
        fixture.git(["update-ref", "-d", name]);
    }
    collect_garbage(&fixture);
    // Away, it can say nothing.
    fixture.open().apply(operations(false)).unwrap_err();
    fs::rename(&away, fixture.remote()).unwrap();
    is_once(&fixture, false);
}

/// The remote takes the push and the answer is lost; before it is asked again somebody goes on from what
/// has arrived.
#[test]
fn a_push_that_others_go_on_from_before_it_is_heard_of_has_landed() {
    for (is_grouped, on_moved) in [
        (true, OnMoved::Merge),
        (true, OnMoved::Fail),
        (false, OnMoved::Merge),
        (false, OnMoved::Rebase),
    ] {
        let fixture = Fixture::new();
        let branch = if is_grouped { "there" } else { "main" };
        let go_on = format!(
            "test $1 = committed || exit 0; test -e gone && exit 0; touch gone; \
             new=$(git -c user.name=B -c user.email=b@c commit-tree -p {branch} -m Theirs {branch}^{{tree}}); \
             git update-ref refs/heads/{branch} $new; kill -9 $PPID"
        );
        fixture.hook("reference-transaction", &go_on);
        let settings = Settings::default().with_on_moved(on_moved);
        let git = GitBatch::open(fixture.work(), settings).unwrap();
        let report = git.apply(operations(is_grouped)).unwrap();
        for (id, _) in &report.outcomes {
            landed(&report, id);
        }
        assert_eq!(report.pushes(), 1);
        let log = fixture.at_remote(["log", "--format=%s", &format!("{branch}~2..{branch}")]);
        assert_eq!(log, "Theirs\nOnce\n");
        let arrived = fixture.at_remote(["rev-parse", &format!("{branch}~1")]);
        if is_grouped {
            assert_eq!(fixture.id("here"), landed(&report, "here"));
            assert_eq!(fixture.id("there"), landed(&report, "there"));
        }
        assert_eq!(landed(&report, "push").to_string(), arrived.trim());
        let again = fixture.open().apply(operations(is_grouped)).unwrap();
        assert_eq!((again.replayed.len(), again.pushes()), (again.outcomes.len(), 0));
        fixture.assert_sound();
    }
}

/// The remote has not got it: the same commits are pushed then.
#[test]
fn a_push_that_did_not_arrive_is_made_once_the_remote_is_back() {
    for is_grouped in [true, false] {
        let fixture = Fixture::new();
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        let (remote, away) = (fixture.remote(), fixture.beside("away.git"));
        let vanish =
            format!("mv '{}' '{}'; kill -9 $PPID; exit 1", remote.display(), away.display());
        fixture.hook("pre-receive", &vanish);
        let report = fixture.open().apply(operations(is_grouped)).unwrap();
        assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
        collect_garbage(&fixture);
        fs::rename(&away, &remote).unwrap();
        fixture.hook("pre-receive", "exit 0");
        is_once(&fixture, is_grouped);
    }
}

/// The remote takes the push, but its report says nothing of the branch; then it is gone.
#[test]
fn a_push_that_the_report_leaves_out_is_not_made_again() {
    for is_grouped in [true, false] {
        let fixture = Fixture::new();
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        let (remote, away) = (fixture.remote(), fixture.beside("away.git"));
        let (program, answer) = (fixture.beside("receive-pack"), fixture.beside("answer"));
        let branch = if is_grouped { "there" } else { "main" };
        let script = format!(
            "#!/bin/sh\ngit receive-pack --http-backend-info-refs \"$1\"\n\
             git receive-pack --stateless-rpc \"$1\" > '{0}'\nmv '{1}' '{2}'\n\
             LC_ALL=C sed 's,ok refs/heads/{branch},ok refs/heads/{3},' '{0}'\n",
            answer.display(),
            remote.display(),
            away.display(),
            "x".repeat(branch.len()),
        );
        fs::write(&program, script).unwrap();
        support::make_executable(&program);
        fixture.git(["config", "remote.origin.receivepack", program.to_str().unwrap()]);
        let report = fixture.open().apply(operations(is_grouped)).unwrap();
        assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
        assert!(format!("{:?}", report.get("push")).contains("no answer"), "{report:?}");
        let error = fixture.open().apply(operations(is_grouped)).unwrap_err();
        assert!(matches!(error, ApplyError::Unheard { .. }), "{error}");
        fixture.git(["config", "--unset", "remote.origin.receivepack"]);
        fs::rename(&away, &remote).unwrap();
        is_once(&fixture, is_grouped);
    }
}

/// A remote that is not configured any more can never say it; that keeps nothing else back.
#[test]
fn a_remote_that_is_gone_for_good_is_named() {
    let fixture = Fixture::new();
    kill(&fixture, "group");
    let arrived = fixture.at_remote(["rev-parse", "there"]);
    fixture.git(["remote", "remove", "origin"]);
    fixture.git(["remote", "add", "other", fixture.remote().to_str().unwrap()]);
    let settings = git_batch::Settings::default().with_remote("other");
    let git = git_batch::GitBatch::open(fixture.work(), settings).unwrap();
    // Under another remote it is another input; the branches that stayed here are gone on from.
    let report = git.apply(operations(true)).unwrap();
    for (id, outcome) in &report.outcomes {
        assert!(outcome.is_success(), "{id}: {report:?}");
    }
    // Made within one second the two are one commit, and else `there` has both.
    for id in [arrived.trim(), &landed(&report, "there").to_string()] {
        fixture.at_remote(["merge-base", "--is-ancestor", id, "there"]);
    }
    // Under its own it is asked for, by name.
    fixture.git(["remote", "add", "origin", "/nowhere"]);
    let error = fixture.open().apply(operations(true)).unwrap_err();
    assert!(matches!(&error, ApplyError::Unheard { remote } if remote == "origin"), "{error}");
    assert!(error.to_string().contains("origin"), "{error}");
}

/// A group pushes the first commit of `x`, and the rest of the batch the second one.
fn twice() -> Vec<Operation> {
    let a = Commit::new("x", "a").with_base("main").write("a.txt", "x\n");
    vec![
        Operation::commit("a", a).in_group("g"),
        Operation::push("p1", "x").in_group("g"),
        Operation::commit("b", Commit::new("x", "b").write("b.txt", "x\n")),
        Operation::push("p2", "x"),
    ]
}

/// Somebody else pushes to `x` once, between the listing of the remote and the first push.
fn overtake(fixture: &Fixture) {
    let hook = fixture.work().join(".git/hooks/pre-push");
    let script = format!(
        "#!/bin/sh\ntest -e .git/overtaken && exit 0\n: > .git/overtaken\nunset GIT_DIR\n\
         cd '{}' && git update-ref refs/heads/x theirs\n",
        fixture.remote().display()
    );
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, script).unwrap();
    support::make_executable(&hook);
    fixture.at_remote(["branch", "theirs", "main"]);
    fixture.move_remote("theirs", "theirs.txt", "x\n");
}

/// All is in what the remote has, and here on the branch.
fn has_all_of_it(fixture: &Fixture, report: &git_batch::Report, on_moved: OnMoved) {
    let pushed = landed(report, "p2").to_string();
    let files = ["a.txt", "b.txt", "theirs.txt"];
    for there in [
        fixture.at_remote(["ls-tree", "--name-only", "x"]),
        fixture.at_remote(["ls-tree", "--name-only", &pushed]),
        fixture.git(["ls-tree", "--name-only", "x"]),
    ] {
        assert!(files.iter().all(|file| there.contains(file)), "{on_moved:?}: {there}");
    }
    let b = landed(report, "b").to_string();
    fixture.git(["merge-base", "--is-ancestor", &b, "x"]);
    fixture.assert_sound();
}

#[test]
fn a_commit_on_top_of_one_that_a_group_has_pushed_is_not_lost() {
    for on_moved in [OnMoved::Merge, OnMoved::Rebase] {
        let fixture = Fixture::new();
        overtake(&fixture);
        let settings = Settings::default().with_on_moved(on_moved);
        let git = GitBatch::open(fixture.work(), settings).unwrap();
        let report = git.apply(twice()).unwrap();
        has_all_of_it(&fixture, &report, on_moved);
    }
}

#[test]
fn nor_is_it_where_the_process_is_killed_between_the_two_pushes() {
    let fixture = Fixture::new();
    overtake(&fixture);
    kill(&fixture, "twice");
    let report = fixture.open().apply(twice()).unwrap();
    has_all_of_it(&fixture, &report, OnMoved::Merge);
}

/// The merge with what the remote has got is gone here before it was pushed: it is made once more.
#[test]
fn what_was_to_be_pushed_in_place_of_a_commit_and_is_gone_is_made_again() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "theirs.txt", "x\n");
    kill(&fixture, "caught up");
    let unreachable = fixture.git(["fsck", "--unreachable", "--no-reflogs"]);
    let commits = unreachable.lines().filter_map(|line| line.strip_prefix("unreachable commit "));
    let is_merge =
        |id: &&str| fixture.git(["cat-file", "-p", id]).matches("\nparent ").count() == 2;
    let merge = commits.clone().find(is_merge).unwrap();
    let packs = fs::read_dir(fixture.work().join(".git/objects/pack")).unwrap();
    let packs = packs.map(|entry| entry.unwrap().path());
    for index in packs.filter(|path| path.extension().is_some_and(|end| end == "idx")) {
        if fixture.git(["verify-pack", "-v", index.to_str().unwrap()]).contains(merge) {
            for end in ["idx", "pack", "keep"] {
                fs::remove_file(index.with_extension(end)).unwrap();
            }
        }
    }
    let other = Commit::new("other", "m").with_base("main").write("other.txt", "x");
    landed(&fixture.open().apply(vec![Operation::commit("other", other)]).unwrap(), "other");
    let report = fixture.open().apply(operations(false)).unwrap();
    assert_eq!((report.replayed.len(), report.outcomes.len()), (2, 2), "{report:?}");
    landed(&report, "push");
    assert_eq!(fixture.at_remote(["show", "main:theirs.txt", "main:main.txt"]), "x\nx\n");
    fixture.assert_sound();
}

/// The push of its group has arrived, but a branch that stays here is not where it was moved to, and is
/// held by somebody: it has not landed, and does so when the same input comes again.
#[test]
fn a_branch_that_cannot_follow_its_group_has_not_landed() {
    let fixture = Fixture::new();
    fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
    kill(&fixture, "group");
    fixture.git(["update-ref", "-d", "refs/heads/here"]);
    let lock = fixture.work().join(".git/refs/heads/here.lock");
    fs::write(&lock, "").unwrap();
    let other = Commit::new("other", "m").with_base("main").write("other.txt", "x");
    let report = fixture.open().apply(vec![Operation::commit("other", other)]).unwrap();
    landed(&report, "other");
    let report = fixture.open().apply(operations(true)).unwrap();
    assert_eq!(support::kind(report.get("here")), Some(OpErrorKind::BranchMoved), "{report:?}");
    landed(&report, "push");
    // The rest of the group is where the remote has it.
    assert_eq!(fixture.id("there"), landed(&report, "there"));
    assert_eq!(fixture.git(["branch", "--list", "here"]), "");
    fs::remove_file(&lock).unwrap();
    is_once(&fixture, true);
}

/// No answer to the push of a group, and the branch has gone on without it: that is an answer.
#[test]
fn a_group_that_others_were_before_is_taken_back() {
    let fixture = Fixture::new();
    let overtake = "unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES; \
                    new=$(git -c user.name=B -c user.email=b@c commit-tree -p main -m Theirs main^{tree}); \
                    git update-ref refs/heads/there $new; kill -9 $PPID; exit 1";
    fixture.hook("pre-receive", overtake);
    let settings = Settings::default().with_on_moved(OnMoved::Fail);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let more = Commit::new("more", "Once").with_base("main").write("more.txt", "x\n");
    let operations = || {
        let mut operations = operations(true);
        operations.push(Operation::commit("more", more.clone()).in_group("g"));
        operations.push(Operation::push("push more", "more").in_group("g"));
        operations
    };
    let report = git.apply(operations()).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
    assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "main\n");
    assert_eq!(held(&fixture), "");
    let done = fs::read_dir(fixture.work().join(".git/batchyard/done")).unwrap().count();
    assert_eq!(done, 1);
    assert_eq!(fixture.at_remote(["log", "--format=%s", "main..there"]), "Theirs\n");
    // It is asked for again: what the remote has is not its doing.
    fixture.hook("pre-receive", "exit 0");
    fixture.at_remote(["update-ref", "-d", "refs/heads/there"]);
    let report = git.apply(operations()).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
}

/// What it takes to let go of what nobody needs any more is in the receipt of the next batch.
#[test]
fn a_process_that_lets_go_is_in_a_receipt() {
    let fixture = Fixture::new();
    let apply = |id: &str| {
        let commit = Commit::new(id, id).with_base("main").write(id, "x");
        fixture.open().apply(vec![Operation::commit(id, commit)]).unwrap().receipt().processes
    };
    assert_eq!(apply("before"), 0);
    fixture.git(["update-ref", "refs/batchyard/unheard/of-long-ago/0", "main"]);
    assert_eq!(apply("after"), 1);
    assert_eq!(held(&fixture), "");
}

/// Nobody asks for what is queued once more, so nothing is kept for that.
#[test]
fn nothing_is_held_of_what_nobody_will_ask_for() {
    let fixture = Fixture::new();
    let (remote, away) = (fixture.remote(), fixture.beside("away.git"));
    let vanish = format!("mv '{}' '{}'; kill -9 $PPID", remote.display(), away.display());
    fixture.hook("pre-receive", &format!("{vanish}; exit 1"));
    // What is handed in is one batch, however long that takes.
    let settings = Settings::default().with_linger(Duration::from_hours(1));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let tickets: Vec<_> =
        operations(true).into_iter().map(|operation| git.submit(operation).unwrap()).collect();
    drop(git.flush());
    for ticket in tickets {
        assert!(!ticket.wait().unwrap().is_success());
    }
    assert_eq!(held(&fixture), "");
}
