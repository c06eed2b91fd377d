//! Runs one test in a process of its own, for as long as it may take.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::candidate::Candidate;
use crate::rows::Row;
use crate::verdict::Verdict;

/// How many times longer ours may take: a busy machine is no deadlock of ours, and a peer's
/// deadlock should not hold up the table.
const OURS: u32 = 6;

/// Runs the test and returns its verdict; a test that hangs or dies fails.
///
/// # Errors
/// The process could not be started or ended.
pub(crate) fn run(row: &Row, engine: &Candidate) -> std::io::Result<Verdict> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([row.name, engine.name, crate::HERE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Panics of the peers are what is tested.
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        if let Some(output) = &mut output {
            let _ = output.read_to_string(&mut text);
        }
        let _ = sender.send(text);
    });
    let patience = row.patience * if engine.is_ours() { OURS } else { 1 };
    let text = receiver.recv_timeout(patience);
    if text.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    let _ = reader.join();
    Ok(match text {
        Err(_) => Verdict::Fail("deadlock".to_owned()),
        Ok(text) => {
            Verdict::parse(&text).unwrap_or_else(|| Verdict::Fail(format!("died with {status}")))
        }
    })
}
