//! Tickets: requests from any thread, each answer to its own requester.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use common::{Endpoint, Faults, Place, Reply, Sim, Simulator, ask, builder, jsonl, open};
use llm_batch::{
    Answer, BatchError, Body, Close, Error, Kind, LaneChoice, LlmBatch, OnAmbiguous, PendingReason,
    Request, RequestError, Ticket,
};

/// Long enough never to pass in a test: what is sent is sent for another reason.
const NEVER: Duration = Duration::from_hours(1);

fn lingering(sim: &Sim, place: &Place) -> LlmBatch {
    builder(sim.url(), &place.state()).linger(NEVER).build().unwrap()
}

#[test]
fn a_new_batcher_has_nothing_queued() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = open(&sim, &place);
    assert_eq!(llm.stats().queued, 0);
    assert_eq!(llm.accounting().requests, 0);
    assert!(llm.history().is_empty());
}

#[test]
fn requests_wait_for_company() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let tickets: Vec<_> =
        ["a", "b", "c", "d", "e"].into_iter().map(|id| llm.submit(ask(id)).unwrap()).collect();
    assert_eq!(llm.stats().queued, 5);
    assert_eq!(sim.creates(), 0);
    assert!(llm.should_flush(Duration::ZERO) && !llm.should_flush(NEVER));
    llm.flush().wait().unwrap();
    assert_eq!(llm.stats().queued, 0);
    assert!(!llm.should_flush(Duration::ZERO));
    assert!(tickets.iter().all(llm_batch::Ticket::is_done));
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_full_batch_leaves_at_once() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = builder(sim.url(), &place.state()).linger(NEVER).max_items(5).build().unwrap();
    let tickets: Vec<_> = (0..10).map(|at| llm.submit(ask(&at.to_string())).unwrap()).collect();
    for (at, ticket) in tickets.into_iter().enumerate() {
        let answer = ticket.wait().unwrap();
        assert_eq!(answer.text.unwrap(), format!("answer to question {at}"));
    }
    llm.close(Close::Drain, NEVER);
    let counts = llm.accounting();
    assert_eq!((counts.requests, counts.batches, counts.calls_saved), (10, 2, 8));
    assert_eq!(llm.stats().items_per_call(), Some(5.0));
    let past = llm.history();
    assert_eq!(past.len(), 2);
    assert!(past.iter().all(|batch| (batch.items, batch.completed, batch.failed) == (5, 5, 0)));
}

#[test]
fn ten_go_together_by_default() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let tickets: Vec<_> = (0..10).map(|at| llm.submit(ask(&at.to_string())).unwrap()).collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(sim.creates(), 1);
}

#[test]
fn kinds_and_models_never_share_a_batch() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let mut tickets = Vec::new();
    for at in 0..5 {
        let kind = if at < 3 { Kind::Implementer } else { Kind::Judge };
        tickets.push(llm.submit(ask(&at.to_string()).with_kind(kind)).unwrap());
    }
    let other = Request::prompt("5", "model-b", "question 5").with_kind(Kind::Judge);
    tickets.push(llm.submit(other).unwrap());
    llm.flush().wait().unwrap();
    for (at, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().text.unwrap(), format!("answer to question {at}"));
    }
    let mut sizes: Vec<usize> =
        sim.bodies().iter().map(|body| body["requests"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 3]);
    let mut keys: Vec<_> = llm.history().into_iter().map(|batch| batch.key).collect();
    keys.sort();
    assert_eq!(keys[0], (Kind::Implementer, "model-a".to_owned()));
    assert_eq!(keys.len(), 3);
}

#[test]
fn results_out_of_order_reach_the_thread_that_asked() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, mut lines| {
            lines.reverse();
            jsonl(&lines)
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let llm = &llm;
            scope.spawn(move || {
                for at in 0..5 {
                    let id = format!("{thread}/{at}");
                    let answer = llm.submit(ask(&id)).unwrap().wait().unwrap();
                    assert_eq!(answer.text.unwrap(), format!("answer to question {id}"));
                }
            });
        }
    });
    llm.close(Close::Drain, NEVER);
    assert_eq!(llm.accounting().succeeded, 40);
    assert_eq!(llm.stats().completed, 40);
}

