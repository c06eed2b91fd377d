//! `run --max-cost` and `run --report`.

mod common;

use common::plan::{command, planned, run, task};
use common::server::{Creates, Server};
use common::{Ran, Yard, finish, make_executable};
use serde_json::json;

/// One dollar for a million tokens in, a thousand for a million out; half of it in a batch.
const PRICES: &str = r#"{"as_of":"2026-01-01","models":{"m":{"input":1,"output":1000}}}"#;

/// Two tasks, the second of which needs the answer of the first; each may cost a dollar and a little.
fn priced(head: &str) -> Yard {
    let yard = planned(&format!("prices = \"prices.json\"\n{head}"), &[]);
    yard.write("plan/prices.json", PRICES);
    let long = "max_tokens = 2000";
    let second = format!("{long}\nafter = [\"one\"]");
    let plan =
        yard.read("plan/plan.toml") + &task("one", "a.txt", long) + &task("two", "b.txt", &second);
    yard.write("plan/plan.toml", plan);
    yard
}

fn run_with(yard: &Yard, server: &Server, args: &[&str]) -> Ran {
    finish(command(yard, server).args(args), b"")
}

#[test]
fn a_run_that_may_cost_too_much_sends_nothing_and_leaves_nothing() {
    let yard = priced("max_cost = 2");
    let server = Server::start(Creates::Work);
    // The first wave alone would be within it.
    run(&yard, &server).refused(&["may cost 2.00 USD", "2.00 USD allowed"]);
    run_with(&yard, &server, &["--dry-run"]).refused(&["may cost 2.00 USD"]);
    run_with(&yard, &server, &["--max-cost", "0.5"]).refused(&["may cost", "0.50 USD allowed"]);
    assert!(server.seen().is_empty() && !yard.path("plan/plan.toml.state").exists());
    let ran = run_with(&yard, &server, &["--max-cost", "2.1", "--dry-run"]).code(0);
    assert!(ran.stderr.contains("may cost 2.00"), "{ran:?}");
    let summary = run_with(&yard, &server, &["--max-cost", "2.1"]).code(0).summary();
    // Of each ten tokens in and five out, at half the price.
    assert_eq!(summary["cost"], json!(0.005_01));
    assert_eq!((&summary["submissions"], &summary["succeeded"]), (&json!(2), &json!(2)));
    assert_eq!((&summary["input_tokens"], &summary["output_tokens"]), (&json!(20), &json!(10)));
    assert_eq!(summary["http_calls"], json!(server.seen().len()));
}

/// What is paid is kept, and a higher limit goes on with it.
#[test]
fn a_limit_that_a_later_wave_would_pass_leaves_the_run_unfinished() {
    let yard = priced("");
    let server = Server::start(Creates::Work);
    // Where the second wave's requests would be noted.
    yard.write("plan/plan.toml.state/wave-1.jsonl.new/x", "");
    run(&yard, &server).code(3);
    std::fs::remove_dir_all(yard.path("plan/plan.toml.state/wave-1.jsonl.new")).expect("there");
    assert_eq!(server.creates().len(), 1);
    let ran = run_with(&yard, &server, &["--max-cost", "0.9"]).code(3);
    assert!(ran.stderr.contains("0.90 USD allowed"), "{ran:?}");
    assert_eq!(server.creates().len(), 1);
    // The first answer has cost less than it might have.
    let ran = run_with(&yard, &server, &["--max-cost", "1.1"]).code(0);
    assert_eq!((server.creates().len(), &ran.summary()["cost"]), (2, &json!(0.005_01)));
}

