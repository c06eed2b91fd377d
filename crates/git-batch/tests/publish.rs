//! Fetches and pushes against real remotes: bare repositories with hooks, in temporary folders.
#![cfg(unix)]

mod bare;

use bare::Fixture;
use bstr::BString;
use git_batch::ObjectId;
use git_batch::publish::{
    Class, PublishError, PushReport, PushStatus, RefUpdate, fetch, push, remote_refs,
};

fn update(name: &str, expect: Option<ObjectId>, new: ObjectId) -> RefUpdate {
    RefUpdate { name: name.into(), expect, new }
}

/// The statuses of a report, by the short name of each branch.
fn statuses(report: &PushReport) -> Vec<(&str, &PushStatus)> {
    let short = |name| str::strip_prefix(name, "refs/heads/").unwrap_or(name);
    let refs = report.refs.iter();
    refs.map(|(name, status)| (short(str::from_utf8(name).expect("UTF-8")), status)).collect()
}

fn rejected(class: Class, reason: &str) -> PushStatus {
    PushStatus::Rejected { class, reason: reason.to_owned() }
}

#[test]
fn new_moved_and_unchanged_refs_go_in_one_push() {
    let fix = Fixture::new();
    fix.remote_hook("post-receive", "echo call >>calls; cat >>calls");
    let (one, two) = (fix.commit(Some(fix.base), "one"), fix.commit(Some(fix.base), "two"));
    let updates = [
        update("refs/heads/one", None, one),
        update("refs/heads/main", Some(fix.base), two),
        update("refs/heads/old", Some(fix.base), fix.base),
    ];
    fix.set_remote("refs/heads/old", fix.base);

    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(
        statuses(&report),
        [
            ("one", &PushStatus::Created),
            ("main", &PushStatus::Updated),
            ("old", &PushStatus::UpToDate)
        ]
    );
    assert_eq!((report.pushes, report.processes), (1, 2));
    let calls = std::fs::read_to_string(fix.remote.join("calls")).expect("the hook ran");
    assert_eq!(calls.lines().filter(|line| *line == "call").count(), 1, "{calls}");
    assert_eq!(calls.lines().count(), 3, "{calls}");

    let there = remote_refs(&fix.git, "origin").expect("the refs");
    assert_eq!(there.refs.get(&BString::from("refs/heads/one")), Some(&one));
    assert_eq!(there.refs.get(&BString::from("refs/heads/main")), Some(&two));
    assert_eq!(there.head, Some("refs/heads/main".into()));

    // The same again says so, under the old leases too.
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert!(report.refs.iter().all(|(_, status)| *status == PushStatus::UpToDate), "{report:?}");
}

#[test]
fn an_empty_push_starts_nothing() {
    let fix = Fixture::new();
    let report = push(&fix.git, "origin", &[]).expect("a report");
    assert_eq!((report.refs.len(), report.pushes, report.processes), (0, 0, 0));
}

#[test]
fn nothing_that_others_share_is_written() {
    let fix = Fixture::new();
    // Settings of a user that would make git write, send or remove more than it was asked to.
    for (name, value) in [
        ("remote.origin.tagOpt", "--tags"),
        ("remote.origin.prune", "true"),
        ("remote.origin.mirror", "true"),
        ("remote.origin.push", "refs/heads/*:refs/heads/*"),
        ("push.followTags", "true"),
        ("fetch.prune", "true"),
        ("fetch.pruneTags", "true"),
        ("fetch.writeCommitGraph", "true"),
        ("gc.auto", "1"),
        ("core.logAllRefUpdates", "always"),
        ("push.gpgSign", "true"),
        ("submodule.recurse", "true"),
    ] {
        fix.in_work(&["config", name, value]);
    }
    fix.in_work(&["tag", "-a", "-m", "local", "local-tag", &fix.base.to_string()]);
    fix.in_remote(&["tag", "remote-tag", &fix.base.to_string()]);
    fix.in_work(&["update-ref", "refs/remotes/origin/gone", &fix.base.to_string()]);
    fix.in_work(&["update-ref", "refs/remotes/origin/main", &fix.base.to_string()]);
    fix.in_work(&["pack-refs", "--all"]);
    let next = fix.commit(Some(fix.base), "next");
    let before = fix.shared_files();

    let report = push(
        &fix.git,
        "origin",
        &[update("refs/heads/main", Some(fix.base), next), update("refs/heads/new", None, next)],
    );
    let report = report.expect("a report");
    assert!(report.refs.iter().all(|(_, status)| status.is_landed()), "{report:?}");
    fetch(&fix.git, "origin", &["refs/heads/main".into()]).expect("fetched");
    remote_refs(&fix.git, "origin").expect("the refs");

    assert_eq!(fix.shared_files(), before);
    let there: Vec<_> =
        remote_refs(&fix.git, "origin").expect("the refs").refs.into_keys().collect();
    assert_eq!(there, ["refs/heads/main", "refs/heads/new", "refs/tags/remote-tag"]);
}

