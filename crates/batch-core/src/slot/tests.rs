use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;

mod large;

const CELLS: usize = cells::<Value>();

/// Counts how often it is dropped.
#[derive(Clone, Debug, Default)]
struct Drops(Arc<AtomicUsize>);

/// A value that counts its drop, and panics in it if it is told to.
#[derive(Debug)]
struct Value {
    drops: Drops,
    panics: bool,
    /// So that a read of freed memory is seen by a checker.
    text: Box<str>,
}

impl Drops {
    fn value(&self, number: usize) -> Value {
        Value { drops: self.clone(), panics: false, text: number.to_string().into() }
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.0.fetch_add(1, SeqCst);
        assert!(!self.panics, "a value that panics when it is dropped");
    }
}

/// A header whose count of owners is the count of live blocks, plus the arena's and the test's.
type Header = Arc<str>;

struct Bench {
    header: Header,
    drops: Drops,
    arena: Option<Arena<Value, Header>>,
}

impl Bench {
    fn new() -> Self {
        let header = Header::from("header");
        Self { arena: Some(Arena::new(Arc::clone(&header))), header, drops: Drops::default() }
    }

    fn pair(&mut self) -> (Filler<Value, Header>, Claim<Value, Header>) {
        self.arena.as_mut().expect("a test drops the arena last").pair()
    }

    fn live_blocks(&self) -> usize {
        Arc::strong_count(&self.header) - 1 - usize::from(self.arena.is_some())
    }
}

