//! The state folder: damaged, foreign, newer, busy, half written.

mod common;

use std::fs;
use std::path::Path;

use common::{Faults, Place, Sim, ask, assert_answered, builder, open, run};
use llm_batch::{Error, LlmBatch};

const URL: &str = "http://127.0.0.1:9";

fn finished() -> (Sim, Place) {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    run(&open(&sim, &place), ["a", "b"].map(ask)).1.expect("it is well");
    (sim, place)
}

fn refusal(state: &Path) -> String {
    let opened: Result<LlmBatch, Error> = builder(URL, state).build();
    match opened.expect_err("it is no good") {
        Error::StateFile { path, problem } => format!("{}: {problem}", path.display()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_of_a_newer_version_are_refused_by_name() {
    for name in ["000001.intent.json", "000001.status.json", "delivered.jsonl"] {
        let (_sim, place) = finished();
        let file = place.state().join(name);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("\"version\":1", "\"version\":2", 1)).unwrap();
        let message = refusal(&place.state());
        assert!(message.contains(name) && message.contains("version 2"), "{message}");
    }
}

#[test]
fn damaged_files_are_refused_by_name() {
    for name in ["000001.intent.json", "000001.status.json", "delivered.jsonl"] {
        for damage in
            ["", "{", "[]\n", "null\n", "{\"format\":\"x\",\"version\":1}\n", "\u{0}\u{0}\n"]
        {
            if (name, damage) == ("delivered.jsonl", "")
                || (name, damage) == ("delivered.jsonl", "{")
            {
                // What a crash leaves of a log that was just begun.
                continue;
            }
            let (_sim, place) = finished();
            fs::write(place.state().join(name), damage).unwrap();
            let message = refusal(&place.state());
            assert!(message.contains(name), "{message}");
        }
    }
    let (_sim, place) = finished();
    let log = place.state().join("delivered.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("succeeded", "succ", 1)).unwrap();
    assert!(refusal(&place.state()).contains("line 2"));
}

#[test]
fn a_status_without_its_intent_is_refused() {
    let (_sim, place) = finished();
    fs::remove_file(place.state().join("000001.intent.json")).unwrap();
    assert!(refusal(&place.state()).contains("000001.intent.json"));
}

#[test]
fn a_folder_with_anything_else_in_it_is_refused_and_left_as_it_is() {
    for name in [
        "notes.txt",
        "1.intent.json",
        "000000.intent.json",
        "0000001.status.json",
        "x.tmp",
        "x.bodies.tmp",
    ] {
        let place = Place::quick();
        fs::create_dir(place.state()).unwrap();
        fs::write(place.state().join(name), "mine").unwrap();
        assert!(refusal(&place.state()).contains(name));
        assert_eq!(fs::read_dir(place.state()).unwrap().count(), 1);
    }
    let place = Place::quick();
    fs::create_dir_all(place.state().join("lock")).unwrap();
    refusal(&place.state());
}

#[test]
fn a_file_in_place_of_the_folder_is_a_clear_error() {
    let place = Place::quick();
    fs::write(place.state(), "mine").unwrap();
    let error = builder(URL, &place.state()).build().unwrap_err();
    assert!(matches!(error, Error::StateIo { .. }), "{error:?}");
    assert!(error.to_string().contains(&place.state().display().to_string()));
    assert_eq!(fs::read_to_string(place.state()).unwrap(), "mine");
}

#[test]
fn no_folder_named_is_an_error() {
    let provider = llm_batch::providers::Anthropic::new("key").unwrap();
    let opened = LlmBatch::builder(std::sync::Arc::new(provider)).build();
    assert!(matches!(opened, Err(Error::NoState)));
}

#[test]
fn what_a_crash_left_half_written_does_no_harm() {
    let (sim, place) = finished();
    // A write that was cut before its file got its name, and a torn last line.
    fs::write(place.state().join("000002.intent.json.tmp"), "{\"for").unwrap();
    fs::write(place.state().join("000001.status.json.tmp"), "").unwrap();
    // What tickets waited for is of no use to anybody any more.
    let bodies = place.state().join("000007.bodies.tmp");
    fs::write(&bodies, "{}").unwrap();
    let log = place.state().join("delivered.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, &text[..text.len() - 9]).unwrap();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    // Whether `b` was handed over is not known, so it is handed over; `c` is new.
    assert_answered(&outcomes, &["b", "c"]);
    assert!(!bodies.exists());
    assert_eq!(ended.unwrap().accounting.succeeded, 3);
    assert_eq!(sim.creates(), 2);
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert!(outcomes.is_empty());
    assert_eq!(ended.unwrap().accounting.succeeded, 3);
}

#[test]
fn a_log_that_was_just_begun_is_begun_again() {
    for rest in ["", "{\"format\":\"llm"] {
        let (sim, place) = finished();
        fs::write(place.state().join("delivered.jsonl"), rest).unwrap();
        let (outcomes, ended) = run(&open(&sim, &place), ["a", "b"].map(ask));
        assert_answered(&outcomes, &["a", "b"]);
        ended.unwrap();
        assert_eq!(sim.creates(), 1);
    }
}
