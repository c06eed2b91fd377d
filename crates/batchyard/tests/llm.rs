//! `llm run` against a provider on loopback, and offline.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use common::server::{Creates, Server};
use common::{Ran, Yard, finish};
use serde_json::{Value, json};

const KEY: &str = "sk-ant-very-secret";

fn command(yard: &Yard, server: &Server) -> Command {
    let mut command = yard.program();
    command.env("ANTHROPIC_API_KEY", KEY);
    let args = ["llm", "run", "r.jsonl", "--provider", "anthropic", "--out", "out.jsonl", "--json"];
    command.args(args).args(["--base-url", &server.url, "--poll-interval", "10ms"]);
    command
}

fn run(yard: &Yard, server: &Server) -> Ran {
    let ran = finish(&mut command(yard, server), b"");
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "the key leaked: {ran:?}");
    for (path, content) in yard.everything(".") {
        let found = content.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!found, "the key is in {}", path.display());
    }
    ran
}

fn results(yard: &Yard) -> Vec<Value> {
    yard.read("out.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a result line"))
        .collect()
}

fn requests(list: &[(&str, &str, &str)]) -> String {
    let line = |(id, kind, model): &(&str, &str, &str)| {
        json!({ "id": id, "kind": kind, "model": model, "prompt": format!("prompt of {id}") })
            .to_string()
            + "\n"
    };
    list.iter().map(line).collect()
}

#[test]
fn one_create_for_each_kind_and_model_and_each_answer_to_its_request() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write(
        "r.jsonl",
        requests(&[
            ("i/1", "implementer", "m1"),
            ("i 2", "implementer", "m1"),
            ("日", "implementer", "m1"),
            ("j", "judge", "m1"),
            ("k", "judge", "m2"),
        ]),
    );
    let summary = run(&yard, &server).code(0).summary();
    assert_eq!(server.creates().len(), 3);
    assert_eq!((&summary["requests"], &summary["succeeded"]), (&json!(5), &json!(5)));
    assert_eq!((&summary["submissions"], &summary["calls_saved"]), (&json!(3), &json!(2)));
    assert_eq!((&summary["input_tokens"], &summary["output_tokens"]), (&json!(50), &json!(25)));
    assert_eq!(summary["http_calls"], json!(server.seen().len()));
    for key in ["failed", "pending", "batches", "cost", "possibly_paid_twice"] {
        assert!(summary.get(key).is_some(), "{key}: {summary}");
    }
    let found = results(&yard);
    assert_eq!(found.len(), 5);
    for line in &found {
        let id = line["id"].as_str().expect("an id");
        assert_eq!(line["text"], format!("answer to prompt of {id}"));
        assert_eq!(line["status"], "succeeded");
        assert_eq!(line["usage"], json!({ "input_tokens": 10, "output_tokens": 5 }));
        assert_eq!(line["response"]["type"], "message");
    }
    for create in server.creates() {
        assert!(create.headers.iter().any(|(_, value)| value.contains(KEY)));
        for request in create.json()["requests"].as_array().expect("requests") {
            let on_wire = request["custom_id"].as_str().expect("an id");
            assert!(!["i/1", "i 2", "日", "j", "k"].contains(&on_wire), "{on_wire}");
        }
    }
    // The same again sends nothing and says the same.
    let before = server.seen().len();
    let again = run(&yard, &server).code(0).summary();
    assert_eq!(server.seen().len(), before);
    assert_eq!(again["submissions"], 3);
    assert_eq!(results(&yard).len(), 5);
}

