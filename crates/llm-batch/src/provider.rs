//! The border to model providers.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use thiserror::Error;

use crate::answer::{Answer, RequestError};
use crate::draft::{Draft, Entry};
use crate::request::Request;
use crate::stop::{Hooked, Stop};

/// A service that takes many model requests at once and answers later.
///
/// Every method blocks and is called without any lock held. A new provider is one file that
/// implements this trait; nothing else knows providers by name.
///
/// Batches of tickets are worked on by few threads
/// ([`max_in_flight`](crate::Builder::max_in_flight)), which call these methods and wake those who wait
/// for a ticket. Code that runs there must not wait for a ticket of the same batcher, nor submit to it:
/// with one thread it would wait for itself, and a batcher that is full lets nobody in meanwhile.
///
/// A method that panics fails the requests of its batch as of unknown fate, with no word of the panic's
/// message, which may have the key in it. Of a run the panic goes on to the caller.
///
/// The caller writes its intent to disk before [`create`](Provider::create) and decides by its
/// outcome whether the same is ever sent again. So an implementation sends a create once: no
/// retries, no redirects, no reused connection that may be stale; and what it cannot tell for sure
/// it reports as [`CreateError::Ambiguous`].
pub trait Provider: Send + Sync + fmt::Debug + 'static {
    /// Returns the short name of the provider, such as `anthropic`.
    fn name(&self) -> &str;

    /// Returns where it is: the base URL, or a folder. Part of a request's identity.
    fn endpoint(&self) -> &str;

    /// Returns a digest of the key that goes with every call, mixed with `salt`; `None` where no key
    /// decides what is seen. It stands in the state folder, so the key must not be found from it.
    ///
    /// A create that was sent with another key counts as absent only with proof that this one would
    /// see it: [`Lost::is_same_account`].
    fn account(&self, salt: &str) -> Option<String> {
        let _ = salt;
        None
    }

    /// Returns how much one create may carry.
    fn limits(&self) -> Limits;

    /// Returns the request as the provider takes it, without the envelope.
    ///
    /// The same request always gives the same bytes.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] when the request cannot be sent as it is.
    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError>;

    /// Returns where the part of an encoded request stands that others may share with it and that
    /// [`cache_mark`](Provider::cache_mark) can be put around; asked about prompts and messages,
    /// where [`cache_prefixes`](crate::Builder::cache_prefixes) is set.
    fn cacheable(&self, encoded: &RawValue) -> Option<Range<usize>> {
        let _ = encoded;
        None
    }

    /// Returns what stands before and behind a part that is to be kept in the provider's cache.
    fn cache_mark(&self) -> (&'static str, &'static str) {
        ("", "")
    }

    /// Does what comes before a create and is never paid for, such as an upload. Returns what
    /// [`find`](Provider::find) will tell this create by; it is on the disk before the create.
    ///
    /// # Errors
    ///
    /// What kept it from being done. Nothing was created, so [`CreateError::Ambiguous`] counts as
    /// [`CreateError::NotSent`].
    fn prepare(&self, draft: &Draft<'_>, call: &Call<'_>) -> Result<String, CreateError> {
        let _ = (draft, call);
        Ok(String::new())
    }

    /// Hands the requests to the provider, once. `anchor` is what [`prepare`](Provider::prepare)
    /// returned.
    ///
    /// # Errors
    ///
    /// What kept the batch from being created, told apart by whether it may exist all the same.
    fn create(
        &self,
        draft: &Draft<'_>,
        anchor: &str,
        call: &Call<'_>,
    ) -> Result<Created, CreateError>;

    /// Looks for a batch whose create was not answered.
    ///
    /// [`Found::Batch`] needs proof that it is that very batch: somebody else's of the same look
    /// must never be taken for it. [`Found::Absent`] needs a list of all that it could be among, and
    /// where [`is_same_account`](Lost::is_same_account) is not known to hold, proof that the list is that
    /// of the account which the create was sent to.
    ///
    /// # Errors
    ///
    /// [`CallError`], told apart by whether looking again later makes sense.
    fn find(&self, lost: &Lost<'_>, call: &Call<'_>) -> Result<Found, CallError> {
        let _ = (lost, call);
        let message = format!("the provider `{}` has no list of batches", self.name());
        Err(CallError::Refused { message })
    }

    /// Asks how far a batch is.
    ///
    /// # Errors
    ///
    /// [`CallError`], told apart by whether asking again later makes sense.
    fn poll(&self, batch_id: &str, call: &Call<'_>) -> Result<Progress, CallError>;

    /// Asks the provider to stop working on a batch. It ends some time later, with results for
    /// what was done by then.
    ///
    /// # Errors
    ///
    /// [`CallError`]; a batch that has ended may be refused.
    fn cancel(&self, batch_id: &str, call: &Call<'_>) -> Result<(), CallError> {
        let _ = (batch_id, call);
        let message = format!("the provider `{}` cannot cancel", self.name());
        Err(CallError::Refused { message })
    }

    /// Streams the results of an ended batch into `sink`, in any order. `draft` has the requests
    /// of the batch that are still wanted; results of others may come too. Ends early when `sink`
    /// breaks.
    ///
    /// # Errors
    ///
    /// [`CallError`]; what `sink` was given before holds.
    fn results(
        &self,
        batch_id: &str,
        draft: &Draft<'_>,
        call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError>;

    /// Asks how many requests of an ended batch were answered, where the provider counts them.
    ///
    /// It is asked when results are missing: what was answered is paid for, and is not sent again.
    ///
    /// # Errors
    ///
    /// [`CallError`], told apart by whether asking again later makes sense.
    fn answered(&self, batch_id: &str, call: &Call<'_>) -> Result<Option<u64>, CallError> {
        let _ = (batch_id, call);
        Ok(None)
    }

    /// Tells whether [`prepare`](Provider::prepare) leaves something at the provider, which
    /// [`discard`](Provider::discard) removes. Then the intent is on the disk before it, too.
    fn leaves_traces(&self) -> bool {
        false
    }

    /// Removes what [`prepare`](Provider::prepare) left for a create that made no batch. `anchor`
    /// is what it returned, empty where that is not known; `nonce` is that of its
    /// [`Draft`]. What is of no use any more is all that this may remove.
    ///
    /// # Errors
    ///
    /// [`CallError`]; what is left then costs nothing but room.
    fn discard(&self, nonce: &str, anchor: &str, call: &Call<'_>) -> Result<(), CallError> {
        let _ = (nonce, anchor, call);
        Ok(())
    }

    /// Tells whether [`create`](Provider::create) works: the lanes `batch` and `auto` need it.
    fn takes_batches(&self) -> bool {
        true
    }

    /// Tells whether [`ask`](Provider::ask) works: the lanes `sync` and `auto` need it.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Asks for one answer and waits for it, once.
    ///
    /// # Errors
    ///
    /// What kept the answer away, told apart by whether it may have been paid for all the same.
    fn ask(&self, entry: &Entry<'_>, call: &Call<'_>) -> Result<Box<RawValue>, CreateError> {
        let _ = (entry, call);
        let reason = format!("the provider `{}` has no synchronous endpoint", self.name());
        Err(CreateError::NotSent { reason })
    }

    /// Reads an answer that [`ask`](Provider::ask) returned.
    fn answer(&self, response: Box<RawValue>) -> Answer {
        Answer::new(response)
    }
}

/// Takes one result: the id that was on the wire, and what became of its request.
pub type Sink<'s> = dyn FnMut(&str, Result<Answer, RequestError>) -> ControlFlow<()> + 's;

/// How much one create may carry, and what the envelope adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests in one create.
    pub max_items: usize,
    /// Bytes of one create, envelope included.
    pub max_bytes: u64,
    /// Bytes of the envelope around all requests.
    pub frame_bytes: u64,
    /// Bytes of the envelope around each request, the separator and our id of
    /// [`CUSTOM_ID_LEN`] bytes included.
    pub entry_bytes: u64,
}

