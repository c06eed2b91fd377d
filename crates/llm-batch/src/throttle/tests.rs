use std::cell::Cell;
use std::sync::mpsc::Receiver;

use proptest::prelude::*;

use super::paces::FIRST;
use super::*;

thread_local! {
    /// It stands still but where a test waits: what ends by itself ends when the test says so.
    static NOW: Cell<Instant> = Cell::new(Instant::now());
}

/// Returns the time as the test has it.
pub(super) fn now() -> Instant {
    NOW.get()
}

fn wait(time: Duration) {
    NOW.set(NOW.get() + time);
}

/// Lets one go.
fn at_once(room: Room) -> Permit {
    match room {
        Room::Now(mut permit) => {
            permit.go();
            permit
        }
        Room::Later(..) => panic!("{room:?}"),
    }
}

fn later(room: Room) -> Place {
    match room {
        Room::Later(place, _) => place,
        Room::Now(_) => panic!("{room:?}"),
    }
}

fn is_told((_, events): &(Mail, Receiver<Event>)) -> bool {
    matches!(events.try_recv(), Ok(Event::Room(_)))
}

/// Whoever came between took it, and the one that had waited longest was the last again.
#[test]
fn a_turn_that_is_given_back_is_that_of_whoever_has_waited_longest() {
    let throttle = Throttle::new(1, None);
    let [a, b, c] = [(); 3].map(|()| Mail::open());
    let first = at_once(throttle.enter("m", None, &a.0));
    let second = later(throttle.enter("m", None, &b.0));
    drop(first);
    let third = later(throttle.enter("m", None, &c.0));
    assert!(is_told(&b) && !is_told(&c));
    let second = at_once(throttle.enter("m", Some(second), &b.0));
    drop(second);
    assert!(is_told(&c));
    at_once(throttle.enter("m", Some(third), &c.0));
}

/// It was told to a pass that ended just then, and to nobody else.
#[test]
fn a_turn_of_a_pass_that_ends_goes_to_the_next() {
    let throttle = Throttle::new(1, None);
    let [a, b, c, d] = [(); 4].map(|()| Mail::open());
    let first = at_once(throttle.enter("m", None, &a.0));
    let [b, c, last] = [&b, &c, &d].map(|(mail, _)| later(throttle.enter("m", None, mail)));
    // One to which it is offered, and one before it was.
    drop(c);
    drop(first);
    drop(b);
    assert!(is_told(&d));
    drop(last);
    let paces = throttle.paces();
    assert_eq!((paces.running, paces.by_model["m"].line.len()), (0, 0));
}

/// It was held by one that was at something else, which may be to wait for one of the others.
#[test]
fn whoever_is_at_something_else_keeps_its_place_and_nobody_back() {
    let throttle = Throttle::new(1, None);
    let [a, b, c] = [(); 3].map(|()| Mail::open());
    let first = at_once(throttle.enter("m", None, &a.0));
    let [second, third] = [&b, &c].map(|(mail, _)| later(throttle.enter("m", None, mail)));
    drop(first);
    assert!(is_told(&b));
    second.step_aside();
    assert!(is_told(&c));
    let third = at_once(throttle.enter("m", Some(third), &c.0));
    let fourth = later(throttle.enter("m", None, &a.0));
    // It is still before those that came after it.
    let second = later(throttle.enter("m", Some(second), &b.0));
    drop(third);
    assert!(is_told(&b) && !is_told(&a));
    drop((second, fourth));
    assert_eq!(throttle.paces().running, 0);
}

#[test]
fn a_model_that_is_busy_holds_no_other_back() {
    let throttle = Throttle::new(8, None);
    let mail = Mail::open();
    let first = at_once(throttle.enter("busy", None, &mail.0));
    first.went_badly(Some(Duration::from_hours(1)));
    let busy = throttle.enter("busy", None, &mail.0);
    assert!(matches!(busy, Room::Later(_, Some(_))));
    let others: Vec<_> = (0..FIRST).map(|_| at_once(throttle.enter("m", None, &mail.0))).collect();
    let next = throttle.enter("m", None, &mail.0);
    assert!(matches!(next, Room::Later(_, None)));
    drop(others);
    assert!(is_told(&mail));
}

