//! Faults of others that must not come back: one test each, named for what holds here.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use common::stub::{Stub, answer_with_ids, first, stub};
use common::{Faults, Place, Reply, Sim, ask, assert_answered, builder, jsonl, open, run};
use llm_batch::{
    Answer, BatchError, CallError, Collected, CreateError, Created, Draft, Error, Kind, LaneChoice,
    LlmBatch, Progress, Request, RequestError, Sink,
};
use serde_json::value::{RawValue, to_raw_value};

fn lingering(sim: &Sim, place: &Place) -> LlmBatch {
    builder(sim.url(), &place.state()).linger(Duration::from_hours(1)).build().unwrap()
}

/// The seed hands out results with a `select` that drops them where nobody is ready, and leaves
/// requests without a result waiting for ever.
#[test]
fn a_requester_whose_result_is_missing_is_told_and_a_late_one_still_gets_its_own() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| jsonl(&lines[..1]))),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = lingering(&sim, &place);
    let [kept, lost] = ["a", "b"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    // Nobody was waiting when the results came in.
    assert_eq!(kept.wait().unwrap().text.unwrap(), "answer to question a");
    let Err(BatchError::Failed(error)) = lost.wait() else { panic!("an answer") };
    // The provider says that it was answered, so it is paid for, and to be had later.
    assert!(matches!(*error, RequestError::Pending { .. }), "{error:?}");
}

/// The seed groups through a map, so batches leave in another order each time.
#[test]
fn batches_leave_in_the_order_in_which_their_first_requests_came() {
    let kinds = ["k3", "k1", "k4", "k0", "k2", "k6", "k5"];
    for _ in 0..3 {
        let (sim, place) = (Sim::start(Faults::default()), Place::quick());
        let requests = kinds.iter().chain(&kinds).enumerate().map(|(at, kind)| {
            Request::prompt(at.to_string(), *kind, *kind).with_kind(Kind::Other((*kind).to_owned()))
        });
        run(&open(&sim, &place), requests).1.unwrap();
        let order: Vec<String> = sim
            .bodies()
            .iter()
            .map(|body| body["requests"][0]["params"]["model"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(order, kinds);
    }
}

/// The seed leaves a failed batch at the head of its queue, where it is all that comes out.
#[test]
fn a_failed_batch_does_not_stand_in_the_way_of_the_next() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| {
            (nth == 0).then(|| Reply::error(400, "invalid_request_error", "no"))
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = lingering(&sim, &place);
    let failed = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    assert!(failed.wait().is_err());
    let next = llm.submit(ask("b")).unwrap();
    llm.flush().wait().unwrap();
    assert_eq!(next.wait().unwrap().text.unwrap(), "answer to question b");
    let stats = llm.stats();
    assert_eq!((stats.queued, stats.in_flight, stats.completed, stats.failed), (0, 0, 1, 1));
}

/// The seed names requests after the clock, and batches after a count that `Clear` does not know.
#[test]
fn names_made_here_do_not_repeat() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (llm, send) = (&llm, send.clone());
            scope.spawn(move || {
                for _ in 0..8 {
                    let ticket = llm.submit(Request::prompt("", "model-a", "q")).unwrap();
                    send.send(ticket.wait().is_ok()).unwrap();
                }
            });
        }
    });
    drop(send);
    assert_eq!(receive.iter().filter(|answered| *answered).count(), 32);
    let mut names = HashSet::new();
    for body in sim.bodies() {
        for request in body["requests"].as_array().unwrap() {
            assert!(names.insert(request["custom_id"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(names.len(), 32);
}

/// The official SDKs send a create three times when its response is lost.
#[test]
fn a_lost_response_is_paid_for_once() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!(sim.simulator.paid(), ["question a"]);
}

/// A header of the server's makes the official SDKs send a create again whose fate is unknown.
#[test]
fn a_server_cannot_order_a_second_create() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| {
            Some(
                Reply::error(500, "api_error", "try again")
                    .with_header("x-should-retry", "true")
                    .with_header("retry-after-ms", "1"),
            )
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!(sim.creates(), 1);
}

/// `str.splitlines` and its like cut result lines at U+2028 and U+0085, which JSON allows.
#[test]
fn lines_end_at_newlines_alone() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            jsonl(&[lines[0].replace("question a", "question\u{2028}\u{85}a")])
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, _) = run(&open(&sim, &place), [ask("a")]);
    let answer = outcomes[0].1.as_ref().unwrap();
    assert_eq!(answer.text.as_deref(), Some("answer to question\u{2028}\u{85}a"));
}

/// A result line without its newline at the end of the file is a line; one with CRLF is too.
#[test]
fn a_last_line_without_newline_counts() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| Reply::Full {
            status: 200,
            headers: Vec::new(),
            body: lines.join("\r\n").into_bytes(),
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, _) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
}

