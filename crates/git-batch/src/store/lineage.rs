//! Where branches that are merged one after the other began, without a walk from the top each time.
//!
//! A branch that takes a hundred merges is walked a hundred times otherwise, each time past all merges
//! before. What is known of it stays true when it grows, so only what each merge brings is looked at.

use std::collections::BTreeSet;

use gix::ObjectId;

use super::Store;
use crate::OpError;

/// How many commits of a branch are looked at for its beginning.
const MAX_CHAIN: usize = 64;

/// What is known of a branch that grows.
#[derive(Debug)]
pub(super) struct Lineage {
    /// A commit of it; which commits it contains is not listed.
    start: ObjectId,
    /// The commit now.
    tip: ObjectId,
    /// All that `tip` contains and `start` does not.
    added: BTreeSet<ObjectId>,
    /// A commit that may be merged next.
    next: Option<Next>,
}

#[derive(Debug)]
struct Next {
    commit: ObjectId,
    /// Where it left the branch.
    fork: ObjectId,
    /// What it would bring.
    chain: Vec<ObjectId>,
}

/// How a commit stands to a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fork {
    /// The branch contains it.
    Contained,
    /// This is the one commit where it left the branch.
    At(ObjectId),
    /// Only a walk can tell.
    Unknown,
}

impl Store {
    /// Says where `theirs` left the branch whose tip is `ours`, if it is a row of plain commits.
    pub(crate) fn fork(&mut self, ours: ObjectId, theirs: ObjectId) -> Result<Fork, OpError> {
        // There a commit can name parents that are not here.
        if self.common_dir.join("shallow").exists() {
            return Ok(Fork::Unknown);
        }
        let mut line = match self.lineage.take() {
            Some(line) => self.grown(line, ours)?,
            None => Lineage::at(ours),
        };
        let mut chain = Vec::new();
        let mut at = theirs;
        // Asked once, and only if the branch has not got the commit on the way.
        let mut base = None;
        let fork = loop {
            if line.added.contains(&at) {
                break if chain.is_empty() { Fork::Contained } else { Fork::At(at) };
            }
            let base = match base {
                Some(known) => known,
                None => *base.insert(self.merge_base(theirs, line.start)?),
            };
            if base == Some(at) {
                break if chain.is_empty() { Fork::Contained } else { Fork::At(at) };
            }
            let parents = self.parents(at)?;
            chain.push(at);
            match parents[..] {
                [parent] if chain.len() < MAX_CHAIN => at = parent,
                _ => break Fork::Unknown,
            }
        };
        if let Fork::At(fork) = fork {
            line.next = Some(Next { commit: theirs, fork, chain });
        }
        self.lineage = Some(line);
        Ok(fork)
    }

    /// Where a commit left a branch, if [`Store::fork`] has just found that out.
    pub(super) fn known_fork(&self, ours: ObjectId, theirs: ObjectId) -> Option<ObjectId> {
        let line = self.lineage.as_ref().filter(|line| line.tip == ours)?;
        line.next.as_ref().filter(|next| next.commit == theirs).map(|next| next.fork)
    }

    /// What is known of a branch that is at `tip` now.
    fn grown(&self, mut line: Lineage, tip: ObjectId) -> Result<Lineage, OpError> {
        if line.tip == tip {
            return Ok(line);
        }
        let parents = self.parents(tip)?;
        let brought = match (&parents[..], line.next.take()) {
            ([before], _) if *before == line.tip => Vec::new(),
            ([before, theirs], Some(next)) if *before == line.tip && *theirs == next.commit => {
                next.chain
            }
            _ => return Ok(Lineage::at(tip)),
        };
        line.added.extend(brought);
        line.added.insert(tip);
        line.tip = tip;
        Ok(line)
    }
}

impl Lineage {
    fn at(tip: ObjectId) -> Lineage {
        Lineage { start: tip, tip, added: BTreeSet::new(), next: None }
    }
}
