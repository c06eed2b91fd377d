//! Commits of what agents left in their worktrees.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use git_batch::{GitBatch, OpErrorKind, Operation, Settings};
use support::worktree::{
    apply, capture, capture_files, captures_as_git, files, left_out, linked, put, status,
};
use support::{Fixture, kind, landed, run};

#[test]
fn fifty_dirty_worktrees_become_fifty_commits_in_one_push() {
    let fixture = Fixture::new();
    let mut operations = Vec::new();
    let mut dirs = Vec::new();
    for n in 0..50 {
        let branch = format!("agent/{n}");
        let dir = linked(&fixture, &branch);
        put(&dir, "README.md", &format!("one\ntwo\n{n}\n"));
        put(&dir, &format!("new/{n}.txt"), "new\n");
        fs::remove_file(dir.join("old/kept.txt")).unwrap();
        operations.push(capture(&format!("c{n}"), &branch, &dir));
        operations.push(Operation::push(format!("p{n}"), &branch));
        dirs.push((branch, dir));
    }
    let before: Vec<_> = dirs.iter().map(|(_, dir)| files(dir)).collect();
    let report = fixture.open().apply(operations).unwrap();
    for (n, (branch, dir)) in dirs.iter().enumerate() {
        let commit = landed(&report, &format!("c{n}"));
        landed(&report, &format!("p{n}"));
        assert_eq!(fixture.at_remote(["rev-parse", branch]).trim(), commit.to_string());
        assert_eq!(run(dir, ["rev-parse", "HEAD"]).trim(), commit.to_string());
        assert_eq!(status(dir), "", "{branch}");
        assert_eq!(files(dir), before[n], "{branch}");
        let changed = fixture.git(["diff-tree", "-r", "--name-status", "--no-commit-id", branch]);
        assert_eq!(changed, format!("M\tREADME.md\nA\tnew/{n}.txt\nD\told/kept.txt\n"));
        let log = run(dir, ["reflog", "-1", "--format=%gs"]);
        assert_eq!(log, "commit: Agent's work\n");
    }
    assert_eq!(report.pushes(), 1);
    assert_eq!(fixture.received(), 1);
    let receipt = &report.receipts[0];
    assert_eq!(receipt.processes, 3);
    assert!(receipt.fsyncs <= 10, "{}", receipt.fsyncs);
    fixture.assert_sound();
}

#[test]
fn the_main_worktree_is_captured_too() {
    let fixture = Fixture::new();
    fixture.write("README.md", "changed\n");
    fixture.write("new.txt", "new\n");
    captures_as_git(&fixture, "main", &fixture.work());
}

#[test]
fn kinds_and_modes_are_right() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "run.sh", "#!/bin/sh\n");
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(dir.join("README.md"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../somewhere/else", dir.join("link")).unwrap();
    symlink("/etc", dir.join("old/etc")).unwrap();
    put(&dir, "empty", "");
    put(&dir, "a b/ö\"\n.txt", "odd\n");
    captures_as_git(&fixture, "x", &dir);
    let tree = run(&dir, ["ls-tree", "-r", "HEAD"]);
    assert!(tree.contains("120000 blob") && tree.contains("100755 blob"), "{tree}");
    assert!(!tree.contains("passwd"), "{tree}");
}

#[test]
fn files_and_folders_that_swap_are_right() {
    let fixture = Fixture::new();
    fixture.write("was-file", "x\n");
    fixture.write("was-folder/a", "a\n");
    fixture.write("was-folder/b/c", "c\n");
    fixture.write("was-linked/a", "a\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    let dir = linked(&fixture, "x");
    fs::remove_file(dir.join("was-file")).unwrap();
    put(&dir, "was-file/inside", "x\n");
    fs::remove_dir_all(dir.join("was-folder")).unwrap();
    put(&dir, "was-folder", "now a file\n");
    fs::remove_dir_all(dir.join("was-linked")).unwrap();
    // Behind the symlink there is a file of that name; it is not the worktree's.
    symlink("was-file", dir.join("was-linked")).unwrap();
    put(&dir, "was-file/a", "outside\n");
    captures_as_git(&fixture, "x", &dir);
}

#[test]
fn what_is_staged_and_what_is_intended_is_right() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "README.md", "staged\n");
    put(&dir, "staged-only", "staged\n");
    put(&dir, "staged-then-gone", "staged\n");
    put(&dir, "intended", "content\n");
    put(&dir, "intended-then-gone", "content\n");
    put(&dir, "unstaged", "content\n");
    run(&dir, ["add", "README.md", "staged-only", "staged-then-gone"]);
    run(&dir, ["add", "-N", "intended", "intended-then-gone"]);
    run(&dir, ["rm", "-q", "--cached", "old/kept.txt"]);
    put(&dir, "README.md", "changed after that\n");
    fs::remove_file(dir.join("staged-then-gone")).unwrap();
    fs::remove_file(dir.join("intended-then-gone")).unwrap();
    captures_as_git(&fixture, "x", &dir);
}

