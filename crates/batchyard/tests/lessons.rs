//! `lessons`: what is counted, found by text, removed, compacted and merged.

mod common;

use common::Yard;
use serde_json::{Value, json};

fn ids(text: &str) -> Vec<String> {
    text.lines().map(|line| object(line)["id"].as_str().expect("an id").to_owned()).collect()
}

fn object(line: &str) -> Value {
    serde_json::from_str(line).expect("one object a line")
}

const LESSONS: &str = concat!(
    r#"{"id":"a","task_type":"build","failure_type":"oom","failure_msg":"linker: out of memory","resolution":"fewer jobs","pattern":"memory","times_seen":3,"last_seen":"2026-01-01T00:00:00Z","metadata":{"repo":"x","n":7}}"#,
    "\n",
    r#"{"id":"b","task_type":"build","failure_type":"oom","failure_msg":"compiler: out of memory","pattern":"memory","last_seen":"2026-01-02T00:00:00Z","metadata":{"repo":"y"}}"#,
    "\n",
    r#"{"id":"c","task_type":"test","failure_type":"timeout","failure_msg":"unknown host","times_seen":9,"last_seen":"2026-01-03T00:00:00Z"}"#,
    "\n",
);

/// The file and its lock are beside the one that the link leads to.
#[test]
fn lessons_behind_a_link_need_only_their_own_folder() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let yard = Yard::new();
    yard.write("shared/l.jsonl", "");
    std::fs::create_dir(yard.path("here")).expect("made");
    let links = [("here/l.jsonl", "../shared/l.jsonl"), ("here/new.jsonl", "../shared/new.jsonl")];
    for (link, target) in links {
        symlink(target, yard.path(link)).expect("made");
    }
    // It keeps everybody out but the superuser.
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(yard.path("here"), mode).expect("the mode is set");
    };
    mode(0o555);
    let failure = r#"{"failure_type":"build","failure_msg":"out of memory"}"#;
    let add = |link| yard.run_with(["lessons", "add", link, "--count"], failure);
    let ran = links.map(|(link, _)| add(link));
    mode(0o755);
    for (ran, name) in ran.into_iter().zip(["shared/l.jsonl", "shared/new.jsonl"]) {
        ran.code(0);
        assert_eq!(yard.read(name).lines().count(), 1);
    }
}

#[test]
fn failures_are_counted_by_what_they_say() {
    let yard = Yard::new();
    let failures = concat!(
        r#"{"failure_type":"build","failure_msg":"src/a.rs:1: cannot find `x` (E0425)"}"#,
        "\n",
        r#"{"failure_type":"build","failure_msg":"src/b.rs:9: cannot find `y` (E0425)","resolution":"import it"}"#,
        "\n",
        r#"{"failure_type":"test","failure_msg":"src/b.rs:9: cannot find `y` (E0425)","last_seen":"2026-01-01T00:00:00Z"}"#,
    );
    let args = ["lessons", "add", "l.jsonl", "--count", "--json"];
    let counted = yard.run_with(args, failures).code(0).objects();
    assert_eq!(counted[0]["id"], counted[1]["id"]);
    assert_eq!([&counted[0]["times_seen"], &counted[1]["times_seen"]], [1, 2]);
    assert_ne!(counted[2]["id"], counted[1]["id"]);
    assert_eq!(counted[3], json!({ "summary": { "counted": 3, "lessons": 2 } }));
    // Another process goes on counting.
    assert_eq!(yard.run_with(args, failures).code(0).objects()[1]["times_seen"], 4);
    let human = yard.run_with(["lessons", "add", "l.jsonl", "--count"], failures).code(0);
    assert!(human.stdout.contains("seen 6 times\n"), "{human:?}");
    let before = yard.read("l.jsonl");
    for (wrong, what) in [
        ("{\"failure_type\":\"x\"}", "failure_msg"),
        ("{\"failure_msg\":7}", "failure_msg"),
        ("{\"failure_msg\":\"m\",\"last_seen\":\"soon\"}", "last_seen"),
        ("{\"failure_msg\":\"m\",\"metadata\":[]}", "metadata"),
        ("[]", "no JSON object"),
    ] {
        let lines = format!("{{\"failure_msg\":\"fine\"}}\n{wrong}");
        yard.run_with(args, &lines).refused(&["<stdin>:2", what, "nothing was counted"]);
    }
    assert_eq!(yard.read("l.jsonl"), before);
}

