//! A provider on loopback with faults to order, and what tests do with it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(unused_imports, reason = "likewise")]
#![allow(clippy::unwrap_used, reason = "a helper of tests")]

pub mod priced;
pub mod slow;
pub mod steps;
pub mod stub;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llm_batch::providers::{Anthropic, OpenAi};
use llm_batch::{Answer, Builder, LlmBatch, Provider, Request, RequestError, Stop};
pub use llm_simulator::{Endpoint, Reply, Seen, Simulator};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Waits until something holds that nothing tells of, for two minutes at most.
pub fn wait_until(holds: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_mins(2);
    while !holds() {
        assert!(Instant::now() < patience, "it never holds");
        // It leaves the processor to what is waited for.
        thread::park_timeout(Duration::from_millis(1));
    }
}

pub const KEY: &str = "sk-ant-test-SECRET";

/// Runs `cases` random cases, or as many as `PROPTEST_CASES` says.
pub fn cases(cases: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        proptest::prelude::ProptestConfig { cases, ..config }
    }
}

/// Tries each seed, many at a time: they wait more than they work.
pub fn each_seed(seeds: Range<u64>, check: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    check(seed);
                }
            });
        }
    });
}

pub type OnCall = dyn Fn(usize, &Seen) -> Option<Reply> + Send + Sync;
type OnResults = dyn Fn(usize, Vec<String>) -> Reply + Send + Sync;

/// A provider of message batches with faults to order.
pub struct Sim {
    pub simulator: Simulator,
}

/// What a [`Sim`] does otherwise than well.
#[derive(Default)]
pub struct Faults {
    /// After how many bytes of its body the connection of create number n is closed.
    pub cut: Option<Box<dyn Fn(usize) -> Option<u64> + Send + Sync>>,
    /// Answers create number n (from 0) in place of the provider, which does not get it.
    pub refuse: Option<Box<OnCall>>,
    /// Replies to create number n, which is taken all the same; `None` = as usual.
    pub create: Option<Box<OnCall>>,
    /// Replies to list number n; `None` = as usual.
    pub list: Option<Box<OnCall>>,
    /// Replies to poll number n; `None` = as usual.
    pub poll: Option<Box<OnCall>>,
    /// Replies to reading number n of results, given the lines.
    pub results: Option<Box<OnResults>>,
    /// How often a batch is still running when asked.
    pub running: usize,
    /// How many lists do not show a new batch yet.
    pub list_lag: usize,
}

impl Sim {
    pub fn start(mut faults: Faults) -> Sim {
        let (cut, refuse) = (faults.cut.take(), faults.refuse.take());
        let poll = faults.poll.take();
        let simulator = Simulator::builder()
            .cut(move |call| match (call.endpoint, &cut) {
                (Endpoint::Create, Some(cut)) => cut(call.nth),
                _ => None,
            })
            .running(faults.running)
            .list_lag(faults.list_lag)
            .before(move |call| match call.endpoint {
                Endpoint::Create => refuse.as_ref()?(call.nth, call.seen),
                Endpoint::Poll => poll.as_ref()?(call.nth, call.seen),
                _ => None,
            })
            .after(move |call, usual| {
                let on_call = match call.endpoint {
                    Endpoint::Create => &faults.create,
                    Endpoint::List => &faults.list,
                    Endpoint::Results if faults.results.is_some() => {
                        let body = String::from_utf8(usual.body().to_vec()).unwrap();
                        let lines = body.lines().map(str::to_owned).collect();
                        return faults.results.as_ref().unwrap()(call.nth, lines);
                    }
                    _ => return usual,
                };
                on_call.as_ref().and_then(|reply| reply(call.nth, call.seen)).unwrap_or(usual)
            })
            .start()
            .unwrap();
        Sim { simulator }
    }

    pub fn url(&self) -> &str {
        self.simulator.url()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.simulator.server().seen()
    }

    /// How many creates arrived, whatever came of them.
    pub fn creates(&self) -> usize {
        self.simulator.count(Endpoint::Create)
    }

    pub fn bodies(&self) -> Vec<Value> {
        self.seen().iter().filter(|seen| seen.method == "POST").map(Seen::json).collect()
    }
}

pub fn batch_object(id: &str, ended: bool) -> Reply {
    let status = if ended { "ended" } else { "in_progress" };
    let results = ended.then(|| format!("https://elsewhere.invalid/{id}/results"));
    Reply::json(
        200,
        &json!({"id": id, "type": "message_batch", "processing_status": status,
                "results_url": results, "request_counts": {"processing": 1}}),
    )
}

pub fn jsonl(lines: &[String]) -> Reply {
    Reply::jsonl(lines)
}

