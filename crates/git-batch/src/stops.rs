//! Points at which a test can kill the process, to see what the next one makes of it, and its clock.
//!
//! Without the feature `testing`, which only the tests of this crate use, they do nothing.

#[cfg(feature = "testing")]
use std::sync::Mutex;

#[cfg(feature = "testing")]
static STOP: Mutex<Option<(String, u32)>> = Mutex::new(None);

/// Kills the process with `SIGKILL` when it comes to the point `name` for the `nth` time.
#[cfg(feature = "testing")]
pub fn kill_at(name: &str, nth: u32) {
    let mut stop = STOP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *stop = Some((name.to_owned(), nth));
}

#[cfg(feature = "testing")]
static TIME: Mutex<Option<gix::date::Time>> = Mutex::new(None);

/// Stops the clock of all commits of this process, so that the same operations give the same ids.
#[cfg(feature = "testing")]
pub fn fix_time(seconds: i64) {
    let time = gix::date::Time { seconds, offset: 3600 };
    *TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(time);
}

/// The time of commits.
pub(crate) fn now() -> gix::date::Time {
    #[cfg(feature = "testing")]
    if let Some(time) = *TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return time;
    }
    gix::date::Time::now_local_or_utc()
}

#[cfg(feature = "testing")]
static HURRIED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Lets this process hardly wait before it tries something again.
#[cfg(feature = "testing")]
pub fn hurry() {
    HURRIED.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// How long to wait that would be `pause`.
pub(crate) fn waited(pause: std::time::Duration) -> std::time::Duration {
    #[cfg(feature = "testing")]
    if HURRIED.load(std::sync::atomic::Ordering::SeqCst) {
        return pause / 100;
    }
    pause
}

/// Marks a point.
#[cfg(feature = "testing")]
pub(crate) fn reach(name: &str) {
    crate::disk::note(|| crate::disk::Change::Reach(name.to_owned()));
    let mut stop = STOP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((wanted, left)) = &mut *stop else { return };
    if wanted != name {
        return;
    }
    *left = left.saturating_sub(1);
    if *left == 0 {
        let id = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-s", "KILL", &id]).status();
        loop {
            std::thread::park();
        }
    }
}

/// Marks a point.
#[cfg(not(feature = "testing"))]
pub(crate) fn reach(_: &str) {}
