//! The simulator itself: a server, what it knows, and what goes wrong.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::faults::Faults;
use crate::http::{Handler, Reading, Reply, Seen, Server};
use crate::model::{Model, Question, Said};
use crate::world::{Batch, World};
use crate::{anthropic, openai};

/// A provider on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    server: Server,
    shared: Arc<Shared>,
}

/// Settings of a [`Simulator`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    settings: Settings,
    hooks: Hooks,
    faults: Option<Faults>,
}

/// How the provider is.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) model: Model,
    /// How often a batch is still running when asked.
    pub(crate) running: usize,
    pub(crate) max_items: usize,
    pub(crate) max_bytes: usize,
    /// How many lists do not show a new batch yet.
    pub(crate) list_lag: usize,
    /// How many requests may be in running batches together (OpenAI).
    pub(crate) enqueued: usize,
    /// The key that is asked for; any where there is none.
    pub(crate) key: Option<String>,
    /// How many requests of a batch were run when it was cancelled.
    pub(crate) done_at_cancel: usize,
    /// Whether downloads have a tag and may be asked for in part.
    pub(crate) ranges: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            model: Model::default(),
            running: 0,
            max_items: 100_000,
            max_bytes: 256_000_000,
            list_lag: 0,
            enqueued: usize::MAX,
            key: None,
            done_at_cancel: 0,
            ranges: false,
        }
    }
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// Makes a batch.
    Create,
    /// Lists batches.
    List,
    /// Asks how far a batch is.
    Poll,
    /// Reads results: of a batch, or the content of a file.
    Results,
    /// Cancels a batch.
    Cancel,
    /// Takes a file.
    Upload,
    /// Anything else about files.
    Files,
    /// Asks the model for one answer.
    Ask,
    /// Nothing that is known here.
    Other,
}

/// One call, as a hook sees it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// What it is for.
    pub endpoint: Endpoint,
    /// The number of the call among those of its endpoint, from 0.
    pub nth: usize,
    /// The call.
    pub seen: &'a Seen,
}