#[test]
fn an_answer_does_not_wait_for_the_slowest_of_its_batch() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|nth, lines| match nth {
            // The second line never comes in the first download, which hangs open.
            0 => {
                let announced = lines[0].len() + lines[1].len() + 2;
                let body = format!("{}\n", lines[0]).into_bytes();
                Reply::CutShort { body, announced }
            }
            _ => jsonl(&lines),
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = lingering(&sim, &place);
    let (one, two) = (llm.submit(ask("a")).unwrap(), llm.submit(ask("b")).unwrap());
    let flush = llm.flush();
    assert_eq!(one.wait().unwrap().text.unwrap(), "answer to question a");
    assert_eq!(two.wait().unwrap().text.unwrap(), "answer to question b");
    flush.wait().unwrap();
}

#[test]
fn a_failed_batch_tells_every_requester() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::error(400, "invalid_request_error", "no")))),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = lingering(&sim, &place);
    let tickets = ["a", "b"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    for ticket in tickets {
        let Err(BatchError::Failed(error)) = ticket.wait() else { panic!("an answer") };
        assert!(matches!(*error, RequestError::Refused { status: Some(400), .. }));
    }
    assert_eq!(llm.history()[0].failed, 2);
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_request_without_an_id_gets_one_of_its_own() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let tickets: Vec<_> = (0..9)
        .map(|at| llm.submit(Request::prompt("", "model-a", format!("question {at}"))).unwrap())
        .collect();
    llm.flush().wait().unwrap();
    for (at, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().text.unwrap(), format!("answer to question {at}"));
    }
    assert_eq!(sim.creates(), 1);
}

#[test]
fn two_requests_of_one_id_are_not_both_sent() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let [first, second] = ["a", "a"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    assert_eq!(first.wait().unwrap().text.unwrap(), "answer to question a");
    let Err(BatchError::Failed(error)) = second.wait() else { panic!("an answer") };
    assert!(error.to_string().contains("in flight"), "{error}");
    assert_eq!(sim.bodies()[0]["requests"].as_array().unwrap().len(), 1);
}

#[test]
fn an_id_with_another_content_fails_alone() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let known = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    known.wait().unwrap();
    let changed = llm.submit(Request::prompt("a", "model-a", "another")).unwrap();
    let fresh = llm.submit(ask("b")).unwrap();
    llm.flush().wait().unwrap();
    assert_eq!(fresh.wait().unwrap().text.unwrap(), "answer to question b");
    let Err(BatchError::Failed(error)) = changed.wait() else { panic!("an answer") };
    assert!(error.to_string().contains("`a`"), "{error}");
    assert_eq!(sim.creates(), 2);
}

#[test]
fn a_request_that_was_sent_before_gets_its_answer_without_a_second_create() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    for _ in 0..3 {
        let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
        let answer = llm.submit(ask("a")).unwrap().wait().unwrap();
        assert_eq!(answer.text.unwrap(), "answer to question a");
    }
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_ticket_whose_wait_ended_says_that_it_is_pending() {
    let sim = Sim::start(Faults { running: usize::MAX, ..Faults::default() });
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state())
        .linger(Duration::ZERO)
        .timeout(Duration::from_secs(3))
        .poll_interval(Duration::from_millis(50))
        .build()
        .unwrap();
    let Err(BatchError::Failed(error)) = llm.submit(ask("a")).unwrap().wait() else {
        panic!("an answer")
    };
    let RequestError::Pending { state, reason } = &*error else { panic!("{error}") };
    assert_eq!((state, reason), (&place.state(), &PendingReason::TimedOut));
    assert_eq!(sim.creates(), 1);
}

