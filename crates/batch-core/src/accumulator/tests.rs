use super::*;

mod ends;
mod laws;
mod model;
mod pair;
mod pass;
mod rules;

const MS: u64 = 1_000_000;

/// An accumulator with a clock in milliseconds; the items are their own weights.
struct Bench {
    queue: Accumulator<u8, u64, ()>,
    now: u64,
    seq: u64,
    /// Items in flight, by batch.
    flying: Vec<(BatchId, Parted<u64, ()>)>,
}

/// Three at most, so that batches consist of several.
#[derive(Debug)]
pub(crate) struct Units(usize);

impl Slot for () {
    type Row = Units;
}

impl Row for Units {
    type Slot = ();

    fn of((): ()) -> Self {
        Self(1)
    }

    fn push(&mut self, (): ()) -> Result<(), ()> {
        if self.0 == 3 {
            return Err(());
        }
        self.0 += 1;
        Ok(())
    }

    fn append(&mut self, next: Self) -> Result<(), Self> {
        if self.0 + next.0 > 5 {
            return Err(next);
        }
        self.0 += next.0;
        Ok(())
    }

    fn len(&self) -> usize {
        self.0
    }
}

impl Iterator for Units {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// A policy without limits that a test would meet by chance.
fn policy() -> Policy {
    Policy {
        dispatch: Dispatch::Natural,
        max_items: 100,
        max_weight: u64::MAX,
        order: Order::Fifo,
        capacity_items: 10_000,
        capacity_weight: u64::MAX,
        max_in_flight: 10,
        delivery_timeout: None,
        retry: RetryPolicy { base: 10 * MS, cap: 1_000 * MS, max_attempts: 4, budget: 100 },
        history: 4,
        seed: 1,
    }
}

impl Bench {
    fn new(policy: Policy) -> Self {
        Self { queue: Accumulator::new(policy), now: 0, seq: 0, flying: Vec::new() }
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = ms * MS;
        self
    }

    /// Pushes an item, and returns its number.
    fn push(&mut self, key: u8, weight: u64) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        self.queue.push(&self.now, key, id(seq), weight, weight, ());
        seq
    }

    /// Lets the time pass; returns the numbers of the expired items and the overdue batches.
    fn tick(&mut self) -> (Vec<u64>, Vec<BatchId>) {
        let (mut expired, mut overdue) = (Vec::new(), Vec::new());
        while let Some(due) = self.queue.tick(self.now) {
            match due {
                Due::Expired(items) => expired.extend(items.iter().map(|(_, entry)| entry.id.seq)),
                Due::Overdue(batch) => overdue.push(batch),
            }
        }
        (expired, overdue)
    }

    /// Sends the next batch; returns it with the numbers of its items.
    fn send(&mut self) -> Option<(BatchId, Vec<u64>, DispatchReason)> {
        assert_eq!(self.tick(), (Vec::new(), Vec::new()));
        let ready = self.queue.next_ready()?;
        let mut known = ready.known;
        let seqs = known.ids().map(|id| id.seq).collect();
        let parts = ready.items.into_iter().zip(known.spread().drain(..));
        self.flying.push((ready.batch, parts.collect()));
        Some((ready.batch, seqs, ready.reason))
    }

    /// Sends the next batch; returns the numbers of its items.
    fn sent(&mut self) -> Option<Vec<u64>> {
        self.send().map(|(_, seqs, _)| seqs)
    }

    /// Ends every batch in flight, each item as `end` says; returns those denied another call.
    fn end(&mut self, mut end: impl FnMut(u64) -> Result<End, Again>) -> Vec<u64> {
        let mut all = Vec::new();
        for (batch, items) in std::mem::take(&mut self.flying) {
            let mut again = Vec::new();
            for (item, entry) in items {
                match end(entry.id.seq) {
                    Ok(end) => self.queue.settle(self.now, batch, [(entry.mark, end)]),
                    Err(wish) => again.push((item, entry, wish)),
                }
            }
            if let Finished::Denied(denied) = self.queue.finish(self.now, batch, again) {
                all.extend(denied.iter().map(|(_, entry)| entry.id.seq));
                self.queue.finish(self.now, batch, Vec::new());
            }
        }
        self.check();
        all
    }

    fn complete(&mut self) {
        self.end(|_| Ok(End::Completed));
    }

    fn check(&self) {
        let s = self.queue.stats();
        let ended = s.completed + s.failed + s.cancelled + s.expired + s.handed_back;
        assert_eq!(s.accepted, ended + s.queued + s.in_flight, "{s:?}");
    }
}

fn id(seq: u64) -> ItemId {
    ItemId { epoch: 0, seq }
}