#[test]
fn bodies_pass_through_unchanged() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    let body = json!({ "model": "m", "max_tokens": 7, "tools": [{ "name": "t" }],
                       "messages": [{ "role": "user", "content": "x" }], "temperature": 1.0 });
    let messages =
        json!([{ "role": "system", "content": "S" }, { "role": "user", "content": "U" }]);
    let lines = [
        json!({ "id": "raw", "model": "m", "body": body }),
        json!({ "id": "talk", "model": "m", "messages": messages, "max_tokens": 9,
                "metadata": { "n": 1 } }),
    ];
    yard.write("r.jsonl", format!("{}\n{}", lines[0], lines[1]));
    run(&yard, &server).code(0);
    let creates: Vec<Value> = server.creates().iter().map(llm_simulator::Seen::json).collect();
    let sent: Vec<&Value> = creates
        .iter()
        .flat_map(|create| create["requests"].as_array().expect("requests"))
        .map(|request| &request["params"])
        .collect();
    assert!(sent.contains(&&body), "{sent:?}");
    let talk = sent.iter().find(|params| params["max_tokens"] == 9).expect("the other one");
    assert_eq!(talk["messages"], json!([{ "role": "user", "content": "U" }]));
    assert!(talk["system"].to_string().contains('S'), "{talk}");
}

#[test]
fn a_create_whose_answer_is_lost_is_found_and_paid_once() {
    let yard = Yard::new();
    let server = Server::start(Creates::Vanish);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    let ran = run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (1, 2));
    assert_eq!(ran.summary()["possibly_paid_twice"], 0);
    assert_eq!(results(&yard).len(), 2);
}

#[test]
fn a_create_of_unknown_fate_is_looked_for_until_the_time_is_up_and_by_the_next_run() {
    let yard = Yard::new();
    let server = Server::start(Creates::Lose);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    let ran = finish(command(&yard, &server).args(["--timeout", "300ms"]), b"").code(3);
    assert_eq!(server.creates().len(), 1, "one list does not prove that it is not there");
    assert!(ran.stderr.contains("unknown") && ran.stderr.contains("out.jsonl.state"), "{ran:?}");
    assert_eq!(ran.summary()["pending"], 2);
    assert_eq!(results(&yard).len(), 0);
    server.set(Creates::Work);
    finish(command(&yard, &server).args(["--list-lag", "20ms"]), b"").code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (2, 2));
}

#[test]
fn a_create_of_unknown_fate_can_be_given_up_or_sent_again_at_once() {
    let yard = Yard::new();
    let server = Server::start(Creates::Lose);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    finish(command(&yard, &server).args(["--on-ambiguous", "never"]), b"").refused(&["resubmit"]);
    finish(command(&yard, &server).args(["--on-ambiguous", "fail"]), b"").code(1);
    assert_eq!(results(&yard)[0]["error"]["kind"], "ambiguous");

    let yard = Yard::new();
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    finish(command(&yard, &server).args(["--timeout", "300ms"]), b"").code(3);
    server.set(Creates::Work);
    let again = finish(command(&yard, &server).args(["--on-ambiguous", "resubmit"]), b"").code(0);
    assert_eq!(again.summary()["possibly_paid_twice"], 1);
}

#[test]
fn another_content_under_a_known_id_is_refused_unless_it_is_asked_anew() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    run(&yard, &server).code(0);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "planner", "m")]));
    run(&yard, &server).refused(&["`b`", "another content"]);
    assert_eq!(server.creates().len(), 1);
    let ran = finish(command(&yard, &server).arg("--fresh"), b"").code(0);
    assert!(ran.stderr.contains("out.jsonl.1"), "{ran:?}");
    assert_eq!(server.creates().len(), 2, "what did not change is not asked again");
    assert_eq!(server.creates()[1].json()["requests"].as_array().expect("a list").len(), 1);
    assert_eq!(results(&yard).len(), 2);
    assert_eq!(yard.read("out.jsonl.1").lines().count(), 2);
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), results(&yard).len()), (2, 2));
}

#[test]
fn a_refused_create_is_sent_once_and_fails_its_requests() {
    let yard = Yard::new();
    let server = Server::start(Creates::Unauthorized);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    let ran = run(&yard, &server).code(1);
    assert_eq!(server.creates().len(), 1);
    assert_eq!(ran.summary()["failed"], 2);
    for line in results(&yard) {
        assert_eq!(line["status"], "errored");
        assert_eq!(line["error"]["kind"], "authentication_error");
    }
}

