//! The border to model providers.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::answer::{Answer, RequestError};
use crate::request::Request;
use crate::stop::{Hooked, Stop};

/// A service that takes many model requests at once and answers later.
///
/// Every method blocks and is called without any lock held. A new provider is one file that
/// implements this trait; nothing else knows providers by name.
///
/// The caller writes its intent to disk before [`create`](Provider::create) and never calls it
/// twice for the same requests, so an implementation must not send a create twice either: no
/// retries, no redirects, no reused connection that may be stale.
pub trait Provider: Send + Sync + fmt::Debug + 'static {
    /// Returns the short name of the provider, such as `anthropic`.
    fn name(&self) -> &str;

    /// Returns where it is: the base URL, or a folder. Part of a request's identity.
    fn endpoint(&self) -> &str;

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

    /// Hands the requests to the provider, once.
    ///
    /// # Errors
    ///
    /// What kept the batch from being created, told apart by whether it may exist all the same.
    fn create(&self, entries: &[Entry<'_>], call: &Call<'_>) -> Result<Created, CreateError>;

    /// Asks how far a batch is.
    ///
    /// # Errors
    ///
    /// [`CallError`], told apart by whether asking again later makes sense.
    fn poll(&self, batch_id: &str, call: &Call<'_>) -> Result<Progress, CallError>;

    /// Streams the results of an ended batch into `sink`, in any order, and returns how many
    /// lines could not be read. `entries` are the requests of the batch that are still wanted;
    /// results of others may come too. Ends early when `sink` breaks.
    ///
    /// # Errors
    ///
    /// [`CallError`]; what `sink` was given before holds.
    fn results(
        &self,
        batch_id: &str,
        entries: &[Entry<'_>],
        call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<u64, CallError>;
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

/// One request of a batch, with its id on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Our id for it: [`CUSTOM_ID_LEN`] bytes of `[0-9a-f-]`, unlike any other ever made.
    pub custom_id: &'a str,
    /// The request.
    pub request: &'a Request,
}

/// A batch that a provider took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The provider's id.
    pub batch_id: String,
    /// Whether its results are there already.
    pub progress: Progress,
}

/// How far a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The provider is at it.
    Running,
    /// The results can be read.
    Ended,
}

/// Why no batch came of a create, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The provider cannot have got the whole request: nothing was created.
    NotSent {
        /// What happened.
        reason: String,
    },
    /// The provider said no: nothing was created.
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
    /// The batch may exist or not.
    Ambiguous {
        /// What happened.
        reason: String,
    },
}

/// Why a poll or a download failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Asking again later makes sense.
    Passing {
        /// What happened.
        message: String,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
    },
    /// Asking again will give the same.
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