#[test]
fn conditions_may_name_several_values() {
    let yard = Yard::new();
    yard.write("l.jsonl", LESSONS);
    let query =
        |args: &[&str]| yard.run(["lessons", "query", "l.jsonl"].iter().chain(args)).code(0);
    let types = ["--failure-type", "oom", "--failure-type", "timeout", "--sort", "oldest"];
    assert_eq!(ids(&query(&types).stdout), ["a", "b", "c"]);
    assert_eq!(ids(&query(&["--metadata", "repo=x", "--metadata", "n=7"]).stdout), ["a"]);
    assert_eq!(ids(&query(&["--min-times", "3"]).stdout), ["c", "a"]);
    assert_eq!(query(&["--task-type", "build", "--count"]).stdout, "2\n");
    let counted = query(&["--count", "--json"]).summary();
    assert_eq!(counted, json!({ "count": 3 }));
    yard.run(["lessons", "query", "l.jsonl", "--metadata", "repo"]).refused(&["KEY=VALUE"]);
}

#[test]
fn a_listing_goes_on_where_it_ended() {
    let yard = Yard::new();
    yard.write("l.jsonl", LESSONS);
    let query = |args: &[&str]| {
        yard.run(["lessons", "query", "l.jsonl", "--limit", "2"].iter().chain(args)).code(0)
    };
    let first = query(&["--sort", "frequent"]);
    assert_eq!(ids(&first.stdout), ["c", "a"]);
    let cursor = first.stderr.split('\'').nth(1).expect("a cursor in quotes").to_owned();
    let next = query(&["--after", &cursor]);
    assert_eq!((ids(&next.stdout), next.stderr.as_str()), (vec!["b".to_owned()], ""));
    yard.run(["lessons", "query", "l.jsonl", "--after", "x"]).refused(&["no cursor"]);
}

#[test]
fn recall_ranks_and_says_why() {
    let yard = Yard::new();
    yard.write("l.jsonl", LESSONS);
    let recall = |args: &[&str], stdin: &str| {
        let base = ["lessons", "recall", "l.jsonl", "--now", "2026-01-03T00:00:00Z"];
        yard.run_with(base.iter().chain(args), stdin).code(0)
    };
    let text = "The linker ran out of memory";
    let found = recall(&[text, "--json", "--explain"], "").objects();
    assert_eq!([&found[0]["id"], &found[1]["id"]], ["a", "b"]);
    assert_eq!(found[0]["lesson"]["resolution"], "fewer jobs");
    let why = &found[0]["why"];
    let terms: Vec<&Value> =
        why["terms"].as_array().expect("a list").iter().map(|term| &term["term"]).collect();
    assert_eq!(terms, ["linker", "memory", "of", "out"]);
    let number = |value: &Value| value.as_f64().expect("a number");
    let boost =
        1.0 + ["frequency", "recency", "votes"].map(|key| number(&why[key])).iter().sum::<f64>();
    assert!((number(&found[0]["score"]) - number(&why["text"]) * boost).abs() < 1e-9);

    assert_eq!(ids(&recall(&["-", "--json"], text).stdout), ["a", "b"], "from stdin");
    assert_eq!(ids(&recall(&[text, "--json", "--one-per-pattern"], "").stdout), ["a"]);
    assert_eq!(ids(&recall(&[text, "--json", "--limit", "1"], "").stdout), ["a"]);
    assert_eq!(ids(&recall(&[text, "--json", "--metadata", "repo=y"], "").stdout), ["b"]);
    assert_eq!(recall(&[text, "--json", "--budget-tokens", "1"], "").stdout, "");
    let human = recall(&[text, "--explain"], "").stdout;
    assert!(human.contains("a: linker: out of memory\n     fewer jobs\n"), "{human}");
    assert!(human.contains("% recency"), "{human}");

    // What helped comes first.
    for _ in 0..3 {
        yard.run(["lessons", "feedback", "l.jsonl", "b", "--helpful"]).code(0);
    }
    let said = yard.run(["lessons", "feedback", "l.jsonl", "a", "--harmful", "--json"]).code(0);
    assert_eq!(said.objects()[0], json!({ "id": "a", "helpful": 0, "harmful": 1 }));
    assert_eq!(ids(&recall(&["out of memory", "--json"], "").stdout), ["b", "a"]);
    yard.run(["lessons", "feedback", "l.jsonl", "nobody", "--helpful"]).code(1);
    yard.run(["lessons", "feedback", "l.jsonl", "a"]).refused(&["--helpful"]);
}

