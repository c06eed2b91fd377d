//! What the system says of a file or folder, and since when.

use std::time::{Duration, Instant};

/// How long a stamp has to be known before the same stamp means that nothing has changed. Linux stamps
/// with a clock that stands still for up to 10 ms, and for longer where a virtual machine is held up.
const FINE: Duration = Duration::from_millis(100);

/// The same where the clock may count seconds, or two of them, as that of FAT does.
const COARSE: Duration = Duration::from_secs(3);

/// What changes when a file or folder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Seconds and nanoseconds.
    pub(crate) modified: (i128, i128),
    /// When the system last changed it: a tool that keeps times cannot keep this one.
    pub(crate) changed: (i128, i128),
    pub(crate) length: i128,
    /// Device and number.
    pub(crate) node: (i128, i128),
}

impl Stamp {
    /// Returns how long after it was first seen a change could still leave it as it is.
    fn doubt(&self) -> Duration {
        if self.modified.1 == 0 && self.changed.1 == 0 { COARSE } else { FINE }
    }
}

/// A stamp, and since when it has been the same.
///
/// A file may be written twice within one tick of its file system's clock, and read in between: the
/// stamp does not tell. So what was read is sure only if the reading began when the stamp had been known
/// for more than a tick. Only time that has passed here is measured: the clock of the file system may
/// be another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    pub(crate) stamp: Option<Stamp>,
    /// After the stamp was first seen, never before.
    since: Instant,
    is_sure: bool,
}

/// What a new look at a file or folder tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Changed,
    /// It may have changed since it was last read.
    Unsure,
    Same,
}

impl Sighting {
    /// Something that nobody has looked at.
    pub(crate) fn none(now: Instant) -> Self {
        Self { stamp: None, since: now, is_sure: false }
    }

    /// Takes in what is seen now, by a look that began at `start`; what is not [`News::Same`] is read
    /// after it. What cannot be asked stays the same as long as it cannot.
    pub(crate) fn update(
        &mut self,
        stamp: Option<Stamp>,
        start: Instant,
        clock: &dyn Fn() -> Instant,
    ) -> News {
        if self.stamp != stamp {
            *self = Self { stamp, since: clock(), is_sure: false };
            return News::Changed;
        }
        match stamp {
            Some(stamp) if !self.is_sure => {
                self.is_sure = start.saturating_duration_since(self.since) > stamp.doubt();
                News::Unsure
            }
            _ => News::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(nanos: i128) -> Stamp {
        Stamp { modified: (1, nanos), changed: (1, nanos), length: 1, node: (1, 1) }
    }

    #[test]
    fn a_stamp_is_in_doubt_until_it_has_been_known_for_longer_than_a_tick() {
        for (nanos, doubt) in [(5, FINE), (0, COARSE)] {
            let start = Instant::now();
            let mut sighting = Sighting::none(start);
            let mut look = |after: Duration| {
                sighting.update(Some(stamp(nanos)), start + after, &|| start + after)
            };
            assert_eq!(look(Duration::ZERO), News::Changed);
            assert_eq!(look(doubt), News::Unsure);
            // The last reading is the first that is sure.
            assert_eq!(look(doubt + Duration::from_nanos(1)), News::Unsure);
            assert_eq!(look(doubt + Duration::from_nanos(2)), News::Same);
        }
    }

    /// A look takes time: what changes in the middle of it is not as old as the look.
    #[test]
    fn a_stamp_is_known_since_it_was_seen_and_not_since_the_look_began() {
        let start = Instant::now();
        let mut sighting = Sighting::none(start);
        let seen = start + COARSE * 2;
        assert_eq!(sighting.update(Some(stamp(0)), start, &|| seen), News::Changed);
        for _ in 0..2 {
            assert_eq!(sighting.update(Some(stamp(0)), seen + COARSE, &|| seen), News::Unsure);
        }
    }

    #[test]
    fn what_cannot_be_asked_is_the_same_until_it_can() {
        let start = Instant::now();
        let mut sighting = Sighting::none(start);
        let mut look = |stamp| sighting.update(stamp, start, &|| start);
        assert_eq!(look(None), News::Same);
        assert_eq!(look(Some(stamp(1))), News::Changed);
        assert_eq!(look(None), News::Changed);
        assert_eq!(look(None), News::Same);
    }
}
