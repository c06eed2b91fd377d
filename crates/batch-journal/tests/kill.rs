//! Processes that are killed at any moment, and a file that must not grow.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use batch_core::{ItemId, Journal, JournalErrorKind};
use common::{Bin, Random, folder, open, unacked};

/// Is set for the processes that the tests start.
const FOLDER: &str = "JOURNAL_TEST_FOLDER";

const THREADS: u64 = 4;
const MOST_IN_A_CALL: u64 = 8;

/// The payload of an id, so that what comes back can be compared without being told.
fn payload(id: ItemId) -> Vec<u8> {
    let mut random = Random(id.epoch << 32 ^ id.seq);
    // Most are small, some are larger than a page.
    let size = if random.below(8) == 0 { random.below(20_000) } else { random.below(300) };
    (0..size).map(|_| random.next().to_le_bytes()[0]).collect()
}

fn ids(first: ItemId, count: u64) -> impl Iterator<Item = ItemId> + Clone {
    (first.seq..first.seq + count).map(move |seq| ItemId { seq, ..first })
}

fn append(journal: &Bin, first: ItemId, count: u64) -> Result<(), batch_core::JournalError> {
    let payloads: Vec<(ItemId, Vec<u8>)> = ids(first, count).map(|id| (id, payload(id))).collect();
    let items: Vec<(ItemId, &Vec<u8>)> = payloads.iter().map(|(id, item)| (*id, item)).collect();
    journal.append(&items)
}

/// One write, so that a line comes whole or not at all.
fn say(what: &str, first: ItemId, count: u64) {
    let line = format!("\n{what} {} {} {count}\n", first.epoch, first.seq);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Says what it is about to do, does it, and says that it did.
#[test]
#[ignore = "is a process that the tests below start"]
fn writer_process() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    let journal = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                let mut random = Random(journal.reserve(0).epoch * THREADS + thread);
                for _ in 0..40 {
                    let count = 1 + random.below(MOST_IN_A_CALL);
                    let first = journal.reserve(count);
                    say("appends", first, count);
                    append(journal, first, count).unwrap();
                    say("appended", first, count);
                    let done = random.below(count + 1);
                    say("acks", first, done);
                    journal.ack(&ids(first, done).collect::<Vec<_>>()).unwrap();
                    say("acked", first, done);
                }
            });
        }
    });
}

fn start(test: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(FOLDER, dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What is known of the journal from what its owners said.
#[derive(Default)]
struct Known {
    /// Accepted, and nobody wanted it forgotten.
    must: BTreeSet<ItemId>,
    /// On its way in or out when the process was killed.
    may: BTreeSet<ItemId>,
}

impl Known {
    /// Takes in one line; lines of the test program itself are passed over.
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let Ok([epoch, seq, count]) =
            <[u64; 3]>::try_from(words.filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        else {
            return;
        };
        for id in ids(ItemId { epoch, seq }, count) {
            let (known, new) = match what {
                "appends" => (true, self.may.insert(id)),
                "appended" => (self.may.remove(&id), self.must.insert(id)),
                "acks" => (self.must.remove(&id), self.may.insert(id)),
                "acked" => (true, self.may.remove(&id)),
                _ => continue,
            };
            assert!(known && new, "{line}");
        }
    }

    /// Compares with what came back, and goes on with that.
    fn check(&mut self, came: &[(ItemId, Vec<u8>)], round: u64) {
        assert!(came.is_sorted_by(|a, b| a.0 < b.0), "round {round}: order");
        assert!(self.may.len() as u64 <= THREADS * MOST_IN_A_CALL, "round {round}");
        for (id, item) in came {
            assert!(self.must.remove(id) || self.may.contains(id), "round {round}: invented {id}");
            assert_eq!(item, &payload(*id), "round {round}: altered {id}");
        }
        assert!(self.must.is_empty(), "round {round}: lost {:?}", self.must);
        self.may.clear();
        self.must = came.iter().map(|(id, _)| *id).collect();
    }
}

/// Kills so many writers, one after the other, and looks at what each left, in one journal.
fn kill(times: u64, seed: u64) {
    let dir = folder();
    let mut random = Random(seed);
    let mut known = Known::default();
    let (mut killed, mut accepted) = (0, 0);
    for round in 0.. {
        if killed == times {
            break;
        }
        assert!(round < 2 * times, "only {killed} of {round} were killed");
        let mut child = start("writer_process", dir.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Each call says four lines with an empty one before each. Some die while they open, and
        // some live to close.
        let most = THREADS * 40 * 4 * 2;
        let end = if random.below(8) == 0 { random.below(10) } else { random.below(most + 100) };
        for line in lines.by_ref().take(usize::try_from(end).unwrap()) {
            known.hear(&line);
        }
        child.kill().unwrap();
        lines.for_each(|line| known.hear(&line));
        killed += u64::from(!child.wait().unwrap().success());

        let journal = open(dir.path());
        let came = unacked(&journal);
        accepted += came.len();
        known.check(&came, round);
        // Some stay for the next rounds.
        let done: Vec<ItemId> =
            came.iter().map(|(id, _)| *id).filter(|_| random.below(10) > 0).collect();
        journal.ack(&done).unwrap();
        known.must.retain(|id| !done.contains(id));
    }
    assert!(accepted > 0);
}

#[test]
fn killed_200_times_it_loses_and_invents_nothing() {
    kill(200, 1);
}

#[test]
#[ignore = "takes a minute or two; run it when the journal changes"]
fn killed_1000_times_it_loses_and_invents_nothing() {
    kill(1000, 2);
}

/// Appends until that fails, and then some.
#[test]
#[ignore = "is a process that the test below starts, with a limit on the size of files"]
fn limited_process() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    let journal = open(Path::new(&dir));
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        let first = journal.reserve(2);
        match append(&journal, first, 2) {
            Ok(()) => say("appended", first, 2),
            Err(error) => kinds.push(error.kind()),
        }
    }
    assert_eq!(kinds, [JournalErrorKind::Io, JournalErrorKind::Stopped, JournalErrorKind::Stopped]);
    // What was accepted can still be read.
    let left: Vec<_> = unacked(&journal).into_iter().map(|(id, _)| id).collect();
    say("ends", ItemId { epoch: 0, seq: 0 }, left.len() as u64);
    let refused = journal.ack(&left).unwrap_err();
    assert!(refused.to_string().contains("takes nothing more since a failed write; open it anew"));
}

#[test]
fn when_a_file_cannot_grow_what_was_accepted_stays_and_nothing_else() {
    for blocks in (200..1400).step_by(60) {
        let dir = folder();
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args(["limited_process", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{blocks}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut accepted = BTreeSet::new();
        let mut ended = false;
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["appended", epoch, seq, count] => {
                    let first = ItemId { epoch: epoch.parse().unwrap(), seq: seq.parse().unwrap() };
                    accepted.extend(ids(first, count.parse().unwrap()));
                }
                ["ends", _, _, count] => {
                    ended = true;
                    assert_eq!(count.parse(), Ok(accepted.len()), "{blocks}");
                }
                _ => {}
            }
        }
        assert!(ended && !accepted.is_empty(), "{blocks}: {said}");
        let came = unacked(&open(dir.path()));
        assert!(came.iter().all(|(id, item)| *item == payload(*id)));
        let came: BTreeSet<ItemId> = came.into_iter().map(|(id, _)| id).collect();
        assert_eq!(came, accepted, "{blocks}");
    }
}
