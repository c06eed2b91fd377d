//! Ten thousand simulated runs: a seed decides the settings, the arrivals and the faults, and every
//! law is checked along the way. A failing seed is printed; `SIM_SEED=n` runs it alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::panic;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Builder, Clock, Close, Disposition, Flush,
    ItemId, ManualClock, Outcome, Progress, Refusal, Retry, Sim, Ticket,
};

/// Random numbers from a seed (xorshift64*).
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    number: u64,
    key: u64,
    weight: u64,
    /// Never processed well.
    poison: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fail,
    Retry,
    Split,
    Fatal,
}

#[derive(Debug, Default)]
struct World {
    /// Batches that are kept, with those of their slots that are open.
    kept: Vec<Batch<Item, u64, Fault>>,
    /// Per item the keys it was sent under, and how often.
    sent: BTreeMap<u64, u32>,
    /// Per key the numbers in the order of their first dispatch.
    first: BTreeMap<u64, Vec<u64>>,
    /// Items that came back through `on_dropped`.
    dropped: BTreeSet<u64>,
    faulty: bool,
    allow_fatal: bool,
    max_items: usize,
    max_weight: u64,
    timeout: Option<Duration>,
    accepted_at: BTreeMap<u64, Duration>,
}

struct Processor {
    world: Arc<Mutex<World>>,
    dice: Mutex<Dice>,
    clock: ManualClock,
}

impl BatchProcessor for Processor {
    type Key = u64;
    type Item = Item;
    type Output = u64;
    type Error = Fault;

    fn key(&self, item: &Item) -> u64 {
        item.key
    }

    fn weight(&self, item: &Item) -> u64 {
        item.weight
    }

    fn classify(&self, error: &Fault) -> Disposition {
        match error {
            Fault::Fail => Disposition::Fail,
            Fault::Retry => Disposition::Retry { after: None },
            Fault::Split => Disposition::Split,
            Fault::Fatal => Disposition::Fatal,
        }
    }

    fn process(&self, key: &u64, batch: BatchOf<Self>) {
        let mut dice = self.dice.lock().unwrap();
        let mut world = self.world.lock().unwrap();
        assert!(batch.len() <= world.max_items, "{} items", batch.len());
        let weight: u64 = batch.items().iter().map(|item| item.weight).sum();
        assert!(weight <= world.max_weight, "weight {weight}");
        for slot in batch.slots() {
            let item = slot.item();
            assert_eq!(item.key, *key, "keys are mixed");
            let times = world.sent.entry(item.number).or_default();
            *times += 1;
            assert_eq!(slot.attempt(), *times, "item {} is sent with a wrong count", item.number);
            if *times == 1 {
                world.first.entry(*key).or_default().push(item.number);
            }
            if let Some(timeout) = world.timeout {
                let age = self.clock.now().saturating_sub(world.accepted_at[&item.number]);
                assert!(age < timeout, "item {} is sent after its time", item.number);
            }
        }
        let faulty = world.faulty;
        let fatal = world.allow_fatal && dice.one_in(40);
        drop(world);
        match dice.roll(if faulty { 10 } else { 3 }) {
            0..3 => resolve(
                &batch,
                |item| {
                    if item.poison { Err(Fault::Split) } else { Ok(item.number) }
                },
            ),
            3 => panic::resume_unwind(Box::new("faulty")),
            4 => drop(batch),
            5 => batch.fail_all(if fatal { Fault::Fatal } else { Fault::Retry }),
            6 => batch.fail_all(Fault::Split),
            7 => {
                let count = batch.len();
                batch.resolve_all(vec![Ok(0); count + 1]);
            }
            8 => {
                for slot in batch.slots().filter(|slot| slot.index() % 2 == 0) {
                    assert!(slot.resolve(Ok(slot.item().number)));
                }
                batch.publish();
                self.world.lock().unwrap().kept.push(batch);
            }
            _ => resolve(&batch, |item| match item.number % 4 {
                0 => Err(Fault::Retry),
                1 => Err(Fault::Fail),
                2 if item.poison => Err(Fault::Split),
                _ => Ok(item.number),
            }),
        }
    }
}

fn resolve(batch: &Batch<Item, u64, Fault>, result: impl Fn(&Item) -> Result<u64, Fault>) {
    batch.resolve_all(batch.items().iter().map(result).collect());
}

