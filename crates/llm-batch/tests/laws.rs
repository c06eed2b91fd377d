//! What holds whatever a provider does, over any number of runs.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Place, run};
use llm_batch::{
    Answer, Call, CallError, Collected, CreateError, Created, Draft, Error, Found, Kind, Limits,
    LlmBatch, Lost, Progress, Provider, Request, RequestError, Run, Sink, Status,
};
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};

/// What the provider does with one create.
#[derive(Debug, Clone, Copy)]
enum OnCreate {
    Take,
    TakeAndLoseTheAnswer,
    /// Nothing is taken, and nobody is told.
    Vanish,
    NotSent,
    Busy,
    TooLarge,
    Refuse,
}

/// What it does with one reading of results.
#[derive(Debug, Clone)]
struct OnResults {
    /// Swaps of lines, by index modulo their number.
    swaps: Vec<(usize, usize)>,
    /// Lines that come twice.
    repeated: Vec<usize>,
    /// Lines that are left out this time.
    lost: Vec<usize>,
    /// After how many lines it breaks off, if it does.
    cut: Option<usize>,
    foreign: bool,
}

#[derive(Debug)]
struct Scripted {
    creates: Vec<OnCreate>,
    results: Vec<OnResults>,
    /// Whether polls fail, in turn.
    polls: Vec<bool>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Batch id to the custom ids and prompts it was created with.
    batches: BTreeMap<String, Vec<(String, String)>>,
    /// How often each request was in a batch that was taken.
    paid: HashMap<String, usize>,
    creates: usize,
    polls: usize,
    reads: usize,
}

const LIMITS: Limits = Limits { max_items: 4, max_bytes: 1 << 20, frame_bytes: 0, entry_bytes: 0 };

impl Provider for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn endpoint(&self) -> &'static str {
        "here"
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        Ok(to_raw_value(&request.id).expect("a string is JSON"))
    }

    fn create(&self, draft: &Draft<'_>, _: &str, _: &Call<'_>) -> Result<Created, CreateError> {
        let mut seen = self.seen.lock().expect("no panic before");
        let what = self.creates[seen.creates % self.creates.len()];
        seen.creates += 1;
        let batch_id = format!("batch-{}", seen.creates);
        let taken: Vec<(String, String)> =
            draft.entries().map(|e| (e.custom_id.clone(), e.id.to_owned())).collect();
        match what {
            OnCreate::Take | OnCreate::TakeAndLoseTheAnswer => {
                for (_, id) in &taken {
                    *seen.paid.entry(id.clone()).or_default() += 1;
                }
                seen.batches.insert(batch_id.clone(), taken);
            }
            OnCreate::Vanish => {}
            OnCreate::NotSent => return Err(CreateError::NotSent { reason: "no".to_owned() }),
            OnCreate::Busy => {
                return Err(CreateError::Busy { message: "no".to_owned(), retry_after: None });
            }
            OnCreate::TooLarge => {
                return Err(CreateError::TooLarge { message: "no".to_owned() });
            }
            OnCreate::Refuse => {
                return Err(CreateError::Refused {
                    status: 400,
                    kind: "k".to_owned(),
                    message: "m".to_owned(),
                    retryable: false,
                });
            }
        }
        match what {
            OnCreate::Take => Ok(Created { batch_id, progress: Progress::Running }),
            _ => Err(CreateError::Ambiguous { reason: "lost".to_owned() }),
        }
    }

    fn find(&self, lost: &Lost<'_>, _: &Call<'_>) -> Result<Found, CallError> {
        let seen = self.seen.lock().expect("no panic before");
        let is_it = |batch: &Vec<(String, String)>| batch[0].0.starts_with(lost.nonce);
        let found = seen.batches.iter().find(|(_, batch)| is_it(batch));
        Ok(found.map_or(Found::Absent, |(batch_id, _)| {
            Found::Batch(Created { batch_id: batch_id.clone(), progress: Progress::Running })
        }))
    }

    fn poll(&self, _: &str, _: &Call<'_>) -> Result<Progress, CallError> {
        let mut seen = self.seen.lock().expect("no panic before");
        seen.polls += 1;
        let fails = !self.polls.is_empty() && self.polls[seen.polls % self.polls.len()];
        // Every third one works whatever the script says, so that a run ends.
        if fails && !seen.polls.is_multiple_of(3) {
            return Err(CallError::Passing { message: "no".to_owned(), retry_after: None });
        }
        Ok(if seen.polls.is_multiple_of(2) { Progress::Running } else { Progress::Ended })
    }

    fn results(
        &self,
        batch_id: &str,
        _: &Draft<'_>,
        _: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        let (mut lines, script) = {
            let mut seen = self.seen.lock().expect("no panic before");
            seen.reads += 1;
            let mut script = self.results[seen.reads % self.results.len()].clone();
            // Every other one is read to its end, so that a run ends.
            script.cut = script.cut.filter(|_| !seen.reads.is_multiple_of(2));
            (seen.batches[batch_id].clone(), script)
        };
        let count = lines.len();
        for &(a, b) in &script.swaps {
            lines.swap(a % count, b % count);
        }
        let mut shown = Vec::new();
        for (at, line) in lines.into_iter().enumerate() {
            if script.lost.contains(&at) {
                continue;
            }
            shown.push(line.clone());
            if script.repeated.contains(&at) {
                shown.push(line);
            }
        }
        if script.foreign {
            shown.insert(0, ("0123456789abcdef-000000".to_owned(), "foreign".to_owned()));
        }
        for (at, (custom_id, prompt)) in shown.iter().enumerate() {
            if script.cut == Some(at) {
                return Err(CallError::Passing { message: "cut".to_owned(), retry_after: None });
            }
            let raw = to_raw_value(prompt).expect("a string is JSON");
            if sink(custom_id, Ok(Answer::new(raw).with_text(prompt))) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(Collected::default())
    }
}

