//! `run` that goes on in a repository where things have changed meanwhile.

mod common;

use common::plan::{another_plan, command, planned, run, task};
use common::server::{Creates, Server};
use common::{Ran, Yard, finish, make_executable};

/// Keeps the base from being pushed until the file is removed.
fn protect(yard: &Yard) -> std::path::PathBuf {
    let hook = yard.write("remote.git/hooks/update", "#!/bin/sh\ntest $1 != refs/heads/main\n");
    make_executable(&hook);
    hook
}

fn unprotect(hook: &std::path::Path) {
    std::fs::remove_file(hook).expect("it is there");
}

/// Runs with the base protected, so that all is answered and nothing lands.
fn run_held(yard: &Yard, server: &Server) {
    let hook = protect(yard);
    run(yard, server).code(3);
    unprotect(&hook);
}

/// Commits to the branch of the first task what somebody has made of its answer, and returns that commit.
fn put_right(yard: &Yard, repository: &str, options: &[&str]) -> String {
    yard.git(repository, &["switch", "--quiet", "batchyard/one"]);
    yard.write(&format!("{repository}/a.txt"), "put right\n");
    let commit = ["commit", "--quiet", "--all", "--message", "Put it right"];
    yard.git(repository, &[&commit[..], options].concat());
    yard.git(repository, &["switch", "--quiet", "main"]);
    yard.git(repository, &["rev-parse", "batchyard/one"])
}

/// A second plan for the same repository, with a task of the same name.
fn run_other(yard: &Yard, server: &Server, more: &str, path: &str) -> Ran {
    let head = format!(
        "provider = \"anthropic\"\nbase_url = \"{}\"\nrepo = \"../repo\"\nprompts = \"../plan/prompts\"\n\
         lessons = \"lessons.jsonl\"\n{more}\n",
        server.url
    );
    yard.write("other/plan.toml", head + &task("one", path, ""));
    let mut program = yard.program();
    program.env("ANTHROPIC_API_KEY", "sk-ant-very-secret");
    finish(program.args(["run", "other/plan.toml", "--json"]), b"")
}

fn main_of(yard: &Yard) -> String {
    yard.git("remote.git", &["ls-tree", "--name-only", "main"]).replace('\n', " ")
}

/// Both commit to the branch of the task: each of them lands what it was answered.
#[test]
fn another_run_that_took_the_branch_of_a_held_task_takes_nothing_of_it() {
    for push in ["base", "both"] {
        let yard = planned(&format!("[land]\npush = \"{push}\""), &[("one", "a.txt")]);
        let server = Server::start(Creates::Work);
        run_held(&yard, &server);
        if push == "both" {
            // As if the branch could not be pushed either.
            yard.git("remote.git", &["branch", "--quiet", "-D", "batchyard/one"]);
        }
        run_other(&yard, &server, "[land]\npush = \"base\"", "b.txt").code(0);
        assert_eq!(main_of(&yard), "README.md b.txt");
        let ran = run(&yard, &server).code(0);
        assert_eq!(ran.line("one")["status"], "succeeded");
        assert_eq!(main_of(&yard), "README.md a.txt b.txt");
        assert_eq!(server.creates().len(), 2);
    }
}

