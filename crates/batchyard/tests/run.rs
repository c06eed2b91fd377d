//! `run` with plans of a user's own: a repository, a remote, a provider.

mod common;

use std::io::Read as _;
use std::process::{Command, Stdio};

use common::server::{Creates, Server};
use common::{Ran, Yard, finish};
use serde_json::json;

/// A yard with a repository and a plan of its own.
fn planned(head: &str, tasks: &[(&str, &str)]) -> Yard {
    let yard = Yard::with_repository();
    yard.write("plan/prompts/do.prompt.md", "Task {{ task.id }} path:{{ path }} now\n");
    let mut plan =
        format!("repo = \"../repo\"\nprompts = \"prompts\"\nlessons = \"lessons.jsonl\"\n{head}\n");
    for (id, path) in tasks {
        plan.push_str(&task(id, path, ""));
    }
    yard.write("plan/plan.toml", plan);
    yard
}

fn task(id: &str, path: &str, more: &str) -> String {
    format!(
        "[[task]]\nid = \"{id}\"\nkind = \"implementer\"\nmodel = \"m\"\ntemplate = \"do\"\n\
         data = {{ path = \"{path}\" }}\n{more}\n"
    )
}

fn command(yard: &Yard, server: &Server) -> Command {
    let mut command = yard.program();
    command.env("ANTHROPIC_API_KEY", "sk-ant-very-secret");
    command.args(["run", "plan/plan.toml", "--json"]);
    // The plan's own address would do as well; here the port is known only now.
    let plan = yard.read("plan/plan.toml");
    if !plan.contains("base_url") {
        let plan = format!("provider = \"anthropic\"\nbase_url = \"{}\"\n{plan}", server.url);
        yard.write("plan/plan.toml", plan);
    }
    command
}

fn run(yard: &Yard, server: &Server) -> Ran {
    let ran = finish(&mut command(yard, server), b"");
    assert!(!ran.stdout.contains("sk-ant") && !ran.stderr.contains("sk-ant"), "{ran:?}");
    ran
}

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
    let yard = planned("", &[("one", "same.txt"), ("two", "b.txt"), ("wrong", ".github/x.yml")]);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert_eq!(ran.line("wrong")["error"]["kind"], "path_not_allowed");
    assert_eq!(ran.summary()["failed"], 1);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    let lessons = yard.read("plan/lessons.jsonl");
    assert_eq!(lessons.lines().count(), 1, "{lessons}");
    run(&yard, &server).code(1);
    let found = yard.run(["lessons", "query", "plan/lessons.jsonl"]).code(0);
    let lesson = &found.objects()[0];
    assert_eq!((&lesson["times_seen"], &lesson["task_type"]), (&json!(2), &json!("implementer")));
}