/// It was told to come again, and not why: with the same key, or on the same disk, that is for ever.
#[test]
fn a_ticket_that_is_not_finished_says_why() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| (nth == 1).then_some(Reply::Drop))),
        list: Some(Box::new(|_, _| Some(Reply::error(403, "permission_error", "no lists")))),
        poll: Some(Box::new(|_, _| Some(Reply::error(401, "authentication_error", "who?")))),
        ..Faults::default()
    });
    let place = Place::quick();
    let check = |why: &str, ticket: Ticket<Answer, RequestError>| {
        let Err(BatchError::Failed(error)) = ticket.wait() else { panic!("an answer") };
        let said = error.to_string();
        assert!(said.contains(why) && said.contains("submit it again with the state in"), "{said}");
        assert!(error.may_be_paid());
    };
    let each = [("a", "batch `msgbatch_0`"), ("b", "no lists"), ("c", "batch `msgbatch_2`")];
    let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
    for (id, why) in each {
        check(why, llm.submit(ask(id)).unwrap());
    }
    drop(llm);
    // In one batch of tickets each was told the reason of the first.
    let llm = lingering(&sim, &place);
    let tickets = each.map(|(id, why)| (why, llm.submit(ask(id)).unwrap()));
    let flushed = llm.flush();
    for (why, ticket) in tickets {
        check(why, ticket);
    }
    flushed.wait().unwrap();
    assert_eq!(sim.creates(), 3);
}

/// Both were told that what is asked one by one cannot be looked for.
#[test]
fn what_is_lost_alone_and_what_is_lost_in_a_batch_are_told_each_its_own() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Ask | Endpoint::Create => Reply::Drop,
            Endpoint::List => Reply::error(403, "permission_error", "no lists"),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let settings = builder(simulator.url(), &place.state()).linger(NEVER).lane(LaneChoice::Auto);
    let llm = settings.build().unwrap();
    let soon = SystemTime::now() + Duration::from_mins(30);
    let tickets = [ask("alone").with_deadline(soon), ask("in a batch")].map(|ask| llm.submit(ask));
    llm.flush().wait().unwrap();
    let [alone, batched] = tickets.map(|ticket| {
        let Err(BatchError::Failed(error)) = ticket.unwrap().wait() else { panic!("an answer") };
        assert!(matches!(&*error, RequestError::Ambiguous { .. }), "{error}");
        error.to_string()
    });
    assert!(alone.contains("one by one") && !alone.contains("no lists"), "{alone}");
    assert!(batched.contains("no lists") && !batched.contains("one by one"), "{batched}");
    assert_eq!((simulator.count(Endpoint::Ask), simulator.count(Endpoint::Create)), (1, 1));
}

/// One damaged file kept everything that was behind it away, for ever.
#[test]
fn an_answer_that_cannot_be_read_keeps_no_other_away() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let ids = ["a", "b", "c"];
    let open = || {
        let settings = builder(sim.url(), &place.state()).linger(NEVER).lane(LaneChoice::Sync);
        settings.max_concurrent(1).build().unwrap()
    };
    let all = |llm: &LlmBatch, ids: &[&str]| {
        let tickets: Vec<_> = ids.iter().map(|id| llm.submit(ask(id)).unwrap()).collect();
        llm.flush().wait().unwrap();
        tickets.into_iter().map(Ticket::wait).collect::<Vec<_>>()
    };
    assert!(all(&open(), &ids).iter().all(Result::is_ok));
    std::fs::write(place.state().join("000001.answer.json"), "{").unwrap();
    let answers = all(&open(), &["a", "b", "c", "new"]);
    let Err(BatchError::Failed(error)) = &answers[0] else { panic!("an answer") };
    assert!(error.to_string().contains("000001.answer.json"), "{error}");
    assert!(error.may_be_paid());
    let texts: Vec<_> =
        answers[1..].iter().map(|a| a.as_ref().unwrap().text.clone().unwrap()).collect();
    assert_eq!(texts, ["b", "c", "new"].map(|id| format!("answer to question {id}")));
    assert_eq!(sim.simulator.count(Endpoint::Ask), 4);
}

#[test]
fn closing_sends_what_waits_and_refuses_what_comes_later() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let ticket = llm.submit(ask("a")).unwrap();
    let report = llm.close(Close::Drain, NEVER);
    assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
    assert_eq!(ticket.wait().unwrap().text.unwrap(), "answer to question a");
    let refused = llm.submit(ask("b")).unwrap_err();
    assert_eq!(refused.into_parts().0.into_request().id, "b");
}

