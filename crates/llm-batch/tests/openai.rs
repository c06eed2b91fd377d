//! What is peculiar to servers of OpenAI's shape.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{KEY, Place, ask, assert_answered, run, settings};
use llm_batch::providers::{OpenAi, Profile};
use llm_batch::{
    Body, Builder, Error, LaneChoice, LlmBatch, Message, Provider, Request, Role, Stop,
};
use llm_simulator::{Call, Endpoint, Reply, Seen, Simulator};
use serde_json::{Value, json};

fn open(simulator: &Simulator, place: &Place) -> LlmBatch {
    builder(simulator, place).build().unwrap()
}

fn builder(simulator: &Simulator, place: &Place) -> Builder {
    settings(common::open_ai(simulator.url(), KEY), &place.state())
}

/// The lines of every file that was uploaded.
fn lines(simulator: &Simulator) -> Vec<Value> {
    let uploads = simulator.server().seen();
    let uploads = uploads.iter().filter(|seen| seen.path == "/v1/files");
    let text = |seen: &Seen| String::from_utf8(seen.body.clone()).unwrap();
    let line = |line: &str| line.starts_with('{').then(|| serde_json::from_str(line).unwrap());
    uploads.flat_map(|seen| text(seen).lines().filter_map(line).collect::<Vec<Value>>()).collect()
}

#[test]
fn requests_go_up_as_one_line_each_whatever_their_body_looks_like() {
    let simulator = Simulator::start().unwrap();
    let raw = "{ \"model\" : \"model-a\",\r\n \"z\":1e2, \"messages\":[\n{\"role\":\"user\",\
               \"content\":\"question raw\"}] }";
    let conversation = Body::Messages(vec![
        Message::new(Role::System, "S"),
        Message::new(Role::User, "question talk"),
    ]);
    let requests = [
        Request::new("raw", "model-a", Body::raw(raw).unwrap()),
        Request::new("talk", "model-a", conversation).with_max_tokens(7),
    ];
    let (outcomes, _) = run(&open(&simulator, &Place::quick()), requests);
    assert_answered(&outcomes, &["raw", "talk"]);
    let lines = lines(&simulator);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["body"]["z"], json!(100.0));
    assert_eq!(lines[1]["method"], "POST");
    assert_eq!(
        lines[1]["body"],
        json!({
            "model": "model-a",
            "max_completion_tokens": 7,
            "messages": [
                {"role": "system", "content": "S"},
                {"role": "user", "content": "question talk"},
            ],
        })
    );
}

#[test]
fn lines_at_fault_are_ejected_and_the_rest_is_sent_again() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            // The first batch was taken, and is then refused for two of its lines.
            let Reply::Full { body, .. } = &usual else { return usual };
            let mut batch: Value = serde_json::from_slice(body).unwrap_or_default();
            let is_first = batch["id"] == "batch_1" && call.endpoint == Endpoint::Poll;
            if !is_first {
                return usual;
            }
            let fault = |line| json!({"code": "bad_line", "message": "m", "line": line});
            batch["status"] = json!("failed");
            batch["output_file_id"] = Value::Null;
            batch["request_counts"] = Value::Null;
            batch["errors"] = json!({"data": [fault(2), fault(4), fault(99)]});
            Reply::json(200, &batch)
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let ids = ["a", "b", "c", "d", "e"];
    let (outcomes, ended) = run(&open(&simulator, &place), ids.map(ask));
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed, counts.submissions), (3, 2, 2));
    let failed: Vec<&str> =
        outcomes.iter().filter(|(_, o)| o.is_err()).map(|(id, _)| id.as_str()).collect();
    assert_eq!(failed, ["b", "d"]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "bad_line");
    let counts = run(&open(&simulator, &place), ids.map(ask)).1.unwrap().accounting;
    assert_eq!((counts.submissions, simulator.count(Endpoint::Create)), (2, 2));
}

#[test]
fn a_model_that_does_not_exist_fails_its_own_requests_alone() {
    let simulator = Simulator::start().unwrap();
    let place = Place::quick();
    let bad = ["x", "y"].map(|id| Request::prompt(id, "no-such-model", "q"));
    let requests = ["a", "b"].map(ask).into_iter().chain(bad);
    let (outcomes, ended) = run(&open(&simulator, &place), requests);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed), (2, 2));
    let kinds = outcomes.iter().filter_map(|(_, o)| Some(o.as_ref().err()?.kind().to_owned()));
    assert_eq!(kinds.collect::<Vec<_>>(), ["model_not_found", "model_not_found"]);
}

