//! The transactions of the owner.

use std::ops::Range;
use std::path::PathBuf;

use batch_core::{ItemId, JournalErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::error::Failure;
use crate::options::Durability;
use crate::seal::{self, Ledger};

/// What one call wants written: all of it or nothing.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) rows: Vec<Row>,
    /// The payloads of all rows.
    pub(crate) bytes: Vec<u8>,
    pub(crate) acks: Vec<ItemId>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: ItemId,
    pub(crate) sum: i64,
    pub(crate) payload: Range<usize>,
}

/// Counts what a journal has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStats {
    /// The calls of `append` and `ack` that succeeded.
    pub requests: u64,
    /// The transactions that these shared.
    pub transactions: u64,
    /// The transactions that waited for the storage.
    pub synced: u64,
}

/// The connection of the owner, and what it last committed.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
    durability: Durability,
    ledger: Ledger,
    level: Level,
    stats: WriteStats,
    /// Why nothing more is written.
    stopped: Option<Failure>,
}

/// What a commit waits for; the values of SQLite's `synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Nothing = 0,
    /// The operating system has it, so that the death of the process is nothing to it.
    System = 1,
    /// The storage has it.
    Storage = 2,
}

impl Store {
    /// Takes over a file that was checked, and begins a new run in it, durably.
    pub(crate) fn begin(
        connection: Connection,
        path: PathBuf,
        durability: Durability,
        ledger: Ledger,
    ) -> rusqlite::Result<Self> {
        connection.set_prepared_statement_cache_capacity(16);
        let level = Level::Storage;
        connection.pragma_update(None, "synchronous", level as i64)?;
        let stats = WriteStats::default();
        let mut store = Self { connection, path, durability, ledger, level, stats, stopped: None };
        let mut ledger = ledger;
        ledger.run += 1;
        store.transact(&[], ledger).map_err(|(_, error)| error)?;
        Ok(store)
    }

    pub(crate) fn run(&self) -> u64 {
        self.ledger.run
    }

    pub(crate) fn stats(&self) -> WriteStats {
        self.stats
    }

    /// Writes the requests in one transaction. If one of them is the reason why that is refused,
    /// each is tried on its own, so that a bad one harms nobody else. There is one outcome for each
    /// request.
    pub(crate) fn write(&mut self, requests: &[Request]) -> Vec<Result<(), Failure>> {
        if let Some(stopped) = &self.stopped {
            return vec![Err(stopped.clone()); requests.len()];
        }
        // Stands if a panic ends what follows.
        self.stopped = Some(self.stop("a panic"));
        let outcome = self.write_group(requests);
        match outcome {
            Ok(()) => {
                self.stopped = None;
                self.stats.requests += requests.len() as u64;
                vec![Ok(()); requests.len()]
            }
            Err(failure) if failure.stops => {
                self.stopped = Some(self.stop("a failed write"));
                self.void();
                vec![Err(failure); requests.len()]
            }
            Err(failure) => {
                self.stopped = None;
                if requests.len() == 1 || !failure.is_of_a_request() {
                    return vec![Err(failure); requests.len()];
                }
                requests.chunks(1).flat_map(|request| self.write(request)).collect()
            }
        }
    }

    /// Returns what is stored below `before`, ordered by id, as far as `take` accepts it.
    pub(crate) fn read<E: From<Failure>>(
        &self,
        before: ItemId,
        mut take: impl FnMut(ItemId, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let fault = |error| Failure::sqlite("read", &self.path, error);
        let sql = "SELECT epoch, seq, sum, payload FROM item \
                   WHERE (epoch, seq) < (?1, ?2) ORDER BY epoch, seq";
        let mut statement = self.connection.prepare(sql).map_err(fault)?;
        let bound = (clamp(before.epoch), clamp(before.seq));
        let mut rows = statement.query(bound).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let number = |index| row.get::<_, i64>(index).map_err(fault);
            let id = ItemId { epoch: number(0)?.cast_unsigned(), seq: number(1)?.cast_unsigned() };
            let payload = row.get_ref(3).map_err(fault)?;
            let payload = payload.as_blob().unwrap_or_default();
            if seal::of_item(id, payload) != number(2)? {
                let what = format!(
                    "\"{}\" is damaged: item {id} is not as it was stored",
                    self.path.display()
                );
                return Err(Failure::new(JournalErrorKind::Corrupt, what).into());
            }
            take(id, payload)?;
        }
        Ok(())
    }

    fn write_group(&mut self, requests: &[Request]) -> Result<(), Failure> {
        let outcome = self.transact(requests, self.ledger);
        outcome.map_err(|(id, error)| match (id, error.sqlite_error_code()) {
            (Some(id), Some(rusqlite::ErrorCode::ConstraintViolation)) => {
                let what = format!("item {id} is stored already; take each id from `reserve` once");
                Failure::new(JournalErrorKind::Duplicate, what)
            }
            (None, None) if error == rusqlite::Error::QueryReturnedNoRows => {
                let path = self.path.display();
                let what = format!("\"{path}\" was written to by somebody who is not its owner");
                Failure::new(JournalErrorKind::Corrupt, what).stopping()
            }
            _ => Failure::sqlite("write to", &self.path, error),
        })
    }

