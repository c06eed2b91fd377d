//! A loss of power at any moment, as the storage would show it: of what was written since the last
//! sync each sector is there or not, in any order.
//!
//! What is synced when is what [`WriteStats`](batch_journal::WriteStats) says, and what SQLite
//! promises of its log: it is synced before a page of it moves to the file, the file before the log
//! begins anew, and the new head of the log before anything behind it.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use batch_core::{ItemId, Journal};
use batch_journal::{Bytes, Durability, Options, SqliteJournal};
use common::{Bin, Random, folder, try_open, unacked};

/// What a storage writes whole or not at all.
const SECTOR: usize = 512;
/// The head of SQLite's log.
const HEAD: usize = 32;
/// Calls of one run; together they write more than fits into the log.
const CALLS: usize = 100;

/// The bytes of the two files.
#[derive(Clone, PartialEq)]
struct Disk {
    file: Vec<u8>,
    log: Vec<u8>,
}

impl Disk {
    fn read(dir: &Path) -> Self {
        let read = |name| fs::read(dir.join(name)).unwrap_or_default();
        Self { file: read("journal.db"), log: read("journal.db-wal") }
    }

    fn write(&self, dir: &Path) {
        fs::write(dir.join("journal.db"), &self.file).unwrap();
        fs::write(dir.join("journal.db-wal"), &self.log).unwrap();
        let _ = fs::remove_file(dir.join("journal.db-shm"));
    }
}

/// Returns the old bytes with some of the sectors that the new ones changed.
fn partly(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = old.to_vec();
    bytes.resize(old.len().max(new.len()), 0);
    // Few, about half, most or all are there.
    let share = [1, 5, 9, 10][usize::try_from(random.below(4)).unwrap()];
    let mut end = old.len().min(new.len());
    for (number, sector) in new.chunks(SECTOR).enumerate() {
        let place = number * SECTOR..number * SECTOR + sector.len();
        if random.below(10) < share {
            end = end.max(place.end);
            bytes[place].copy_from_slice(sector);
        }
    }
    // The new length may be there before what is to fill it, or not.
    if random.below(2) == 0 {
        bytes.truncate(end);
    }
    bytes
}

/// As [`partly`], for the log: its new head is there before anything else.
fn log_partly(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    if old.len() < HEAD || old[..HEAD] == new[..HEAD] {
        return partly(old, new, random);
    }
    if random.below(4) == 0 {
        return old.to_vec();
    }
    let begun = [&new[..HEAD], &old[HEAD..]].concat();
    let mut bytes = partly(&begun, new, random);
    bytes[..HEAD].copy_from_slice(&new[..HEAD]);
    bytes
}

fn payload(id: ItemId) -> Vec<u8> {
    let mut random = Random(id.seq);
    let size = if random.below(4) == 0 { random.below(60_000) } else { random.below(2_000) };
    (0..size / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

#[derive(Default)]
struct Known {
    /// Accepted, and nobody wanted them forgotten.
    must: BTreeSet<ItemId>,
    /// Acknowledged, or on their way in.
    may: BTreeSet<ItemId>,
    /// Losses of power, and items that were lost in them.
    losses: usize,
    lost: usize,
    /// Losses while pages moved from the log to the file.
    moving: usize,
}

impl Known {
    fn check(&mut self, disk: &Disk) {
        let dir = folder();
        disk.write(dir.path());
        self.losses += 1;
        let journal =
            try_open(dir.path()).unwrap_or_else(|error| panic!("{}: {error}", self.losses));
        let came: BTreeMap<ItemId, Vec<u8>> = unacked(&journal).into_iter().collect();
        for (id, item) in &came {
            assert!(self.must.contains(id) || self.may.contains(id), "invented {id}");
            assert!(*item == payload(*id), "altered {id}");
        }
        self.lost += self.must.iter().filter(|id| !came.contains_key(id)).count();
    }
}

/// Makes calls, and takes the power away during and after each.
fn run(durability: Durability, seed: u64) -> Known {
    let dir = folder();
    let options = Options::default().durability(durability);
    let journal: Bin = SqliteJournal::open(dir.path(), Bytes, options).unwrap();
    let (mut random, mut known) = (Random(seed), Known::default());
    let mut safe = Disk::read(dir.path());
    for _ in 0..CALLS {
        let synced = journal.write_stats().synced;
        let appended = if random.below(3) > 0 {
            let first = journal.reserve(1 + random.below(6));
            let ids: Vec<_> =
                (first.seq..journal.reserve(0).seq).map(|seq| ItemId { seq, ..first }).collect();
            let payloads: Vec<_> = ids.iter().map(|id| payload(*id)).collect();
            let items: Vec<_> = ids.iter().copied().zip(&payloads).collect();
            journal.append(&items).unwrap();
            ids
        } else {
            let done: Vec<_> = known.must.iter().copied().filter(|_| random.below(4) > 0).collect();
            known.must.retain(|id| !done.contains(id));
            known.may.extend(&done);
            journal.ack(&done).unwrap();
            Vec::new()
        };
        let after = Disk::read(dir.path());
        known.may.extend(&appended);

        // While the call writes to the log.
        let log = log_partly(&safe.log, &after.log, &mut random);
        known.check(&Disk { file: safe.file.clone(), log });
        let is_moved = after.file != safe.file;
        known.may.retain(|id| !appended.contains(id));
        known.must.extend(&appended);
        if is_moved {
            // While pages move to the file.
            for _ in 0..5 {
                let file = partly(&safe.file, &after.file, &mut random);
                known.check(&Disk { file, log: after.log.clone() });
                known.moving += 1;
            }
        }
        // Once it has returned.
        if is_moved || journal.write_stats().synced > synced {
            safe = after;
            known.check(&safe);
        } else {
            let log = log_partly(&safe.log, &after.log, &mut random);
            known.check(&Disk { file: safe.file.clone(), log });
        }
    }
    assert!(known.moving > 0, "the log never moved to the file");
    known
}

#[test]
fn a_loss_of_power_loses_and_invents_nothing() {
    let known = run(Durability::PowerLoss, 1);
    assert_eq!(known.lost, 0, "in {} losses of power", known.losses);
    assert!(known.losses >= 2 * CALLS);
}

/// What is not promised to survive it does not: so the losses above are losses.
#[test]
fn what_is_to_survive_the_process_alone_may_go_with_the_power() {
    let known = run(Durability::ProcessCrash, 2);
    assert!(known.lost > 0, "in {} losses of power", known.losses);
}