/// The length of the ids that go on the wire, in bytes.
pub const CUSTOM_ID_LEN: usize = 23;

/// A batch that a provider took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The provider's id.
    pub batch_id: String,
    /// Whether its results are there already.
    pub progress: Progress,
}

/// How far a batch is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The provider is at it.
    Running,
    /// The results can be read.
    Ended,
    /// The provider took the batch and then would not run any of it.
    Rejected(Rejection),
}

/// Why a provider ran nothing of a batch that it had taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The provider's word for it.
    pub kind: String,
    /// What it said.
    pub message: String,
    /// The requests at fault, by position on the wire, each with the provider's word and what it
    /// said. The others can be sent again without them.
    pub lines: Vec<(usize, String, String)>,
    /// Whether the same batch may well be taken later, for example when less is in the queue.
    pub is_passing: bool,
}

/// A create that was not answered.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// What [`Provider::prepare`] returned for it.
    pub anchor: &'a str,
    /// What all its ids on the wire begin with.
    pub nonce: &'a str,
    /// How many requests it carried.
    pub requests: usize,
    /// Batches that are known to be others.
    pub known: &'a [String],
    /// Whether it was sent with the key that is used now. Another one may be of the same account, or
    /// of one whose list does not show it. `None` where the state folder is of before keys were told
    /// apart: then nothing is known, and proof is needed as for another key.
    pub is_same_account: Option<bool>,
}

