//! The batcher itself.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use batch_core::{Batcher, Close, CloseReport, Flush, PastBatch, Stats, SubmitError, Ticket};

use crate::accounting::{Accounting, Delivered, Run};
use crate::answer::{Answer, RequestError};
use crate::desk::Desk;
use crate::engine::{Engine, Settings};
use crate::error::Error;
use crate::lane::{LaneChoice, OnAmbiguous};
use crate::loaded::Loaded;
use crate::prices::Prices;
use crate::processor::{GroupKey, Processor};
use crate::provider::Provider;
use crate::request::Request;
use crate::state::State;
use crate::stop::Stop;
use crate::unsent::Unsent;
use crate::wire_id;

const MAX_ITEMS: usize = 10;
const LINGER: Duration = Duration::from_secs(2);
const IN_FLIGHT: usize = 16;

/// Sends model requests of many callers in few provider batches, and pays for each once.
///
/// Two ways in, on one state folder:
///
/// * [`submit`](LlmBatch::submit) takes a request from any thread and gives a ticket for its
///   answer. What comes within the linger time (2 s) goes together, at most ten to a batch.
/// * [`run`](LlmBatch::run) takes a whole set, sends it at once in as few batches as the provider
///   takes, and reports each outcome as it arrives. Repeated with the same state it goes on where
///   it was cut.
///
/// Every create is written down, durably, before its first byte leaves. One whose fate is unknown
/// is looked for in the provider's list and sent once more only when it is not there
/// ([`OnAmbiguous`] says when that is).
///
/// Dropping the last handle lets what was submitted run on in the background, holding the state
/// folder; [`close`](LlmBatch::close) or a [`Stop`] ends it.
pub struct LlmBatch {
    engine: Arc<Engine>,
    batcher: Batcher<Processor>,
}

/// Settings of an [`LlmBatch`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    provider: Arc<dyn Provider>,
    state: Option<PathBuf>,
    linger: Duration,
    in_flight: usize,
    settings: Settings,
}

impl LlmBatch {
    /// Returns settings for batches at `provider`.
    pub fn builder(provider: Arc<dyn Provider>) -> Builder {
        Builder {
            provider,
            state: None,
            linger: LINGER,
            in_flight: IN_FLIGHT,
            settings: Settings::default(),
        }
    }

    /// Accepts one request and returns the ticket of its answer.
    ///
    /// A request with an empty id gets one that nobody else has. One whose id the state folder
    /// knows with the same content is not sent again: its ticket gets what came of the first one.
    /// While that one is still waited for in this process, a second ticket of its id fails, as does
    /// one with another content. Blocks while the batcher is full (10,000 requests that have no answer
    /// yet), for at most a minute.
    ///
    /// The request is in memory until its batch is worked on: while it lingers, and until one of the
    /// threads of [`max_in_flight`](Builder::max_in_flight) is free. Then its body is in a file in the
    /// state folder as long as it is waited for, if the disk has room for it.
    ///
    /// # Errors
    ///
    /// Gives the request back when the batcher is closed or full.
    pub fn submit(
        &self,
        mut request: Request,
    ) -> Result<Ticket<Answer, RequestError>, SubmitError<Unsent>> {
        if request.id.is_empty() {
            request.id = format!("auto-{}", wire_id::nonce());
        }
        self.batcher.submit(Unsent::new(request))
    }

    /// Brings all requests to their outcomes and hands each to `on_outcome` as it arrives.
    ///
    /// Blocks until all have one, the time-out passes, or the [`Stop`] of the settings is used.
    /// Repeated with the same state and the same requests it sends nothing that was sent before:
    /// it collects what is there and waits for the rest, and hands over only what is not recorded
    /// as handed over, or, where [`held`](Builder::held) is set, what is not in there.
    ///
    /// `on_outcome` may submit to this batcher and wait for the ticket. The run goes on when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::Ambiguous`] and [`Error::Pending`] when part of it is not finished; they carry the
    /// [`Run`] so far. Any other error says why nothing was started, or which file of the state cannot be written;
    /// what had been sent by then stays recorded.
    pub fn run(
        &self,
        requests: impl IntoIterator<Item = Request>,
        on_outcome: impl FnMut(&str, Result<Answer, RequestError>),
    ) -> Result<Run, Error> {
        self.load(requests.into_iter().map(Ok::<Request, Infallible>))?.run(on_outcome)
    }