#[test]
fn a_gate_that_fails_holds_everything_back() {
    let gate = |script: &str| format!("[gate]\nrun = [\"sh\", \"-c\", '{script}']");
    let passing = gate("test -f a.txt && test -f README.md && test -z \"$ANTHROPIC_API_KEY\"");
    let yard = planned(&passing, &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");

    let yard = planned(&gate("echo told; exit 7"), &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(1);
    assert!(ran.stderr.contains("told"), "what the gate prints is on stderr: {ran:?}");
    assert_eq!(ran.line("one")["error"]["kind"], "gate");
    assert_eq!((&ran.summary()["failed"], &ran.summary()["pushes"]), (&json!(2), &json!(0)));
    assert_eq!(yard.receives(), 0);
    assert_eq!(yard.git("repo", &["log", "--format=%s", "main"]), "Begin");

    let absent = "[gate]\nrun = [\"no-such-program-here\"]";
    let yard = planned(absent, &[("one", "a.txt")]);
    let ran = run(&yard, &Server::start(Creates::Work)).code(1);
    assert!(ran.line("one")["error"]["message"].to_string().contains("no-such-program-here"));
    assert_eq!(yard.receives(), 0);
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

/// By then the answers are paid for, so it is no refusal.
#[test]
fn a_landing_that_cannot_be_locked_leaves_the_run_unfinished() {
    let yard = planned("", &[("one", "a.txt")]);
    let in_the_way = yard.path("repo/.git/batchyard/run/lock");
    std::fs::create_dir_all(&in_the_way).expect("a folder where the lock belongs");
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(3);
    std::fs::remove_dir(in_the_way).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
}

/// Nothing was pushed and the answers are there, so the same command goes on.
#[test]
fn a_branch_that_cannot_begin_anew_leaves_the_run_unfinished() {
    let gate = "gate.run = [\"sh\", \"-c\", \"! test -e left.txt\"]";
    let yard = planned(gate, &[("one", "left.txt")]);
    run(&yard, &Server::start(Creates::Work)).code(1);
    another_plan(&yard, &[(gate, ""), ("left.txt", "a.txt")]);
    let lock = yard.write("repo/.git/refs/heads/batchyard/one.lock", "");
    let server = Server::start(Creates::Work);
    let ran = run(&yard, &server).code(3);
    assert!(ran.stderr.contains("run again"), "{ran:?}");
    std::fs::remove_file(lock).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), yard.receives()), (1, 1));
    let tree = yard.git("remote.git", &["ls-tree", "--name-only", "main"]);
    assert!(tree.contains("a.txt") && !tree.contains("left.txt"), "{tree}");
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

/// Changes the plan, and takes the server out of it.
fn another_plan(yard: &Yard, changes: &[(&str, &str)]) {
    let mut plan = yard.read("plan/plan.toml");
    for (from, to) in changes {
        assert!(plan.contains(from), "{from}: {plan}");
        plan = plan.replace(from, to);
    }
    let is_of_server = |line: &&str| line.starts_with("base_url") || line.starts_with("provider =");
    let lines: Vec<&str> = plan.lines().filter(|line| !is_of_server(line)).collect();
    yard.write("plan/plan.toml", lines.join("\n"));
}

/// A push that was refused again and again, and goes through when it is allowed to.
#[test]
fn nothing_is_said_to_have_landed_that_did_not_reach_the_base() {
    for push in ["both", "base", "branches"] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &[("one", "a.txt")]);
        let server = Server::start(Creates::Work);
        let hook = "repo/.git/hooks/pre-push";
        yard.write(hook, "#!/bin/sh\nexit 1\n");
        common::make_executable(&yard.path(hook));
        for _ in 0..3 {
            run(&yard, &server).code(3);
        }
        std::fs::remove_file(yard.path(hook)).expect("removed");
        let ran = run(&yard, &server).code(0);
        assert_eq!((server.creates().len(), &ran.summary()["pushes"]), (1, &json!(1)));
        let branch = if push == "branches" { "batchyard/one" } else { "main" };
        assert_eq!(yard.git("remote.git", &["show", &format!("{branch}:a.txt")]), "made");
        let commits = yard.git("remote.git", &["rev-list", "--count", "--no-merges", branch]);
        assert_eq!(commits, "2");
    }
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

/// The remote has it all, and nobody has heard of it: the program was killed, or the remote went away.
#[test]
fn a_landing_that_was_cut_off_after_its_push_is_not_made_twice() {
    for is_killed in [true, false] {
        let yard = planned("", &[("one", "-README.md"), ("two", "b.txt")]);
        // It runs before the remote says that it has the branch.
        let hook = "remote.git/hooks/reference-transaction";
        let end = if is_killed {
            "until test -s ../pid; do sleep 0.01; done; kill -9 $(cat ../pid)"
        } else {
            "mv HEAD HEAD.away; kill -9 $PPID"
        };
        let when = "test $1 = committed && grep -q refs/heads/main || exit 0";
        yard.write(hook, format!("#!/bin/sh\n{when}\nrm -f $0\n{end}\n"));
        common::make_executable(&yard.path(hook));
        let server = Server::start(Creates::Work);
        let mut program = command(&yard, &server);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("begun");
        yard.write("pid.new", child.id().to_string());
        std::fs::rename(yard.path("pid.new"), yard.path("pid")).expect("it is there");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), (!is_killed).then_some(3));
        if !is_killed {
            std::fs::rename(yard.path("remote.git/HEAD.away"), yard.path("remote.git/HEAD"))
                .expect("it is there");
        }
        let landed = yard.git("remote.git", &["rev-parse", "main"]);
        let ran = run(&yard, &server).code(0);
        assert_eq!(ran.summary()["succeeded"], 2);
        assert_eq!(server.creates().len(), 1);
        assert_eq!(yard.git("remote.git", &["rev-parse", "main"]), landed);
        assert_eq!(yard.git("remote.git", &["ls-tree", "--name-only", "main"]), "b.txt");
        let commits = ["rev-list", "--count", "--no-merges", "main"];
        assert_eq!(yard.git("remote.git", &commits), "3");
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
    // Of two more tasks one landed, and the branch of the other is gone.
    yard.git("repo", &["branch", "--quiet", "batchyard/landed", "main~1"]);
    for name in ["refs/batchyard/run/batchyard/landed", "refs/batchyard/run/batchyard/gone"] {
        yard.git("repo", &["update-ref", name, "main~1"]);
    }
    run(&yard, &server).code(0);
    assert_eq!(yard.git("remote.git", &["ls-tree", "--name-only", "main"]), "");
    let left = yard.git("repo", &["for-each-ref", "--format=%(refname)", "refs/batchyard/run"]);
    assert_eq!(left, "refs/batchyard/run/batchyard/one");
}

