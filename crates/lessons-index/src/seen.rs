//! What a file was when it was read, and whether it still is.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::opened::Identity;

/// Bytes before the place of reading that are compared before it is trusted.
const WINDOW_BYTES: usize = 4096;

/// Two changes closer to each other than this can have one time: file systems stamp a file with a
/// clock that stands still between two ticks.
const TICK: Duration = Duration::from_millis(20);

/// The same where times are whole seconds, as they seem to be.
const LONG_TICK: Duration = Duration::from_secs(2);

/// Is the metadata of a file, and when it was looked at.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) metadata: Metadata,
    at: SystemTime,
}

impl Look {
    /// Looks at an open file; call it before reading.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let at = SystemTime::now();
        Ok(Self { metadata: file.metadata()?, at })
    }

    /// Looks at whatever file stands under a name.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let at = SystemTime::now();
        Ok(Self { metadata: fs::metadata(path)?, at })
    }

    pub(crate) fn len(&self) -> u64 {
        self.metadata.len()
    }

    /// Returns whether the file may have changed between this look and a later one.
    pub(crate) fn is_changed(&self, later: &Self) -> bool {
        let state = |look: &Self| (look.len(), changed(&look.metadata));
        state(self) != state(later) || !self.is_settled()
    }

    /// Returns whether a change after this look shows in the time of the file.
    fn is_settled(&self) -> bool {
        let (seconds, nanos) = changed(&self.metadata);
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u64::try_from(nanos)) else {
            return false;
        };
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        is_past(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos)), at)
    }
}

/// Is a file as far as it was read.
pub(crate) struct Seen {
    identity: Identity,
    /// When it was created, where the file system says: the number of a file that was removed is
    /// given to the next.
    born: Option<SystemTime>,
    /// Bytes that are read.
    pub(crate) offset: u64,
    /// The last of them.
    pub(crate) window: Vec<u8>,
    /// When the file was changed last; `None` if it may have been changed since without another
    /// time. It is the time that no program can set, unlike that of the last write.
    changed: Option<(i64, i64)>,
    /// Whether what was read was in the file at no one time.
    pub(crate) is_mixed: bool,
}

impl Seen {
    /// Notes that a file was read up to `offset`, which ends with `window`.
    pub(crate) fn new(look: &Look, offset: u64, window: Vec<u8>) -> Self {
        let is_sure = look.len() == offset && look.is_settled();
        Self {
            identity: Identity::of(&look.metadata),
            born: look.metadata.created().ok(),
            offset,
            window,
            changed: is_sure.then(|| changed(&look.metadata)),
            is_mixed: false,
        }
    }

    pub(crate) fn is_same_file(&self, now: &Metadata) -> bool {
        self.identity == Identity::of(now) && self.born == now.created().ok()
    }

    /// Returns whether a file is the one that was read, to its end and as it was, without a look
    /// into it.
    pub(crate) fn is_unchanged(&self, now: &Metadata) -> bool {
        !self.is_mixed
            && self.is_same_file(now)
            && self.offset == now.len()
            && self.changed == Some(changed(now))
    }

    /// Returns whether nothing can have changed without another time.
    pub(crate) fn is_sure(&self) -> bool {
        self.changed.is_some()
    }

    /// Returns whether the bytes before the place of reading are still those that were read.
    pub(crate) fn holds(&self, file: &File) -> bool {
        if self.is_mixed {
            return false;
        }
        let mut now = vec![0; self.window.len()];
        let from = self.offset - self.window.len() as u64;
        file.read_exact_at(&mut now, from).is_ok() && now == self.window
    }
}

/// Keeps the last bytes of what was read.
pub(crate) fn slide(window: &mut Vec<u8>, bytes: &[u8]) {
    window.extend_from_slice(&bytes[bytes.len().saturating_sub(WINDOW_BYTES)..]);
    window.drain(..window.len().saturating_sub(WINDOW_BYTES));
}

/// Returns whether a change at a time `at` gets another time than one before it.
fn is_past(changed: Duration, at: Duration) -> bool {
    let tick = if changed.subsec_nanos() == 0 { LONG_TICK } else { TICK };
    changed.saturating_add(tick) < at
}

fn changed(metadata: &Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_whole_seconds_says_less() {
        let at = Duration::from_millis;
        assert!(!is_past(at(10_000), at(11_900)));
        assert!(is_past(at(10_000), at(12_001)));
        assert!(!is_past(at(10_001), at(10_020)));
        assert!(is_past(at(10_001), at(10_022)));
    }

    #[test]
    fn a_file_that_changed_a_moment_ago_is_looked_into() {
        let file = tempfile::tempfile().unwrap();
        let mut look = Look::of(&file).unwrap();
        let changed = look.metadata.modified().unwrap();
        for (later, is_sure) in [(0, false), (10, false), (30, true), (10_000, true)] {
            look.at = changed + Duration::from_millis(later);
            let seen = Seen::new(&look, 0, Vec::new());
            assert_eq!(seen.is_unchanged(&look.metadata), is_sure, "{later} ms later");
        }
        // A clock that runs behind that of the file system tells nothing.
        look.at = changed - Duration::from_secs(1);
        assert!(!Seen::new(&look, 0, Vec::new()).is_sure());
        // It grew while it was read.
        look.at = changed + Duration::from_secs(10);
        assert!(!Seen::new(&look, 7, Vec::new()).is_sure());
    }
}