struct Run {
    dice: Dice,
    world: Arc<Mutex<World>>,
    batcher: Batcher<Processor>,
    sim: Sim<Processor>,
    next: u64,
    tickets: Vec<(Item, Ticket<u64, Fault>)>,
    /// How each item ended.
    ends: BTreeMap<u64, Outcome<u64, Fault>>,
    cancelled: BTreeSet<u64>,
    detached: u64,
    /// Flushes, each with the items accepted before it.
    flushes: Vec<(Flush, u64)>,
    capacity: u64,
    capacity_weight: u64,
    fifo: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let max_items = 1 + usize::try_from(dice.roll(8)).unwrap();
        let max_weight = 5 + dice.roll(20);
        let capacity = 5 + dice.roll(40);
        let capacity_weight = 20 + dice.roll(200);
        let timeout = dice.one_in(2).then(|| Duration::from_millis(50 + dice.roll(500)));
        let fifo = !dice.one_in(3);
        let world = World {
            faulty: !dice.one_in(4),
            allow_fatal: dice.one_in(5),
            max_items,
            max_weight,
            timeout,
            ..World::default()
        };
        let world = Arc::new(Mutex::new(world));
        // The processor keeps a clock of its own, moved with that of the simulation.
        let clock = ManualClock::new();
        let processor =
            Processor { world: Arc::clone(&world), dice: Mutex::new(dice.clone()), clock };
        let retry = Retry::default()
            .base(Duration::from_millis(1 + dice.roll(100)))
            .max_attempts(1 + u32::try_from(dice.roll(5)).unwrap())
            .budget(u32::try_from(dice.roll(10)).unwrap());
        let dropped = Arc::clone(&world);
        let mut builder: Builder<Processor> = Batcher::builder(processor)
            .max_batch_items(max_items)
            .max_batch_weight(max_weight)
            .capacity(usize::try_from(capacity).unwrap())
            .capacity_weight(capacity_weight)
            .delivery_timeout(timeout)
            .retry(retry)
            .max_in_flight(1 + usize::try_from(dice.roll(6)).unwrap())
            .on_dropped(move |_, item: Item, reason| {
                assert!(matches!(reason, BatchError::Expired | BatchError::TimedOut));
                assert!(dropped.lock().unwrap().dropped.insert(item.number), "dropped twice");
            });
        builder = match dice.roll(3) {
            0 => builder.natural(),
            1 => builder.linger(Duration::from_millis(1 + dice.roll(100))),
            _ => builder.full_only(),
        };
        if !fifo {
            builder = builder.unordered();
        }
        let (batcher, sim) = Sim::new(builder, seed).unwrap();
        Self {
            dice,
            world,
            batcher,
            sim,
            next: 0,
            tickets: Vec::new(),
            ends: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            detached: 0,
            flushes: Vec::new(),
            capacity,
            capacity_weight,
            fifo,
        }
    }

    fn item(&mut self) -> Item {
        let number = self.next;
        self.next += 1;
        let (key, weight) = (self.dice.roll(4), self.dice.roll(5));
        Item { number, key, weight, poison: self.dice.one_in(10) }
    }

    fn submit(&mut self, count: u64) {
        let items: Vec<Item> = (0..count).map(|_| self.item()).collect();
        let now = self.sim.clock().now();
        for item in &items {
            self.world.lock().unwrap().accepted_at.insert(item.number, now);
        }
        let (tickets, refused) = match self.batcher.submit_all(items.iter().copied()) {
            Ok(tickets) => (tickets, 0),
            Err(partial) => {
                let rest = partial.rest.len();
                assert_eq!(partial.accepted.len() + rest, items.len());
                assert_eq!(partial.rest[..], items[items.len() - rest..]);
                self.check_refusal(&partial.reason);
                (partial.accepted, rest)
            }
        };
        let accepted = items.len() - refused;
        self.tickets.extend(items.into_iter().take(accepted).zip(tickets));
    }

    fn check_refusal(&self, reason: &Refusal) {
        let stats = self.batcher.stats();
        match reason {
            Refusal::Full { .. } => {
                assert!(stats.queued + stats.in_flight >= self.capacity);
            }
            Refusal::Fatal { .. } => assert!(self.batcher.fatal_error().is_some()),
            Refusal::FullWeight { capacity } => assert_eq!(*capacity, self.capacity_weight),
            other => panic!("refused: {other}"),
        }
    }

    fn act(&mut self) {
        match self.dice.roll(14) {
            0..4 => {
                let count = 1 + self.dice.roll(6);
                self.submit(count);
            }
            4 if !self.tickets.is_empty() => {
                let at = usize::try_from(self.dice.roll(self.tickets.len() as u64)).unwrap();
                let (item, ticket) = &self.tickets[at];
                if ticket.cancel() {
                    self.cancelled.insert(item.number);
                }
            }
            5 if !self.tickets.is_empty() => {
                let at = usize::try_from(self.dice.roll(self.tickets.len() as u64)).unwrap();
                let (item, ticket) = &self.tickets[at];
                if let Some(back) = self.batcher.cancel(ticket.id()) {
                    assert_eq!(back, *item);
                    self.cancelled.insert(item.number);
                }
            }
            6 if self.tickets.len() > 4 => {
                let (_, ticket) = self.tickets.remove(0);
                ticket.detach();
                self.detached += 1;
            }
            7 => self.flushes.push((self.batcher.flush(), self.next)),
            8 => self.finish_kept(),
            9 => {
                let step = Duration::from_millis(self.dice.roll(60));
                self.pass(step);
            }
            _ => {
                self.step();
            }
        }
        self.check();
    }

    fn step(&mut self) -> bool {
        match self.sim.step() {
            Progress::Waited(time) => {
                self.batcher.processor().clock.advance(time);
                true
            }
            progress => progress != Progress::Idle,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.batcher.processor().clock.advance(time);
        self.sim.clock().advance(time);
    }

    /// Resolves what the processor kept, or gives it up, or takes it back.
    fn finish_kept(&mut self) {
        let kept = std::mem::take(&mut self.world.lock().unwrap().kept);
        for batch in kept {
            match self.dice.roll(4) {
                0 => drop(batch),
                1 => {
                    for (_, item) in batch.withdraw() {
                        self.cancelled.insert(item.number);
                    }
                }
                _ => resolve(&batch, |item| Ok(item.number)),
            }
        }
    }

    fn check(&mut self) {
        let stats = self.batcher.stats();
        let ended = stats.completed + stats.failed + stats.cancelled + stats.expired;
        let live = stats.queued + stats.in_flight;
        assert_eq!(stats.accepted, ended + stats.handed_back + live, "{stats:?}");
        assert!(live <= self.capacity, "{stats:?}");
        // Collect what is there.
        let mut waiting = Vec::new();
        for (item, ticket) in std::mem::take(&mut self.tickets) {
            match ticket.try_get() {
                Ok(outcome) => self.end(item, outcome),
                Err(ticket) => waiting.push((item, ticket.into_inner())),
            }
        }
        self.tickets = waiting;
        // A flush is done exactly when all that was accepted before it is final.
        let oldest = self.tickets.first().map_or(u64::MAX, |(item, _)| item.number);
        if self.detached == 0 {
            self.flushes.retain(|(flush, before)| {
                assert_eq!(flush.is_done(), oldest >= *before, "a flush before {before}");
                !flush.is_done()
            });
        }
    }

    fn end(&mut self, item: Item, outcome: Outcome<u64, Fault>) {
        match &outcome {
            Ok(number) => assert_eq!(*number, item.number, "the result of another item"),
            Err(BatchError::Cancelled) => assert!(self.cancelled.contains(&item.number)),
            Err(BatchError::Expired) => {
                assert!(!self.world.lock().unwrap().sent.contains_key(&item.number));
            }
            Err(BatchError::TimedOut) => {
                assert!(self.world.lock().unwrap().sent.contains_key(&item.number));
            }
            Err(_) => {}
        }
        assert!(self.ends.insert(item.number, outcome).is_none(), "item {item:?} ended twice");
    }

    fn finish(mut self) {
        self.world.lock().unwrap().faulty = false;
        if self.dice.one_in(3) {
            // Once the faults stop, everything comes to its end.
            self.batcher.flush().is_done();
            for _ in 0..10_000 {
                self.finish_kept();
                if !self.step() && self.world.lock().unwrap().kept.is_empty() {
                    break;
                }
            }
            self.check();
            assert!(self.tickets.is_empty(), "{} items never ended", self.tickets.len());
        }
        let mode = if self.dice.one_in(2) { Close::Drain } else { Close::Abort };
        let report = self.batcher.close(mode, Duration::ZERO);
        let left: BTreeSet<ItemId> = report.leftovers.iter().map(|(id, _)| *id).collect();
        assert_eq!(left.len() as u64, report.stats.handed_back, "{:?}", report.stats);
        assert!(report.leftovers.is_sorted_by_key(|(id, _)| *id), "{:?}", report.leftovers);
        for _ in 0..100 {
            self.finish_kept();
            self.step();
        }
        self.check();
        assert!(self.tickets.is_empty(), "{} items never ended", self.tickets.len());
        for (_, item) in report.leftovers {
            // Or its ticket was let go.
            let end = self.ends.get(&item.number);
            assert!(end.is_none_or(|end| matches!(end, Err(BatchError::Closed))), "{end:?}");
        }
        assert!(self.flushes.iter().all(|(flush, _)| flush.is_done()));
        let stats = self.batcher.stats();
        assert_eq!((stats.queued, stats.in_flight), (0, 0));
        let world = self.world.lock().unwrap();
        if self.fifo {
            for (key, numbers) in &world.first {
                assert!(numbers.is_sorted(), "key {key} was sent in the order {numbers:?}");
            }
        }
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..60 {
        run.act();
    }
    run.finish();
}

#[test]
fn ten_thousand_seeds_keep_every_law() {
    if let Some(seed) = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    // Seeds have nothing in common: they are dealt out to the processors.
    let parts = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for part in 0..parts {
            scope.spawn(move || {
                for seed in (0..10_000).skip(part).step_by(parts) {
                    let outcome = panic::catch_unwind(|| run(seed));
                    assert!(outcome.is_ok(), "seed {seed} fails; SIM_SEED={seed} runs it alone");
                }
            });
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let mut run = Run::new(seed);
        for _ in 0..60 {
            run.act();
        }
        let ends: Vec<_> =
            run.ends.iter().map(|(number, end)| format!("{number} {end:?}")).collect();
        let past: Vec<_> = run.batcher.history().iter().map(|past| format!("{past:?}")).collect();
        (ends, past, run.batcher.stats())
    };
    for seed in 0..100 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}
