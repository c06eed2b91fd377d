//! The engines of the table.

use std::sync::Arc;

use crate::engine::{Engine, Setup};
use crate::ours;
use crate::script::Script;

/// One engine of the table.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) starts: fn(Setup, Arc<Script>) -> Arc<dyn Engine>,
    /// What its API does not have, so that a test of it would say nothing.
    pub(crate) lacks: &'static [Part],
}

/// A part of an API that not every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A time that a batch which is not full waits for more.
    Linger,
    /// Groups of items that share no batch.
    Keys,
    /// A bound on what is accepted.
    Bound,
    /// Results that the processor gives for a batch as a whole.
    BatchResults,
}

impl Candidate {
    /// Starts the engine with a script for its processor; inside a tokio runtime.
    pub(crate) fn start(&self, setup: Setup, script: &Arc<Script>) -> Arc<dyn Engine> {
        (self.starts)(setup, Arc::clone(script))
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("ours")
    }

    pub(crate) fn lacks(&self, part: Part) -> bool {
        self.lacks.contains(&part)
    }
}

/// Returns ours first, then the peers in the order of their names.
pub(crate) fn all() -> Vec<Candidate> {
    let mut all = ours::candidates();
    #[cfg(feature = "peers")]
    all.extend(crate::peers::candidates());
    all.sort_by_key(|one| (!one.is_ours(), one.name));
    all
}
