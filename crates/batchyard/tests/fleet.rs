//! `run` with the fleet of the examples: nothing needed but Rust and git.

mod common;

use std::path::{Path, PathBuf};

use common::{Ran, Yard, finish};
use serde_json::{Value, json};

fn fleet() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("it is read") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("it is copied");
        }
    }
}

/// Runs the fleet of the examples from a project with nothing but what `prepare` makes of it.
fn run_fleet(yard: &Yard, args: &[&str]) -> Ran {
    let mut command = yard.program();
    command.env_remove("HOME").env("CARGO_TARGET_DIR", yard.path("built"));
    command.env("GIT_DIR", "/nowhere").env("GIT_INDEX_FILE", "/nowhere/index");
    finish(command.args(["run", "project/examples/fleet/fleet.toml"]).args(args), b"")
}

fn fleet_yard() -> Yard {
    let yard = Yard::new();
    copy(&fleet(), &yard.path("project/examples/fleet"));
    yard.write("project/Cargo.toml", "[workspace]\n");
    yard
}

/// Leaves out the comparison, which takes the most time.
fn compare_nothing(yard: &Yard) {
    let plan = yard.read("project/examples/fleet/fleet.toml");
    assert!(plan.contains("one_by_one = true"));
    let plan = plan.replace("one_by_one = true", "one_by_one = false");
    yard.write("project/examples/fleet/fleet.toml", plan);
}

fn commit_project(yard: &Yard) {
    yard.git("project", &["init", "--quiet", "-b", "trunk"]);
    yard.git("project", &["add", "--all"]);
    let identity = ["-c", "user.name=T", "-c", "user.email=t@t.invalid"];
    yard.git("project", &[&identity[..], &["commit", "--quiet", "--message", "Begin"]].concat());
}

