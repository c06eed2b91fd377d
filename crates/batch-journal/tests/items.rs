//! Items come back as they were stored, in order, until they are acknowledged.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Barrier;

use batch_core::{ItemId, Journal, JournalErrorKind};
use batch_journal::{Bytes, Codec, Durability, Options, SqliteJournal};
use common::{append, folder, open, unacked};

#[test]
fn what_is_not_acknowledged_comes_back_in_order_under_its_ids() {
    let dir = folder();
    let journal = open(dir.path());
    let payloads: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; usize::from(n)]).collect();
    let ids = append(&journal, &payloads).unwrap();
    assert_eq!(ids[0], ItemId { epoch: 1, seq: 0 });
    let done: Vec<ItemId> = ids.iter().copied().filter(|id| id.seq % 3 == 0).collect();
    journal.ack(&done).unwrap();
    let left: Vec<(ItemId, Vec<u8>)> =
        ids.into_iter().zip(payloads).filter(|(id, _)| id.seq % 3 != 0).collect();
    assert_eq!(unacked(&journal), left);
    drop(journal);

    let journal = open(dir.path());
    assert_eq!(unacked(&journal), left);
    let more = append(&journal, &[b"later".to_vec()]).unwrap();
    assert_eq!(more, [ItemId { epoch: 2, seq: 0 }]);
    assert_eq!(journal.unacked(more[0]).unwrap(), left, "only what is older");
    assert_eq!(unacked(&journal).len(), left.len() + 1);
    assert_eq!(unacked(&journal).last().unwrap().0, more[0]);
    let all = ItemId { epoch: u64::MAX, seq: u64::MAX };
    assert_eq!(Journal::<Vec<u8>>::unacked(&journal, all).unwrap().len(), left.len() + 1);
}

#[test]
fn ids_never_repeat_even_if_nothing_was_stored() {
    let dir = folder();
    let mut last = None;
    for _ in 0..5 {
        let journal = open(dir.path());
        let id = journal.reserve(3);
        assert!(Some(id) > last);
        last = Some(journal.reserve(1));
        assert_eq!(last, Some(ItemId { seq: 3, ..id }));
    }
}

/// Ids were counted round to zero, and given out twice.
#[test]
fn when_all_ids_are_used_up_no_item_is_taken_until_the_journal_is_opened_anew() {
    let dir = folder();
    let journal = open(dir.path());
    let first = append(&journal, &[b"first".to_vec()]).unwrap();
    let end = u64::try_from(i64::MAX).unwrap();
    journal.reserve(end - 2);
    let last = append(&journal, &[b"last".to_vec()]).unwrap();
    assert_eq!(last, [ItemId { seq: end - 1, ..first[0] }]);
    for count in [1, u64::MAX, 2, 2] {
        let id = journal.reserve(count);
        let refused = journal.append(&[(id, &b"more".to_vec())]).unwrap_err();
        assert_eq!(refused.kind(), JournalErrorKind::Stopped);
        let what = format!("no id as large as that of item {id} is stored; open it anew");
        assert_eq!(refused.to_string(), what);
    }
    let left: Vec<_> = unacked(&journal).into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, [first[0], last[0]]);
    journal.ack(&last).unwrap();
    drop(journal);
    assert!(append(&open(dir.path()), &[b"more".to_vec()]).is_ok());
}

#[test]
fn empty_and_large_payloads_are_payloads() {
    let dir = folder();
    let payloads = [Vec::new(), vec![7; 1 << 20], Vec::new(), vec![0; 3 << 20]];
    append(&open(dir.path()), &payloads).unwrap();
    let journal = open(dir.path());
    let (ids, left): (Vec<ItemId>, Vec<Vec<u8>>) = unacked(&journal).into_iter().unzip();
    assert_eq!(left, payloads);
    journal.ack(&ids).unwrap();
    assert_eq!(unacked(&journal), []);
}

#[test]
fn nothing_is_written_for_nothing() {
    let dir = folder();
    let journal = open(dir.path());
    let before = journal.write_stats();
    append(&journal, &[]).unwrap();
    journal.ack(&[]).unwrap();
    assert_eq!(journal.write_stats(), before);
}

#[test]
fn ids_that_are_unknown_or_acknowledged_twice_are_passed_over() {
    let dir = folder();
    let journal = open(dir.path());
    let ids = append(&journal, &[vec![1], vec![2]]).unwrap();
    let stranger = ItemId { epoch: 99, seq: u64::MAX };
    journal.ack(&[ids[0], ids[0], stranger]).unwrap();
    journal.ack(&[ids[0]]).unwrap();
    assert_eq!(unacked(&journal), [(ids[1], vec![2])]);
    drop(journal);
    assert_eq!(unacked(&open(dir.path())), [(ids[1], vec![2])], "the books are right");
}