/// An answer that changes nothing is no fault.
#[test]
fn an_answer_that_is_there_already_lands() {
    let yard = planned("", &[("one", "README.md"), ("two", "b.txt")]);
    yard.write("repo/README.md", "made");
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
    assert!(lessons.contains("gate:one") && !lessons.contains(": told"), "{lessons}");

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
fn a_create_whose_answer_is_lost_is_found_and_paid_once() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Vanish);
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), server.paid().len()), (1, 2));
    assert_eq!(yard.receives(), 1);
}

#[test]
fn a_push_that_did_not_get_through_costs_no_second_answer() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    let hook = "repo/.git/hooks/pre-push";
    yard.write(hook, "#!/bin/sh\nexit 1\n");
    common::make_executable(&yard.path(hook));
    let ran = run(&yard, &server).code(3);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("the answers are kept; run again"), "{ran:?}");
    std::fs::remove_file(yard.path(hook)).expect("removed");
    let ran = run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1, "nothing is paid twice");
    assert_eq!(ran.summary()["submissions"], 1);
    assert_eq!(yard.git("remote.git", &["show", "main:b.txt"]), "made");
    assert_eq!(yard.receives(), 1);
}

#[test]
fn a_signal_keeps_the_state_and_the_next_run_goes_on() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::NeverEnd);
    for signal in ["INT", "TERM"] {
        let before = server.count("GET");
        let mut child = command(&yard, &server)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        server.wait_for("GET", before + 1);
        let pid = child.id().to_string();
        let kill = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs");
        assert!(kill.success());
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("it is read");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
        assert!(said.contains("run again: ") && said.contains("plan/plan.toml"), "{said}");
    }
    assert_eq!(server.creates().len(), 1);
    // The state belongs to this plan.
    let plan = yard.read("plan/plan.toml");
    yard.write("plan/plan.toml", plan.clone() + "# changed\n");
    run(&yard, &server).refused(&["another version of the plan"]);
    yard.write("plan/plan.toml", plan);
    server.set(Creates::Work);
    run(&yard, &server).code(0);
    assert_eq!(server.creates().len(), 1);
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

#[test]
fn a_state_that_another_run_holds_is_left_to_it() {
    let yard = planned("", &[("one", "a.txt")]);
    let lock = yard.write("plan/plan.toml.state/lock", "");
    let file = std::fs::File::open(lock).expect("it is opened");
    file.lock().expect("it is locked");
    let server = Server::start(Creates::Work);
    run(&yard, &server).code(3);
    assert_eq!(server.seen().len(), 0);
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
fn a_folder_of_somebody_else_is_no_state() {
    let yard = planned("state = \".\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let mut command = command(&yard, &server);
    let before = yard.everything("plan");
    finish(&mut command, b"").refused(&["no state of a run"]);
    assert!(yard.everything("plan") == before);
    assert_eq!(server.seen().len(), 0);
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
    check("repo =", "remote = \"upstream\"\nrepo =", &["upstream"]);
    check("repo =", "allow = [\"a[\"]\nrepo =", &["plan.toml:1: \"allow\""]);
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
    yard.write("plan/plan.toml", good.split("[[task]]").next().expect("a head"));
    yard.run(["run", "plan/plan.toml"]).refused(&["the plan has no task"]);
}
