//! Who may ask alone, and when: what one waits for is given to nobody else, and what one model is
//! refused keeps no other back.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use common::steps::Steps;
use common::stub::{Stub, Stubbed, first, stub};
use common::{Place, ask};
use llm_batch::{
    BatchError, Builder, CreateError, Created, Draft, Entry, LaneChoice, LlmBatch, Progress,
    Request, RequestError, Stop,
};
use serde_json::value::{RawValue, to_raw_value};

/// Answers who is called `gated` when it is told to, and everybody else at once; `busy` is the name of a
/// model that takes nothing. Batches end at once, but for those that begin with `runs`.
#[derive(Debug, Default)]
struct Gated(Steps);

impl Stub for Gated {
    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        let id = first(draft);
        self.0.reach(match id {
            "runs, the last" => "creates the last",
            "slow" => "creates slowly",
            _ => "creates",
        });
        if id == "slow" {
            self.0.wait_for("may create");
        }
        let progress = if id.starts_with("runs") { Progress::Running } else { Progress::Ended };
        Ok(Created { batch_id: id.to_owned(), progress })
    }

    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        if entry.model == "busy" {
            self.0.reach("refuses");
            return Err(CreateError::Busy { message: "too many".to_owned(), retry_after: None });
        }
        if entry.id == "gated" {
            self.0.reach("asks");
            self.0.wait_for("may answer");
        }
        Ok(to_raw_value(entry.id).unwrap())
    }
}

/// What is refused is not tried again within a test.
fn settings(provider: &Arc<Stubbed<Gated>>, place: &Place) -> Builder {
    LlmBatch::builder(Arc::clone(provider) as _)
        .state(place.state())
        .linger(Duration::ZERO)
        .poll_interval(Duration::from_hours(1))
}

fn busy(id: &str) -> Request {
    Request::prompt(id, "busy", "How?")
}

/// The run was told of room and looked at it no more, so nobody was asked until the time-out.
#[test]
fn a_ticket_that_waits_behind_a_run_that_panics_is_asked_when_that_is_over() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let llm = settings(&provider, &place).lane(LaneChoice::Auto).max_concurrent(1).max_items(2);
    let llm = llm.linger(Duration::from_mins(5)).build().unwrap();
    let soon = SystemTime::now() + Duration::from_mins(10);
    let urgent = |id: &str| ask(id).with_deadline(soon);
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            let run = || llm.run(["gated", "next"].map(urgent), |_, _| panic!("the caller's"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        });
        provider.0.wait_for("asks");
        let ticket = llm.submit(urgent("ticket")).unwrap();
        let other = llm.submit(ask("other")).unwrap();
        // Before it creates a batch of the other one, their pass has asked for room.
        provider.0.wait_for("creates");
        provider.0.reach("may answer");
        run.join().unwrap();
        for (ticket, id) in [(ticket, "ticket"), (other, "other")] {
            let answer = ticket.wait_timeout(Duration::from_mins(1)).unwrap();
            assert_eq!(answer.unwrap().response.get(), format!("\"{id}\""));
        }
    });
}

/// Whoever waits behind it would have waited for its batch.
#[test]
fn room_that_comes_when_the_deadline_has_passed_goes_to_the_next_at_once() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let llm = settings(&provider, &place).lane(LaneChoice::Auto).max_concurrent(1).max_items(2);
    let llm = llm.linger(Duration::from_mins(5)).build().unwrap();
    let after = |wait| SystemTime::now() + wait;
    let submit = |requests: [Request; 2]| requests.map(|request| llm.submit(request).unwrap());
    let far = Duration::from_mins(10);
    // What has no deadline is in a batch that runs on.
    let [gated, _runs] = submit([ask("gated").with_deadline(after(far)), ask("runs")]);
    provider.0.wait_for("asks");
    let soon = after(Duration::from_millis(200));
    let [late, runs] = submit([ask("late").with_deadline(soon), ask("runs, too")]);
    let Err(BatchError::Failed(missed)) = late.wait() else { panic!("it cannot be asked") };
    assert!(matches!(*missed, RequestError::DeadlineMissed { .. }), "{missed}");
    let [next, _] = submit([ask("next").with_deadline(after(far)), ask("runs, the last")]);
    provider.0.wait_for("creates the last");
    provider.0.reach("may answer");
    for ticket in [gated, next] {
        ticket.wait_timeout(Duration::from_mins(1)).unwrap().unwrap();
    }
    assert!(runs.try_get().is_err(), "its batch runs");
}