#[test]
fn a_time_out_keeps_the_batch_for_the_next_run() {
    let yard = Yard::new();
    let server = Server::start(Creates::NeverEnd);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    // Long enough for the create on a busy machine.
    let ran = finish(command(&yard, &server).args(["--timeout", "2s"]), b"").code(3);
    assert!(ran.stderr.contains("run again"), "{ran:?}");
    assert_eq!(ran.summary()["pending"], 1);
    let ran = finish(command(&yard, &server).args(["--timeout", "50ms"]), b"").code(3);
    assert_eq!(ran.summary()["submissions"], 1);
    assert_eq!(server.creates().len(), 1);
}

#[test]
fn the_first_signal_waits_for_a_create_and_the_second_does_not() {
    let yard = Yard::new();
    let server = Server::start(Creates::Hang);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    let mut child = command(&yard, &server)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    server.wait_for("POST", 1);
    let pid = child.id().to_string();
    let kill = || Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill runs");
    assert!(kill().success());
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a line");
    assert!(said.contains("a second signal ends at once"), "{said}");
    assert!(kill().success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    // What became of the create is unknown, so it is looked for before anything is sent.
    server.set(Creates::Work);
    finish(command(&yard, &server).args(["--list-lag", "20ms"]), b"").code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (2, 1));
}

#[test]
fn a_torn_result_is_written_again_and_no_id_twice() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m"), ("c", "x", "m")]));
    run(&yard, &server).code(0);
    let text = yard.read("out.jsonl");
    let first = text.lines().next().expect("a line").len() + 1;
    yard.write("out.jsonl", &text[..first + 20]);
    run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 2, "nothing is paid twice");
    let ids: BTreeSet<String> = results(&yard).iter().map(|line| line["id"].to_string()).collect();
    assert_eq!((ids.len(), results(&yard).len()), (3, 3));
}

#[test]
fn results_of_something_else_are_not_touched() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    yard.write("out.jsonl", "{\"id\":\"a\",\"status\":\"succeeded\"}\n");
    run(&yard, &server).refused(&["out.jsonl.state does not exist"]);
    yard.write("out.jsonl.state/x", "");
    run(&yard, &server).code(2);
    std::fs::remove_dir_all(yard.path("out.jsonl.state")).expect("removed");
    std::fs::create_dir(yard.path("out.jsonl.state")).expect("made");
    yard.write("out.jsonl", "my notes\n");
    run(&yard, &server).refused(&["out.jsonl:1 is no result"]);
    assert_eq!(yard.read("out.jsonl"), "my notes\n");
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_file_that_is_no_results_is_left_alone() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    std::fs::create_dir(yard.path("out.jsonl.state")).expect("made");
    let whole = "{\"id\":\"a\",\"status\":\"errored\"}\n";
    for foreign in
        ["{\"name\":\"x\",\"private\":true}", "{\"id\":\"x\",\"private\":true}", "my notes"]
    {
        for before in ["", whole] {
            yard.write("out.jsonl", format!("{before}{foreign}"));
            run(&yard, &server).refused(&["the end of out.jsonl is no result"]);
            assert_eq!(yard.read("out.jsonl"), format!("{before}{foreign}"));
        }
    }
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn the_results_are_never_what_is_read() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    let text = requests(&[("a", "judge", "m")]).trim_end().to_owned();
    yard.write("out.jsonl", &text);
    std::fs::create_dir(yard.path("state")).expect("made");
    std::os::unix::fs::symlink("out.jsonl", yard.path("r.jsonl")).expect("linked");
    for more in [&["--state", "state"][..], &["--state", "state", "--fresh"]] {
        finish(command(&yard, &server).args(more), b"").refused(&["same file", "r.jsonl"]);
        assert_eq!(yard.read("out.jsonl"), text);
    }
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_second_run_does_not_touch_the_results_of_the_first() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    run(&yard, &server).code(0);
    let text = yard.read("out.jsonl");
    let torn = &text[..text.len() - 5];
    yard.write("out.jsonl", torn);
    let held = |path: &str| {
        let file = std::fs::File::open(yard.path(path)).expect("it is there");
        file.lock().expect("it is locked");
        file
    };
    for path in ["out.jsonl.state/lock", "out.jsonl"] {
        let lock = held(path);
        let ran = run(&yard, &server).code(3);
        assert_eq!((ran.stdout.as_str(), yard.read("out.jsonl").as_str()), ("", torn), "{path}");
        drop(lock);
    }
    let lock = held("out.jsonl");
    std::fs::create_dir(yard.path("other")).expect("made");
    finish(command(&yard, &server).args(["--state", "other"]), b"").code(3);
    finish(command(&yard, &server).args(["--state", "other", "--fresh"]), b"").code(3);
    assert_eq!(yard.read("out.jsonl"), torn);
    drop(lock);
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), results(&yard).len()), (1, 2));
}

