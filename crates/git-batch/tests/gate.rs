//! The gate: what is pushed has passed as a whole, and who breaks it is left out alone.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use git_batch::{
    Commit, Gate, GitBatch, OpErrorKind, Operation, Outcome, Report, Settings, Strategy,
};
use support::{Fixture, kind, landed, wait_until, waits_for};

/// A gate that runs a script of the shell.
fn script(text: &str) -> Gate {
    Gate::new("sh").with_args(["-ec", text])
}

fn open(fixture: &Fixture, gate: Gate) -> GitBatch {
    let scratch = fixture.beside("scratch");
    fs::create_dir_all(&scratch).unwrap();
    GitBatch::open(fixture.work(), Settings::default().with_gate(gate.in_folder(scratch))).unwrap()
}

fn land(git: &GitBatch, branches: &[&str]) -> Report {
    let branches: Vec<String> = branches.iter().map(ToString::to_string).collect();
    git.land("main", &branches, Strategy::Merge).unwrap()
}

/// Eight branches with a file each.
fn eight(fixture: &Fixture) -> Vec<String> {
    let commits = (0..8).map(|n| {
        let branch = format!("b{n}");
        let commit = Commit::new(&branch, "Work").write(format!("file-{n}"), "x\n");
        Operation::commit(branch, commit)
    });
    let report = fixture.open().apply(commits.collect()).unwrap();
    report.outcomes.into_iter().map(|(id, _)| id).collect()
}

fn names(branches: &[String]) -> Vec<&str> {
    branches.iter().map(String::as_str).collect()
}

fn left_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn the_gate_sees_the_merged_tree_and_nothing_else() {
    let fixture = Fixture::new();
    let branches = eight(&fixture);
    let seen = fixture.beside("seen");
    let gate = script(&format!("ls -A > '{0}'; cat src/lib.rs >> '{0}'", seen.display()));
    let before = fixture.untouchable();
    let git = open(&fixture, gate);
    let report = land(&git, &names(&branches));
    for branch in &branches {
        landed(&report, branch);
    }
    assert_eq!((report.pushes(), report.receipt().gate_runs), (1, 1));
    let files =
        "README.md\nfile-0\nfile-1\nfile-2\nfile-3\nfile-4\nfile-5\nfile-6\nfile-7\nold\nsrc\n";
    assert_eq!(fs::read_to_string(&seen).unwrap(), format!("{files}fn a() {{}}\n"));
    assert_eq!(left_in(&fixture.beside("scratch")), 0);
    assert_eq!(fixture.untouchable(), before);
    fixture.assert_sound();
}

#[test]
fn only_the_culprits_are_left_out() {
    for bad in [&[0][..], &[7], &[3], &[2, 3], &[0, 4, 7], &[0, 1, 2, 3, 4, 5, 6, 7]] {
        let fixture = Fixture::new();
        let branches = eight(&fixture);
        let tests: Vec<String> = bad.iter().map(|n| format!("test ! -e file-{n}")).collect();
        let git = open(&fixture, script(&format!("echo looked; {}", tests.join("; "))));
        let report = land(&git, &names(&branches));
        for (n, branch) in branches.iter().enumerate() {
            if !bad.contains(&n) {
                landed(&report, branch);
                continue;
            }
            match report.get(branch) {
                Some(Outcome::Failed(error)) if error.kind == OpErrorKind::Gate => {
                    assert!(error.message.ends_with("on the merged tree: looked"), "{error}");
                }
                other => panic!("{bad:?}: {branch} {other:?}"),
            }
        }
        let receipt = report.receipt();
        assert_eq!(receipt.pushes, u32::from(bad.len() < 8), "{bad:?}");
        let most = 1 + u32::try_from(bad.len()).unwrap() * 6;
        assert!(receipt.gate_runs <= most, "{bad:?}: {} runs", receipt.gate_runs);
        let merges = fixture.at_remote(["rev-list", "--count", "--merges", "main"]);
        assert_eq!(merges.trim(), (8 - bad.len()).to_string());
        for n in bad {
            let (code, _) =
                support::try_run(&fixture.remote(), ["cat-file", "-e", &format!("main:file-{n}")]);
            assert_ne!(code, Some(0), "{bad:?}: file-{n} was pushed");
        }
        fixture.assert_sound();
    }
}

