//! Reports about other tools that run many agents on git, each as a test here or elsewhere.
//!
//! | report | what went wrong | test |
//! |---|---|---|
//! | agent-tools-org/ai-dispatch#32 | `git add` of four agents, one `index.lock` | `four_agents_at_once_meet_no_lock` |
//! | anthropics/claude-code#47266, #34645 | `config.lock` of parallel `worktree add` | regress: `index_and_config_locks_of_others_block_nothing` |
//! | anthropics/claude-code#55724 | a lock failed the commit, and a clean-up removed the work | `a_worktree_whose_commit_failed_keeps_its_work` |
//! | anthropics/claude-code#94323 | an emptied index became an empty commit | worktree: `a_worktree_that_was_emptied_is_not_committed`; mistakes: `most_files_are_not_deleted_at_once` |
//! | anomalyco/opencode#48848 | only one process was kept from the others | concurrent: `processes_take_turns`; contention |
//! | anthropics/claude-plugins-official#6004 | a killed git left its lock | program: `a_git_that_hangs_is_ended_when_time_is_up`; crash |
//! | pi-workspace-history#11 | a lock was removed for its age while its git was running | `a_lock_of_another_stays_however_old_it_is` |
//! | gastownhall/gastown#594 | two writers pushed `main` | `two_clones_that_land_at_once_both_land` |
//! | gabrielkoerich/orch#2331, microsoft/amplifier#288, srtab/daiv#1349 | a refused push threw the work away | deliver: `a_remote_that_moved_is_merged`; group |
//! | defilantech/LLMKube#934 | a second try collided with the first | regress: `the_same_input_again_changes_nothing`; replay |
//! | gascity-packs#76, #172, gascity#2608 | "merged", but nothing had landed | `what_changed_nothing_is_not_said_to_have_landed`; publish: `a_remote_that_stays_silent_has_confirmed_nothing` |
//! | gastownhall/gastown#3604 | a conflict left a dirty work tree and stopped all | `a_conflict_leaves_nothing_behind_and_stops_nobody` |
//! | BloopAI/vibe-kanban#1897, #306, smtg-ai/claude-squad#207 | a branch that is checked out elsewhere | merge: `a_checked_out_branch_is_never_moved`; regress: `a_branch_that_is_being_rebased_counts_as_checked_out` |
//! | objectstack#10743, kamp-us/phoenix#5627 | `origin/main` and `FETCH_HEAD` are shared | regress: `shared_refs_stay_as_they_are` |
//! | kamp-us/phoenix#7331 | a half-made worktree broke every fetch | `a_half_made_worktree_breaks_nothing` |
//! | cline/kanban#424, microsoft/vscode#314631, opencode#20274 | `git gc` took what no ref named yet | regress: `garbage_collection_beside_batches_loses_nothing` |
//! | Abilityai/trinity#1595 | leftovers of killed processes filled the disk | regress: `what_an_interrupted_batch_left_is_removed_and_nothing_of_others` |
//! | pingdotgg/t3code#10905 | an empty ref after a power cut broke fetch and push | power; `an_empty_ref_of_somebody_else_stops_nobody` |
//! | marc0der/ralph#19, ClipboardHealth/core-utils#760 | signing without a terminal | hooks: `commits_are_signed_with_ssh`, `commits_are_signed_with_gpg` |
//! | discord/access#596, rad-ui/ui#1924 | `core.hooksPath` in worktrees | zoo: `hooks_in_another_folder_run_from_there`; hostile: `hooks_in_a_folder_relative_to_the_checkout_count` |
//! | neomjs/neo#15337, Extra-Chill/homeboy#13647, multica#4620 | an inherited identity | concurrent: `inherited_git_variables_change_nothing` |
//! | gsd-build/get-shit-done#2137, HenryLach/taskplane#517 | a submodule commit that was never pushed | hooks: `a_commit_of_a_submodule_that_was_not_pushed_is_refused` |
//! | agent-deck#897 | a worktree inside a worktree became a submodule | worktree: `a_repository_inside_the_worktree_is_refused` |
//! | stablyai/orca#15857, WalshyDev/oc-orchestrator#119 | branches that differ in case only | mistakes: `branches_that_differ_in_case_only_are_refused` |
//! | git-lfs/git-lfs#6225 | `pre-push` takes seconds for each push | publish: `the_pre_push_hook_runs_once_and_can_refuse` |
//! | gitui#2812 | a clean filter was passed by | isolation: `content_that_a_filter_would_change_is_refused`; worktree: `line_ends_and_filters_are_git_s` |
//! | GitHub's push policy | a limit of refs in one push | deliver: `a_server_that_limits_the_refs_of_a_push_gets_several` |
//! | xorq#1974 | worktrees of another machine were pruned | `worktrees_that_cannot_be_seen_are_not_pruned` |
//! | git's http transport without `--atomic` | what is asked for is not sent | `a_remote_that_knows_no_atomic_push_gets_no_part_of_a_group` |
//!
//! Not here: get-shit-done#2353 (157 orphaned worktrees), because this crate makes no worktrees.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings, Strategy, stops};
use support::worktree::{capture, linked, put, status};
use support::{Fixture, kind, landed, make_executable, run};

