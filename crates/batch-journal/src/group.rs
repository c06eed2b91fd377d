//! Group commit: whoever calls while a transaction runs shares the next one.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::Failure;
use crate::store::{Request, Store, WriteStats};

/// One thread at a time leads: it takes all that wait, writes it, and tells them. No thread is ours.
#[derive(Debug)]
pub(crate) struct Group {
    state: Mutex<State>,
    /// Taken by the leader, and by readers.
    store: Mutex<Store>,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    /// The requests of the next transaction, and where their outcomes will be.
    requests: Vec<Request>,
    round: Arc<Round>,
}

/// Those who share a transaction wait here.
#[derive(Debug, Default)]
struct Round {
    outcomes: OnceLock<Vec<Result<(), Failure>>>,
    changed: Condvar,
}

impl Group {
    pub(crate) fn new(store: Store) -> Self {
        Self { state: Mutex::default(), store: Mutex::new(store) }
    }

    /// Returns when the request is written, or refused.
    pub(crate) fn submit(&self, request: Request) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let round = Arc::clone(&state.round);
        let seat = state.requests.len();
        state.requests.push(request);
        loop {
            if let Some(outcomes) = round.outcomes.get() {
                return outcomes[seat].clone();
            }
            state = if state.leading {
                round.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                // The round is the open one: a leader has its outcomes before it ends.
                self.lead(state)
            };
        }
    }

    /// Gives the store to `run` between two transactions.
    pub(crate) fn with_store<T>(&self, run: impl FnOnce(&Store) -> T) -> T {
        run(&lock(&self.store))
    }

    pub(crate) fn stats(&self) -> WriteStats {
        self.with_store(Store::stats)
    }

    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.leading = true;
        let requests = mem::take(&mut state.requests);
        let round = mem::take(&mut state.round);
        drop(state);

        let mut lead = Lead { group: self, round, outcomes: Vec::new(), seats: requests.len() };
        lead.outcomes = lock(&self.store).write(&requests);
        drop(lead);
        drop(requests);
        lock(&self.state)
    }
}

/// Ends a round however its leader ends.
struct Lead<'a> {
    group: &'a Group,
    round: Arc<Round>,
    outcomes: Vec<Result<(), Failure>>,
    seats: usize,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.outcomes.resize_with(self.seats, || Err(Failure::panicked()));
        let mut state = lock(&self.group.state);
        state.leading = false;
        // Set once: the round was taken out of the state by this leader.
        let _ = self.round.outcomes.set(mem::take(&mut self.outcomes));
        self.round.changed.notify_all();
        // One of those who wait for the next round leads it, or finds that a newcomer does.
        state.round.changed.notify_one();
    }
}

/// A panic leaves the state whole: it is changed by single assignments. The store minds itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use batch_core::ItemId;

    use super::*;
    use crate::store::Row;
    use crate::{Durability, file, seal};

    #[test]
    fn those_who_come_while_one_writes_share_one_transaction() {
        const THREADS: u64 = 8;
        let dir = tempfile::tempdir().expect("a folder");
        let connection = file::open(dir.path()).expect("a file");
        let path = file::path(dir.path());
        let ledger = file::check(&connection, &path).expect("it is new");
        let store = Store::begin(connection, path, Durability::PowerLoss, ledger);
        let group = Group::new(store.expect("a run"));
        let before = group.stats();
        let append = |seq| {
            let id = ItemId { epoch: 1, seq };
            let row = Row { id, sum: seal::of_item(id, &[]), payload: 0..0 };
            group.submit(Request { rows: vec![row], ..Request::default() })
        };
        thread::scope(|scope| {
            let store = lock(&group.store);
            let threads: Vec<_> =
                (0..THREADS).map(|seq| scope.spawn(move || append(seq))).collect();
            // One leads and waits for the store, with what was there when it began to lead.
            let waiting = || {
                let state = lock(&group.state);
                state.leading && state.requests.len() as u64 == THREADS - 1
            };
            while !waiting() {
                thread::yield_now();
            }
            drop(store);
            for thread in threads {
                thread.join().expect("no panic").expect("it is stored");
            }
        });
        let after = group.stats();
        assert_eq!(after.requests - before.requests, THREADS);
        assert_eq!(after.transactions - before.transactions, 2);
    }
}