#[test]
fn a_ref_refused_by_the_update_hook_fails_alone() {
    let fix = Fixture::new();
    fix.remote_hook(
        "update",
        r#"[ "$1" != refs/heads/bad ] || { echo "no bad branches"; exit 1; }"#,
    );
    let commit = fix.commit(Some(fix.base), "x");
    let updates = ["a", "bad", "z"].map(|b| update(&format!("refs/heads/{b}"), None, commit));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(
        statuses(&report),
        [
            ("a", &PushStatus::Created),
            ("bad", &rejected(Class::Permanent, "hook declined")),
            ("z", &PushStatus::Created)
        ]
    );
    assert!(report.stderr.contains("remote: no bad branches"), "{}", report.stderr);
    assert_eq!(fix.remote_ref("refs/heads/bad"), None);
    assert_eq!(fix.remote_ref("refs/heads/z"), Some(commit));
}

#[test]
fn a_pre_receive_hook_refuses_all() {
    let fix = Fixture::new();
    fix.remote_hook("pre-receive", "exit 1");
    let commit = fix.commit(Some(fix.base), "x");
    let updates = ["a", "b"].map(|b| update(&format!("refs/heads/{b}"), None, commit));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let declined = rejected(Class::Permanent, "pre-receive hook declined");
    assert_eq!(statuses(&report), [("a", &declined), ("b", &declined)]);
}

#[test]
fn a_remote_that_moved_keeps_its_commits() {
    let fix = Fixture::new();
    let (ours, theirs) = (fix.commit(Some(fix.base), "ours"), fix.commit(Some(fix.base), "theirs"));
    fix.set_remote("refs/heads/main", theirs);
    fix.set_remote("refs/heads/taken", theirs);
    let updates = [
        update("refs/heads/main", Some(fix.base), ours),
        update("refs/heads/taken", None, ours),
        update("refs/heads/free", None, ours),
    ];
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let stale = rejected(Class::Transient, "stale info");
    assert_eq!(
        statuses(&report),
        [("main", &stale), ("taken", &stale), ("free", &PushStatus::Created)]
    );
    assert_eq!(fix.remote_ref("refs/heads/main"), Some(theirs));
}

/// Git forces an update whose lease holds. That would throw away the commits of others when an
/// operation was built on something else than the lease says.
#[test]
fn a_lease_that_holds_does_not_overwrite() {
    let fix = Fixture::new();
    let (ours, theirs) = (fix.commit(Some(fix.base), "ours"), fix.commit(Some(fix.base), "theirs"));
    fix.set_remote("refs/heads/main", theirs);
    let report = push(&fix.git, "origin", &[update("refs/heads/main", Some(theirs), ours)])
        .expect("a report");
    assert_eq!(statuses(&report), [("main", &rejected(Class::Transient, "non-fast-forward"))]);
    assert_eq!((report.pushes, report.processes), (0, 0));
    // Backwards is no way forward either.
    let report = push(&fix.git, "origin", &[update("refs/heads/main", Some(theirs), fix.base)]);
    assert!(!report.expect("a report").refs[0].1.is_landed());
    assert_eq!(fix.remote_ref("refs/heads/main"), Some(theirs));
}

#[test]
fn a_remote_commit_that_is_not_here_has_to_be_fetched_first() {
    let fix = Fixture::new();
    let theirs = fix.commit_in_remote("theirs");
    fix.set_remote("refs/heads/main", theirs);
    let ours = fix.commit(Some(fix.base), "ours");
    let updates = [update("refs/heads/main", Some(theirs), ours)];
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(statuses(&report), [("main", &rejected(Class::Transient, "fetch first"))]);

    let fetched = fetch(&fix.git, "origin", &["refs/heads/main".into()]).expect("fetched");
    assert_eq!(fetched, [("refs/heads/main".into(), theirs)]);
    let merged = fix.merge(theirs, ours);
    let updates = [update("refs/heads/main", Some(theirs), merged)];
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(statuses(&report), [("main", &PushStatus::Updated)]);
}

