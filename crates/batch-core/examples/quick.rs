//! Ten threads look words up; the dictionary is asked in batches.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::thread;

use batch_core::{Batcher, batch_fn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dictionary = HashMap::from([("commit", 6), ("push", 4), ("merge", 5)]);
    let look_up = move |words: &[&'static str]| {
        words.iter().map(|word| Ok::<_, Infallible>(dictionary.get(word).copied())).collect()
    };
    let batcher = Batcher::new(batch_fn(look_up))?;
    thread::scope(|scope| {
        for word in ["commit", "push", "merge", "rebase"].into_iter().cycle().take(100) {
            let batcher = &batcher;
            scope.spawn(move || batcher.submit(word).map(batch_core::Ticket::wait));
        }
    });
    let stats = batcher.stats();
    println!("{} look-ups in {} calls", stats.completed, stats.calls);
    assert!(stats.calls <= stats.completed);
    Ok(())
}