    /// Reads and checks the requests of a run, and sends nothing.
    ///
    /// They are taken one at a time and are not kept in memory. A signal that comes while they are
    /// read can so be told from one that comes while they are under way.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] with the error of the first request that could not be read,
    /// [`Error::DuplicateId`] and [`Error::EmptyId`] for ids that cannot be, [`Error::StateIo`] when
    /// the bodies cannot be written.
    pub fn load<E>(
        &self,
        requests: impl IntoIterator<Item = Result<Request, E>>,
    ) -> Result<Loaded<'_>, Error>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Loaded::read(&self.engine, requests)
    }

    /// Sends what waits now, without lingering on. Does not block; the returned [`Flush`] can be
    /// waited for and ends when all that was accepted before has its outcome.
    pub fn flush(&self) -> Flush {
        self.batcher.flush()
    }

    /// Stops accepting and waits for the outcomes of what was sent for at most `timeout`.
    ///
    /// With [`Close::Drain`] what waits is sent first; with [`Close::Abort`], or when the time is
    /// over, it is handed back. What is still at the provider then stays recorded; submit it
    /// again on the same state to go on. If the process ends with that, the bodies of those batches
    /// stay in the state folder, in clear, until a batcher opens it again or somebody deletes it.
    pub fn close(&self, mode: Close, timeout: Duration) -> CloseReport<Unsent> {
        self.batcher.close(mode, timeout)
    }

    /// Returns the counts of what was done through this batcher, tickets and runs together.
    ///
    /// Creates count where they are made, so one that an earlier process made is not in here. A
    /// request that comes again counts again. What is counted is never behind what a ticket or
    /// `on_outcome` has told.
    pub fn accounting(&self) -> Accounting {
        self.engine.accounting()
    }

    /// Returns the counts of the queue in front of the tickets.
    pub fn stats(&self) -> Stats {
        self.batcher.stats()
    }

    /// Returns the latest batches that came through tickets and are done, oldest first.
    pub fn history(&self) -> Vec<PastBatch<GroupKey>> {
        self.batcher.history()
    }

    /// Tells whether a request has waited for `age` or longer to be sent.
    pub fn should_flush(&self, age: Duration) -> bool {
        self.batcher.should_flush(age)
    }

    /// Returns the time since requests were last sent off, or since the start.
    pub fn time_since_last_flush(&self) -> Duration {
        self.batcher.time_since_last_flush()
    }
}

impl Drop for LlmBatch {
    fn drop(&mut self) {
        let stats = self.batcher.stats();
        if stats.queued + stats.in_flight == 0 {
            // At most the last lines of a log are still being written.
            self.engine.release_state();
        }
    }
}