#[test]
fn of_two_that_fail_together_the_later_one_is_left_out() {
    let fixture = Fixture::new();
    eight(&fixture);
    let git = open(&fixture, script("! test -e file-1 || ! test -e file-2"));
    let report = land(&git, &["b2", "b3", "b1", "b4"]);
    for branch in ["b2", "b3", "b4"] {
        landed(&report, branch);
    }
    assert_eq!(kind(report.get("b1")), Some(OpErrorKind::Gate));
}

/// What is left out can make room: a branch that clashed with the culprit lands.
#[test]
fn who_clashed_with_the_culprit_lands() {
    let fixture = Fixture::new();
    fixture.branch("bad", "main", "README.md", "bad\n");
    fixture.branch("good", "main", "README.md", "good\n");
    let git = open(&fixture, script("! grep -q bad README.md"));
    let report = land(&git, &["bad", "good"]);
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::Gate));
    landed(&report, "good");
}

#[test]
fn a_base_that_fails_already_blames_nobody() {
    let fixture = Fixture::new();
    let branches = eight(&fixture);
    let report = land(&open(&fixture, script("false")), &names(&branches));
    for branch in &branches {
        match report.get(branch) {
            Some(Outcome::Failed(error)) => {
                assert!(error.message.contains("without any branch"), "{error}");
            }
            other => panic!("{branch} {other:?}"),
        }
    }
    assert_eq!((report.pushes(), fixture.received()), (0, 0));
}

#[test]
fn a_gate_that_cannot_run_lets_nothing_pass() {
    let fixture = Fixture::new();
    let branches = eight(&fixture);
    for gate in [Gate::new("no-such-program"), Gate::new("./README.md"), Gate::new("")] {
        let report = land(&open(&fixture, gate), &names(&branches));
        for branch in &branches {
            assert_eq!(kind(report.get(branch)), Some(OpErrorKind::Gate), "{report:?}");
        }
        assert_eq!(fixture.received(), 0);
        assert_eq!(left_in(&fixture.beside("scratch")), 0);
    }
    let nowhere = Gate::new("true").in_folder(fixture.beside("nowhere"));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(nowhere)).unwrap();
    assert_eq!(kind(land(&git, &["b0"]).get("b0")), Some(OpErrorKind::Gate));
}

/// The script is part of the tree: whoever takes it away is at fault, and nobody else.
#[test]
fn a_branch_that_breaks_the_gate_s_own_script_is_left_out_alone() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let script = fixture.work().join("check.sh");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.git(["add", "check.sh"]);
    fixture.git(["commit", "-qm", "Check"]);
    fixture.git(["push", "-q", "origin", "main"]);
    fixture.branch("a", "main", "a.txt", "a\n");
    fixture.branch("c", "main", "c.txt", "c\n");
    fixture.branch("interpreter", "main", "check.sh", "#!/no/such/shell\n");
    let delete = Commit::new("gone", "m").with_base("main").delete("check.sh");
    let report = fixture.open().apply(vec![Operation::commit("d", delete)]).unwrap();
    landed(&report, "d");
    fixture.git(["checkout", "-q", "-b", "mode", "main"]);
    fixture.git(["update-index", "--chmod=-x", "check.sh"]);
    fixture.git(["commit", "-qm", "Mode"]);
    fixture.git(["checkout", "-qf", "main"]);
    for bad in ["gone", "mode", "interpreter"] {
        let git = open(&fixture, Gate::new("./check.sh"));
        let all = ["a", bad, "c"].map(str::to_owned);
        let report = git.preview_land("main", &all, Strategy::Merge).unwrap();
        assert_eq!(kind(report.get(bad)), Some(OpErrorKind::Gate), "{report:?}");
        landed(&report, "a");
        landed(&report, "c");
    }
    let report = land(&open(&fixture, Gate::new("./check.sh")), &["a", "gone", "c"]);
    landed(&report, "c");
    assert_eq!(fixture.at_remote(["ls-tree", "--name-only", "main", "check.sh"]), "check.sh\n");
}

