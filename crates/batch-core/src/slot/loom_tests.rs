//! Every order of events, as far as loom can tell: lost wakes are deadlocks to it, reads of a value
//! that may not be there are races, and values or headers that are not dropped are leaks.

use std::task::{Wake, Waker};

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::raw::Thread;

type Value = Arc<()>;

/// Is written when it is dropped: that races with readers that the count of references let go too
/// early. The arc tells of blocks that are never freed.
struct Header(UnsafeCell<()>, Arc<()>);

impl Header {
    fn new() -> Self {
        Self(UnsafeCell::new(()), Arc::new(()))
    }

    fn read(&self) {
        self.0.with(|_| ());
    }
}

impl Clone for Header {
    fn clone(&self) -> Self {
        Self(UnsafeCell::new(()), Arc::clone(&self.1))
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}

fn pair() -> (Filler<Value, Header>, Claim<Value, Header>) {
    Arena::new(Header::new()).pair()
}

fn fill(filler: Filler<Value, Header>) {
    let mut round = Round::new();
    round.fill(filler, Arc::new(()));
    round.finish();
}

fn holds_value(claim: Claim<Value, Header>) -> bool {
    claim.header().read();
    matches!(claim.try_take(), Ok(Fate::Value(_)))
}

/// Unparks the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(std::sync::Arc::new(Unpark(current())))
}

#[test]
fn loom_complete_against_wait() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || fill(filler));
        assert!(claim.wait(None, || panic!("nobody asked")));
        assert!(holds_value(claim));
        writer.join().unwrap();
    });
}

/// A row takes what is there, waits for the next, and gives its references back in between.
#[test]
fn loom_complete_against_a_row() {
    loom::model(|| {
        let mut arena = Arena::new(Header::new());
        let ((first, claim), (second, other)) = (arena.pair(), arena.pair());
        drop(arena);
        let mut row = Claims::of(claim);
        assert!(row.push(other).is_ok());
        let writer = thread::spawn(move || {
            let mut round = Round::new();
            round.fill(first, Arc::new(()));
            drop(second);
            round.finish();
        });
        let mut fates = Vec::new();
        row.take_done(|fate| fates.push(matches!(fate, Fate::Value(_))));
        while let Some(claim) = row.next() {
            assert!(claim.wait(None, || panic!("nobody asked")));
            fates.push(holds_value(claim));
            row.take_done(|fate| fates.push(matches!(fate, Fate::Value(_))));
        }
        assert_eq!(fates, [true, false]);
        writer.join().unwrap();
    });
}

/// The values of a row are all written before the first is marked; claims go or wait meanwhile.
#[test]
fn loom_complete_of_a_row_against_wait_and_drop() {
    loom::model(|| {
        let mut arena = Arena::new(Header::new());
        let (fillers, mut claims) = arena.row(2);
        drop(arena);
        let writer = thread::spawn(move || {
            let mut round = Round::new();
            round.fill_row(fillers, &mut || Some(Arc::new(())));
            round.finish();
        });
        let first = claims.next().unwrap();
        drop(claims);
        assert!(first.wait(None, || panic!("nobody asked")));
        assert!(holds_value(first));
        writer.join().unwrap();
    });
}

/// A row that is dropped while its cells are filled.
#[test]
fn loom_complete_against_drop_of_a_row() {
    loom::model(|| {
        let mut arena = Arena::new(Header::new());
        let ((first, claim), (second, other)) = (arena.pair(), arena.pair());
        drop(arena);
        let mut row = Claims::of(claim);
        assert!(row.push(other).is_ok());
        let mut fillers = Fillers::of(first);
        assert!(fillers.push(second).is_ok());
        let writer = thread::spawn(move || {
            fill(fillers.next().unwrap());
            drop(fillers);
        });
        row.take_done(drop);
        drop(row);
        writer.join().unwrap();
    });
}

#[test]
fn loom_complete_against_take() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || fill(filler));
        // Taken or given back; then it is dropped.
        drop(claim.try_take());
        writer.join().unwrap();
    });
}

#[test]
fn loom_complete_against_poll() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || fill(filler));
        let waker = waker();
        while !claim.poll(&mut Context::from_waker(&waker)) {
            park_until(None);
        }
        assert!(holds_value(claim));
        writer.join().unwrap();
    });
}

#[test]
fn loom_complete_against_polls_with_two_wakers() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || fill(filler));
        let is_done = claim.poll(&mut Context::from_waker(Waker::noop()));
        let last = waker();
        // The second waker must be the one that is woken.
        while !is_done && !claim.poll(&mut Context::from_waker(&last)) {
            park_until(None);
        }
        assert!(holds_value(claim));
        writer.join().unwrap();
    });
}

