//! Orders are sent in batches to a service that answers later, on another thread.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use batch_core::{BatchOf, BatchProcessor, Batcher, Close};

/// Hands its batches over and returns at once.
struct Orders {
    outbox: Sender<BatchOf<Orders>>,
}

impl BatchProcessor for Orders {
    type Key = &'static str;
    type Item = (&'static str, u32);
    type Output = String;
    type Error = String;

    fn key(&self, (customer, _): &Self::Item) -> Self::Key {
        customer
    }

    fn process(&self, _: &Self::Key, batch: BatchOf<Self>) {
        // A batch that nobody takes is dropped, and its tickets say so.
        drop(self.outbox.send(batch));
    }
}

/// Answers each order of each batch, in its own time.
fn answer(inbox: &Receiver<BatchOf<Orders>>) {
    for batch in inbox {
        for slot in batch.slots() {
            let (customer, amount) = slot.item();
            slot.resolve(match amount {
                0 => Err(format!("{customer} orders nothing")),
                _ => Ok(format!("{amount} to {customer}, as part of batch {}", batch.id())),
            });
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (outbox, inbox) = channel();
    let service = thread::spawn(move || answer(&inbox));
    // The answers may take as long as they like.
    let builder = Batcher::builder(Orders { outbox }).delivery_timeout(None);
    let batcher = builder.build()?;

    let tickets = batcher.submit_all([("ann", 3), ("bob", 1), ("ann", 0), ("ann", 7)])?;
    for outcome in tickets.wait() {
        match outcome {
            Ok(note) => println!("{note}"),
            Err(error) => println!("refused: {error}"),
        }
    }

    let report = batcher.close(Close::Drain, Duration::from_mins(1));
    assert_eq!((report.stats.completed, report.stats.failed), (3, 1));
    drop(batcher);
    service.join().map_err(|_| "the service panicked")?;
    Ok(())
}