#[test]
fn a_refusal_leaves_no_results_behind() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", "broken\n");
    run(&yard, &server).refused(&["r.jsonl:1"]);
    assert!(!yard.path("out.jsonl").exists());
    std::os::unix::fs::symlink("real.jsonl", yard.path("out.jsonl")).expect("linked");
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    run(&yard, &server).code(0);
    assert_eq!(yard.read("real.jsonl").lines().count(), 1);
}

#[test]
fn recorded_answers_need_no_network_and_no_key() {
    let yard = Yard::new();
    yard.write("answers/a.md", "The answer.");
    yard.write("answers/b.json", r#"{"error":{"type":"overloaded_error","message":"busy"}}"#);
    let line = |id| format!("{{\"id\":\"{id}\",\"model\":\"m\",\"prompt\":\"p\"}}\n");
    let args = ["llm", "run", "-", "--provider", "offline", "--answers", "answers"];
    let args = args.iter().chain(&["--out", "out.jsonl", "--json", "--max-items", "1"]);
    let ran = yard.run_with(args, line("a") + &line("b") + &line("c")).code(1);
    let summary = ran.summary();
    assert_eq!((&summary["succeeded"], &summary["failed"]), (&json!(1), &json!(2)));
    assert_eq!((&summary["submissions"], &summary["http_calls"]), (&json!(3), &json!(0)));
    let by_id = |id: &str| results(&yard).into_iter().find(|line| line["id"] == id);
    assert_eq!(by_id("a").expect("a")["text"], "The answer.");
    assert_eq!(by_id("b").expect("b")["error"]["kind"], "overloaded_error");
}

#[test]
fn a_state_that_cannot_be_one_leaves_no_results_behind() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    yard.write("file", "somebody's\n");
    finish(command(&yard, &server).args(["--state", "file"]), b"").refused(&["file"]);
    assert!(!yard.path("out.jsonl").exists());
    assert_eq!(yard.read("file"), "somebody's\n");
}

#[test]
fn the_provider_openai_and_the_lane_sync_work_too() {
    for (provider, key) in [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")] {
        for lane in ["batch", "sync"] {
            let yard = Yard::new();
            let server = Server::start(Creates::Work);
            yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
            let args = ["llm", "run", "r.jsonl", "--out", "out.jsonl", "--json", "--lane", lane];
            let at = ["--provider", provider, "--base-url", &server.url, "--poll-interval", "10ms"];
            let ran = finish(yard.program().env(key, KEY).args(args).args(at), b"").code(0);
            let submissions = if lane == "batch" { 1 } else { 2 };
            assert_eq!(ran.summary()["submissions"], submissions);
            let found = results(&yard);
            assert!(found.iter().all(|line| {
                let id = line["id"].as_str().expect("an id");
                line["text"] == format!("answer to prompt of {id}")
            }));
            assert_eq!((found.len(), server.paid().len()), (2, 2));
        }
    }
}

