//! Many callers, many handles, many processes; one writer at a time.

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use git_batch::{ApplyError, Commit, GitBatch, Operation, Outcome, Settings};
use support::{Fixture, landed};

fn task(name: &str, n: usize) -> Vec<Operation> {
    let branch = format!("{name}/{n}");
    let commit =
        Commit::new(&branch, format!("Task {n}")).write(format!("{name}.txt"), n.to_string());
    vec![Operation::commit(format!("c{n}"), commit), Operation::push(format!("p{n}"), branch)]
}

#[test]
fn submitted_operations_share_a_push() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_max_items(20).with_linger(Duration::from_hours(1));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let tickets: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|n| {
                let git = &git;
                scope.spawn(move || {
                    // A commit and its push from one caller, in this order.
                    task("agent", n)
                        .into_iter()
                        .map(|op| git.submit(op).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // The twentieth operation filled the batch, so nobody waits for the linger.
    for ticket in tickets {
        assert!(ticket.wait().unwrap().is_success());
    }
    assert_eq!(fixture.received(), 1);
    let stats = git.batcher().stats();
    assert_eq!((stats.completed, stats.calls), (20, 1));
    fixture.assert_sound();
}

#[test]
fn flush_sends_what_is_there() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_linger(Duration::from_hours(1));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let [commit, push] = task("agent", 0).try_into().unwrap();
    let (commit, push) = (git.submit(commit).unwrap(), git.submit(push).unwrap());
    git.flush().wait().unwrap();
    assert!(matches!(commit.wait().unwrap(), Outcome::Landed { .. }));
    assert!(matches!(push.wait().unwrap(), Outcome::Landed { .. }));
    assert_eq!(fixture.received(), 1);
    assert!(git.close(Duration::from_mins(1)).is_empty());
}

#[test]
fn two_callers_with_one_id_get_two_answers() {
    let fixture = Fixture::new();
    let git = fixture.open();
    let operation =
        |branch: &str| Operation::commit("same", Commit::new(branch, "m").write("n", branch));
    let (first, second) =
        (git.submit(operation("a")).unwrap(), git.submit(operation("b")).unwrap());
    git.flush().wait().unwrap();
    assert!(matches!(first.wait().unwrap(), Outcome::Landed { .. }));
    assert!(matches!(
        second.wait().unwrap(),
        Outcome::Failed(error) if error.kind == git_batch::OpErrorKind::DuplicateId
    ));
}

#[test]
fn handles_take_turns_and_lose_nothing() {
    let fixture = Fixture::new();
    fixture.git(["branch", "shared", "main"]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                let git = fixture.open();
                for n in 0..5 {
                    // All on one branch: each must find what the others did.
                    let commit = Commit::new("shared", "m").write(format!("{thread}-{n}"), "x");
                    let report = git.apply(vec![Operation::commit("c", commit)]).unwrap();
                    landed(&report, "c");
                }
            });
        }
    });
    assert_eq!(fixture.git(["rev-list", "--count", "main..shared"]).trim(), "20");
    assert_eq!(fixture.git(["ls-tree", "--name-only", "shared"]).lines().count(), 3 + 20);
    fixture.assert_sound();
}

#[test]
fn a_writer_that_stays_is_reported_after_the_wait() {
    let fixture = Fixture::new();
    fixture.open().apply(vec![Operation::push("p", "main")]).unwrap();
    let held = std::fs::File::open(fixture.work().join(".git/batchyard/lock")).unwrap();
    held.lock().unwrap();
    let settings = Settings::default().with_wait(Duration::from_millis(1));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let error = git.apply(task("agent", 0)).unwrap_err();
    assert!(matches!(error, ApplyError::Busy { .. }), "{error}");
    assert_eq!(fixture.git(["branch", "--list", "agent/*"]), "");
    held.unlock().unwrap();
    assert!(git.apply(task("agent", 0)).unwrap().outcomes.iter().all(|(_, o)| o.is_success()));
}

