//! The requests of one pass: little of each is kept in memory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::RequestError;
use crate::bodies::Bodies;
use crate::digest::{Digest, digest};
use crate::error::Error;
use crate::provider::Provider;
use crate::request::{Body, Kind, Request};

/// All requests of a pass, in the order they were given.
#[derive(Debug)]
pub(crate) struct Table {
    /// The state folder.
    dir: PathBuf,
    items: Vec<Item>,
    groups: Vec<Group>,
    by_name: HashMap<(Kind, String, Option<SystemTime>), u32>,
    bodies: Bodies,
    /// Requests that cannot be sent as they are.
    invalid: HashMap<usize, RequestError>,
    /// What requests may cost at most, where they say so.
    budgets: HashMap<usize, f64>,
    marks_prefixes: bool,
    /// The parts that others may share, where caching them is wanted.
    prefixes: HashMap<usize, Prefix>,
}

/// What requests of one batch have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) model: String,
    /// When their answers are needed at the latest.
    pub(crate) due: Option<Instant>,
}

/// What is kept of a request.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: Arc<str>,
    pub(crate) group: u32,
    at: u64,
    /// Bytes of its body as the provider takes it.
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// A request as the provider takes it, or why it cannot.
pub(crate) struct Encoded {
    body: Result<Box<RawValue>, RequestError>,
    /// `None` where it cannot be sent.
    pub(crate) digest: Option<Digest>,
}

impl Encoded {
    pub(crate) fn of(request: &Request, provider: &dyn Provider) -> Encoded {
        let body = if request.model.is_empty() {
            Err(RequestError::invalid("the request names no model"))
        } else {
            provider.encode(request)
        };
        let digest = body.as_ref().ok().map(|body| digest(provider, request, body.get()));
        Encoded { body, digest }
    }
}

/// A part of a body that is long enough for a provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The same for the same bytes.
    pub(crate) digest: u64,
}

/// What is shorter is not cached by any provider: a thousand tokens.
const SHORTEST_PREFIX: usize = 4096;

impl Prefix {
    fn of(provider: &dyn Provider, request: &Request, encoded: &RawValue) -> Option<Prefix> {
        if matches!(request.body, Body::Raw(_)) {
            return None;
        }
        let range = provider.cacheable(encoded).filter(|range| range.len() >= SHORTEST_PREFIX)?;
        let digest = blake3::hash(encoded.get().get(range.clone())?.as_bytes());
        let digest = u64::from_le_bytes(digest.as_bytes()[..8].try_into().ok()?);
        let (start, end) = (u32::try_from(range.start).ok()?, u32::try_from(range.end).ok()?);
        Some(Prefix { start, end, digest })
    }
}

/// What a request asks for at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) body_bytes: u64,
    /// The tokens of the longest answer, all choices together; `None` where it does not say.
    pub(crate) answer_tokens: Option<u64>,
    /// Whether what is read may go into the provider's cache, which can cost more than to read it.
    pub(crate) writes_cache: bool,
}

/// How far ahead a deadline is kept; beyond it clocks do not reach everywhere.
const FURTHEST: Duration = Duration::from_hours(100 * 365 * 24);

/// Returns the moment of a deadline on the clock that does not jump; now where it has passed.
fn moment(deadline: SystemTime) -> Instant {
    let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
    Instant::now() + left.min(FURTHEST)
}

impl Table {
    /// Returns an empty table; bodies that do not fit in memory go into `dir`.
    pub(crate) fn new(dir: &Path) -> Table {
        Table {
            dir: dir.to_owned(),
            items: Vec::new(),
            groups: Vec::new(),
            by_name: HashMap::new(),
            bodies: Bodies::new(dir),
            invalid: HashMap::new(),
            budgets: HashMap::new(),
            marks_prefixes: false,
            prefixes: HashMap::new(),
        }
    }

    /// Returns the same for a batch of tickets, of which many may be waited for.
    pub(crate) fn of_tickets(self) -> Table {
        Table { bodies: self.bodies.of_tickets(), ..self }
    }

    /// Notices the parts of bodies that are worth caching.
    pub(crate) fn marking_prefixes(self, marks: bool) -> Table {
        Table { marks_prefixes: marks, ..self }
    }