fn fill<T, H>(filler: Filler<T, H>, value: T) {
    let mut round = Round::new();
    round.fill(filler, value);
    round.finish();
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<T, H>(claim: &Claim<T, H>, wakes: &Arc<Wakes>) -> bool {
    claim.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

/// Runs `waiting` on another thread until it waits for the cell of `filler`, then `then` here.
fn while_waiting<T: Send, H: Send + Sync>(
    filler: Filler<T, H>,
    waiting: impl FnOnce() + Send,
    then: impl FnOnce(Filler<T, H>),
) {
    thread::scope(|scope| {
        scope.spawn(waiting);
        while filler.0.state() & WAITING == 0 {
            thread::yield_now();
        }
        then(filler);
    });
}

#[test]
fn the_two_sides_are_two_words() {
    assert!(size_of::<Filler<[u8; 99], Header>>() <= 16);
    assert!(size_of::<Claim<[u8; 99], Header>>() <= 16);
}

#[test]
fn a_value_goes_from_the_filler_to_the_claim_and_is_dropped_once() {
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    assert!(!claim.is_done());
    assert_eq!(&**claim.header(), "header");
    let claim = claim.try_take().unwrap_err();
    fill(filler, bench.drops.value(7));
    assert!(claim.is_done());
    let Ok(Fate::Value(value)) = claim.try_take() else { panic!("the value is not there") };
    assert_eq!((&*value.text, bench.drops.count()), ("7", 0));
    drop(value);
    assert_eq!(bench.drops.count(), 1);
}

#[test]
fn a_filler_that_is_dropped_leaves_word_of_it() {
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    drop(filler);
    assert!(claim.is_done());
    assert!(matches!(claim.try_take(), Ok(Fate::Abandoned)));
    let (filler, claim) = bench.pair();
    drop(claim);
    drop(filler);
    assert_eq!(bench.drops.count(), 0);
}

/// Every order in which the sides of three cells and the arena can end.
#[test]
fn every_order_of_ends_drops_each_value_once_and_frees_the_block() {
    #[derive(Clone, Copy, PartialEq)]
    enum End {
        Fill,
        Abandon,
        Take,
        DropClaim,
        DropArena,
    }
    use End::{Abandon, DropArena, DropClaim, Fill, Take};
    let (mut orders, mut values) = (0, 0);
    for write in [Fill, Abandon] {
        for read in [Take, DropClaim] {
            // All orders of three ends: bit patterns of "which comes first" make six.
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let mut bench = Bench::new();
                let (filler, claim) = bench.pair();
                let (mut filler, mut claim) = (Some(filler), Some(claim));
                for step in order.map(|at| [write, read, DropArena][at]) {
                    match step {
                        Fill => fill(filler.take().unwrap(), bench.drops.value(1)),
                        Abandon => drop(filler.take()),
                        // Before the filler is done it gives the claim back, which then is dropped.
                        Take => drop(claim.take().unwrap().try_take()),
                        DropClaim => drop(claim.take()),
                        DropArena => drop(bench.arena.take()),
                    }
                }
                assert_eq!(bench.drops.count(), usize::from(write == Fill));
                assert_eq!(bench.live_blocks(), 0);
                orders += 1;
                values += bench.drops.count();
            }
        }
    }
    assert_eq!((orders, values), (24, 12));
}

#[test]
fn many_blocks_are_freed_as_their_last_cell_ends() {
    let mut bench = Bench::new();
    let count = 3 * CELLS + 1;
    let pairs: Vec<_> = (0..count).map(|_| bench.pair()).collect();
    assert_eq!(bench.live_blocks(), 4);
    let (fillers, mut claims): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let mut round = Round::new();
    for (number, filler) in fillers.into_iter().enumerate() {
        round.fill(filler, bench.drops.value(number));
    }
    round.finish();
    // The last are dropped untaken; the others are taken in order.
    claims.truncate(2 * CELLS);
    assert_eq!((bench.drops.count(), bench.live_blocks()), (CELLS + 1, 3));
    for (number, claim) in claims.into_iter().enumerate() {
        let Ok(Fate::Value(value)) = claim.try_take() else { panic!("not filled: {number}") };
        assert_eq!(*value.text, *number.to_string());
    }
    // The arena still holds what is left of the last block.
    assert_eq!((bench.drops.count(), bench.live_blocks()), (count, 1));
    bench.arena = None;
    assert_eq!(bench.live_blocks(), 0);
}

#[test]
fn fillers_in_a_row_are_those_of_one_block_one_after_the_other() {
    let mut bench = Bench::new();
    let (fillers, mut claims): (Vec<_>, Vec<_>) = (0..CELLS + 3).map(|_| bench.pair()).unzip();
    let mut rows: Vec<Fillers<_, _>> = Vec::new();
    for filler in fillers {
        let refused = match rows.last_mut() {
            Some(row) => row.push(filler).err(),
            None => Some(filler),
        };
        rows.extend(refused.map(Fillers::of));
    }
    assert_eq!(rows.iter().map(Fillers::len).collect::<Vec<_>>(), [CELLS, 3]);

    let mut first = rows.remove(0);
    for number in 0..10 {
        fill(first.next().expect("there are many"), bench.drops.value(number));
    }
    assert_eq!(first.len(), CELLS - 10);
    // What is left of it is abandoned.
    drop(first);
    let fates: Vec<_> =
        claims.drain(..CELLS).map(|claim| claim.try_take().ok().expect("done")).collect();
    for (number, fate) in fates.into_iter().enumerate() {
        match fate {
            Fate::Value(value) => {
                assert_eq!((&*value.text, number < 10), (&*number.to_string(), true));
            }
            Fate::Abandoned => assert!(number >= 10),
        }
    }
    assert_eq!(bench.drops.count(), 10);
    assert_eq!(bench.live_blocks(), 1, "the block of the first row is freed");
    drop(rows);
    assert!(claims.iter().all(Claim::is_done));
}

#[test]
fn claims_in_a_row_are_taken_as_far_as_they_are_done() {
    let mut bench = Bench::new();
    let (mut fillers, claims): (Vec<_>, Vec<_>) = (0..CELLS + 3).map(|_| bench.pair()).unzip();
    let mut rows: Vec<Claims<_, _>> = Vec::new();
    for claim in claims {
        let refused = match rows.last_mut() {
            Some(row) => row.push(claim).err(),
            None => Some(claim),
        };
        rows.extend(refused.map(Claims::of));
    }
    assert_eq!(rows.iter().map(Claims::len).collect::<Vec<_>>(), [CELLS, 3]);
    let mut row = rows.remove(0);

    let mut taken = Vec::new();
    row.take_done(|_| panic!("nothing is done"));
    for number in [0, 1, 3] {
        fill(fillers.remove(0), bench.drops.value(number));
        if number == 1 {
            // This one is abandoned.
            drop(fillers.remove(0));
        }
    }
    row.take_done(|fate| taken.push(fate));
    let text = |fate: &Fate<Value>| match fate {
        Fate::Value(value) => value.text.to_string(),
        Fate::Abandoned => String::new(),
    };
    assert_eq!(taken.iter().map(text).collect::<Vec<_>>(), ["0", "1", "", "3"]);
    assert_eq!(row.len(), CELLS - 4);
    let claim = row.next().expect("there are many");
    assert!(claim.try_take().is_err());
    fill(fillers.remove(0), bench.drops.value(5));
    // The claims go first, some of them to cells that are done.
    drop((row, taken));
    assert_eq!(bench.drops.count(), 4);
    drop(fillers);
    assert_eq!(bench.live_blocks(), 1, "the block of the first row is freed");
    drop(rows);
    assert_eq!(bench.live_blocks(), 1, "the arena has the other");
}

#[test]
fn a_row_of_cells_ends_with_its_block_and_may_be_joined_to_the_one_before() {
    let mut bench = Bench::new();
    let arena = bench.arena.as_mut().expect("it is there");
    let (mut fillers, mut claims) = arena.row(3);
    let (more, others) = arena.row(CELLS);
    assert_eq!((fillers.len(), more.len(), others.len()), (3, CELLS - 3, CELLS - 3));
    let (next, of_next) = arena.row(1);
    assert_eq!((next.len(), of_next.len()), (1, 1));
    assert!(fillers.append(more).is_ok() && claims.append(others).is_ok());
    let Err(next) = fillers.append(next) else { panic!("it is of another block") };
    let Err(of_next) = claims.append(of_next) else { panic!("it is of another block") };
    let mut round = Round::new();
    let mut values = (0..CELLS - 1).map(|number| bench.drops.value(number));
    round.fill_row(fillers, &mut || values.next());
    round.finish();
    let mut taken = Vec::new();
    claims.take_done(|fate| taken.push(fate));
    assert_eq!((claims.len(), taken.len()), (0, CELLS));
    assert!(matches!(taken.pop(), Some(Fate::Abandoned)), "there was no value for the last");
    assert!(taken.iter().all(|fate| matches!(fate, Fate::Value(_))));
    drop(taken);
    assert_eq!(bench.drops.count(), CELLS - 1);
    assert_eq!(bench.live_blocks(), 1);
    drop((next, of_next));
}

#[test]
fn a_round_may_go_back_and_forth_between_blocks() {
    let mut bench = Bench::new();
    let mut pairs: Vec<_> = (0..2 * CELLS).map(|_| bench.pair()).collect();
    let late = pairs.split_off(CELLS);
    let wakes = Arc::new(Wakes::default());
    let mut round = Round::new();
    let mut claims = Vec::new();
    for (one, other) in pairs.into_iter().zip(late) {
        for (filler, claim) in [other, one] {
            assert!(!poll(&claim, &wakes));
            round.fill(filler, bench.drops.value(0));
            claims.push(claim);
        }
    }
    assert_eq!(wakes.0.load(SeqCst), 0);
    round.finish();
    // One task waits for all, and the round saw that.
    assert_eq!(wakes.0.load(SeqCst), 1);
    assert!(claims.iter().all(Claim::is_done));
    drop((claims, bench.arena.take()));
    assert_eq!((bench.drops.count(), bench.live_blocks()), (2 * CELLS, 0));
}

#[test]
fn a_value_that_panics_when_dropped_harms_nobody_else() {
    let mut bench = Bench::new();
    let bad = |drops: &Drops| Value { drops: drops.clone(), panics: true, text: "".into() };
    let (first, first_claim) = bench.pair();
    let (second, second_claim) = bench.pair();
    let (third, third_claim) = bench.pair();
    drop(first_claim);
    let mut round = Round::new();
    round.fill(first, bad(&bench.drops));
    round.fill(second, bad(&bench.drops));
    round.fill(third, bench.drops.value(3));
    round.finish();
    assert_eq!(bench.drops.count(), 1);
    drop(second_claim);
    assert_eq!(bench.drops.count(), 2);
    assert!(matches!(third_claim.try_take(), Ok(Fate::Value(value)) if *value.text == *"3"));
    bench.arena = None;
    assert_eq!((bench.drops.count(), bench.live_blocks()), (3, 0));
}

/// A waker that panics in all it can: when it is woken and when it is dropped.
fn panicking_waker(on_drop: bool) -> Waker {
    fn clone(data: *const ()) -> RawWaker {
        RawWaker::new(data, if data.is_null() { &QUIET } else { &LOUD })
    }
    fn wake(_: *const ()) {
        panic!("a waker that panics when it is woken");
    }
    fn quiet(_: *const ()) {}
    fn loud(_: *const ()) {
        panic!("a waker that panics when it is dropped");
    }
    static QUIET: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, quiet);
    static LOUD: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, loud);
    let data =
        if on_drop { NonNull::<()>::dangling().as_ptr().cast_const() } else { std::ptr::null() };
    // SAFETY: the functions use no data.
    unsafe { Waker::from_raw(clone(data)) }
}