/// All of them waited for what one was told.
#[test]
fn a_model_that_is_busy_keeps_tickets_of_no_other_back() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let stop = Stop::new();
    let llm = settings(&provider, &place).lane(LaneChoice::Sync).stop(stop.clone());
    let llm = llm.build().unwrap();
    let refused = llm.submit(busy("refused")).unwrap();
    provider.0.wait_for("refuses");
    for n in 0..20 {
        let ticket = llm.submit(ask(&n.to_string())).unwrap();
        let answer = ticket.wait_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(answer.unwrap().response.get(), format!("\"{n}\""));
    }
    stop.stop();
    assert!(refused.wait().is_err());
}

#[test]
fn a_model_that_is_busy_keeps_requests_of_no_other_back_in_the_same_run() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let stop = Stop::new();
    let llm = settings(&provider, &place).lane(LaneChoice::Sync).stop(stop.clone());
    let llm = llm.timeout(Duration::from_mins(1)).build().unwrap();
    let mut answered = 0;
    let requests = (0..9).map(|n| if n < 5 { busy(&n.to_string()) } else { ask(&n.to_string()) });
    let ended = llm.run(requests, |_, outcome| {
        outcome.unwrap();
        answered += 1;
        if answered == 4 {
            stop.stop();
        }
    });
    assert!(ended.is_err());
    assert_eq!(answered, 4);
}

/// The run held the room that the ticket waited for, and the ticket's answer was what the run waited for.
#[test]
fn a_run_may_wait_for_a_ticket_when_it_is_told_an_outcome() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let llm = settings(&provider, &place).lane(LaneChoice::Sync).max_concurrent(1);
    let llm = llm.build().unwrap();
    let mut answered = Vec::new();
    let ended = llm.run(["first", "second", "third"].map(ask), |id, outcome| {
        outcome.unwrap();
        let ticket = llm.submit(ask(&format!("after {id}"))).unwrap();
        let answer = ticket.wait_timeout(Duration::from_mins(1)).unwrap().unwrap();
        answered.push(answer.response.get().to_owned());
    });
    assert_eq!(ended.unwrap().accounting.succeeded, 3);
    answered.sort();
    assert_eq!(answered, ["\"after first\"", "\"after second\"", "\"after third\""]);
}

/// Its room was kept for it as long as its create took, and nothing was on its way.
#[test]
fn a_batch_that_is_created_keeps_nobody_from_asking() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let llm = settings(&provider, &place).lane(LaneChoice::Auto).max_concurrent(1).max_items(2);
    let llm = llm.linger(Duration::from_mins(5)).build().unwrap();
    let soon = SystemTime::now() + Duration::from_mins(10);
    let urgent = |id: &str| ask(id).with_deadline(soon);
    let submit = |requests: [Request; 2]| requests.map(|request| llm.submit(request).unwrap());
    let [asked, _runs] = submit([urgent("gated"), ask("runs")]);
    provider.0.wait_for("asks");
    // It wants to ask, and is at its create before there is room.
    let creating = submit([urgent("next"), ask("slow")]);
    provider.0.wait_for("creates slowly");
    let [other, _runs] = submit([urgent("other"), ask("runs, too")]);
    provider.0.reach("may answer");
    for ticket in [asked, other] {
        ticket.wait_timeout(Duration::from_mins(1)).unwrap().unwrap();
    }
    provider.0.reach("may create");
    for ticket in creating {
        ticket.wait_timeout(Duration::from_mins(1)).unwrap().unwrap();
    }
}
