//! Runs: grouping, splitting, what goes out, what comes back and to whom.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{
    Faults, KEY, Place, Seen, Sim, ask, assert_answered, builder, jsonl, open, run, settings,
};
use llm_batch::providers::Anthropic;
use llm_batch::{
    Body, Error, Kind, Message, PendingReason, Request, RequestError, Role, Status, Usage,
};

#[test]
fn three_requests_of_one_kind_and_model_are_one_create() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let ids = ["a", "b", "c"];
    let requests = ids.map(|id| ask(id).with_kind(Kind::Implementer));
    let (outcomes, ended) = run(&open(&sim, &place), requests);
    assert_answered(&outcomes, &ids);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.requests, counts.succeeded, counts.failed, counts.pending), (3, 3, 0, 0));
    assert_eq!((counts.batches, counts.submissions, counts.calls_saved), (1, 1, 2));
    assert_eq!((counts.input_tokens, counts.output_tokens, counts.cost), (9, 15, None));
    // One look at the list before the create, one create, one poll, one download.
    assert_eq!(counts.http_calls, 4);
    assert_eq!(sim.seen().len(), 4);
}

#[test]
fn mixed_kinds_and_models_are_one_create_each() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let mut requests = Vec::new();
    for id in 0..12 {
        let kind = [Kind::Implementer, Kind::Judge, Kind::Planner][id % 3].clone();
        let model = if id < 6 { "model-a" } else { "model-b" };
        let prompt = format!("question {id}");
        requests.push(Request::prompt(id.to_string(), model, prompt).with_kind(kind));
    }
    let ids: Vec<String> = requests.iter().map(|request| request.id.clone()).collect();
    let (outcomes, ended) = run(&open(&sim, &place), requests);
    assert_answered(&outcomes, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ended.unwrap().accounting.submissions, 6);
    for body in sim.bodies() {
        let requests = body["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0]["params"]["model"], requests[1]["params"]["model"]);
    }
}

#[test]
fn the_callers_ids_never_go_on_the_wire() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let ids = ["täsk/№1", "a\nb", "../../etc/passwd", &"long".repeat(100), "\"}", "1"];
    let requests = ids.map(|id| Request::prompt(id, "model-a", "q"));
    let (outcomes, ended) = run(&open(&sim, &place), requests);
    assert_eq!(ended.unwrap().accounting.succeeded, 6);
    let mut got: Vec<&str> = outcomes.iter().map(|(id, _)| id.as_str()).collect();
    got.sort_unstable();
    let mut expected = ids;
    expected.sort_unstable();
    assert_eq!(got, expected);
    for request in sim.bodies()[0]["requests"].as_array().unwrap() {
        assert_eq!(request.as_object().unwrap().len(), 2);
        let id = request["custom_id"].as_str().unwrap();
        assert_eq!(id.len(), llm_batch::CUSTOM_ID_LEN);
        assert!(id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'), "{id}");
    }
}

#[test]
fn results_in_any_order_reach_their_own_requester() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, mut lines| {
            lines.reverse();
            lines.swap(0, 2);
            jsonl(&lines)
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let ids = ["a", "b", "c", "d", "e"];
    let (outcomes, ended) = run(&open(&sim, &place), ids.map(ask));
    assert_answered(&outcomes, &ids);
    assert_eq!(outcomes[0].0, "c", "outcomes come in order of arrival");
    let in_order: Vec<String> = ended.unwrap().outcomes.into_iter().map(|(id, _)| id).collect();
    assert_eq!(in_order, ids);
}

#[test]
fn repeated_foreign_and_broken_lines_reach_nobody() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            let foreign = |id: &str| lines[0].replace(&lines[0][14..37], id);
            let shown = vec![
                "{\"custom_id\": 7}".to_owned(),
                foreign("0000000000000000-000000"),
                foreign(
                    &lines[0][14..31]
                        .to_owned()
                        .replace(&lines[0][30..31], "-")
                        .chars()
                        .chain("999999".chars())
                        .collect::<String>(),
                ),
                lines[1].clone(),
                lines[1].replace("question b", "question x"),
                String::new(),
                "not json".to_owned(),
                lines[0].clone(),
            ];
            jsonl(&shown)
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().stray_results, 5);
}

