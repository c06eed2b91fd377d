//! A batcher over a journal, in processes that are killed: what was accepted is done, nothing else
//! is, and little is done twice.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::print_stdout, reason = "says what was seen")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use batch_core::{BatchOf, BatchProcessor, Batcher, Close, ItemId};
use batch_journal::{Bytes, Options, SqliteJournal};
use common::{Random, folder, open, unacked};

/// Is set for the processes that the tests start.
const FOLDER: &str = "BATCHER_TEST_FOLDER";
/// The batches that one process may have at the processor, and the items of each.
const WORKERS: usize = 2;
const MOST_IN_A_BATCH: usize = 5;
const CLIENTS: u64 = 3;
const ITEMS_OF_A_CLIENT: u64 = 60;

/// Does the work, which is a line in a file: `run seq item`.
struct Worker {
    log: File,
}

impl BatchProcessor for Worker {
    type Key = u64;
    type Item = Vec<u8>;
    type Output = ();
    type Error = Infallible;

    fn key(&self, item: &Vec<u8>) -> u64 {
        number(item) % 3
    }

    fn process(&self, _: &u64, batch: BatchOf<Self>) {
        for slot in batch.slots() {
            let (id, number) = (slot.id(), number(slot.item()));
            let line = format!("{} {} {number}\n", id.epoch, id.seq);
            // One write to a file that is appended to: whole or not at all.
            (&self.log).write_all(line.as_bytes()).unwrap();
            slot.resolve(Ok(()));
            if number % 2 == 0 {
                batch.publish();
            }
        }
    }
}

fn number(item: &[u8]) -> u64 {
    u64::from_le_bytes(item.try_into().unwrap())
}

/// One write, so that a line comes whole or not at all.
fn say(what: &str, id: ItemId, number: u64) {
    let line = format!("\n{what} {} {} {number}\n", id.epoch, id.seq);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Takes up what was left, says what it is about to submit and what was accepted, and ends when
/// all of it is done.
#[test]
#[ignore = "is a process that the tests below start"]
fn batcher_process() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    let log = OpenOptions::new().append(true).create(true).open(Path::new(&dir).join("work.log"));
    let journal = SqliteJournal::open(&dir, Bytes, Options::default()).unwrap();
    let run = journal.reserve(0).epoch;
    let batcher = Batcher::builder(Worker { log: log.unwrap() }).workers(WORKERS);
    let batcher = batcher.max_batch_items(MOST_IN_A_BATCH).capacity(20).unordered();
    let batcher = batcher.max_block(None).journal(journal).build().unwrap();
    let resumed = batcher.resume(|item| number(item)).unwrap();
    for (number, ticket) in &resumed {
        say("resumed", ticket.id(), *number);
    }
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let batcher = &batcher;
            scope.spawn(move || {
                let mut random = Random(run * CLIENTS + client);
                let mut next = (run * CLIENTS + client) * ITEMS_OF_A_CLIENT;
                let end = next + ITEMS_OF_A_CLIENT;
                while next < end {
                    let numbers = next..end.min(next + 1 + random.below(8));
                    next = numbers.end;
                    // A count in the place of the position.
                    let count = numbers.end - numbers.start;
                    say("submits", ItemId { epoch: run, seq: count }, numbers.start);
                    let items = numbers.clone().map(|number| number.to_le_bytes().to_vec());
                    let tickets = batcher.submit_all(items).unwrap();
                    for (ticket, number) in tickets.into_iter().zip(numbers) {
                        say("accepted", ticket.id(), number);
                        // Some wait for their results, some go on.
                        if random.below(2) == 0 {
                            ticket.wait().unwrap();
                        }
                    }
                }
            });
        }
    });
    for (_, ticket) in resumed {
        ticket.wait().unwrap();
    }
    let report = batcher.close(Close::Drain, Duration::from_mins(10));
    assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
}

fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["batcher_process", "--exact", "--ignored", "--nocapture"]).env(FOLDER, dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Reads one line as the processes say and write it; others are passed over.
fn read(line: &str) -> Option<(&str, ItemId, u64)> {
    let (what, rest) = line.split_once(' ').filter(|(what, _)| !what.is_empty())?;
    let words: Vec<u64> = rest.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [epoch, seq, number] = words.try_into().ok()?;
    Some((what, ItemId { epoch, seq }, number))
}

/// What the processes have said and done so far.
#[derive(Default)]
struct Known {
    submitted: BTreeSet<u64>,
    accepted: BTreeMap<ItemId, u64>,
    done: BTreeMap<ItemId, u64>,
    /// What was done and had not been acknowledged when its process was killed.
    unacked: BTreeSet<ItemId>,
    /// How often something was done that was done before.
    repeated: u64,
    read: usize,
}

impl Known {
    fn hear(&mut self, line: &str) {
        match read(line) {
            Some(("submits", count, first)) => self.submitted.extend(first..first + count.seq),
            Some(("accepted" | "resumed", id, number)) => {
                let known = self.accepted.insert(id, number);
                assert!(known.is_none_or(|known| known == number), "{id} is two items");
            }
            _ => {}
        }
    }

    /// Reads what was written since; only what was not acknowledged is done again.
    fn look(&mut self, log: &Path) {
        let log = fs::read_to_string(log).unwrap_or_default();
        for line in log[self.read..].lines() {
            let (_, id, number) = read(&format!("did {line}")).expect("no line is torn");
            let known = self.done.insert(id, number);
            assert!(known.is_none_or(|known| known == number), "{id} is two items");
            assert!(self.submitted.contains(&number), "invented {id}");
            assert!(known.is_none() || self.unacked.contains(&id), "{id} was acknowledged");
            self.repeated += u64::from(known.is_some());
        }
        self.read = log.len();
    }

    /// Looks at what a killed process left of what it had done: no more than was in flight.
    fn look_at_journal(&mut self, dir: &Path) {
        let left = unacked(&open(dir)).into_iter().map(|(id, _)| id);
        let left: BTreeSet<ItemId> = left.filter(|id| self.done.contains_key(id)).collect();
        let new = left.difference(&self.unacked).count();
        assert!(new <= WORKERS * MOST_IN_A_BATCH, "{new} items were done and not acknowledged");
        self.unacked = left;
    }
}

/// Kills so many processes, one after the other, lets a last one end, and compares what was
/// accepted with what was done.
fn kill(times: u64, seed: u64) {
    let dir = folder();
    let log = dir.path().join("work.log");
    let mut random = Random(seed);
    let mut known = Known::default();
    let (mut killed, mut is_over) = (0, false);
    for round in 0.. {
        if is_over {
            break;
        }
        assert!(round <= 2 * times, "only {killed} of {round} were killed");
        let is_last = killed == times;
        let mut child = start(dir.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Most say two lines an item. Some die while they open, and some live to close.
        let most = CLIENTS * ITEMS_OF_A_CLIENT * 2 + 60;
        let end = match random.below(8) {
            _ if is_last => u64::MAX,
            0 => random.below(12),
            _ => random.below(most),
        };
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        lines.by_ref().take(end).for_each(|line| known.hear(&line));
        if !is_last {
            child.kill().unwrap();
        }
        lines.for_each(|line| known.hear(&line));
        let ended_well = child.wait().unwrap().success();
        assert!(!is_last || ended_well, "nobody killed the last one");
        killed += u64::from(!ended_well);
        is_over = is_last;
        known.look(&log);
        known.look_at_journal(dir.path());
    }
    for (id, number) in &known.accepted {
        assert_eq!(known.done.get(id), Some(number), "lost {id}");
    }
    let numbers: BTreeSet<u64> = known.done.values().copied().collect();
    assert_eq!(numbers.len(), known.done.len(), "no item was accepted twice");
    assert!(unacked(&open(dir.path())).is_empty(), "all that was done is forgotten");
    let most = times * (WORKERS * MOST_IN_A_BATCH) as u64;
    assert!(known.repeated <= most, "{} done again after {times} kills", known.repeated);
    let (accepted, done, repeated) = (known.accepted.len(), known.done.len(), known.repeated);
    println!(
        "{killed} kills: {accepted} said to be accepted, {done} done, {repeated} of them again"
    );
}

/// Users of another engine reported tasks that were lost when the process died that had taken them.
#[test]
fn apalis_504_what_a_dead_process_had_taken_is_done_by_the_next() {
    kill(3, 8);
}

#[test]
fn killed_200_times_a_batcher_loses_and_invents_nothing() {
    kill(200, 3);
}

#[test]
#[ignore = "takes minutes; run it when the journal or the engine changes"]
fn killed_1000_times_a_batcher_loses_and_invents_nothing() {
    kill(1000, 4);
}