fn commit(branch: &str, path: &str) -> Operation {
    Operation::commit(branch, Commit::new(branch, "m").with_base("main").write(path, branch))
}

#[test]
fn four_agents_at_once_meet_no_lock() {
    let fixture = Fixture::new();
    let lock = fixture.work().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    std::thread::scope(|scope| {
        for agent in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                let branch = format!("agent/{agent}");
                let operations = vec![commit(&branch, "work.txt"), Operation::push("p", &*branch)];
                landed(&fixture.open().apply(operations).unwrap(), "p");
            });
        }
    });
    let branches = fixture.at_remote(["for-each-ref", "refs/heads/agent"]);
    assert_eq!(branches.lines().count(), 4);
    assert!(lock.exists());
}

#[test]
fn a_worktree_whose_commit_failed_keeps_its_work() {
    let fixture = Fixture::new();
    let dirs: Vec<_> = (0..13).map(|n| linked(&fixture, &format!("agent{n}"))).collect();
    for dir in &dirs {
        put(dir, "README.md", "work\n");
        put(dir, "new.txt", "new\n");
    }
    let locked = fixture.work().join(".git/worktrees/agent5/index.lock");
    fs::write(&locked, "").unwrap();
    let operations =
        dirs.iter().enumerate().map(|(n, dir)| capture(&n.to_string(), &format!("agent{n}"), dir));
    let settings = Settings::default().with_worktree_wait(Duration::from_millis(1));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report = git.apply(operations.collect()).unwrap();
    for (n, dir) in dirs.iter().enumerate() {
        assert_eq!(fs::read_to_string(dir.join("new.txt")).unwrap(), "new\n");
        if n == 5 {
            assert_eq!(kind(report.get("5")), Some(OpErrorKind::WorktreeBusy));
        } else {
            landed(&report, &n.to_string());
            assert_eq!(status(dir), "");
        }
    }
    fs::remove_file(&locked).unwrap();
    assert_eq!(status(&dirs[5]), " M README.md\n?? new.txt\n");
    let again = fixture.open().apply(vec![capture("5", "agent5", &dirs[5])]).unwrap();
    landed(&again, "5");
}

#[test]
fn a_lock_of_another_stays_however_old_it_is() {
    let fixture = Fixture::new();
    fixture.git(["branch", "locked", "main"]);
    let lock = fixture.work().join(".git/refs/heads/locked.lock");
    let file = File::create(&lock).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(24 * 365)).unwrap();
    let report = fixture.open().apply(vec![commit("locked", "a"), commit("free", "a")]).unwrap();
    assert_eq!(kind(report.get("locked")), Some(OpErrorKind::BranchMoved));
    landed(&report, "free");
    assert!(lock.exists());
}

#[test]
fn two_clones_that_land_at_once_both_land() {
    let fixture = Fixture::new();
    let other = fixture.copy();
    other.git(["remote", "set-url", "origin", fixture.remote().to_str().unwrap()]);
    std::thread::scope(|scope| {
        for (yard, name) in [(&fixture, "one"), (&other, "two")] {
            scope.spawn(move || {
                for n in 0..3 {
                    let branch = format!("{name}/{n}");
                    let report = yard.open().apply(vec![commit(&branch, &branch)]).unwrap();
                    landed(&report, &branch);
                    let report = yard
                        .open()
                        .land("main", std::slice::from_ref(&branch), Strategy::Merge)
                        .unwrap();
                    landed(&report, &branch);
                }
            });
        }
    });
    assert_eq!(fixture.at_remote(["rev-list", "--count", "--merges", "main"]).trim(), "6");
    assert_eq!(fixture.at_remote(["ls-tree", "-r", "--name-only", "main"]).lines().count(), 3 + 6);
    fixture.at_remote(["fsck", "--strict"]);
}

#[test]
fn what_changed_nothing_is_not_said_to_have_landed() {
    let fixture = Fixture::new();
    fixture.git(["branch", "same", "main"]);
    fixture.branch("gone", "main", "a.txt", "a\n");
    // Its change is there already, as another commit.
    fixture.move_remote("main", "a.txt", "a\n");
    let branches = ["same".to_owned(), "gone".to_owned()];
    let report = fixture.open().land("main", &branches, Strategy::Squash).unwrap();
    for branch in &branches {
        assert!(matches!(report.get(branch), Some(Outcome::NoChange { .. })), "{report:?}");
    }
    assert_eq!(report.pushes(), 0);
}