#[test]
fn a_call_is_stored_whole_or_not_at_all() {
    let dir = folder();
    let options = Options::default().max_item_bytes(10);
    let journal = SqliteJournal::open(dir.path(), Bytes, options).unwrap();
    let kind = append(&journal, &[vec![1], vec![0; 11], vec![2]]).unwrap_err();
    assert_eq!(kind.kind(), JournalErrorKind::TooLarge);
    assert_eq!(kind.to_string(), "item 1.1 has 11 bytes, and at most 10 are taken");

    let ids = append(&journal, &[vec![3], vec![0; 10]]).unwrap();
    let new = journal.reserve(1);
    let again = journal.append(&[(new, &vec![4]), (ids[0], &vec![5])]).unwrap_err();
    assert_eq!(again.kind(), JournalErrorKind::Duplicate);
    assert!(again.to_string().starts_with("item 1.3 is stored already"), "{again}");
    assert_eq!(unacked(&journal), [(ids[0], vec![3]), (ids[1], vec![0; 10])]);
}

/// A codec that refuses some items and some bytes.
struct Picky;

#[derive(Debug, thiserror::Error)]
#[error("odd")]
struct Odd;

impl Codec<u8> for Picky {
    type Error = Odd;

    fn encode(&self, item: &u8, bytes: &mut Vec<u8>) -> Result<(), Odd> {
        bytes.push(*item);
        if item.is_multiple_of(2) { Ok(()) } else { Err(Odd) }
    }

    fn decode(&self, bytes: &[u8]) -> Result<u8, Odd> {
        if bytes == [8] { Err(Odd) } else { Ok(bytes[0]) }
    }
}

#[test]
fn an_error_of_the_codec_names_the_item_and_stores_nothing() {
    let dir = folder();
    let journal = SqliteJournal::open(dir.path(), Picky, Options::default()).unwrap();
    let id = |seq| ItemId { epoch: 1, seq };
    let error = journal.append(&[(id(0), &2), (id(1), &3)]).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Codec);
    assert_eq!(error.to_string(), "cannot turn item 1.1 into bytes");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "odd");
    journal.append(&[(id(2), &6), (id(3), &8)]).unwrap();
    let error = Journal::<u8>::unacked(&journal, id(9)).unwrap_err();
    assert_eq!(error.to_string(), "cannot make item 1.3 of its bytes");
    assert_eq!(Journal::<u8>::unacked(&journal, id(3)).unwrap(), [(id(2), 6)]);
}

#[test]
fn a_bad_call_fails_alone_whomever_it_shares_a_transaction_with() {
    const THREADS: u64 = 8;
    let dir = folder();
    let journal = open(dir.path());
    let taken = append(&journal, &[b"taken".to_vec()]).unwrap()[0];
    let barrier = Barrier::new(usize::try_from(THREADS).unwrap());
    let failed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (journal, barrier) = (&journal, &barrier);
                scope.spawn(move || {
                    let mut failed = 0;
                    for n in 0..50_u64 {
                        barrier.wait();
                        let bad = n % THREADS == thread;
                        let id = if bad { taken } else { journal.reserve(1) };
                        let outcome = journal.append(&[(id, &n.to_le_bytes().to_vec())]);
                        assert_eq!(outcome.is_err(), bad);
                        failed += u64::from(bad);
                    }
                    failed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(failed, 50);
    assert_eq!(unacked(&journal).len(), 50 * 7 + 1);
    assert_eq!(unacked(&journal)[0], (taken, b"taken".to_vec()));
}

#[test]
fn acknowledging_waits_for_no_storage() {
    let dir = folder();
    let journal = open(dir.path());
    let ids = append(&journal, &[vec![1], vec![2]]).unwrap();
    let before = journal.write_stats();
    journal.ack(&ids[..1]).unwrap();
    journal.ack(&ids[1..]).unwrap();
    let after = journal.write_stats();
    assert_eq!((after.transactions - before.transactions, after.synced), (2, before.synced));
    append(&journal, &[vec![3]]).unwrap();
    assert_eq!(journal.write_stats().synced, before.synced + 1);

    let cheap = Options::default().durability(Durability::ProcessCrash);
    let dir = folder();
    let journal = SqliteJournal::open(dir.path(), Bytes, cheap).unwrap();
    append(&journal, &[vec![3]]).unwrap();
    assert_eq!(journal.write_stats().synced, 1, "the run is durable in any case");
}

#[test]
fn room_of_what_is_done_is_used_again() {
    let dir = folder();
    let cheap = Options::default().durability(Durability::ProcessCrash);
    let journal = SqliteJournal::open(dir.path(), Bytes, cheap).unwrap();
    let mut waiting = std::collections::VecDeque::new();
    let mut largest = 0;
    for n in 0..10_000_usize {
        waiting.extend(append(&journal, &vec![vec![1; n % 1000]; 10]).unwrap());
        if waiting.len() > 100 {
            journal.ack(&waiting.drain(..10).collect::<Vec<_>>()).unwrap();
        }
        if n % 1000 == 0 {
            largest = largest.max(size(dir.path()));
        }
    }
    assert!(largest < 8 << 20, "{largest} bytes for 50 kB of items");
    assert_eq!(unacked(&journal).len(), 100);
}

#[test]
fn a_file_that_grew_is_shrunk_when_it_is_opened_empty() {
    let dir = folder();
    let journal = open(dir.path());
    let ids = append(&journal, &vec![vec![1; 1 << 20]; 10]).unwrap();
    journal.ack(&ids).unwrap();
    drop(journal);
    assert!(size(dir.path()) > 10 << 20);
    drop(open(dir.path()));
    assert!(size(dir.path()) < 1 << 20);
    assert_eq!(unacked(&open(dir.path())), []);
}

fn size(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}
