//! Shared system texts in the provider's cache.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use common::{Faults, Place, Sim, builder, run, settings};
use llm_batch::{Body, Message, Request, Role};
use serde_json::{Value, json};

fn ask(id: &str, system: &str) -> Request {
    let messages = vec![
        Message::new(Role::System, system),
        Message::new(Role::User, format!("question {id}")),
    ];
    Request::new(id, "model-a", Body::Messages(messages))
}

/// The system part of each request on the wire, in order.
fn systems(sim: &Sim) -> Vec<Value> {
    let creates = sim.bodies();
    let requests = creates.iter().flat_map(|create| create["requests"].as_array().unwrap());
    requests.map(|request| request["params"]["system"].clone()).collect()
}

#[test]
fn a_system_text_that_requests_of_a_create_share_is_marked_once_in_each_and_its_reads_are_told() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let long = "Be \"exact\".\n".repeat(500);
    let other = long.replace("exact", "brief");
    let open = |marks| builder(sim.url(), &place.state()).cache_prefixes(marks).build().unwrap();
    let raw = format!(
        r#"{{"model":"model-a","max_tokens":1,"system":{},"messages":[{{"role":"user","content":"x"}}]}}"#,
        json!(long)
    );
    let requests = || {
        let raw = Request::new("raw", "model-a", Body::raw(&raw).unwrap());
        let asks = [("a", &*long), ("b", &long), ("c", &long), ("d", &other), ("e", "short")];
        let more = [("f", "short")];
        asks.into_iter().chain(more).map(|(id, text)| ask(id, text)).chain([raw])
    };
    let counts = run(&open(true), requests()).1.unwrap().accounting;
    let marked = json!([{"type": "text", "text": long,
                         "cache_control": {"type": "ephemeral", "ttl": "1h"}}]);
    let plain = [json!(other), json!("short"), json!("short"), json!(long)];
    assert_eq!(systems(&sim)[..3], [marked.clone(), marked.clone(), marked]);
    assert_eq!(systems(&sim)[3..], plain, "one alone, short ones and raw ones stay as they are");
    let tokens = long.len() as u64 / 4;
    assert_eq!(counts.cache_read_tokens, 2 * tokens);
    assert_eq!(counts.input_tokens, 7 * 3 + 3 * tokens);
    assert_eq!(counts.groups[0].cache_read_tokens, 2 * tokens);

    // Marked or not, it is the same request: nothing is sent again.
    let again = run(&open(false), requests()).1.unwrap().accounting;
    assert_eq!((again.cache_read_tokens, sim.creates()), (2 * tokens, 1));
}

/// The length of what goes out is known before, marks included: the server reads it whole.
#[test]
fn marks_are_counted_where_creates_are_cut_at_the_limit() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let long = "x".repeat(100_000);
    let provider = llm_batch::providers::Anthropic::builder(common::KEY)
        .base_url(sim.url())
        .limits(100, 300_600)
        .build()
        .unwrap();
    let llm = settings(std::sync::Arc::new(provider), &place.state())
        .cache_prefixes(true)
        .build()
        .unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b", "c", "d"].map(|id| ask(id, &long)));
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(ended.unwrap().accounting.submissions, 2);
    for create in sim.seen().iter().filter(|seen| seen.method == "POST") {
        assert!(create.body.len() <= 300_600, "{}", create.body.len());
    }
}
