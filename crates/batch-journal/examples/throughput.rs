//! Measures the journal against a bare file that is appended to and synced, on the disk of the
//! current folder: `cargo run --release -p batch-journal --example throughput`.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use batch_core::{ItemId, Journal, JournalError};
use batch_journal::{Bytes, Durability, Options, SqliteJournal};

const ITEM_BYTES: usize = 256;
const CALLS: usize = 200;
const THREADS: usize = 8;

type Items = Vec<Vec<u8>>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{ITEM_BYTES} bytes an item; median microseconds of {CALLS} calls, in turns\n");
    println!("items a call  file+sync  journal  file/journal  process crash only  acknowledge");
    for group in [1, 10, 100, 1000] {
        let items: Items = vec![vec![7; ITEM_BYTES]; group];
        let bytes = items.concat();
        let dir = tempfile::tempdir_in(".")?;
        let mut file = File::options().append(true).create_new(true).open(dir.path().join("f"))?;
        let open = |name, durability| {
            let options = Options::default().durability(durability);
            SqliteJournal::open(dir.path().join(name), Bytes, options)
        };
        let power = open("p", Durability::PowerLoss)?;
        let crash = open("c", Durability::ProcessCrash)?;
        let mut took = [const { Vec::new() }; 4];
        for _ in 0..CALLS {
            let start = Instant::now();
            file.write_all(&bytes)?;
            file.sync_data()?;
            took[0].push(start.elapsed());
            let start = Instant::now();
            let ids = append(&power, &items)?;
            took[1].push(start.elapsed());
            let start = Instant::now();
            append(&crash, &items)?;
            took[2].push(start.elapsed());
            let start = Instant::now();
            power.ack(&ids)?;
            took[3].push(start.elapsed());
        }
        let [bare, power, crash, ack] = took.map(median);
        let ratio = bare / power;
        println!("{group:12} {bare:10.0} {power:8.0} {ratio:13.2} {crash:19.1} {ack:12.1}");
    }
    let dir = tempfile::tempdir_in(".")?;
    let items = vec![vec![7; ITEM_BYTES]];
    let journal = SqliteJournal::open(dir.path(), Bytes, Options::default())?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || (0..CALLS).try_for_each(|_| append(&journal, &items).map(drop));
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let stats = journal.write_stats();
    let each = start.elapsed() / u32::try_from(THREADS * CALLS)?;
    println!("\n{THREADS} threads, one item a call: {each:?} an item, {stats:?}");
    Ok(())
}

fn append(journal: &SqliteJournal<Bytes>, items: &Items) -> Result<Vec<ItemId>, JournalError> {
    let first = journal.reserve(items.len() as u64);
    let ids: Vec<ItemId> =
        (first.seq..).map(|seq| ItemId { seq, ..first }).take(items.len()).collect();
    let items: Vec<(ItemId, &Vec<u8>)> = ids.iter().copied().zip(items).collect();
    journal.append(&items)?;
    Ok(ids)
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}
