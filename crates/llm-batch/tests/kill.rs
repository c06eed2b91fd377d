//! Processes that are killed, and what the next one does.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use common::{Faults, Place, Reply, Seen, Sim, ask, assert_answered, builder, open, run};
use llm_batch::{Error, Stop};

/// Not a test by itself: what the process does that is killed.
#[test]
fn child() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let llm = builder(url.to_str().unwrap(), &PathBuf::from(state)).build().unwrap();
    let ended = run(&llm, ["a", "b", "c"].map(ask)).1;
    panic!("it was to be killed, but {ended:?}");
}

fn spawn(sim: &Sim, place: &Place) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["child", "--exact"])
        .env("CHILD_URL", sim.url())
        .env("CHILD_STATE", place.state())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets the server wait until the process it talks to is dead.
#[derive(Default)]
struct Victim {
    child: Mutex<Option<Child>>,
    there: Condvar,
}

impl Victim {
    fn put(&self, child: Child) {
        *self.child.lock().unwrap() = Some(child);
        self.there.notify_all();
    }

    fn kill(&self) {
        let child = self.child.lock().unwrap();
        let mut child = self.there.wait_while(child, |child| child.is_none()).unwrap();
        let child = child.as_mut().unwrap();
        // SIGKILL: nothing of it runs any more.
        child.kill().unwrap();
        child.wait().unwrap();
        self.there.notify_all();
    }

    fn wait_for_death(&self) {
        let child = self.child.lock().unwrap();
        let dead = |child: &mut Option<Child>| {
            child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_none())
        };
        drop(self.there.wait_while(child, dead).unwrap());
    }
}

/// Lets the process be killed while its create is on its way; it is taken or not.
fn killed_at_its_create(is_taken: bool) -> (Sim, Place) {
    let victim = Arc::new(Victim::default());
    let killer = Arc::clone(&victim);
    let kill = Box::new(move |nth: usize, _: &Seen| {
        (nth == 0).then(|| {
            killer.kill();
            Reply::Drop
        })
    });
    let sim = Sim::start(if is_taken {
        Faults { create: Some(kill), ..Faults::default() }
    } else {
        Faults { refuse: Some(kill), ..Faults::default() }
    });
    let place = Place::new();
    victim.put(spawn(&sim, &place));
    victim.wait_for_death();
    (sim, place)
}

#[test]
fn a_process_killed_while_its_create_is_on_its_way_is_followed_by_one_that_finds_the_batch() {
    let (sim, place) = killed_at_its_create(true);
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert_answered(&outcomes, &["a", "b", "c"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 3));
}

#[test]
fn a_process_killed_before_its_create_was_taken_is_followed_by_one_that_sends_it() {
    let (sim, place) = killed_at_its_create(false);
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert_answered(&outcomes, &["a", "b", "c"]);
    assert_eq!(ended.unwrap().accounting.submissions, 2);
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (2, 3));
}

#[test]
fn a_process_killed_while_it_waits_is_taken_up_without_a_create() {
    let victim = Arc::new(Victim::default());
    let killer = Arc::clone(&victim);
    let sim = Sim::start(Faults {
        poll: Some(Box::new(move |nth, _| {
            (nth == 2).then(|| {
                killer.kill();
                Reply::Drop
            })
        })),
        running: 2,
        ..Faults::default()
    });
    let place = Place::new();
    victim.put(spawn(&sim, &place));
    victim.wait_for_death();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert_answered(&outcomes, &["a", "b", "c"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions), (3, 1));
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_stop_breaks_off_a_poll_that_hangs() {
    let stop = Stop::new();
    let hand = stop.clone();
    let sim = Sim::start(Faults {
        poll: Some(Box::new(move |_, _| {
            hand.stop();
            Some(Reply::Silence)
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let llm = builder(sim.url(), &place.state())
        .timeout(std::time::Duration::from_hours(1))
        .stop(stop)
        .build()
        .unwrap();
    // Without the stop this takes a minute a poll, for an hour.
    let ended = run(&llm, [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    // A look at the list, the create, and the poll.
    assert_eq!(sim.seen().len(), 3);
}