    /// One transaction; `ledger` is what the file says before the requests. An error that is about
    /// one item names it.
    fn transact(
        &mut self,
        requests: &[Request],
        mut ledger: Ledger,
    ) -> Result<(), (Option<ItemId>, rusqlite::Error)> {
        let all = |error| (None, error);
        let appends =
            requests.is_empty() || requests.iter().any(|request| !request.rows.is_empty());
        let begins = requests.is_empty();
        let level = if begins || (appends && self.durability == Durability::PowerLoss) {
            Level::Storage
        } else {
            Level::System
        };
        self.set_level(level).map_err(all)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(all)?;
        {
            let sql = "INSERT INTO item (epoch, seq, sum, payload) VALUES (?1, ?2, ?3, ?4)";
            let mut insert = transaction.prepare_cached(sql).map_err(all)?;
            // Faster than one statement that returns what it deletes.
            let sql = "SELECT sum FROM item WHERE epoch = ?1 AND seq = ?2";
            let mut find = transaction.prepare_cached(sql).map_err(all)?;
            let sql = "DELETE FROM item WHERE epoch = ?1 AND seq = ?2";
            let mut delete = transaction.prepare_cached(sql).map_err(all)?;
            for request in requests {
                for row in &request.rows {
                    let payload = &request.bytes[row.payload.clone()];
                    let values = (clamp(row.id.epoch), clamp(row.id.seq), row.sum, payload);
                    insert.execute(values).map_err(|error| (Some(row.id), error))?;
                    ledger.add(row.sum);
                }
                for id in &request.acks {
                    let key = (clamp(id.epoch), clamp(id.seq));
                    let sum = find.query_row(key, |row| row.get(0)).optional().map_err(all)?;
                    if let Some(sum) = sum {
                        delete.execute(key).map_err(all)?;
                        ledger.remove(sum);
                    }
                }
            }
            // The file has to be as we left it, or our books are not its books.
            let sql = "UPDATE ledger SET run = ?1, items = ?2, seal = ?3 WHERE seal = ?4";
            let mut update = transaction.prepare_cached(sql).map_err(all)?;
            let left = self.ledger.seal();
            let values = (clamp(ledger.run), clamp(ledger.items), ledger.seal(), left);
            if update.execute(values).map_err(all)? != 1 {
                return Err((None, rusqlite::Error::QueryReturnedNoRows));
            }
        }
        transaction.commit().map_err(all)?;
        self.ledger = ledger;
        self.stats.transactions += 1;
        self.stats.synced += u64::from(level == Level::Storage);
        Ok(())
    }

    fn set_level(&mut self, level: Level) -> rusqlite::Result<()> {
        if self.level != level {
            self.connection.pragma_update(None, "synchronous", level as i64)?;
            self.level = level;
        }
        Ok(())
    }

    /// Overwrites in the log what a failed commit may have left there. The frames could be whole,
    /// and after a restart they would count, although their items were refused.
    ///
    /// The log is not moved to the file any more: only reading it anew, at the next start, tells
    /// how much of it the storage really has.
    fn void(&mut self) {
        let transact = |store: &mut Self| {
            store.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            store.connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            store.set_level(Level::Nothing)?;
            // A value that changes: SQLite writes no page that stays the same.
            let ledger = Ledger { run: store.ledger.run + 1, ..store.ledger };
            let sql = "UPDATE ledger SET run = ?1, seal = ?2 WHERE seal = ?3";
            let values = (clamp(ledger.run), ledger.seal(), store.ledger.seal());
            store.connection.execute(sql, values)
        };
        // With a dead storage there is nothing that could be done instead.
        let _ = transact(self);
    }

    fn stop(&self, reason: &str) -> Failure {
        let path = self.path.display();
        let what = format!("\"{path}\" takes nothing more since {reason}; open it anew");
        Failure::new(JournalErrorKind::Stopped, what)
    }
}

/// Says whether an id is one of those that are told apart. SQLite's integers are signed.
pub(crate) fn has_place(id: ItemId) -> bool {
    const END: u64 = i64::MAX.cast_unsigned();
    id.epoch < END && id.seq < END
}

