//! Checksums. SQLite checks the frames of its log, but neither the pages of its file nor that the
//! two belong together.

use batch_core::ItemId;

/// Returns the checksum that is stored with an item: of its id and its bytes.
pub(crate) fn of_item(id: ItemId, payload: &[u8]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&id.epoch.to_le_bytes()).update(&id.seq.to_le_bytes()).update(payload);
    first_bytes(&hasher)
}

/// What the file holds, in short. It changes with each transaction, and a file whose items are not
/// those of its ledger is not the work of one row of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// How often the journal was opened.
    pub(crate) run: u64,
    /// How many items there are.
    pub(crate) items: u64,
    /// The checksums of all items, combined so that their order is nothing to it.
    pub(crate) sums: i64,
}

impl Ledger {
    pub(crate) fn add(&mut self, sum: i64) {
        self.items += 1;
        self.sums ^= sum;
    }

    pub(crate) fn remove(&mut self, sum: i64) {
        self.items = self.items.saturating_sub(1);
        self.sums ^= sum;
    }

    /// Returns the checksum that is stored with the run and the number.
    pub(crate) fn seal(&self) -> i64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.run.to_le_bytes()).update(&self.items.to_le_bytes());
        hasher.update(&self.sums.to_le_bytes());
        first_bytes(&hasher)
    }
}

fn first_bytes(hasher: &blake3::Hasher) -> i64 {
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    i64::from_le_bytes(bytes)
}
