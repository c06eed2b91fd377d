//! Whatever goes wrong, over thousands of seeds: nothing is paid twice, lost or swapped.
//!
//! `CHAOS_SEEDS` says how many seeds are tried (2,000 unless said otherwise) and `CHAOS_KILLS` how
//! many of a process that is killed (100), `CHAOS_TICKETS` how many through tickets (200);
//! `CHAOS_FIRST` is the first of each. A failure names its seed.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::{KEY, Place, SHAPES, settings};
use llm_batch::{BatchError, Builder, Delivered, Request, Status};
use llm_simulator::{Faults, Reply, Said, Simulator};

const SEEDS: u64 = 2_000;
const KILLS: u64 = 100;
const TICKETS: u64 = 200;
const REQUESTS: usize = 7;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|number| number.parse().unwrap())
}

/// Tries so many seeds, from the first one that is wanted on.
fn each_seed(count: u64, check: impl Fn(u64) + Sync) {
    let first = number("CHAOS_FIRST").unwrap_or(0);
    common::each_seed(first..first + count, check);
}

/// A provider in which three calls of ten go wrong, and in which two requests fail in passing or
/// expire the first time that they are run.
fn simulator(seed: u64) -> llm_simulator::Builder {
    let runs: Mutex<HashMap<String, usize>> = Mutex::default();
    Simulator::builder()
        .running(usize::try_from(seed % 3).unwrap())
        .list_lag(usize::try_from(seed % 2).unwrap())
        .model(move |question| {
            let mut runs = runs.lock().unwrap();
            let run = runs.entry(question.text.clone()).or_default();
            *run += 1;
            match (*run, question.text.as_bytes().last()) {
                (1, Some(b'2')) if seed.is_multiple_of(5) => Said::Expired,
                (1, Some(b'5')) if seed % 4 < 2 => {
                    let kind = "api_error".to_owned();
                    Said::Error { kind, message: "simulated".to_owned() }
                }
                _ => Said::text(format!("answer to {}", question.text)),
            }
        })
        .faults(Faults::seeded(seed, 30))
}

fn builder(url: &str, key: &str, seed: u64, state: &Path) -> Builder {
    settings(SHAPES[usize::from(seed % 4 > 1)](url, key), state)
        // Runs need no threads for tickets.
        .max_in_flight(1)
        .list_lag(Duration::from_millis(40))
        .timeout(Duration::from_hours(1))
}

fn requests() -> impl Iterator<Item = Request> {
    (0..REQUESTS).map(|n| {
        let model = ["m1", "m2"][usize::from(n > 3)];
        Request::prompt(format!("r{n}"), model, format!("question r{n}"))
    })
}

fn assert_paid_once(simulator: &Simulator, seed: u64) {
    let paid = simulator.paid();
    let once: BTreeSet<&String> = paid.iter().collect();
    if (paid.len(), once.len()) != (REQUESTS, REQUESTS) {
        let calls = simulator.server().seen();
        let calls: Vec<_> = calls.iter().map(|c| format!("{} {}", c.method, c.path)).collect();
        panic!("seed {seed}: paid for {paid:?}; {calls:#?}");
    }
}

#[test]
fn whatever_goes_wrong_nothing_is_paid_twice_lost_or_swapped() {
    each_seed(number("CHAOS_SEEDS").unwrap_or(SEEDS), |seed| {
        let (simulator, place) = (simulator(seed).start().unwrap(), Place::quick());
        simulator.plant_foreign(3);
        let mut answered = BTreeMap::new();
        let mut rounds = 0;
        loop {
            // A run that ends early is followed by another one, as if the process had died.
            let timeout = Duration::from_millis(50 << (rounds / 2).min(8));
            // Now and then with another key of the account.
            let key = if seed % 3 == 0 { format!("{KEY}-{}", rounds % 4) } else { KEY.to_owned() };
            let llm = builder(simulator.url(), &key, seed, &place.state()).timeout(timeout);
            let (outcomes, ended) = common::run(&llm.build().unwrap(), requests());
            for (id, outcome) in outcomes {
                let text = outcome.unwrap_or_else(|e| panic!("seed {seed}: {id}: {e}")).text;
                assert_eq!(text, Some(format!("answer to question {id}")), "seed {seed}");
                assert_eq!(answered.insert(id, text), None, "seed {seed}: told twice");
            }
            rounds += 1;
            assert!(rounds < 60, "seed {seed}: no end: {ended:?}");
            if ended.is_ok() {
                break;
            }
        }
        assert_eq!(answered.len(), REQUESTS, "seed {seed}");
        assert_paid_once(&simulator, seed);
    });
}

