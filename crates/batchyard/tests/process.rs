//! The program as a process: closed outputs, flags anywhere, signals.

mod common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use common::{Yard, finish};

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let yard = Yard::with_repository();
    let lessons: Vec<String> =
        (0..5_000).map(|n| format!("{{\"id\":\"lesson {n:0>40}\"}}")).collect();
    yard.write("l.jsonl", lessons.join("\n"));
    let mut child = yard
        .program()
        .args(["lessons", "query", "l.jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = [0; 10];
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut first).expect("something comes");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");

    // The work is done all the same, and the status is that of the work.
    let mut child = yard
        .program()
        .args(["git", "apply", "--repo", "repo", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let op = r#"{"id":"c","op":"commit","branch":"b","message":"m","changes":[{"path":"p","content":"x"}]}"#;
    child.stdin.take().expect("a pipe").write_all(op.as_bytes()).expect("it is taken");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(yard.git("repo", &["show", "b:p"]), "x");
}

#[test]
fn a_full_disk_behind_stdout_is_told() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        eprintln!("not looked at: there is no /dev/full here");
        return;
    };
    let yard = Yard::new();
    yard.write("l.jsonl", "{\"id\":\"a\"}\n");
    let output = yard
        .program()
        .args(["lessons", "query", "l.jsonl"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"));
}

#[test]
fn outputs_that_are_closed_from_the_start_are_no_fault() {
    let yard = Yard::with_repository();
    yard.write("l.jsonl", "{\"id\":\"a\"}\nbroken\n");
    let program = env!("CARGO_BIN_EXE_batchyard");
    let script = format!("'{program}' lessons query l.jsonl >&- 2>&-");
    let mut command = Command::new("sh");
    command.current_dir(yard.path(".")).args(["-c", &script]);
    assert_eq!(finish(&mut command, b"").code, Some(0));
}

#[test]
fn flags_may_stand_anywhere_after_the_subcommand() {
    let yard = Yard::new();
    yard.write("l.jsonl", "{\"id\":\"a\"}\nbroken\n");
    for args in [
        ["lessons", "--json", "check", "l.jsonl"],
        ["lessons", "check", "--json", "l.jsonl"],
        ["lessons", "check", "l.jsonl", "--json"],
        ["--json", "lessons", "check", "l.jsonl"],
    ] {
        assert_eq!(yard.run(args).code(1).summary()["faults"], 1);
    }
    let quiet = yard.run(["lessons", "query", "l.jsonl", "--quiet"]).code(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("{\"id\":\"a\"}\n", ""));
    let help = yard.run(["git", "apply", "--help"]).code(0);
    assert!(help.stdout.contains("--max-items") && help.stderr.is_empty());
    assert!(yard.run(["--version"]).code(0).stdout.starts_with("batchyard "));
}

#[test]
fn a_signal_before_any_work_ends_the_program_with_nothing_done() {
    let yard = Yard::with_repository();
    let before = yard.everything("repo");
    let mut child = yard
        .program()
        .args(["git", "apply", "--repo", "repo", "--verbose", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It reads on until its input ends; by the time a megabyte is taken, it watches for signals.
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&b"\n".repeat(1 << 20)).expect("it is read");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    assert!(yard.everything("repo") == before);
}

/// Sends a signal as a terminal does: to all of the process group.
fn interrupt(child: &Child) {
    let group = format!("-{}", child.id());
    let sent = Command::new("kill").args(["-s", "INT", "--", &group]).status();
    assert!(sent.expect("kill runs").success());
}

/// Makes a pipe with a name: reading it ends when all are gone that have it open to write.
fn named_pipe(yard: &Yard, name: &str) -> std::path::PathBuf {
    let path = yard.path(name);
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    path
}

#[test]
fn ctrl_c_at_a_terminal_lets_a_push_come_to_its_end() {
    let yard = Yard::with_repository();
    let (begun, go) = (named_pipe(&yard, "begun"), named_pipe(&yard, "go"));
    let hook = yard.write(
        "repo/.git/hooks/pre-push",
        format!("#!/bin/sh\necho > '{}'; read x < '{}'\n", begun.display(), go.display()),
    );
    common::make_executable(&hook);
    yard.write(
        "ops.jsonl",
        concat!(
            r#"{"id":"c","op":"commit","branch":"b","message":"m","changes":[{"path":"p","content":"x"}]}"#,
            "\n",
            r#"{"id":"p","op":"push","branch":"b"}"#
        ),
    );
    let mut child = yard
        .program()
        .args(["git", "apply", "--repo", "repo", "--json", "ops.jsonl"])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::fs::read(begun).expect("the push has begun");
    interrupt(&child);
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a line");
    assert!(said.contains("ending the write in progress"), "{said}");
    // To read too, so that it does not wait for a hook that is gone.
    let mut go = File::options().read(true).write(true).open(go).expect("it is there");
    go.write_all(b"\n").expect("it goes on");
    stderr.read_to_string(&mut said).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(r#""landed":2"#), "{printed}");
    assert_eq!(yard.git("remote.git", &["show", "b:p"]), "x");
    assert!(said.contains("run again: cd ") && said.contains("ops.jsonl"), "{said}");
}

#[test]
fn a_second_signal_takes_the_gate_along() {
    let yard = Yard::with_repository();
    let op = r#"{"id":"c","op":"commit","branch":"b","message":"m","changes":[{"path":"p","content":"x"}]}"#;
    yard.run_with(["git", "apply", "--repo", "repo", "-"], op).code(0);
    let alive = named_pipe(&yard, "alive");
    // It has the pipe open as long as it, or what it has started, is there.
    let script = format!("exec > '{}'; echo; sleep 30; sleep 30", alive.display());
    let mut child = yard
        .program()
        .args(["git", "land", "--repo", "repo", "--onto", "main", "b", "--gate"])
        .args(["sh", "-c", &script])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut pipe = File::open(alive).expect("the gate has begun");
    pipe.read_exact(&mut [0]).expect("a byte");
    interrupt(&child);
    interrupt(&child);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    pipe.read_to_end(&mut Vec::new()).expect("nobody is left");
    assert_eq!(yard.receives(), 0);
}
