//! `run` that could not end: what was paid for is kept, and the next run goes on with it.

mod common;

use std::io::Read as _;
use std::process::{Command, Stdio};

use common::plan::{another_plan, command, planned, run, task};
use common::server::{Creates, Server};
use common::{Ran, Yard, finish};
use serde_json::json;

/// By then the answers are paid for, so it is no refusal.
#[test]
fn a_landing_that_cannot_be_locked_leaves_the_run_unfinished() {
    let yard = planned("", &[("one", "a.txt")]);
    let in_the_way = yard.path("repo/.git/batchyard/run/lock");
    std::fs::create_dir_all(&in_the_way).expect("a folder where the lock belongs");
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    assert!(ran.stderr.contains("the answers are kept"), "{ran:?}");
    std::fs::remove_dir(in_the_way).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
}

/// Nothing was pushed and the answers are there, so the same command goes on.
#[test]
fn a_branch_that_cannot_begin_anew_leaves_the_run_unfinished() {
    let gate = "gate.run = [\"sh\", \"-c\", \"! test -e left.txt\"]";
    let yard = planned(gate, &[("one", "left.txt")]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    another_plan(&yard, &[(gate, ""), ("left.txt", "a.txt")]);
    let lock = yard.write("repo/.git/refs/heads/batchyard/one.lock", "");
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    assert!(ran.stderr.contains("run again"), "{ran:?}");
    std::fs::remove_file(lock).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert!(tree.contains("a.txt") && !tree.contains("left.txt"), "{tree}");
}

/// It cannot be set to the base, and what the gate has refused is not gone on from.
#[test]
fn a_branch_of_an_earlier_run_that_is_checked_out_leaves_the_run_unfinished() {
    let gate = "gate.run = [\"sh\", \"-c\", \"! test -e left.txt\"]";
    let yard = planned(gate, &[("one", "left.txt")]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    another_plan(&yard, &[(gate, ""), ("left.txt", "a.txt")]);
    yard.git("repo", &["switch", "-q", "batchyard/one"]);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    assert!(ran.stderr.contains("switch to another branch"), "{ran:?}");
    yard.git("repo", &["switch", "-q", "main"]);
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert!(tree.contains("a.txt") && !tree.contains("left.txt"), "{tree}");
}

/// Such as a database that is up by now: the trees are the same.
#[test]
fn a_gate_that_failed_for_what_is_outside_of_the_tree_is_asked_again() {
    let yard = planned("", &[("one", "a.txt")]);
    let flag = yard.path("flag");
    another_plan(
        &yard,
        &[(
            "[[task]]",
            &format!("[gate]\nrun = [\"test\", \"-e\", \"{}\"]\n\n[[task]]", flag.display()),
        )],
    );
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(3);
    yard.write("flag", "");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
}

/// A push that was refused again and again, and goes through when it is allowed to.
#[test]
fn nothing_is_said_to_have_landed_that_did_not_reach_the_base() {
    for push in ["both", "base", "branches"] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &[("one", "a.txt")]);
        let server = Server::start(Creates::Work);
        let hook = "repo/.git/hooks/pre-push";
        yard.write(hook, "#!/bin/sh\nexit 1\n");
        common::make_executable(&yard.path(hook));
        for _ in 0..if push == "both" { 2 } else { 1 } {
            run(&yard, &server).code(3);
        }
        std::fs::remove_file(yard.path(hook)).expect("removed");
        let ran = run(&yard, &server).code(0);
        assert_eq!((server.creates().len(), &ran.summary()["pushes"]), (1, &json!(1)));
        let branch = if push == "branches" { "batchyard/one" } else { "main" };
        assert_eq!(yard.git("remote.git", &["show", &format!("{branch}:a.txt")]), "made");
        let commits = yard.git("remote.git", &["rev-list", "--count", "--no-merges", branch]);
        assert_eq!(commits, "2");
    }
}

