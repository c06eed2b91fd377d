//! Answers that are needed by a certain moment.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use common::{Outcome, Place, ask, assert_answered, builder, run};
use llm_batch::{Lane, LaneChoice, Request, RequestError, Stop};
use llm_simulator::{Builder, Call, Endpoint, Reply, Simulator};

/// Long enough for what is done before the deadline on a busy machine.
const LONG: Duration = Duration::from_secs(4);
/// A batch is cancelled so long before the deadline.
const HEADROOM: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(900);

/// Requests of one deadline, so that they share a batch.
fn due(ids: &[&str], left: Duration) -> Vec<Request> {
    let deadline = SystemTime::now() + left;
    ids.iter().map(|id| ask(id).with_deadline(deadline)).collect()
}

/// Batches that never end by themselves; a cancel ends them after `done` of their requests.
fn stuck(done: usize) -> Builder {
    Simulator::builder().running(usize::MAX).done_at_cancel(done)
}

/// The same, and who asks for the first time how far a batch is, is stopped: so there is a batch, however
/// long that took, before a deadline is near. Batches can be cancelled or not.
fn stuck_and_stopping(done: usize, is_cancellable: bool) -> (Simulator, Stop) {
    let stop = Stop::new();
    let hand = stop.clone();
    let before = move |call: &Call<'_>| match (call.endpoint, call.nth) {
        (Endpoint::Poll, 0) => {
            hand.stop();
            None
        }
        (Endpoint::Cancel, _) if !is_cancellable => {
            Some(Reply::error(400, "invalid_request_error", "no"))
        }
        _ => None,
    };
    (stuck(done).before(before).start().unwrap(), stop)
}

/// Settings under which everything goes into a batch first.
fn open(simulator: &Simulator, place: &Place, lane: LaneChoice) -> llm_batch::Builder {
    builder(simulator.url(), &place.state())
        .lane(lane)
        .batch_time(Duration::ZERO)
        .headroom(HEADROOM)
}

fn missed(outcome: &Outcome) -> bool {
    match &outcome.1 {
        Err(RequestError::DeadlineMissed { may_be_paid }) => *may_be_paid,
        other => panic!("{}: {other:?}", outcome.0),
    }
}

#[test]
fn what_is_needed_sooner_than_a_batch_takes_is_asked_alone_and_the_rest_goes_together() {
    let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
    let llm = builder(simulator.url(), &place.state()).lane(LaneChoice::Auto).build().unwrap();
    let soon = due(&["a"], Duration::from_mins(50));
    let later = due(&["b"], Duration::from_hours(9));
    let (outcomes, ended) = run(&llm, soon.into_iter().chain(later).chain([ask("c")]));
    assert_answered(&outcomes, &["a", "b", "c"]);
    let counts = ended.unwrap().accounting;
    let lanes: Vec<(Lane, u64)> = counts.groups.iter().map(|g| (g.lane, g.requests)).collect();
    assert_eq!(lanes, [(Lane::Batch, 2), (Lane::Sync, 1)]);
    assert_eq!((simulator.count(Endpoint::Ask), simulator.paid().len()), (1, 3));
}

/// What was done by the cancel comes from the batch, the rest is asked alone, and nothing is paid
/// twice. A restart in between changes nothing of it.
#[test]
fn a_batch_that_is_late_is_cancelled_and_only_what_it_did_not_do_is_asked_alone() {
    let ((simulator, stop), place) = (stuck_and_stopping(1, true), Place::quick());
    let lane = || open(&simulator, &place, LaneChoice::Auto);
    let first = lane().stop(stop).build().unwrap();
    let ended = run(&first, due(&["a", "b"], Duration::from_hours(1))).1;
    assert!(ended.is_err(), "it is at the provider");
    drop(first);
    let (outcomes, ended) = run(&lane().build().unwrap(), due(&["a", "b"], LONG));
    assert_answered(&outcomes, &["a", "b"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.possibly_paid_twice, counts.submissions), (0, 2));
    assert_eq!((simulator.count(Endpoint::Cancel), simulator.count(Endpoint::Ask)), (1, 1));
    assert_eq!(simulator.paid(), ["question a", "question b"]);
}

#[test]
fn in_the_lane_batch_what_was_not_done_by_the_cancel_has_missed_its_deadline_unpaid() {
    let ((simulator, stop), place) = (stuck_and_stopping(1, true), Place::quick());
    let lane = || open(&simulator, &place, LaneChoice::Batch);
    let first = lane().stop(stop).build().unwrap();
    assert!(run(&first, due(&["a", "b"], Duration::from_hours(1))).1.is_err());
    drop(first);
    let (outcomes, ended) = run(&lane().build().unwrap(), due(&["a", "b"], LONG));
    assert_answered(&outcomes[..1], &["a"]);
    assert!(!missed(&outcomes[1]));
    assert_eq!(ended.unwrap().accounting.failed, 1);
    assert_eq!(simulator.paid(), ["question a"]);
}

/// Returns a batch of `a` that cannot be cancelled and never ends.
fn uncancellable(place: &Place) -> Simulator {
    let (simulator, stop) = stuck_and_stopping(0, false);
    let first = open(&simulator, place, LaneChoice::Auto).stop(stop).build().unwrap();
    assert!(run(&first, [ask("a")]).1.is_err(), "it is at the provider");
    simulator
}