#[test]
fn a_file_removed_from_the_index_and_ignored_is_deleted() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    run(&dir, ["rm", "-q", "--cached", "old/kept.txt"]);
    put(&dir, ".gitignore", "/old/\n");
    captures_as_git(&fixture, "x", &dir);
    assert!(dir.join("old/kept.txt").exists());
}

#[test]
fn ignore_rules_count_as_for_git() {
    let fixture = Fixture::new();
    fixture.write("logs/tracked.log", "tracked\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    let dir = linked(&fixture, "x");
    put(&dir, ".gitignore", "*.log\n!keep.log\n/build/\n");
    put(&dir, "sub/.gitignore", "!again.log\n*.tmp\n");
    put(&fixture.work().join(".git"), "info/exclude", "excluded\n");
    for path in [
        "a.log",
        "keep.log",
        "build/x",
        "sub/again.log",
        "sub/b.log",
        "sub/c.tmp",
        "c.tmp",
        "excluded",
        "logs/tracked.log",
        "logs/new.log",
        "deep/build/x",
    ] {
        put(&dir, path, "changed\n");
    }
    captures_as_git(&fixture, "x", &dir);
    let listed = run(&dir, ["ls-files"]);
    assert!(listed.contains("sub/again.log") && !listed.contains("logs/new.log"), "{listed}");
}

#[test]
fn line_ends_and_filters_are_git_s() {
    let fixture = Fixture::new();
    fixture.write("crlf-in-index.txt", "a\r\nb\r\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    // Not for the main worktree, whose files are as they are.
    fixture.git(["config", "filter.upper.clean", "tr a-z A-Z"]);
    fixture.git(["config", "filter.upper.smudge", "cat"]);
    for autocrlf in ["false", "input", "true"] {
        let branch = format!("x-{autocrlf}");
        fixture.git(["config", "core.autocrlf", "false"]);
        let dir = linked(&fixture, &branch);
        fixture.git(["config", "core.autocrlf", autocrlf]);
        put(
            &dir,
            ".gitattributes",
            "*.lf text eol=lf\n*.crlf text eol=crlf\n*.auto text=auto\n*.bin -text\n*.up \
             filter=upper\n*.id ident\n*.utf16 text working-tree-encoding=UTF-16LE\n*.none \
             filter=unknown\n",
        );
        for name in ["a.lf", "a.crlf", "a.auto", "a.bin", "a.up", "a.plain", "a.none"] {
            put(&dir, name, "one\r\ntwo\nthree\r\n");
            put(&dir, &format!("all.{name}"), "one\r\ntwo\r\n");
        }
        put(&dir, "crlf-in-index.txt", "a\r\nb\r\nc\r\n");
        put(&dir, "zero.auto", "a\0\r\n");
        put(&dir, "b.id", "$Id: 0123 $\n");
        fs::write(dir.join("c.utf16"), b"a\0\r\0\n\0").unwrap();
        captures_as_git(&fixture, &branch, &dir);
        assert_eq!(
            run(&dir, ["show", "HEAD:a.up"]),
            "ONE\r\nTWO\nTHREE\r\n".replace('\r', if autocrlf == "false" { "\r" } else { "" })
        );
    }
}

#[test]
fn a_filter_that_fails_fails_its_operation_alone() {
    let fixture = Fixture::new();
    fixture.git(["config", "filter.broken.clean", "false"]);
    fixture.git(["config", "filter.broken.required", "true"]);
    let (bad, good) = (linked(&fixture, "bad"), linked(&fixture, "good"));
    put(&bad, ".gitattributes", "*.bin filter=broken\n");
    put(&bad, "a.bin", "x");
    put(&good, "a.bin", "x");
    let operations = vec![capture("bad", "bad", &bad), capture("good", "good", &good)];
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::Filtered));
    landed(&report, "good");
    assert!(status(&bad).contains("?? a.bin"));
}