#[test]
fn a_waker_that_panics_keeps_nobody_from_being_woken() {
    let mut bench = Bench::new();
    let woken = Arc::new(Wakes::default());
    let (bad, bad_claim) = bench.pair();
    let (good, good_claim) = bench.pair();
    let waker = panicking_waker(false);
    assert!(!bad_claim.poll(&mut Context::from_waker(&waker)));
    assert!(!poll(&good_claim, &woken));
    let mut round = Round::new();
    round.fill(bad, bench.drops.value(1));
    round.fill(good, bench.drops.value(2));
    round.finish();
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(bad_claim.is_done() && good_claim.is_done());
}

#[test]
fn a_waker_that_panics_when_dropped_leaves_the_claim_whole() {
    let mut bench = Bench::new();
    let woken = Arc::new(Wakes::default());
    let (filler, claim) = bench.pair();
    let waker = mem::ManuallyDrop::new(panicking_waker(true));
    assert!(!claim.poll(&mut Context::from_waker(&waker)));
    // The next poll replaces it, and its drop panics into the task that polls.
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&claim, &woken))).is_err());
    fill(filler, bench.drops.value(1));
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(claim.is_done());
    let (filler, claim) = bench.pair();
    assert!(!claim.poll(&mut Context::from_waker(&waker)));
    drop(claim);
    fill(filler, bench.drops.value(2));
    assert_eq!(bench.drops.count(), 1);
}

