//! `run` where the remote refuses the base: for what one answer holds, or whatever is in it.

mod common;

use std::process::Stdio;

use common::plan::{another_plan, command, planned, run};
use common::server::{Creates, Server};
use common::{Ran, Yard, make_executable};
use serde_json::json;

fn hook(yard: &Yard, name: &str, script: &str) {
    let name = format!("remote.git/hooks/{name}");
    make_executable(&yard.write(&name, format!("#!/bin/sh\n{script}\n")));
}

/// As a hook for each branch, and as one for the whole push: nothing with a file `bad*` comes in.
const NOTHING_BAD: [(&str, &str); 2] = [
    ("update", "! git ls-tree --name-only $3 | grep -q ^bad"),
    (
        "pre-receive",
        "while read _ new _; do git ls-tree --name-only $new; done | grep ^bad && exit 1\nexit 0",
    ),
];

#[test]
fn an_answer_that_the_remote_refuses_fails_alone() {
    for (push, (name, script)) in ["base", "both"].into_iter().zip(NOTHING_BAD) {
        let tasks = [("one", "a.txt"), ("two", "bad.txt"), ("three", "c.txt"), ("four", "d.txt")];
        let yard = planned(&format!("[land]\npush = \"{push}\""), &tasks);
        hook(&yard, name, script);
        let server = Server::start(Creates::Work);
        let ran = run(&yard, &server).code(1);
        let two = ran.line("two");
        let commit = yard.git("repo", &["rev-parse", "batchyard/two"]);
        assert_eq!((&two["status"], &two["commit"]), (&json!("failed"), &json!(commit)));
        assert_eq!(two["error"]["kind"], "rejected");
        assert!(two["error"]["message"].to_string().contains("declined"), "{two}");
        let summary = ran.summary();
        assert_eq!((&summary["succeeded"], &summary["failed"]), (&json!(3), &json!(1)));
        assert_eq!(summary["pending"], 0);
        let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
        assert_eq!(tree.replace('\n', " "), "README.md a.txt c.txt d.txt", "{push} {name}");
        let branches = yard.git("remote.git", &["for-each-ref", "refs/heads/batchyard"]);
        assert_eq!(branches.lines().count(), if push == "both" { 3 } else { 0 });
        assert_eq!(server.creates().len(), 1);
        assert!(!yard.path("plan/plan.toml.state").exists(), "it is over");
        let lessons = yard.read("plan/lessons.jsonl");
        assert!(lessons.contains("\"failure_type\":\"rejected\""), "{lessons}");
        assert_eq!(lessons.lines().count(), 1);
    }
}

#[test]
fn several_answers_that_the_remote_refuses_fail_alone() {
    let tasks: Vec<(String, String)> = (0..8)
        .map(|n| {
            (
                n.to_string(),
                if [1, 2, 7].contains(&n) { format!("bad{n}") } else { format!("f{n}") },
            )
        })
        .collect();
    let tasks: Vec<(&str, &str)> =
        tasks.iter().map(|(id, path)| (id.as_str(), path.as_str())).collect();
    for push in ["both", "base"] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &tasks);
        hook(&yard, NOTHING_BAD[0].0, NOTHING_BAD[0].1);
        let ran = run(&yard, &Server::start(Creates::Work)).code(1);
        let summary = ran.summary();
        assert_eq!((&summary["succeeded"], &summary["failed"]), (&json!(5), &json!(3)), "{ran:?}");
        let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
        assert_eq!(tree.replace('\n', " "), "README.md f0 f3 f4 f5 f6");
    }
}

/// What clashed with it alone lands then.
#[test]
fn what_clashed_with_a_refused_answer_lands() {
    let yard = planned("[land]\npush = \"base\"", &[("one", "+same"), ("two", "+same")]);
    let is_first = "! git cat-file -p $3:same 2>/dev/null | grep -q 'Task one'";
    hook(&yard, "update", is_first);
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert_eq!(ran.line("one")["error"]["kind"], "rejected");
    assert_eq!(ran.line("two")["status"], "succeeded");
    assert!(yard.git("remote.git", &["show", "main:same"]).contains("Task two"));
}