#[test]
fn a_forgotten_lesson_is_gone_and_its_text_after_compaction() {
    let yard = Yard::new();
    yard.write("l.jsonl", LESSONS);
    let ran = yard.run(["lessons", "forget", "l.jsonl", "a", "nobody", "--json"]).code(1);
    assert_eq!(ran.summary(), json!({ "forgotten": 1, "unknown": ["nobody"], "lessons": 2 }));
    assert!(ran.stderr.contains("nobody"), "{ran:?}");
    assert_eq!(
        yard.run(["lessons", "query", "l.jsonl", "--contains", "linker"]).code(0).stdout,
        ""
    );
    assert!(yard.read("l.jsonl").contains("linker"));
    let done = yard.run(["lessons", "compact", "l.jsonl", "--json"]).code(0).summary();
    assert_eq!([&done["kept"], &done["dropped"]], [3, 1]);
    assert!(!yard.read("l.jsonl").contains("linker"));
    let args = ["lessons", "compact", "l.jsonl", "--keep-tombstones", "0s"];
    assert!(yard.run(args).code(0).stdout.starts_with("2 kept, 1 dropped"));
    yard.run(["lessons", "forget", "absent.jsonl", "a"]).refused(&["absent.jsonl"]);
    yard.run(["lessons", "compact", "absent.jsonl"]).refused(&["absent.jsonl"]);
}

#[test]
fn compaction_leaves_broken_lines_unless_they_are_to_move() {
    let yard = Yard::new();
    yard.write("l.jsonl", format!("{LESSONS}broken\n"));
    yard.run(["lessons", "compact", "l.jsonl"]).code(0);
    assert!(yard.read("l.jsonl").ends_with("broken\n"));
    yard.write("l.jsonl", format!("{LESSONS}<<<<<<< ours\n"));
    yard.run(["lessons", "compact", "l.jsonl"]).refused(&["conflict", "line 4"]);
    let done = yard.run(["lessons", "compact", "l.jsonl", "--quarantine", "--json"]).code(0);
    assert_eq!(done.summary()["quarantined"], 1);
    assert_eq!(yard.read("l.jsonl.quarantine"), "<<<<<<< ours\n");
    yard.run(["lessons", "check", "l.jsonl"]).code(0);
}

/// Two branches that both appended and counted, through git itself.
#[test]
fn git_merges_two_branches_by_id_with_the_driver() {
    let yard = Yard::with_repository();
    let program = env!("CARGO_BIN_EXE_batchyard");
    let git = |args: &[&str]| yard.git("repo", args);
    git(&["config", "merge.lessons.driver", &format!("'{program}' lessons merge-driver %O %A %B")]);
    yard.write("repo/.gitattributes", "l.jsonl merge=lessons\n");
    let line = |times: u32| format!("{{\"id\":\"fp-1\",\"times_seen\":{times}}}\n");
    let commit = |text: String, message: &str| {
        yard.write("repo/l.jsonl", text);
        git(&["add", "-A"]);
        git(&["commit", "-qm", message]);
    };
    commit(line(2), "base");
    git(&["checkout", "-qb", "other"]);
    commit(format!("{}{{\"id\":\"theirs\"}}\n", line(3)), "theirs");
    git(&["checkout", "-q", "-"]);
    commit(format!("{}{{\"id\":\"ours\"}}\n", line(6)), "ours");
    git(&["merge", "-q", "-m", "both", "other"]);
    let expected = format!("{}{{\"id\":\"ours\"}}\n{{\"id\":\"theirs\"}}\n", line(7));
    assert_eq!(yard.read("repo/l.jsonl"), expected);
}

#[test]
fn a_merge_that_cannot_be_made_fails_and_leaves_ours() {
    let yard = Yard::new();
    yard.write("base", "");
    yard.write("ours", "{\"id\":\"a\"}\n=======\n");
    yard.write("theirs", "{\"id\":\"b\"}\n");
    let ran = yard.run(["lessons", "merge-driver", "base", "ours", "theirs"]).code(1);
    assert!(ran.stderr.contains("conflict_marker"), "{ran:?}");
    assert_eq!(yard.read("ours"), "{\"id\":\"a\"}\n=======\n");
    yard.run(["lessons", "merge-driver", "base", "ours"]).refused(&["THEIRS"]);
}

#[test]
fn a_file_that_nobody_changes_is_the_same_when_it_is_read_again() {
    let yard = Yard::new();
    yard.write("l.jsonl", format!("{LESSONS}broken\n"));
    let verified = yard.run(["lessons", "verify", "l.jsonl", "--json"]).code(0);
    assert_eq!(verified.summary(), json!({ "lessons": 3, "stale": [] }));
    assert!(verified.stderr.contains("1 broken lines"), "{verified:?}");
    let human = yard.run(["lessons", "verify", "l.jsonl"]).code(0);
    assert_eq!(human.stdout, "3 lessons, 0 are another now\n");
    yard.run(["lessons", "verify", "absent.jsonl"]).refused(&["absent.jsonl"]);
}