#[track_caller]
fn check_fleet(yard: &Yard, ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let summary = ran.summary();
    let expected = [
        ("tasks", 9),
        ("succeeded", 8),
        ("failed", 1),
        ("submissions", 3),
        ("calls_saved", 6),
        ("http_calls", 0),
        ("cache_hits", 0),
        ("pushes", 1),
        ("round_trips_saved", 8),
        ("batches", 3),
    ];
    for (key, value) in expected {
        assert_eq!(summary[key], value, "{key}: {summary}");
    }
    assert!(summary["seconds"].is_f64() && summary["cost"].is_null(), "{summary}");
    assert_eq!(ran.line("changelog-lint")["error"]["kind"], "unusable_answer");
    let remote = "built/batchyard-demo/remote.git";
    let refs = yard.git(remote, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    assert_eq!(refs.lines().count(), 9, "{refs}");
    assert!(!refs.contains("changelog-lint"), "{refs}");
    for line in refs.lines().filter(|name| *name != "main") {
        yard.git(remote, &["merge-base", "--is-ancestor", line, "main"]);
    }
    yard.git(remote, &["fsck", "--strict", "--no-dangling"]);
    let lessons = yard.read("built/batchyard-demo/lessons.jsonl");
    let known = std::fs::read_to_string(fleet().join("lessons.jsonl")).expect("it is read");
    assert_eq!(lessons.lines().count(), known.lines().count() + 1, "{lessons}");
    assert!(!yard.path("built/batchyard-demo/state").exists());
}

#[test]
fn the_fleet_goes_from_prompts_to_one_push_and_again() {
    let yard = fleet_yard();
    commit_project(&yard);
    yard.write("project/Cargo.toml", "[workspace] # edited, not committed\n");
    let before = yard.everything("project");
    let table = run_fleet(&yard, &[]).code(0).stdout;
    for text in ["(as expected)", "submissions", "round trips saved", "one by one"] {
        assert!(table.contains(text), "{table}");
    }
    let ran = run_fleet(&yard, &["--json"]);
    check_fleet(&yard, &ran);
    let compared = &ran.objects()[9]["one_by_one"];
    assert_eq!((&compared["submissions"], &compared["pushes"]), (&json!(9), &json!(8)));
    assert!(compared["seconds"].as_f64().expect("seconds") > 0.0);
    assert!(yard.everything("project") == before, "the project was written to");
}

#[test]
fn the_fleet_runs_from_any_kind_of_checkout() {
    let check = |prepare: &dyn Fn(&Yard)| {
        let yard = fleet_yard();
        compare_nothing(&yard);
        prepare(&yard);
        let ran = run_fleet(&yard, &["--json"]);
        check_fleet(&yard, &ran);
        yard
    };
    // No repository at all, one without a commit, one that is broken.
    check(&|_| {});
    check(&|yard| {
        yard.git("project", &["init", "--quiet"]);
    });
    check(&|yard| {
        yard.write("project/.git/HEAD", "nonsense");
    });
    // Inside somebody else's repository.
    check(&|yard| {
        yard.git(".", &["init", "--quiet", "-b", "outer"]);
    });
    let history = |yard: &Yard| {
        let log = yard.git("built/batchyard-demo/remote.git", &["log", "--format=%s", "main"]);
        assert!(log.lines().any(|line| line == "Begin"), "{log}");
    };
    // A detached head.
    let yard = check(&|yard| {
        commit_project(yard);
        yard.git("project", &["checkout", "--quiet", "--detach"]);
    });
    history(&yard);
    // A shallow clone, and a linked worktree.
    let yard = check(&|yard| {
        commit_project(yard);
        std::fs::rename(yard.path("project"), yard.path("origin")).expect("renamed");
        yard.write("origin/more", "");
        yard.git("origin", &["add", "--all"]);
        let identity = ["-c", "user.name=T", "-c", "user.email=t@t.invalid"];
        yard.git("origin", &[&identity[..], &["commit", "-qm", "Begin"]].concat());
        let url = format!("file://{}", yard.path("origin").display());
        yard.git(".", &["clone", "--quiet", "--depth", "1", &url, "project"]);
    });
    history(&yard);
    let yard = check(&|yard| {
        commit_project(yard);
        std::fs::rename(yard.path("project"), yard.path("main")).expect("renamed");
        yard.git("main", &["worktree", "add", "--quiet", "../project"]);
    });
    history(&yard);
}

/// The run refuses it, and so must whatever else is made of the answers.
#[test]
fn nothing_is_written_through_a_symlink_of_the_source() {
    let yard = fleet_yard();
    std::fs::create_dir(yard.path("outside")).expect("made");
    std::os::unix::fs::symlink(yard.path("outside"), yard.path("project/notes")).expect("linked");
    commit_project(&yard);
    let plan = yard.read("project/examples/fleet/fleet.toml");
    yard.write("project/examples/fleet/fleet.toml", plan.replace("expect = \"fail\"", ""));
    let ran = run_fleet(&yard, &["--json"]).code(1);
    assert!(ran.summary()["failed"].as_u64() > Some(1), "{ran:?}");
    assert!(ran.objects().iter().any(|line| line["one_by_one"].is_object()), "{ran:?}");
    let count = std::fs::read_dir(yard.path("outside")).expect("it is read").count();
    assert_eq!(count, 0, "something was written there");
}

#[test]
fn settings_of_the_user_do_not_reach_the_fleet() {
    let yard = fleet_yard();
    commit_project(&yard);
    yard.write("hooks/pre-push", "#!/bin/sh\nexit 1\n");
    yard.write("hooks/pre-receive", "#!/bin/sh\nexit 1\n");
    for hook in ["pre-push", "pre-receive"] {
        common::make_executable(&yard.path("hooks").join(hook));
    }
    let hostile = format!(
        "[core]\nhooksPath = {}\n[commit]\ngpgSign = true\n[user]\nuseConfigOnly = true\n\
         [push]\ngpgSign = true\n[protocol \"file\"]\nallow = never\n",
        yard.path("hooks").display()
    );
    yard.write("home/.gitconfig", hostile);
    let mut command = yard.program();
    command.env("CARGO_TARGET_DIR", "built").args(["run", "project/examples/fleet/fleet.toml"]);
    let ran = finish(command.arg("--json"), b"");
    check_fleet(&yard, &ran);
}

/// The scratch repositories are made anew, so that the commits of the first run are gone.
#[test]
fn a_run_that_was_cut_off_goes_on_on_another_scratch_remote() {
    let yard = fleet_yard();
    compare_nothing(&yard);
    let plan = yard.read("project/examples/fleet/fleet.toml");
    let gate = "[gate]\nrun = [\"test\", \"-e\", \"FLAG\"]\n\n[land]";
    let gate = gate.replace("FLAG", &yard.path("flag").display().to_string());
    yard.write("project/examples/fleet/fleet.toml", plan.replace("[land]", &gate));
    run_fleet(&yard, &[]).code(3);
    assert!(yard.path("built/batchyard-demo/state/made").exists());
    yard.write("flag", "");
    let ran = run_fleet(&yard, &["--json"]);
    check_fleet(&yard, &ran);
}

#[test]
fn without_git_nothing_is_begun() {
    let yard = fleet_yard();
    let mut command = yard.program();
    command.env("PATH", yard.path("home")).env("CARGO_TARGET_DIR", "built");
    finish(command.args(["run", "project/examples/fleet/fleet.toml"]), b"")
        .refused(&["cannot run git"]);
    assert!(!yard.path("built/batchyard-demo/state").exists(), "nothing is left behind");
}

#[test]
fn a_folder_that_another_run_holds_is_left_to_it() {
    let yard = fleet_yard();
    compare_nothing(&yard);
    let lock = yard.write("built/batchyard-demo/lock", "");
    let file = std::fs::File::open(lock).expect("it is opened");
    file.lock().expect("it is locked");
    let ran = run_fleet(&yard, &[]).code(3);
    assert!(ran.stderr.contains("another run holds"), "{ran:?}");
    drop(file);
    run_fleet(&yard, &[]).code(0);
}

#[test]
fn a_dry_run_prints_operations_that_apply_takes_and_writes_nothing() {
    let yard = fleet_yard();
    let before = yard.everything(".");
    let ran = run_fleet(&yard, &["--dry-run", "--json"]).code(0);
    assert!(yard.everything(".") == before, "something was written");
    let ops: Vec<Value> =
        ran.objects().into_iter().filter(|line| line.get("op").is_some()).collect();
    assert_eq!(ops.len(), 8 + 8 + 9, "commits, merges, pushes");
    assert_eq!(ran.summary()["pushes"], 0);
    let yard = Yard::with_repository();
    // A branch that is checked out moves at the remote only, and what comes after that is pushed then.
    yard.git("repo", &["switch", "--quiet", "--detach"]);
    let lines: Vec<String> = ops.iter().map(ToString::to_string).collect();
    let applied =
        yard.run_with(["git", "apply", "--repo", "repo", "--json", "-"], lines.join("\n")).code(0);
    assert_eq!(applied.summary()["landed"], 25);
    assert_eq!(yard.receives(), 1);
}