/// A result that the provider counts as answered is paid for: it is never given up. One that it
/// does not count was not, and is reported.
#[test]
fn a_missing_result_is_looked_for_again_and_then_reported() {
    for (found_at, is_counted) in [(1, true), (99, true), (99, false)] {
        let sim = Sim::start(Faults {
            results: Some(Box::new(move |nth, mut lines| {
                if nth < found_at {
                    lines.remove(1);
                }
                jsonl(&lines)
            })),
            poll: (!is_counted).then_some(Box::new(|_, seen: &Seen| {
                let id = seen.path.rsplit('/').next().unwrap();
                Some(common::batch_object(id, true))
            }) as _),
            ..Faults::default()
        });
        let place = Place::quick();
        let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
        match (found_at, ended) {
            (1, ended) => {
                assert_answered(&outcomes, &["a", "b", "c"]);
                assert_eq!(ended.unwrap().stray_results, 0);
            }
            (_, Err(Error::Pending { reason, run, .. })) if is_counted => {
                assert_answered(&outcomes, &["a", "c"]);
                let batch_id = "msgbatch_0".to_owned();
                assert_eq!(reason, PendingReason::Incomplete { batch_id, missing: 1 });
                assert_eq!(run.accounting.pending, 1);
            }
            (_, ended) => {
                assert_answered(&outcomes[..2], &["a", "c"]);
                let error = outcomes[2].1.as_ref().unwrap_err();
                assert_eq!(error.kind(), "missing_result");
                assert!(error.to_string().contains("msgbatch_0"), "{error}");
                assert_eq!(ended.unwrap().stray_results, 0);
            }
        }
        assert_eq!(sim.creates(), 1);
    }
}

#[test]
fn errored_expired_and_cancelled_results_say_so_in_either_shape() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            let id = |at: usize| lines[at][14..37].to_owned();
            let result = |at: usize, result: &str| {
                format!("{{\"custom_id\":\"{}\",\"result\":{result}}}", id(at))
            };
            let shown = [
                result(
                    0,
                    r#"{"type":"errored","error":{"type":"error","error":{"type":"invalid_request","message":"m1"},"request_id":"r"}}"#,
                ),
                result(1, r#"{"type":"errored","error":{"type":"api_error","message":"m2"}}"#),
                result(2, r#"{"type":"expired"}"#),
                result(3, r#"{"type":"canceled"}"#),
                result(4, r#"{"type":"a_new_type"}"#),
                result(5, r#"{"type":"errored"}"#),
            ];
            jsonl(&shown)
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).attempts(1).build().unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b", "c", "d", "e", "f"].map(ask));
    let errors: Vec<(String, Status, String)> = outcomes
        .into_iter()
        .map(|(_, outcome)| outcome.unwrap_err())
        .map(|error| (error.kind().to_owned(), error.status(), error.to_string()))
        .collect();
    let error = |kind: &str, status, text: &str| (kind.to_owned(), status, text.to_owned());
    assert_eq!(
        errors,
        [
            error("invalid_request", Status::Errored, "the provider reports invalid_request: m1"),
            error("api_error", Status::Errored, "the provider reports api_error: m2"),
            error("expired", Status::Expired, "the provider did not run the request in time"),
            error("canceled", Status::Canceled, "the request was cancelled at the provider"),
            error(
                "unknown_result",
                Status::Errored,
                "the provider reports unknown_result: the result has the type `a_new_type`"
            ),
            error(
                "unknown_error",
                Status::Errored,
                "the provider reports unknown_error: no reason given"
            ),
        ]
    );
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.failed, counts.pending), (6, 0));
}

#[test]
fn groups_are_cut_at_the_providers_limits_and_an_oversize_request_fails_alone() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let provider = Anthropic::builder(KEY).base_url(sim.url()).limits(4, 700).build().unwrap();
    let llm = settings(Arc::new(provider), &place.state()).build().unwrap();
    let big = Request::prompt("big", "model-a", "x".repeat(700));
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let (outcomes, ended) = run(&llm, std::iter::once(big).chain(ids.map(ask)));
    assert_eq!(outcomes[0].0, "big");
    let error = outcomes[0].1.as_ref().unwrap_err();
    assert!(matches!(error, RequestError::TooLarge { bytes: 701.., max: 700 }), "{error:?}");
    assert_answered(&outcomes[1..], &ids);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed, counts.submissions), (9, 1, 3));
    let posts = sim.seen().into_iter().filter(|seen| seen.method == "POST");
    for post in posts {
        assert!(post.body.len() <= 700);
        assert_eq!(post.header("content-length"), Some(post.body.len().to_string().as_str()));
    }
}

#[test]
fn a_raw_body_goes_out_byte_for_byte() {
    let raw = r#"{ "model" : "model-a","max_tokens":1e2, "z":1,"a":[ "\u00e9" ],
        "messages":[{"role":"user","content":"question a"}] }"#;
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let (outcomes, ended) =
        run(&open(&sim, &place), [Request::new("a", "model-a", Body::raw(raw).unwrap())]);
    ended.unwrap();
    assert_answered(&outcomes, &["a"]);
    let post = sim.seen().into_iter().find(|seen| seen.method == "POST").unwrap();
    let body = String::from_utf8(post.body).unwrap();
    assert!(body.contains(&format!("\"params\":{raw}}}")), "{body}");
}

