//! Several processes with several threads each write to one file.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{lesson, missing, options};
use lessons_index::{Compaction, Failure, Lesson, LessonsIndex};

const THREADS: usize = 8;
const LESSONS_PER_THREAD: usize = 20;

/// Is set for the processes that the tests start.
const FILE: &str = "LESSONS_TEST_FILE";
const NAME: &str = "LESSONS_TEST_NAME";

fn child(test: &str, file: &Path, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env(FILE, file).env(NAME, name).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Adds from many threads, each with ids of its own and one id that all of them write. Tells what
/// is added in a file, a line each.
fn write(index: &LessonsIndex, process: &str) {
    let mut told = index.path().as_os_str().to_owned();
    told.push(format!(".{process}"));
    let told = &std::fs::File::create(told).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for n in 0..LESSONS_PER_THREAD {
                    let id = format!("{process}-{thread}-{n}");
                    let message = "x".repeat((n * 997) % 20_000);
                    let own = Lesson::builder(&id).failure_msg(message).build().unwrap();
                    let shared = lesson("shared");
                    for added in index.add_all([own, shared]) {
                        added.unwrap();
                    }
                    let mut told = told;
                    told.write_all(format!("{id}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
#[ignore = "is a process that the test below starts"]
fn writer_process() {
    let (Ok(file), Ok(name)) = (std::env::var(FILE), std::env::var(NAME)) else { return };
    write(&LessonsIndex::open(PathBuf::from(file), options()).unwrap(), &name);
}

#[test]
fn threads_and_processes_that_add_at_once_lose_nothing() {
    let file = missing();
    let index = file.open();
    let mut children =
        ["one", "two"].map(|name| child("writer_process", &file.path, name).spawn().unwrap());
    write(&index, "parent");
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    index.refresh().unwrap();

    let report = index.report();
    let each = (THREADS * LESSONS_PER_THREAD) as u64;
    assert_eq!(report.faults, []);
    assert_eq!(report.lines, 3 * 2 * each, "every line is there, and whole");
    assert_eq!(report.lessons, 3 * each + 1);
    assert_eq!(file.open().report(), report);
    assert_eq!(file.open().snapshot().all(), index.snapshot().all());
}

/// Whatever a killed process was at, what it had finished is there, and others go on.
#[test]
fn a_killed_writer_leaves_a_file_that_others_write_on() {
    let file = missing();
    for round in 0..5 {
        let lines = || std::fs::read(&file.path).map_or(0, |text| text.len());
        let before = lines();
        let name = format!("round{round}");
        let mut child = child("writer_process", &file.path, &name).spawn().unwrap();
        while lines() < before + 100_000 {
            assert!(child.try_wait().unwrap().is_none_or(|status| status.success()));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let index = file.open();
        let found = index.report();
        assert!(found.faults_total <= round + 1, "at most a torn line for each kill");
        let told = std::fs::read_to_string(format!("{}.{name}", file.path.display())).unwrap();
        for id in told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            assert!(index.snapshot().find(id).is_some(), "{id} was added");
        }
        assert!(told.lines().count() > 1, "it was killed when it had added some");
        index.add(lesson(&format!("after-{round}"))).unwrap();
        let reopened = file.open();
        assert_eq!(reopened.report(), index.report());
        for past in 0..=round {
            assert!(reopened.snapshot().get(&format!("after-{past}")).is_some());
        }
    }
}

#[test]
#[ignore = "is a process that the test below starts"]
fn process_with_little_room() {
    let Ok(file) = std::env::var(FILE) else { return };
    let index = LessonsIndex::open(PathBuf::from(&file), options()).unwrap();
    let long = |id: &str| Lesson::builder(id).failure_msg("x".repeat(3000)).build().unwrap();
    index.add(long("fits")).unwrap();
    let before = std::fs::read(&file).unwrap();

    let outcomes = index.add_all([long("no"), long("room")]);
    for outcome in &outcomes {
        let error = outcome.as_ref().unwrap_err();
        let source = std::error::Error::source(error).unwrap().to_string();
        assert!(source.contains("the file is as it was before"), "{source}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(index.snapshot().len(), 1);
    // A smaller one still fits.
    index.add(lesson("small")).unwrap();
    assert_eq!(index.snapshot().len(), 2);
}

/// Runs a process whose files may have 4 KiB.
///
/// The limit of a file's size stands for a full disk: a write is cut short, the next one fails.
#[cfg(target_os = "linux")]
fn with_little_room(test: &str, file: &Path) -> std::process::Output {
    let inner = child(test, file, "");
    let mut shell = Command::new("sh");
    // 8 blocks of 512 bytes; the signal is ignored, so that the write says EFBIG.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"]).arg(inner.get_program());
    shell.args(inner.get_args()).env(FILE, file).stdin(Stdio::null());
    shell.output().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_that_is_cut_short_is_undone() {
    let file = missing();
    let output = with_little_room("process_with_little_room", &file.path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(file.open().report().lessons, 2);
    assert_eq!(file.open().report().faults, []);
}

#[test]
#[ignore = "is a process that the test below starts"]
fn compacting_process_with_little_room() {
    let Ok(file) = std::env::var(FILE) else { return };
    let index = LessonsIndex::open(PathBuf::from(&file), options()).unwrap();
    let policy = Compaction::default();
    for policy in [policy.clone(), policy.with_quarantine(true)] {
        let before = index.snapshot().all();
        let error = index.compact(&policy).unwrap_err();
        assert!(error.to_string().contains("the file is as it was before"), "{error}");
        assert_eq!(index.snapshot().all(), before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_compaction_without_room_changes_nothing() {
    let long = "x".repeat(3000);
    let lines =
        ["a", "b", "a"].map(|id| format!("{{\"id\":\"{id}\",\"failure_msg\":\"{long}\"}}\n"));
    let file = missing();
    let text = lines.concat() + "broken\n";
    std::fs::write(&file.path, &text).unwrap();
    let output = with_little_room("compacting_process_with_little_room", &file.path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(file.content(), text);
    assert!(!file.dir.path().join(".lessons.jsonl.compact").exists());
    file.open().compact(&Compaction::default()).unwrap();
    assert_eq!(file.open().snapshot().len(), 2);
}

/// How often each process counts,
const COUNTS: u64 = 60;
/// but for these, which count until they are killed.
const KILLED: [&str; 2] = ["a", "b"];

#[test]
#[ignore = "is a process that the test below starts"]
fn counting_process() {
    let (Ok(file), Ok(name)) = (std::env::var(FILE), std::env::var(NAME)) else { return };
    let index = LessonsIndex::open(PathBuf::from(&file), options()).unwrap();
    let mut done = std::fs::File::create(format!("{file}.{name}")).unwrap();
    for _ in 0..if KILLED.contains(&&*name) { u64::MAX } else { COUNTS } {
        let own = Failure::new("own", "disk full").scope(&name);
        for counted in index.record_all([own, Failure::new("shared", "disk full")]) {
            counted.unwrap();
        }
        done.write_all(b"x").unwrap();
    }
}

#[test]
#[ignore = "is a process that the test below starts"]
fn compacting_process() {
    let Ok(file) = std::env::var(FILE) else { return };
    let index = LessonsIndex::open(PathBuf::from(&file), options()).unwrap();
    while !Path::new(&format!("{file}.stop")).exists() {
        index.compact(&Compaction::default()).unwrap();
        std::thread::yield_now();
    }
}

/// Six processes count the same failure, two of them are killed, a seventh compacts all the time.
#[test]
fn counts_are_exact_whoever_is_killed_while_another_compacts() {
    let file = missing();
    std::fs::write(&file.path, "{\"id\":\"kept\"}\n").unwrap();
    let mut compactor = child("compacting_process", &file.path, "").spawn().unwrap();
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut writers =
        names.map(|name| child("counting_process", &file.path, name).spawn().unwrap());
    let done = |name: &str| {
        let path = format!("{}.{name}", file.path.display());
        std::fs::metadata(path).map_or(0, |found| found.len())
    };
    for (killed, name) in KILLED.iter().enumerate() {
        while done(name) < 5 {
            assert!(writers[killed].try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        writers[killed].kill().unwrap();
    }
    for (at, writer) in writers.iter_mut().enumerate() {
        assert_eq!(writer.wait().unwrap().success(), at >= KILLED.len());
    }
    std::fs::write(format!("{}.stop", file.path.display()), "").unwrap();
    assert!(compactor.wait().unwrap().success());

    let index = file.open();
    assert_eq!(index.report().faults, [], "no line is corrupt");
    let snapshot = index.snapshot();
    assert!(snapshot.get("kept").is_some());
    let times = |scope: &str, kind: &str| {
        let failure = Failure::new(kind, "disk full").scope(scope);
        snapshot.seen_before(&failure).map_or(0, |lesson| lesson.times_seen())
    };
    let mut sum = 0;
    for (at, name) in names.iter().enumerate() {
        let (counted, acknowledged) = (times(name, "own"), done(name));
        if at >= KILLED.len() {
            assert_eq!(counted, COUNTS);
        }
        assert!(
            counted == acknowledged || counted == acknowledged + 1,
            "{counted}, {acknowledged}"
        );
        sum += counted;
    }
    assert_eq!(times("", "shared"), sum, "what was counted together is there together");
}

/// Two processes compact all the time, and are killed while they are at it, in any phase.
#[test]
fn compactors_that_are_killed_lose_nothing_of_what_another_adds() {
    const ROUNDS: usize = 8;
    const LESSONS: usize = 25;
    let file = missing();
    // So much to copy that a kill hits the copying too.
    let text = "x".repeat(2_000);
    let lines = (0..500).map(|n| format!("{{\"id\":\"{n}\",\"failure_msg\":\"{text}\"}}\n"));
    std::fs::write(&file.path, lines.collect::<String>()).unwrap();
    let index = file.open();
    let fresh = file.dir.path().join(".lessons.jsonl.compact");
    for round in 0..ROUNDS {
        let mut compactors = ["one", "two"]
            .map(|name| child("compacting_process", &file.path, name).spawn().unwrap());
        for n in 0..LESSONS {
            index.add(lesson(&format!("{round}-{n}"))).unwrap();
            index.add(lesson("shared")).unwrap();
        }
        // At another place each time: at the first or a later look that finds one at work.
        for _ in 0..=round {
            while !fresh.exists() {
                assert!(compactors.iter_mut().all(|one| one.try_wait().unwrap().is_none()));
                std::thread::yield_now();
            }
        }
        for compactor in &mut compactors {
            compactor.kill().unwrap();
            compactor.wait().unwrap();
        }
        let reopened = file.open();
        assert_eq!(reopened.report().faults, []);
        assert_eq!(reopened.snapshot().len(), 500 + (round + 1) * LESSONS + 1);
    }
    index.compact(&Compaction::default()).unwrap();
    assert!(!fresh.exists());
    assert_eq!(index.snapshot().len(), 500 + ROUNDS * LESSONS + 1);
}

#[test]
#[ignore = "is a process that the test below starts"]
fn process_without_threads() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "there is no room for a stack");
    let index = LessonsIndex::open(&path, options().with_eager_text(true)).unwrap();
    assert_eq!(index.snapshot().len(), 30_000);
    index.add(lesson("new")).unwrap();
    assert_eq!(index.snapshot().query().contains("out of").unwrap().count(), 30_000);
}

/// Reading a large file side by side ended in a panic where the system had no more threads.
#[test]
fn a_file_is_read_by_one_thread_where_there_can_be_no_other() {
    let file = missing();
    let line = |n| {
        format!(
            "{{\"id\":\"{n}\",\"failure_msg\":\"out of memory, once more, in the linker of all, which is why nothing of what was asked for can be built today, and all has to wait for more of it\"}}\n"
        )
    };
    std::fs::write(&file.path, (0..30_000).map(line).collect::<String>()).unwrap();
    assert!(std::fs::metadata(&file.path).unwrap().len() > 4 << 20);
    let mut process = child("process_without_threads", &file.path, "");
    // More than any address space has.
    process.env("RUST_MIN_STACK", (1_u64 << 50).to_string()).stdout(Stdio::piped());
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}