fn on_create() -> impl Strategy<Value = OnCreate> {
    prop_oneof![
        5 => Just(OnCreate::Take),
        1 => Just(OnCreate::TakeAndLoseTheAnswer),
        1 => Just(OnCreate::Vanish),
        1 => Just(OnCreate::NotSent),
        1 => Just(OnCreate::Busy),
        1 => Just(OnCreate::TooLarge),
        1 => Just(OnCreate::Refuse),
    ]
}

fn on_results() -> impl Strategy<Value = OnResults> {
    let some = || proptest::collection::vec(0_usize..4, 0..3);
    let swaps = proptest::collection::vec((0_usize..4, 0_usize..4), 0..4);
    (swaps, some(), some(), proptest::option::of(0_usize..4), any::<bool>()).prop_map(
        |(swaps, repeated, lost, cut, foreign)| OnResults { swaps, repeated, lost, cut, foreign },
    )
}

fn requests(kinds: &[u8]) -> Vec<Request> {
    let request = |(at, kind): (usize, &u8)| {
        let kind = [Kind::Judge, Kind::Planner][usize::from(kind % 2)].clone();
        Request::prompt(format!("r{at}"), "m", "p").with_kind(kind)
    };
    kinds.iter().enumerate().map(request).collect()
}

fn came_to(ended: &Result<Run, Error>) -> &Run {
    match ended {
        Ok(run) => run,
        Err(error) => error.run().expect("the run was begun"),
    }
}

proptest! {
    #![proptest_config(common::cases(24))]

    #[test]
    fn no_request_is_paid_twice_or_answered_twice_or_with_anothers_answer(
        kinds in proptest::collection::vec(any::<u8>(), 1..14),
        creates in proptest::collection::vec(on_create(), 1..5),
        results in proptest::collection::vec(on_results(), 1..5),
        polls in proptest::collection::vec(any::<bool>(), 0..5),
        runs in 1_usize..4,
    ) {
        let provider =
            Arc::new(Scripted { creates, results, polls, seen: Mutex::default() });
        let place = Place::quick();
        let mut told: HashMap<String, Status> = HashMap::new();
        for round in 0..=runs {
            // Each round asks for more than the one before, the last for everything.
            let asked = if round == runs { kinds.len() } else { kinds.len() * round / runs };
            let llm = LlmBatch::builder(Arc::<Scripted>::clone(&provider))
                .state(place.state())
                .max_in_flight(1)
                .poll_interval(Duration::ZERO)
                .list_lag(Duration::ZERO)
                .timeout(Duration::from_millis(300))
                .build()
                .expect("the folder is ours");
            let (outcomes, ended) = run(&llm, requests(&kinds[..asked]));
            for (id, outcome) in outcomes {
                let status = match &outcome {
                    Ok(answer) => {
                        prop_assert_eq!(answer.text.as_ref(), Some(&id));
                        Status::Succeeded
                    }
                    Err(error) => error.status(),
                };
                prop_assert!(status.is_final());
                prop_assert_eq!(told.insert(id, status), None, "told twice");
            }
            let run = came_to(&ended);
            let counts = &run.accounting;
            prop_assert_eq!(counts.requests, asked as u64);
            prop_assert_eq!(counts.requests, counts.succeeded + counts.failed + counts.pending);
            prop_assert!(counts.batches <= counts.submissions);
            prop_assert_eq!(ended.is_ok(), counts.pending == 0);
            for (id, status) in &run.outcomes {
                prop_assert_eq!(told.contains_key(id),
                    status.is_final());
            }
            let seen = provider.seen.lock().expect("no panic before");
            prop_assert!(seen.paid.values().all(|times| *times == 1), "{:?}", seen.paid);
            prop_assert_eq!(counts.possibly_paid_twice, 0);
        }
    }
}
