//! `llm cancel` of a state that knows several endpoints.

mod common;

use common::server::{Creates, Server};
use common::{Ran, Yard, finish};
use serde_json::json;

const KEY: &str = "sk-ant-very-secret";

fn llm(yard: &Yard, args: &[&str]) -> Ran {
    finish(yard.program().env("ANTHROPIC_API_KEY", KEY).arg("llm").args(args), b"")
}

/// A key goes only to the address that is named, and the batches there are cancelled.
#[test]
fn batches_at_two_addresses_are_cancelled_one_address_at_a_time() {
    let yard = Yard::new();
    let (first, second) = (Server::start(Creates::NeverEnd), Server::start(Creates::NeverEnd));
    for (id, server) in [("a", &first), ("b", &second)] {
        yard.write("r.jsonl", json!({ "id": id, "model": "m", "prompt": id }).to_string());
        let args = ["run", "r.jsonl", "--provider", "anthropic", "--out", "out.jsonl"];
        // Long enough for the create on a busy machine.
        let more = ["--base-url", &server.url, "--timeout", "2s"];
        llm(&yard, &[&args[..], &more].concat()).code(3);
    }
    let cancel = |more: &[&str]| {
        llm(&yard, &[&["cancel", "--json", "--state", "out.jsonl.state"], more].concat())
    };
    let sent = |server: &Server| server.creates().len();
    cancel(&[]).refused(&["are at", &first.url, "--base-url"]);
    assert_eq!((sent(&first), sent(&second)), (1, 1));
    for (here, there) in [(&first, &second), (&second, &first)] {
        let before = sent(there);
        let ran = cancel(&["--base-url", &here.url]).code(1);
        let summary = ran.summary();
        assert_eq!((&summary["canceling"], &summary["refused"]), (&json!(1), &json!(1)));
        let refused = ran.objects().into_iter().find(|line| line["status"] == "refused");
        let message = refused.expect("a line")["message"].to_string();
        assert!(message.contains(&format!("--base-url {}", there.url)), "{message}");
        assert_eq!((sent(here), sent(there)), (2, before), "a cancel, and nothing elsewhere");
    }
}