#[test]
fn loom_complete_against_drop_of_the_claim() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || {
            fill(filler);
        });
        claim.header().read();
        drop(claim);
        writer.join().unwrap();
    });
}

#[test]
fn loom_complete_against_drop_of_a_polled_claim() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || fill(filler));
        claim.poll(&mut Context::from_waker(&waker()));
        drop(claim);
        writer.join().unwrap();
    });
}

#[test]
fn loom_abandon_against_wait() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || drop(filler));
        assert!(claim.wait(None, || panic!("nobody asked")));
        assert!(matches!(claim.try_take(), Ok(Fate::Abandoned)));
        writer.join().unwrap();
    });
}

#[test]
fn loom_abandon_against_drop_of_the_claim() {
    loom::model(|| {
        let (filler, claim) = pair();
        let writer = thread::spawn(move || drop(filler));
        drop(claim);
        writer.join().unwrap();
    });
}

/// Who is asked to lead leads, also if the cell is done before it wakes up.
#[test]
fn loom_lead_against_complete() {
    loom::model(|| {
        let (filler, claim) = pair();
        let asker = thread::spawn(move || {
            let asked = filler.hand_lead();
            fill(filler);
            asked
        });
        let mut led = 0;
        assert!(claim.wait(None, || led += 1));
        assert!(holds_value(claim));
        assert_eq!(led, usize::from(asker.join().unwrap()));
    });
}

/// Who is asked to lead leads, also if its time is over.
#[test]
fn loom_lead_against_the_end_of_a_wait() {
    let over = Instant::now();
    loom::model(move || {
        let (filler, claim) = pair();
        let asker = thread::spawn(move || (filler.hand_lead(), filler));
        let mut led = 0;
        assert!(!claim.wait(Some(over), || led += 1));
        assert_eq!(led, usize::from(asker.join().unwrap().0));
    });
}

/// A thread is asked twice, by another and while it leads.
#[test]
fn loom_lead_twice() {
    loom::model(|| {
        let (filler, claim) = pair();
        let asker = thread::spawn(move || {
            let asked = usize::from(filler.hand_lead()) + usize::from(filler.hand_lead());
            fill(filler);
            asked
        });
        let mut led = 0;
        assert!(claim.wait(None, || led += 1));
        let times = asker.join().unwrap();
        assert!(led <= times && (led > 0) == (times > 0));
    });
}

/// One round wakes two waiting threads. Bounded: three threads and two locks.
#[test]
fn loom_two_waiters_of_one_block() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let mut arena: Arena<Value, Header> = Arena::new(Header::new());
        let (first, first_claim) = arena.pair();
        let (second, second_claim) = arena.pair();
        let waiter = thread::spawn(move || {
            assert!(first_claim.wait(None, || panic!("nobody asked")));
            assert!(holds_value(first_claim));
        });
        let writer = thread::spawn(move || {
            let mut round = Round::new();
            round.fill(first, Arc::new(()));
            round.fill(second, Arc::new(()));
            round.finish();
        });
        assert!(second_claim.wait(None, || panic!("nobody asked")));
        assert!(holds_value(second_claim));
        waiter.join().unwrap();
        writer.join().unwrap();
    });
}

/// A round over two blocks wakes a thread that waits for one cell after the other.
#[test]
fn loom_one_round_over_two_blocks() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let mut arena: Arena<Value, Header> = Arena::new(Header::new());
        let (fillers, claims): (Vec<_>, Vec<_>) =
            (0..=cells::<Value>()).map(|_| arena.pair()).unzip();
        let writer = thread::spawn(move || {
            let mut round = Round::new();
            for filler in fillers {
                round.fill(filler, Arc::new(()));
            }
        });
        for claim in claims {
            assert!(claim.wait(None, || panic!("nobody asked")));
            assert!(holds_value(claim));
        }
        writer.join().unwrap();
    });
}

/// The block goes with the last of arena, filler and claim, whichever that is.
#[test]
fn loom_the_last_owner_frees_the_block() {
    loom::model(|| {
        let mut arena: Arena<Value, Header> = Arena::new(Header::new());
        let (filler, claim) = arena.pair();
        let writer = thread::spawn(move || fill(filler));
        let owner = thread::spawn(move || drop(arena));
        drop(claim);
        writer.join().unwrap();
        owner.join().unwrap();
    });
}