#[test]
fn verdicts_are_known_to_the_next_landing() {
    let fixture = Fixture::new();
    let branches = eight(&fixture);
    let counter = fixture.beside("runs");
    let text = format!("echo x >> '{}'; test ! -e file-5", counter.display());
    let runs = || fs::read_to_string(&counter).map_or(0, |text| text.lines().count());
    let all: Vec<String> = branches.clone();
    let preview =
        open(&fixture, script(&text)).preview_land("main", &all, Strategy::Merge).unwrap();
    assert_eq!(kind(preview.get("b5")), Some(OpErrorKind::Gate));
    let asked = runs();
    assert_eq!(usize::try_from(preview.receipt().gate_runs).unwrap(), asked);
    assert_eq!(fixture.received(), 0);

    let report = land(&open(&fixture, script(&text)), &names(&branches));
    assert_eq!((report.receipt().gate_runs, runs()), (0, asked));
    assert_eq!(kind(report.get("b5")), Some(OpErrorKind::Gate));
    landed(&report, "b7");

    let again = land(&open(&fixture, script(&text).afresh()), &["b5"]);
    assert_eq!(kind(again.get("b5")), Some(OpErrorKind::Gate));
    assert!(runs() > asked);
}

/// The gate starts a process that would hold everything up, and goes on itself.
#[test]
fn a_gate_that_hangs_is_ended_with_all_that_it_started() {
    let fixture = Fixture::new();
    eight(&fixture);
    let pid = fixture.beside("pid");
    let gate = script(&format!(
        "test -e file-0 || exit 0; sleep 1000 & echo $! > '{}'; wait",
        pid.display()
    ));
    let gate = gate.with_time_limit(Some(Duration::from_secs(1)));
    let report = land(&open(&fixture, gate.clone()), &["b0", "b1"]);
    match report.get("b0") {
        Some(Outcome::Failed(error)) => assert!(error.message.contains("still running"), "{error}"),
        other => panic!("{other:?}"),
    }
    landed(&report, "b1");
    let pid = fs::read_to_string(&pid).unwrap();
    let state = Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    assert!(state.is_empty() || state.starts_with('Z'), "{state}");
    // It says nothing about the next time.
    let again = open(&fixture, gate).land("main", &["b0".to_owned()], Strategy::Merge).unwrap();
    assert!(again.receipt().gate_runs > 0);
}

/// What it prints, how much it is, and who holds its output open do not matter.
#[test]
fn output_without_end_is_cut_and_cleaned() {
    let fixture = Fixture::new();
    eight(&fixture);
    let text = "test -e file-0 || exit 0; yes | head -c 3000000; \
                printf 'https://u:secret@h/ \\033[31mlast\\n' >&2; exit 3";
    let report = land(&open(&fixture, script(text)), &["b0"]);
    let Some(Outcome::Failed(error)) = report.get("b0") else { panic!("{report:?}") };
    assert!(error.message.contains("status 3"), "{error}");
    assert!(error.message.len() < 6 << 10, "{}", error.message.len());
    assert!(error.message.ends_with("[31mlast") && !error.message.contains("secret"), "{error}");
    assert!(!error.message.contains('\u{1b}'));
}

#[test]
fn others_work_while_the_gate_runs() {
    let fixture = Fixture::new();
    eight(&fixture);
    let (begun, go) = (fixture.beside("begun"), fixture.beside("go"));
    let text = format!("touch '{}'; {}", begun.display(), waits_for(&go));
    std::thread::scope(|scope| {
        let landing = scope.spawn(|| land(&open(&fixture, script(&text)), &["b0"]));
        wait_until(|| begun.exists());
        let commit = Commit::new("other", "m").write("other", "x");
        let operations = vec![Operation::commit("c", commit), Operation::push("p", "other")];
        let settings = Settings::default().with_wait(Duration::from_secs(20));
        let report = GitBatch::open(fixture.work(), settings).unwrap().apply(operations).unwrap();
        landed(&report, "p");
        fs::write(&go, "").unwrap();
        landed(&landing.join().unwrap(), "b0");
    });
    fixture.assert_sound();
}

/// Nothing is pushed that the gate has not seen.
#[test]
fn a_remote_that_moves_meanwhile_is_looked_at_again() {
    let fixture = Fixture::new();
    eight(&fixture);
    fixture.move_remote("main", "theirs.txt", "first\n");
    let other = fixture.beside("other");
    let counter = fixture.beside("runs");
    // It moves the remote while it runs for the first time.
    let text = format!(
        "echo x >> '{0}'; test $(wc -l < '{0}') = 1 || exec test -e moved; \
         cd '{1}'; echo > moved; git add moved; git commit -qm moved; git push -q origin main",
        counter.display(),
        other.display()
    );
    let report = land(&open(&fixture, script(&text)), &["b0", "b1"]);
    landed(&report, "b0");
    landed(&report, "b1");
    assert_eq!(report.receipt().gate_runs, 2);
    assert_eq!(fixture.at_remote(["show", "main:theirs.txt"]), "first\n");
    assert_eq!(fixture.at_remote(["show", "main:moved"]), "\n");
    fixture.assert_sound();
}