#[test]
fn a_limit_needs_prices() {
    let yard = planned("max_cost = 5", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).refused(&["no price is known for the model `m`", "`prices` in the plan"]);
    let plan = yard.read("plan/plan.toml");
    for (wrong, texts) in [
        ("max_cost = -1", ["plan.toml:", "\"max_cost\": expected dollars"]),
        ("max_cost = nan", ["plan.toml:", "\"max_cost\": expected dollars"]),
        ("max_cost = \"much\"", ["plan.toml:", "f64"]),
        ("max_cost = 5\nprices = \"\"", ["plan.toml:", "\"prices\" is empty"]),
        ("max_cost = 5\nprices = \"absent.json\"", ["absent.json", "does not exist"]),
        ("max_cost = 5\nprices = \"plan.toml\"", ["plan.toml", "table of prices"]),
    ] {
        yard.write("plan/plan.toml", plan.replace("max_cost = 5", wrong));
        run(&yard, &server).refused(&texts);
    }
    run_with(&yard, &server, &["--max-cost", "much"]).refused(&["--max-cost", "dollars"]);
    assert!(server.seen().is_empty() && !yard.path("plan/plan.toml.state").exists());
}

/// A part of a sum is no sum.
#[test]
fn where_the_price_of_one_model_is_not_known_the_cost_is_not_either() {
    let yard = priced("");
    let plan = yard.read("plan/plan.toml");
    let (first, second) = plan.rsplit_once("\"m\"").expect("a model");
    yard.write("plan/plan.toml", format!("{first}\"another\"{second}"));
    let summary = run(&yard, &Server::start(Creates::Work)).code(0).summary();
    assert_eq!((&summary["cost"], &summary["input_tokens"]), (&json!(null), &json!(20)));
}

#[test]
fn a_report_tells_what_became_of_each_task() {
    let yard = planned("", &[("one", "a.txt"), ("<b>bad", ".git/x")]);
    let server = Server::start(Creates::Work);
    let hook = yard.write("repo/.git/hooks/pre-push", "#!/bin/sh\nexit 1\n");
    make_executable(&hook);
    let ran = run_with(&yard, &server, &["--report", "report.html"]).code(3);
    assert!(ran.stderr.contains("the report is in report.html"), "{ran:?}");
    let page = yard.read("report.html");
    assert!(page.contains(">pending<") && page.contains("main is not pushed"), "{page}");
    std::fs::remove_file(hook).expect("it is there");
    run_with(&yard, &server, &["--report", "report.html"]).code(1);
    let page = yard.read("report.html");
    let commit = yard.git("repo", &["rev-parse", "batchyard/one"]);
    for text in [">succeeded<", &commit, "&lt;b&gt;bad", ">failed<", "path_not_allowed", "lesson"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<b>") && !page.contains(">pending<"), "{page}");
    // One file, and nothing that is to be loaded.
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
    let left = std::fs::read_dir(yard.path(".")).expect("it is read");
    let names = left.map(|entry| entry.expect("an entry").file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains(".new")));
}

#[test]
fn a_report_goes_over_no_other_file() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    // As a file of lessons is to begin with.
    yard.write("empty.jsonl", "");
    for (path, texts) in [
        ("plan/plan.toml", ["plan/plan.toml", "something else"]),
        ("empty.jsonl", ["empty.jsonl", "something else"]),
        ("repo", ["repo", "is a folder"]),
        ("absent/report.html", ["absent/report.html", "cannot write"]),
        ("/dev/null", ["/dev/null", "not a file"]),
    ] {
        run_with(&yard, &server, &["--report", path]).refused(&texts);
    }
    run_with(&yard, &server, &["--report", "r.html", "--dry-run"]).refused(&["--dry-run"]);
    assert!(server.seen().is_empty() && !yard.path("plan/plan.toml.state").exists());
    assert!(!yard.path("r.html").exists() && !yard.path("absent").exists());
    // Nor over one that the run itself has made meanwhile.
    let plan = yard.read("plan/plan.toml").replace("a.txt", ".git/x");
    yard.write("plan/plan.toml", plan);
    let ran = run_with(&yard, &server, &["--report", "plan/lessons.jsonl"]).code(1);
    assert!(ran.stderr.contains("cannot write the report plan/lessons.jsonl"), "{ran:?}");
    assert!(yard.read("plan/lessons.jsonl").contains("path_not_allowed"));
}