/// It may as well be protected, so that it is not asked for ever, and not for the price of many gates.
#[test]
fn a_base_that_takes_nothing_is_not_asked_often() {
    let tasks: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    let tasks: Vec<(&str, &str)> = tasks.iter().map(|id| (id.as_str(), id.as_str())).collect();
    for (gate, pushes) in [("", 7), ("gate.run = [\"true\"]", 3)] {
        let yard = planned(&format!("{gate}\n[land]\npush = \"base\""), &tasks);
        hook(&yard, "update", "test $1 != refs/heads/main");
        let server = Server::start(Creates::Work);
        let summary = run(&yard, &server).code(3).summary();
        assert_eq!((&summary["pending"], &summary["pushes"]), (&json!(8), &json!(pushes)));
        std::fs::remove_file(yard.path("remote.git/hooks/update")).expect("it is there");
        let summary = run(&yard, &server).code(0).summary();
        assert_eq!((&summary["succeeded"], &summary["pushes"]), (&json!(8), &json!(1)));
        assert_eq!(server.creates().len(), 1);
    }
}

/// What can be done about it depends on what is pushed.
#[test]
fn what_is_held_says_what_to_do() {
    for (push, texts) in [
        ("both", ["push = \"branches\"", "for what the answers hold", "plan.toml.state"]),
        ("branches", ["put it right", "for what the answers hold", "plan.toml.state"]),
    ] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &[("one", "bad")]);
        hook(&yard, NOTHING_BAD[1].0, NOTHING_BAD[1].1);
        let ran = run(&yard, &Server::start(Creates::Work)).code(3);
        for text in texts {
            assert!(ran.stderr.contains(text), "{text}: {ran:?}");
        }
        assert_eq!(ran.line("one")["status"], "pending");
    }
}

/// Killed when some have landed and the others are still being tried.
#[test]
fn a_search_that_was_cut_off_goes_on_and_lands_nothing_twice() {
    let tasks = [("one", "bad.txt"), ("two", "b.txt"), ("three", "-README.md"), ("four", "d.txt")];
    let yard = planned("[land]\npush = \"base\"", &tasks);
    hook(&yard, NOTHING_BAD[0].0, NOTHING_BAD[0].1);
    let end = "until test -s ../pid; do sleep 0.01; done; rm -f $0; kill -9 $(cat ../pid)";
    hook(&yard, "post-receive", end);
    let server = Server::start(Creates::Work);
    let mut program = command(&yard, &server);
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("begun");
    yard.write("pid.new", child.id().to_string());
    std::fs::rename(yard.path("pid.new"), yard.path("pid")).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), None);
    let ran = run(&yard, &server).code(1);
    assert_eq!(ran.line("one")["error"]["kind"], "rejected");
    assert_eq!(ran.summary()["succeeded"], 3);
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(tree.replace('\n', " "), "b.txt d.txt");
    let commits = ["rev-list", "--count", "--no-merges", "main"];
    assert_eq!(yard.git("remote.git", &commits), "4");
    assert_eq!(server.creates().len(), 1);
}

/// What somebody has merged there says nothing of what it takes from the run.
#[test]
fn a_base_into_which_somebody_has_merged_a_held_answer_may_still_take_nothing() {
    let tasks = [("one", "a.txt"), ("two", "b.txt"), ("three", "c.txt")];
    let yard = planned("[land]\npush = \"base\"", &tasks);
    let protect = || hook(&yard, "update", "test $1 != refs/heads/main");
    let unprotect = || std::fs::remove_file(yard.path("remote.git/hooks/update")).expect("removed");
    protect();
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(3);
    unprotect();
    yard.git("repo", &["merge", "--quiet", "--no-ff", "batchyard/one"]);
    yard.git("repo", &["push", "--quiet", "origin", "main"]);
    protect();
    let summary = run(&yard, &server).code(3).summary();
    assert_eq!((&summary["pending"], &summary["failed"]), (&json!(2), &json!(0)));
    assert!(!yard.path("plan/lessons.jsonl").exists(), "nothing is learned from it");
    unprotect();
    assert_eq!(run(&yard, &server).code(0).summary()["succeeded"], 3);
    assert_eq!(server.creates().len(), 1);
}

