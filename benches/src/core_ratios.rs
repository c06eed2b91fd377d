//! The engine beside what it is made of and beside other engines, in one process.
//!
//! Every case moves the same items: two clients with 500 items outstanding each, batches of 100, a
//! processor that does nothing but add one. The cases take turns, round by round, so that a busy
//! moment of the machine hits all of them; a figure is the lower quartile over the rounds. Each run of a case
//! checks the sum of its answers.

mod baselines;
mod clients;
mod keys;
mod ours;
mod peers;
mod rounds;
mod stats;
mod switches;

use std::error::Error;

use crate::alloc;
use rounds::Summary;

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// How often every case is run.
const ROUNDS: usize = 21;

/// What was measured: the figures for the gate, where more is better, and what they are made of.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Figures {
    /// Ratios, and budgets divided by what was used of them.
    pub gate: Vec<(&'static str, f64)>,
    /// Nanoseconds an item and counts, for reading.
    pub detail: Vec<(String, f64)>,
}

impl Figures {
    fn gate(&mut self, name: &'static str, value: f64) {
        self.gate.push((name, value));
    }

    fn detail(&mut self, name: &str, value: f64) {
        self.detail.push((name.to_owned(), value));
    }
}

/// Measures everything. Takes some ten seconds.
///
/// # Errors
/// A case could not be set up, or gave wrong answers.
pub fn measure() -> Fallible<Figures> {
    let mut figures = Figures::default();
    throughput(&mut figures)?;
    latency(&mut figures)?;
    switches(&mut figures)?;
    allocations(&mut figures)?;
    keys(&mut figures)?;
    stats(&mut figures)?;
    Ok(figures)
}

fn throughput(figures: &mut Figures) -> Fallible {
    let runtime = peers::runtime()?;
    let mut cases = vec![
        baselines::channel(),
        baselines::hand_over(),
        baselines::seed_design(),
        ours::submit()?,
        ours::submit_natural()?,
        ours::submit_all()?,
        ours::ticket_set_await(&runtime)?,
        peers::batch_aint_one(&runtime),
        peers::tower_batch_control(&runtime),
    ];
    let ns = rounds::take_turns(&mut cases, ROUNDS)?;
    report(figures, &ns);
    let ours = ns.of(ours::SUBMIT);
    let (aint_one, tower) = (ns.of(peers::BATCH_AINT_ONE), ns.of(peers::TOWER_BATCH_CONTROL));
    figures.gate("core_submit_vs_channel_send_and_recv", ns.of(baselines::CHANNEL) / ours);
    figures.gate("core_submit_vs_best_peer", aint_one.min(tower) / ours);
    figures.gate("core_submit_vs_batch_aint_one", aint_one / ours);
    figures.gate("core_submit_vs_tower_batch_control", tower / ours);
    figures.gate("core_submit_vs_seed_design", ns.of(baselines::SEED_DESIGN) / ours);
    let bulk = ns.of(baselines::HAND_OVER) / ns.of(ours::SUBMIT_ALL);
    figures.gate("core_submit_all_vs_vec_hand_over", bulk);
    let awaited = aint_one / ns.of(ours::TICKET_SET_AWAIT);
    figures.gate("core_ticket_set_await_vs_batch_aint_one", awaited);
    Ok(())
}

fn latency(figures: &mut Figures) -> Fallible {
    let mut cases = vec![
        ours::inline_round_trip()?,
        ours::thread_round_trip()?,
        ours::thread_round_trip_asleep()?,
    ];
    let ns = rounds::take_turns(&mut cases, ROUNDS)?;
    report(figures, &ns);
    let inline = ns.of(ours::INLINE_ROUND_TRIP);
    let ratio = ns.of(ours::THREAD_ROUND_TRIP) / inline;
    figures.gate("core_inline_vs_thread_round_trip", ratio);
    let ratio = ns.of(ours::THREAD_ROUND_TRIP_ASLEEP) / inline;
    figures.gate("core_inline_vs_thread_round_trip_asleep", ratio);
    Ok(())
}

fn switches(figures: &mut Figures) -> Fallible {
    let used = switches::per_thousand_items()?;
    figures.detail("context switches per 1,000 items", used);
    figures.gate("core_budget_of_15_switches_per_1000_items", 15.0 / used.max(0.1));
    Ok(())
}

fn allocations(figures: &mut Figures) -> Fallible {
    let mut case = ours::submit()?;
    (case.run)()?;
    let (process, run) = alloc::count_all(|| (case.run)());
    run?;
    let used = to_f64(process.allocations) / f64::from(clients::ITEMS);
    figures.detail("allocations per item", used);
    figures.gate("core_budget_of_1_allocation_per_20_items", 0.05 / used.max(0.001));
    Ok(())
}

fn keys(figures: &mut Figures) -> Fallible {
    let kept = keys::kept_bytes()?;
    figures.detail("bytes kept of a key that is gone", kept / f64::from(keys::KEYS));
    figures.gate("core_keys_gone_per_byte_kept", f64::from(keys::KEYS) / kept.max(1.0));
    Ok(())
}

fn stats(figures: &mut Figures) -> Fallible {
    let mut cases = vec![stats::beside_stats()?, stats::beside_other_work()?];
    let ns = rounds::take_turns(&mut cases, ROUNDS)?;
    report(figures, &ns);
    let ratio = ns.of(stats::BESIDE_OTHER_WORK) / ns.of(stats::BESIDE_STATS);
    figures.gate("core_submit_beside_stats_vs_beside_other_work", ratio);
    figures.gate("core_stats_reads_without_allocation", stats::reads_without_allocation()?);
    Ok(())
}

fn report(figures: &mut Figures, ns: &Summary) {
    for runs in ns.all() {
        figures.detail(&format!("ns an item: {}", runs.name), runs.lower_quartile);
        figures.detail(&format!("ns an item, median: {}", runs.name), runs.median);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