/// The same through tickets: many passes, few threads, and batches of three.
#[test]
fn whatever_goes_wrong_each_ticket_gets_its_own_answer_paid_for_once() {
    let count = number("CHAOS_TICKETS").unwrap_or(TICKETS);
    let [again, lost] = [(); 2].map(|()| AtomicU64::new(0));
    each_seed(count, |seed| {
        let (simulator, place) = (simulator(seed).start().unwrap(), Place::quick());
        simulator.plant_foreign(3);
        let mut open: Vec<Request> = requests().collect();
        for round in 0.. {
            assert!(round < 60, "seed {seed}: no end");
            let timeout = Duration::from_millis(50 << (round / 2).min(8));
            let llm = builder(simulator.url(), KEY, seed, &place.state()).max_in_flight(2);
            let llm = llm.max_items(3).linger(Duration::ZERO).timeout(timeout).build().unwrap();
            let submit = |request: Request| (request.id.clone(), llm.submit(request).unwrap());
            let tickets: Vec<_> = open.into_iter().map(submit).collect();
            let mut unfinished = BTreeSet::new();
            for (id, ticket) in tickets {
                match ticket.wait() {
                    Ok(answer) => {
                        let text = Some(format!("answer to question {id}"));
                        assert_eq!(answer.text, text, "seed {seed}");
                    }
                    Err(BatchError::Failed(error))
                        if matches!(error.kind(), "pending" | "ambiguous") =>
                    {
                        unfinished.insert(id);
                    }
                    Err(error) => panic!("seed {seed}: {id}: {error}"),
                }
            }
            open = requests().filter(|request| unfinished.contains(&request.id)).collect();
            if open.is_empty() {
                break;
            }
            again.fetch_add(1, Ordering::Relaxed);
        }
        assert_paid_once(&simulator, seed);
        let ambiguous = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            text.contains(r#""status":"void""#) && text.contains(r#""may_be_paid":false"#)
        };
        let mut entries = fs::read_dir(place.state()).unwrap().map(Result::unwrap);
        lost.fetch_add(u64::from(entries.any(ambiguous)), Ordering::Relaxed);
    });
    // Where nothing is lost and nothing is taken up again, nothing of that is tried.
    let (again, lost) = (again.into_inner(), lost.into_inner());
    let is_tried = again > count / 10 && lost > count / 10;
    assert!(count < 100 || is_tried, "{again} taken up again, {lost} with a create given up");
}

/// Not a test by itself: the process that is killed. It writes each outcome down as the program
/// does, and hands over what is not written down yet.
#[test]
fn child() {
    let (Some(url), Some(dir)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_DIR")) else {
        return;
    };
    let (seed, dir) = (number("CHILD_SEED").unwrap(), PathBuf::from(dir));
    let out = dir.join("out");
    let mut file = OpenOptions::new().append(true).create(true).open(&out).unwrap();
    let written = fs::read_to_string(&out).unwrap();
    let whole = written.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64).unwrap();
    let done = Delivered { status: Status::Succeeded, usage: None };
    let id = |line: &str| line.split('\t').next().unwrap().to_owned();
    let held = written[..whole].lines().map(|line| (id(line), done)).collect();
    let settings = builder(url.to_str().unwrap(), KEY, seed, &dir.join("state"));
    let llm = settings.held(held).build().unwrap();
    llm.run(requests(), |id, outcome| {
        let line = format!("{id}\t{}\n", outcome.unwrap().text.unwrap());
        file.write_all(line.as_bytes()).unwrap();
    })
    .unwrap();
}

/// Where the process is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While the body of its call is on its way: after so many of a hundred parts.
    Sending(u64),
    /// When its call has arrived and nothing was done about it.
    Arrived,
    /// When the provider did what was asked, and no answer has left.
    Taken,
    /// When half of the answer has left.
    Half,
    /// So long after the answer has left: wherever it is then, as when it writes to its files.
    Later(Duration),
}

