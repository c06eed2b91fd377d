//! `run` with plans of a user's own: a repository, a remote, a provider.

mod common;

use common::finish;
use common::plan::{another_plan, command, planned, run, task};
use common::server::{Creates, Server};
use serde_json::json;

#[test]
fn a_plan_of_ones_own_goes_the_same_way_twice() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt"), ("three", "c.txt")]);
    yard.write("repo/README.md", "# edited\n");
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(0);
    assert_eq!(ran.summary()["submissions"], 1);
    assert_eq!(ran.summary()["pushes"], 1);
    assert_eq!(yard.receives(), 1);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    assert_eq!(yard.git("remote.git", &["show", "batchyard/one:a.txt"]), "made");
    // Nothing of the user's is touched: not the checked-out branch, not the files.
    assert_eq!(yard.git("repo", &["log", "--format=%s", "main"]), "Begin");
    assert_eq!(yard.git("repo", &["status", "--short"]), " M README.md");
    let refs = yard.git("repo", &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert!(!refs.contains("batchyard-merge"), "{refs}");
    assert!(!yard.path("plan/plan.toml.state").exists(), "a finished run leaves no state");
    // The local main is behind now; a new run begins at what the remote has.
    let again = run(&yard, &server).code(0);
    assert_eq!(again.summary()["succeeded"], 3);
    assert_eq!(server.creates().len(), 2);
    let plan = yard.read("plan/plan.toml") + &task("four", "d.txt", "");
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:d.txt"]), "made");
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
    // A local base that nobody has checked out follows the remote's.
    yard.git("repo", &["checkout", "--quiet", "-b", "side"]);
    let plan = yard.read("plan/plan.toml") + &task("five", "e.txt", "");
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(0);
    let landed = yard.git("remote.git", &["rev-parse", "main"]);
    assert_eq!(yard.git("repo", &["rev-parse", "main"]), landed);
}