/// It stood back for another run, and was refused when it was put back: nobody has gone on from it.
#[test]
fn what_a_run_that_goes_on_leaves_is_no_part_of_the_next_one() {
    let yard = planned("[land]\npush = \"base\"", &[("one", "bad.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    run_held(&yard, &server);
    run_other(&yard, &server, "[land]\npush = \"base\"", "other.txt").code(0);
    let takes_no_bad = "#!/bin/sh\n! git ls-tree --name-only $3 | grep -q ^bad\n";
    make_executable(&yard.write("remote.git/hooks/update", takes_no_bad));
    let ran = run(&yard, &server).code(1);
    assert_eq!(
        (&ran.line("one")["status"], main_of(&yard).as_str()),
        (&"failed".into(), "README.md b.txt other.txt")
    );
    let left = ["for-each-ref", "--format=%(objectname)", "refs/batchyard/run/batchyard/one"];
    assert_eq!(yard.git("repo", &left), yard.git("repo", &["rev-parse", "batchyard/one"]));
    let plan = yard.read("plan/plan.toml").replace("bad.txt", "c.txt");
    yard.write("plan/plan.toml", plan);
    run(&yard, &server).code(0);
    assert_eq!(main_of(&yard), "README.md b.txt c.txt other.txt");
}

/// What it begins at is in all that anybody commits there.
#[test]
fn an_answer_that_changes_nothing_takes_nothing_of_another_run() {
    let yard = planned("[land]\npush = \"branches\"", &[("one", "README.md")]);
    yard.write("repo/README.md", "made\n");
    yard.git("repo", &["commit", "--quiet", "--all", "--message", "There already"]);
    yard.git("repo", &["push", "--quiet", "origin", "main"]);
    let server = Server::start(Creates::Work);
    let away = yard.write("repo/.git/hooks/pre-push", "#!/bin/sh\nexit 1\n");
    make_executable(&away);
    run(&yard, &server).code(3);
    run_other(&yard, &server, "[land]\npush = \"base\"", "b.txt").code(3);
    assert_eq!(yard.git("repo", &["show", "batchyard/one:b.txt"]), "made");
    unprotect(&away);
    run(&yard, &server).code(0);
    let there = yard.git("remote.git", &["rev-parse", "main", "batchyard/one"]);
    let (main, one) = there.split_once('\n').expect("both");
    assert_eq!(main, one, "nothing of the other run");
}

/// By then nothing says any more whose it was; by hand nothing has ever said so.
#[test]
fn the_branch_of_a_held_task_whose_place_the_base_has_is_put_back() {
    for is_by_hand in [false, true] {
        let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt")]);
        let server = Server::start(Creates::Work);
        run_held(&yard, &server);
        if is_by_hand {
            yard.git("repo", &["branch", "--quiet", "--force", "batchyard/one", "main"]);
        } else {
            run_other(&yard, &server, "", "b.txt").code(0);
            let plan = yard.read("other/plan.toml");
            yard.write("other/plan.toml", plan.replace("\"one\"", "\"two\""));
            let mut program = yard.program();
            program.env("ANTHROPIC_API_KEY", "sk-ant-very-secret");
            finish(program.args(["run", "other/plan.toml"]), b"").code(0);
            assert_eq!(yard.git("repo", &["for-each-ref", "refs/batchyard/run/batchyard/one"]), "");
        }
        let ran = run(&yard, &server).code(0);
        assert_eq!(ran.line("one")["status"], "succeeded");
        assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
    }
}

/// The run has not committed yet, and what is on the branch is not its own.
#[test]
fn what_another_run_left_is_no_part_of_a_landing_that_goes_on() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let identity = [("user.name", "Tester"), ("user.email", "tester@example.invalid")];
    for (key, _) in identity {
        yard.git("repo", &["config", "--unset", key]);
    }
    yard.git("repo", &["config", "user.useConfigOnly", "true"]);
    run(&yard, &server).code(3);
    for (key, value) in identity {
        yard.git("repo", &["config", key, value]);
    }
    let gate = "[gate]\nrun = [\"sh\", \"-c\", \"! test -e bad.txt\"]";
    run_other(&yard, &server, gate, "bad.txt").code(1);
    run(&yard, &server).code(0);
    assert_eq!(main_of(&yard), "README.md a.txt");
    assert_eq!(server.creates().len(), 2);
}

#[test]
fn a_branch_of_a_held_task_that_somebody_deleted_is_made_again() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    run_held(&yard, &server);
    yard.git("repo", &["branch", "--quiet", "-D", "batchyard/one"]);
    run(&yard, &server).code(0);
    assert_eq!(main_of(&yard), "README.md a.txt b.txt");
    assert_eq!(server.creates().len(), 1);
}

/// What somebody has put right there lands as it is, without what another run has put on top of it.
#[test]
fn what_somebody_has_committed_to_a_held_branch_lands() {
    for is_taken in [false, true] {
        let yard = planned("", &[("one", "a.txt")]);
        let server = Server::start(Creates::Work);
        let hook = protect(&yard);
        run(&yard, &server).code(3);
        put_right(&yard, "repo", &[]);
        if is_taken {
            run_other(&yard, &server, "[land]\npush = \"base\"", "b.txt").code(3);
        }
        unprotect(&hook);
        let ran = run(&yard, &server).code(0);
        assert_eq!(main_of(&yard), "README.md a.txt");
        assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "put right");
        assert_eq!(ran.line("one")["commit"], yard.git("repo", &["rev-parse", "batchyard/one"]));
    }
}