impl fmt::Debug for LlmBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmBatch")
            .field("provider", &self.engine.provider)
            .field("state", &self.engine.state_dir)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Sets the state folder. It is made where it is not there; one process uses it at a time.
    ///
    /// It can be moved, to another machine too, while no process uses it. Of two processes that go
    /// on with copies of one folder neither knows of the other: each sends what was not sent yet when
    /// the folder was copied, and what comes back without an answer. A create of unknown fate that is
    /// absent from the provider's list is sent again only from the folder that it was sent from,
    /// renamed or not. Elsewhere, and where a backup was put back into the folder, it is held, as
    /// somebody may have done so already; where nobody did, [`OnAmbiguous::Resubmit`] sends it. It is
    /// held as well on file systems whose inodes change with each mount.
    ///
    /// The key may change. One of another account finds nothing of what was sent before: batches
    /// stay pending, and a create of unknown fate is not sent again with it.
    pub fn state(mut self, dir: impl Into<PathBuf>) -> Builder {
        self.state = Some(dir.into());
        self
    }

    /// Sets how many requests go in one create, at most. By default ten for tickets, and for runs
    /// what the provider takes; it is never more than that.
    pub fn max_items(mut self, items: usize) -> Builder {
        self.settings.max_items = Some(items);
        self
    }

    /// Sets how long the first request of a batch waits for company; 2 s by default. Tickets only.
    pub fn linger(mut self, linger: Duration) -> Builder {
        self.linger = linger;
        self
    }

    /// Sets how many calls for batches of tickets are made at a time; 16 by default, and each takes a
    /// thread. However many batches are waited for, waiting takes none.
    pub fn max_in_flight(mut self, batches: usize) -> Builder {
        self.in_flight = batches.max(1);
        self
    }

    /// Sets how often a batch is asked for its state. By default every 2 s at first and less and
    /// less often, up to every 60 s.
    pub fn poll_interval(mut self, interval: Duration) -> Builder {
        self.settings.poll_interval = Some(interval);
        self
    }

    /// Sets how long a run, or a batch of tickets, may take in all; 26 h by default.
    ///
    /// A request of the lane `sync` whose answer is on its way then is of unknown fate.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.settings.timeout = timeout;
        self
    }

    /// Sets the handle that ends every wait.
    pub fn stop(mut self, stop: Stop) -> Builder {
        self.settings.stop = stop;
        self
    }

    /// Sets which outcomes the caller has already, by request id, so that a run hands over
    /// exactly the others. Without it the state's own record decides, which is behind by one
    /// outcome when the process died between the hand-over and the record.
    pub fn held(mut self, held: HashMap<String, Delivered>) -> Builder {
        self.settings.held = Some(held);
        self
    }

    /// Sets what is done about a create whose fate is unknown; by default it is looked for until
    /// the time is up.
    pub fn on_ambiguous(mut self, policy: OnAmbiguous) -> Builder {
        self.settings.on_ambiguous = policy;
        self
    }

    /// Sets how far the provider's list of batches may be behind; 60 s by default.
    ///
    /// A create of unknown fate that is absent from two lists this far apart is sent once more.
    /// That nothing is paid twice rests on lists being behind by less than this.
    pub fn list_lag(mut self, lag: Duration) -> Builder {
        self.settings.list_lag = lag;
        self
    }

    /// Sets which lane requests take; batches by default.
    pub fn lane(mut self, lane: LaneChoice) -> Builder {
        self.settings.lane = lane;
        self
    }

    /// Sets how many requests of the lane `sync` are on their way at a time, at most; 8 by
    /// default. Of a model fewer are, for a while, when the provider says that it is busy.
    pub fn max_concurrent(mut self, requests: usize) -> Builder {
        self.settings.max_concurrent = requests.max(1);
        self
    }

    /// Sets whether a request of the lane `sync` is asked once more where its answer was lost. It
    /// may have been paid for, and counts as possibly paid twice. Not by default.
    pub fn sync_retry(mut self, retry: bool) -> Builder {
        self.settings.sync_retry = retry;
        self
    }

    /// Sets whether an id that the state knows with another content is asked anew. By default it
    /// is refused with [`Error::Conflict`].
    pub fn fresh(mut self, fresh: bool) -> Builder {
        self.settings.fresh = fresh;
        self
    }

    /// Sets the prices; the built-in table by default.
    pub fn prices(mut self, prices: Prices) -> Builder {
        self.settings.prices = prices;
        self
    }

    /// Sets what a run, or a batch of tickets, must cost at most, in dollars. One that may cost more
    /// is refused before anything is sent, with [`Error::OverBudget`]. What it may cost is an
    /// estimate, and rather too high: a token for three bytes of a body, at the price of writing it
    /// into a cache where that is asked for, and the longest answer. What earlier runs with the same
    /// state may have paid for these requests is in it. Where a batch of an earlier run is still at
    /// the provider, that one is brought home, nothing is sent, and the run ends as
    /// [`Error::Pending`].
    pub fn max_cost(mut self, dollars: f64) -> Builder {
        self.settings.max_cost = Some(dollars);
        self
    }

    /// Sets how often a request is sent at most, 3 times by default, where a batch ends with an error
    /// that passes, with the request expired, or without a result that was paid for. None of that
    /// is billed. What may have been paid for is not sent again because of this.
    pub fn attempts(mut self, attempts: u32) -> Builder {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// Sets how long a batch is expected to take; 1 h by default. In the lane `auto`, what is needed
    /// sooner is asked one by one.
    pub fn batch_time(mut self, time: Duration) -> Builder {
        self.settings.batch_time = time;
        self
    }

    /// Sets how long before its deadline a batch is cancelled, 15 min by default, so that the
    /// provider has the time to end it and what it did not do can be asked one by one.
    pub fn headroom(mut self, headroom: Duration) -> Builder {
        self.settings.headroom = headroom;
        self
    }

    /// Sets whether a request may be paid for twice to keep its deadline: in the lane `auto`, what
    /// was cancelled and has not ended half the headroom before the deadline is then asked one by
    /// one all the same, and counts as possibly paid twice. Not by default.
    pub fn pay_twice_for_deadlines(mut self, pay: bool) -> Builder {
        self.settings.pay_twice = pay;
        self
    }

    /// Sets whether a system text that several requests of one create share is marked for the
    /// provider's cache, once in each of them, for an hour. Not by default.
    ///
    /// Only texts of 4 KiB and more in [`Body::Prompt`](crate::Body) or
    /// [`Body::Messages`](crate::Body) are marked; raw bodies stay as they are, and providers that
    /// cache by themselves (`OpenAI`) need no mark. Writing into the cache costs more than reading
    /// without one (twice the price of input at Anthropic), and reading out of it a tenth: it pays
    /// where more than half of the requests find what another one wrote, which a batch does not
    /// promise. What was read from a cache is told by
    /// [`cache_read_tokens`](crate::Accounting::cache_read_tokens).
    pub fn cache_prefixes(mut self, mark: bool) -> Builder {
        self.settings.cache_prefixes = mark;
        self
    }

    /// Opens the state folder and returns the batcher. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::NoState`] without a state folder, [`Error::StateBusy`] when another process has
    /// it, [`Error::StateFile`] when something in it is foreign, damaged or of another version,
    /// [`Error::StateIo`] when it cannot be read or written, [`Error::Setting`] for a batch of 0
    /// items or a lane that the provider has not, [`Error::Batcher`] when threads cannot be
    /// started.
    pub fn build(self) -> Result<LlmBatch, Error> {
        let state = self.state.ok_or(Error::NoState)?;
        if self.settings.max_items == Some(0) {
            let problem = "`max_items` is 0; a batch holds at least 1 request".to_owned();
            return Err(Error::Setting { problem });
        }
        if self.settings.lane != LaneChoice::Batch && !self.provider.answers_at_once() {
            let name = self.provider.name();
            let problem = format!("the provider `{name}` has no lane but `batch`; leave it out");
            return Err(Error::Setting { problem });
        }
        if self.settings.lane != LaneChoice::Sync && !self.provider.takes_batches() {
            let endpoint = self.provider.endpoint();
            let problem =
                format!("the server at `{endpoint}` takes no batches; use the lane `sync`");
            return Err(Error::Setting { problem });
        }
        let settings = self.settings;
        let max_items =
            settings.max_items.unwrap_or(MAX_ITEMS).min(self.provider.limits().max_items);
        let engine = Arc::new(Engine::new(self.provider, settings, State::open(&state)?));
        let desk = Desk::start(&engine, self.in_flight).map_err(Error::Batcher)?;
        let batcher = Batcher::builder(Processor::new(desk))
            .max_batch_items(max_items)
            .linger(self.linger)
            .unordered()
            .delivery_timeout(None)
            .workers(1)
            .build()
            .map_err(Error::Batcher)?;
        Ok(LlmBatch { engine, batcher })
    }
}
