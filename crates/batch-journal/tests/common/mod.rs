//! What the tests share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::Path;

use batch_core::{ItemId, Journal, JournalError};
use batch_journal::{Bytes, OpenError, Options, SqliteJournal};
use tempfile::TempDir;

pub(crate) type Bin = SqliteJournal<Bytes>;

/// A folder in memory where there is one: these tests sync thousands of times, and what a sync does
/// is not what they are about.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

pub(crate) fn open(dir: &Path) -> Bin {
    try_open(dir).unwrap()
}

pub(crate) fn try_open(dir: &Path) -> Result<Bin, OpenError> {
    SqliteJournal::open(dir, Bytes, Options::default())
}

pub(crate) fn append(journal: &Bin, payloads: &[Vec<u8>]) -> Result<Vec<ItemId>, JournalError> {
    let first = journal.reserve(payloads.len() as u64);
    let ids: Vec<ItemId> =
        (first.seq..).map(|seq| ItemId { seq, ..first }).take(payloads.len()).collect();
    let items: Vec<(ItemId, &Vec<u8>)> = ids.iter().copied().zip(payloads).collect();
    journal.append(&items)?;
    Ok(ids)
}

pub(crate) fn unacked(journal: &Bin) -> Vec<(ItemId, Vec<u8>)> {
    journal.unacked(journal.reserve(0)).unwrap()
}

/// Copies the files as a crash would leave them.
pub(crate) fn copy(from: &Path, to: &Path) {
    for name in ["journal.db", "journal.db-wal"] {
        let _ = fs::remove_file(to.join(name));
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
    let _ = fs::remove_file(to.join("journal.db-shm"));
}

/// Numbers that look random and are the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