#[test]
fn a_remote_whose_head_was_never_made_lands_on_the_branch_it_has() {
    let yard = planned("", &[("one", "a.txt")]);
    yard.git("remote.git", &["symbolic-ref", "HEAD", "refs/heads/never"]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

#[test]
fn tasks_that_clash_fail_alone_and_become_lessons() {
    // Both write their own prompt to the same path.
    let tasks = [("one", "+same.txt"), ("late", "+same.txt"), ("two", "b.txt"), ("bad", ".git/x")];
    let yard = planned("", &tasks);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert_eq!(ran.line("bad")["error"]["kind"], "path_not_allowed");
    assert_eq!(ran.line("one")["status"], "succeeded");
    let late = ran.line("late");
    assert_eq!((&late["status"], &late["error"]["kind"]), (&json!("failed"), &json!("conflict")));
    // What it did is there to be looked at.
    let commit = yard.git("repo", &["rev-parse", "batchyard/late"]);
    assert_eq!((&late["branch"], &late["commit"]), (&json!("batchyard/late"), &json!(commit)));
    assert_eq!(ran.summary()["failed"], 2);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    assert!(yard.git("remote.git", &["show", "main:same.txt"]).contains("Task one"));
    let lessons = yard.read("plan/lessons.jsonl");
    assert_eq!(lessons.lines().count(), 2, "{lessons}");
    let of_kind = ["lessons", "query", "plan/lessons.jsonl", "--failure-type", "conflict"];
    let lesson = &yard.run(of_kind).code(0).objects()[0];
    assert_eq!((&lesson["times_seen"], &lesson["task_type"]), (&json!(1), &json!("implementer")));
}

/// The account is at fault, and no agent can do anything about it.
#[test]
fn nothing_is_learned_from_a_key_that_is_refused() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let ran = run(&yard, &Server::start(Creates::Unauthorized)).code(1);
    assert_eq!(ran.line("two")["error"]["kind"], "authentication_error");
    assert!(!yard.path("plan/lessons.jsonl").exists());
    // Nothing was paid, so the next run asks again.
    another_plan(&yard, &[]);
    run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
}

/// The id of a task says nothing about its kind, and what somebody has written stays.
#[test]
fn a_failure_is_learned_for_the_kind_of_task_that_it_happened_to() {
    let yard = planned("", &[("one", ".git/x")]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    let lesson = &yard.run(["lessons", "query", "plan/lessons.jsonl"]).code(0).objects()[0];
    let mut edited = lesson.clone();
    edited["resolution"] = json!("Leave git's folder alone.");
    yard.run_with(["lessons", "add", "plan/lessons.jsonl"], edited.to_string()).code(0);
    another_plan(&yard, &[]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    another_plan(&yard, &[("\"implementer\"", "\"judge\"")]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    let found = |kind| {
        let args = ["lessons", "query", "plan/lessons.jsonl", "--task-type", kind];
        yard.run(args).code(0).objects()
    };
    let (implementer, judge) = (found("implementer"), found("judge"));
    assert_eq!((implementer.len(), judge.len()), (1, 1));
    assert_eq!(implementer[0]["times_seen"], 2);
    assert_eq!(implementer[0]["resolution"], "Leave git's folder alone.");
    assert_eq!(judge[0]["times_seen"], 1);
}

#[test]
fn a_gate_that_fails_holds_everything_back() {
    let gate = |script: &str| format!("[gate]\nrun = [\"sh\", \"-c\", '{script}']");
    let yard = planned(&gate("test -f a.txt && test -f README.md"), &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");

    // A tree with what was answered fails, and one without it does not.
    let yard = planned(&gate("echo told; ! ls *.txt"), &[("one", "a.txt"), ("two", "b.txt")]);
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert!(ran.stderr.contains("told"), "what the gate prints is on stderr: {ran:?}");
    for id in ["one", "two"] {
        assert_eq!(ran.line(id)["error"]["kind"], "gate");
        assert!(ran.line(id)["commit"].is_string(), "{ran:?}");
    }
    let summary = ran.summary();
    assert_eq!((&summary["failed"], &summary["pushes"]), (&json!(2), &json!(0)));
    assert_eq!(summary["round_trips_saved"], 0, "nothing was pushed, so nothing is saved");
    assert_eq!(yard.receives(), 0);
    assert_eq!(yard.git("repo", &["log", "--format=%s", "main"]), "Begin");
}

/// It runs what a model wrote.
#[test]
fn a_gate_sees_no_variables_but_those_of_tools_and_those_that_are_named() {
    let secrets =
        ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "CARGO_REGISTRY_TOKEN"];
    let script = "env | grep -E \"s3cret|sk-ant\" && exit 1; \
                  test -n \"$PATH\" && test -n \"$HOME\" && test \"$LC_TIME\" = C && test \"$DB\" = x";
    let gate = format!("[gate]\nenv = [\"DB\"]\nrun = [\"sh\", \"-c\", '{script}']");
    let yard = planned(&gate, &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let mut program = command(&yard, &server);
    program.env("LC_TIME", "C").env("DB", "x").envs(secrets.map(|name| (name, "s3cret")));
    finish(&mut program, b"").code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

/// The gate has a checkout of its own, whether or not the repository has one.
#[test]
fn a_gate_runs_in_a_bare_repository_too() {
    let yard = planned("[gate]\nrun = [\"test\", \"-f\", \"a.txt\"]", &[("one", "a.txt")]);
    yard.git(".", &["clone", "--quiet", "--bare", "remote.git", "bare.git"]);
    for (key, value) in [("user.name", "Tester"), ("user.email", "tester@example.invalid")] {
        yard.git("bare.git", &["config", key, value]);
    }
    let plan = yard.read("plan/plan.toml").replace("../repo", "../bare.git");
    yard.write("plan/plan.toml", plan);
    run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

/// Somebody has gone on by hand where a run has stopped.
#[test]
fn what_a_user_commits_to_the_branch_of_a_task_stays_and_goes_along() {
    let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt")]);
    yard.git("repo", &["checkout", "--quiet", "-b", "batchyard/one"]);
    yard.write("repo/by-hand.txt", "mine\n");
    yard.git("repo", &["add", "--all"]);
    yard.git("repo", &["commit", "--quiet", "-m", "By hand"]);
    let by_hand = yard.git("repo", &["rev-parse", "HEAD"]);
    yard.git("repo", &["checkout", "--quiet", "main"]);
    run(&yard, &Server::start(Creates::Work)).code(0);
    yard.git("repo", &["merge-base", "--is-ancestor", &by_hand, "batchyard/one"]);
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(tree.replace('\n', " "), "README.md a.txt by-hand.txt");
}

/// Another clone has pushed it, and the base does not have it.
#[test]
fn a_branch_of_a_task_that_only_the_remote_has_is_gone_on_from() {
    let yard = planned("[land]\npush = \"branches\"", &[("one", "a.txt")]);
    yard.git("repo", &["checkout", "--quiet", "-b", "batchyard/one"]);
    yard.write("repo/theirs.txt", "theirs\n");
    yard.git("repo", &["add", "--all"]);
    yard.git("repo", &["commit", "--quiet", "-m", "Theirs"]);
    yard.git("repo", &["push", "--quiet", "origin", "batchyard/one"]);
    yard.git("repo", &["checkout", "--quiet", "main"]);
    yard.git("repo", &["branch", "--quiet", "-D", "batchyard/one"]);
    run(&yard, &Server::start(Creates::Work)).code(0);
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "batchyard/one"]);
    assert_eq!(tree.replace('\n', " "), "README.md a.txt theirs.txt");
}

/// The commit of a task is made once, also if the merges are made again.
#[test]
fn a_task_that_deletes_lands_on_a_base_that_moves_meanwhile() {
    let yard = planned("", &[("one", "-README.md"), ("two", "b.txt")]);
    yard.git(".", &["clone", "--quiet", "remote.git", "other"]);
    for (key, value) in [("user.name", "Other"), ("user.email", "other@example.invalid")] {
        yard.git("other", &["config", key, value]);
    }
    // While the gate runs for the first time, and once more while the push does.
    let push = format!(
        "cd '{}' && date +%N > moved && git add moved && git commit -qm moved && \
         git push -q origin main >/dev/null 2>&1",
        yard.path("other").display()
    );
    yard.write("gate.sh", format!("test -e moved || ({push})\n"));
    let gate = yard.path("gate.sh").display().to_string();
    let plan = format!("gate.run = [\"sh\", \"{gate}\"]\n") + &yard.read("plan/plan.toml");
    yard.write("plan/plan.toml", plan);
    yard.write(
        "remote.git/hooks/pre-receive",
        format!(
            "#!/bin/sh\nn=$(cat count 2>/dev/null || echo 0); echo $((n+1)) > count; \
             test $n = 1 || exit 0; unset $(git rev-parse --local-env-vars) GIT_QUARANTINE_PATH; \
             {push}; exit 0\n"
        ),
    );
    common::make_executable(&yard.path("remote.git/hooks/pre-receive"));
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(0);
    assert_eq!(ran.summary()["succeeded"], 2);
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(tree.replace('\n', " "), "b.txt moved");
    for id in ["one", "two"] {
        let branch = format!("batchyard/{id}");
        let count = ["rev-list", "--count", "--no-merges", &format!("main..{branch}")];
        assert_eq!(yard.git("remote.git", &count), "0");
        assert_eq!(yard.git("repo", &["rev-list", "--count", &format!("main..{branch}")]), "1");
    }
}

/// The user has taken back what has landed: the same plan does it once more.
#[test]
fn a_new_run_is_another_landing() {
    let yard = planned("", &[("one", "-README.md")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(0);
    yard.git("repo", &["pull", "--quiet", "origin", "main"]);
    yard.git("repo", &["revert", "--no-edit", "-m", "1", "HEAD"]);
    yard.git("repo", &["push", "--quiet", "origin", "main"]);
    assert_eq!(yard.git("remote.git", &["ls-tree", "--name-only", "main"]), "README.md");
    // Of three more tasks one landed, the branch of the next is gone, and the last landed as another
    // commit, after which its branch was moved.
    yard.git("repo", &["branch", "--quiet", "batchyard/landed", "main~1"]);
    for name in ["refs/batchyard/run/batchyard/landed", "refs/batchyard/run/batchyard/gone"] {
        yard.git("repo", &["update-ref", name, "main~1"]);
    }
    let squashed =
        yard.git("repo", &["commit-tree", "-m", "Squashed", "-p", "main~1", "main~1^{tree}"]);
    yard.git("repo", &["branch", "--quiet", "batchyard/moved", "main~1"]);
    yard.git("repo", &["update-ref", "refs/batchyard/run/batchyard/moved", &squashed]);
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["ls-tree", "--name-only", "main"]), "");
    let left = yard.git("repo", &["for-each-ref", "--format=%(refname)", "refs/batchyard/run"]);
    assert_eq!(left, "refs/batchyard/run/batchyard/one");
}

/// An answer that changes nothing is no fault.
#[test]
fn an_answer_that_is_there_already_lands() {
    let yard = planned("", &[("one", "README.md"), ("two", "b.txt")]);
    yard.write("repo/README.md", "made\n");
    yard.git("repo", &["commit", "--quiet", "--all", "-m", "Made"]);
    yard.git("repo", &["push", "--quiet", "origin", "main"]);
    let ran = run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(ran.summary()["succeeded"], 2);
}

/// What the gate did not let pass is not in the way of better answers.
#[test]
fn what_a_gate_refused_is_no_part_of_the_next_run() {
    let gate = "gate.run = [\"sh\", \"-c\", \"echo told >&2; ! test -e bad.txt\"]";
    let yard = planned(gate, &[("one", "bad.txt"), ("two", "b.txt")]);
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert_eq!(ran.line("one")["error"]["kind"], "gate");
    assert_eq!(ran.line("two")["status"], "succeeded");
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    assert!(ran.stderr.contains("told"), "{ran:?}");
    let lessons = yard.read("plan/lessons.jsonl");
    assert!(lessons.contains("\"failure_type\":\"gate\""), "{lessons}");
    assert!(!lessons.contains(": told"), "{lessons}");

    another_plan(&yard, &[("path = \"bad.txt\"", "path = \"good.txt\"")]);
    yard.git("repo", &["config", "core.logAllRefUpdates", "false"]);
    std::fs::remove_dir_all(yard.path("repo/.git/logs")).expect("it is there");
    let bad = yard.git("repo", &["rev-parse", "batchyard/one"]);
    run(&yard, &Server::start(Creates::Work)).code(0);
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert_eq!(tree.replace('\n', " "), "README.md b.txt good.txt");
    // It can be had back, also where git keeps no reflog by itself.
    let log = yard.read("repo/.git/logs/refs/heads/batchyard/one");
    assert!(log.starts_with(&bad), "{log}");
}

/// Its change is in the base, where the plan wants it.
#[test]
fn a_branch_of_a_task_that_is_refused_beside_the_base_is_told_only() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let hook = "remote.git/hooks/update";
    yard.write(hook, "#!/bin/sh\ntest $1 != refs/heads/batchyard/one\n");
    common::make_executable(&yard.path(hook));
    let ran = run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(ran.summary()["succeeded"], 2);
    assert!(ran.stderr.contains("not pushed: batchyard/one"), "{ran:?}");
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

#[test]
fn what_a_run_keeps_in_the_repository_is_its_owner_s() {
    use std::os::unix::fs::PermissionsExt;
    let yard = planned("", &[("one", "a.txt")]);
    run(&yard, &Server::start(Creates::Work)).code(0);
    let data = std::fs::metadata(yard.path("repo/.git/batchyard")).expect("it is there");
    assert_eq!(data.permissions().mode() & 0o777, 0o700);
}

#[test]
fn what_is_pushed_is_what_the_plan_says() {
    for (push, refs) in [("branches", "batchyard/one main"), ("base", "main")] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &[("one", "a.txt")]);
        let ran = run(&yard, &Server::start(Creates::Work)).code(0);
        assert_eq!(ran.summary()["pushes"], 1);
        let found =
            yard.git("remote.git", &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
        assert_eq!(found.replace('\n', " "), refs);
        let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
        assert_eq!(tree.contains("a.txt"), push == "base");
    }
}

#[test]
fn recorded_answers_stop_before_the_push() {
    let yard = planned("answers = \"answers\"\nprovider = \"offline\"", &[("one", "a.txt")]);
    yard.write("plan/answers/one.md", r#"{"files":[{"path":"a.txt","content":"x"}]}"#);
    let ran = yard.run(["run", "plan/plan.toml", "--json"]).code(0);
    assert!(ran.stderr.contains("stopped before the push"), "{ran:?}");
    assert_eq!(ran.summary()["pushes"], 0);
    assert_eq!(yard.receives(), 0);
    assert_eq!(yard.git("repo", &["show", "batchyard/one:a.txt"]), "x");
}

#[test]
fn a_task_can_need_the_answer_of_another() {
    let yard = planned("answers = \"answers\"\nprovider = \"offline\"", &[("one", "a.txt")]);
    yard.write(
        "plan/prompts/judge.prompt.md",
        "{% for w in after %}{{ w.id }}: {{ w.answer }}{% endfor %}",
    );
    let judge = |id: &str, after: &str| {
        format!(
            "[[task]]\nid = \"{id}\"\nkind = \"judge\"\nmodel = \"m\"\ntemplate = \"judge\"\n\
             after = [\"{after}\"]\n"
        )
    };
    let plan = yard.read("plan/plan.toml")
        + &task("bad", "b.txt", "expect = \"fail\"")
        + &judge("judged", "one")
        + &judge("unjudged", "bad");
    yard.write("plan/plan.toml", plan);
    yard.write("plan/answers/one.md", r#"{"files":[{"path":"a.txt","content":"x"}]}"#);
    yard.write("plan/answers/bad.md", "no");
    yard.write("plan/answers/judged.md", r#"{"files":[{"path":"j.txt","content":"x"}]}"#);
    let ran = yard.run(["run", "plan/plan.toml", "--json"]).code(1);
    assert_eq!(ran.line("judged")["status"], "succeeded");
    assert_eq!(ran.line("unjudged")["status"], "skipped");
    assert_eq!(ran.summary()["submissions"], 2);
    assert_eq!(ran.summary()["failed"], 2);
}

#[test]
fn lessons_that_cannot_be_recorded_take_nothing_back() {
    let yard = planned("", &[("one", "a.txt"), ("wrong", ".git/x")]);
    // A folder in the way of the lock file of the lessons.
    yard.write("plan/lessons.jsonl.lock/x", "");
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert!(ran.stderr.contains("the lessons are not recorded"), "{ran:?}");
    assert_eq!(ran.summary()["succeeded"], 1);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
    assert!(!yard.path("plan/plan.toml.state").exists());
}

#[test]
fn plans_are_checked_whole() {
    let yard = planned("provider = \"offline\"\nanswers = \".\"", &[("one", "a.txt")]);
    let good = yard.read("plan/plan.toml");
    let check = |from: &str, to: &str, texts: &[&str]| {
        assert!(good.contains(from), "{from}");
        yard.write("plan/plan.toml", good.replacen(from, to, 1));
        let before = yard.everything("repo");
        yard.run(["run", "plan/plan.toml"]).refused(texts);
        assert!(yard.everything("repo") == before);
    };
    check("[[task]]", "[[task]", &["plan.toml:"]);
    check(
        "template",
        "templte",
        &["plan.toml:10", "unknown field `templte`", "did you mean \"template\"?"],
    );
    check("lessons", "leson", &["plan.toml:3", "did you mean \"lessons\"?"]);
    check("kind = \"implementer\"", "kind = 5", &["plan.toml:8"]);
    check("\"m\"", "\"\"", &["plan.toml:9: \"model\" is empty"]);
    check("\"do\"", "\"od\"", &["task \"one\"", "no template \"od\"", "did you mean \"do\"?"]);
    check("path =", "pth =", &["task \"one\"", "path"]);
    check("\"prompts\"", "\"absent\"", &["plan.toml:2", "absent does not exist"]);
    check("answers = \".\"", "answers = \"absent\"", &["plan.toml:5", "absent does not exist"]);
    check("answers = \".\"", "", &["offline", "answers"]);
    check("provider = \"offline\"", "", &["no provider is named", "--provider"]);
    check("\"offline\"", "\"ofline\"", &["plan.toml:4", "did you mean \"offline\"?"]);
    check("\"../repo\"", "\"../absent\"", &["absent does not exist"]);
    check("repo =", "remote = \"upstream\"\nrepo =", &["upstream", "origin", "git remote add"]);
    check("repo =", "allow = [\"a[\"]\nrepo =", &["plan.toml:1: \"allow\""]);
    check("repo =", "allow = []\nrepo =", &["plan.toml:1: \"allow\" is empty"]);
    for key in ["\"../repo\"", "\"prompts\"", "\"lessons.jsonl\"", "\".\""] {
        check(key, "\"\"", &["plan.toml:", " is empty"]);
    }
    check("repo =", "state = \"\"\nrepo =", &["plan.toml:1: \"state\" is empty"]);
    check("repo =", "base_url = \"https://x\"\nrepo =", &["plan.toml:1: \"base_url\"", "offline"]);
    check("\"lessons.jsonl\"", "\"absent/l.jsonl\"", &["no such folder", "absent"]);
    check("[[task]]", &(task("One", "x", "") + "[[task]]"), &["\"One\"", "\"one\"", "case"]);
    let gate = |rest: &str| format!("[gate]\n{rest}\n[[task]]");
    check("[[task]]", &gate("run = [\"no-such-program\"]"), &["no program \"no-such-program\""]);
    let names = gate("run = [\"true\"]\nenv = [\"A=B\"]");
    check("[[task]]", &names, &["plan.toml:8: \"env\"", "name of a variable"]);
    let key = gate("run = [\"true\"]\nenv = [\"OPENAI_API_KEY\"]");
    check("[[task]]", &key, &["plan.toml:8: \"env\"", "OPENAI_API_KEY"]);
    check("[[task]]", "[land]\nonto = \"absent\"\n[[task]]", &["no branch \"absent\"", "main"]);
    check("[[task]]", "[land]\npush = \"all\"\n[[task]]", &["plan.toml:7"]);
    check("[[task]]", "[land]\nonto = \"a..b\"\n[[task]]", &["plan.toml:7: \"onto\"", "a..b"]);
    check("[[task]]", "[gate]\nrun = []\n[[task]]", &["plan.toml:7: \"run\" names no program"]);
    check("[[task]]", "[demo]\nsource = \".\"\n[[task]]", &["exclude each other"]);
    let gate = "[gate]\nrun = [\"true\"]\n[land]\npush = \"branches\"\n[[task]]";
    check("[[task]]", gate, &["plan.toml:7"]);
    check("[[task]]", &(task("one", "x", "") + "[[task]]"), &["\"one\" exists already"]);
    let after = task("two", "x", "after = [\"oen\"]") + "[[task]]";
    check("[[task]]", &after, &["no task \"oen\"", "did you mean \"one\"?"]);
    let circle = task("two", "x", "after = [\"three\"]") + &task("three", "x", "after = [\"two\"]");
    check("[[task]]", &(circle + "[[task]]"), &["wait for each other: two, three"]);
    check("id = \"one\"", "id = \"a..b\"", &["plan.toml:7", "a..b"]);
    check("[[task]]", &(task("one/more", "x", "") + "[[task]]"), &["one/more"]);
    check("{ path", "{ task = 1, path", &["belongs to the program"]);
    check("{ path", "{ x = [{ y = nan }], path", &["plan.toml:", "not finite"]);
    check("template", "expect = \"pass\"\ntemplate", &["plan.toml:10"]);
    check("template", "max_tokens = 0\ntemplate", &["at least 1"]);
    let demo = good.replace("repo = \"../repo\"\n", "");
    yard.write("plan/plan.toml", demo.replace("[[task]]", "[demo]\nsource = \"absent\"\n[[task]]"));
    yard.run(["run", "plan/plan.toml", "--dry-run"]).refused(&["plan.toml:6", "absent does not"]);
    yard.git("repo", &["branch", "--quiet", "batchyard"]);
    check("[[task]]", "[[task]]", &["a branch \"batchyard\"", "\"batchyard/one\"", "rename"]);
    yard.git("repo", &["branch", "--quiet", "-D", "batchyard"]);
    yard.git("repo", &["branch", "--quiet", "batchyard/one/more"]);
    check("[[task]]", "[[task]]", &["\"batchyard/one/more\""]);
    assert!(!yard.path("plan/plan.toml.state").exists(), "nothing is left behind");
    yard.write("plan/plan.toml", good.split("[[task]]").next().expect("a head"));
    yard.run(["run", "plan/plan.toml"]).refused(&["the plan has no task"]);
}

#[test]
fn a_date_in_the_data_of_a_task_is_a_text() {
    let yard = planned("", &[("one", "a.txt")]);
    yard.write("plan/prompts/do.prompt.md", "{{ due }} {{ more | json }} path:{{ path }} now\n");
    another_plan(&yard, &[("{ path", "{ due = 2026-12-24, more = [{ at = 07:30:00 }], path")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(0);
    let sent = server.creates()[0].json().to_string();
    assert!(sent.contains("2026-12-24 ") && sent.contains("07:30:00"), "{sent}");
    assert!(!sent.contains("private"), "{sent}");
}

#[test]
fn a_repository_whose_path_is_no_text_works_too() {
    use std::os::unix::ffi::OsStrExt;
    let yard = planned("", &[("one", "a.txt")]);
    let odd = yard.path(std::ffi::OsStr::from_bytes(b"r\xffp"));
    // Where a file system takes text only, there is no such path.
    if std::fs::rename(yard.path("repo"), &odd).is_err() {
        return;
    }
    std::os::unix::fs::symlink(&odd, yard.path("repo")).expect("linked");
    run(&yard, &Server::start(Creates::Work)).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

/// The others are not held back by it, and no agent learns from it.
#[test]
fn a_template_that_fails_on_real_answers_fails_alone() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let judge = "{% for w in after %}{% if contains(w.answer, \"made\") %}{{ w.nothere }}{% endif %}\
                 {% endfor %} path:j.txt now\n";
    yard.write("plan/prompts/judge.prompt.md", judge);
    let plan = yard.read("plan/plan.toml")
        + &task("judge", "j", "after = [\"one\"]").replace("\"do\"", "\"judge\"");
    yard.write("plan/plan.toml", plan);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert_eq!(ran.line("judge")["error"]["kind"], "prompt");
    assert!(ran.line("judge")["error"]["message"].to_string().contains("nothere"), "{ran:?}");
    for path in ["a.txt", "b.txt"] {
        assert_eq!(yard.git("remote.git", &["show", &format!("main:{path}")]), "made");
    }
    assert_eq!(server.creates().len(), 1);
    assert!(!yard.path("plan/lessons.jsonl").exists());
    assert!(!yard.path("plan/plan.toml.state").exists());
}