#[test]
fn a_full_queue_is_waited_for() {
    let simulator = Simulator::builder().enqueued(3).running(4).start().unwrap();
    let place = Place::quick();
    let llm = settings(common::open_ai(simulator.url(), KEY), &place.state())
        .max_items(2)
        .build()
        .unwrap();
    let ids = ["a", "b", "c", "d", "e", "f"];
    let (outcomes, ended) = run(&llm, ids.map(ask));
    assert_answered(&outcomes, &ids);
    let counts = ended.unwrap().accounting;
    assert!(counts.submissions > 3, "some had to be sent again: {counts:?}");
    assert_eq!((counts.batches, simulator.paid().len()), (3, 6));
}

#[test]
fn files_that_come_later_than_the_end_are_waited_for() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            let Reply::Full { body, .. } = &usual else { return usual };
            if call.endpoint != Endpoint::Poll || call.nth > 6 {
                return usual;
            }
            let mut batch: Value = serde_json::from_slice(body).unwrap();
            batch["output_file_id"] = Value::Null;
            batch["error_file_id"] = Value::Null;
            Reply::json(200, &batch)
        })
        .start()
        .unwrap();
    let (outcomes, ended) = run(&open(&simulator, &Place::quick()), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.succeeded, 2);
}

#[test]
fn a_body_in_a_string_and_a_line_without_a_response_are_read() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            if call.endpoint != Endpoint::Results {
                return usual;
            }
            let text = String::from_utf8(usual.body().to_vec()).unwrap();
            let odd = |line: &str| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                let body = line["response"]["body"].to_string();
                line["response"]["body"] = json!(body);
                line.as_object_mut().unwrap().remove("error");
                line.to_string()
            };
            Reply::jsonl(&text.lines().map(odd).collect::<Vec<_>>())
        })
        .start()
        .unwrap();
    let (outcomes, _) = run(&open(&simulator, &Place::quick()), ["a"].map(ask));
    assert_answered(&outcomes, &["a"]);
}

/// Servers on one's own machine write them so. The line could not be read, and its request had no end
/// that said why.
#[test]
fn an_error_whose_code_is_a_number_is_told() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            if call.endpoint != Endpoint::Results {
                return usual;
            }
            let text = String::from_utf8(usual.body().to_vec()).unwrap();
            let odd = |(n, line): (usize, &str)| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                let error = json!({"code": 400, "type": null, "message": "too long"});
                match n {
                    0 => line["error"] = error,
                    _ => line["response"] = json!({"status_code": 400, "body": {"error": error}}),
                }
                line.to_string()
            };
            Reply::jsonl(&text.lines().enumerate().map(odd).collect::<Vec<_>>())
        })
        .start()
        .unwrap();
    let (outcomes, ended) = run(&open(&simulator, &Place::quick()), ["a", "b"].map(ask));
    for (_, outcome) in outcomes {
        assert_eq!(outcome.unwrap_err().to_string(), "the provider reports 400: too long");
    }
    assert_eq!(ended.unwrap().accounting.failed, 2);
}

/// An upload that was taken is used although its answer was lost; one that was not is made again.
#[test]
fn a_lost_upload_is_found_by_its_name_or_made_again_and_leaves_no_file_behind() {
    for (is_taken, uploads) in [(true, 1), (false, 2)] {
        let lose = move |call: &Call<'_>| (call.endpoint, call.nth) == (Endpoint::Upload, 0);
        let simulator = Simulator::builder()
            .before(move |call| (!is_taken && lose(call)).then_some(Reply::Drop))
            .after(move |call, usual| if lose(call) { Reply::Drop } else { usual })
            .start()
            .unwrap();
        let (outcomes, ended) = run(&open(&simulator, &Place::quick()), ["a"].map(ask));
        assert_answered(&outcomes, &["a"]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.submissions, simulator.count(Endpoint::Upload)), (1, uploads));
        assert_eq!(simulator.orphans(), [""; 0]);
    }
}