#[test]
fn untracked_secrets_and_large_files_are_left_out_and_named() {
    let fixture = Fixture::new();
    fixture.write("tracked/.env", "SHARED=1\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    let dir = linked(&fixture, "x");
    put(&dir, ".env", "TOKEN=1\n");
    put(&dir, "app/.env.local", "TOKEN=1\n");
    put(&dir, ".env.example", "TOKEN=\n");
    put(&dir, "deploy", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n");
    put(&dir, "tracked/.env", "SHARED=2\n");
    put(&dir, "large", &"x".repeat(2000));
    put(&dir, "README.md", &"x".repeat(2000));
    put(&dir, "ok", "ok\n");
    let settings = Settings::default().with_max_file_bytes(1000);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report = git.apply(vec![capture("c", "x", &dir)]).unwrap();
    landed(&report, "c");
    let want = [
        (".env", "secret"),
        ("README.md", "too_large"),
        ("app/.env.local", "secret"),
        ("deploy", "secret"),
        ("large", "too_large"),
    ];
    assert_eq!(left_out(&report, "c"), want.map(|(path, why)| (path.to_owned(), why)));
    let changed = run(&dir, ["diff-tree", "-r", "--name-only", "--no-commit-id", "HEAD"]);
    assert_eq!(changed, ".env.example\nok\ntracked/.env\n");
    assert_eq!(status(&dir), " M README.md\n?? .env\n?? app/\n?? deploy\n?? large\n");
    // What somebody staged by hand was meant.
    run(&dir, ["add", "deploy"]);
    let report = git.apply(vec![capture("c", "x", &dir)]).unwrap();
    landed(&report, "c");
    assert_eq!(run(&dir, ["ls-files", "deploy"]), "deploy\n");
}

#[test]
fn named_files_are_taken_and_no_others() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, ".gitignore", "*.log\n");
    put(&dir, "a.txt", "a\n");
    put(&dir, "b.txt", "b\n");
    put(&dir, "staged.txt", "staged\n");
    put(&dir, "folder/one", "1\n");
    put(&dir, "folder/two", "2\n");
    put(&dir, "x.log", "ignored\n");
    run(&dir, ["add", "staged.txt", "b.txt"]);
    fs::remove_file(dir.join("old/kept.txt")).unwrap();
    let files = ["a.txt", "folder", "old/kept.txt", "x.log"];
    let report = apply(&fixture, capture_files("c", "x", &dir, &files));
    landed(&report, "c");
    assert_eq!(left_out(&report, "c"), [("x.log".to_owned(), "ignored")]);
    let changed = run(&dir, ["diff-tree", "-r", "--name-status", "--no-commit-id", "HEAD"]);
    assert_eq!(changed, "A\ta.txt\nA\tfolder/one\nA\tfolder/two\nD\told/kept.txt\n");
    assert_eq!(status(&dir), "A  b.txt\nA  staged.txt\n?? .gitignore\n");

    let unknown = apply(&fixture, capture_files("c", "x", &dir, &["nowhere"]));
    assert_eq!(kind(unknown.get("c")), Some(OpErrorKind::UnknownPath));
    for bad in ["../x", "/etc/passwd", ".git/config", ""] {
        let report = apply(&fixture, capture_files("c", "x", &dir, &[bad]));
        assert_eq!(kind(report.get("c")), Some(OpErrorKind::InvalidPath), "{bad:?}");
    }
}