#[test]
fn a_request_that_cannot_be_sent_fails_alone() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let raw = |id: &str, json: &str| Request::new(id, "model-a", Body::raw(json).unwrap());
    let chat =
        |id: &str, messages: Vec<Message>| Request::new(id, "model-a", Body::Messages(messages));
    let requests = [
        raw("other model", r#"{"model":"model-b"}"#),
        raw("no model", "{}"),
        raw("no object", r#"["model-a"]"#),
        raw("streams", r#"{"model":"model-a","stream":true}"#),
        chat("nobody asks", vec![Message::new(Role::System, "s")]),
        chat("late system", vec![Message::new(Role::User, "u"), Message::new(Role::System, "s")]),
        Request::prompt("nothing wanted", "model-a", "q").with_max_tokens(0),
        Request::prompt("nobody is asked", "", "q"),
        ask("good"),
    ];
    let (outcomes, ended) = run(&open(&sim, &place), requests);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed, counts.submissions), (1, 8, 1));
    assert_answered(&outcomes[8..], &["good"]);
    for (id, outcome) in &outcomes[..8] {
        assert_eq!(outcome.as_ref().unwrap_err().kind(), "invalid_request", "{id}");
    }
    assert_eq!(sim.bodies()[0]["requests"].as_array().unwrap().len(), 1);
}

#[test]
fn messages_go_out_with_the_system_part_in_its_own_place() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let blocks = serde_json::value::to_raw_value(&[BTreeMap::from([("type", "text")])]).unwrap();
    let body = Body::Messages(vec![
        Message::new(Role::System, "one"),
        Message::new(Role::System, "two"),
        Message::new(Role::User, "question a"),
        Message::blocks(Role::Assistant, blocks),
    ]);
    let request = Request::new("a", "model-a", body).with_max_tokens(77);
    let (outcomes, _) = run(&open(&sim, &place), [request]);
    assert_answered(&outcomes, &["a"]);
    let params = &sim.bodies()[0]["requests"][0]["params"];
    assert_eq!(params["system"], "one\n\ntwo");
    assert_eq!(params["max_tokens"], 77);
    assert_eq!(params["messages"][0]["role"], "user");
    assert_eq!(params["messages"][1]["content"][0]["type"], "text");
    assert_eq!(params["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn repeated_and_empty_ids_are_refused_before_anything_is_sent() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let llm = open(&sim, &place);
    assert!(matches!(run(&llm, ["a", "b", "a"].map(ask)).1,
        Err(Error::DuplicateId { id }) if id == "a"));
    assert!(matches!(run(&llm, [ask("a"), ask("")]).1, Err(Error::EmptyId)));
    assert!(sim.seen().is_empty());
    let (outcomes, ended) = run(&llm, []);
    assert!(outcomes.is_empty());
    assert_eq!(ended.unwrap().accounting.requests, 0);
}

#[test]
fn an_overlong_line_is_skipped_and_the_others_arrive() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            let long = lines[1].replace("question", &"x".repeat(5000));
            jsonl(&[lines[0].clone(), long, lines[2].clone()])
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let provider = Anthropic::builder(KEY).base_url(sim.url()).max_line(1000).build().unwrap();
    let llm = settings(Arc::new(provider), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b", "c"].map(ask));
    assert_answered(&outcomes[..2], &["a", "c"]);
    assert!(matches!(outcomes[2].1, Err(RequestError::Missing { .. })));
    assert_eq!(ended.unwrap().stray_results, 3);
}

#[test]
fn a_response_is_handed_on_as_it_came() {
    let message = r#"{ "content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"one \u2028"},{"type":"text","text":" two"}],"n":1e3,"usage":{"input_tokens":1,"cache_read_input_tokens":10,"cache_creation_input_tokens":null,"output_tokens":2}}"#;
    let sim = Sim::start(Faults {
        results: Some(Box::new(move |_, lines| {
            let id = &lines[0][14..37];
            jsonl(&[format!(
                "{{\"custom_id\":\"{id}\",\"result\":{{\"type\":\"succeeded\",\"message\":{message}}},\"new\":1}}\r"
            )])
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, _) = run(&open(&sim, &place), [ask("a")]);
    let answer = outcomes[0].1.as_ref().unwrap();
    assert_eq!(answer.response.get(), message);
    assert_eq!(answer.text.as_deref(), Some("one \u{2028} two"));
    assert_eq!(
        answer.usage,
        Some(Usage {
            input_tokens: 11,
            output_tokens: 2,
            cache_read_tokens: 10,
            ..Usage::default()
        })
    );
}

/// Counts that no honest provider sends neither end the process nor come out as small ones.
#[test]
fn token_counts_beyond_what_can_be_added_up_are_kept_at_the_end() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            let huge = |line: String| {
                let huge = format!("{}, \"cache_read_input_tokens\":{0}", u64::MAX);
                line.replace("\"input_tokens\":3", &format!("\"input_tokens\":{huge}"))
            };
            jsonl(&lines.into_iter().map(huge).collect::<Vec<_>>())
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.input_tokens, u64::MAX);
}