/// The remote has it all, and nobody has heard of it: the program was killed, or the remote went away.
#[test]
fn a_landing_that_was_cut_off_after_its_push_is_not_made_twice() {
    for is_killed in [true, false] {
        let yard = planned("", &[("one", "-README.md"), ("two", "b.txt")]);
        // It runs before the remote says that it has the branch.
        let hook = "remote.git/hooks/reference-transaction";
        let end = if is_killed {
            "until test -s ../pid; do sleep 0.01; done; kill -9 $(cat ../pid)"
        } else {
            "mv HEAD HEAD.away; kill -9 $PPID"
        };
        let when = "test $1 = committed && grep -q refs/heads/main || exit 0";
        yard.write(hook, format!("#!/bin/sh\n{when}\nrm -f $0\n{end}\n"));
        common::make_executable(&yard.path(hook));
        let server = Server::start(Creates::Work);
        let mut program = command(&yard, &server);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("begun");
        yard.write("pid.new", child.id().to_string());
        std::fs::rename(yard.path("pid.new"), yard.path("pid")).expect("it is there");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), (!is_killed).then_some(3));
        if !is_killed {
            std::fs::rename(yard.path("remote.git/HEAD.away"), yard.path("remote.git/HEAD"))
                .expect("it is there");
        }
        let landed = yard.git("remote.git", &["rev-parse", "main"]);
        let ran = run(&yard, &server).code(0);
        assert_eq!(ran.summary()["succeeded"], 2);
        assert_eq!(server.creates().len(), 1);
        assert_eq!(yard.git("remote.git", &["rev-parse", "main"]), landed);
        assert_eq!(yard.git("remote.git", &["ls-tree", "--name-only", "main"]), "b.txt");
        let commits = ["rev-list", "--count", "--no-merges", "main"];
        assert_eq!(yard.git("remote.git", &commits), "3");
    }
}

#[test]
fn a_push_that_did_not_get_through_costs_no_second_answer() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    let hook = "repo/.git/hooks/pre-push";
    yard.write(hook, "#!/bin/sh\nexit 1\n");
    common::make_executable(&yard.path(hook));
    let ran = run(&yard, &server).code(3);
    assert_eq!(ran.line("one")["status"], "pending");
    assert_eq!(ran.summary()["pending"], 2);
    assert!(ran.stderr.contains("the answers are kept"), "{ran:?}");
    std::fs::remove_file(yard.path(hook)).expect("removed");
    let ran = run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1, "nothing is paid twice");
    assert_eq!(ran.summary()["submissions"], 1);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    assert_eq!(yard.receives(), 1);
}

#[test]
fn a_signal_keeps_the_state_and_the_next_run_goes_on() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::NeverEnd);
    for signal in ["INT", "TERM"] {
        let before = server.count("GET");
        let mut child = command(&yard, &server)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        server.wait_for("GET", before + 1);
        let pid = child.id().to_string();
        let kill = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs");
        assert!(kill.success());
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("it is read");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
        assert!(said.contains("run again: ") && said.contains("plan/plan.toml"), "{said}");
    }
    assert_eq!(server.creates().len(), 1);
    // The state belongs to what this plan asks.
    let plan = yard.read("plan/plan.toml");
    yard.write("plan/plan.toml", plan.replace("a.txt", "b.txt"));
    run(&yard, &server).refused(&["asks something else"]);
    yard.write("plan/plan.toml", plan + "# changed\n");
    server.set(Creates::Work);
    run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

#[test]
fn a_state_that_another_run_holds_is_left_to_it() {
    let yard = planned("", &[("one", "a.txt")]);
    let lock = yard.write("plan/plan.toml.state/lock", "");
    let file = std::fs::File::open(lock).expect("it is opened");
    file.lock().expect("it is locked");
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(3);
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_create_whose_answer_is_lost_is_found_and_paid_once() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Vanish);
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (1, 2));
    assert_eq!(yard.receives(), 1);
}

