//! How often threads give up the processor.

use std::fs;
use std::sync::Barrier;
use std::thread;

use super::clients::{CLIENTS, ITEMS, LINGER};
use super::{Fallible, ours, to_f64};

/// Runs of which the median is taken.
const RUNS: usize = 5;

/// Returns the context switches of all threads per 1,000 items, with clients that block: those of
/// threads that sleep, and those of threads that let others run or have to.
pub(super) fn per_thousand_items() -> Fallible<f64> {
    let mut runs = (0..RUNS).map(|_| one_run()).collect::<Fallible<Vec<f64>>>()?;
    runs.sort_by(f64::total_cmp);
    Ok(runs[RUNS / 2])
}

fn one_run() -> Fallible<f64> {
    let batcher = ours::builder().linger(LINGER).build()?;
    let parties = CLIENTS as usize + 1;
    let (start, end, over) = (Barrier::new(parties), Barrier::new(parties), Barrier::new(parties));
    let (before, after, failed) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let sum = ours::submit_and_wait(&batcher);
                    end.wait();
                    // The count of a thread is gone with it.
                    over.wait();
                    sum.is_err()
                })
            })
            .collect();
        let before = switches();
        start.wait();
        end.wait();
        let after = switches();
        over.wait();
        let failed = clients.into_iter().any(|client| client.join().unwrap_or(true));
        (before, after, failed)
    });
    if failed {
        return Err("a client failed".into());
    }
    Ok(to_f64(after?.saturating_sub(before?)) * 1_000.0 / f64::from(ITEMS))
}

/// Adds up the counts of all threads of this process.
fn switches() -> Fallible<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may end between the two.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        let count = |kind| status.lines().find_map(|line| line.strip_prefix(kind));
        for kind in ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"] {
            sum += count(kind).ok_or("no count of context switches")?.trim().parse::<u64>()?;
        }
    }
    Ok(sum)
}