/// Nobody waits beyond the deadline, and what may be paid for is not asked again.
#[test]
fn where_the_end_comes_late_the_deadline_is_missed() {
    let place = Place::quick();
    let simulator = uncancellable(&place);
    let settings = || open(&simulator, &place, LaneChoice::Auto);
    let (outcomes, ended) = run(&settings().build().unwrap(), due(&["a"], SHORT));
    assert!(missed(&outcomes[0]));
    assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 0);
    // Whoever asks again does not wait again.
    assert!(run(&settings().build().unwrap(), due(&["a"], LONG)).0.is_empty());
    assert_eq!(simulator.count(Endpoint::Ask), 0);
}

#[test]
fn where_the_end_comes_late_it_is_asked_alone_if_paying_twice_is_allowed() {
    let place = Place::quick();
    let simulator = uncancellable(&place);
    // It is cancelled after a third of the time, in vain, and then it is asked alone at once.
    let settings = || {
        let settings = open(&simulator, &place, LaneChoice::Auto).pay_twice_for_deadlines(true);
        settings.headroom(Duration::from_hours(1))
    };
    let requests = || due(&["a"], LONG * 2);
    let llm = settings().build().unwrap();
    let (outcomes, ended) = run(&llm, requests());
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 1);
    drop(llm);
    assert!(run(&settings().build().unwrap(), requests()).0.is_empty());
    assert_eq!((simulator.count(Endpoint::Cancel), simulator.count(Endpoint::Ask)), (1, 1));
}

/// A create that is busy until the deadline is near was not taken: its requests are asked alone.
#[test]
fn what_cannot_be_sent_in_time_is_asked_alone_or_has_missed_its_deadline() {
    let busy = || {
        Simulator::builder()
            .before(|call| match call.endpoint {
                Endpoint::Create => Some(Reply::error(429, "rate_limit_error", "busy")),
                _ => None,
            })
            .start()
            .unwrap()
    };
    let (simulator, place) = (busy(), Place::quick());
    let auto = open(&simulator, &place, LaneChoice::Auto).build().unwrap();
    let (outcomes, ended) = run(&auto, due(&["a", "b"], LONG));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 0);

    let (simulator, place) = (busy(), Place::quick());
    let batch = open(&simulator, &place, LaneChoice::Batch).build().unwrap();
    let (outcomes, ended) = run(&batch, due(&["a"], SHORT));
    assert!(!missed(&outcomes[0]));
    assert!(ended.is_ok() && simulator.paid().is_empty());
}

#[test]
fn a_deadline_that_has_passed_sends_nothing_and_one_in_a_thousand_years_is_one() {
    for lane in [LaneChoice::Batch, LaneChoice::Sync, LaneChoice::Auto] {
        let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
        let llm = builder(simulator.url(), &place.state()).lane(lane).build().unwrap();
        let past = ask("a").with_deadline(SystemTime::UNIX_EPOCH);
        let far = SystemTime::UNIX_EPOCH + Duration::from_hours(1000 * 365 * 24);
        let (outcomes, ended) = run(&llm, [past, ask("b").with_deadline(far)]);
        let (missed_ones, answered): (Vec<_>, Vec<_>) =
            outcomes.into_iter().partition(|(id, _)| id == "a");
        assert!(!missed(&missed_ones[0]));
        assert_answered(&answered, &["b"]);
        assert!(ended.is_ok());
        assert_eq!(simulator.paid(), ["question b"]);
    }
}

/// Requests that share a create but not a deadline: the one without is sent again, unpaid so far.
#[test]
fn what_was_cancelled_for_anothers_deadline_is_sent_again() {
    let ((simulator, stop), place) = (stuck_and_stopping(0, true), Place::quick());
    let first = open(&simulator, &place, LaneChoice::Auto).stop(stop).build().unwrap();
    assert!(run(&first, ["a", "b"].map(ask)).1.is_err(), "they share a batch");
    drop(first);
    let server = simulator.server();
    let llm = open(&simulator, &place, LaneChoice::Auto).build().unwrap();
    let mut requests = due(&["a"], LONG);
    requests.push(ask("b"));
    let (outcomes, ended) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let creates = |seen: &[llm_simulator::Seen]| {
                let is_create = |s: &&llm_simulator::Seen| {
                    s.method == "POST" && s.path == "/v1/messages/batches"
                };
                seen.iter().filter(is_create).count()
            };
            // The second create is that of b alone, and may end.
            server.wait_until(|seen| creates(seen) >= 2);
            while simulator.batches().len() < 2 {
                std::thread::yield_now();
            }
            simulator.end_batches();
        });
        run(&llm, requests)
    });
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 0);
    let mut paid = simulator.paid();
    paid.sort();
    assert_eq!(paid, ["question a", "question b"]);
}

/// What was answered in time and cannot be read until later is paid for, and is delivered.
#[test]
fn results_that_are_there_are_read_beyond_the_deadline() {
    let (stop, over) = (Stop::new(), OnceLock::new());
    let hand = stop.clone();
    let simulator = Simulator::builder()
        .after(move |call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Poll, 0) => {
                hand.stop();
                usual
            }
            (Endpoint::Results, _)
                if Instant::now() < *over.get_or_init(|| Instant::now() + SHORT) =>
            {
                Reply::error(500, "api_error", "later")
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let lane = || open(&simulator, &place, LaneChoice::Batch);
    let first = lane().stop(stop).build().unwrap();
    assert!(run(&first, [ask("a")]).1.is_err(), "it is at the provider");
    drop(first);
    let (outcomes, ended) = run(&lane().build().unwrap(), due(&["a"], SHORT / 2));
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.succeeded, 1);
}