#[test]
fn an_abort_hands_back_what_was_not_sent_and_its_requester_is_told() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let ticket = llm.submit(ask("a")).unwrap();
    let report = llm.close(Close::Abort, NEVER);
    let (_, unsent) = report.leftovers.into_iter().next().unwrap();
    assert_eq!(unsent.id(), "a");
    assert!(matches!(unsent.into_request().body, Body::Prompt(text) if text == "question a"));
    assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
    assert_eq!(llm.stats().queued, 0);
    assert_eq!(sim.creates(), 0);
}

#[test]
fn what_is_sent_and_not_answered_counts_as_in_flight() {
    let (arrived, at_create) = mpsc::channel();
    let (go_on, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |_, _| {
            arrived.send(()).unwrap();
            hold.lock().unwrap().recv().unwrap();
            None
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = lingering(&sim, &place);
    let begun = Instant::now();
    let ticket = llm.submit(ask("a")).unwrap();
    let flush = llm.flush();
    at_create.recv().unwrap();
    let stats = llm.stats();
    assert_eq!((stats.queued, stats.in_flight, stats.calls), (0, 1, 1));
    assert!(llm.time_since_last_flush() <= begun.elapsed());
    assert!(!ticket.is_done());
    go_on.send(()).unwrap();
    flush.wait().unwrap();
    let stats = llm.stats();
    assert_eq!((stats.in_flight, stats.completed), (0, 1));
}

#[test]
fn tokens_are_added_up() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = lingering(&sim, &place);
    let tickets = ["a", "b"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    for ticket in tickets {
        let usage = ticket.wait().unwrap().usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (3, 5));
    }
    let counts = llm.accounting();
    assert_eq!((counts.input_tokens, counts.output_tokens), (6, 10));
}

#[test]
fn one_folder_serves_one_batcher_at_a_time() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = open(&sim, &place);
    let second = builder(sim.url(), &place.state()).build();
    let holder = Some(std::process::id());
    assert!(
        matches!(&second, Err(Error::StateBusy { process, .. }) if *process == holder),
        "{second:?}"
    );
    drop(llm);
    builder(sim.url(), &place.state()).build().unwrap();
}

#[test]
fn a_dropped_batcher_lets_go_of_its_folder_when_its_tickets_are_done() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    for at in 0..20 {
        let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
        llm.submit(ask(&at.to_string())).unwrap().wait().unwrap();
    }
    assert_eq!(sim.creates(), 20);
}

#[test]
fn a_batcher_is_shared_between_threads() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<LlmBatch>();
    assert_shared::<Arc<dyn llm_batch::Provider>>();
}

/// Only a run said so, and who holds tickets has no run.
#[test]
fn tickets_that_may_be_paid_for_twice_are_counted_once_each() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| (nth == 0).then_some(Reply::Drop))),
        // The list is behind: both are paid for.
        list_lag: 9,
        ..Faults::default()
    });
    let place = Place::quick();
    let settings = || builder(sim.url(), &place.state()).on_ambiguous(OnAmbiguous::Resubmit);
    let llm = settings().list_lag(NEVER).linger(NEVER).build().unwrap();
    let tickets = ["a", "b"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(sim.simulator.paid().len(), 4);
    assert_eq!(llm.accounting().possibly_paid_twice, 2);
    let again = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    again.wait().unwrap();
    assert_eq!(llm.accounting().possibly_paid_twice, 2);
    drop(llm);
    // What another process did is not in the counts of this one.
    let llm = settings().linger(NEVER).build().unwrap();
    let again = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    again.wait().unwrap();
    assert_eq!(llm.accounting().possibly_paid_twice, 0);
}

#[test]
fn a_ticket_that_is_asked_again_and_again_is_counted_once() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Ask if call.nth < 3 => Reply::Drop,
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let settings = builder(simulator.url(), &place.state()).lane(LaneChoice::Sync);
    let llm = settings.sync_retry(true).linger(Duration::ZERO).build().unwrap();
    llm.submit(ask("a")).unwrap().wait().unwrap();
    let counts = llm.accounting();
    assert_eq!((counts.possibly_paid_twice, counts.submissions), (1, 4));
}
