//! The program as a process: closed outputs, flags anywhere, signals.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

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
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
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