/// The run that it was taken off by is still held when the other one goes on.
#[test]
fn what_one_run_takes_off_a_branch_the_other_one_puts_back() {
    const BASE: &str = "[land]\npush = \"base\"";
    let yard = planned(BASE, &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let hook = protect(&yard);
    run(&yard, &server).code(3);
    put_right(&yard, "repo", &[]);
    run_other(&yard, &server, BASE, "b.txt").code(3);
    run(&yard, &server).code(3);
    unprotect(&hook);
    run_other(&yard, &server, BASE, "b.txt").code(0);
    run(&yard, &server).code(0);
    assert_eq!(main_of(&yard), "README.md a.txt b.txt");
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "put right");
}

/// It was at a commit of somebody that is in the base by now, which is no answer that was put right.
#[test]
fn a_held_branch_that_is_put_back_has_its_own_answer_again() {
    let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    let hook = protect(&yard);
    run(&yard, &server).code(3);
    let own = yard.git("repo", &["rev-parse", "batchyard/one"]);
    yard.write("repo/u.txt", "mine\n");
    yard.git("repo", &["add", "u.txt"]);
    yard.git("repo", &["commit", "--quiet", "--message", "Work of somebody"]);
    yard.git("repo", &["branch", "--force", "batchyard/one", "main"]);
    run(&yard, &server).code(3);
    yard.git("repo", &["branch", "--force", "batchyard/one", &own]);
    unprotect(&hook);
    yard.git("repo", &["push", "--quiet", "origin", "main"]);
    run(&yard, &server).code(0);
    assert_eq!(main_of(&yard), "README.md a.txt u.txt");
}

/// It landed, and another answer did not; its own commit may be gone with the repository.
#[test]
fn what_somebody_has_amended_and_landed_is_not_done_again() {
    for is_clone in [false, true] {
        let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt"), ("two", "bad.txt")]);
        let server = Server::start(Creates::Work);
        let hook = protect(&yard);
        run(&yard, &server).code(3);
        let amended = put_right(&yard, "repo", &["--amend"]);
        let takes_no_bad = "#!/bin/sh\n! git ls-tree --name-only $3 | grep -q ^bad\n";
        yard.write("remote.git/hooks/update", takes_no_bad);
        // The remote goes away when it has taken the first one.
        let goes_away = "#!/bin/sh\nmv HEAD HEAD.away\nrm $0\n";
        yard.write("remote.git/hooks/post-receive", goes_away);
        assert_eq!(run(&yard, &server).code(3).line("two")["status"], "pending");
        std::fs::rename(yard.path("remote.git/HEAD.away"), yard.path("remote.git/HEAD"))
            .expect("it has taken one");
        unprotect(&hook);
        if is_clone {
            std::fs::remove_dir_all(yard.path("repo")).expect("it is there");
            clone(&yard, &[]);
            std::fs::rename(yard.path("new"), yard.path("repo")).expect("it is there");
        }
        let ran = run(&yard, &server).code(0);
        assert_eq!(main_of(&yard), "README.md a.txt bad.txt");
        assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "put right");
        assert_eq!(ran.line("one")["commit"], amended);
        assert_eq!(server.creates().len(), 1);
    }
}

