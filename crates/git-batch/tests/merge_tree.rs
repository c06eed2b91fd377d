//! Merges of random histories, each against the verdict and the tree of `git merge-tree`.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use git_batch::{Action, Change, Commit, Mode, Operation, Outcome};
use support::Fixture;

/// Small random numbers from a seed, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }
}

const LINES: usize = 12;

fn content(file: usize) -> String {
    (0..LINES).map(|line| format!("file {file} line {line}\n")).collect::<Vec<_>>().concat()
}

/// The files of the base: two folders of three.
fn files() -> BTreeMap<String, String> {
    (0..6).map(|file| (format!("d{}/f{file}", file % 2), content(file))).collect()
}

/// A few random edits: content, deletion, mode, link, new file, rename, rename of a folder.
fn random_commit(dice: &mut Dice, branch: &str, with_renames: bool) -> Commit {
    let mut commit = Commit::new(branch, "random").with_base("base");
    let files = files();
    let mut used = BTreeSet::new();
    if with_renames && dice.roll(5) == 0 {
        for (path, content) in files.iter().filter(|(path, _)| path.starts_with("d1/")) {
            used.insert(path.clone());
            commit =
                commit.delete(path.as_str()).write(path.replace("d1/", "e1/"), content.clone());
        }
    }
    for _ in 0..=dice.roll(3) {
        let (path, old) = files.iter().nth(dice.roll(files.len())).expect("six files");
        if !used.insert(path.clone()) {
            continue;
        }
        let mut text = old.clone();
        for _ in 0..dice.roll(3) {
            let line = format!("line {}\n", dice.roll(LINES));
            text = text.replace(&line, &format!("edit {}\n", dice.roll(2)));
        }
        let write = |text: String, mode| Action::Write { content: text.into(), mode };
        commit = match dice.roll(8) {
            0 => commit.delete(path.as_str()),
            1 => commit.change(Change::new(path.as_str(), write(text, Mode::Executable))),
            2 => commit.change(Change::new(path.as_str(), write("target".into(), Mode::Symlink))),
            3 => {
                let new = format!("d{}/new{}", dice.roll(2), dice.roll(2));
                if used.insert(new.clone()) { commit.write(new, text) } else { commit }
            }
            4 if with_renames => {
                let to = format!("d{}/moved{}", dice.roll(3), dice.roll(2));
                if used.insert(to.clone()) {
                    commit.delete(path.as_str()).write(to, text)
                } else {
                    commit
                }
            }
            _ => commit.write(path.as_str(), text),
        };
    }
    commit
}

