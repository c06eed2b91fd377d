//! Inputs that are refused whole: status 2, nothing on stdout, nothing done.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::{Yard, finish};

const APPLY: [&str; 5] = ["git", "apply", "--repo", "repo", "--json"];

/// Runs `git apply` on these lines and checks that it is refused and touches nothing.
#[track_caller]
fn refuses_ops(lines: impl AsRef<[u8]>, texts: &[&str]) {
    let yard = Yard::with_repository();
    let file = yard.write("ops.jsonl", lines);
    let before = (yard.everything("repo"), yard.everything("remote.git"));
    let ran = yard.run(APPLY.iter().map(OsStr::new).chain([file.as_os_str()]));
    ran.refused(texts);
    let after = (yard.everything("repo"), yard.everything("remote.git"));
    assert!(before == after, "something was done");
}

/// Runs `llm run` on these lines and checks that it is refused and writes nothing.
#[track_caller]
fn refuses_requests(lines: impl AsRef<[u8]>, texts: &[&str]) {
    let yard = Yard::new();
    yard.write("answers/a.md", "x");
    let file = yard.write("requests.jsonl", lines);
    let before = yard.everything(".");
    let args =
        ["llm", "run", "--provider", "offline", "--answers", "answers", "--out", "out.jsonl"];
    let ran = yard.run(args.iter().map(OsStr::new).chain([file.as_os_str()]));
    ran.refused(texts);
    assert!(before == yard.everything("."), "something was written");
}

const GOOD: &str = r#"{"id":"good","op":"push","branch":"main"}"#;

#[test]
fn a_broken_line_is_named() {
    refuses_ops(format!("{GOOD}\n\n{{\"id\":\"x\",\n"), &["ops.jsonl:3", "broken JSON", "nothing"]);
    refuses_ops(format!("{GOOD}\n{GOOD} trailing\n"), &["ops.jsonl:2", "trailing"]);
    refuses_ops(format!("{GOOD}\n[1,2]\n"), &["ops.jsonl:2", "expected an object, found an array"]);
    refuses_ops(format!("{GOOD}\nnull"), &["ops.jsonl:2", "found null"]);
    refuses_ops(b"{\"id\":\"a\0\"}\n", &["ops.jsonl:1", "broken JSON"]);
    refuses_ops(b"\n{\"id\":\"\xff\"}\n", &["ops.jsonl:2", "byte 8 is not UTF-8"]);
}