/// No count comes that far, and no id that is stored.
fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::file;

    fn append(store: &mut Store, seqs: Range<u64>, bytes: usize) -> Result<(), Failure> {
        let payload = vec![1; bytes];
        let mut request = Request::default();
        for seq in seqs {
            let id = ItemId { epoch: 1, seq };
            let start = request.bytes.len();
            request.bytes.extend_from_slice(&payload);
            let payload = start..request.bytes.len();
            request.rows.push(Row { id, sum: seal::of_item(id, &request.bytes[start..]), payload });
        }
        store.write(&[request]).remove(0)
    }

    fn count(store: &Store) -> usize {
        let mut items = 0;
        let all = ItemId { epoch: u64::MAX, seq: 0 };
        let read = store.read(all, |_, _| {
            items += 1;
            Ok::<(), Failure>(())
        });
        read.expect("it can be read");
        items
    }

    fn new(dir: &std::path::Path, durability: Durability, pages: i64) -> Store {
        let connection = file::open(dir).expect("a file");
        connection.pragma_update(None, "max_page_count", pages).expect("a limit");
        let path = file::path(dir);
        let ledger = file::check(&connection, &path).expect("it is new");
        Store::begin(connection, path, durability, ledger).expect("a run")
    }

    /// What SQLite itself says it waits for.
    fn level(store: &Store) -> i64 {
        let level = store.connection.query_row("PRAGMA synchronous", [], |row| row.get(0));
        level.expect("a number")
    }

    #[test]
    fn appends_wait_for_the_storage_and_acks_do_not() {
        for (durability, expected) in [(Durability::PowerLoss, 2), (Durability::ProcessCrash, 1)] {
            let dir = tempfile::tempdir().expect("a folder");
            let mut store = new(dir.path(), durability, 1000);
            assert_eq!(level(&store), 2, "the run is durable in any case");
            let mode: String = store
                .connection
                .query_row("PRAGMA journal_mode", [], |row| row.get(0))
                .expect("a word");
            assert_eq!(mode, "wal");
            for seq in 0..3 {
                append(&mut store, seq..seq + 1, 10).expect("there is room");
                assert_eq!(level(&store), expected);
                let acks = vec![ItemId { epoch: 1, seq }];
                let outcomes = store.write(&[Request { acks, ..Request::default() }]);
                outcomes[0].as_ref().expect("it is known");
                assert_eq!(level(&store), 1);
            }
            assert_eq!(count(&store), 0);
        }
    }

    #[test]
    fn a_full_disk_refuses_what_does_not_fit_and_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = new(dir.path(), Durability::PowerLoss, 100);
        append(&mut store, 0..80, 3000).expect("there is room");
        let failure = append(&mut store, 80..160, 3000).expect_err("there is none");
        assert_eq!((failure.kind, failure.stops), (JournalErrorKind::Full, false));
        append(&mut store, 160..161, 10).expect("there is room for that");
        assert_eq!(count(&store), 81);

        // One that does not fit harms nobody who shares the transaction.
        let acks = (0..80).map(|seq| ItemId { epoch: 1, seq }).collect();
        let acks = Request { acks, ..Request::default() };
        let large = ItemId { epoch: 1, seq: 200 };
        let bytes = vec![1; 1 << 20];
        let rows = vec![Row { id: large, sum: seal::of_item(large, &bytes), payload: 0..1 << 20 }];
        let outcomes = store.write(&[Request { rows, bytes, ..Request::default() }, acks]);
        assert_eq!(outcomes[0].as_ref().expect_err("no room").kind, JournalErrorKind::Full);
        outcomes[1].as_ref().expect("it needs none");
        append(&mut store, 300..380, 3000).expect("there is room again");
        assert_eq!(count(&store), 81);
        file::check(&store.connection, &store.path).expect("the books are right");
    }

    /// Each was tried on its own, and each waited for the other program once more.
    #[test]
    fn while_another_program_writes_all_who_share_a_transaction_are_refused_at_once() {
        static WAITS: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = new(dir.path(), Durability::PowerLoss, 1000);
        let other = Connection::open(file::path(dir.path())).expect("a file");
        let count_waits = |_| {
            WAITS.fetch_add(1, Ordering::SeqCst);
            false
        };
        store.connection.busy_handler(Some(count_waits)).expect("a handler");
        other.execute_batch("BEGIN IMMEDIATE").expect("nobody writes");
        let requests = || [Request::default(), Request::default(), Request::default()];
        let outcomes = store.write(&requests());
        assert_eq!(WAITS.load(Ordering::SeqCst), 1);
        for outcome in outcomes {
            let failure = outcome.expect_err("somebody else writes");
            assert_eq!((failure.kind, failure.stops), (JournalErrorKind::Io, false));
        }
        other.execute_batch("COMMIT").expect("it wrote nothing");
        assert!(store.write(&requests()).iter().all(Result::is_ok));
    }

    #[test]
    fn a_failed_commit_is_written_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = new(dir.path(), Durability::PowerLoss, 1000);
        append(&mut store, 0..1, 10).expect("there is room");
        let log = |dir: &std::path::Path| std::fs::metadata(dir.join("journal.db-wal"));
        let before = log(dir.path()).expect("a log").len();
        store.void();
        assert!(log(dir.path()).expect("a log").len() > before, "nothing was written");
        assert_eq!(count(&store), 1);
        let ledger = file::check(&store.connection, &store.path).expect("the books are right");
        assert_eq!(ledger.run, store.ledger.run + 1);
    }
}