/// What came of looking for a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// This is it.
    Batch(Created),
    /// It is not in the list.
    Absent,
    /// There is one that it may be, and no proof yet.
    Undecided {
        /// Which, and what is missing.
        reason: String,
    },
}

/// What came of reading results to their end.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// Lines that could not be read.
    pub unreadable: u64,
    /// What became of the requests without a line, where the provider says so of all of them.
    pub rest: Option<RequestError>,
}

/// Why no batch came of a create, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The provider cannot have got the whole request: nothing was created.
    #[error("it was not sent: {reason}")]
    NotSent {
        /// What happened.
        reason: String,
    },
    /// The provider said no: nothing was created.
    #[error("it was refused with {status} ({kind}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The provider's word for it.
        kind: String,
        /// What it said.
        message: String,
        /// Whether the same create may well be taken later.
        retryable: bool,
    },
    /// The provider is busy: nothing was created, and the same create will be taken later.
    #[error("the provider is busy: {message}")]
    Busy {
        /// What it said.
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The create is more than the provider takes at once: nothing was created.
    #[error("it is more than the provider takes at once: {message}")]
    TooLarge {
        /// What it said.
        message: String,
    },
    /// The batch may exist or not.
    #[error("it is unknown whether it was taken: {reason}")]
    Ambiguous {
        /// What happened.
        reason: String,
    },
}

/// Why a poll or a download failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// Asking again later makes sense.
    #[error("{message}")]
    Passing {
        /// What happened.
        message: String,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
    },
    /// Asking again will give the same.
    #[error("{message}")]
    Refused {
        /// What the provider said.
        message: String,
    },
}

impl CallError {
    pub(crate) fn passing(message: impl Into<String>) -> CallError {
        CallError::Passing { message: message.into(), retry_after: None }
    }
}

/// Asks `provider` to stop working on a batch, for at most `timeout`.
///
/// A run that waits for the batch, here or elsewhere, goes on and collects what was done by then.
///
/// # Errors
///
/// [`CallError`]; a batch that has ended may be refused.
pub fn cancel(provider: &dyn Provider, batch_id: &str, timeout: Duration) -> Result<(), CallError> {
    let (stop, total) = (Stop::new(), AtomicU64::new(0));
    provider.cancel(batch_id, &Call::within(timeout, &stop, &total))
}

/// Far enough for a time-out that overflows the clock.
const NEVER: Duration = Duration::from_hours(100 * 365 * 24);

/// What a provider needs to know about the call it is in.
#[derive(Debug)]
pub struct Call<'a> {
    deadline: Instant,
    stop: &'a Stop,
    http_calls: AtomicU64,
    /// Those of the whole batcher.
    total: &'a AtomicU64,
}

impl<'a> Call<'a> {
    pub(crate) fn within(timeout: Duration, stop: &'a Stop, total: &'a AtomicU64) -> Call<'a> {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or_else(|| now + NEVER);
        Call { deadline, stop, http_calls: AtomicU64::new(0), total }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns how long the call may take at most.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Tells whether the call should be broken off. A create is never broken off.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// Counts one HTTP call.
    pub fn count_http(&self) {
        self.http_calls.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Has `hook` run when the call is to be broken off, as long as what is returned lives.
    pub(crate) fn on_stop(&self, hook: impl FnOnce() + Send + 'static) -> Hooked {
        self.stop.on_stop(hook)
    }

    pub(crate) fn http_calls(&self) -> u64 {
        self.http_calls.load(Ordering::Relaxed)
    }
}
