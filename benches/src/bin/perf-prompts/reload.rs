//! One changed file of a hundred beside a full load of all: found by asking each for its time, and told
//! by somebody who knows, as the system tells the watch.
//!
//! Each change comes when the ones before it are so long ago that no tick of the clock can hide another;
//! a look that comes earlier reads those files once more. A full load compiles its first file with cold
//! caches and 99 with warm ones, and no file has just been written, which leaves caches colder than anything
//! that is measured here. So that a reload is measured on the same terms, both files are written first, and
//! that of another folder is reloaded right before.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use benches::prompts;
use prompt_templates::Prompts;
use tempfile::TempDir;

use crate::rounds::thread_nanos;
use crate::{Fallible, Figure};

const FILES: usize = 100;

const ROUNDS: usize = 15;

/// Longer than a file that has changed is read at every look.
const DOUBT: Duration = Duration::from_millis(150);

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let (warm, measured) = (Folder::new(1)?, Folder::new(FILES)?);
    let (mut reloads, mut told, mut loads) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        while start.elapsed() < DOUBT {
            std::thread::park_timeout(DOUBT);
        }
        for _ in 0..10 {
            assert_eq!(measured.store.reload_if_changed()?, None);
        }
        let (file, other) = (measured.write(round, "a", round)?, warm.write(0, "a", round)?);
        warm.reload()?;
        reloads.push(measured.reload()?);
        measured.write(round, "b", round)?;
        warm.write(0, "b", round)?;
        warm.reload_told(&other)?;
        told.push(measured.reload_told(&file)?);
        loads.push(measured.load()?);
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

struct Folder {
    dir: TempDir,
    store: Prompts,
}

impl Folder {
    fn new(files: usize) -> Fallible<Self> {
        let dir = tempfile::tempdir()?;
        for n in 0..files {
            fs::write(file(&dir, n), format!("{}{n}", prompts::large()))?;
        }
        let store = Prompts::load_dir(dir.path())?;
        Ok(Self { dir, store })
    }

    /// Writes a new text into a file, which it returns.
    fn write(&self, n: usize, mark: &str, round: usize) -> Fallible<PathBuf> {
        let file = file(&self.dir, n);
        fs::write(&file, format!("{}changed in round {round}{mark}", prompts::large()))?;
        Ok(file)
    }

    /// Returns the time of a poll that finds one changed file.
    fn reload(&self) -> Fallible<f64> {
        let start = thread_nanos();
        let reload = self.store.reload_if_changed()?;
        let time = thread_nanos() - start;
        assert_eq!(reload.map(|reload| reload.changed), Some(1));
        Ok(time)
    }

    /// Returns the time of a reload of one file that is said to have changed.
    fn reload_told(&self, file: &Path) -> Fallible<f64> {
        let start = thread_nanos();
        let reload = self.store.reload_files(&[file])?;
        let time = thread_nanos() - start;
        assert_eq!(reload.map(|reload| reload.changed), Some(1));
        Ok(time)
    }

    /// Returns the time of a load of all files.
    fn load(&self) -> Fallible<f64> {
        let start = thread_nanos();
        let all = Prompts::load_dir(self.dir.path())?;
        let time = thread_nanos() - start;
        assert_eq!(black_box(all).len(), FILES);
        Ok(time)
    }
}

fn file(dir: &TempDir, n: usize) -> PathBuf {
    dir.path().join(format!("template-{n}.prompt.md"))
}