#[test]
fn a_remote_that_never_rests_is_given_up() {
    let fixture = Fixture::new();
    eight(&fixture);
    fixture.move_remote("main", "theirs.txt", "first\n");
    let text = format!(
        "cd '{}'; date +%N > moved; git add moved; git commit -qm moved; git push -q origin main",
        fixture.beside("other").display()
    );
    let report = land(&open(&fixture, script(&text)), &["b0"]);
    match report.get("b0") {
        Some(Outcome::Rejected { class: git_batch::Class::Transient, reason }) => {
            assert!(reason.contains("while the gate ran"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(report.pushes(), 0);
}

#[test]
fn secrets_and_the_repository_are_hidden_from_the_gate() {
    let fixture = Fixture::new();
    eight(&fixture);
    // In a process that has variables to hide.
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "asks_a_gate_that_looks_around", "--quiet"])
        .env("GATE_WORK", fixture.work())
        .env("GATE_FOLDER", fixture.beside("scratch"))
        .env("GIT_DIR", fixture.work().join(".git"))
        .env("GIT_INDEX_FILE", "index")
        .env("SOME_TOKEN", "secret")
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fixture.received(), 1);
    // Not even a folder that was closed stays.
    assert_eq!(left_in(&fixture.beside("scratch")), 0);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn asks_a_gate_that_looks_around() {
    let Some(work) = std::env::var_os("GATE_WORK") else { return };
    let folder = std::env::var_os("GATE_FOLDER").unwrap();
    fs::create_dir_all(&folder).unwrap();
    let gate = script(
        "if test -z \"$PATH\" || test -n \"${HOME:-}\"; then exit 1; fi; \
         if test -z \"$GATE_WORK\" || test -n \"${SOME_TOKEN:-}\"; then exit 4; fi; \
         if env | grep -v CEILING | grep -q ^GIT_; then exit 2; fi; \
         if git rev-parse --git-dir; then exit 3; fi; \
         mkdir -p sealed/in; touch sealed/in/x; chmod 500 sealed/in sealed",
    );
    let gate = gate.with_only_variables(["PATH", "HOME", "GATE_*"]).without_variable("HOME");
    let gate = gate.in_folder(folder);
    let git = GitBatch::open(work, Settings::default().with_gate(gate)).unwrap();
    landed(&land(&git, &["b0"]), "b0");
}

/// The process that is killed, in a test of its own.
#[test]
fn lands_in_a_process_of_its_own() {
    let Some(work) = std::env::var_os("GATE_WORK") else { return };
    let folder = std::env::var_os("GATE_FOLDER").unwrap();
    // It ends soon after its parent, and leaves a process behind.
    let gate = script(
        "sleep 1000 & echo $$ $! > ../begun; \
         while kill -0 $PPID 2> ../said; do sleep 0.02; done; chmod 755 ..",
    );
    let gate = gate.in_folder(folder);
    let git = GitBatch::open(work, Settings::default().with_gate(gate)).unwrap();
    land(&git, &["b0"]);
}

#[test]
fn what_a_killed_landing_left_is_removed_and_that_of_others_is_not() {
    let fixture = Fixture::new();
    eight(&fixture);
    let scratch = fixture.beside("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let start = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lands_in_a_process_of_its_own", "--quiet"])
            .env("GATE_WORK", fixture.work())
            .env("GATE_FOLDER", &scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            let said = fs::read_to_string(entry.path().join("begun")).unwrap_or_default();
            name.contains(&format!("-{}-", child.id())) && said.ends_with('\n')
        };
        wait_until(|| fs::read_dir(&scratch).unwrap().flatten().any(begun));
        child
    };
    let (mut killed, mut alive) = (start(), start());
    let group_of = |child: &std::process::Child| {
        let mut entries = fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().path());
        let is_its = |path: &std::path::PathBuf| {
            path.to_str().unwrap().contains(&format!("-{}-", child.id()))
        };
        let begun = fs::read_to_string(entries.find(is_its).unwrap().join("begun")).unwrap();
        let (leader, member) = begun.trim().split_once(' ').unwrap();
        [leader, member].map(str::to_owned)
    };
    let groups = [group_of(&killed), group_of(&alive)];
    let is_running = |pid: &str| {
        let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
        let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
        !state.is_empty() && !state.starts_with('Z')
    };
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(left_in(&scratch), 2);
    wait_until(|| !is_running(&groups[0][0]));
    assert!(is_running(&groups[0][1]));
    landed(&fixture.open().apply(vec![Operation::push("p", "b1")]).unwrap(), "p");
    assert_eq!(left_in(&scratch), 1);
    // What it was running is ended too, where the system says what that was.
    let is_linux = cfg!(target_os = "linux");
    wait_until(|| !is_linux || !is_running(&groups[0][1]));
    assert!(groups[1].iter().all(|pid| is_running(pid)));
    alive.kill().unwrap();
    alive.wait().unwrap();
    landed(&fixture.open().apply(vec![Operation::push("q", "b2")]).unwrap(), "q");
    assert_eq!(left_in(&scratch), 0);
    wait_until(|| !is_linux || !groups[1].iter().any(|pid| is_running(pid)));
    assert_eq!(fixture.received(), 2);
}

