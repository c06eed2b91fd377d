//! The key goes to the provider and nowhere else.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::{Endpoint, Faults, KEY, Place, Reply, Seen, Sim, ask, builder, open, run, settings};
use llm_batch::Error;
use llm_batch::providers::{Anthropic, AuthStyle, OpenAi};
use llm_simulator::Server;
use serde_json::json;

#[test]
fn the_key_is_in_its_header_and_the_version_beside_it() {
    let sim = Sim::start(Faults::default());
    run(&open(&sim, &Place::quick()), [ask("a")]).1.unwrap();
    for seen in sim.seen() {
        assert_eq!(seen.header("x-api-key"), Some(KEY));
        assert_eq!(seen.header("authorization"), None);
        assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(seen.header("anthropic-beta"), None);
        assert!(!seen.path.contains(KEY));
        assert!(!String::from_utf8_lossy(&seen.body).contains(KEY));
    }
}

#[test]
fn version_betas_and_auth_style_are_settings() {
    let sim = Sim::start(Faults::default());
    let provider = Anthropic::builder(KEY)
        .base_url(sim.url())
        .api_version("2026-10-21")
        .beta("one")
        .beta("two")
        .auth_style(AuthStyle::Bearer)
        .build()
        .unwrap();
    let place = Place::quick();
    let llm = settings(Arc::new(provider), &place.state()).build().unwrap();
    run(&llm, [ask("a")]).1.unwrap();
    for seen in sim.seen() {
        assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(seen.header("x-api-key"), None);
        assert_eq!(seen.header("anthropic-version"), Some("2026-10-21"));
        assert_eq!(seen.header("anthropic-beta"), Some("one,two"));
    }
}

#[test]
fn redirects_are_never_followed() {
    let bait = Server::start(|_: &Seen| Reply::json(200, &json!({"id": "msgbatch_x"}))).unwrap();
    for status in [301, 302, 303, 307, 308] {
        let target = format!("{}/v1/messages/batches", bait.url());
        let at_create = target.clone();
        let sim = Sim::start(Faults {
            refuse: Some(Box::new(move |nth, _| {
                let reply = Reply::json(status, &json!({})).with_header("location", &at_create);
                (nth == 0).then_some(reply)
            })),
            poll: Some(Box::new(move |_, _| {
                Some(Reply::json(status, &json!({})).with_header("location", &target))
            })),
            ..Faults::default()
        });
        // Refused, or, where the status leaves it open, sent again and then polled.
        let (first, ended) = run(&open(&sim, &Place::quick()), [ask("a")]);
        assert!(first.iter().all(|(_, outcome)| outcome.is_err()));
        assert_eq!(ended.is_ok(), [301, 307, 308].contains(&status), "{ended:?}");
        let (second, ended) = run(&open(&sim, &Place::quick()), [ask("b")]);
        assert!(second.is_empty());
        assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    }
    assert!(bait.seen().is_empty());
}

#[test]
fn results_are_read_from_the_base_url_whatever_the_provider_names() {
    let bait = Server::start(|_: &Seen| Reply::Drop).unwrap();
    for named in [
        json!(format!("{}/v1/messages/batches/msgbatch_0/results", bait.url())),
        json!(format!("{}@127.0.0.1:1/", bait.url())),
        json!("/v1/messages/batches/msgbatch_0/results"),
        json!("file:///etc/passwd"),
        json!(17),
        json!(null),
    ] {
        let sim = Sim::start(Faults {
            poll: Some(Box::new(move |_, _| {
                Some(Reply::json(
                    200,
                    &json!({"id": "msgbatch_0", "processing_status": "ended", "results_url": named}),
                ))
            })),
            ..Faults::default()
        });
        let place = Place::quick();
        let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
        ended.unwrap();
        common::assert_answered(&outcomes, &["a"]);
        let last = sim.seen().pop().unwrap();
        assert_eq!(last.path, "/v1/messages/batches/msgbatch_0/results");
    }
    assert!(bait.seen().is_empty());
}