/// What was offered before a model became busy is of use to another one.
#[test]
fn a_turn_for_a_model_that_is_busy_goes_to_another_one() {
    let throttle = Throttle::new(2, None);
    let [a, b, c] = [(); 3].map(|()| Mail::open());
    let [first, other] = [(); 2].map(|()| at_once(throttle.enter("busy", None, &a.0)));
    let waits = later(throttle.enter("busy", None, &b.0));
    let next = later(throttle.enter("m", None, &c.0));
    drop(first);
    assert!(is_told(&b) && !is_told(&c));
    other.went_badly(None);
    assert!(is_told(&c));
    let waits = throttle.enter("busy", Some(waits), &b.0);
    assert!(matches!(waits, Room::Later(_, Some(_))), "{waits:?}");
    at_once(throttle.enter("m", Some(next), &c.0));
}

/// All others waited for the end of the trial, whatever came of it.
#[test]
fn all_may_go_once_the_first_after_a_wait_is_answered() {
    let throttle = Throttle::new(8, Some(Duration::from_hours(1)));
    let [a, b, c] = [(); 3].map(|()| Mail::open());
    throttle.went_badly("m", None);
    wait(Duration::from_hours(2));
    let trial = at_once(throttle.enter("m", None, &a.0));
    let waits = throttle.enter("m", None, &b.0);
    assert!(matches!(waits, Room::Later(_, Some(until)) if until > now()), "{waits:?}");
    assert!(!is_told(&b));
    trial.went_well();
    assert!(is_told(&b));
    at_once(throttle.enter("m", Some(later(waits)), &b.0));
    at_once(throttle.enter("m", None, &c.0));
}

/// It had no room when it came, and nobody told it when the wait that began since was over.
#[test]
fn the_first_in_line_knows_until_when_all_wait_whoever_goes() {
    let throttle = Throttle::new(1, Some(Duration::from_hours(1)));
    let [a, b, c, d] = [(); 4].map(|()| Mail::open());
    let first = at_once(throttle.enter("m", None, &a.0));
    let [second, third, fourth] =
        [&b, &c, &d].map(|(mail, _)| later(throttle.enter("m", None, mail)));
    first.went_badly(None);
    drop(first);
    assert!(is_told(&b) && !is_told(&c));
    second.step_aside();
    assert!(is_told(&c) && !is_told(&d));
    drop(third);
    assert!(is_told(&d));
    wait(Duration::from_hours(2));
    let trial = at_once(throttle.enter("m", Some(fourth), &d.0));
    // It is not known what comes of the trial, and the next one waits for its end.
    let second = throttle.enter("m", Some(second), &b.0);
    assert!(matches!(second, Room::Later(_, Some(_))));
    let third = later(throttle.enter("m", None, &c.0));
    drop(second);
    assert!(!is_told(&c), "it knows");
    drop(trial);
    wait(Duration::from_mins(1));
    at_once(throttle.enter("m", Some(third), &c.0));
}

#[test]
fn a_trial_that_is_not_used_is_that_of_the_next() {
    let throttle = Throttle::new(1, Some(Duration::from_hours(1)));
    let [a, b, c] = [(); 3].map(|()| Mail::open());
    let on_its_way = at_once(throttle.enter("other", None, &a.0));
    throttle.went_badly("m", None);
    let [first, next] = [&b, &c].map(|(mail, _)| later(throttle.enter("m", None, mail)));
    drop(on_its_way);
    wait(Duration::from_hours(2));
    // Whoever comes first after the wait, it is the turn of the one that has waited longest.
    let next = later(throttle.enter("m", Some(next), &c.0));
    assert!(is_told(&b) && !is_told(&c));
    drop(first);
    at_once(throttle.enter("m", Some(next), &c.0));
}