#[test]
fn a_folder_of_any_name_can_hold_the_files() {
    let fixture = Fixture::new();
    eight(&fixture);
    let odd = fixture.beside("a:b \"c\\d\ne");
    fs::create_dir_all(&odd).unwrap();
    let gate = script("test -e file-0 && test -e README.md").in_folder(&odd);
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    landed(&land(&git, &["b0"]), "b0");
    assert_eq!(left_in(&odd), 0);
}

/// A tree that somebody has made cannot make the check-out write anywhere else.
#[test]
fn files_of_the_tree_stay_in_the_folder() {
    let fixture = Fixture::new();
    let target = fixture.beside("target");
    fs::create_dir(&target).unwrap();
    let link = git_batch::Action::Write {
        content: target.as_os_str().as_encoded_bytes().to_vec(),
        mode: git_batch::Mode::Symlink,
    };
    let commits = vec![
        Operation::commit("a", Commit::new("a", "m").change(git_batch::Change::new("out", link))),
        Operation::commit("b", Commit::new("b", "m").write("out/file", "x")),
    ];
    fixture.open().apply(commits).unwrap();
    let git = open(&fixture, script("test -L out"));
    let report = land(&git, &["a", "b"]);
    landed(&report, "a");
    assert!(!report.get("b").unwrap().is_success(), "{report:?}");
    assert_eq!(left_in(&target), 0);
}

/// A note that this crate has not written, such as one of a repository out of an archive.
#[test]
fn a_folder_that_is_none_of_a_gate_is_not_removed() {
    let fixture = Fixture::new();
    let notes = fixture.work().join(".git/batchyard/gate");
    fs::create_dir_all(&notes).unwrap();
    let own = fixture.beside("batchyard-gate-open");
    for folder in [fixture.beside("mine"), own] {
        fs::create_dir(&folder).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        fs::write(notes.join(format!("{name}.scratch")), folder.to_str().unwrap()).unwrap();
        fixture.open().apply(vec![Operation::push("p", "main")]).unwrap();
        assert!(folder.exists(), "{name}");
    }
    assert_eq!(left_in(&notes), 0);
}

/// A signal, say: the gate ends soon, and nothing is pushed.
#[test]
fn a_gate_that_is_stopped_lets_nothing_pass() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let fixture = Fixture::new();
    eight(&fixture);
    let begun = fixture.beside("begun");
    let flag = Arc::new(AtomicBool::new(false));
    let gate = script(&format!("touch '{}'; sleep 1000", begun.display()));
    let git = open(&fixture, gate.with_time_limit(None).stopped_by(Arc::clone(&flag)));
    std::thread::scope(|scope| {
        let landing = scope.spawn(|| land(&git, &["b0"]));
        wait_until(|| begun.exists());
        flag.store(true, Ordering::SeqCst);
        let report = landing.join().unwrap();
        assert_eq!(kind(report.get("b0")), Some(OpErrorKind::Gate));
        assert!(format!("{report:?}").contains("was stopped"), "{report:?}");
    });
    assert_eq!((fixture.received(), left_in(&fixture.beside("scratch"))), (0, 0));
}