#[test]
fn the_state_can_be_looked_at_and_its_batches_cancelled_while_a_run_waits() {
    let yard = Yard::new();
    let server = Server::start(Creates::NeverEnd);
    let kind = "ju\u{1b}[2Jdge";
    yard.write("r.jsonl", requests(&[("a", kind, "m"), ("b", kind, "m")]));
    let mut child = command(&yard, &server).stdout(Stdio::null()).spawn().expect("it starts");
    server.wait_for("GET", 1);
    let asked = |what: &str, more: &[&str]| {
        let mut command = yard.program();
        command.env("ANTHROPIC_API_KEY", KEY).args(["llm", what, "--json"]);
        finish(command.args(["--state", "out.jsonl.state"]).args(more), b"")
    };
    let ask = |what: &str| {
        let base_url = ["--base-url", &server.url];
        asked(what, if what == "cancel" { &base_url } else { &[] }).code(0)
    };
    // A state may be somebody else's, and so may the host that it names.
    asked("cancel", &[]).refused(&["--base-url", &server.url]);
    let status = ask("status");
    assert_eq!(status.summary()["pending"], 2);
    assert_eq!(status.objects()[0]["status"], "submitted");
    assert_eq!(ask("cancel").summary()["canceling"], 1);
    // The run is told by its next polls.
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(results(&yard).iter().all(|line| line["status"] == "canceled"));
    let status = ask("status");
    assert_eq!(
        (&status.summary()["failed"], &status.objects()[0]["status"]),
        (&json!(2), &json!("done"))
    );
    assert_eq!(ask("cancel").summary()["batches"], 0);
    // What others have written drives no terminal.
    let ran = yard.run(["llm", "status", "--state", "out.jsonl.state"]).code(0);
    assert!(ran.stdout.contains("ju\\u{1b}[2Jdge") && !ran.stdout.contains('\u{1b}'), "{ran:?}");
    yard.run(["llm", "status", "--state", "nowhere"]).refused(&["nowhere", "no state folder"]);
}

#[test]
fn a_limit_to_the_cost_is_kept_before_anything_is_sent() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "claude-haiku-4-5")]));
    let limited =
        |dollars: &str| finish(command(&yard, &server).args(["--max-cost", dollars]), b"");
    limited("0.01").refused(&["may cost 0.01 USD", "0.01 USD allowed"]);
    assert!(server.seen().is_empty() && !yard.path("out.jsonl").exists());
    let summary = limited("0.02").code(0).summary();
    // Ten tokens in and five out, at half of one and of five dollars a million.
    assert_eq!(summary["cost"], json!(0.000_017_5));
    assert_eq!(summary["cost_one_by_one"], json!(0.000_035));
    assert_eq!(summary["groups"][0]["kind"], "judge");
    yard.write("r.jsonl", requests(&[("b", "judge", "nobody-knows")]));
    limited("9").refused(&["no price", "nobody-knows"]);
}

