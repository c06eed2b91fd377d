//! One changed file of a hundred beside a full load of all: found by asking each for its time, and told
//! by somebody who knows, as the system tells the watch.
//!
//! Each change comes when the ones before it are so long ago that no tick of the clock can hide another;
//! a look that comes earlier reads those files once more.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use benches::prompts;
use prompt_templates::Prompts;

use crate::rounds::thread_nanos;
use crate::{Fallible, Figure};

const FILES: usize = 100;

const ROUNDS: usize = 15;

/// Longer than a file that has changed is read at every look.
const DOUBT: Duration = Duration::from_millis(150);

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let file = |n: usize| dir.path().join(format!("template-{n}.prompt.md"));
    let text = prompts::large();
    for n in 0..FILES {
        fs::write(file(n), format!("{text}{n}"))?;
    }
    let store = Prompts::load_dir(dir.path())?;
    let (mut reloads, mut told, mut loads) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        while start.elapsed() < DOUBT {
            std::thread::park_timeout(DOUBT);
        }
        // What ran meanwhile has left its own data in the caches.
        for _ in 0..10 {
            assert_eq!(store.reload_if_changed()?, None);
        }
        fs::write(file(round), format!("{text}changed in round {round}"))?;
        let start = thread_nanos();
        let reload = store.reload_if_changed()?;
        reloads.push(thread_nanos() - start);
        assert_eq!(reload.map(|reload| reload.changed), Some(1));

        fs::write(file(round), format!("{text}changed again in round {round}"))?;
        let start = thread_nanos();
        let reload = store.reload_files(&[file(round)])?;
        told.push(thread_nanos() - start);
        assert_eq!(reload.map(|reload| reload.changed), Some(1));

        let start = thread_nanos();
        let all = Prompts::load_dir(dir.path())?;
        loads.push(thread_nanos() - start);
        assert_eq!(black_box(all).len(), FILES);
    }
    let quartile = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[ROUNDS / 4]
    };
    let loads = quartile(loads);
    let figure = |name, all| Figure { name, ratio: quartile(all) / loads };
    Ok(vec![
        figure("prompts_reload_of_1_in_100_vs_full_load", reloads),
        figure("prompts_reload_of_1_told_in_100_vs_full_load", told),
    ])
}