type Before = dyn Fn(&Call<'_>) -> Option<Reply> + Send + Sync;
type After = dyn Fn(&Call<'_>, Reply) -> Reply + Send + Sync;
type Cut = dyn Fn(&Call<'_>) -> Option<u64> + Send + Sync;

#[derive(Default)]
struct Hooks {
    cut: Option<Box<Cut>>,
    before: Option<Box<Before>>,
    after: Option<Box<After>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    hooks: Hooks,
    faults: Option<Faults>,
    world: Mutex<World>,
    /// Creates that have begun to arrive and are not done, and connections that may bring one.
    /// Lists wait for them, so that no list is behind but by [`Builder::list_lag`]: without it, a
    /// create that a busy machine does not get to would be absent from lists that came later.
    arriving: Mutex<usize>,
    arrived: Condvar,
    /// Calls whose head was read, and calls that were read whole, by endpoint.
    heads: [AtomicUsize; 9],
    counts: [AtomicUsize; 9],
}

/// A batch that the provider took, as a test looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// The provider's id.
    pub id: String,
    /// The client's id of each request.
    pub custom_ids: Vec<String>,
    /// The text of each request.
    pub texts: Vec<String>,
}

impl Builder {
    /// Sets what the model says. By default it repeats the question.
    pub fn model(mut self, model: impl Fn(&Question) -> Said + Send + Sync + 'static) -> Builder {
        self.settings.model = Model(Arc::new(model));
        self
    }

    /// Sets how often a batch is still running when asked; a batch of `usize::MAX` never ends.
    pub fn running(mut self, polls: usize) -> Builder {
        self.settings.running = polls;
        self
    }

    /// Sets how much one create, or one file, may carry; above it the answer is 413 or 400.
    pub fn limits(mut self, max_items: usize, max_bytes: usize) -> Builder {
        self.settings.max_items = max_items;
        self.settings.max_bytes = max_bytes;
        self
    }

    /// Sets how many lists do not show a new batch yet.
    pub fn list_lag(mut self, lists: usize) -> Builder {
        self.settings.list_lag = lists;
        self
    }

    /// Sets how many requests may be in running batches together; a batch above it fails after it
    /// was taken, with `token_limit_exceeded` (OpenAI).
    pub fn enqueued(mut self, requests: usize) -> Builder {
        self.settings.enqueued = requests;
        self
    }

    /// Sets the key; calls with another one get a 401. By default any will do.
    pub fn key(mut self, key: &str) -> Builder {
        self.settings.key = Some(key.to_owned());
        self
    }

    /// Sets how many requests of a batch have been run when it is cancelled; none by default.
    pub fn done_at_cancel(mut self, requests: usize) -> Builder {
        self.settings.done_at_cancel = requests;
        self
    }

    /// Gives downloads of results a tag, and takes calls for a part of them.
    pub fn ranges(mut self) -> Builder {
        self.settings.ranges = true;
        self
    }

    /// Closes the connection of a call after so many bytes of its body. The call that the hook sees
    /// has no body yet, and its number counts those that were cut too.
    pub fn cut(
        mut self,
        hook: impl Fn(&Call<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Builder {
        self.hooks.cut = Some(Box::new(hook));
        self
    }

    /// Answers calls in place of the provider, to which they do not get.
    pub fn before(
        mut self,
        hook: impl Fn(&Call<'_>) -> Option<Reply> + Send + Sync + 'static,
    ) -> Builder {
        self.hooks.before = Some(Box::new(hook));
        self
    }

    /// Changes answers after the provider did what was asked.
    pub fn after(
        mut self,
        hook: impl Fn(&Call<'_>, Reply) -> Reply + Send + Sync + 'static,
    ) -> Builder {
        self.hooks.after = Some(Box::new(hook));
        self
    }

    /// Sets faults by chance, the same ones for the same seed and order of calls.
    pub fn faults(mut self, faults: Faults) -> Builder {
        self.faults = Some(faults);
        self
    }

    /// Starts on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub fn start(self) -> io::Result<Simulator> {
        let Builder { settings, hooks, faults } = self;
        let shared = Arc::new(Shared {
            settings,
            hooks,
            faults,
            world: Mutex::default(),
            arriving: Mutex::default(),
            arrived: Condvar::new(),
            heads: Default::default(),
            counts: Default::default(),
        });
        let server = Server::start(Service(Arc::clone(&shared)))?;
        Ok(Simulator { server, shared })
    }
}

impl Simulator {
    /// Returns settings to change before [`start`](Builder::start).
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a provider that does everything well.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub fn start() -> io::Result<Simulator> {
        Simulator::builder().start()
    }

    /// Returns its base URL. The same one serves both shapes.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Returns the server: what it has seen, and how to wait for more.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns how many calls an endpoint has had, without those that were cut.
    pub fn count(&self, endpoint: Endpoint) -> usize {
        self.shared.counts[endpoint as usize].load(Ordering::SeqCst)
    }

    /// Returns the batches that were taken, the oldest first, without those of other clients.
    pub fn batches(&self) -> Vec<Taken> {
        self.shared.world().batches.iter().filter(|b| !b.is_foreign).map(Batch::taken).collect()
    }

    /// Returns the text of every request that was run and is paid for, batches and single ones.
    /// What stands in here twice was paid for twice.
    pub fn paid(&self) -> Vec<String> {
        let world = self.shared.world();
        let batches = world.batches.iter().filter(|batch| !batch.is_foreign);
        let in_batches = batches.flat_map(|batch| batch.paid(&self.shared.settings));
        in_batches.chain(world.asked.iter().cloned()).collect()
    }

    /// Returns the names of the files that were uploaded, are still there, and were not made into a
    /// batch that was run.
    pub fn orphans(&self) -> Vec<String> {
        let world = self.shared.world();
        let is_used = |id: &String| {
            let is_it = |batch: &&Batch| batch.input.as_ref().is_some_and(|i| i.file == *id);
            world.batches.iter().filter(|batch| !batch.has_failed()).any(|batch| is_it(&batch))
        };
        let orphans = world.files.iter().filter(|(id, _)| !is_used(id));
        orphans.map(|(_, file)| file.name.clone()).collect()
    }

    /// Lets all batches that are running now end when they are next asked for.
    pub fn end_batches(&self) {
        for batch in &mut self.shared.world().batches {
            batch.polls = 0;
        }
    }

    /// Adds a batch of another client of the account, with so many requests.
    pub fn plant_foreign(&self, requests: usize) {
        self.shared.world().plant(requests, &self.shared.settings);
    }
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arriving(&self) -> MutexGuard<'_, usize> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usual(&self, endpoint: Endpoint, seen: &Seen) -> Reply {
        let mut world = self.world();
        let settings = &self.settings;
        if seen.path.starts_with("/v1/messages") {
            anthropic::answer(endpoint, seen, settings, &mut world)
        } else {
            openai::answer(endpoint, seen, settings, &mut world)
        }
    }

    fn is_known(&self, seen: &Seen) -> bool {
        let Some(key) = &self.settings.key else { return true };
        let bearer = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let given = [seen.header("x-api-key"), seen.header("api-key"), bearer];
        given.iter().flatten().any(|given| given == key)
    }
}

struct Service(Arc<Shared>);

impl Handler for Service {
    fn reading(&self, head: &Seen) -> Reading {
        let shared = &*self.0;
        let endpoint = endpoint(head);
        let nth = shared.heads[endpoint as usize].fetch_add(1, Ordering::SeqCst);
        let call = Call { endpoint, nth, seen: head };
        if let Some(bytes) = shared.hooks.cut.as_ref().and_then(|cut| cut(&call)) {
            return Reading::CutAfter(bytes);
        }
        let faults = shared.faults.as_ref();
        let reading = faults.map_or(Reading::Whole, |faults| faults.reading(endpoint, head));
        if endpoint == Endpoint::Create && reading == Reading::Whole {
            *shared.arriving() += 1;
        }
        reading
    }

    fn opened(&self) {
        *self.0.arriving() += 1;
    }

    fn begun(&self) {
        *self.0.arriving() -= 1;
        self.0.arrived.notify_all();
    }

    fn over(&self, head: &Seen) {
        if endpoint(head) == Endpoint::Create {
            *self.0.arriving() -= 1;
            self.0.arrived.notify_all();
        }
    }

    fn answer(&self, seen: &Seen) -> Reply {
        let shared = &*self.0;
        let endpoint = endpoint(seen);
        let nth = shared.counts[endpoint as usize].fetch_add(1, Ordering::SeqCst);
        let call = Call { endpoint, nth, seen };
        if let Some(reply) = shared.hooks.before.as_ref().and_then(|before| before(&call)) {
            return reply;
        }
        if !shared.is_known(seen) {
            return Reply::error(401, "authentication_error", "invalid key");
        }
        if let Some(reply) = shared.faults.as_ref().and_then(|faults| faults.before(&call)) {
            return reply;
        }
        if endpoint == Endpoint::List {
            let arriving = shared.arrived.wait_while(shared.arriving(), |arriving| *arriving > 0);
            drop(arriving);
        }
        let mut reply = shared.usual(endpoint, seen);
        if let Some(faults) = &shared.faults {
            reply = faults.after(&call, reply);
        }
        if endpoint == Endpoint::Results && shared.settings.ranges {
            reply = ranged(seen, reply);
        }
        match &shared.hooks.after {
            Some(after) => after(&call, reply),
            None => reply,
        }
    }
}

/// Gives an answer the tag of its content, and cuts it down to the part that is asked for.
fn ranged(seen: &Seen, reply: Reply) -> Reply {
    let Reply::Full { status: 200, mut headers, body } = reply else { return reply };
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    headers.push(("etag", tag.clone()));
    headers.push(("accept-ranges", "bytes".to_owned()));
    let start = seen
        .header("range")
        .filter(|_| seen.header("if-range").is_none_or(|wanted| wanted == tag))
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match start {
        Some(start) if start < body.len() => {
            let (length, body) = (body.len(), body[start..].to_vec());
            headers.push(("content-range", format!("bytes {start}-{}/{length}", length - 1)));
            Reply::Full { status: 206, headers, body }
        }
        Some(_) => Reply::error(416, "invalid_request_error", "range not satisfiable"),
        None => Reply::Full { status: 200, headers, body },
    }
}

/// Tells what a call is for, from method and path.
fn endpoint(seen: &Seen) -> Endpoint {
    let path = seen.path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match (seen.method.as_str(), parts.as_slice()) {
        ("POST", ["v1", "messages", "batches"] | ["v1", "batches"]) => Endpoint::Create,
        ("GET", ["v1", "messages", "batches"] | ["v1", "batches"]) => Endpoint::List,
        ("GET", ["v1", "messages", "batches", _] | ["v1", "batches", _]) => Endpoint::Poll,
        ("GET", ["v1", "messages", "batches", _, "results"] | ["v1", "files", _, "content"]) => {
            Endpoint::Results
        }
        ("POST", ["v1", "messages", "batches", _, "cancel"] | ["v1", "batches", _, "cancel"]) => {
            Endpoint::Cancel
        }
        ("POST", ["v1", "files"]) => Endpoint::Upload,
        (_, ["v1", "files", ..]) => Endpoint::Files,
        ("POST", ["v1", "messages"] | ["v1", "chat", "completions"]) => Endpoint::Ask,
        _ => Endpoint::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart() {
        let of = |method: &str, path: &str| {
            let (method, path) = (method.to_owned(), path.to_owned());
            endpoint(&Seen { method, path, headers: Vec::new(), body: Vec::new() })
        };
        assert_eq!(of("POST", "/v1/messages/batches"), Endpoint::Create);
        assert_eq!(of("GET", "/v1/messages/batches?limit=1"), Endpoint::List);
        assert_eq!(of("GET", "/v1/batches/x"), Endpoint::Poll);
        assert_eq!(of("GET", "/v1/files/x/content"), Endpoint::Results);
        assert_eq!(of("DELETE", "/v1/files/x"), Endpoint::Files);
        assert_eq!(of("POST", "/v1/chat/completions"), Endpoint::Ask);
        assert_eq!(of("PUT", "/v1/messages"), Endpoint::Other);
    }
}
