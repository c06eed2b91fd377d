//! `run` that takes a landing apart: what needs the others, or clashes with them, is not lost for it.

mod common;

use common::plan::{planned, run};
use common::server::{Creates, Server};
use common::{Yard, make_executable};
use serde_json::json;

fn hook(yard: &Yard, name: &str, script: &str) {
    make_executable(&yard.write(name, format!("#!/bin/sh\n{script}\n")));
}

const UPDATE: &str = "remote.git/hooks/update";

/// Takes no `bad*`, and no `b.txt` without `a.txt`, as a remote that builds what it gets.
const BUILDS: &str = "names=$(git ls-tree --name-only $3)\n\
    case \"$names\" in *bad*) exit 1;; *a.txt*) exit 0;; *b.txt*) exit 1;; esac";

fn main_of(yard: &Yard) -> String {
    yard.git("remote.git", &["ls-tree", "--name-only", "main"]).replace('\n', " ")
}

#[test]
fn an_answer_that_needs_another_one_lands_whatever_is_refused_beside_them() {
    let gate = "gate.run = [\"sh\", \"-c\", \"! test -e b.txt || test -e a.txt\"]";
    let needed = [("one", "a.txt"), ("wrong", "bad"), ("needs", "b.txt"), ("four", "d.txt")];
    let first = [("needs", "b.txt"), ("wrong", "bad"), ("one", "a.txt"), ("two", "bad2")];
    for (head, tasks, is_given_up, failed, tree) in [
        (gate, needed, false, 1, "README.md a.txt b.txt d.txt"),
        ("", first, true, 2, "README.md a.txt b.txt"),
    ] {
        let yard = planned(&format!("{head}\n[land]\npush = \"base\""), &tasks);
        hook(&yard, UPDATE, BUILDS);
        let server = Server::start(Creates::Work);
        if is_given_up {
            // Nothing is taken of the first five.
            run(&yard, &server).code(3);
        }
        let ran = run(&yard, &server).code(1);
        assert_eq!(main_of(&yard), tree, "{ran:?}");
        assert_eq!(ran.summary()["failed"], failed);
        assert_eq!(ran.line("wrong")["error"]["kind"], "rejected");
        assert_eq!(ran.line("needs")["status"], "succeeded");
        assert_eq!(yard.read("plan/lessons.jsonl").lines().count(), 1);
    }
}

/// Also where the earlier one is beside what the remote refuses, and the later one is not.
#[test]
fn of_two_that_clash_the_earlier_lands() {
    let tasks = [("one", "+same"), ("wrong", "bad"), ("three", "+same"), ("four", "d.txt")];
    let yard = planned("[land]\npush = \"base\"", &tasks);
    hook(&yard, UPDATE, BUILDS);
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert_eq!(main_of(&yard), "README.md d.txt same");
    assert!(yard.git("remote.git", &["show", "main:same"]).contains("Task one"), "{ran:?}");
    assert_eq!(ran.line("three")["error"]["kind"], "conflict");
    assert_eq!(ran.line("wrong")["error"]["kind"], "rejected");
}

/// Git asks it once for all branches of a push, and nothing is sent. It may as well have been unable to do its
/// work, and git says no more of that, so that nobody is at fault.
#[test]
fn an_answer_that_a_hook_of_the_repository_refuses_waits_alone() {
    for (push, branch) in [("base", "main"), ("both", "main"), ("branches", "batchyard/one")] {
        let tasks = [("one", "a.txt"), ("two", "bad.txt"), ("three", "c.txt")];
        let yard = planned(&format!("[land]\npush = \"{push}\""), &tasks);
        // It may print more than is kept of that.
        let refuses = "while read _ new _; do\n\
            git ls-tree --name-only $new | grep ^bad >&2 && { yes | head -c 5000 >&2; exit 1; }\n\
            done\nexit 0";
        hook(&yard, "repo/.git/hooks/pre-push", refuses);
        let server = Server::start(Creates::Work);
        for _ in 0..2 {
            let ran = run(&yard, &server).code(3);
            let (two, summary) = (ran.line("two"), ran.summary());
            assert_eq!(
                (&two["status"], &two["error"]["kind"]),
                (&json!("pending"), &json!("remote"))
            );
            assert!(ran.stderr.contains("bad.txt"), "{ran:?}");
            assert_eq!((&summary["succeeded"], &summary["pending"]), (&json!(2), &json!(1)));
            assert_eq!(yard.git("remote.git", &["show", &format!("{branch}:a.txt")]), "made");
            let branches = yard.git("remote.git", &["for-each-ref", "refs/heads/batchyard"]);
            assert_eq!(branches.lines().count(), if push == "base" { 0 } else { 2 });
            assert!(!yard.path("plan/lessons.jsonl").exists(), "nothing is learned from it");
        }
        hook(&yard, "repo/.git/hooks/pre-push", "exit 0");
        assert_eq!(run(&yard, &server).code(0).summary()["succeeded"], 3);
        assert_eq!(server.creates().len(), 1);
    }
}

/// Where each try costs a run of the gate, a run gives up soon; the next one goes on from there.
#[test]
fn a_search_that_was_given_up_comes_further_each_time() {
    let tasks: Vec<(String, String)> = (0..8)
        .map(|n| (n.to_string(), format!("{}{n}", ["bad", "f"][usize::from(n % 7 > 0)])))
        .collect();
    let tasks: Vec<(&str, &str)> =
        tasks.iter().map(|(id, path)| (id.as_str(), path.as_str())).collect();
    let yard = planned("gate.run = [\"true\"]\n[land]\npush = \"base\"", &tasks);
    hook(&yard, UPDATE, BUILDS);
    let server = Server::start(Creates::Work);
    assert_eq!(run(&yard, &server).code(3).summary()["pending"], 8);
    let summary = run(&yard, &server).code(1).summary();
    assert_eq!((&summary["succeeded"], &summary["failed"]), (&json!(6), &json!(2)));
    assert_eq!(main_of(&yard), "README.md f1 f2 f3 f4 f5 f6");
    assert_eq!(server.creates().len(), 1);
}
