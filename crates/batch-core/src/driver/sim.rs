//! A simulation: one thread, a clock of its own, and one seed for every choice.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::batcher::Batcher;
use crate::builder::Builder;
use crate::clock::{ManualClock, duration};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::processor::BatchProcessor;
use crate::sync::Arc;

/// Runs a batcher step by step on the calling thread, the same way for the same seed.
///
/// Nothing happens but in [`step`](Self::step): batches are processed there and time passes there,
/// on a clock of the simulation. A submit to a full batcher is refused and a close does not wait, as
/// nobody else could make room. With a processor whose choices come from the seed too, a run that
/// found a fault is found again by its seed.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use batch_core::{Batcher, Progress, Sim, batch_fn};
///
/// let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
/// let builder = Batcher::builder(double).linger(Duration::from_secs(5));
/// let (batcher, mut sim) = Sim::new(builder, 42)?;
/// let ticket = batcher.submit(21)?;
/// assert_eq!(sim.step(), Progress::Waited(Duration::from_secs(5)));
/// assert!(matches!(sim.step(), Progress::Ran));
/// assert_eq!(ticket.try_get()??, 42);
/// assert_eq!(sim.step(), Progress::Idle);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sim<P: BatchProcessor> {
    engine: Arc<Engine<P>>,
    clock: ManualClock,
    random: u64,
}

/// What one step of a simulation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It ran a batch.
    Ran,
    /// It let so much time pass, up to the next timer.
    Waited(Duration),
    /// Nothing is ready and no timer is set.
    Idle,
}

impl<P: BatchProcessor> Sim<P> {
    /// Makes a batcher and the simulation that runs it. The builder's driver and clock are
    /// replaced, and its seed.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(builder: Builder<P>, seed: u64) -> io::Result<(Batcher<P>, Self)> {
        let clock = ManualClock::new();
        let builder = builder.seed(seed).clock(clock.clone()).driver(Driver::Stepped);
        let batcher = builder.build()?;
        let sim = Self { engine: batcher.share_engine(), clock, random: seed };
        Ok((batcher, sim))
    }

    /// Returns the clock of the simulation, which can be moved by hand between steps.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Runs the next batch, or lets time pass to the next timer; draws which, where both are
    /// possible.
    pub fn step(&mut self) -> Progress {
        let timer = self.engine.next_timer();
        if self.engine.has_ready() && (timer.is_none() || !self.draw().is_multiple_of(4)) {
            self.engine.run_next();
            return Progress::Ran;
        }
        let Some(timer) = timer else { return Progress::Idle };
        let wait = duration(timer.saturating_sub(self.engine.now()));
        self.clock.advance(wait);
        Progress::Waited(wait)
    }

    /// Steps until nothing is ready and no timer is set, or `max` steps are done; says whether it
    /// came to rest.
    pub fn run(&mut self, max: usize) -> bool {
        (0..max).any(|_| self.step() == Progress::Idle)
    }

    /// Draws the next random number (`SplitMix64`).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

impl<P: BatchProcessor> fmt::Debug for Sim<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("now", &duration(self.engine.now())).finish_non_exhaustive()
    }
}