/// It is gone by itself, so that nobody is told to give answers up for it.
#[test]
fn what_is_in_the_way_for_a_while_costs_no_answers() {
    for is_cut_off in [false, true] {
        let tasks = [("one", "a.txt"), ("two", "b.txt")];
        let yard = planned("[land]\npush = \"base\"", &tasks);
        let in_the_way = if is_cut_off {
            // It refuses the base, and is gone before halves are tried.
            hook(&yard, "update", "mv HEAD HEAD.away; exit 1");
            yard.path("remote.git/HEAD.away")
        } else {
            yard.write("remote.git/refs/heads/main.lock", "")
        };
        let server = Server::start(Creates::Work);
        let ran = run(&yard, &server).code(3);
        assert!(ran.stderr.contains("nothing is paid twice"), "{ran:?}");
        assert!(!ran.stderr.contains("for what the answers hold"), "{ran:?}");
        if is_cut_off {
            for id in ["one", "two"] {
                assert_ne!(ran.line(id)["error"]["kind"], "rejected", "{ran:?}");
            }
            std::fs::rename(in_the_way, yard.path("remote.git/HEAD")).expect("it is there");
            std::fs::remove_file(yard.path("remote.git/hooks/update")).expect("it is there");
        } else {
            std::fs::remove_file(in_the_way).expect("it is there");
        }
        assert_eq!(run(&yard, &server).code(0).summary()["succeeded"], 2);
        assert_eq!(server.creates().len(), 1);
    }
}

/// Replaces the branch of a task at the remote with the commands that the user is told.
fn replace_as_told(yard: &Yard, ran: &Ran, branch: &str) {
    let look = format!("git fetch origin {branch}");
    let replace = format!("git push --force-with-lease={branch}:FETCH_HEAD origin {branch}");
    for command in [look, replace] {
        assert!(ran.stderr.contains(&command), "{command}: {ran:?}");
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        yard.git("repo", &args);
    }
}

/// The base has refused it, and its own branch is at the remote still when another run lands.
#[test]
fn a_branch_that_an_earlier_run_has_left_at_the_remote_says_how_to_replace_it() {
    let yard = planned("", &[("one", "a.txt"), ("two", "bad.txt")]);
    let only_base = "test $1 != refs/heads/main || ! git ls-tree --name-only $3 | grep -q ^bad";
    hook(&yard, "update", only_base);
    run(&yard, &Server::start(Creates::Work)).code(1);
    another_plan(&yard, &[("bad.txt", "c.txt")]);
    let ran = run(&yard, &Server::start(Creates::Work)).code(0);
    assert!(ran.stderr.contains("note: not pushed: "), "{ran:?}");
    replace_as_told(&yard, &ran, "batchyard/two");
    assert_eq!(yard.git("remote.git", &["show", "batchyard/two:c.txt"]), "made");
}

/// It was said to be left over, and the cure was to overwrite it unseen.
#[test]
fn what_somebody_pushes_to_a_branch_during_the_landing_is_to_be_looked_at() {
    let yard = planned("", &[("one", "a.txt")]);
    let hook = yard.overtake("batchyard/one");
    let ran = run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
    assert_eq!(yard.git("remote.git", &["log", "-1", "--format=%s", "batchyard/one"]), "Theirs");
    let why = "not pushed: batchyard/one: somebody else has moved the branch at the remote";
    assert!(ran.stderr.contains(why), "{ran:?}");
    std::fs::remove_file(hook).expect("it is there");
    replace_as_told(&yard, &ran, "batchyard/one");
    assert_eq!(yard.git("remote.git", &["show", "batchyard/one:a.txt"]), "made");
}

/// The user was told to put right what git said of a lock.
#[test]
fn a_run_that_others_overtake_each_time_says_to_run_again() {
    let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let hook = yard.overtake("main");
    let ran = run(&yard, &server).code(3);
    for text in ["main is not pushed: somebody else has moved the branch", "run again to go on"] {
        assert!(ran.stderr.contains(text), "{text}: {ran:?}");
    }
    assert!(!ran.stderr.contains("put it right"), "{ran:?}");
    std::fs::remove_file(hook).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
    assert_eq!(server.creates().len(), 1);
}