#[test]
fn a_folder_of_somebody_else_is_no_state() {
    let yard = planned("state = \".\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let mut command = command(&yard, &server);
    let before = yard.everything("plan");
    finish(&mut command, b"").refused(&["no state of a run"]);
    assert!(yard.everything("plan") == before);
    assert_eq!(server.seen().len(), 0);
}

/// A hook that the test makes, and takes away again.
fn hook(yard: &Yard, name: &str, script: &str) -> std::path::PathBuf {
    let path = yard.write(name, format!("#!/bin/sh\n{script}\n"));
    common::make_executable(&path);
    path
}

/// No task is at fault where the remote takes no base from anybody, or nothing at all.
#[test]
fn a_base_that_refuses_for_good_costs_no_second_answer() {
    for (name, script, push, times) in [
        ("update", "test $1 != refs/heads/main", "both", 2),
        ("update", "test $1 != refs/heads/main", "base", 1),
        ("pre-receive", "echo closed >&2; exit 1", "both", 1),
        ("pre-receive", "echo closed >&2; exit 1", "branches", 1),
    ] {
        let tasks = [("one", "a.txt"), ("two", "b.txt"), ("wrong", ".git/x")];
        let yard = planned(&format!("[land]\npush = \"{push}\""), &tasks);
        let server = Server::start(Creates::Work);
        let hook = hook(&yard, &format!("remote.git/hooks/{name}"), script);
        for _ in 0..times {
            let ran = run(&yard, &server).code(3);
            for id in ["one", "two"] {
                let commit = yard.git("repo", &["rev-parse", &format!("batchyard/{id}")]);
                let line = ran.line(id);
                assert_eq!((&line["status"], &line["commit"]), (&json!("pending"), &json!(commit)));
                assert_eq!(line["error"]["kind"], "rejected");
            }
            assert_eq!(
                (&ran.summary()["pending"], &ran.summary()["failed"]),
                (&json!(2), &json!(1))
            );
            assert!(
                ran.stderr.contains("plan.toml.state") && ran.stderr.contains("declined"),
                "{ran:?}"
            );
            assert!(!yard.path("plan/lessons.jsonl").exists(), "nothing is learned from it");
        }
        std::fs::remove_file(hook).expect("it is there");
        let ran = run(&yard, &server).code(1);
        assert_eq!((&ran.summary()["succeeded"], &ran.summary()["failed"]), (&json!(2), &json!(1)));
        assert_eq!(server.creates().len(), 1, "{name} {push}");
        let branch = if push == "branches" { "batchyard/two" } else { "main" };
        assert_eq!(yard.git("remote.git", &["show", &format!("{branch}:b.txt")]), "made");
        assert_eq!(yard.read("plan/lessons.jsonl").lines().count(), 1);
    }
}

/// Where the base is protected, the same answers go another way.
#[test]
fn where_answers_go_may_change_while_they_are_kept() {
    let yard = planned("[land]\npush = \"both\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    hook(&yard, "remote.git/hooks/update", "test $1 != refs/heads/main");
    run(&yard, &server).code(3);
    let plan = yard.read("plan/plan.toml").replace("\"both\"", "\"branches\"");
    // Not to another base: what was committed is on top of this one.
    yard.git("remote.git", &["branch", "--quiet", "other", "main"]);
    yard.write("plan/plan.toml", plan.replace("[land]", "[land]\nonto = \"other\""));
    let ran = run(&yard, &server).code(3);
    assert!(
        ran.stderr.contains("land on main at") && ran.stderr.contains("not on other"),
        "{ran:?}"
    );
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1);
    assert_eq!(yard.git("remote.git", &["show", "batchyard/one:a.txt"]), "made");
}

#[test]
fn a_base_that_fails_the_gate_by_itself_costs_no_second_answer() {
    let gate = "[gate]\nrun = [\"sh\", \"-c\", \"echo told; exit 7\"]";
    let yard = planned(gate, &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    let error = &ran.line("one")["error"];
    assert_eq!(error["kind"], "gate");
    assert!(!error["message"].to_string().contains(": told"), "it is said once: {ran:?}");
    assert_eq!((&ran.summary()["pending"], &ran.summary()["failed"]), (&json!(2), &json!(0)));
    assert_eq!(ran.summary()["round_trips_saved"], 0);
    assert!(ran.stderr.contains("told") && ran.stderr.contains("without any branch"), "{ran:?}");
    assert_eq!((yard.receives(), yard.path("plan/lessons.jsonl").exists()), (0, false));
    let plan = yard.read("plan/plan.toml").replace("exit 7", "exit 0");
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

#[test]
fn a_gate_that_cannot_be_run_is_known_before_anything_is_paid() {
    let yard = planned("[gate]\nrun = [\"no-such-program-here\"]", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).refused(&["no-such-program-here"]);
    assert_eq!(server.seen().len(), 0);
    assert!(!yard.path("plan/plan.toml.state").exists());
}

#[test]
fn a_repository_that_cannot_be_written_is_known_before_anything_is_paid() {
    let yard = planned("", &[("one", "a.txt")]);
    // A file where a folder belongs: rights would not keep root out.
    yard.write("repo/.git/batchyard", "");
    let server = Server::start(Creates::Work);
    run(&yard, &server).refused(&["cannot write to", "repo/.git/batchyard", "nothing is paid"]);
    assert_eq!(server.seen().len(), 0);
    assert!(!yard.path("plan/plan.toml.state").exists());
}

/// By then something is paid, and nobody is to believe that it is not.
#[test]
fn what_is_in_the_way_of_a_held_run_does_not_refuse_it() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let hook = hook(&yard, "remote.git/hooks/pre-receive", "exit 1");
    run(&yard, &server).code(3);
    std::fs::remove_file(hook).expect("it is there");
    let stop = |ran: Ran| {
        let ran = ran.code(3);
        assert!(ran.stderr.contains("the answers are kept"), "{ran:?}");
        assert!(!ran.stderr.contains("nothing is paid\n"), "{ran:?}");
    };
    stop(finish(command(&yard, &server).args(["--report", "repo/README.md"]), b""));
    std::fs::rename(yard.path("remote.git"), yard.path("away")).expect("it is there");
    stop(run(&yard, &server));
    std::fs::rename(yard.path("away"), yard.path("remote.git")).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
}

#[test]
fn a_repository_where_nobody_can_commit_costs_no_second_answer() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    for key in ["user.name", "user.email"] {
        yard.git("repo", &["config", "--unset", key]);
    }
    yard.git("repo", &["config", "user.useConfigOnly", "true"]);
    let ran = run(&yard, &server).code(3);
    assert_eq!(ran.line("one")["error"]["kind"], "missing_identity");
    for (key, value) in [("user.name", "Tester"), ("user.email", "tester@example.invalid")] {
        yard.git("repo", &["config", key, value]);
    }
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
}

/// The requests of the first wave are paid for by then.
#[test]
fn a_state_that_cannot_be_written_between_two_waves_leaves_the_run_unfinished() {
    let yard = planned("", &[("one", "a.txt")]);
    let plan = yard.read("plan/plan.toml") + &task("next", "b.txt", "after = [\"one\"]");
    yard.write("plan/plan.toml", plan);
    // A folder where the file is to be written.
    yard.write("plan/plan.toml.state/wave-1.jsonl.new/x", "");
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    assert!(ran.stderr.contains("wave-1.jsonl"), "{ran:?}");
    std::fs::remove_dir_all(yard.path("plan/plan.toml.state/wave-1.jsonl.new")).expect("removed");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (2, 2));
}