#[test]
fn the_key_is_in_no_output_error_or_file() {
    let mut shown = Vec::new();
    let echo = || Reply::error(400, KEY, &format!("the key {KEY} is wrong"));
    for (create, poll) in [(true, false), (false, true), (false, false)] {
        let sim = Sim::start(Faults {
            create: Some(Box::new(move |_, _| create.then(echo))),
            poll: Some(Box::new(move |_, _| poll.then(echo))),
            ..Faults::default()
        });
        let place = Place::quick();
        let llm = open(&sim, &place);
        let provider = Anthropic::builder(KEY).base_url(sim.url());
        shown.push(format!("{provider:?} {llm:?}"));
        shown.push(format!("{:?}", provider.build().unwrap()));
        let (outcomes, ended) = run(&llm, [ask("a")]);
        shown.push(format!("{outcomes:?} {ended:?}"));
        for (_, outcome) in &outcomes {
            if let Err(error) = outcome {
                shown.push(format!("{error} {}", error.kind()));
            }
        }
        if let Err(error) = &ended {
            shown.push(error.to_string());
        }
        for entry in fs::read_dir(place.state()).unwrap() {
            shown.push(fs::read_to_string(entry.unwrap().path()).unwrap());
        }
    }
    let shown = shown.join("\n");
    assert!(shown.contains("the key [key] is wrong"), "{shown}");
    assert!(!shown.contains("SECRET"), "{shown}");
}

/// Everything that a run shows of a provider that answers with `reply` to creates or polls.
fn shown_of(reply: &Reply, to_create: bool) -> String {
    let (create, poll) = (reply.clone(), reply.clone());
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |_, _| to_create.then(|| create.clone()))),
        poll: Some(Box::new(move |nth, _| (!to_create && nth == 0).then(|| poll.clone()))),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    let mut shown = format!("{outcomes:?} {ended:?}");
    for entry in fs::read_dir(place.state()).unwrap() {
        shown.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    shown
}

/// The message was cut to its length first, and half a key was no key to be removed.
#[test]
fn a_key_at_the_cut_of_a_message_is_removed_whole() {
    for before in 480..500 {
        let message = format!("{}{KEY}", "x".repeat(before));
        let shown = shown_of(&Reply::error(400, "invalid", &message), true);
        assert!(!shown.contains("sk-"), "{before}: {shown}");
    }
}

/// What a parser says of an answer may repeat it.
#[test]
fn a_key_in_an_answer_of_another_shape_is_not_shown() {
    for to_create in [true, false] {
        for body in [serde_json::json!(KEY), serde_json::json!({"id": [KEY], KEY: 1})] {
            let shown = shown_of(&Reply::json(200, &body), to_create);
            assert!(!shown.contains("SECRET"), "{shown}");
        }
    }
}

/// Not a test by itself: what the process does that has a proxy in its environment.
#[test]
fn child() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let llm = builder(url.to_str().unwrap(), Path::new(&state)).build().unwrap();
    common::assert_answered(&run(&llm, [ask("a")]).0, &["a"]);
}

#[test]
fn a_proxy_in_the_environment_is_not_used() {
    let bait = Server::start(|_: &Seen| Reply::Drop).unwrap();
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["child", "--exact"]).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
    {
        child.env(name, bait.url());
    }
    let child = child.env("CHILD_URL", sim.url()).env("CHILD_STATE", place.state());
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sim.creates(), 1);
    assert!(bait.seen().is_empty());
}

#[test]
fn keys_and_urls_that_cannot_be_used_are_refused_without_showing_the_key() {
    for key in ["", "  ", "a\nb-SECRET", "a\u{0}SECRET"] {
        let error = Anthropic::new(key).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }));
        assert!(!error.to_string().contains("SECRET") && !format!("{error:?}").contains("SECRET"));
    }
    for url in ["http://api.example.com", "https://me:SECRET@api.example.com", "nonsense"] {
        let error = Anthropic::builder(KEY).base_url(url).build().unwrap_err();
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    let error = Anthropic::builder(KEY).api_version("a\nb").build().unwrap_err();
    assert!(error.to_string().contains("anthropic-version"), "{error}");
}