/// A folder for the state that is gone after the test.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    /// Returns one where syncing costs nothing, if there is such a place: on a busy disk it takes seconds.
    /// There may be little room: what writes more than a megabyte goes elsewhere.
    /// A process that is killed leaves the same there as on a disk.
    pub fn quick() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place { dir: dir.unwrap() }
    }

    /// The same for what writes so many bytes, where there is room for them.
    pub fn quick_with(bytes: usize) -> Place {
        let place = Place::quick();
        let trial = place.dir.path().join("trial");
        let has_room = fs::write(&trial, vec![0; bytes]).is_ok();
        let _ = fs::remove_file(trial);
        if has_room { place } else { Place::new() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

pub fn anthropic(url: &str, key: &str) -> Arc<dyn Provider> {
    Arc::new(Anthropic::builder(key).base_url(url).build().unwrap())
}

pub fn open_ai(url: &str, key: &str) -> Arc<dyn Provider> {
    Arc::new(OpenAi::builder(key).base_url(url).build().unwrap())
}

/// Makes a provider of a server and a key.
pub type Shape = fn(&str, &str) -> Arc<dyn Provider>;

/// The two shapes of batches.
pub const SHAPES: [Shape; 2] = [anthropic, open_ai];

/// Returns settings that wait for nothing longer than they must.
pub fn settings(provider: Arc<dyn Provider>, state: &Path) -> Builder {
    LlmBatch::builder(provider)
        .state(state)
        .poll_interval(Duration::from_millis(1))
        .list_lag(Duration::from_millis(20))
        .timeout(Duration::from_mins(1))
}

pub fn builder(url: &str, state: &Path) -> Builder {
    settings(anthropic(url, KEY), state)
}

/// Returns a provider that takes the first create, or does not, and loses its answer; who looks for it
/// is stopped.
pub fn losing_the_first(is_taken: bool, stop: &Stop) -> Simulator {
    let is_first = |endpoint, nth| (endpoint, nth) == (Endpoint::Create, 0);
    let stop = stop.clone();
    Simulator::builder()
        .before(move |call| {
            // With one in it, it is the look for the newest batch, before the create.
            if call.endpoint == Endpoint::List && call.seen.query("limit") != Some("1") {
                stop.stop();
            }
            (!is_taken && is_first(call.endpoint, call.nth)).then_some(Reply::Drop)
        })
        .after(
            move |call, usual| if is_first(call.endpoint, call.nth) { Reply::Drop } else { usual },
        )
        .start()
        .unwrap()
}

/// Changes the object of an answer.
pub fn changed(usual: Reply, change: impl FnOnce(&mut Value)) -> Reply {
    let Reply::Full { status, body, .. } = &usual else { return usual };
    let Ok(mut value) = serde_json::from_slice(body) else { return usual };
    change(&mut value);
    Reply::json(*status, &value)
}

pub fn open(sim: &Sim, place: &Place) -> LlmBatch {
    builder(sim.url(), &place.state()).build().unwrap()
}

pub fn ask(id: &str) -> Request {
    Request::prompt(id, "model-a", format!("question {id}"))
}

pub type Outcome = (String, Result<Answer, RequestError>);

/// Runs, and returns the outcomes in order of arrival with what the run came to.
pub fn run(
    llm: &LlmBatch,
    requests: impl IntoIterator<Item = Request>,
) -> (Vec<Outcome>, Result<llm_batch::Run, llm_batch::Error>) {
    let mut outcomes = Vec::new();
    let run = llm.run(requests, |id, outcome| outcomes.push((id.to_owned(), outcome)));
    (outcomes, run)
}

/// Runs until something holds, and is stopped then: the next run goes on as if the process had ended.
pub fn run_until(
    holds: impl Fn() -> bool + Send,
    settings: Builder,
    requests: impl IntoIterator<Item = Request>,
) -> (Vec<Outcome>, Result<llm_batch::Run, llm_batch::Error>) {
    let stop = Stop::new();
    let llm = settings.stop(stop.clone()).build().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_until(holds);
            stop.stop();
        });
        run(&llm, requests)
    })
}

/// Asserts that each of the ids has the answer to its own question, once.
pub fn assert_answered(outcomes: &[Outcome], ids: &[&str]) {
    let mut got: Vec<(String, String)> = outcomes
        .iter()
        .map(|(id, outcome)| (id.clone(), outcome.as_ref().unwrap().text.clone().unwrap()))
        .collect();
    got.sort();
    let mut expected: Vec<(String, String)> =
        ids.iter().map(|id| ((*id).to_owned(), format!("answer to question {id}"))).collect();
    expected.sort();
    assert_eq!(got, expected);
}
