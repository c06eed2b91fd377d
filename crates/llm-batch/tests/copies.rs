//! State folders that were moved or copied.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use common::{
    Endpoint, Faults, KEY, Outcome, Place, Reply, SHAPES, Shape, Sim, Simulator, ask,
    assert_answered, builder, losing_the_first, open, open_ai, run, run_until, settings,
};
use llm_batch::{Error, OnAmbiguous, Run, Stop};
use llm_simulator::Call;
use serde_json::{Value, json};

fn copied(from: &Path) -> Place {
    let place = Place::new();
    fs::create_dir(place.state()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.state().join(entry.file_name())).unwrap();
    }
    place
}

/// Puts files of before back into a folder, as programs for backups do: each is made anew.
fn restore(backup: &Path, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in fs::read_dir(backup).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
}

/// On another machine the folder stands elsewhere, and the first one is gone.
#[test]
fn a_folder_that_was_moved_elsewhere_goes_on_there() {
    let sim = Sim::start(Faults { running: usize::MAX, ..Faults::default() });
    let place = Place::new();
    let is_there = || sim.simulator.count(Endpoint::Poll) > 0;
    let first = builder(sim.url(), &place.state());
    assert!(run_until(is_there, first, ["a", "b"].map(ask)).1.is_err());
    let other = copied(&place.state());
    drop(place);
    sim.simulator.end_batches();
    let (outcomes, ended) = run(&open(&sim, &other), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!((ended.unwrap().accounting.submissions, sim.creates()), (1, 1));
}

/// Both know the batch, so both collect it and neither sends it.
#[test]
fn two_copies_of_a_folder_pay_once_for_a_batch_that_was_known_when_it_was_copied() {
    let sim = Sim::start(Faults { running: usize::MAX, ..Faults::default() });
    let place = Place::new();
    let is_there = || sim.simulator.count(Endpoint::Poll) > 0;
    let first = builder(sim.url(), &place.state());
    assert!(run_until(is_there, first, ["a", "b"].map(ask)).1.is_err());
    let other = copied(&place.state());
    sim.simulator.end_batches();
    thread::scope(|scope| {
        for place in [&place, &other] {
            let llm = open(&sim, place);
            scope.spawn(move || assert_answered(&run(&llm, ["a", "b"].map(ask)).0, &["a", "b"]));
        }
    });
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 2));
}

/// Each found the create absent and sent it again. The one that does so first deletes the file.
#[test]
fn of_two_copies_with_a_lost_create_the_second_sees_that_the_first_has_sent_it_again() {
    let simulator = Simulator::builder()
        .before(|call| ((call.endpoint, call.nth) == (Endpoint::Create, 0)).then_some(Reply::Drop))
        .start()
        .unwrap();
    let place = Place::new();
    let at = |place: &Place, patience| {
        let settings = settings(open_ai(simulator.url(), KEY), &place.state()).timeout(patience);
        run(&settings.build().unwrap(), ["a", "b"].map(ask))
    };
    let slow = settings(open_ai(simulator.url(), KEY), &place.state());
    let slow = slow.list_lag(Duration::from_mins(1));
    let is_lost = || simulator.count(Endpoint::List) > 0;
    assert!(run_until(is_lost, slow, ["a", "b"].map(ask)).1.is_err());
    let other = copied(&place.state());
    assert_answered(&at(&place, Duration::from_mins(1)).0, &["a", "b"]);
    let error = at(&other, Duration::from_hours(1)).1.unwrap_err();
    assert!(error.to_string().contains("copy of this state"), "{error}");
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 2));
}

/// A provider that does not take the first create, or loses its answer, and a state folder in which
/// that create is of unknown fate.
fn lost(shape: Shape, is_taken: bool) -> (Simulator, Place) {
    let (stop, place) = (Stop::new(), Place::new());
    let simulator = losing_the_first(is_taken, &stop);
    // So that there is something in the list before the create.
    simulator.plant_foreign(7);
    let stopped = settings(shape(simulator.url(), KEY), &place.state()).stop(stop);
    assert!(run(&stopped.build().unwrap(), ["a", "b"].map(ask)).1.is_err());
    (simulator, place)
}

