//! What an engine cannot beat by much, and the design that the project began with.

use std::thread;

use crossbeam_channel::{Sender, bounded};

use super::clients::{self, BATCH, ITEMS, OUTSTANDING, WAVES, answer, wave};
use super::rounds::{Case, per_item};
use crate::seed_port::SeedBatcher;

pub(super) const CHANNEL: &str = "crossbeam bounded(1024) send and recv";
pub(super) const HAND_OVER: &str = "Vec of 100 to a thread and back";
pub(super) const SEED_DESIGN: &str = "the seed's design";

/// One thread sends every item, one receives it; nothing comes back.
pub(super) fn channel() -> Case {
    Case::new(CHANNEL, || {
        let (sender, receiver) = bounded::<u64>(1024);
        let started = std::time::Instant::now();
        let consumer = thread::spawn(move || receiver.iter().map(answer).sum());
        for _ in 0..ITEMS / OUTSTANDING {
            for item in wave() {
                sender.send(item)?;
            }
        }
        drop(sender);
        let sum = consumer.join().map_err(|_| "the consumer panicked")?;
        per_item(started.elapsed(), ITEMS, sum, clients::expected())
    })
}

/// What a caller would write by hand who has the items of a batch together already.
pub(super) fn hand_over() -> Case {
    let (sender, receiver) = bounded::<(Vec<u64>, Sender<Vec<u64>>)>(64);
    thread::spawn(move || {
        for (mut items, reply) in receiver {
            for item in &mut items {
                *item = answer(*item);
            }
            // A client that is gone needs no answer.
            let _ = reply.send(items);
        }
    });
    Case::new(HAND_OVER, move || {
        clients::run(|| {
            let (reply, replies) = bounded(64);
            let mut sum = 0;
            for _ in 0..WAVES {
                let mut items = wave();
                for _ in 0..OUTSTANDING / BATCH {
                    let batch: Vec<u64> = items.by_ref().take(BATCH as usize).collect();
                    sender.send((batch, reply.clone()))?;
                }
                for _ in 0..OUTSTANDING / BATCH {
                    sum += replies.recv()?.into_iter().sum::<u64>();
                }
            }
            Ok(sum)
        })
    })
}

pub(super) fn seed_design() -> Case {
    let batcher = SeedBatcher::start(BATCH as usize, answer);
    Case::new(SEED_DESIGN, move || {
        clients::run(|| {
            let mut results = Vec::with_capacity(OUTSTANDING as usize);
            let mut sum = 0;
            for _ in 0..WAVES {
                results.extend(wave().map(|item| batcher.enqueue(item)));
                for result in results.drain(..) {
                    sum += result.recv()?;
                }
            }
            Ok(sum)
        })
    })
}