/// Takes every batch and has the answers at once; for some ids only once it is let go on.
#[derive(Debug)]
struct Gated {
    entered: mpsc::SyncSender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Gated {
    fn wait(&self) {
        self.entered.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
    }
}

impl Stub for Gated {
    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        if first(draft) == "slow" {
            self.wait();
        }
        assert_ne!(first(draft), "broken", "a provider that panics");
        Ok(Created { batch_id: "b".to_owned(), progress: Progress::Ended })
    }

    fn results(
        &self,
        _: &str,
        draft: &Draft<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        for entry in draft.entries() {
            if entry.id == "slow result" {
                self.wait();
            }
            let _ = sink(&entry.custom_id, Ok(Answer::new(to_raw_value("x").unwrap())));
        }
        Ok(Collected::default())
    }
}

fn gated(place: &Place, linger: Duration) -> (LlmBatch, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, inside) = mpsc::sync_channel(1);
    let (gate, go) = mpsc::channel();
    let provider = Gated { entered, go: Mutex::new(go) };
    let llm =
        LlmBatch::builder(stub(provider)).state(place.state()).linger(linger).build().unwrap();
    (llm, inside, gate)
}

/// A create that was on its way in this very process was taken for one of unknown fate: a run
/// beside it sent nothing and said that the process had ended.
#[test]
fn a_create_on_its_way_does_not_keep_a_run_from_sending() {
    let place = Place::quick();
    let (llm, inside, gate) = gated(&place, Duration::ZERO);
    let ticket = llm.submit(ask("slow")).unwrap();
    inside.recv().unwrap();
    let (outcomes, ended) = run(&llm, [ask("other")]);
    gate.send(()).unwrap();
    assert_eq!(ended.unwrap().accounting.succeeded, 1);
    assert_eq!(outcomes.len(), 1);
    ticket.wait().unwrap();
}

