//! What is known of batches beyond the life of the process: what an unfinished one was about to do,
//! and what became of those that are done.
//!
//! One file a batch, in the folder of the writer. It is written when all objects are on the disk and
//! before any ref moves, and gets its outcomes at its end. What happened in between is not noted: the
//! refs here and at the remote say it.

mod file;
mod key;
mod plain;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

pub(crate) use self::file::{OpenRecord, Records};
pub(crate) use self::key::Key;
pub(crate) use self::wire::{Wire, wire_enum, wire_struct};
use crate::batch::{Branch, Pending};
use crate::{OnMoved, Outcome};

/// What operations name without containing it, by their places in the input: what a worktree has, and
/// the tip of a branch that was there before. The same operation with another of it is another one.
pub(crate) type References = BTreeMap<usize, Vec<u8>>;

/// The commits of branches that a gate has let pass; nothing where there was none.
pub(crate) type Passed = BTreeMap<FullName, BTreeSet<ObjectId>>;

/// The operations that have found nothing to change because of another one, which may not come; each
/// with that.
pub(crate) type Unchanged = BTreeMap<usize, usize>;

/// A batch whose objects are on the disk and whose refs are to move.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) remote: String,
    pub(crate) on_moved: OnMoved,
    pub(crate) push_options: Vec<String>,
    /// The branch of a landing.
    pub(crate) onto: Option<FullName>,
    /// The id and the group of every operation of the input.
    pub(crate) operations: Vec<(String, Option<String>)>,
    /// The operations of this batch.
    pub(crate) order: Vec<usize>,
    pub(crate) references: References,
    /// The ends that are known already.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) branches: BTreeMap<FullName, Branch>,
    pub(crate) last_push: BTreeMap<FullName, (usize, usize)>,
}

wire_struct!(Built {
    remote,
    on_moved,
    push_options,
    onto,
    operations,
    order,
    references,
    outcomes,
    pending,
    branches,
    last_push,
});

/// What is known besides, and what came after a batch was built.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// The remote had moved: these commits are pushed in place of the tips of their branches, and
    /// contain these others, made again.
    CaughtUp(Vec<(FullName, ObjectId)>, Vec<(ObjectId, ObjectId)>),
    /// The ends of the operations of the batch, in their order.
    Done(Vec<Outcome>),
    /// The gate has let these pass: nothing else of their branches is to be pushed.
    Passed(Passed),
    /// The outcomes of these say that nothing was to be changed, and are right only if others come.
    Unchanged(Unchanged),
}

impl Wire for Event {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Event::CaughtUp(tips, remade) => {
                out.push(1);
                tips.put(out);
                remade.put(out);
            }
            Event::Done(outcomes) => {
                out.push(2);
                outcomes.put(out);
            }
            Event::Passed(passed) => {
                out.push(3);
                passed.put(out);
            }
            Event::Unchanged(unchanged) => {
                out.push(4);
                unchanged.put(out);
            }
        }
    }
    fn take(input: &mut &[u8]) -> Option<Event> {
        match u8::take(input)? {
            1 => Some(Event::CaughtUp(Wire::take(input)?, Wire::take(input)?)),
            2 => Wire::take(input).map(Event::Done),
            3 => Wire::take(input).map(Event::Passed),
            4 => Wire::take(input).map(Event::Unchanged),
            _ => None,
        }
    }
}

/// What is known of one batch.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) built: Built,
    pub(crate) passed: Passed,
    pub(crate) unchanged: Unchanged,
    /// What is pushed in place of the tips of branches.
    pub(crate) caught_up: BTreeMap<FullName, ObjectId>,
    /// The commits that were made again for that, each with the new one.
    pub(crate) remade: BTreeMap<ObjectId, ObjectId>,
    /// The ends, if the batch is done.
    pub(crate) done: Option<Vec<Outcome>>,
}

#[cfg(test)]
pub(super) mod tests {
    use bstr::BString;
    use gix::index::entry::Mode;
    use proptest::prelude::*;