#[test]
fn no_path_leads_out_through_a_symlink() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    let outside = fixture.beside("outside");
    put(&outside, "secret.txt", "secret\n");
    symlink(&outside, dir.join("link")).unwrap();
    let report = apply(&fixture, capture_files("c", "x", &dir, &["link/secret.txt"]));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::UnknownPath));
    // A tracked folder that became a symlink is a deletion and a symlink.
    fs::remove_dir_all(dir.join("src")).unwrap();
    put(&outside, "lib.rs", "outside\n");
    symlink(&outside, dir.join("src")).unwrap();
    captures_as_git(&fixture, "x", &dir);
    assert!(run(&dir, ["ls-tree", "HEAD", "src"]).starts_with("120000"));
}

#[test]
fn a_folder_that_is_no_worktree_of_the_repository_is_refused() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "sub/a.txt", "a\n");
    let other = fixture.beside("other");
    run(
        &fixture.work(),
        ["clone", "-q", fixture.remote().to_str().unwrap(), other.to_str().unwrap()],
    );
    put(&other, "a.txt", "a\n");
    let copy = fixture.beside("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(dir.join(".git"), copy.join(".git")).unwrap();
    let plain = fixture.beside("plain");
    fs::create_dir(&plain).unwrap();
    for bad in [dir.join("sub"), other, copy, plain, fixture.beside("absent"), fixture.remote()] {
        let report = apply(&fixture, capture("c", "x", &bad));
        assert_eq!(kind(report.get("c")), Some(OpErrorKind::InvalidWorktree), "{bad:?}");
    }
    let report = apply(&fixture, capture("c", "main", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::OtherBranch));
    run(&dir, ["checkout", "-q", "--detach"]);
    let report = apply(&fixture, capture("c", "x", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::InvalidWorktree));
}

#[test]
fn submodules_stay_as_they_are() {
    let fixture = Fixture::new();
    let module = fixture.beside("module");
    run(&fixture.work(), ["init", "-q", "-b", "main", module.to_str().unwrap()]);
    let commit = |message: &str| {
        run(
            &module,
            [
                "-c",
                "user.name=M",
                "-c",
                "user.email=m@m",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                message,
            ],
        );
    };
    commit("one");
    fixture.git([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        module.to_str().unwrap(),
        "mod",
    ]);
    fixture.git(["commit", "-qm", "Module"]);
    // In the main worktree, where the submodule is checked out.
    let dir = fixture.work();
    let inner = dir.join("mod");
    run(
        &inner,
        ["-c", "user.name=M", "-c", "user.email=m@m", "commit", "-q", "--allow-empty", "-m", "two"],
    );
    put(&inner, "inside.txt", "inside\n");
    put(&dir, "a.txt", "a\n");
    let before = fixture.git(["rev-parse", "main:mod"]);
    let report = apply(&fixture, capture("c", "main", &dir));
    landed(&report, "c");
    assert_eq!(fixture.git(["rev-parse", "main:mod"]), before);
    assert_eq!(fixture.git(["show", "--name-only", "--format=", "main"]), "a.txt\n");
    assert!(inner.join("inside.txt").exists());
    // Also where another commit of it is staged.
    run(&dir, ["add", "mod"]);
    put(&dir, "b.txt", "b\n");
    let report = apply(&fixture, capture("c", "main", &dir));
    assert_eq!(left_out(&report, "c"), [("mod".to_owned(), "submodule")]);
    assert_eq!(fixture.git(["rev-parse", "main:mod"]), before);
    let report = apply(&fixture, capture_files("c", "main", &dir, &["mod/inside.txt"]));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::InvalidPath));
    // And where it is not checked out.
    let linked = linked(&fixture, "x");
    put(&linked, "c.txt", "c\n");
    captures_as_git(&fixture, "x", &linked);
}