#[test]
fn prices_can_be_given_and_a_table_that_is_none_is_refused() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "my-model")]));
    yard.write("p.json", r#"{"as_of":"2026-01-01","models":{"my-model":{"input":4,"output":8}}}"#);
    yard.write("bad.json", r#"{"as_of":"2026-01-01"}"#);
    let with = |file: &str| finish(command(&yard, &server).args(["--prices", file]), b"");
    with("bad.json").refused(&["bad.json", "models"]);
    with("nowhere.json").refused(&["nowhere.json"]);
    assert!(server.seen().is_empty() && !yard.path("out.jsonl.state").exists());
    assert!(!yard.path("out.jsonl").exists());
    // Ten tokens in and five out, at half the price.
    assert_eq!(with("p.json").code(0).summary()["cost"], json!(0.000_04));
}

#[test]
fn the_lane_auto_asks_alone_what_a_deadline_is_too_near_for() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    let line = |id: &str, more: &str| {
        format!("{{\"id\":\"{id}\",\"model\":\"m\",\"prompt\":\"prompt of {id}\"{more}}}\n")
    };
    let far = r#","deadline":"2999-01-01T00:00:00Z""#;
    let past = r#","deadline":"2001-01-01T00:00:00+02:00""#;
    yard.write("r.jsonl", line("a", far) + &line("b", "") + &line("c", past));
    let auto = |time: &str| {
        finish(command(&yard, &server).args(["--lane", "auto", "--batch-time", time]), b"")
    };
    let ran = auto("1h").code(1);
    let summary = ran.summary();
    assert_eq!((&summary["succeeded"], &summary["failed"]), (&json!(2), &json!(1)));
    assert_eq!(server.creates().len(), 2, "those with a deadline share a batch of their own");
    let missed = results(&yard).into_iter().find(|line| line["id"] == "c").expect("a result");
    assert_eq!(missed["error"]["kind"], "deadline_missed");
    for (more, what) in [
        (r#","deadline":"soon""#, "\"deadline\""),
        (r#","deadline":5"#, "\"deadline\""),
        (r#","budget":"much""#, "\"budget\""),
        (r#","budget":-1"#, "\"budget\""),
    ] {
        yard.write("r.jsonl", line("d", more));
        auto("1h").refused(&["r.jsonl:1", what]);
    }
}

#[test]
fn a_line_at_fault_at_the_end_of_the_input_sends_nothing_and_leaves_nothing() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    let prompt = "p".repeat(900);
    let line =
        |n: usize| json!({ "id": n.to_string(), "model": "m", "prompt": prompt }).to_string();
    let many: String = (0..3_000).flat_map(|n| [line(n), "\n".to_owned()]).collect();
    for (last, what) in [
        ("{\"id\":\"1\",\"model\":\"m\",\"prompt\":\"p\"}", "stands in line 2 already"),
        ("{\"id\":\"x\",\"model\":\"m\",\"prompt\":\"p\",\"promt\":1}", "promt"),
        ("{\"id\":", "broken JSON"),
    ] {
        yard.write("r.jsonl", many.clone() + last);
        run(&yard, &server).refused(&["r.jsonl:3001", what]);
        assert!(server.seen().is_empty());
        assert!(!yard.path("out.jsonl").exists() && !yard.path("out.jsonl.state").exists());
    }
}

/// The old results stay where they are until all of the input was read.
#[test]
fn asking_anew_with_a_broken_input_moves_no_results() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    run(&yard, &server).code(0);
    yard.write("r.jsonl", "{");
    finish(command(&yard, &server).arg("--fresh"), b"").refused(&["r.jsonl:1"]);
    assert_eq!(results(&yard).len(), 1);
    assert!(!yard.path("out.jsonl.1").exists());
}

#[test]
fn a_signal_can_cancel_what_is_at_the_provider() {
    let yard = Yard::new();
    let server = Server::start(Creates::NeverEnd);
    yard.write("r.jsonl", requests(&[("a", "judge", "m")]));
    let mut child = command(&yard, &server)
        .arg("--cancel-on-interrupt")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    server.wait_for("GET", 3);
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill runs");
    assert!(killed.success());
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("it is text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.contains("canceling") && said.contains("--cancel-on-interrupt"), "{said}");
    let again = run(&yard, &server).code(1);
    assert_eq!(again.summary()["failed"], 1);
    assert_eq!(results(&yard)[0]["status"], "canceled");
    assert_eq!(again.summary()["submissions"], 1);
}

/// A signal while the input is still being read ends the program at once: nothing is under way.
#[test]
fn a_signal_while_the_input_is_read_ends_the_program() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    let args = ["llm", "run", "-", "--provider", "anthropic", "--out", "out.jsonl"];
    let mut child = yard
        .program()
        .env("ANTHROPIC_API_KEY", KEY)
        .args(args)
        .args(["--base-url", &server.url])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // The folder is there when reading begins.
    while !yard.path("out.jsonl.state/lock").exists() {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill runs");
    assert!(killed.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(server.seen().is_empty());
}

#[test]
fn the_summary_counts_what_the_model_ran_and_lanes_are_named() {
    let yard = Yard::new();
    let server = Server::start(Creates::Work);
    yard.write("r.jsonl", requests(&[("a", "judge", "m"), ("b", "judge", "m")]));
    finish(command(&yard, &server).args(["--lane", "soon"]), b"").refused(&["auto"]);
    let args = ["--attempts", "2", "--cache-prefixes", "--headroom", "1m"];
    let summary = finish(command(&yard, &server).args(args), b"").code(0).summary();
    assert_eq!(summary["inferences"], 2);
    assert_eq!(summary["groups"][0]["inferences"], 2);
    assert_eq!(summary["groups"][0]["submissions"], 1);
    finish(command(&yard, &server).args(["--attempts", "0"]), b"").refused(&["attempts"]);
}