/// The removal of a state was cut off, at any place: nothing of it answers another plan.
#[test]
fn what_is_left_of_a_run_that_is_over_answers_no_other_plan() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    let hook = hook(&yard, "repo/.git/hooks/pre-push", "exit 1");
    run(&yard, &server).code(3);
    std::fs::remove_file(hook).expect("it is there");
    let (state, copy) = (yard.path("plan/plan.toml.state"), yard.path("copy"));
    std::fs::rename(&state, &copy).expect("it is there");
    copy_all(&copy, &state);
    run(&yard, &server).code(0);
    assert!(!state.exists());
    another_plan(&yard, &[("\"a.txt\"", "\"new-a.txt\""), ("\"b.txt\"", "\"new-b.txt\"")]);

    // All of it but the one file that says what it belongs to: that is for somebody to decide.
    copy_all(&copy, &state);
    std::fs::remove_file(state.join("run.json")).expect("it is there");
    let second = Server::start(Creates::Work);
    run(&yard, &second).refused(&["run.json", "plan.toml.state"]);
    assert_eq!(second.seen().len(), 0);
    std::fs::remove_dir_all(&state).expect("it is there");

    copy_all(&copy, &state);
    std::fs::rename(state.join("run.json"), state.join("over")).expect("it is there");
    let ran = run(&yard, &second).code(0);
    assert_eq!((second.creates().len(), &ran.summary()["succeeded"]), (1, &json!(2)));
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(tree.replace('\n', " "), "README.md a.txt b.txt new-a.txt new-b.txt");
    assert!(!state.exists());
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).expect("it is made");
    for entry in std::fs::read_dir(from).expect("it is read") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("it is copied");
        }
    }
}

#[test]
fn a_state_is_its_owner_s_whoever_has_made_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let yard = planned("", &[("one", "a.txt")]);
    let state = yard.path("plan/plan.toml.state");
    std::fs::create_dir(&state).expect("it is made");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).expect("it is set");
    hook(&yard, "repo/.git/hooks/pre-push", "exit 1");
    run(&yard, &Server::start(Creates::Work)).code(3);
    let mode = |path: std::path::PathBuf| {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    };
    assert_eq!(mode(state.clone()), 0o700);
    assert_eq!(mode(state.join("wave-0.jsonl")), 0o600);
}
