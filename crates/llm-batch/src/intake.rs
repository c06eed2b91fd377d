//! When creates may go out: what providers limit is the account, and the queue of each model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cooldown::Cooldown;

/// How long to wait at first where the provider's queue is full.
pub(crate) const CROWDED: Duration = Duration::from_secs(30);

/// What all who create batches share.
#[derive(Debug)]
pub(crate) struct Intake {
    doors: Mutex<Doors>,
    interval: Option<Duration>,
}

#[derive(Debug)]
struct Doors {
    account: Cooldown,
    /// That of each model whose queue was ever full.
    queues: BTreeMap<String, Cooldown>,
}

impl Intake {
    pub(crate) fn new(interval: Option<Duration>) -> Intake {
        let doors = Doors { account: Cooldown::new(interval), queues: BTreeMap::new() };
        Intake { doors: Mutex::new(doors), interval }
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a create for a model go out, or returns the moment before which none does.
    pub(crate) fn enter(&self, model: &str) -> Result<(), Instant> {
        let (now, mut doors) = (Instant::now(), self.doors());
        let Doors { account, queues } = &mut *doors;
        let queue = queues.get_mut(model);
        let untils = [account.until(now), queue.as_ref().and_then(|queue| queue.until(now))];
        if let Some(until) = untils.into_iter().max().flatten() {
            return Err(until);
        }
        account.enter(now);
        if let Some(queue) = queue {
            queue.enter(now);
        }
        Ok(())
    }

    /// Notes that a create that was to go out did not.
    pub(crate) fn leave(&self, model: &str) {
        let mut doors = self.doors();
        doors.account.leave();
        if let Some(queue) = doors.queues.get_mut(model) {
            queue.leave();
        }
    }

    /// Notes that the provider took a create.
    pub(crate) fn took(&self) {
        self.doors().account.went_well();
    }

    /// Notes that the account may create no more for now; returns until when.
    pub(crate) fn is_busy(&self, retry_after: Option<Duration>) -> Instant {
        let (now, mut doors) = (Instant::now(), self.doors());
        doors.account.went_badly(now, retry_after);
        doors.account.until(now).unwrap_or(now)
    }

    /// Notes that the queue of a model is full; returns until when nothing goes there.
    pub(crate) fn is_full(&self, model: &str) -> Instant {
        let (now, mut doors) = (Instant::now(), self.doors());
        let interval = Some(self.interval.unwrap_or(CROWDED));
        let queue = || Cooldown::new(interval).hearing_late();
        let queue = doors.queues.entry(model.to_owned()).or_insert_with(queue);
        queue.went_badly(now, None);
        queue.until(now).unwrap_or(now)
    }

    /// Notes that a batch of a model has ended: there is room for about one.
    pub(crate) fn has_ended(&self, model: &str) {
        if let Some(queue) = self.doors().queues.get_mut(model) {
            queue.ease(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_keeps_back_what_goes_there_and_a_busy_account_everything() {
        let intake = Intake::new(None);
        let full = intake.is_full("m");
        assert_eq!(intake.enter("m"), Err(full));
        assert_eq!(intake.enter("other"), Ok(()));
        let busy = intake.is_busy(Some(Duration::from_hours(1)));
        assert_eq!(intake.enter("m"), Err(busy));
        assert_eq!(intake.enter("other"), Err(busy));
        intake.took();
        assert_eq!(intake.enter("other"), Err(busy), "what was asked for holds");
    }

    /// The next one waited for what nobody was about to hear.
    #[test]
    fn a_create_that_does_not_go_out_leaves_the_trial_to_the_next() {
        let intake = Intake::new(None);
        intake.is_full("m");
        intake.has_ended("m");
        let is_open = || intake.enter("m").is_ok();
        assert!(is_open() && !is_open(), "one goes first");
        intake.leave("m");
        assert!(is_open() && !is_open());
    }

    #[test]
    fn a_batch_that_ends_makes_room_for_one_in_a_full_queue() {
        let intake = Intake::new(None);
        intake.has_ended("m");
        intake.is_full("m");
        intake.has_ended("m");
        assert_eq!(intake.enter("m"), Ok(()));
        assert!(intake.enter("m").is_err());
        intake.has_ended("m");
        assert_eq!([(); 9].map(|()| intake.enter("m")), [Ok(()); 9], "it is not full any more");
    }
}