/// Somebody has put it right at the remote: that is not to be overwritten, nor is it said how to.
#[test]
fn what_somebody_has_pushed_to_a_held_branch_stays_there() {
    let yard = planned("[land]\npush = \"both\"", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run_held(&yard, &server);
    clone(&yard, &[]);
    put_right(&yard, "new", &[]);
    yard.git("new", &["push", "--quiet", "origin", "batchyard/one"]);
    let ran = run(&yard, &server).code(0);
    assert!(!ran.stderr.contains("not pushed"), "{ran:?}");
    assert_eq!(yard.git("remote.git", &["show", "batchyard/one:a.txt"]), "put right");
    assert_eq!(yard.git("remote.git", &["show", "main:a.txt"]), "made");
}

/// Makes the clone `new`, in which can be committed; it may be one that asks its remote for what it lacks.
fn clone(yard: &Yard, options: &[&str]) {
    yard.git("remote.git", &["config", "uploadpack.allowFilter", "true"]);
    let remote = format!("file://{}", yard.path("remote.git").display());
    yard.git(".", &[&["clone", "--quiet"][..], options, &[&remote, "new"]].concat());
    for (key, value) in [("user.name", "T"), ("user.email", "t@example.invalid")] {
        yard.git("new", &["config", key, value]);
    }
}

/// A folder that was moved, a new clone elsewhere, and one in the very same place.
#[test]
fn a_held_run_goes_on_where_the_project_is_now() {
    for (now, is_clone) in [("moved", false), ("moved", true), ("repo", true)] {
        let yard = planned("[land]\npush = \"base\"", &[("one", "a.txt"), ("two", "b.txt")]);
        let server = Server::start(Creates::Work);
        run_held(&yard, &server);
        if is_clone {
            let options = if now == "repo" { &["--filter=blob:none"][..] } else { &[] };
            clone(&yard, options);
        } else {
            std::fs::rename(yard.path("repo"), yard.path("new")).expect("it is there");
        }
        let plan = yard.read("plan/plan.toml").replace("\"../repo\"", "\"../new\"");
        if is_clone && now == "moved" {
            yard.write("plan/plan.toml", plan);
            // As long as the other one is there, its commits are.
            let ran = run(&yard, &server).code(3);
            assert!(ran.stderr.contains("begun to land on main at remote origin of"), "{ran:?}");
        }
        if is_clone {
            std::fs::remove_dir_all(yard.path("repo")).expect("it is there");
        }
        std::fs::rename(yard.path("new"), yard.path(now)).expect("it is there");
        let plan = yard.read("plan/plan.toml");
        let plan =
            plan.replace("\"../new\"", "\"../repo\"").replace("../repo", &format!("../{now}"));
        yard.write("plan/plan.toml", plan);
        run(&yard, &server).code(0);
        assert_eq!(main_of(&yard), "README.md a.txt b.txt");
        let commits = ["rev-list", "--count", "--no-merges", "main"];
        assert_eq!(yard.git("remote.git", &commits), "3");
        assert_eq!(server.creates().len(), 1);
    }
}

/// The remote goes away when it has taken the first answers; a new clone goes on with the others only.
#[test]
fn what_has_landed_before_is_not_made_again_in_a_new_clone() {
    // A clone that has the base alone knows of no branch what it was landed with.
    for (push, has_base_only) in [("base", false), ("branches", false), ("branches", true)] {
        let tasks = [("one", "a.txt"), ("two", "bad.txt"), ("three", "n.txt")];
        let yard = planned(&format!("[land]\npush = \"{push}\""), &tasks);
        // The third answer changes nothing.
        yard.write("repo/n.txt", "made\n");
        yard.git("repo", &["add", "n.txt"]);
        yard.git("repo", &["commit", "--quiet", "--message", "There already"]);
        yard.git("repo", &["push", "--quiet", "origin", "main"]);
        let hook = if push == "base" {
            let hook = protect(&yard);
            let takes_no_bad = "#!/bin/sh\n! git ls-tree --name-only $3 | grep -q ^bad\n";
            yard.write("remote.git/hooks/update", takes_no_bad);
            let goes_away = "#!/bin/sh\nmv HEAD HEAD.away\nrm $0\n";
            yard.write("remote.git/hooks/post-receive", goes_away);
            hook
        } else {
            yard.write("remote.git/refs/heads/batchyard/two.lock", "")
        };
        let server = Server::start(Creates::Work);
        let ran = run(&yard, &server).code(3);
        assert_eq!(ran.line("two")["status"], "pending");
        if push == "base" {
            std::fs::rename(yard.path("remote.git/HEAD.away"), yard.path("remote.git/HEAD"))
                .expect("it has taken some");
        }
        std::fs::remove_dir_all(yard.path("repo")).expect("it is there");

        clone(&yard, &[]);
        std::fs::rename(yard.path("new"), yard.path("repo")).expect("it is there");
        let branch = if push == "base" { "main" } else { "batchyard/one" };
        yard.git("repo", &["switch", "--quiet", branch]);
        for file in ["a.txt", "n.txt"] {
            yard.write(&format!("repo/{file}"), "better\n");
        }
        yard.git("repo", &["commit", "--quiet", "--all", "--message", "Make it better"]);
        yard.git("repo", &["push", "--quiet", "origin", branch]);
        let better = yard.git("remote.git", &["rev-parse", branch]);
        if has_base_only {
            std::fs::remove_dir_all(yard.path("repo")).expect("it is there");
            clone(&yard, &["--single-branch"]);
            std::fs::rename(yard.path("new"), yard.path("repo")).expect("it is there");
        }
        for _ in 0..2 {
            let ran = run(&yard, &server).code(3);
            assert_eq!(ran.line("one")["status"], "succeeded");
            assert_eq!(yard.git("remote.git", &["rev-parse", branch]), better, "{ran:?}");
        }
        unprotect(&hook);
        run(&yard, &server).code(0);
        for file in ["a.txt", "n.txt"] {
            let there = yard.git("remote.git", &["show", &format!("{branch}:{file}")]);
            assert_eq!(there, "better", "{push} {file}");
        }
        let branch = if push == "base" { "main" } else { "batchyard/two" };
        assert_eq!(yard.git("remote.git", &["show", &format!("{branch}:bad.txt")]), "made");
        assert_eq!(server.creates().len(), 1);
    }
}

#[test]
fn a_state_of_another_layout_says_who_can_end_it() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    protect(&yard);
    run(&yard, &server).code(3);
    let header = "plan/plan.toml.state/run.json";
    let text = yard.read(header);
    assert!(text.contains("\"version\": 2"), "{text}");
    yard.write(header, text.replace("\"version\": 2", "\"version\": 1"));
    run(&yard, &server).refused(&["layout 1", "version of batchyard that began it", "remove"]);
    yard.write(header, text.replace("batchyard run", "something"));
    run(&yard, &server).refused(&["no state of a run"]);
}

