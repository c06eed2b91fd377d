//! Many merges into one branch: each is the merge that git would make at that place.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use git_batch::{Commit, Merge, Operation, OperationKind, Outcome, Strategy};
use support::{Fixture, landed, try_run};

/// Small random numbers from a seed, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }
}

fn merge(id: String, source: &str, strategy: Strategy) -> Operation {
    let merge =
        Merge { source: source.to_owned(), into: "into".to_owned(), strategy, message: None };
    Operation::new(id, OperationKind::Merge(merge))
}

/// Branches on `main`, on each other and on merges; merged in any order, some twice.
fn operations(dice: &mut Dice) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut branches = vec!["main".to_owned()];
    for n in 0..12 {
        let base = branches[dice.roll(branches.len())].clone();
        let branch = format!("b{n}");
        for part in 0..=dice.roll(3) {
            let commit = Commit::new(&branch, "m").write(format!("{branch}/{part}"), "x");
            let commit = if part == 0 { commit.with_base(&base) } else { commit };
            operations.push(Operation::commit(format!("{branch}/{part}"), commit));
        }
        if n > 2 && dice.roll(4) == 0 {
            let other = format!("b{}", dice.roll(n));
            operations.push(Operation::merge(format!("{branch} takes {other}"), other, &*branch));
        }
        branches.push(branch);
    }
    let into = Commit::new("into", "m").with_base("main").write("into", "x");
    operations.push(Operation::commit("into", into));
    for n in 0..24 {
        let source = format!("b{}", dice.roll(12));
        match dice.roll(8) {
            0 => {
                let commit = Commit::new("into", "m").write(format!("between/{n}"), "x");
                operations.push(Operation::commit(format!("between {n}"), commit));
            }
            1 => operations.push(merge(format!("squash {n}"), &source, Strategy::Squash)),
            _ => operations.push(merge(format!("merge {n}"), &source, Strategy::Merge)),
        }
    }
    operations
}

#[test]
fn each_merge_of_a_row_is_the_one_that_git_would_make() {
    let mut dice = Dice(7);
    let (mut merged, mut contained) = (0, 0);
    for round in 0..12 {
        let fixture = Fixture::new();
        let operations = operations(&mut dice);
        let report = fixture.open().apply(operations.clone()).unwrap();
        let mut tip = landed(&report, "into").to_string();
        for operation in &operations {
            let OperationKind::Merge(Merge { source, into, strategy, .. }) = &operation.kind else {
                if operation.id.starts_with("between") {
                    tip = landed(&report, &operation.id).to_string();
                }
                continue;
            };
            if into != "into" {
                continue;
            }
            let is_ancestor = ["merge-base", "--is-ancestor", source, &tip];
            let is_contained = try_run(&fixture.work(), is_ancestor).0 == Some(0);
            match report.get(&operation.id) {
                Some(Outcome::Landed { commit, .. }) => {
                    assert!(!is_contained, "round {round}: {}", operation.id);
                    let tree = fixture.git(["merge-tree", "--write-tree", &tip, source]);
                    let made = fixture.git(["rev-parse", &format!("{commit}^{{tree}}")]);
                    assert_eq!(made, tree, "round {round}: {}", operation.id);
                    tip = commit.to_string();
                    merged += 1;
                }
                Some(Outcome::NoChange { commit, .. }) => {
                    assert_eq!(commit.to_string(), tip);
                    let is_squash = *strategy == Strategy::Squash;
                    assert!(is_contained || is_squash, "round {round}: {}", operation.id);
                    contained += 1;
                }
                other => panic!("round {round}: {} {other:?}", operation.id),
            }
        }
        fixture.assert_sound();
    }
    assert!(merged > 60 && contained > 20, "{merged} merged, {contained} contained");
}