#[test]
fn a_create_that_ended_in_a_panic_is_of_unknown_fate() {
    let place = Place::quick();
    let (llm, _inside, _gate) = gated(&place, Duration::ZERO);
    let broken = llm.submit(ask("broken")).unwrap().wait();
    let Err(BatchError::Failed(error)) = broken else { panic!("{broken:?}") };
    assert!(error.may_be_paid() && error.to_string().ends_with("code panicked"), "{error}");
    // This provider has no list to look for it.
    let ended = run(&llm, [ask("broken")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
    run(&llm, [ask("other")]).1.unwrap();
}

/// Who had an answer and asked the same again was told that it was in flight, as long as another
/// request of its batch was waited for.
#[test]
fn an_id_may_be_asked_again_once_it_has_its_answer() {
    let place = Place::quick();
    let (llm, inside, gate) = gated(&place, Duration::from_hours(1));
    let first = llm.submit(ask("a")).unwrap();
    let slow = llm.submit(ask("slow result")).unwrap();
    let all = llm.flush();
    inside.recv().unwrap();
    first.wait().unwrap();
    let again = llm.submit(ask("a")).unwrap();
    let flushed = llm.flush();
    let again = again.wait();
    gate.send(()).unwrap();
    again.unwrap();
    slow.wait().unwrap();
    all.wait().unwrap();
    flushed.wait().unwrap();
    assert_eq!(llm.accounting().submissions, 1);
}

/// Loses its first create, and has a run of its own done while it is asked which key it uses.
#[derive(Debug, Default)]
struct Nosy {
    batcher: OnceLock<Weak<LlmBatch>>,
    is_armed: AtomicBool,
    ended_well: Mutex<Vec<bool>>,
}

impl Stub for Nosy {
    fn account(&self) -> Option<String> {
        if let Some(batcher) = self.batcher.get().and_then(Weak::upgrade)
            && self.is_armed.swap(false, Ordering::SeqCst)
        {
            let (done, is_done) = mpsc::channel();
            thread::spawn(move || done.send(run(&batcher, [ask("other")]).1.is_ok()));
            let ended_well = is_done.recv_timeout(Duration::from_secs(10)) == Ok(true);
            self.ended_well.lock().unwrap().push(ended_well);
        }
        Some("the only one".to_owned())
    }

    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        match first(draft) {
            "lost" => {
                self.is_armed.store(true, Ordering::SeqCst);
                Err(CreateError::Ambiguous { reason: "lost".to_owned() })
            }
            id => Ok(Created { batch_id: id.to_owned(), progress: Progress::Ended }),
        }
    }

    fn results(
        &self,
        batch_id: &str,
        draft: &Draft<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        if batch_id == "refused" {
            self.is_armed.store(true, Ordering::SeqCst);
            return Err(CallError::Refused { message: "no".to_owned() });
        }
        answer_with_ids(draft, sink);
        Ok(Collected::default())
    }
}

/// The books of the batcher were held meanwhile, and nobody else came on.
#[test]
fn a_provider_that_is_asked_for_its_key_holds_nobody_up() {
    for (lane, id) in
        [(LaneChoice::Batch, "lost"), (LaneChoice::Batch, "refused"), (LaneChoice::Sync, "a")]
    {
        let (place, provider) = (Place::quick(), stub(Nosy::default()));
        let settings = LlmBatch::builder(Arc::clone(&provider) as _).state(place.state());
        let llm = Arc::new(settings.lane(lane).build().unwrap());
        provider.batcher.set(Arc::downgrade(&llm)).unwrap();
        provider.is_armed.store(lane == LaneChoice::Sync, Ordering::SeqCst);
        let _ = run(&llm, [ask(id)]);
        assert_eq!(*provider.ended_well.lock().unwrap(), [true], "{id}");
    }
}

/// An id that a run waits for is nobody else's until it ends: both would send it.
#[test]
fn a_ticket_of_an_id_that_a_run_waits_for_is_refused() {
    let place = Place::quick();
    let (llm, inside, gate) = gated(&place, Duration::ZERO);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&llm, [ask("slow")]).1);
        inside.recv().unwrap();
        let refused = llm.submit(ask("slow")).unwrap().wait();
        gate.send(()).unwrap();
        let Err(BatchError::Failed(error)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("slow"), "{error}");
        assert_eq!(running.join().unwrap().unwrap().accounting.succeeded, 1);
    });
    assert_eq!(llm.accounting().submissions, 1);
}

/// Counts how often a body is made.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Stub for Counting {
    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(to_raw_value(&format!("{:?}", request.body)).unwrap())
    }
}

/// The bodies of a batch were made, and written into the state folder, once more for each of its requests
/// that was refused.
#[test]
fn all_of_a_batch_that_are_refused_are_found_at_once() {
    let (provider, place) = (stub(Counting::default()), Place::quick());
    let settings = LlmBatch::builder(Arc::clone(&provider) as _).state(place.state());
    let settings = settings.max_items(10).linger(Duration::from_hours(1));
    let llm = settings.poll_interval(Duration::ZERO).build().unwrap();
    let answered = |text: &str| {
        let ask = |n: usize| Request::prompt(n.to_string(), "m", text);
        // One id of the second batch is new; the others have another content than before.
        let first = usize::from(text == "after");
        let tickets: Vec<_> = (first..first + 10).map(|n| llm.submit(ask(n)).unwrap()).collect();
        tickets.into_iter().map(|ticket| ticket.wait().is_ok()).filter(|is_ok| *is_ok).count()
    };
    assert_eq!((answered("before"), provider.0.load(Ordering::SeqCst)), (10, 10));
    assert_eq!((answered("after"), provider.0.load(Ordering::SeqCst)), (1, 20));
}
