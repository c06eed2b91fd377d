//! A disk without room for a byte: what is at the provider comes home all the same, what cannot be
//! written down is not sent, and each ticket says which of the two it is.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::{
    Endpoint, Faults, OnCall, Place, Reply, Sim, ask, assert_answered, batch_object, builder,
    jsonl, open, run, wait_until,
};
use llm_batch::{
    BatchError, Error, LaneChoice, LlmBatch, PendingReason, Request, RequestError, Stop,
};
use serde_json::{Value, json};

const NEVER: Duration = Duration::from_hours(1);

/// Where it is noted what became of the first create.
const NOTE: &str = "000001.status.json";

/// Where a folder keeps the note from being written.
fn in_the_way(place: &Place) -> PathBuf {
    place.state().join(format!("{NOTE}.tmp"))
}

/// Replies to polls that the batch goes on until it is noted, and removes what is in the way of that.
fn makes_room(place: &Place) -> Box<OnCall> {
    let (in_the_way, note) = (in_the_way(place), place.state().join(NOTE));
    Box::new(move |_, seen| {
        let _ = fs::remove_dir(&in_the_way);
        let id = seen.path.rsplit('/').next().unwrap();
        (!note.exists()).then(|| batch_object(id, false))
    })
}

/// Takes a file where bodies are kept in one.
fn long(id: &str) -> Request {
    Request::prompt(id, "model-a", format!("{id} {}", "x".repeat(20_000)))
}

/// Not a test by itself: a process that may write into no file.
#[test]
fn child() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let settings = builder(url.to_str().unwrap(), &PathBuf::from(state)).linger(NEVER);
    let llm = settings.build().unwrap();
    let sent = ["a", "b"].map(|id| (id, llm.submit(long(id)).unwrap()));
    let new = llm.submit(long("new")).unwrap();
    let flushed = llm.flush();
    let Err(BatchError::Failed(error)) = new.wait() else { panic!("an answer") };
    let said = error.to_string();
    assert!(said.starts_with("cannot write `") && said.contains(".intent.json`"), "{said}");
    assert!(!error.may_be_paid(), "{said}");
    assert_eq!(llm.stats().in_flight, 2, "the others are at the provider");
    File::create(env::var_os("CHILD_TOLD").unwrap()).unwrap();
    flushed.wait().unwrap();
    for (id, ticket) in sent {
        assert!(ticket.wait().unwrap().text.unwrap().starts_with(&format!("answer to {id} x")));
    }
}

/// They were all told that their fate is unknown, for the sake of a file that is of no use to them, or
/// of one that could not be sent beside them. Of several in a batch only the first got its answer.
#[test]
fn what_is_at_the_provider_comes_home_and_what_is_new_is_not_sent() {
    let (place, stop) = (Place::quick(), Stop::new());
    let told = place.path().join("told");
    let is_told = told.clone();
    let sim = Sim::start(Faults {
        poll: Some(Box::new(move |_, seen| {
            (!is_told.exists()).then(|| batch_object(seen.path.rsplit('/').next().unwrap(), false))
        })),
        ..Faults::default()
    });
    let settings = builder(sim.url(), &place.state()).linger(NEVER).stop(stop.clone());
    let llm = settings.build().unwrap();
    let tickets = ["a", "b"].map(|id| llm.submit(long(id)).unwrap());
    let flushed = llm.flush();
    wait_until(|| llm.accounting().batches == 1);
    stop.stop();
    for ticket in tickets {
        let Err(BatchError::Failed(error)) = ticket.wait() else { panic!("an answer") };
        let RequestError::Pending { reason, .. } = &*error else { panic!("{error}") };
        assert_eq!(*reason, PendingReason::Stopped);
    }
    flushed.wait().unwrap();
    drop(llm);
    // The batch goes on until the one that cannot be sent is told so.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" child --exact"])
        .arg(env::current_exe().unwrap())
        .env("CHILD_URL", sim.url())
        .env("CHILD_STATE", place.state())
        .env("CHILD_TOLD", &told)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 2));
}