#[test]
fn unknown_keys_and_operations_are_named_with_a_suggestion() {
    refuses_ops(
        r#"{"id":"a","op":"push","brnach":"x"}"#,
        &["ops.jsonl:1", "\"branch\": is missing; it has \"brnach\""],
    );
    refuses_ops(
        r#"{"id":"a","op":"push","branch":"x","bas":"y"}"#,
        &["ops.jsonl:1", "unknown key \"bas\""],
    );
    refuses_ops(
        r#"{"id":"a","op":"comit","branch":"x"}"#,
        &["unknown operation \"comit\"", "did you mean \"commit\"?"],
    );
    refuses_ops(
        r#"{"id":"a","op":"merge","source":"x","into":"y","strategy":"rebase"}"#,
        &["\"strategy\"", "unknown strategy \"rebase\""],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":[{"path":"p","contnet":""}]}"#,
        &["changes[0]", "needs one of content"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":[{"path":"p","content":"","size":1}]}"#,
        &["unknown key \"changes[0].size\""],
    );
}

#[test]
fn wrong_types_are_named_with_their_field() {
    refuses_ops(
        r#"{"id":1,"op":"push","branch":"x"}"#,
        &["\"id\": expected a string, found a number"],
    );
    refuses_ops(r#"{"id":"","op":"push","branch":"x"}"#, &["\"id\": is empty"]);
    refuses_ops(r#"{"op":"push","branch":"x"}"#, &["\"id\": is missing"]);
    refuses_ops(r#"{"id":"a","op":"push","branch":["x"]}"#, &["\"branch\"", "found an array"]);
    refuses_ops(
        r#"{"id":"a","op":"push","branch":"x","after":"b"}"#,
        &["\"after\": expected an array of strings, found a string"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":{"path":"p"}}"#,
        &["\"changes\": expected an array of objects, found an object"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","author":"me","changes":[]}"#,
        &["author: expected an object, found a string"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","author":{"name":"n"},"changes":[]}"#,
        &["\"author.email\": is missing"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":[{"path":"p","delete":"yes"}]}"#,
        &["\"changes[0].delete\": expected true or false, found a string"],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":[{"path":"p","content":"","content_base64":""}]}"#,
        &["\"changes[0].content_base64\": excludes \"content\""],
    );
    refuses_ops(
        r#"{"id":"a","op":"commit","branch":"x","message":"m","changes":[{"path":"p","content_base64":"a"}]}"#,
        &["\"changes[0].content_base64\": is not base64"],
    );
    refuses_ops(r#"{"id":"a","id":"b","op":"push","branch":"x"}"#, &["\"id\" stands twice"]);
}

#[test]
fn two_operations_with_one_id_are_refused() {
    refuses_ops(
        format!("{GOOD}\n\n{GOOD}\n"),
        &["ops.jsonl:3", "\"good\" stands in line 1 already"],
    );
}

#[test]
fn a_line_over_the_cap_is_refused() {
    let mut lines = format!("{GOOD}\n{{\"id\":\"long\",\"op\":\"push\",\"branch\":\"").into_bytes();
    lines.resize(lines.len() + (64 << 20), b'x');
    lines.extend_from_slice(b"\"}\n");
    refuses_ops(&lines, &["ops.jsonl:2", "longer than 64 MiB"]);
}

#[test]
fn inputs_that_cannot_be_opened_are_refused() {
    let yard = Yard::with_repository();
    let apply = |ops: &'static str| yard.run(["git", "apply", "--repo", "repo", ops]);
    apply("absent.jsonl").refused(&["absent.jsonl does not exist"]);
    apply("repo").refused(&["repo is a folder, not a file"]);
    yard.run(["lessons", "query", "absent.jsonl"]).refused(&["absent.jsonl"]);
    yard.run(["lessons", "stats", "repo"]).refused(&["repo is a folder, not a file"]);
    yard.run(["lessons", "check", "absent.jsonl"]).refused(&["absent.jsonl"]);
    yard.run(["prompt", "list", "absent"]).refused(&["absent does not exist"]);
    yard.run(["prompt", "check", "repo/README.md"]).refused(&["is not a folder"]);
    yard.run(["run", "absent.toml"]).refused(&["absent.toml does not exist"]);
    yard.run(["run", "repo"]).refused(&["repo is a folder, not a file"]);
    let args = ["llm", "run", "--provider", "offline", "--out", "o", "ops.jsonl"];
    yard.run(args).refused(&["needs a folder of recorded answers", "--answers"]);
    let args =
        ["llm", "run", "--provider", "offline", "--answers", "no", "--out", "o", "ops.jsonl"];
    yard.run(args).refused(&["the answers folder no does not exist"]);
    let args = ["llm", "run", "--provider", "offline", "--answers", "repo", "--out", "repo", "-"];
    yard.run(args).refused(&["repo is a folder, not a file"]);
    let args = ["llm", "run", "--provider", "offline", "--answers", "repo", "--out", "no/o", "-"];
    yard.run(args).refused(&["cannot open no/o"]);
}

#[test]
fn the_repository_and_its_remote_are_checked_first_even_for_no_work() {
    let yard = Yard::with_repository();
    yard.write("plain/file", "x");
    let apply = |repo: &'static str, remote: &'static str| {
        yard.run_with(["git", "apply", "--repo", repo, "--remote", remote, "-"], "")
    };
    apply("absent", "origin").refused(&["absent does not exist"]);
    apply("plain/file", "origin").refused(&["is not a folder"]);
    apply("plain", "origin").refused(&["plain", "not a git repository"]);
    apply("repo", "upstream").refused(&["no remote \"upstream\"", "origin"]);
    apply("repo", "").refused(&["no remote \"\""]);
    apply("repo", "origin").code(0);
    let land = |remote: &'static str, onto: &'static str| {
        yard.run(["git", "land", "--repo", "repo", "--remote", remote, "--onto", onto, "main"])
    };
    land("upstream", "main").refused(&["no remote \"upstream\""]);
    land("origin", "a..b").refused(&["a..b"]);
    land("origin", "").refused(&["branch"]);
    yard.run(["git", "land", "--repo", "repo", "--onto", "main"]).refused(&["BRANCH"]);
    yard.run(["git", "land", "--repo", "repo", "--onto", "main", "a", "a"])
        .refused(&["\"a\" is named twice"]);
}

#[test]
fn a_repository_that_cannot_be_written_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let yard = Yard::with_repository();
    let git = yard.path("repo/.git");
    let mode = |mode| std::fs::set_permissions(&git, std::fs::Permissions::from_mode(mode));
    mode(0o555).expect("the mode is set");
    let probe = git.join("probe");
    if std::fs::write(&probe, "").is_ok() {
        // The superuser may write anywhere, so there is nothing to see.
        std::fs::remove_file(&probe).expect("the probe is removed");
        mode(0o755).expect("the mode is set");
        return;
    }
    let before = yard.everything("repo");
    let line = r#"{"id":"c","op":"commit","branch":"b","message":"m","changes":[{"path":"p","content":""}]}"#;
    let ran = yard.run_with(APPLY.iter().copied().chain(["-"]), line);
    let after = yard.everything("repo");
    mode(0o755).expect("the mode is set");
    ran.refused(&["lock"]);
    assert!(before == after, "something was done");
}

#[test]
fn requests_are_checked_whole() {
    let good = r#"{"id":"a","model":"m","prompt":"p"}"#;
    refuses_requests(
        format!("{good}\n{good}\n"),
        &["requests.jsonl:2", "stands in line 1 already"],
    );
    refuses_requests(r#"{"id":"a","prompt":"p"}"#, &["\"model\": is missing"]);
    refuses_requests(r#"{"id":"a","model":"","prompt":"p"}"#, &["\"model\": is empty"]);
    refuses_requests(r#"{"id":"a","model":"m"}"#, &["\"prompt\": is missing", "messages or body"]);
    refuses_requests(
        r#"{"id":"a","model":"m","prompt":"p","messages":[]}"#,
        &["exclude each other"],
    );
    refuses_requests(
        r#"{"id":"a","model":"m","messages":[{"role":"robot","content":"x"}]}"#,
        &["unknown role \"robot\""],
    );
    refuses_requests(
        r#"{"id":"a","model":"m","messages":[{"role":"user","content":["x"]}]}"#,
        &["\"messages[0].content\": expected a string, found an array"],
    );
    refuses_requests(
        r#"{"id":"a","model":"m","body":{"model":"other"}}"#,
        &["\"body\": its model \"other\" is not \"model\" \"m\""],
    );
    refuses_requests(r#"{"id":"a","model":"m","body":[]}"#, &["\"body\"", "found an array"]);
    refuses_requests(
        r#"{"id":"a","model":"m","prompt":"p","max_tokens":0}"#,
        &["\"max_tokens\": must be at least 1"],
    );
    refuses_requests(
        r#"{"id":"a","model":"m","prompt":"p","max_tokens":1.5}"#,
        &["\"max_tokens\": expected a whole number"],
    );
    refuses_requests(
        r#"{"id":"a","model":"m","prompt":"p","temprature":1}"#,
        &["unknown key \"temprature\""],
    );
}

#[test]
fn flags_of_later_versions_are_unknown() {
    let yard = Yard::new();
    let base = ["llm", "run", "--provider", "offline", "--answers", ".", "--out", "o", "-"];
    for flag in ["--deadline=1s", "--retries=3"] {
        yard.run_with(base.iter().chain([&flag]), "").refused(&["unexpected argument"]);
    }
    yard.run(["cache", "stats"]).refused(&["cache"]);
    let help = yard.run(["--help"]).code(0).stdout;
    for command in ["cache", "history", "lock"] {
        assert!(!help.contains(command), "{help}");
    }
}

#[test]
fn usage_faults_are_refused() {
    let yard = Yard::with_repository();
    yard.run::<&str>([]).refused(&["Usage"]);
    yard.run(["git"]).refused(&["apply", "land"]);
    yard.run(["git", "apply", "-"]).refused(&["--repo"]);
    let base = ["git", "apply", "--repo", "repo", "-"];
    yard.run(base.iter().chain(&["--max-items=0"])).refused(&["--max-items"]);
    yard.run(base.iter().chain(&["--quiet", "--verbose"])).refused(&["--verbose"]);
    yard.run(base.iter().chain(&["--wait=5"])).refused(&["--wait"]);
    yard.run(base.iter().chain(&["--on-moved=push"])).refused(&["--on-moved"]);
    let base = ["llm", "run", "--provider", "offline", "--answers", ".", "--out", "o", "-"];
    for wrong in ["5", "1.5s", "s", "-1s"] {
        let flag = format!("--timeout={wrong}");
        yard.run(base.iter().copied().chain([flag.as_str()])).refused(&["--timeout"]);
    }
    let args = ["llm", "run", "--provider", "anthropic", "--answers", ".", "--out", "o", "-"];
    yard.run(args).refused(&["--answers belongs to the provider offline"]);
    yard.run(base.iter().chain(&["--max-cost=-1"])).refused(&["dollars"]);
    yard.run(base.iter().chain(&["--lane=fast"])).refused(&["batch, sync or auto"]);
    yard.run(base.iter().chain(&["--lane=sync"])).refused(&["no lane but `batch`"]);
    let args = ["llm", "run", "--provider", "mistral", "--out", "o", "-"];
    yard.run(args).refused(&["mistral", "openai"]);
    let args = ["lessons", "query", "f", "--since", "yesterday"];
    yard.run(args).refused(&["RFC 3339"]);
    let args = ["git", "land", "--repo", "repo", "--onto", "main", "--strategy", "octopus", "x"];
    yard.run(args).refused(&["octopus"]);
}

#[test]
fn arguments_that_are_not_text_are_refused_but_paths_may_be() {
    let yard = Yard::with_repository();
    let odd = OsStr::from_bytes(b"odd-\xff");
    let args = ["git", "land", "--repo", "repo", "--onto"].map(OsStr::new);
    let ran = finish(yard.program().args(args).arg(odd).arg("main"), b"");
    ran.refused(&["UTF-8"]);
    std::fs::write(yard.path(odd), "").expect("such a name is fine");
    let args = ["git", "apply", "--repo", "repo", "--json"].map(OsStr::new);
    finish(yard.program().args(args).arg(odd), b"").code(0);
}

#[test]
fn the_key_must_be_there_and_is_never_shown() {
    let yard = Yard::new();
    yard.write("r.jsonl", "{\"id\":\"a\",\"model\":\"m\",\"prompt\":\"p\"}\n");
    let args = ["llm", "run", "--provider", "anthropic", "--out", "out.jsonl", "r.jsonl"];
    yard.run(args).refused(&["ANTHROPIC_API_KEY is not set"]);
    for key in ["", "sk-secret\nvalue"] {
        let mut command = yard.program();
        command.args(args).env("ANTHROPIC_API_KEY", key);
        let ran = finish(&mut command, b"");
        assert!(!ran.stderr.contains("sk-secret"), "{ran:?}");
        ran.refused(&["key"]);
    }
    for url in ["http://example.com", "ftp://127.0.0.1", "nonsense", "https://user:pw@example.com"]
    {
        let mut command = yard.program();
        command.args(args).args(["--base-url", url]).env("ANTHROPIC_API_KEY", "sk-secret");
        let ran = finish(&mut command, b"");
        assert!(!ran.stderr.contains("sk-secret"), "{ran:?}");
        ran.refused(&["URL"]);
    }
    assert!(!yard.path("out.jsonl").exists());
}

/// A pipe blocks whoever opens it, and what is read from it may be what was just written.
#[test]
fn pipes_and_devices_are_no_files_to_keep_things_in() {
    let yard = Yard::new();
    yard.write("answers/a.md", "The answer.");
    let made = std::process::Command::new("mkfifo").arg(yard.path("pipe")).status();
    assert!(made.expect("mkfifo").success());
    let request = r#"{"id":"a","model":"m","prompt":"p"}"#;
    for file in ["pipe", "/dev/null", "/dev/stdout"] {
        let what = format!("{file} is a device, pipe or socket");
        for command in ["add", "query", "top", "stats", "check"] {
            yard.run_with(["lessons", command, file], r#"{"id":"a"}"#).refused(&[&what]);
        }
        let args = ["llm", "run", "-", "--provider", "offline", "--answers", "answers", "--out"];
        yard.run_with(args.iter().chain([&file]), request).refused(&[&what]);
    }
}

#[test]
fn a_dry_run_finds_a_repository_remote_and_base_that_are_not_there() {
    for (wrong, text) in [
        ("repo = \"nowhere\"", "nowhere"),
        ("repo = \"repo\"\nremote = \"up\"", "no remote \"up\""),
        ("repo = \"repo\"\n[land]\nonto = \"mian\"", "did you mean \"main\"?"),
    ] {
        let yard = Yard::with_repository();
        yard.write("prompts/do.prompt.md", "Do it.\n");
        yard.write("answers/a.md", "x");
        let plan = format!(
            "provider = \"offline\"\nanswers = \"answers\"\nprompts = \"prompts\"\n\
             lessons = \"lessons.jsonl\"\n{wrong}\n[[task]]\nid = \"a\"\nkind = \"k\"\n\
             model = \"m\"\ntemplate = \"do\"\n"
        );
        yard.write("plan.toml", plan);
        let before = yard.everything(".");
        yard.run(["run", "plan.toml", "--dry-run"]).refused(&[text]);
        yard.run(["run", "plan.toml"]).refused(&[text]);
        assert!(before == yard.everything("."), "something was written");
    }
}
