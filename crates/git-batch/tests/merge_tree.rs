//! Merges of random histories, each against the verdict and the tree of `git merge-tree`.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use git_batch::{Action, Change, Commit, Mode, Operation, Outcome};
use support::{Fixture, try_run};

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
    let (mut clean, mut conflicts) = (0, 0);
    for n in 0..cases {
        let (result, theirs) = (format!("result/{n}"), format!("theirs/{n}"));
        match report.get(&format!("merge/{n}")).expect("it has an outcome") {
            Outcome::Landed { commit, .. } => {
                let ours = format!("{commit}^1");
                let (code, tree) =
                    try_run(&fixture.work(), ["merge-tree", "--write-tree", &ours, &theirs]);
                assert_eq!(code, Some(0), "seed {seed}, case {n}: git sees a conflict: {tree}");
                let merged = fixture.git(["rev-parse", &format!("{commit}^{{tree}}")]);
                assert_eq!(merged, tree, "seed {seed}, case {n}");
                clean += 1;
            }
            Outcome::Conflict { paths, .. } => {
                let sides = [&result, &theirs].map(|side| fixture.id(side).to_string());
                let mut args = vec!["merge-tree", "--write-tree", "--name-only", "--no-messages"];
                args.extend(sides.iter().map(String::as_str));
                let (code, text) = try_run(&fixture.work(), args);
                assert_eq!(code, Some(1), "seed {seed}, case {n}: git sees no conflict: {text}");
                let names: BTreeSet<String> = paths.iter().map(ToString::to_string).collect();
                // Git names what it moves aside after the commit.
                let path = |line: &str| line.split('~').next().unwrap_or_default().to_owned();
                let gits: BTreeSet<String> =
                    text.lines().skip(1).take_while(|l| !l.contains(": ")).map(path).collect();
                assert_eq!(names, gits, "seed {seed}, case {n}");
                conflicts += 1;
            }
            other => panic!("seed {seed}, case {n}: {other:?}"),
        }
    }
    fixture.assert_sound();
    (clean, conflicts)
}

#[test]
fn merges_without_renames_equal_those_of_git() {
    let (clean, conflicts) = compare(1, 40, false);
    assert!(clean > 20 && conflicts > 5, "too few cases: {clean} clean, {conflicts} conflicts");
}

#[test]
fn merges_with_renames_equal_those_of_git() {
    let (clean, conflicts) = compare(2, 40, true);
    assert!(clean > 20 && conflicts > 5, "too few cases: {clean} clean, {conflicts} conflicts");
}