#[test]
fn a_task_is_woken_once_by_its_last_waker() {
    let mut bench = Bench::new();
    let (first, second) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let (filler, claim) = bench.pair();
    assert!(!poll(&claim, &first));
    assert!(!poll(&claim, &second));
    assert_eq!(Arc::strong_count(&first), 1);
    fill(filler, bench.drops.value(1));
    assert_eq!((first.0.load(SeqCst), second.0.load(SeqCst)), (0, 1));
    assert!(poll(&claim, &first));
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
}

#[test]
fn a_claim_that_is_dropped_takes_its_waker_along() {
    let mut bench = Bench::new();
    let wakes = Arc::new(Wakes::default());
    let (filler, claim) = bench.pair();
    assert!(!poll(&claim, &wakes));
    drop(claim);
    assert_eq!(Arc::strong_count(&wakes), 1);
    fill(filler, bench.drops.value(1));
    assert_eq!((wakes.0.load(SeqCst), bench.drops.count()), (0, 1));
}

/// A waker may do anything when it is woken or dropped, so no lock may be held then.
#[test]
fn a_waker_may_use_the_very_block_that_wakes_it() {
    struct Reenter(RefCell<Option<Claim<Value, Header>>>);
    // SAFETY: only the thread of the test uses it.
    unsafe impl Send for Reenter {}
    // SAFETY: as above.
    unsafe impl Sync for Reenter {}
    impl Wake for Reenter {
        fn wake(self: Arc<Self>) {
            let claim = self.0.take().unwrap();
            assert!(!poll(&claim, &Arc::new(Wakes::default())));
        }
    }
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    let (_other, other_claim) = bench.pair();
    let waker = Waker::from(Arc::new(Reenter(RefCell::new(Some(other_claim)))));
    assert!(!claim.poll(&mut Context::from_waker(&waker)));
    fill(filler, bench.drops.value(1));
    assert!(claim.is_done());
}