/// Where a child process of these tests is to work; see [`in_a_process_of_its_own`].
const CHILD: &str = "GIT_BATCH_TEST_CHILD";

/// Runs [`in_a_process_of_its_own`] in a process of its own.
fn child(fixture: &Fixture, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program"));
    command
        .args(["--exact", "in_a_process_of_its_own", "--quiet"])
        .env(CHILD, format!("{name}={}", fixture.work().display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The work of a child; in the tests' own process there is none.
#[test]
fn in_a_process_of_its_own() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let (name, dir) = job.split_once('=').unwrap();
    let git = GitBatch::open(dir, Settings::default()).unwrap();
    for n in 0..5 {
        let report = git.apply(task(name, n)).unwrap();
        assert!(report.outcomes.iter().all(|(_, o)| o.is_success()), "{report:?}");
    }
}

#[test]
fn processes_take_turns() {
    let fixture = Fixture::new();
    let children: Vec<_> =
        (0..4).map(|n| child(&fixture, &format!("p{n}")).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let branches = fixture.at_remote(["for-each-ref", "--format=%(refname)", "refs/heads/p*/*"]);
    assert_eq!(branches.lines().count(), 20);
    assert_eq!(fixture.received(), 20);
    fixture.assert_sound();
}

/// Killed while it takes the locks of refs, as a rule; whenever it is killed, nothing stays locked.
#[test]
fn a_killed_writer_blocks_nobody() {
    let fixture = Fixture::new();
    let git_dir = fixture.work().join(".git");
    for n in 0..4 {
        let mut writer = child(&fixture, &format!("k{n}")).spawn().unwrap();
        let holds =
            || fs::metadata(git_dir.join("batchyard/held")).is_ok_and(|data| data.len() > 0);
        while !holds() && writer.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let report = fixture.open().apply(task(&format!("k{n}"), 9)).unwrap();
        assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
        fixture.git(["pack-refs", "--all"]);
    }
    fixture.assert_sound();
}

#[test]
fn inherited_git_variables_change_nothing() {
    let fixture = Fixture::new();
    let other = Fixture::new();
    let before = (fixture.untouchable(), other.untouchable(), other.git(["for-each-ref"]));
    let elsewhere = other.work().join(".git");
    let output = child(&fixture, "env")
        .env("GIT_DIR", &elsewhere)
        .env("GIT_COMMON_DIR", &elsewhere)
        .env("GIT_WORK_TREE", other.work())
        .env("GIT_INDEX_FILE", elsewhere.join("other-index"))
        .env("GIT_OBJECT_DIRECTORY", elsewhere.join("objects"))
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", elsewhere.join("objects"))
        .env("GIT_NAMESPACE", "elsewhere")
        .env("GIT_AUTHOR_NAME", "Somebody Else")
        .env("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
        .env("GIT_COMMITTER_NAME", "Somebody Else")
        .env("GIT_COMMITTER_EMAIL", "else@example.com")
        .env("GIT_CEILING_DIRECTORIES", "/")
        .env("GIT_QUARANTINE_PATH", "/nowhere")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "user.name")
        .env("GIT_CONFIG_VALUE_0", "Somebody Else")
        .env("GIT_CONFIG_PARAMETERS", "'user.name=Somebody Else'")
        .env("GIT_CONFIG", "/dev/null")
        .env("GIT_DEFAULT_HASH", "sha256")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((fixture.untouchable(), other.untouchable(), other.git(["for-each-ref"])), before);
    let made = fixture.at_remote(["log", "-1", "--format=%an|%cn|%ce", "env/0"]);
    assert_eq!(made.trim(), "A U Thor|A U Thor|author@example.com");
    assert!(!fixture.at_remote(["log", "-1", "--format=%ad", "env/0"]).contains("2001"));
    fixture.assert_sound();
}
