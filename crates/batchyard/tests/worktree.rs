//! `git apply` with what agents left in their worktrees.

mod common;

use common::Yard;
use serde_json::{Value, json};

fn lines(objects: &[Value]) -> String {
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn capture(id: &str, branch: &str, what: &Value) -> Value {
    let mut op = json!({ "id": id, "op": "commit", "branch": branch, "message": "Agent's work" });
    for (key, value) in what.as_object().expect("an object") {
        op[key] = value.clone();
    }
    op
}

#[test]
fn dirty_worktrees_become_commits_in_one_push() {
    let yard = Yard::with_repository();
    let mut ops = Vec::new();
    for n in 0..5 {
        let (branch, dir) = (format!("agent/{n}"), format!("../agent-{n}"));
        yard.git("repo", &["worktree", "add", "--quiet", "-b", &branch, &dir]);
        yard.write(&format!("agent-{n}/README.md"), format!("# Project {n}\n"));
        yard.write(&format!("agent-{n}/.env"), "TOKEN=1\n");
        // A relative path counts from where the program runs.
        let what = json!({ "worktree": format!("agent-{n}"), "all": true });
        ops.push(capture(&format!("c{n}"), &branch, &what));
        ops.push(json!({ "id": format!("p{n}"), "op": "push", "branch": branch }));
    }
    let args = ["git", "apply", "--repo", "repo", "--json", "-"];
    let ran = yard.run_with(args, lines(&ops)).code(0);
    assert_eq!(ran.summary()["pushes"], 1);
    assert_eq!(yard.receives(), 1);
    for n in 0..5 {
        let line = ran.line(&format!("c{n}"));
        assert_eq!(line["status"], "landed");
        assert_eq!(line["left_out"], json!([{ "path": ".env", "reason": "secret" }]));
        assert_eq!(yard.git(&format!("agent-{n}"), &["status", "--porcelain"]), "?? .env");
        let at_remote = yard.git("remote.git", &["rev-parse", &format!("agent/{n}")]);
        assert_eq!(line["commit"], json!(at_remote));
    }
}

#[test]
fn named_files_of_a_worktree() {
    let yard = Yard::with_repository();
    yard.git("repo", &["worktree", "add", "--quiet", "-b", "x", "../x"]);
    yard.write("x/a.txt", "a\n");
    yard.write("x/b.txt", "b\n");
    let op = |id: &str, branch, files| {
        capture(id, branch, &json!({ "worktree": yard.path("x"), "files": files }))
    };
    let ops = [
        op("a", "x", json!(["a.txt"])),
        op("again", "x", json!(["a.txt"])),
        op("other branch", "main", json!(["a.txt"])),
        op("outside", "x", json!(["../repo/README.md"])),
    ];
    let args = ["git", "apply", "--repo", "repo", "--json", "-"];
    let ran = yard.run_with(args, lines(&ops)).code(1);
    assert_eq!(ran.line("a")["status"], "landed");
    assert_eq!(ran.line("again")["no_change"], true);
    assert_eq!(ran.line("other branch")["error"]["kind"], "other_branch");
    assert_eq!(ran.line("outside")["error"]["kind"], "invalid_path");
    assert_eq!(yard.git("x", &["status", "--porcelain"]), "?? b.txt");
    let ran = yard.run_with(&args[..4], "").code(2);
    assert!(ran.stdout.is_empty());
}

#[test]
fn a_worktree_says_what_to_take() {
    let yard = Yard::with_repository();
    for (what, fault) in [
        (json!({ "worktree": "x" }), "needs \"files\" or \"all\":true"),
        (json!({ "worktree": "x", "all": true, "files": ["a"] }), "excludes \"files\""),
        (json!({ "worktree": "x", "all": true, "changes": [] }), "excludes \"changes\""),
        (json!({ "all": true, "changes": [] }), "belongs to a worktree only"),
        (json!({ "worktree": "x", "files": "a" }), "expected an array of strings"),
        (json!({}), "give changes or a worktree"),
    ] {
        let args = ["git", "apply", "--repo", "repo", "--json", "-"];
        yard.run_with(args, lines(&[capture("c", "x", &what)])).refused(&[fault]);
    }
}
