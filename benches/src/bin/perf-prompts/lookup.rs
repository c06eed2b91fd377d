//! Lookups, counted as renders, from one thread and from two.

use std::hint::black_box;
use std::sync::Barrier;

use prompt_templates::{Context, Prompts};

use crate::rounds::thread_nanos;
use crate::{Fallible, Figure};

const TEMPLATES: usize = 100;

/// Lookups of one thread in a round: about a millisecond, so that both run at the same time.
const LOOKUPS: usize = 20_000;

const ROUNDS: usize = 81;

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let prompts = Prompts::builder().capacity(TEMPLATES).build()?;
    let names: Vec<String> = (0..TEMPLATES).map(|n| format!("template-{n}")).collect();
    for name in &names {
        prompts.compile(name, "x")?;
    }
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(run(&prompts, &names, 1));
        two.push(run(&prompts, &names, 2));
    }
    // The tenth part: that both threads have a core for themselves is rare on a machine that is busy.
    let decile = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[ROUNDS / 10]
    };
    let ratio = decile(two) / decile(one);
    Ok(vec![Figure { name: "prompts_lookup_two_threads_vs_one", ratio }])
}

/// Returns the processor time of one lookup.
fn run(prompts: &Prompts, names: &[String], threads: usize) -> f64 {
    let start = Barrier::new(threads);
    let look_up = || {
        let (context, mut text) = (Context::new(), String::with_capacity(8));
        start.wait();
        let before = thread_nanos();
        for n in 0..LOOKUPS {
            let name = &names[n % names.len()];
            prompts.render_into(name, &context, &mut text).expect("it is there");
            black_box(&text);
        }
        thread_nanos() - before
    };
    let nanos: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(look_up)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no look-up panics")).sum()
    });
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let lookups = (LOOKUPS * threads) as f64;
    nanos / lookups
}