/// What could not be written down did not go out, and the next one waited for the end of its trial.
#[test]
fn a_trial_that_nothing_goes_out_with_is_that_of_the_next() {
    let throttle = Throttle::new(8, Some(Duration::from_hours(1)));
    let [a, b] = [(); 2].map(|()| Mail::open());
    throttle.went_badly("m", None);
    wait(Duration::from_hours(2));
    let trial = throttle.enter("m", None, &a.0);
    assert!(matches!(trial, Room::Now(_)), "{trial:?}");
    let next = later(throttle.enter("m", None, &b.0));
    drop(trial);
    assert!(is_told(&b));
    drop(at_once(throttle.enter("m", Some(next), &b.0)));
    let next = throttle.enter("m", None, &a.0);
    assert!(matches!(next, Room::Later(_, Some(_))), "one went out: {next:?}");
}

/// What a pass or a request does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Unsent,
    Enter,
    Aside,
    Leave,
    Well,
    Badly,
    Lost,
}

/// Nobody waits for what there is, and no more is out than may be.
fn check(throttle: &Throttle, permits: &[Permit], max: usize) {
    let (paces, now) = (throttle.paces(), now());
    let mut offered = 0;
    for (model, pace) in &paces.by_model {
        let offers = pace.line.values().filter(|waiter| waiter.turn == Turn::Offered).count();
        let out = permits.iter().filter(|permit| permit.model == *model).count();
        assert_eq!(pace.running, out + offers, "{paces:?}");
        offered += offers;
        let first = pace.line.values().find(|waiter| waiter.turn == Turn::Awaited);
        if let Some(first) = first {
            let is_kept = pace.cooldown.until(now).is_some();
            assert!(!is_kept || first.is_timed, "it would wait for ever: {paces:?}");
            assert!(is_kept || !pace.is_open(now) || paces.running >= max, "{paces:?}");
        }
    }
    assert_eq!(paces.running, permits.len() + offered);
    assert!(paces.running <= max);
}

proptest! {
    #[test]
    fn whatever_passes_do_none_waits_for_what_there_is(
        max in 1_usize..4,
        steps in proptest::collection::vec((0_usize..4, 0_usize..2, 0_usize..11), 0..80),
    ) {
        use Step::{Aside, Badly, Enter, Leave, Lost, Unsent, Well};
        let throttle = Throttle::new(max, Some(Duration::from_hours(1)));
        let passes = [(); 4].map(|()| Mail::open());
        let mut places: [[Option<Place>; 2]; 4] = Default::default();
        let mut permits: Vec<Permit> = Vec::new();
        for (pass, model, step) in steps {
            let steps = [Enter, Enter, Enter, Enter, Aside, Leave, Well, Well, Badly, Lost, Unsent];
            let place = &mut places[pass][model];
            match steps[step] {
                Enter => {
                    // Now and then a wait for all is over.
                    wait(Duration::from_mins(if step == 0 { 90 } else { 0 }));
                    let (name, mail) = (["m", "n"][model], &passes[pass].0);
                    match throttle.enter(name, place.take(), mail) {
                        Room::Now(permit) => permits.push(permit),
                        Room::Later(kept, _) => *place = Some(kept),
                    }
                }
                Aside => place.iter().for_each(Place::step_aside),
                Leave => drop(place.take()),
                Unsent => drop(permits.pop()),
                how => {
                    let Some(mut permit) = permits.pop() else { continue };
                    permit.go();
                    match how {
                        Well => permit.went_well(),
                        Badly => {
                            permit.went_badly(None);
                        }
                        _ => {}
                    }
                }
            }
            check(&throttle, &permits, max);
        }
        drop((places, permits));
        prop_assert_eq!(throttle.paces().running, 0);
    }
}