    use super::*;
    use crate::{Class, LeftOut, Omission, OpError, OpErrorKind};

    pub(super) fn built(count: usize, outcomes: Vec<Outcome>) -> Built {
        let name = FullName::try_from("refs/heads/a").expect("a name");
        let commit = ObjectId::empty_tree(gix::hash::Kind::Sha1);
        let (pending, branch) = crate::batch::samples(name.clone(), commit);
        let mut ends: Vec<Option<Outcome>> = outcomes.into_iter().map(Some).collect();
        ends.resize(count, None);
        Built {
            remote: "origin".to_owned(),
            on_moved: OnMoved::Rebase,
            push_options: vec!["a=b".to_owned()],
            onto: Some(name.clone()),
            operations: (0..count).map(|n| (n.to_string(), None)).collect(),
            order: (0..count).collect(),
            references: [(0, vec![1, 2])].into(),
            outcomes: ends,
            pending: vec![pending],
            branches: [(name.clone(), branch)].into(),
            last_push: [(name, (0, 0))].into(),
        }
    }

    /// One of each kind.
    pub(super) fn outcomes() -> Vec<Outcome> {
        let commit = ObjectId::empty_blob(gix::hash::Kind::Sha256);
        let left_out = vec![LeftOut { path: b"a\xff".as_slice().into(), why: Omission::Ignored }];
        vec![
            Outcome::Landed { commit, left_out: left_out.clone() },
            Outcome::NoChange { commit, left_out },
            Outcome::Conflict { paths: vec!["p".into()], with: vec!["x".to_owned()] },
            Outcome::Rejected { class: Class::Transient, reason: "r".to_owned() },
            Outcome::Superseded,
            Outcome::Skipped { because: "y".to_owned() },
            Outcome::Failed(OpError::new(OpErrorKind::MassDeletion, "m")),
        ]
    }

    fn round_trip<T: Wire>(value: &T) -> Option<T> {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut input = bytes.as_slice();
        let back = T::take(&mut input)?;
        input.is_empty().then_some(back)
    }

    #[test]
    fn every_outcome_comes_back() {
        assert_eq!(round_trip(&outcomes()), Some(outcomes()));
        let built = built(7, outcomes());
        let back = round_trip(&built).expect("it comes back");
        assert_eq!(format!("{back:?}"), format!("{built:?}"));
    }

    proptest! {
        #[test]
        fn values_come_back(
            numbers: Vec<(u32, bool)>,
            texts: std::collections::BTreeMap<String, Option<usize>>,
            bytes: Vec<u8>,
            mode in prop::sample::select(vec![Mode::FILE, Mode::SYMLINK, Mode::FILE_EXECUTABLE]),
        ) {
            prop_assert_eq!(round_trip(&numbers), Some(numbers));
            prop_assert_eq!(round_trip(&texts), Some(texts));
            prop_assert_eq!(round_trip(&mode), Some(mode));
            let path = std::path::PathBuf::from(String::from_utf8_lossy(&bytes).into_owned());
            prop_assert_eq!(round_trip(&path), Some(path));
            let text = BString::from(bytes);
            prop_assert_eq!(round_trip(&text), Some(text));
        }

        /// However a payload is damaged, it is read as something or as nothing: no panic, and no memory
        /// for lengths that are none.
        #[test]
        fn a_damaged_payload_does_no_harm(at: prop::sample::Index, new: [u8; 8], cut: prop::sample::Index) {
            let mut bytes = Vec::new();
            built(7, outcomes()).put(&mut bytes);
            let at = at.index(bytes.len() - new.len());
            bytes[at..at + new.len()].copy_from_slice(&new);
            bytes.truncate(cut.index(bytes.len()).max(at + new.len()));
            let _ = Built::take(&mut bytes.as_slice());
        }

        #[test]
        fn bytes_of_no_value_are_none(bytes: Vec<u8>) {
            let mut input = bytes.as_slice();
            // No panic, and no more taken than there is.
            if Event::take(&mut input).is_some() {
                prop_assert!(input.len() < bytes.len());
            }
        }
    }
}
