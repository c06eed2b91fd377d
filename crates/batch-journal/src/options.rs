//! How a journal is opened.

use std::time::Duration;

/// What an accepted item survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The end of the process, of the operating system and of the power: each group is synced.
    #[default]
    PowerLoss,
    /// The end of the process, `kill -9` included, and nothing more. A group costs microseconds
    /// instead of a sync.
    ProcessCrash,
}

/// The settings of a journal; [`Default`] is what most want.
///
/// ```
/// use std::time::Duration;
/// use batch_journal::Options;
///
/// let options = Options::default().wait(Duration::from_secs(5)).max_item_bytes(1 << 20);
/// assert_eq!(options.max_item_bytes, 1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// For how long opening waits for another owner to go; not at all by default.
    pub wait: Duration,
    /// What an accepted item survives; by default the loss of power.
    pub durability: Durability,
    /// The most bytes that one item may have; 64 MiB by default, at most 512 MiB.
    pub max_item_bytes: usize,
}

impl Options {
    /// More than this is refused by SQLite, with some room for the columns beside.
    const CEILING_BYTES: usize = 512 << 20;

    /// Waits up to `wait` for another owner to go.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets what an accepted item survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the most bytes that one item may have.
    #[must_use]
    pub fn max_item_bytes(mut self, bytes: usize) -> Self {
        self.max_item_bytes = bytes.min(Self::CEILING_BYTES);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { wait: Duration::ZERO, durability: Durability::default(), max_item_bytes: 64 << 20 }
    }
}