    /// Takes a request in; one that cannot be sent is kept with the reason.
    pub(crate) fn push(
        &mut self,
        request: &Request,
        encoded: Encoded,
        provider: &dyn Provider,
    ) -> Result<(), Error> {
        let index = self.items.len();
        let mut item = Item {
            id: request.id.as_str().into(),
            group: self.group_of(request),
            at: 0,
            bytes: 0,
            digest: encoded.digest.unwrap_or_default(),
        };
        match encoded.body {
            Ok(encoded) => {
                item.at = self.bodies.push(encoded.get().as_bytes())?;
                item.bytes = encoded.get().len() as u64;
                let prefix = self.marks_prefixes.then(|| Prefix::of(provider, request, &encoded));
                if let Some(prefix) = prefix.flatten() {
                    self.prefixes.insert(index, prefix);
                }
            }
            Err(error) => {
                self.invalid.insert(index, error);
            }
        }
        if let Some(dollars) = request.budget {
            self.budgets.insert(index, dollars);
        }
        self.items.push(item);
        Ok(())
    }

    /// Puts the bodies out of memory, once all are there and as far as there is room on the disk.
    pub(crate) fn put_away(&mut self) {
        self.bodies.put_away();
    }

    fn group_of(&mut self, request: &Request) -> u32 {
        let key = (request.kind.clone(), request.model.clone(), request.deadline);
        let groups = &mut self.groups;
        *self.by_name.entry(key).or_insert_with_key(|(kind, model, deadline)| {
            let due = deadline.map(moment);
            groups.push(Group { kind: kind.clone(), model: model.clone(), due });
            u32::try_from(groups.len() - 1).expect("fewer groups than requests fit in memory")
        })
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(crate) fn id(&self, index: usize) -> &Arc<str> {
        &self.items[index].id
    }

    pub(crate) fn group(&self, index: usize) -> &Group {
        &self.groups[self.items[index].group as usize]
    }

    pub(crate) fn model(&self, member: u32) -> &str {
        &self.group(member as usize).model
    }

    /// Returns the part of a request that others may share, where caching it is wanted.
    pub(crate) fn prefix(&self, index: usize) -> Option<Prefix> {
        self.prefixes.get(&index).copied()
    }

    /// Returns what a request may cost at most, where it says so.
    pub(crate) fn budget(&self, index: usize) -> Option<f64> {
        self.budgets.get(&index).copied()
    }

    pub(crate) fn has_deadlines(&self) -> bool {
        self.groups.iter().any(|group| group.due.is_some())
    }

    /// Returns when the answer to a request is needed at the latest.
    pub(crate) fn due(&self, index: usize) -> Option<Instant> {
        self.group(index).due
    }

    /// Returns why a request cannot be sent as it is.
    pub(crate) fn invalid(&self, index: usize) -> Option<&RequestError> {
        self.invalid.get(&index)
    }

    /// Returns what a request asks for at most.
    pub(crate) fn extent(&self, index: usize) -> Result<Extent, Error> {
        #[derive(Deserialize)]
        struct Longest {
            max_tokens: Option<u64>,
            max_completion_tokens: Option<u64>,
            n: Option<u64>,
        }
        let item = &self.items[index];
        let mut body = vec![0; usize::try_from(item.bytes).unwrap_or(usize::MAX)];
        let unreadable = |source: io::Error| Error::StateIo {
            action: "read the bodies for".into(),
            path: self.dir.clone(),
            source,
        };
        self.read(index, 0, &mut body).map_err(unreadable)?;
        let longest: Longest =
            serde_json::from_slice(&body).map_err(|error| unreadable(error.into()))?;
        let tokens = longest.max_completion_tokens.or(longest.max_tokens);
        Ok(Extent {
            body_bytes: item.bytes,
            answer_tokens: tokens.map(|tokens| tokens.saturating_mul(longest.n.unwrap_or(1))),
            // A text that has it only quotes it: then the estimate is too high.
            writes_cache: self.prefixes.contains_key(&index)
                || memmem::find(&body, b"cache_control").is_some(),
        })
    }

    /// Fills `buffer` from the body of a request, from `start` on.
    pub(crate) fn read(&self, index: usize, start: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bodies.read(self.items[index].at + start, buffer)
    }

    /// Returns a table of requests whose bodies have so many bytes, of six kinds and models.
    #[cfg(test)]
    pub(crate) fn of_sizes(items: &[(u8, u64)]) -> Table {
        let mut table = Table::new(Path::new("unused"));
        // There may be a million: what they have in common is made once.
        let (id, mut groups) = (Arc::from("id"), [None; 6]);
        for &(number, bytes) in items {
            let group = *groups[usize::from(number % 6)].get_or_insert_with(|| {
                let kind = if number % 2 == 0 { Kind::Judge } else { Kind::Planner };
                let request = Request::prompt("", format!("m{}", number % 3), "").with_kind(kind);
                table.group_of(&request)
            });
            let id = Arc::clone(&id);
            table.items.push(Item { id, group, at: 0, bytes, digest: [0; 32] });
        }
        table
    }
}
