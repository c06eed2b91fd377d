//! `llm cancel` of a state that knows several endpoints.

mod common;

use std::process::{Command, Stdio};

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
        let mut program = yard.program();
        program.env("ANTHROPIC_API_KEY", KEY).args(["llm", "run", "r.jsonl", "--out", "out.jsonl"]);
        program.args(["--provider", "anthropic", "--base-url", &server.url]);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("begun");
        // It looks for the end of a batch that it knows to be there.
        server.wait_for("GET", 1);
        let pid = child.id().to_string();
        let kill = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(kill.expect("kill runs").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
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
