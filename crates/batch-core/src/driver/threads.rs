//! Threads of the engine's own.

use std::io;

use crate::engine::Engine;
use crate::processor::BatchProcessor;
use crate::sync::{Arc, spawn};

/// Starts the workers of an engine. After an error those that were started end with it.
pub(crate) fn start<P: BatchProcessor>(engine: &Arc<Engine<P>>, threads: usize) -> io::Result<()> {
    for worker in 0..threads {
        let engine = Arc::clone(engine);
        spawn("batch-core", move || engine.work(worker))?;
    }
    Ok(())
}