/// What was uploaded for a create that made no batch is deleted: after a refusal, after one that
/// was too large, and after a process that died between upload and create.
#[test]
fn files_of_creates_that_made_no_batch_are_deleted() {
    let refused = Simulator::builder()
        .before(|call| match call.endpoint {
            Endpoint::Create => Some(Reply::error(400, "invalid_request_error", "no")),
            _ => None,
        })
        .start()
        .unwrap();
    let (outcomes, _) = run(&open(&refused, &Place::quick()), ["a"].map(ask));
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "invalid_request_error");
    assert_eq!((refused.count(Endpoint::Upload), refused.orphans()), (1, Vec::new()));

    let halved = Simulator::builder()
        .before(|call| match (call.endpoint, call.nth) {
            (Endpoint::Create, 0) => Some(Reply::error(413, "too_large", "no")),
            _ => None,
        })
        .start()
        .unwrap();
    let (outcomes, _) = run(&open(&halved, &Place::quick()), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!((halved.count(Endpoint::Upload), halved.orphans()), (3, Vec::new()));

    // The record of an upload that nothing came after is what such a process leaves.
    let place = Place::quick();
    let stopped = Stop::new();
    let (hand, died) = (stopped.clone(), Arc::new(AtomicBool::new(false)));
    let has_died = Arc::clone(&died);
    let simulator = Simulator::builder()
        .after(move |call, usual| {
            if call.endpoint == Endpoint::Upload && !has_died.swap(true, Ordering::SeqCst) {
                hand.stop();
                return Reply::Drop;
            }
            usual
        })
        .start()
        .unwrap();
    let cut = builder(&simulator, &place).stop(stopped).build().unwrap();
    assert!(matches!(run(&cut, ["a"].map(ask)).1, Err(Error::Pending { .. })));
    drop(cut);
    assert_eq!(simulator.orphans().len(), 1);
    let (outcomes, ended) = run(&open(&simulator, &place), ["a"].map(ask));
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!((simulator.orphans(), simulator.paid().len()), (Vec::new(), 1));
}

/// Its batches never ended: their states are in capitals, and more is different about them.
#[test]
fn a_server_with_batches_of_another_shape_is_asked_one_by_one_only() {
    let simulator = Simulator::start().unwrap();
    let place = Place::quick();
    let in_lane = |lane| {
        let provider = OpenAi::builder(KEY).profile(Profile::TOGETHER).base_url(simulator.url());
        settings(Arc::new(provider.build().unwrap()), &place.state()).lane(lane).build()
    };
    for lane in [LaneChoice::Batch, LaneChoice::Auto] {
        let error = in_lane(lane).unwrap_err().to_string();
        assert!(error.ends_with("takes no batches; use the lane `sync`"), "{error}");
    }
    assert!(!place.state().exists());
    let (outcomes, _) = run(&in_lane(LaneChoice::Sync).unwrap(), [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(simulator.count(Endpoint::Create) + simulator.count(Endpoint::Upload), 0);
}

#[test]
fn profiles_differ_where_their_servers_do() {
    let of =
        |profile: Profile, url: &str| OpenAi::builder(KEY).profile(profile).base_url(url).build();
    let at = |profile| OpenAi::builder(KEY).profile(profile).build();
    assert!(at(Profile::AZURE).is_err() && at(Profile::OGX).is_err(), "they need a base URL");
    assert_eq!(at(Profile::GROQ).unwrap().limits().max_bytes, 100_000_000);
    let request = ask("a");
    let body = |profile| of(profile, "http://127.0.0.1:9").unwrap().encode(&request).unwrap();
    assert!(body(Profile::OPENAI).get().contains("max_completion_tokens"));
    assert!(body(Profile::TOGETHER).get().contains("\"max_tokens\""));
    for (url, profile) in [
        ("https://api.openai.com", Profile::OPENAI),
        ("https://acme.openai.azure.com/openai", Profile::AZURE),
        ("https://api.groq.com/openai", Profile::GROQ),
        ("https://api.together.xyz", Profile::TOGETHER),
        ("https://notgroq.com", Profile::OPENAI),
        ("http://127.0.0.1:8080", Profile::OPENAI),
    ] {
        assert_eq!(Profile::of(url), profile, "{url}");
    }
    for key in ["", " ", "a\nb"] {
        assert!(OpenAi::new(key).is_err());
    }
}