#[test]
fn a_conflict_leaves_nothing_behind_and_stops_nobody() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "README.md", "a\n");
    fixture.branch("b", "main", "README.md", "b\n");
    fixture.branch("c", "main", "c.txt", "c\n");
    let before = fixture.untouchable();
    let branches = ["a", "b", "c"].map(str::to_owned);
    let report = fixture.open().land("main", &branches, Strategy::Merge).unwrap();
    landed(&report, "a");
    landed(&report, "c");
    assert!(matches!(report.get("b"), Some(Outcome::Conflict { with, .. }) if with == &["a"]));
    assert_eq!(fixture.untouchable(), before);
    assert_eq!(fixture.git(["status", "--porcelain"]), "");
}

#[test]
fn a_half_made_worktree_breaks_nothing() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "theirs.txt", "theirs\n");
    // As `git worktree add` leaves it for a moment.
    let half = fixture.work().join(".git/worktrees/half");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("HEAD"), format!("{}\n", "0".repeat(40))).unwrap();
    fs::write(half.join("commondir"), "../..\n").unwrap();
    fs::write(half.join("gitdir"), format!("{}\n", fixture.beside("half/.git").display())).unwrap();
    fs::write(half.join("locked"), "initializing\n").unwrap();
    // The fetch beside it fails; when it is tried again the worktree is made.
    let upload = fixture.beside("upload-pack");
    let counter = fixture.beside("calls");
    let script = format!(
        "#!/bin/sh\necho x >> '{0}'\ntest $(wc -l < '{0}') -lt 3 || git rev-parse main > '{1}/HEAD'\n\
         exec git-upload-pack \"$@\"\n",
        counter.display(),
        half.display()
    );
    fs::write(&upload, script).unwrap();
    make_executable(&upload);
    fixture.git(["config", "remote.origin.uploadpack", upload.to_str().unwrap()]);
    // It starts at what the remote has now, which has to be fetched.
    let new = Commit::new("new", "m").write("new.txt", "x");
    let operations = vec![Operation::commit("c", new), Operation::push("p", "new")];
    landed(&fixture.open().apply(operations).unwrap(), "p");
    assert_eq!(fixture.git(["show", "new:theirs.txt"]), "theirs\n");
    assert!(fs::read_to_string(counter).unwrap().lines().count() > 2);
    assert!(half.join("HEAD").exists());
}

#[test]
fn an_empty_ref_of_somebody_else_stops_nobody() {
    let fixture = Fixture::new();
    fs::write(fixture.work().join(".git/refs/heads/broken"), "").unwrap();
    let operations =
        vec![commit("new", "new.txt"), Operation::push("p", "new"), commit("broken", "x.txt")];
    let report = fixture.open().apply(operations).unwrap();
    landed(&report, "p");
    assert!(!report.get("broken").unwrap().is_success(), "{report:?}");
    assert_eq!(fs::read(fixture.work().join(".git/refs/heads/broken")).unwrap(), b"");
}

#[test]
fn worktrees_that_cannot_be_seen_are_not_pruned() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "elsewhere");
    fs::rename(&dir, fixture.beside("on-another-machine")).unwrap();
    let operations = vec![commit("new", "new.txt"), Operation::push("p", "new")];
    landed(&fixture.open().apply(operations).unwrap(), "p");
    fs::rename(fixture.beside("on-another-machine"), &dir).unwrap();
    assert_eq!(run(&dir, ["rev-parse", "--abbrev-ref", "HEAD"]), "elsewhere\n");
    // And its branch counts as checked out all the time.
    fs::rename(&dir, fixture.beside("on-another-machine")).unwrap();
    let report = fixture.open().apply(vec![commit("elsewhere", "x")]).unwrap();
    assert_eq!(kind(report.get("elsewhere")), Some(OpErrorKind::CheckedOut));
}

#[test]
fn a_remote_that_knows_no_atomic_push_gets_no_part_of_a_group() {
    // It is tried again as often as ever.
    stops::hurry();
    let fixture = Fixture::new();
    fixture.at_remote(["config", "receive.advertiseAtomic", "false"]);
    let operations = vec![
        commit("a", "a").in_group("g"),
        commit("b", "b").in_group("g"),
        Operation::push("pa", "a").in_group("g"),
        Operation::push("pb", "b").in_group("g"),
        commit("c", "c"),
        Operation::push("pc", "c"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    for id in ["a", "b", "pa", "pb"] {
        assert!(!report.get(id).unwrap().is_success(), "{id}: {report:?}");
    }
    landed(&report, "pc");
    let branches = fixture.at_remote(["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    assert_eq!(branches, "c\nmain\n");
    assert_eq!(fixture.git(["branch", "--list", "a", "b"]), "");
}