fn go_on(
    shape: Shape,
    simulator: &Simulator,
    place: &Place,
    policy: OnAmbiguous,
) -> (Vec<Outcome>, Result<Run, Error>) {
    let settings = settings(shape(simulator.url(), KEY), &place.state()).on_ambiguous(policy);
    run(&settings.build().unwrap(), ["a", "b"].map(ask))
}

fn is_held(held: &(Vec<Outcome>, Result<Run, Error>), why: &str) -> bool {
    let (outcomes, ended) = held;
    let is_held = matches!(ended, Err(Error::Ambiguous { requests: 2, .. }));
    let is_told = ended.as_ref().is_err_and(|error| error.to_string().contains(why));
    outcomes.is_empty() && is_held && is_told
}

const COPIED: &str = "was copied, moved or restored";

/// Has an intent say of the folder that it was written in what one of before says: the same under another
/// key, or what was made of the folder in another way.
fn name_the_place_as_before(place: &Place, is_same: bool) {
    let path = place.state().join("000001.intent.json");
    let mut intent: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let intent = intent.as_object_mut().unwrap();
    let folder = intent.remove("folder").unwrap();
    intent.insert("place".to_owned(), if is_same { folder } else { json!("0123456789abcdef") });
    fs::write(path, serde_json::to_string(intent).unwrap()).unwrap();
}

/// Each of two copies found it absent, and sent it again.
#[test]
fn a_lost_create_is_sent_again_from_its_own_folder_and_not_from_a_copy() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, false);
        let copy = copied(&place.state());
        let held = go_on(shape, &simulator, &copy, OnAmbiguous::Hold);
        assert!(is_held(&held, COPIED), "{held:?}");
        assert_eq!(simulator.count(Endpoint::Create), 1);
        // Renamed, it is the same folder.
        fs::rename(place.state(), place.path().join("renamed")).unwrap();
        fs::rename(place.path().join("renamed"), place.state()).unwrap();
        assert_answered(&go_on(shape, &simulator, &place, OnAmbiguous::Hold).0, &["a", "b"]);
        // What another one has sent is not what this one has lost.
        let (outcomes, ended) = go_on(shape, &simulator, &copy, OnAmbiguous::Hold);
        assert!(outcomes.is_empty() && matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 2));
    }
}

/// The first folder is gone, and it had sent it again once already.
#[test]
fn a_create_that_was_lost_twice_is_sent_from_a_moved_folder_where_that_is_asked_for() {
    for shape in SHAPES {
        let (stop, place) = (Stop::new(), Place::new());
        let hand = stop.clone();
        let losing = move |call: &Call<'_>| {
            let nth = (call.endpoint == Endpoint::Create).then_some(call.nth)?;
            if nth == 1 {
                hand.stop();
            }
            (nth < 2).then_some(Reply::Drop)
        };
        let simulator = Simulator::builder().before(losing).start().unwrap();
        simulator.plant_foreign(7);
        let first = settings(shape(simulator.url(), KEY), &place.state()).stop(stop);
        let first = first.on_ambiguous(OnAmbiguous::Resubmit).build().unwrap();
        assert!(run(&first, ["a", "b"].map(ask)).1.is_err());
        drop(first);
        let copy = copied(&place.state());
        drop(place);
        let held = go_on(shape, &simulator, &copy, OnAmbiguous::Hold);
        assert!(is_held(&held, COPIED), "{held:?}");
        let (outcomes, ended) = go_on(shape, &simulator, &copy, OnAmbiguous::Resubmit);
        assert_answered(&outcomes, &["a", "b"]);
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (3, 2));
        assert!(ended.unwrap().accounting.possibly_paid_twice > 0);
    }
}

#[test]
fn a_lost_create_that_is_there_is_found_from_a_copy_too() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, true);
        for place in [&copied(&place.state()), &place] {
            let (outcomes, ended) = go_on(shape, &simulator, place, OnAmbiguous::Hold);
            assert_answered(&outcomes, &["a", "b"]);
            ended.unwrap();
        }
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 2));
    }
}