/// It was cut off before anything was asked, so that there is nothing to go on with.
#[test]
fn a_state_in_which_nothing_was_asked_is_in_nobody_s_way() {
    let yard = planned("", &[("one", "a.txt")]);
    let server = Server::start(Creates::Work);
    run_held(&yard, &server);
    let header = yard.read("plan/plan.toml.state/run.json");
    std::fs::remove_dir_all(yard.path("plan/plan.toml.state")).expect("it is there");
    let plan = yard.read("plan/plan.toml").replace("\"a.txt\"", "\"b.txt\"");
    yard.write("plan/plan.toml", plan);
    // Somebody else's is left alone all the same.
    yard.write("plan/plan.toml.state/run.json", "{}");
    run(&yard, &server).refused(&["run.json"]);
    yard.write("plan/plan.toml.state/run.json", header);
    yard.write("plan/plan.toml.state/wave-0.jsonl.new", "{");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), main_of(&yard).as_str()), (2, "README.md b.txt"));
    assert!(!yard.path("plan/plan.toml.state").exists());
}

/// It was paid for, so it is no refusal, and nothing of it is paid again.
#[test]
fn results_of_a_state_that_are_damaged_leave_the_run_unfinished() {
    let yard = planned("", &[("one", "a.txt"), ("two", "b.txt")]);
    let server = Server::start(Creates::Work);
    run_held(&yard, &server);
    let results = "plan/plan.toml.state/results.jsonl";
    let whole = yard.read(results);
    for (damaged, text) in [
        (format!("{whole}no result\n"), "results.jsonl:3"),
        (format!("{whole}no result"), "the end of"),
    ] {
        yard.write(results, &damaged);
        let ran = run(&yard, &server).code(3);
        assert!(
            ran.stderr.contains(text) && ran.stderr.contains("nothing is paid twice"),
            "{ran:?}"
        );
        assert!(!ran.stderr.contains("--out"), "{ran:?}");
        assert_eq!(yard.read(results), damaged);
    }
    // What a power cut may leave of the last line.
    let (first, second) = whole.split_once('\n').expect("two lines");
    yard.write(results, format!("{first}\n{}\0\0\0\0", &second[..20]));
    let another = protect(&yard);
    run(&yard, &server).code(3);
    assert_eq!(yard.read(results).lines().count(), 2);
    yard.write(results, format!("{whole}\0\0\0\0"));
    run(&yard, &server).code(3);
    assert_eq!(yard.read(results), whole);
    unprotect(&another);
    std::fs::remove_file(yard.path(results)).expect("it is there");
    run(&yard, &server).code(0);
    assert_eq!((server.creates().len(), main_of(&yard).as_str()), (1, "README.md a.txt b.txt"));
}

/// Nothing leaves the machine, so what the remote has is not in the way.
#[test]
fn recorded_answers_do_not_mind_what_the_remote_has() {
    let yard = planned("answers = \"answers\"\nprovider = \"offline\"", &[("one", "a.txt")]);
    yard.write("plan/answers/one.md", r#"{"files":[{"path":"a.txt","content":"x"}]}"#);
    yard.git("remote.git", &["branch", "--quiet", "batchyard", "main"]);
    yard.run(["run", "plan/plan.toml", "--dry-run"]).code(0);
    yard.run(["run", "plan/plan.toml"]).code(0);
    assert_eq!(yard.git("repo", &["show", "batchyard/one:a.txt"]), "x");
    another_plan(&yard, &[]);
    let server = Server::start(Creates::Work);
    finish(&mut command(&yard, &server), b"").refused(&["the remote has a branch \"batchyard\""]);
    assert!(server.seen().is_empty());
}
