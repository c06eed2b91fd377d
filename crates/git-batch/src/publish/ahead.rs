//! What a push will need to know of its remote, asked while something else is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::PublishError;
use super::remote::{RemoteState, Untracked, remote_refs};
use crate::program::Git;

/// How old a list of refs may be when it is needed: to push by one that is older is a trip for nothing
/// more often.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Questions that a thread of their own asks. Two processes, one if the refs are known.
#[derive(Debug)]
pub(crate) struct Ahead {
    answers: Option<JoinHandle<Answers>>,
    /// Set when nobody needs them any more.
    stop: Arc<AtomicBool>,
    /// How many processes it takes.
    pub(crate) processes: u32,
}

/// What came of them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Nothing if it failed.
    pub(crate) settings: Option<Untracked>,
    /// And when they were there.
    refs: Option<(Result<RemoteState, PublishError>, Instant)>,
}

impl Answers {
    /// What the remote has, if that was asked just now, or why it did not say so.
    pub(crate) fn refs(self) -> Option<Result<RemoteState, PublishError>> {
        let (refs, listed) = self.refs?;
        (refs.is_err() || listed.elapsed() < MAX_AGE).then_some(refs)
    }
}

impl Ahead {
    /// Begins to ask.
    pub(crate) fn ask(git: &Git, remote: &str, needs_refs: bool) -> Ahead {
        let stop = Arc::new(AtomicBool::new(false));
        let (git, remote) = (git.clone().stopped_by(Arc::clone(&stop)), remote.to_owned());
        let work = move || {
            let settings = Untracked::of(&git, &remote).ok();
            let refs = needs_refs.then(|| (remote_refs(&git, &remote), Instant::now()));
            Answers { settings, refs }
        };
        let answers = Builder::new().name("git-ahead".to_owned()).spawn(work).ok();
        let processes = if answers.is_some() { 1 + u32::from(needs_refs) } else { 0 };
        Ahead { answers, stop, processes }
    }

    /// Waits for the answers.
    pub(crate) fn take(mut self) -> Answers {
        self.answers.take().and_then(|answers| answers.join().ok()).unwrap_or_default()
    }
}

/// Nothing runs on when the batch is over, and a remote that is slow to answer is not waited for.
impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(answers) = self.answers.take() {
            let _ = answers.join();
        }
    }
}