#[test]
fn a_repository_inside_the_worktree_is_refused() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    run(&dir, ["init", "-q", "vendor/nested"]);
    put(&dir, "vendor/nested/a.txt", "a\n");
    let report = apply(&fixture, capture("c", "x", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::NestedRepository));
    let report = apply(&fixture, capture_files("c", "x", &dir, &["vendor/nested/a.txt"]));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::NestedRepository));
    put(&dir, ".gitignore", "/vendor/\n");
    landed(&apply(&fixture, capture("c", "x", &dir)), "c");
}

#[test]
fn a_worktree_that_was_emptied_is_not_committed() {
    let fixture = Fixture::new();
    for n in 0..40 {
        fixture.write(&format!("files/{n}"), "x\n");
    }
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "Many"]);
    let dir = linked(&fixture, "x");
    fs::remove_dir_all(dir.join("files")).unwrap();
    let report = apply(&fixture, capture("c", "x", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::MassDeletion));
    // An index that lost its entries is no such thing: the files are there.
    run(&dir, ["checkout", "-q", "--", "."]);
    put(&dir, "new", "new\n");
    fs::remove_file(fixture.work().join(".git/worktrees/x/index")).unwrap();
    landed(&apply(&fixture, capture("c", "x", &dir)), "c");
    assert_eq!(fixture.git(["show", "--name-status", "--format=", "x"]), "A\tnew\n");
    assert_eq!(status(&dir), "");
}

#[test]
fn a_sparse_checkout_keeps_what_it_leaves_out() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let fixture = Fixture::new();
        for path in ["in/a", "out/b", "out/deep/c", "far/d"] {
            fixture.write(path, "x\n");
        }
        fixture.git(["add", "-A"]);
        fixture.git(["commit", "-qm", "More"]);
        let dir = linked(&fixture, "x");
        run(&dir, ["sparse-checkout", "set", "--cone", index, "in"]);
        assert!(!dir.join("out").exists());
        put(&dir, "in/a", "changed\n");
        put(&dir, "in/new", "new\n");
        // Outside of what is checked out, but there.
        put(&dir, "out/b", "changed\n");
        put(&dir, "out/deep/new", "new\n");
        captures_as_git(&fixture, "x", &dir);
        let changed = run(&dir, ["diff-tree", "-r", "--name-status", "--no-commit-id", "HEAD"]);
        assert_eq!(changed, "M\tin/a\nA\tin/new\nM\tout/b\nA\tout/deep/new\n", "{index}");
    }
}

#[test]
fn what_git_was_told_not_to_look_at_is_not_looked_at() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    run(&dir, ["update-index", "--skip-worktree", "README.md"]);
    run(&dir, ["update-index", "--assume-unchanged", "src/lib.rs"]);
    put(&dir, "README.md", "mine alone\n");
    put(&dir, "src/lib.rs", "mine alone\n");
    put(&dir, "a.txt", "a\n");
    captures_as_git(&fixture, "x", &dir);
    assert_eq!(fixture.git(["show", "--name-only", "--format=", "x"]), "a.txt\n");
}

#[test]
fn a_branch_without_a_commit_gets_its_first() {
    let fixture = Fixture::empty();
    fixture.write("a.txt", "a\n");
    let report = fixture
        .open()
        .apply(vec![capture("c", "main", &fixture.work()), Operation::push("p", "main")])
        .unwrap();
    landed(&report, "c");
    landed(&report, "p");
    assert_eq!(status(&fixture.work()), "");
    assert_eq!(fixture.at_remote(["ls-tree", "--name-only", "main"]), "a.txt\n");
}
