//! `git apply` and `git land` on real repositories.

mod common;

use common::Yard;
use serde_json::{Value, json};

fn lines(objects: &[Value]) -> String {
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn commit(id: &str, branch: &str, path: &str, content: &str) -> Value {
    json!({ "id": id, "op": "commit", "branch": branch, "message": format!("Add {id}"),
            "changes": [{ "path": path, "content": content }] })
}

fn push(id: &str, branch: &str) -> Value {
    json!({ "id": id, "op": "push", "branch": branch })
}

#[test]
fn thirty_tasks_leave_in_one_push() {
    let yard = Yard::with_repository();
    yard.write("repo/README.md", "# edited, not committed\n");
    yard.write("repo/untracked.txt", "mine\n");
    let names =
        ["a b.txt", "it's \"quoted\".txt", "line\nbreak.txt", "-dash.txt", "größe/日本.txt"];
    let mut ops = Vec::new();
    for n in 0..30 {
        ops.push(commit(&format!("c{n}"), &format!("task/{n}"), names[n % names.len()], "x\n"));
        ops.push(push(&format!("p{n}"), &format!("task/{n}")));
    }
    let watched = |yard: &Yard| {
        (
            yard.read("repo/README.md"),
            yard.read("repo/untracked.txt"),
            std::fs::read(yard.path("repo/.git/index")).expect("the index"),
            yard.read("repo/.git/HEAD"),
            yard.read("repo/.git/config"),
        )
    };
    let before = watched(&yard);
    let ran = yard.run_with(["git", "apply", "--json", "--repo", "repo", "-"], lines(&ops)).code(0);
    assert_eq!(watched(&yard), before);
    let summary = ran.summary();
    assert_eq!(summary["ops"], 60);
    assert_eq!(summary["landed"], 60);
    assert_eq!((&summary["failed"], &summary["skipped"]), (&json!(0), &json!(0)));
    assert_eq!((&summary["pushes"], &summary["round_trips_saved"]), (&json!(1), &json!(29)));
    assert_eq!(yard.receives(), 1);
    let ids: Vec<String> =
        ran.objects().iter().filter_map(|line| line["id"].as_str().map(str::to_owned)).collect();
    let asked: Vec<String> =
        ops.iter().filter_map(|op| op["id"].as_str().map(str::to_owned)).collect();
    assert_eq!(ids, asked, "result lines come in the order of the input");
    for n in 0..30 {
        let branch = format!("task/{n}");
        let at_remote = yard.git("remote.git", &["rev-parse", &branch]);
        assert_eq!(ran.line(&format!("c{n}"))["commit"], json!(at_remote));
        let listed = yard.git("remote.git", &["ls-tree", "-r", "-z", "--name-only", &branch]);
        assert!(listed.split('\0').any(|name| name == names[n % names.len()]), "{listed:?}");
    }
    for folder in ["repo", "remote.git"] {
        yard.git(folder, &["fsck", "--strict", "--no-dangling"]);
    }
}

#[test]
fn a_commit_without_a_push_stays_local() {
    let yard = Yard::with_repository();
    let ops = lines(&[commit("c", "task/1", "a.txt", "a\n")]);
    let ran = yard.run_with(["git", "apply", "--repo", "repo", "-", "--json"], ops).code(0);
    assert_eq!(ran.summary()["pushes"], 0);
    assert_eq!(yard.receives(), 0);
    assert_eq!(yard.git("repo", &["show", "task/1:a.txt"]), "a");
}

#[test]
fn every_key_of_a_change_does_its_work() {
    let yard = Yard::with_repository();
    let blob = yard.git("repo", &["rev-parse", "main:README.md"]);
    let head = yard.git("repo", &["rev-parse", "main"]);
    let ops = lines(&[
        json!({ "id": "c", "op": "commit", "branch": "b", "base": "main", "message": "All",
                "author": { "name": "An Agent", "email": "agent@example.invalid" },
                "changes": [
                    { "path": "bytes", "content_base64": "AAEC/w==" },
                    { "path": "run.sh", "content": "#!/bin/sh\n", "mode": "100755" },
                    { "path": "link", "content": "run.sh", "mode": "120000" },
                    { "path": "copy.md", "from": "README.md" },
                    { "path": "again.md", "oid": blob, "expect": "0000000000000000000000000000000000000000" },
                    { "path": "module", "oid": head, "mode": "160000" },
                    { "path": "README.md", "delete": true, "expect": blob },
                ] }),
        json!({ "id": "c2", "op": "commit", "branch": "b", "message": "More", "after": ["c"],
                "changes": [{ "path": "more", "content": "" }] }),
        json!({ "id": "m", "op": "merge", "source": "b", "into": "c", "strategy": "squash" }),
    ]);
    let ran = yard.run_with(["git", "apply", "--repo", "repo", "--json", "-"], ops).code(1);
    assert_eq!(ran.line("c")["status"], "landed");
    assert_eq!(ran.line("c2")["status"], "landed");
    assert_eq!(ran.line("m")["error"]["kind"], "unknown_branch");
    let tree = yard.git("repo", &["ls-tree", "-r", "b"]);
    for expected in ["100755 blob", "120000 blob", "160000 commit"] {
        assert!(tree.contains(expected), "{tree}");
    }
    assert!(!tree.contains("\tREADME.md"), "{tree}");
    assert_eq!(yard.git("repo", &["rev-parse", "b:copy.md"]), blob);
    assert_eq!(yard.git("repo", &["cat-file", "-s", "b:bytes"]), "4");
    assert_eq!(
        yard.git("repo", &["log", "-1", "--format=%an <%ae>", "b^"]),
        "An Agent <agent@example.invalid>"
    );
}

#[test]
fn what_is_wrong_with_one_operation_fails_that_one_alone() {
    let yard = Yard::with_repository();
    let bad_paths = [
        "",
        "/etc/passwd",
        "../up",
        "a/../b",
        "./a",
        "a//b",
        "a/",
        ".git/config",
        "a/.GIT/hooks/x",
        ".git.",
        "git~1/x",
        ".g\u{200c}it/config",
        "nul\u{0}byte",
    ];
    let mut ops: Vec<Value> = Vec::new();
    for (n, path) in bad_paths.iter().enumerate() {
        ops.push(commit(&format!("path{n}"), &format!("bad/path{n}"), path, "x"));
    }
    for (n, branch) in
        ["", "-option", "a..b", "a b", "refs/heads/", "x.lock", "@{", "\u{0}"].iter().enumerate()
    {
        ops.push(commit(&format!("branch{n}"), branch, "a", "x"));
    }
    let change = |change: Value| json!({ "id": "", "op": "commit", "branch": "bad/change", "message": "m", "changes": [change] });
    for (n, value) in [
        json!({ "path": "a", "content": "", "mode": "100600" }),
        json!({ "path": "a", "oid": "12" }),
        json!({ "path": "a", "oid": "1234567890123456789012345678901234567890" }),
        json!({ "path": "a", "content": "x", "expect": "zz" }),
        json!({ "path": "absent", "delete": true }),
        json!({ "path": "a", "from": "absent" }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut op = change(value);
        op["id"] = json!(format!("change{n}"));
        ops.push(op);
    }
    ops.push(json!({ "id": "base", "op": "commit", "branch": "bad/base", "base": "nowhere",
                     "message": "m", "changes": [{ "path": "a", "content": "x" }] }));
    ops.push(json!({ "id": "source", "op": "merge", "source": "nowhere", "into": "main" }));
    ops.push(push("push", "nowhere"));
    ops.push(json!({ "id": "needs", "op": "push", "branch": "good", "after": ["change0"] }));
    ops.push(json!({ "id": "needs that", "op": "push", "branch": "good", "after": ["needs"] }));
    ops.push(commit("good", "good", "fine.txt", "fine\n"));
    let ran = yard.run_with(["git", "apply", "--repo", "repo", "--json", "-"], lines(&ops)).code(1);
    let objects = ran.objects();
    assert_eq!(objects.len(), ops.len() + 1);
    for line in &objects[..ops.len()] {
        let id = line["id"].as_str().expect("an id");
        match id {
            "good" => assert_eq!(line["status"], "landed", "{line}"),
            "needs" | "needs that" => assert_eq!(line["status"], "skipped", "{line}"),
            _ => {
                assert_eq!(line["status"], "failed", "{line}");
                let error = &line["error"];
                assert!(error["kind"].is_string() && error["message"].is_string(), "{line}");
            }
        }
    }
    assert_eq!(ran.summary()["landed"], 1);
    assert_eq!(ran.summary()["skipped"], 2);
    let refs = yard.git("repo", &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(refs, "refs/heads/good\nrefs/heads/main");
    assert_eq!(yard.receives(), 0);
}

#[test]
fn max_items_bounds_a_batch() {
    let yard = Yard::with_repository();
    let ops = lines(&[
        commit("c1", "t/1", "a", "1"),
        push("p1", "t/1"),
        commit("c2", "t/2", "a", "2"),
        push("p2", "t/2"),
    ]);
    let args = ["git", "apply", "--repo", "repo", "--max-items", "2", "--json", "-"];
    let summary = yard.run_with(args, ops).code(0).summary();
    assert_eq!(summary["batches"], 2);
    assert_eq!(summary["pushes"], 2);
    assert_eq!(yard.receives(), 2);
}

#[test]
fn branches_land_on_what_the_remote_has_now() {
    let yard = Yard::with_repository();
    let ops = lines(&[
        commit("a", "task/a", "a.txt", "a\n"),
        commit("b", "task/b", "README.md", "# b\n"),
        commit("c", "task/c", "README.md", "# c\n"),
    ]);
    yard.run_with(["git", "apply", "--repo", "repo", "-"], ops).code(0);
    yard.git(".", &["clone", "--quiet", "remote.git", "other"]);
    yard.write("other/news.txt", "news\n");
    yard.git("other", &["add", "--all"]);
    yard.git("other", &["-c", "user.name=O", "-c", "user.email=o@o", "commit", "-qm", "News"]);
    yard.git("other", &["push", "--quiet", "origin", "main"]);
    let before = yard.receives();
    let args =
        ["git", "land", "--repo", "repo", "--onto", "main", "task/a", "task/b", "task/c", "--json"];
    let ran = yard.run(args).code(1);
    assert_eq!(ran.line("task/a")["status"], "landed");
    assert_eq!(ran.line("task/b")["status"], "landed");
    let clash = ran.line("task/c");
    assert_eq!(clash["status"], "failed");
    assert_eq!(clash["error"]["kind"], "conflict");
    assert_eq!(clash["error"]["paths"], json!(["README.md"]));
    assert_eq!(clash["error"]["with"], json!(["task/b"]));
    assert_eq!(ran.summary()["pushes"], 1);
    assert_eq!(yard.receives() - before, 1);
    let listed = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(listed, "README.md\na.txt\nnews.txt");
    assert_eq!(yard.git("remote.git", &["show", "main:README.md"]), "# b");
}

/// Only git's words about a lock said so.
#[test]
fn a_landing_that_others_overtake_each_time_says_to_run_again() {
    let yard = Yard::with_repository();
    let ops = lines(&[commit("a", "task/a", "a.txt", "a\n")]);
    yard.run_with(["git", "apply", "--repo", "repo", "-"], ops).code(0);
    let hook = yard.overtake("main");
    let args = ["git", "land", "--repo", "repo", "--onto", "main", "task/a"];
    let ran = yard.run(args).code(1);
    assert!(ran.stdout.contains("somebody else has moved the branch at the remote"), "{ran:?}");
    assert!(ran.stderr.contains("run again to land on what the remote has then"), "{ran:?}");
    std::fs::remove_file(hook).expect("it is there");
    let ran = yard.run(args).code(0);
    assert!(!ran.stderr.contains("run again"), "{ran:?}");
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "a");
}

#[test]
fn variables_of_git_do_not_lead_astray() {
    let yard = Yard::with_repository();
    yard.git(".", &["init", "--quiet", "elsewhere"]);
    let before = yard.everything("elsewhere");
    let mut command = yard.program();
    command.args(["git", "apply", "--repo", "repo", "--json", "-"]);
    for (key, value) in [
        ("GIT_DIR", "elsewhere/.git"),
        ("GIT_WORK_TREE", "elsewhere"),
        ("GIT_INDEX_FILE", "elsewhere/index"),
        ("GIT_OBJECT_DIRECTORY", "elsewhere/objects"),
        ("GIT_COMMON_DIR", "elsewhere/.git"),
        ("GIT_NAMESPACE", "other"),
    ] {
        command.env(key, value);
    }
    let ops = lines(&[commit("c", "task/1", "a.txt", "a\n"), push("p", "task/1")]);
    let ran = common::finish(&mut command, ops.as_bytes()).code(0);
    assert_eq!(ran.summary()["landed"], 2);
    assert_eq!(yard.everything("elsewhere"), before);
    assert_eq!(yard.git("remote.git", &["show", "task/1:a.txt"]), "a");
}

#[test]
fn a_group_is_done_as_a_whole_or_not_at_all() {
    let yard = Yard::with_repository();
    let of = |mut op: Value, group: &str| {
        op["group"] = json!(group);
        op
    };
    let ops = lines(&[
        of(commit("a", "a", "a.txt", "a\n"), "good"),
        of(push("pa", "a"), "good"),
        of(commit("b", "b", "b.txt", "b\n"), "bad"),
        of(commit("c", "c", "../c.txt", "c\n"), "bad"),
        of(push("pb", "b"), "bad"),
    ]);
    let ran = yard.run_with(["git", "apply", "--repo", "repo", "--json", "-"], ops).code(1);
    for id in ["a", "pa"] {
        assert_eq!(ran.line(id)["status"], "landed");
    }
    assert_eq!(ran.line("c")["error"]["kind"], "invalid_path");
    for id in ["b", "pb"] {
        assert_eq!(ran.line(id)["status"], "skipped");
    }
    let branches = yard.git("repo", &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    assert_eq!(branches, "a\nmain");
}

#[test]
fn what_the_remote_has_and_more_is_superseded() {
    let yard = Yard::with_repository();
    yard.git("repo", &["branch", "old"]);
    yard.write("repo/more.txt", "more\n");
    yard.git("repo", &["add", "--all"]);
    yard.git("repo", &["commit", "--quiet", "--message", "More"]);
    yard.git("repo", &["push", "--quiet", "origin", "main:old"]);
    let ops = lines(&[push("p", "old")]);
    let ran = yard.run_with(["git", "apply", "--repo", "repo", "--json", "-"], ops).code(1);
    assert_eq!(ran.line("p")["status"], "failed");
    assert_eq!(ran.line("p")["error"]["kind"], "superseded");
}

#[test]
fn a_push_onto_a_branch_that_moved_does_what_it_is_told() {
    for (on_moved, subjects) in [
        ("merge", "Merge branch 'shared' of origin\nTheirs\nAdd second\nAdd first\nBegin"),
        ("rebase", "Add second\nTheirs\nAdd first\nBegin"),
        ("fail", "Theirs\nAdd first\nBegin"),
    ] {
        let yard = Yard::with_repository();
        let args = ["git", "apply", "--repo", "repo", "--json", "--on-moved", on_moved, "-"];
        let ops = |id: &str| lines(&[commit(id, "shared", id, "x\n"), push("p", "shared")]);
        yard.run_with(args, ops("first")).code(0);
        yard.git(".", &["clone", "--quiet", "--branch", "shared", "remote.git", "other"]);
        yard.write("other/theirs", "theirs\n");
        yard.git("other", &["add", "--all"]);
        yard.git(
            "other",
            &["-c", "user.name=O", "-c", "user.email=o@o", "commit", "-qm", "Theirs"],
        );
        yard.git("other", &["push", "--quiet", "origin", "shared"]);
        let ran = yard.run_with(args, ops("second")).code(i32::from(on_moved == "fail"));
        assert_eq!(ran.line("second")["status"], "landed");
        let at_remote = yard.git("remote.git", &["log", "--topo-order", "--format=%s", "shared"]);
        assert_eq!(at_remote, subjects, "{on_moved}");
        assert_eq!(ran.stderr.contains("--on-moved merge"), on_moved == "fail", "{ran:?}");
        if on_moved == "fail" {
            assert_eq!(ran.line("p")["error"]["transient"], true);
        } else {
            let here = yard.git("repo", &["rev-parse", "shared"]);
            assert_eq!(ran.line("p")["commit"], json!(here));
        }
    }
}

#[test]
fn a_dry_run_says_what_would_be_and_does_nothing() {
    let yard = Yard::with_repository();
    let ops = lines(&[
        commit("a", "task/a", "a.txt", "a\n"),
        push("p", "task/a"),
        commit("bad", "task/b", "../b.txt", "b\n"),
    ]);
    let before = yard.git("repo", &["for-each-ref"]);
    let args = ["git", "apply", "--repo", "repo", "--json", "--dry-run", "-"];
    let ran = yard.run_with(args, &ops).code(1);
    assert_eq!(ran.line("p")["status"], "landed");
    assert_eq!(ran.line("bad")["error"]["kind"], "invalid_path");
    let summary = ran.summary();
    assert_eq!((&summary["dry_run"], &summary["pushes"]), (&json!(true), &json!(0)));
    assert_eq!(yard.git("repo", &["for-each-ref"]), before);
    assert_eq!(yard.receives(), 0);

    yard.run_with(["git", "apply", "--repo", "repo", "-"], &ops).code(1);
    let land = ["git", "land", "--repo", "repo", "--onto", "main", "--json", "task/a"];
    let ran = yard.run(land.iter().chain(&["--dry-run"])).code(0);
    assert_eq!(ran.summary()["pushes"], 0);
    let at_remote = || yard.git("remote.git", &["log", "--format=%s", "main"]);
    assert_eq!(at_remote(), "Begin");
    yard.run(land.iter().chain(&["--strategy", "rebase"])).code(0);
    assert_eq!(at_remote(), "Add a\nBegin");
}

#[test]
fn a_writer_that_stays_is_waited_for_as_long_as_told() {
    let yard = Yard::with_repository();
    let ops = lines(&[commit("a", "task/a", "a.txt", "a\n")]);
    yard.run_with(["git", "apply", "--repo", "repo", "-"], &ops).code(0);
    let lock = std::fs::File::options()
        .write(true)
        .open(yard.path("repo/.git/batchyard/lock"))
        .expect("the first run made it");
    lock.lock().expect("nobody has it");
    let args = ["git", "apply", "--repo", "repo", "--json", "--wait", "20ms", "-"];
    let ran = yard.run_with(args, &ops).code(3);
    assert!(ran.stderr.contains("another process writes"), "{ran:?}");
    let args = ["git", "land", "--repo", "repo", "--onto", "main", "--wait", "20ms", "task/a"];
    yard.run(args).code(3);
    drop(lock);
    yard.run(args).code(0);
}

#[test]
fn the_same_input_again_does_nothing_twice() {
    let yard = Yard::with_repository();
    let ops = lines(&[
        commit("c", "task/1", "a.txt", "a\n"),
        push("p", "task/1"),
        json!({ "id": "bad", "op": "push", "branch": "no-such" }),
    ]);
    let apply = |ops: &str, more: &[&str]| {
        let mut args = vec!["git", "apply", "--repo", "repo", "-", "--json"];
        args.extend_from_slice(more);
        yard.run_with(args, ops)
    };
    let first = apply(&ops, &[]).code(1);
    assert_eq!(first.line("c")["replayed"], json!(null));
    let receipt = &first.summary()["receipt"];
    assert_eq!(receipt["pushes"], 1);
    assert!(receipt["bytes"].as_u64() > Some(0) && receipt["fsyncs"].as_u64() > Some(0));
    assert!(receipt["processes"].as_u64() > Some(0));
    let moved = |place: &str| {
        json!({ "name": "refs/heads/task/1", "place": place, "old": null,
                "new": first.line("c")["commit"] })
    };
    assert_eq!(receipt["refs"], json!([moved("local"), moved("remote")]));

    let again = apply(&ops, &[]).code(1);
    for id in ["c", "p", "bad"] {
        assert_eq!(again.line(id)["replayed"], true, "{id}");
        assert_eq!(again.line(id)["commit"], first.line(id)["commit"]);
    }
    assert_eq!(again.summary()["pushes"], 0);
    assert_eq!(yard.receives(), 1);

    let named = apply(&ops, &["--batch-id", "one"]).code(1);
    assert_eq!(named.line("c")["no_change"], true);
    let other = lines(&[commit("c", "task/1", "a.txt", "other\n")]);
    let refused = apply(&other, &["--batch-id", "one"]).code(2);
    assert!(refused.stderr.contains("\"one\"") && refused.stdout.is_empty(), "{refused:?}");
}

#[test]
fn a_gate_keeps_out_whom_it_fails_with() {
    let yard = Yard::with_repository();
    let names = ["a", "b", "c", "d"];
    let ops: Vec<Value> = names
        .iter()
        .map(|name| commit(name, &format!("task/{name}"), &format!("{name}.txt"), "x\n"))
        .collect();
    yard.run_with(["git", "apply", "--repo", "repo", "-"], lines(&ops)).code(0);
    let land = |more: &[&str], gate: &[&str]| {
        let mut args = vec!["git", "land", "--repo", "repo", "--onto", "main", "--json"];
        args.extend_from_slice(more);
        args.extend(["task/a", "task/b", "task/c", "task/d", "--gate"]);
        args.extend_from_slice(gate);
        yard.run(args)
    };
    // Options behind it are the gate's own.
    let gate =
        ["sh", "-c", "echo \"$1\"; test -z \"$OPENAI_API_KEY\" && ! test -e c.txt", "--", "--json"];
    let ran = land(&["--dry-run", "--gate-timeout", "1m"], &gate).code(1);
    assert_eq!(ran.summary()["pushes"], 0);
    assert!(ran.summary()["receipt"]["gate_runs"].as_u64() > Some(2));
    let ran = land(&[], &gate).code(1);
    for name in ["task/a", "task/b", "task/d"] {
        assert_eq!(ran.line(name)["status"], "landed");
    }
    let error = &ran.line("task/c")["error"];
    assert_eq!(error["kind"], "gate");
    assert!(error["message"].as_str().is_some_and(|said| said.contains(": --json")), "{error}");
    // What the dry run has found out is known.
    assert_eq!(ran.summary()["receipt"]["gate_runs"], json!(null));
    assert_eq!((yard.receives(), &ran.summary()["pushes"]), (1, &json!(1)));
    let files = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert!(files.contains("d.txt") && !files.contains("c.txt"), "{files}");

    let ran = land(&[], &["no-such-program"]).code(1);
    assert_eq!(ran.line("task/c")["error"]["kind"], "gate");
    // Nothing is left for it to say about the others.
    assert_eq!(ran.line("task/a")["no_change"], true, "{ran:?}");
    land(&["--fresh"], &[]).code(2);
    land(&["--gate-timeout", "0s"], &["true"]).code(2);
    land(&["--gate-env", "OPENAI_API_KEY"], &["true"]).code(2);
    yard.run(["git", "land", "--repo", "repo", "--onto", "main", "--fresh", "task/a"]).code(2);
}

#[test]
fn a_gate_stands_before_the_pushes_of_any_input() {
    let yard = Yard::with_repository();
    let push =
        |branch: &str| json!({"id": format!("push {branch}"), "op": "push", "branch": branch});
    let ops = [
        commit("a", "task/a", "a.txt", "x\n"),
        push("task/a"),
        commit("b", "task/b", "b.txt", "x\n"),
        commit("bad", "task/b", "bad.txt", "x\n"),
        push("task/b"),
    ];
    yard.write("ops.jsonl", lines(&ops));
    let apply = |more: &[&str], gate: &[&str]| {
        let mut args = vec!["git", "apply", "--repo", "repo", "--json"];
        args.extend_from_slice(more);
        args.extend(["ops.jsonl", "--gate"]);
        args.extend_from_slice(gate);
        yard.run(args)
    };
    let gate = ["sh", "-c", "test -z \"$OPENAI_API_KEY\" && ! test -e bad.txt"];
    let ran = apply(&["--dry-run"], &gate).code(1);
    assert_eq!(ran.line("bad")["error"]["kind"], "gate");
    assert_eq!(yard.receives(), 0);
    let ran = apply(&[], &gate).code(1);
    for id in ["a", "push task/a", "b", "push task/b"] {
        assert_eq!(ran.line(id)["status"], "landed", "{id}");
    }
    assert_eq!((yard.receives(), &ran.summary()["pushes"]), (1, &json!(1)));
    let files = yard.git("remote.git", &["ls-tree", "--name-only", "task/b"]);
    assert!(files.contains("b.txt") && !files.contains("bad.txt"), "{files}");
    // It is tried again, and passes another gate.
    let ran = apply(&["--gate-timeout", "1m"], &["true"]).code(0);
    assert_eq!(ran.line("a")["replayed"], true);
    assert!(yard.git("remote.git", &["ls-tree", "--name-only", "task/b"]).contains("bad.txt"));
    yard.run(["git", "apply", "--repo", "repo", "--fresh", "ops.jsonl"]).code(2);
}

#[test]
fn a_signal_ends_the_gate_and_nothing_is_pushed() {
    let yard = Yard::with_repository();
    let op = commit("a", "task/a", "a.txt", "x\n");
    yard.run_with(["git", "apply", "--repo", "repo", "-"], lines(&[op])).code(0);
    let begun = yard.path("begun");
    let script = format!("touch '{}'; sleep 1000", begun.display());
    let child = yard
        .program()
        .args(["git", "land", "--repo", "repo", "--onto", "main", "task/a", "--gate"])
        .args(["sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    while !begun.exists() {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let mut kill = std::process::Command::new("kill");
    assert!(kill.args(["-s", "INT", &pid]).status().expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stdout).contains("was stopped"), "{output:?}");
    assert_eq!(yard.receives(), 0);
}