/// Not a test by itself: a process that may write a few kilobytes into a file.
#[test]
fn child_with_little_room() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let settings = builder(url.to_str().unwrap(), &PathBuf::from(state)).linger(NEVER);
    let settings = settings.lane(LaneChoice::Sync).max_concurrent(1);
    let llm = settings.build().unwrap();
    let tickets = ["a", "b", "c", "d", "e"].map(|id| llm.submit(long(id)).unwrap());
    llm.flush().wait().unwrap();
    let unanswered = tickets.into_iter().filter_map(|ticket| ticket.wait().err());
    let told = unanswered.map(|error| {
        let BatchError::Failed(error) = error else { panic!("{error}") };
        let said = error.to_string();
        assert!(said.contains(".answer.json") && !error.may_be_paid(), "{said}");
    });
    println!("told {}", told.count());
}

/// All of them were asked and paid for, and none of the answers was kept.
#[test]
fn once_an_answer_cannot_be_kept_nothing_more_is_asked() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let child = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 16; exec \"$0\" child_with_little_room --exact --nocapture",
        ])
        .arg(env::current_exe().unwrap())
        .env("CHILD_URL", sim.url())
        .env("CHILD_STATE", place.state())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    // Some may be on their way when it turns out that the one before cannot be kept.
    let asked = sim.simulator.count(Endpoint::Ask);
    assert!((1..5).contains(&asked), "{asked}");
    assert!(said.contains(&format!("told {}", 5 - asked)), "{asked}: {said}");
}

/// A process that is killed later would have left it of unknown fate.
#[test]
fn a_batch_that_could_not_be_noted_is_noted_once_there_is_room() {
    let place = Place::quick();
    let sim = Sim::start(Faults { poll: Some(makes_room(&place)), ..Faults::default() });
    let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
    fs::create_dir(in_the_way(&place)).unwrap();
    let answer = llm.submit(ask("a")).unwrap().wait().unwrap();
    assert_eq!(answer.text.unwrap(), "answer to question a");
    assert!(fs::read_to_string(place.state().join(NOTE)).unwrap().contains("msgbatch_0"));
}

/// What was to be sent after it was refused for as long as the batch of tickets went on.
#[test]
fn a_batch_that_was_noted_at_last_keeps_nothing_from_being_sent() {
    let place = Place::quick();
    let sim = Sim::start(Faults {
        poll: Some(makes_room(&place)),
        results: Some(Box::new(|nth, lines| {
            let mut line: Value = serde_json::from_str(&lines[0]).unwrap();
            if nth == 0 {
                line["result"] = json!({"type": "expired"});
            }
            jsonl(&[line.to_string()])
        })),
        ..Faults::default()
    });
    let llm = builder(sim.url(), &place.state()).linger(Duration::ZERO).build().unwrap();
    fs::create_dir(in_the_way(&place)).unwrap();
    let answer = llm.submit(ask("a")).unwrap().wait().unwrap();
    assert_eq!(answer.text.unwrap(), "answer to question a");
    assert_eq!(sim.creates(), 2);
}

/// Its tickets were told to come again, and would have found it running.
#[test]
fn a_batch_that_cannot_be_noted_is_waited_for_and_found_by_the_next_process() {
    for is_lost in [false, true] {
        let sim = Sim::start(Faults {
            create: Some(Box::new(move |_, _| is_lost.then_some(Reply::Drop))),
            running: 2,
            ..Faults::default()
        });
        let place = Place::quick();
        let open = || builder(sim.url(), &place.state()).linger(Duration::ZERO).build();
        let answered = |llm: &LlmBatch| llm.submit(ask("a")).unwrap().wait().unwrap();
        let llm = open().unwrap();
        let in_the_way = in_the_way(&place);
        fs::create_dir(&in_the_way).unwrap();
        assert_eq!(answered(&llm).text.unwrap(), "answer to question a");
        drop(llm);
        fs::remove_dir(&in_the_way).unwrap();
        assert!(!place.state().join(NOTE).exists());
        assert_eq!(answered(&open().unwrap()).text.unwrap(), "answer to question a");
        assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 1), "{is_lost}");
    }
}

/// It said that it went on looking when run again, which the disk would have ended at once.
#[test]
fn a_run_whose_lost_create_cannot_be_noted_says_both() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = open(&sim, &place);
    let in_the_way = in_the_way(&place);
    fs::create_dir(&in_the_way).unwrap();
    let ended = run(&llm, [ask("a")]).1;
    let Err(Error::Ambiguous { reason, .. }) = ended else { panic!("{ended:?}") };
    assert!(reason.contains(NOTE), "{reason}");
    fs::remove_dir(&in_the_way).unwrap();
    assert_answered(&run(&llm, [ask("a")]).0, &["a"]);
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 1));
}
