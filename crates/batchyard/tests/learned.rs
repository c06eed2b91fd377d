//! `run` that is killed where it records lessons: each failure is counted once.

mod common;

use std::fs::File;
use std::process::Stdio;

use common::plan::{command, planned, run};
use common::server::{Creates, Server};
use common::{Yard, finish, make_executable};
use serde_json::{Value, json};

const LESSONS: &str = "plan/lessons.jsonl";

fn hook(yard: &Yard, script: &str) {
    make_executable(&yard.write("remote.git/hooks/update", format!("#!/bin/sh\n{script}\n")));
}

const TAKES_NO_BAD: &str = "! git ls-tree --name-only $3 | grep -q ^bad";

/// Two tasks that fail, one of which is refused by the remote while the others land.
fn yard() -> Yard {
    let tasks = [("one", "a.txt"), ("two", "bad.txt"), ("three", ".git/x")];
    let yard = planned("[land]\npush = \"base\"", &tasks);
    hook(&yard, TAKES_NO_BAD);
    yard
}

/// How often each failure was seen.
fn seen(yard: &Yard) -> Vec<u64> {
    let lessons = yard.run(["lessons", "query", LESSONS, "--sort", "id"]).code(0);
    let times = |lesson: Value| lesson["times_seen"].as_u64().unwrap_or(1);
    lessons.objects().into_iter().map(times).collect()
}

/// The file is locked, so that the run waits where it has to.
#[test]
fn a_run_that_is_killed_before_its_lessons_records_them_once() {
    let yard = yard();
    let lock = File::create(yard.path(format!("{LESSONS}.lock"))).expect("it is made");
    lock.lock().expect("it is locked");
    let server = Server::start(Creates::Work);
    let mut child =
        command(&yard, &server).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("begun");
    let end = yard.path("plan/plan.toml.state/end");
    while !end.exists() {
        assert!(child.try_wait().expect("it is asked").is_none(), "it waits for the lessons");
        std::thread::yield_now();
    }
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    drop(lock);
    let main = yard.git("remote.git", &["rev-parse", "main"]);
    let ran = run(&yard, &server).code(1);
    assert_eq!(ran.line("two")["error"]["kind"], "rejected");
    assert_eq!((ran.summary()["succeeded"].as_u64(), seen(&yard)), (Some(1), vec![1, 1]));
    assert_eq!(yard.git("remote.git", &["rev-parse", "main"]), main);
    assert_eq!(server.creates().len(), 1);
    assert!(!yard.path("plan/plan.toml.state").exists());
}

/// The state cannot be removed, as if the run had been killed before it was; another run has counted the same
/// failures when it goes on.
#[test]
fn a_run_that_ends_behind_its_lessons_does_not_record_them_again() {
    let yard = yard();
    let over = "plan/plan.toml.state/over";
    hook(&yard, &format!("mkdir -p ../{over}\n{TAKES_NO_BAD}"));
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert!(ran.stderr.contains("cannot be removed"), "{ran:?}");
    assert_eq!(seen(&yard), [1, 1]);
    std::fs::remove_dir(yard.path(over)).expect("it is there");
    hook(&yard, TAKES_NO_BAD);

    let plan = yard.read("plan/plan.toml").replace("\"a.txt\"", "\"b.txt\"");
    yard.write("plan/other.toml", plan);
    let mut other = yard.program();
    other.env("ANTHROPIC_API_KEY", "sk-ant-very-secret");
    finish(other.args(["run", "plan/other.toml"]), b"").code(1);
    assert_eq!(seen(&yard), [2, 2]);

    let ran = run(&yard, &server).code(1);
    assert_eq!((&ran.line("two")["error"]["kind"], seen(&yard)), (&json!("rejected"), vec![2, 2]));
    assert!(!yard.path("plan/plan.toml.state").exists());
}

/// A clock that was wrong once dates one lesson, and a state that takes no more keeps none from being learned.
#[test]
fn lessons_are_recorded_with_their_time_where_the_end_cannot_be_noted() {
    let yard = yard();
    hook(&yard, &format!("mkdir -p ../plan/plan.toml.state/end.new\n{TAKES_NO_BAD}"));
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert!(ran.stderr.contains("cannot note the end of the run"), "{ran:?}");
    assert!(!yard.path("plan/plan.toml.state").exists());
    let lessons = yard.read(LESSONS);
    let (first, others) = lessons.split_once('\n').expect("two lessons");
    let mut first: Value = serde_json::from_str(first).expect("one object a line");
    first["last_seen"] = json!("2099-01-01T00:00:00Z");
    yard.write(LESSONS, format!("{first}\n{others}"));
    let plan = yard.read("plan/plan.toml").replace("\"a.txt\"", "\"b.txt\"");
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(1);
    assert_eq!(seen(&yard), [2, 2]);
    let lessons = yard.run(["lessons", "query", LESSONS, "--sort", "id"]).code(0).objects();
    let is_of_2099 = |lesson: &&Value| lesson["last_seen"].to_string().contains("2099");
    assert!(lessons.iter().filter(is_of_2099).count() < 2, "{lessons:?}");
}