#[test]
fn answers_of_any_length_are_read_up_to_a_cap_only() {
    let long = || Reply::Full { status: 200, headers: Vec::new(), body: vec![b' '; 4 << 20] };
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |_, _| Some(long()))),
        ..Faults::default()
    });
    // What cannot be read is no batch, so it is looked for.
    let (outcomes, _) = run(&open(&sim, &Place::quick()), [ask("a")]);
    common::assert_answered(&outcomes, &["a"]);
    let sim = Sim::start(Faults {
        refuse: Some(Box::new(|_, _| {
            Some(Reply::Full { status: 400, headers: Vec::new(), body: vec![b'x'; 4 << 20] })
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).build().unwrap();
    let (outcomes, _) = run(&llm, [ask("a")]);
    assert!(outcomes[0].1.as_ref().unwrap_err().to_string().len() < 1000);
}

/// Every place at which a provider can repeat the key, in every shape: creates, polls, lists, single
/// results, lines at fault, uploads. It is removed from all that anybody sees, a panic included.
#[test]
fn a_key_that_the_provider_repeats_anywhere_is_shown_nowhere() {
    let echo = || Reply::error(400, KEY, &format!("wrong: {KEY}"));
    let line = |kind: &str| {
        let error = format!(r#"{{"type":"error","error":{{"type":"{KEY}","message":"{KEY}"}}}}"#);
        match kind {
            "anthropic" => format!(r#""result":{{"type":"errored","error":{error}}}"#),
            _ => format!(r#""response":null,"error":{{"code":"{KEY}","message":"{KEY}"}}"#),
        }
    };
    let failed = format!(
        r#"{{"id":"batch_1","status":"failed","errors":{{"data":[{{"code":"{KEY}","message":"{KEY}","line":1}}]}}}}"#
    );
    let mut shown = String::new();
    for shape in ["anthropic", "openai"] {
        for place_of_key in ["create", "upload", "list", "poll", "results", "failed", "line"] {
            let (line, failed) = (line(shape), failed.clone());
            let simulator = llm_simulator::Simulator::builder()
                .after(move |call, usual| match (call.endpoint, place_of_key) {
                    (Endpoint::Create, "create")
                    | (Endpoint::Upload, "upload")
                    | (Endpoint::List, "list")
                    | (Endpoint::Results, "results") => echo(),
                    (Endpoint::Poll, "poll") if call.nth == 0 => echo(),
                    (Endpoint::Poll, "failed") if shape == "openai" => {
                        Reply::json(200, &serde_json::from_str(&failed).unwrap())
                    }
                    (Endpoint::Results, "line") => {
                        let text = String::from_utf8_lossy(usual.body()).into_owned();
                        let id = text.split("\"custom_id\":\"").nth(1).unwrap()[..23].to_owned();
                        Reply::jsonl(&[format!(r#"{{"custom_id":"{id}",{line}}}"#)])
                    }
                    _ => usual,
                })
                .start()
                .unwrap();
            let url = simulator.url();
            let provider: Arc<dyn llm_batch::Provider> = match shape {
                "anthropic" => Arc::new(Anthropic::builder(KEY).base_url(url).build().unwrap()),
                _ => Arc::new(OpenAi::builder(KEY).base_url(url).build().unwrap()),
            };
            let place = Place::quick();
            let llm = settings(provider, &place.state())
                .list_lag(Duration::from_millis(5))
                .timeout(Duration::from_secs(1))
                .build()
                .unwrap();
            let (outcomes, ended) = run(&llm, [ask("a")]);
            for (_, outcome) in &outcomes {
                if let Err(error) = outcome {
                    write!(shown, "{error} {} ", error.kind()).unwrap();
                }
            }
            write!(shown, "{llm:?} {outcomes:?} {ended:?} {:?}", llm.accounting()).unwrap();
            shown += &ended.err().map_or(String::new(), |error| error.to_string());
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                llm.run([ask("b")], |id, outcome| panic!("{id}: {outcome:?}"))
            }));
            let panic = panic.err().and_then(|panic| panic.downcast::<String>().ok());
            shown += &panic.map_or(String::new(), |panic| *panic);
            for entry in fs::read_dir(place.state()).unwrap() {
                shown += &fs::read_to_string(entry.unwrap().path()).unwrap();
            }
        }
    }
    assert!(shown.contains("[key]"));
    assert!(!shown.contains("SECRET"), "{shown}");
}

/// A key that was read from a file with its line end, or copied with one in it, is refused, and is
/// in nothing that says so.
#[test]
fn a_key_with_a_stray_newline_is_refused_and_not_shown() {
    for key in ["sk-SECRET\n", "\nsk-SECRET", "sk-\r\nSECRET", "sk-SECRET\r"] {
        let anthropic = Anthropic::builder(key);
        let openai = OpenAi::builder(key);
        let mut shown = format!("{anthropic:?} {openai:?}");
        for error in [anthropic.build().err(), openai.build().err()] {
            let error = error.unwrap();
            write!(shown, "{error} {error:?}").unwrap();
        }
        assert!(!shown.contains("SECRET"), "{shown}");
        assert!(shown.contains("no header may hold"), "{shown}");
    }
}