#[test]
fn a_thread_waits_until_its_cell_is_filled_or_abandoned() {
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    let value = bench.drops.value(5);
    while_waiting(
        filler,
        move || {
            assert!(claim.wait(None, || panic!("nobody asked")));
            assert!(matches!(claim.try_take(), Ok(Fate::Value(value)) if *value.text == *"5"));
        },
        |filler| fill(filler, value),
    );
    let (filler, claim) = bench.pair();
    while_waiting(
        filler,
        move || {
            assert!(claim.wait(None, || panic!("nobody asked")));
            assert!(matches!(claim.try_take(), Ok(Fate::Abandoned)));
        },
        drop,
    );
    assert_eq!(bench.drops.count(), 1);
}

#[test]
fn a_wait_ends_with_its_time_and_leaves_no_trace() {
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    assert!(!claim.wait(Some(Instant::now()), || panic!("nobody asked")));
    assert!(!claim.wait(Some(Instant::now() + Duration::from_millis(2)), || ()));
    assert!(claim.0.block().waiters.is_empty());
    assert!(!filler.hand_lead());
    // The farthest moment that the clock can tell does not overflow.
    let mut far = Instant::now();
    for shift in (0..64).rev() {
        far = far.checked_add(Duration::from_secs(1 << shift)).unwrap_or(far);
    }
    let value = bench.drops.value(1);
    while_waiting(
        filler,
        move || assert!(claim.wait(Some(far), || ())),
        |filler| fill(filler, value),
    );
}

#[test]
fn only_a_thread_that_waits_is_asked_to_lead() {
    let mut bench = Bench::new();
    let (filler, claim) = bench.pair();
    assert!(!filler.hand_lead());
    assert!(!poll(&claim, &Arc::new(Wakes::default())));
    assert!(!filler.hand_lead(), "a task cannot lead");

    let (filler, claim) = bench.pair();
    let value = bench.drops.value(1);
    let led = AtomicUsize::new(0);
    while_waiting(
        filler,
        || {
            assert!(claim.wait(None, || {
                led.fetch_add(1, SeqCst);
            }));
        },
        |filler| {
            while !filler.hand_lead() {
                thread::yield_now();
            }
            while led.load(SeqCst) == 0 {
                thread::yield_now();
            }
            fill(filler, value);
        },
    );
    assert_eq!(led.load(SeqCst), 1);
}

/// Threads, tasks and drops at once, on many blocks; every value ends once.
#[test]
fn two_threads_hand_over_many_values() {
    let count = 20 * CELLS;
    let mut bench = Bench::new();
    let (to_filler, fillers) = std::sync::mpsc::channel();
    let drops = bench.drops.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 0;
            while let Ok(first) = fillers.recv() {
                let mut round = Round::new();
                for filler in std::iter::once(first).chain(fillers.try_iter()) {
                    // One in five is abandoned.
                    match number % 5 {
                        4 => drop(filler),
                        _ => round.fill(filler, drops.value(number)),
                    }
                    number += 1;
                }
                round.finish();
            }
        });
        let mut claims = Vec::new();
        for number in 0..count {
            let (filler, claim) = bench.pair();
            to_filler.send(filler).unwrap();
            // One in three is dropped.
            if number % 3 != 2 {
                claims.push((number, claim));
            }
        }
        drop(to_filler);
        for (number, claim) in claims {
            assert!(claim.wait(None, || ()));
            match claim.try_take().ok().expect("it was waited for") {
                Fate::Value(value) => assert_eq!(*value.text, *number.to_string()),
                Fate::Abandoned => assert_eq!(number % 5, 4),
            }
        }
    });
    bench.arena = None;
    assert_eq!((bench.drops.count(), bench.live_blocks()), (count - count / 5, 0));
}