/// Who knows that there is no other copy says so.
#[test]
fn a_folder_that_was_moved_sends_a_lost_create_again_where_that_is_allowed_by_name() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, false);
        let moved = copied(&place.state());
        drop(place);
        let (outcomes, ended) = go_on(shape, &simulator, &moved, OnAmbiguous::Resubmit);
        assert_answered(&outcomes, &["a", "b"]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.possibly_paid_twice, simulator.count(Endpoint::Create)), (2, 2));
    }
}

/// An intent of before does not say from where it was sent. Whoever reads that the folder was copied
/// looks for a copy that there is not.
#[test]
fn a_lost_create_of_an_unknown_folder_is_not_sent_again_and_not_said_to_be_copied() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, false);
        name_the_place_as_before(&place, false);
        let held = go_on(shape, &simulator, &place, OnAmbiguous::Hold);
        assert!(is_held(&held, "before folders were told apart"), "{held:?}");
        assert!(!is_held(&held, "copied, moved"), "{held:?}");
        assert_eq!(simulator.count(Endpoint::Create), 1);
        let (outcomes, ended) = go_on(shape, &simulator, &place, OnAmbiguous::Resubmit);
        assert_answered(&outcomes, &["a", "b"]);
        assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 2);
    }
}

/// The key had another name, and what was lost was held after an update.
#[test]
fn a_lost_create_of_a_folder_that_was_named_by_an_earlier_build_is_sent_again() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, false);
        name_the_place_as_before(&place, true);
        let copy = copied(&place.state());
        assert!(go_on(shape, &simulator, &copy, OnAmbiguous::Hold).0.is_empty());
        assert_eq!(simulator.count(Endpoint::Create), 1);
        assert_answered(&go_on(shape, &simulator, &place, OnAmbiguous::Hold).0, &["a", "b"]);
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 2));
    }
}

/// The lost create was sent again after the backup: with the same folder it was sent once more.
#[test]
fn a_lost_create_is_not_sent_again_from_a_folder_that_was_put_back_from_a_backup() {
    for shape in SHAPES {
        let (simulator, place) = lost(shape, false);
        let backup = copied(&place.state());
        assert_answered(&go_on(shape, &simulator, &place, OnAmbiguous::Hold).0, &["a", "b"]);
        restore(&backup.state(), &place.state());
        let (outcomes, ended) = go_on(shape, &simulator, &place, OnAmbiguous::Hold);
        assert!(outcomes.is_empty() && matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 2));
    }
}

/// The other one is about to send it: its create would have failed.
#[test]
fn a_copy_leaves_the_uploads_of_its_original_alone() {
    let (stop, hand) = (Stop::new(), Mutex::new(None::<Stop>));
    *hand.lock().unwrap() = Some(stop.clone());
    let simulator = Simulator::builder()
        .before(move |call| {
            let is_first = (call.endpoint, call.nth) == (Endpoint::Create, 0);
            is_first.then(|| hand.lock().unwrap().take().unwrap().stop())?;
            Some(Reply::json(429, &json!({"error": {"message": "too many"}})))
        })
        .start()
        .unwrap();
    let place = Place::new();
    let stopped = settings(open_ai(simulator.url(), KEY), &place.state()).stop(stop);
    assert!(run(&stopped.build().unwrap(), ["a", "b"].map(ask)).1.is_err());
    let deleted = || {
        let calls = simulator.server().seen();
        calls.iter().filter(|call| call.method == "DELETE").count()
    };
    let copy = copied(&place.state());
    assert_answered(&go_on(open_ai, &simulator, &copy, OnAmbiguous::Hold).0, &["a", "b"]);
    assert_eq!(deleted(), 0);
    // From its own folder it is of no use any more.
    assert_answered(&go_on(open_ai, &simulator, &place, OnAmbiguous::Hold).0, &["a", "b"]);
    assert_eq!(deleted(), 1);
}
