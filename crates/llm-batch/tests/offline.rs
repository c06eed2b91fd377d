//! Recorded answers.

mod common;

use std::fs;
use std::sync::Arc;

use common::{Place, ask, run};
use llm_batch::providers::Offline;
use llm_batch::{Error, Kind, LlmBatch, Request, Status, Usage};

struct Recorded {
    place: Place,
}

impl Recorded {
    fn new(files: &[(&str, &str)]) -> Recorded {
        let place = Place::quick();
        let dir = place.path().join("answers");
        fs::create_dir(&dir).expect("the folder is new");
        for (name, text) in files {
            fs::write(dir.join(name), text).expect("the folder is writable");
        }
        Recorded { place }
    }

    fn open(&self) -> LlmBatch {
        let provider = Offline::open(self.place.path().join("answers")).expect("it was made");
        LlmBatch::builder(Arc::new(provider)).state(self.place.state()).build().expect("it opens")
    }
}

#[test]
fn each_request_gets_its_own_recording() {
    let recorded = Recorded::new(&[
        ("a.md", "answer a\n"),
        ("b.txt", "answer b"),
        ("c.json", r#"{"text":"answer c","usage":{"input_tokens":7,"output_tokens":11}}"#),
        ("d%2Fe.md", "answer d/e"),
    ]);
    let (outcomes, ended) = run(&recorded.open(), ["a", "b", "c", "d/e"].map(ask));
    let texts: Vec<_> = outcomes
        .iter()
        .map(|(_, outcome)| outcome.as_ref().unwrap().text.clone().unwrap())
        .collect();
    assert_eq!(texts, ["answer a\n", "answer b", "answer c", "answer d/e"]);
    assert_eq!(outcomes[0].1.as_ref().unwrap().usage, None);
    let usage = Some(Usage { input_tokens: 7, output_tokens: 11, ..Usage::default() });
    assert_eq!(outcomes[2].1.as_ref().unwrap().usage, usage);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.submissions, counts.batches, counts.http_calls), (1, 1, 0));
    assert_eq!((counts.input_tokens, counts.output_tokens, counts.cost), (7, 11, None));
}

#[test]
fn a_recorded_response_is_handed_on_as_it_is() {
    let response = r#"{"content": [ {"type":"text","text":"hi"} ], "usage":{"input_tokens":1,"output_tokens":2}, "x": 1e1}"#;
    let recorded = Recorded::new(&[("a.json", &format!("{{\"response\": {response}}}"))]);
    let (outcomes, _) = run(&recorded.open(), [ask("a")]);
    let answer = outcomes[0].1.as_ref().unwrap();
    assert_eq!(answer.response.get(), response);
    assert_eq!(answer.text.as_deref(), Some("hi"));
    assert_eq!(answer.usage, Some(Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() }));
}

#[test]
fn a_missing_or_unusable_recording_fails_its_own_request_and_says_which() {
    let recorded = Recorded::new(&[
        ("good.md", "fine"),
        ("refused.json", r#"{"error":{"type":"overloaded_error","message":"busy"}}"#),
        ("broken.json", "{"),
        ("unknown.json", r#"{"text":"x","usages":{}}"#),
        ("both.json", r#"{"text":"x","error":{"type":"a","message":"b"}}"#),
        ("twice.md", "x"),
        ("twice.txt", "y"),
    ]);
    let ids = ["absent", "good", "refused", "broken", "unknown", "both", "twice", "../good"];
    let (outcomes, ended) = run(&recorded.open(), ids.map(ask));
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed, counts.pending), (1, 7, 0));
    let kinds: Vec<String> = outcomes
        .iter()
        .map(|(_, outcome)| match outcome {
            Ok(_) => "answer".to_owned(),
            Err(error) => error.kind().to_owned(),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "no_recording",
            "answer",
            "overloaded_error",
            "unreadable_recording",
            "unreadable_recording",
            "unreadable_recording",
            "ambiguous_recording",
            "no_recording"
        ]
    );
    let message = outcomes[0].1.as_ref().unwrap_err().to_string();
    assert!(message.contains("absent.json") && message.contains("answers"), "{message}");
    let message = outcomes[7].1.as_ref().unwrap_err().to_string();
    assert!(message.contains("%2E.%2Fgood.json"), "{message}");
}

#[test]
fn two_runs_of_one_folder_give_the_same() {
    let files = [("a.md", "one"), ("b.md", "two"), ("c.md", "three")];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let recorded = Recorded::new(&files);
        let requests =
            [ask("a"), ask("b").with_kind(Kind::Judge), ask("c").with_kind(Kind::Planner)];
        let (outcomes, ended) = run(&recorded.open(), requests);
        assert_eq!(ended.unwrap().accounting.submissions, 3);
        let mut came: Vec<(String, String)> = outcomes
            .into_iter()
            .map(|(id, outcome)| (id, outcome.unwrap().response.get().to_owned()))
            .collect();
        came.sort();
        seen.push(came);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn the_same_folder_named_otherwise_is_the_same_provider() {
    let recorded = Recorded::new(&[("a.md", "one")]);
    run(&recorded.open(), [ask("a")]).1.unwrap();
    let dir = recorded.place.path().join("answers/../answers");
    let llm = LlmBatch::builder(Arc::new(Offline::open(dir).unwrap()))
        .state(recorded.place.state())
        .build()
        .unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert!(outcomes.is_empty());
    assert_eq!(ended.unwrap().outcomes, [("a".to_owned(), Status::Succeeded)]);
}

#[test]
fn a_folder_that_is_none_is_refused_up_front() {
    let place = Place::quick();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    for dir in [place.path().join("absent"), file] {
        let error = Offline::open(&dir).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }));
        assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    }
}

#[test]
fn unusable_requests_fail_the_same_way_as_online() {
    let recorded = Recorded::new(&[("a.md", "one")]);
    let (outcomes, _) = run(&recorded.open(), [Request::prompt("a", "", "q")]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "invalid_request");
}