#[test]
fn a_name_that_clashes_with_another_is_final_and_a_locked_ref_is_not() {
    let fix = Fixture::new();
    fix.set_remote("refs/heads/dir", fix.base);
    std::fs::write(fix.remote.join("refs/heads/busy.lock"), "").expect("a lock");
    let updates = ["dir/file", "busy", "free"]
        .map(|branch| update(&format!("refs/heads/{branch}"), None, fix.base));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let read = statuses(&report);
    assert!(
        matches!(read[0].1, PushStatus::Rejected { class: Class::Permanent, reason }
            if reason.contains("'refs/heads/dir' exists; cannot create")),
        "{read:?}"
    );
    assert!(matches!(read[1].1, PushStatus::Rejected { class: Class::Transient, .. }), "{read:?}");
    assert_eq!(read[2], ("free", &PushStatus::Created));
}

#[test]
fn a_branch_checked_out_at_the_remote_is_final() {
    let fix = Fixture::new();
    fix.in_remote(&["config", "core.bare", "false"]);
    fix.in_remote(&["config", "core.worktree", fix.remote.to_str().expect("UTF-8")]);
    let next = fix.commit(Some(fix.base), "next");
    let updates = [update("refs/heads/main", Some(fix.base), next)];
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let reason = "branch is currently checked out";
    assert_eq!(statuses(&report), [("main", &rejected(Class::Permanent, reason))]);
}

#[test]
fn what_cannot_be_pushed_is_refused_alone() {
    let fix = Fixture::new();
    let nowhere = ObjectId::from_hex(&[b'1'; 40]).expect("hex");
    let updates = [
        update("refs/heads/good", None, fix.base),
        update("refs/heads/good", None, fix.base),
        update("refs/heads/lost", None, nowhere),
        update("main", None, fix.base),
        update("--force", None, fix.base),
        update("refs/heads/a:refs/heads/b", None, fix.base),
        update("refs/heads/a b", None, fix.base),
    ];
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let no_name = rejected(Class::Permanent, "not the full name of a ref");
    let want = [
        PushStatus::Created,
        rejected(Class::Permanent, "named twice in one push"),
        rejected(Class::Permanent, "the new object is not in this repository"),
        no_name.clone(),
        no_name.clone(),
        no_name.clone(),
        no_name,
    ];
    assert_eq!(report.refs.iter().map(|(_, status)| status.clone()).collect::<Vec<_>>(), want);
}

#[test]
fn more_refs_than_a_command_line_takes_are_one_push() {
    let fix = Fixture::new();
    // Long names, so that few are enough; written by hand, which is faster.
    let folder = ["x"; 4].map(|x| x.repeat(240)).join("/");
    let name = |n: u32| format!("refs/heads/{folder}/\"task-{n}");
    let mut names: Vec<String> = (0..300).map(name).collect();
    names.sort();
    let lines = names.iter().map(String::as_str).chain(["refs/heads/main"]);
    let mut packed = vec!["# pack-refs with: peeled fully-peeled sorted ".to_owned()];
    packed.extend(lines.map(|name| format!("{} {name}", fix.base)));
    let packed = packed.join("\n") + "\n";
    std::fs::write(fix.remote.join("packed-refs"), packed).expect("it can be written");
    let (ours, other) = (fix.commit(Some(fix.base), "ours"), fix.commit(Some(fix.base), "other"));
    // Without leases nothing is overwritten either.
    fix.set_remote(&name(7), other);
    let updates: Vec<_> = names.iter().map(|name| update(name, Some(fix.base), ours)).collect();
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(report.pushes, 1);
    assert_eq!(fix.remote_ref(&name(3)), Some(ours));
    let refused: Vec<_> = report.refs.iter().filter(|(_, status)| !status.is_landed()).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].0, name(7));
}