/// Kills the process of a seed twice, at calls and moments that the seed decides.
struct Killer {
    kills: [(u64, Moment); 2],
    calls: AtomicU64,
    child: Mutex<Option<Child>>,
    there: Condvar,
}

thread_local! {
    // Each connection has a thread of its own, and one call at a time.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

impl Killer {
    fn new(seed: u64) -> Killer {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut kill = |from: u64| {
            let moment = match below(5) {
                0 => Moment::Sending(below(100)),
                1 => Moment::Arrived,
                2 => Moment::Taken,
                3 => Moment::Half,
                _ => Moment::Later(Duration::from_micros(below(4_000))),
            };
            (from + below(14), moment)
        };
        let first = kill(0);
        let kills = [first, kill(first.0 + 1)];
        Killer { kills, calls: AtomicU64::new(0), child: Mutex::default(), there: Condvar::new() }
    }

    /// Numbers the call that begins; it is asked about by the thread that serves it.
    fn count(&self) {
        CALL.set(self.calls.fetch_add(1, Ordering::SeqCst));
    }

    fn moment(&self) -> Option<Moment> {
        let call = CALL.get();
        self.kills.iter().find(|kill| kill.0 == call).map(|kill| kill.1)
    }

    fn kill(&self) {
        let child = self.child.lock().unwrap();
        let mut child = self.there.wait_while(child, |child| child.is_none()).unwrap();
        // SIGKILL: nothing of it runs any more. That it has ended already is fine.
        let child = child.as_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    fn kill_later(self: &Arc<Killer>, wait: Duration) {
        let killer = Arc::clone(self);
        thread::spawn(move || {
            let child = killer.child.lock().unwrap();
            drop(killer.there.wait_timeout(child, wait).unwrap());
            killer.kill();
        });
    }

    /// Runs a process to its end; tells whether it came there by itself.
    fn run(&self, command: &mut Command) -> bool {
        *self.child.lock().unwrap() = Some(command.spawn().unwrap());
        self.there.notify_all();
        loop {
            let mut child = self.child.lock().unwrap();
            let ended = child.as_mut().unwrap().try_wait().unwrap();
            if let Some(ended) = ended {
                child.take();
                assert!(ended.success() || ended.code().is_none(), "it failed: {ended}");
                return ended.success();
            }
            drop(self.there.wait_timeout(child, Duration::from_millis(2)).unwrap());
        }
    }
}

#[test]
fn a_process_that_is_killed_anywhere_is_followed_by_one_that_goes_on() {
    each_seed(number("CHAOS_KILLS").unwrap_or(KILLS), |seed| {
        let place = Place::quick();
        let killer = Arc::new(Killer::new(seed));
        let [cut, before, after] = [(); 3].map(|()| Arc::clone(&killer));
        let simulator = simulator(seed)
            .cut(move |call| {
                cut.count();
                let Some(Moment::Sending(percent)) = cut.moment() else { return None };
                cut.kill();
                let length: u64 = call.seen.header("content-length")?.parse().ok()?;
                Some(length * percent / 100)
            })
            .before(move |_| {
                let is_now = matches!(before.moment(), Some(Moment::Arrived));
                is_now.then(|| before.kill())?;
                Some(Reply::Drop)
            })
            .after(move |_, usual| match after.moment() {
                Some(Moment::Taken) => {
                    after.kill();
                    Reply::Drop
                }
                Some(Moment::Half) => {
                    after.kill_later(Duration::from_millis(1));
                    Reply::Cut(usual.body().len() / 2, Box::new(usual))
                }
                Some(Moment::Later(wait)) => {
                    after.kill_later(wait);
                    usual
                }
                _ => usual,
            })
            .start()
            .unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["child", "--exact"])
            .env("CHILD_URL", simulator.url())
            .env("CHILD_DIR", place.path())
            .env("CHILD_SEED", seed.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let runs = (1..20).find(|_| killer.run(&mut command));
        assert!(runs.is_some(), "seed {seed}: no end");
        let out = fs::read_to_string(place.path().join("out")).unwrap();
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let expected: Vec<String> =
            (0..REQUESTS).map(|n| format!("r{n}\tanswer to question r{n}")).collect();
        assert_eq!(lines, expected, "seed {seed}");
        assert_paid_once(&simulator, seed);
    });
}