/// Merges `cases` pairs of random branches in one batch and compares each with git.
fn compare(seed: u64, cases: usize, with_renames: bool) -> (usize, usize) {
    let fixture = Fixture::new();
    let mut base = Commit::new("base", "m").with_base("main");
    for (path, content) in files() {
        base = base.write(path, content);
    }
    let mut operations = vec![Operation::commit("base", base)];
    let mut dice = Dice(seed);
    for n in 0..cases {
        for side in ["ours", "theirs"] {
            let branch = format!("{side}/{n}");
            let commit = random_commit(&mut dice, &branch, with_renames);
            operations.push(Operation::commit(&branch, commit));
            // A branch to merge into, and one commit that makes sure it is no fast-forward.
            let mark = Commit::new(&branch, "mark").with_base("base").write(branch.as_str(), "x");
            operations.push(Operation::commit(format!("mark {branch}"), mark));
        }
        let result = format!("result/{n}");
        let copy = Commit::new(&result, "m").with_base(format!("ours/{n}")).write("mark", "m");
        operations.push(Operation::commit(&result, copy));
        operations.push(Operation::merge(format!("merge/{n}"), format!("theirs/{n}"), result));
    }
    let report = fixture.open().apply(operations).expect("the batch runs");
    let mut pairs = Vec::new();
    let mut merged = Vec::new();
    for n in 0..cases {
        let theirs = format!("refs/heads/theirs/{n}");
        match report.get(&format!("merge/{n}")).expect("it has an outcome") {
            Outcome::Landed { commit, .. } => {
                pairs.push(format!("{commit}^1 {theirs}"));
                merged.push(format!("{commit}^{{tree}}"));
            }
            Outcome::Conflict { .. } => pairs.push(format!("refs/heads/result/{n} {theirs}")),
            other => panic!("seed {seed}, case {n}: {other:?}"),
        }
    }
    let mut trees = Vec::new();
    for part in merged.chunks(1000) {
        let mut args = vec!["rev-parse"];
        args.extend(part.iter().map(String::as_str));
        trees.extend(fixture.git(args).lines().map(str::to_owned));
    }
    let mut trees = trees.into_iter();
    let (mut clean, mut conflicts) = (0, 0);
    for (n, git) in gits_merges(&fixture, &pairs).into_iter().enumerate() {
        if let Some(Outcome::Conflict { paths, .. }) = report.get(&format!("merge/{n}")) {
            assert!(!git.is_clean, "seed {seed}, case {n}: git sees no conflict");
            let names: BTreeSet<String> = paths.iter().map(ToString::to_string).collect();
            assert_eq!(names, git.paths, "seed {seed}, case {n}");
            conflicts += 1;
        } else {
            assert!(git.is_clean, "seed {seed}, case {n}: git sees a conflict: {git:?}");
            assert_eq!(trees.next(), Some(git.tree), "seed {seed}, case {n}");
            clean += 1;
        }
    }
    fixture.assert_sound();
    (clean, conflicts)
}

/// What git makes of one merge.
#[derive(Debug)]
struct Merged {
    is_clean: bool,
    tree: String,
    paths: BTreeSet<String>,
}

/// What git makes of all merges, in one process.
fn gits_merges(fixture: &Fixture, pairs: &[String]) -> Vec<Merged> {
    let input = pairs.join("\n") + "\n";
    let path = fixture.beside("pairs");
    std::fs::write(&path, input).expect("it can be written");
    let output = Command::new("git")
        .args(["merge-tree", "--stdin", "--name-only", "--no-messages"])
        .current_dir(fixture.work())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(std::fs::File::open(&path).expect("it is there"))
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("plain names");
    let mut fields = text.split('\0');
    let mut next = || fields.next().expect("another field");
    let mut merges = Vec::new();
    for _ in pairs {
        let (is_clean, tree) = (next() == "1", next().to_owned());
        let mut paths = BTreeSet::new();
        loop {
            let path = next();
            if path.is_empty() {
                break;
            }
            // Git names what it moves aside after the commit.
            paths.insert(path.split('~').next().unwrap_or_default().to_owned());
        }
        merges.push(Merged { is_clean, tree, paths });
    }
    merges
}

/// How many cases each test has: what `MERGE_CASES` says, or 1,000 where a CI runs it.
fn cases() -> usize {
    let asked = std::env::var("MERGE_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or(if std::env::var_os("CI").is_some() { 1000 } else { 100 })
}

#[test]
fn merges_without_renames_equal_those_of_git() {
    let (clean, conflicts) = compare(1, cases(), false);
    let least = cases() / 8;
    assert!(clean > least && conflicts > least, "{clean} clean, {conflicts} conflicts");
}

#[test]
#[ignore = "takes many minutes: for whoever changes how merges are made"]
fn ten_thousand_merges_equal_those_of_git() {
    for part in 0..5 {
        for with_renames in [false, true] {
            let seed = 100 + 2 * part + u64::from(with_renames);
            let (clean, conflicts) = compare(seed, 1000, with_renames);
            assert!(clean > 125 && conflicts > 125, "{clean} clean, {conflicts} conflicts");
        }
    }
}

#[test]
fn merges_with_renames_equal_those_of_git() {
    let (clean, conflicts) = compare(2, cases(), true);
    let least = cases() / 8;
    assert!(clean > least && conflicts > least, "{clean} clean, {conflicts} conflicts");
}