#[test]
fn the_pre_push_hook_runs_once_and_can_refuse() {
    let fix = Fixture::new();
    // What a hook prints stands in the same stream as git's answer.
    fix.work_hook(
        "pre-push",
        r#"echo call >>"$GIT_DIR/calls"; cat >>"$GIT_DIR/calls"; printf 'checked'"#,
    );
    let updates = ["a", "b"].map(|b| update(&format!("refs/heads/{b}"), None, fix.base));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(statuses(&report), [("a", &PushStatus::Created), ("b", &PushStatus::Created)]);
    let calls = std::fs::read_to_string(fix.git.git_dir().join("calls")).expect("the hook ran");
    assert_eq!(calls.lines().count(), 3, "{calls}");

    fix.work_hook("pre-push", "echo tests failed >&2; exit 1");
    let error = push(&fix.git, "origin", &[update("refs/heads/c", None, fix.base)]);
    let error = error.expect_err("refused");
    assert_eq!(error.class(), Class::Permanent);
    assert!(error.to_string().contains("tests failed"), "{error}");
    assert_eq!(fix.remote_ref("refs/heads/c"), None);
}

#[test]
fn settings_of_the_remote_hold_for_a_push() {
    let fix = Fixture::new();
    // A receive-pack of its own, two push URLs, and a relative one.
    let script = fix.script("receive-pack", r#"echo x >>"$2/used"; exec git "$@""#);
    fix.in_work(&[
        "config",
        "remote.origin.receivepack",
        &format!("{} receive-pack", script.display()),
    ]);
    let second = fix.second_remote("second.git");
    fix.in_work(&["config", "remote.origin.pushurl", "../remote.git"]);
    fix.in_work(&["config", "--add", "remote.origin.pushurl", second.to_str().expect("UTF-8")]);
    let report =
        push(&fix.git, "origin", &[update("refs/heads/a", None, fix.base)]).expect("a report");
    assert_eq!(statuses(&report), [("a", &PushStatus::Created)]);
    for remote in [&fix.remote, &second] {
        assert!(remote.join("used").is_file(), "{}", remote.display());
        assert_eq!(fix.ref_of(remote, "refs/heads/a"), Some(fix.base));
    }
}

#[test]
fn a_linked_worktree_and_a_path_for_a_remote_work() {
    let fix = Fixture::new();
    fix.in_work(&["config", "remote.origin.url", "../remote.git"]);
    fix.in_work(&["worktree", "add", "-q", "--detach", "../linked"]);
    let git = fix.open(&fix.work.join(".git/worktrees/linked"));
    let report = push(&git, "origin", &[update("refs/heads/a", None, fix.base)]).expect("a report");
    assert_eq!(statuses(&report), [("a", &PushStatus::Created)]);
    let path = fix.remote.to_str().expect("UTF-8");
    let report = push(&git, path, &[update("refs/heads/b", None, fix.base)]).expect("a report");
    assert_eq!(statuses(&report), [("b", &PushStatus::Created)]);
    assert_eq!(fetch(&git, path, &["refs/heads/b".into()]).expect("fetched")[0].1, fix.base);
}

#[test]
fn a_remote_that_is_not_there_is_an_error_without_its_password() {
    let fix = Fixture::new();
    let updates = [update("refs/heads/a", None, fix.base)];
    for remote in ["nope", "/no/such/folder", "file://user:s3cret@localhost/no/such/folder"] {
        let errors = [
            remote_refs(&fix.git, remote).expect_err("no remote"),
            push(&fix.git, remote, &updates).expect_err("no remote"),
            fetch(&fix.git, remote, &["refs/heads/main".into()]).expect_err("no remote"),
        ];
        for error in errors {
            let text = format!("{error} {error:?}");
            assert!(matches!(error, PublishError::Failed { .. }), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
            assert_eq!(error.class(), Class::Permanent, "{text}");
        }
    }
    for remote in ["", "--upload-pack=touch /tmp/x", "a\0b", "a\nb"] {
        let error = remote_refs(&fix.git, remote).expect_err("no name");
        assert!(matches!(error, PublishError::BadName { what: "remote", .. }), "{error}");
    }
}

#[test]
fn an_empty_remote_has_no_refs() {
    let fix = Fixture::new();
    let empty = fix.second_remote("empty.git");
    let state = remote_refs(&fix.git, empty.to_str().expect("UTF-8")).expect("an answer");
    assert_eq!((state.refs.len(), state.head), (0, None));
}

#[test]
fn fetched_refs_come_in_order_and_replace_the_last() {
    let fix = Fixture::new();
    let (a, b) = (fix.commit_in_remote("a"), fix.commit_in_remote("b"));
    fix.set_remote("refs/heads/x", a);
    fix.set_remote("refs/heads/Y", b);
    let names = ["refs/heads/x".into(), "refs/heads/Y".into(), "refs/heads/x".into()];
    let fetched = fetch(&fix.git, "origin", &names).expect("fetched");
    assert_eq!(fetched.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [a, b, a]);

    // A name that is a folder now, and history that was rewritten.
    fix.in_remote(&["update-ref", "-d", "refs/heads/x"]);
    fix.set_remote("refs/heads/x/deep", b);
    fix.set_remote("refs/heads/Y", a);
    let names = ["refs/heads/x/deep".into(), "refs/heads/Y".into()];
    let fetched = fetch(&fix.git, "origin", &names).expect("fetched");
    assert_eq!(fetched.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [b, a]);

    let error = fetch(&fix.git, "origin", &["refs/heads/Y".into(), "refs/heads/none".into()]);
    assert!(
        matches!(error, Err(PublishError::MissingRef { ref name, .. }) if name == "refs/heads/none"),
        "{error:?}"
    );
    assert_eq!(fetch(&fix.git, "nowhere", &[]).expect("nothing to do"), []);
    let error = fetch(&fix.git, "origin", &["main".into()]).expect_err("no full name");
    assert_eq!(error.to_string(), r#""main" is no name of a ref; check the settings"#);
}

/// The connection broke after the remote had taken the push: its refs say what landed.
#[test]
fn a_silent_remote_is_asked_for_its_refs() {
    let fix = Fixture::new();
    fix.remote_hook("update", r#"[ "$1" != refs/heads/bad ]"#);
    let silent = "[remote failure] (remote failed to report status)";
    let git = fix.git_through(&format!(
        r#"case "$*" in *' push '*) "$REAL" "$@" | sed -e 's/^[*!]\(.*\)\t.*$/!\1\t{silent}/';; *) exec "$REAL" "$@";; esac"#
    ));
    let updates = ["good", "bad"].map(|b| update(&format!("refs/heads/{b}"), None, fix.base));
    let report = push(&git, "origin", &updates).expect("a report");
    let not_moved = "the remote gave no answer, and the ref has not moved";
    assert_eq!(
        statuses(&report),
        [("good", &PushStatus::Created), ("bad", &rejected(Class::Transient, not_moved))]
    );
    assert_eq!((report.pushes, report.processes), (1, 3));
}

/// The remote died in the middle of a push: what it had taken by then has landed.
#[test]
fn a_push_that_broke_off_has_landed_what_the_remote_has() {
    let fix = Fixture::new();
    fix.remote_hook(
        "reference-transaction",
        r#"[ "$1" = committed ] && grep -q refs/heads/first && kill -9 $PPID; exit 0"#,
    );
    let updates = ["first", "second"].map(|b| update(&format!("refs/heads/{b}"), None, fix.base));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let [(_, first), (_, second)] = &statuses(&report)[..] else { panic!("{report:?}") };
    assert_eq!(*first, &PushStatus::Created);
    let there = remote_refs(&fix.git, "origin").expect("its refs").refs;
    let is_there = there.contains_key(&BString::from("refs/heads/second"));
    assert_eq!(matches!(second, PushStatus::Created), is_there, "{report:?}");
}

/// As above, but it was this side that ended the program before it had said all.
#[test]
fn a_push_that_was_ended_has_landed_what_the_remote_has() {
    let fix = Fixture::new();
    let talks = r#""$REAL" "$@"; case " $* " in *" push "*) head -c 9999 /dev/zero;; esac"#;
    let git = fix.git_through(talks).with_max_stdout(4096);
    let updates = [update("refs/heads/one", None, fix.base)];
    let report = push(&git, "origin", &updates).expect("a report");
    assert_eq!(statuses(&report), [("one", &PushStatus::Created)]);
    assert_eq!((report.pushes, report.processes), (1, 3));
}

/// The push of a killed run goes on by itself and is first with the very same commit.
#[test]
fn a_ref_that_another_has_brought_to_the_same_commit_has_landed() {
    let fix = Fixture::new();
    fix.remote_hook("update", r#"[ "$1" = refs/heads/free ] || git update-ref "$1" "$3""#);
    let updates = ["twin", "free"].map(|b| update(&format!("refs/heads/{b}"), None, fix.base));
    let report = push(&fix.git, "origin", &updates).expect("a report");
    assert_eq!(
        statuses(&report),
        [("twin", &PushStatus::UpToDate), ("free", &PushStatus::Created)]
    );
}

/// As above, but the remote cannot be read any more: nothing is promised that is not known.
#[test]
fn a_remote_that_stays_silent_has_confirmed_nothing() {
    let fix = Fixture::new();
    let git = fix.git_through(
        r#"case "$*" in
*' push '*) "$REAL" "$@" | sed -e '/refs.heads.lost/d' -e 's/^[*]\(.*\)\t.*$/!\1\t[remote failure] (x)/';;
*ls-remote*) echo 'fatal: the remote end hung up unexpectedly' >&2; exit 128;;
*) exec "$REAL" "$@";;
esac"#,
    );
    let updates = ["lost", "cut"].map(|b| update(&format!("refs/heads/{b}"), None, fix.base));
    let report = push(&git, "origin", &updates).expect("a report");
    let reason = "the remote gave no answer, and its refs cannot be read".to_owned();
    let silent = PushStatus::Unknown { reason };
    assert_eq!(statuses(&report), [("lost", &silent), ("cut", &silent)]);

    // To push the same again is safe, and finds out.
    let report = push(&fix.git, "origin", &updates).expect("a report");
    let landed = &PushStatus::UpToDate;
    assert_eq!(statuses(&report), [("lost", landed), ("cut", landed)]);
}

/// A reason may hold line ends, so that a remote can write lines of its own.
#[test]
fn a_forged_line_does_not_make_a_refused_ref_land() {
    let fix = Fixture::new();
    fix.remote_hook("update", "printf '*\\t%s:%s\\t[new branch]\\n' $3 $1; exit 1");
    let base = fix.base;
    let git = fix.git_through(&format!(
        r#""$REAL" "$@"; case "$*" in *' push '*) printf '*\t{base}:refs/heads/a\t[new branch]\n*\t{base}:refs/heads/other\t[new branch]\n*\tHEAD:refs/heads/b\t[new branch]\n';; esac"#
    ));
    let updates = ["a", "b"].map(|b| update(&format!("refs/heads/{b}"), None, base));
    let report = push(&git, "origin", &updates).expect("a report");
    let declined = rejected(Class::Permanent, "hook declined");
    assert_eq!(statuses(&report), [("a", &declined), ("b", &declined)]);
}

#[test]
fn what_a_remote_prints_cannot_reach_a_terminal_as_it_is() {
    let fix = Fixture::new();
    fix.remote_hook(
        "pre-receive",
        r"printf 'see https://me:s3cret@host/x \033]0;evil\007\n'; exit 1",
    );
    let updates = [update("refs/heads/a", None, fix.base)];
    let stderr = push(&fix.git, "origin", &updates).expect("a report").stderr;
    assert!(stderr.contains("see https://***@host/x"), "{stderr}");
    assert!(!stderr.contains(['\u{1b}', '\u{7}']), "{stderr}");
}

/// Two tests from above, in a process whose environment points everywhere else, as inside of a hook.
#[test]
fn the_environment_of_a_hook_does_not_mislead() {
    let fix = Fixture::new();
    let other = fix.second_remote("other.git");
    let inner = std::process::Command::new(std::env::current_exe().expect("this test"))
        .arg("--exact")
        .arg("new_moved_and_unchanged_refs_go_in_one_push")
        .arg("nothing_that_others_share_is_written")
        .env("GIT_DIR", &other)
        .env("GIT_COMMON_DIR", &other)
        .env("GIT_WORK_TREE", "/")
        .env("GIT_INDEX_FILE", other.join("no-index"))
        .env("GIT_OBJECT_DIRECTORY", other.join("no-objects"))
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", other.join("objects"))
        .env("GIT_NAMESPACE", "elsewhere")
        .env("GIT_QUARANTINE_PATH", other.join("objects"))
        .env("GIT_TRACE", "1")
        .env("GIT_PUSH_OPTION_COUNT", "1")
        .env("GIT_PUSH_OPTION_0", "x")
        .env("LC_ALL", "de_DE.UTF-8")
        .output()
        .expect("the test runs");
    let text = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success() && text.contains("2 passed"), "{text}");
    assert_eq!(std::fs::read_dir(other.join("refs/heads")).expect("a folder").count(), 0);
}
