//! One pass over a set of requests: sort, create, wait, collect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::accounting::{Accounting, Delivered, Run};
use crate::answer::{Answer, RequestError, Status};
use crate::backoff::Backoff;
use crate::collect::Open;
use crate::engine::{Engine, Mode, Prepared};
use crate::error::{Error, PendingReason};
use crate::plan::{Piece, plan};
use crate::provider::{Call, CreateError, Created, Entry, Progress};
use crate::request::Request;
use crate::state::{Fate, Intent};
use crate::wire_id::{custom_id, nonce};

pub(crate) struct Session<'s> {
    pub(crate) engine: &'s Engine,
    pub(crate) requests: &'s [&'s Request],
    on_outcome: &'s mut dyn FnMut(usize, Result<Answer, RequestError>),
    status: Vec<Status>,
    accounting: Accounting,
    pub(crate) stray: u64,
    pub(crate) call: &'s Call<'s>,
    /// Creates begun and outcomes handed over in this pass.
    created: usize,
    told: usize,
    /// Records that carry a request of this pass.
    touched: BTreeSet<usize>,
    pub(crate) open: Vec<Open>,
    pending: Option<PendingReason>,
    pub(crate) refused: Option<PendingReason>,
    ambiguous: Option<Ambiguity>,
}

/// Requests whose create has an unknown fate.
struct Ambiguity {
    requests: usize,
    reason: String,
}

impl<'s> Session<'s> {
    pub(crate) fn new(
        engine: &'s Engine,
        call: &'s Call<'s>,
        requests: &'s [&'s Request],
        on_outcome: &'s mut dyn FnMut(usize, Result<Answer, RequestError>),
    ) -> Session<'s> {
        Session {
            engine,
            requests,
            on_outcome,
            status: vec![Status::Pending; requests.len()],
            accounting: Accounting::default(),
            stray: 0,
            call,
            created: 0,
            told: 0,
            touched: BTreeSet::new(),
            open: Vec::new(),
            pending: None,
            refused: None,
            ambiguous: None,
        }
    }

    pub(crate) fn work(
        &mut self,
        prepared: Vec<Result<Prepared, RequestError>>,
        mode: Mode,
    ) -> Result<(), Error> {
        let (fresh, digests) = self.sort(prepared, mode)?;
        if mode == Mode::Run {
            self.note_older_ambiguity();
        }
        if self.ambiguous.is_none() || mode == Mode::Tickets {
            let limits = self.engine.provider.limits();
            let max_items = self.engine.settings.max_items.unwrap_or(limits.max_items);
            let (pieces, refused) = plan(self.requests, &fresh, &limits, max_items);
            for (index, error) in refused {
                self.hand_over(index, Err(error))?;
            }
            for piece in pieces {
                if self.must_end() {
                    break;
                }
                self.create(&piece, &digests)?;
            }
        }
        self.wait_and_collect()?;
        self.engine.state().sync()
    }

    /// Returns what the pass came to; `worked` says whether it was cut by a fault.
    pub(crate) fn finish(mut self, worked: Result<(), Error>) -> Result<Run, Error> {
        if let Err(error) = worked {
            // With nothing sent and nothing told, it is as if the pass had not begun.
            if self.created == 0 && self.told == 0 {
                return Err(error);
            }
            self.pending = Some(PendingReason::State { problem: error.to_string() });
        }
        let state = self.engine.state();
        for &at in &self.touched {
            self.accounting.submissions += 1;
            if let Some(Fate::Submitted { .. }) = state.record(at).fate {
                self.accounting.batches += 1;
            }
        }
        drop(state);
        for status in self.status.iter().filter(|status| !status.is_final()) {
            self.accounting.count(*status, None);
            self.engine.tally(|totals| totals.count(*status, None));
        }
        self.accounting.http_calls = self.call.http_calls();
        self.accounting.settle();
        let is_done = self.status.iter().all(|status| status.is_final());
        let ids = self.requests.iter().map(|request| request.id.clone());
        let run = Run {
            outcomes: ids.zip(self.status).collect(),
            accounting: self.accounting,
            stray_results: self.stray,
        };
        let state = self.engine.state_dir.clone();
        match (self.ambiguous, self.pending.or(self.refused)) {
            _ if is_done => Ok(run),
            (Some(Ambiguity { requests, reason }), _) => {
                Err(Error::Ambiguous { state, requests, reason, run: Box::new(run) })
            }
            (None, reason) => Err(Error::Pending {
                state,
                reason: reason.unwrap_or(PendingReason::TimedOut),
                run: Box::new(run),
            }),
        }
    }

    /// Settles what is known already. Returns the requests that were never sent, with their
    /// length, and the digest of every request.
    #[expect(clippy::type_complexity, reason = "used once, three lines above")]
    fn sort(
        &mut self,
        prepared: Vec<Result<Prepared, RequestError>>,
        mode: Mode,
    ) -> Result<(Vec<(usize, u64)>, Vec<String>), Error> {
        let mut fresh = Vec::new();
        let mut digests = Vec::with_capacity(prepared.len());
        let mut open: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
        for (index, prepared) in prepared.into_iter().enumerate() {
            let id = self.requests[index].id.as_str();
            let state = self.engine.state();
            let known = state.find(id);
            let delivered = match (mode, &self.engine.settings.held) {
                (Mode::Tickets, _) => None,
                (Mode::Run, Some(held)) => held.get(id).copied(),
                (Mode::Run, None) => state.delivered(id),
            };
            self.touched.extend(known.map(|(at, _)| at));
            digests.push(prepared.as_ref().map_or_else(|_| String::new(), |p| p.digest.clone()));
            if let Some(delivered) = delivered {
                self.status[index] = delivered.status;
                self.accounting.count(delivered.status, delivered.usage);
                continue;
            }
            let Some((at, seq)) = known else {
                drop(state);
                match prepared {
                    Ok(prepared) => fresh.push((index, prepared.bytes)),
                    Err(error) => self.hand_over(index, Err(error))?,
                }
                continue;
            };
            let record = state.record(at);
            if record.is_ambiguous() {
                let reason = record.ambiguity().to_owned();
                drop(state);
                self.mark_ambiguous(index, &reason);
            } else if let Some(refusal) = record.fate.as_ref().and_then(Fate::refusal) {
                drop(state);
                self.hand_over(index, Err(refusal))?;
            } else {
                open.entry(at).or_default().insert(seq, index);
            }
        }
        for (at, waiting) in open {
            let state = self.engine.state();
            let record = state.record(at);
            let Some(Fate::Submitted { batch_id }) = &record.fate else { continue };
            let open = Open {
                batch_id: batch_id.clone(),
                nonce: record.intent.nonce.clone(),
                size: record.intent.requests.len(),
                waiting,
                progress: Progress::Running,
                next: Instant::now(),
                backoff: Backoff::new(self.engine.settings.poll_interval),
                reads: 0,
            };
            drop(state);
            self.open.push(open);
        }
        Ok((fresh, digests))
    }

    /// Takes note of creates of unknown fate that carry none of the requests at hand.
    fn note_older_ambiguity(&mut self) {
        if self.ambiguous.is_some() {
            return;
        }
        let state = self.engine.state();
        let mut ambiguous = state.records().iter().filter(|record| record.is_given_up());
        if let Some(first) = ambiguous.next() {
            let reason = first.ambiguity().to_owned();
            let rest: usize = ambiguous.map(|record| record.intent.requests.len()).sum();
            let requests = first.intent.requests.len() + rest;
            drop(state);
            self.ambiguous = Some(Ambiguity { requests, reason });
        }
    }

    fn mark_ambiguous(&mut self, index: usize, reason: &str) {
        self.status[index] = Status::Ambiguous;
        let ambiguity = self
            .ambiguous
            .get_or_insert_with(|| Ambiguity { requests: 0, reason: reason.to_owned() });
        ambiguity.requests += 1;
    }

    /// Gives an outcome to its requester and writes down that it was given.
    pub(crate) fn hand_over(
        &mut self,
        index: usize,
        outcome: Result<Answer, RequestError>,
    ) -> Result<(), Error> {
        let delivered = Delivered::of(&outcome);
        self.status[index] = delivered.status;
        self.accounting.count(delivered.status, delivered.usage);
        self.told += 1;
        self.engine.tally(|totals| totals.count(delivered.status, delivered.usage));
        (self.on_outcome)(index, outcome);
        self.engine.state().deliver(&self.requests[index].id, delivered)
    }

    /// Tells whether the time is up or somebody said stop, and remembers which.
    pub(crate) fn must_end(&mut self) -> bool {
        if self.pending.is_some() {
            return true;
        }
        if self.engine.settings.stop.is_stopped() {
            self.pending = Some(PendingReason::Stopped);
        } else if self.call.time_left().is_zero() {
            self.pending = Some(PendingReason::TimedOut);
        }
        self.pending.is_some()
    }

    /// Sends one create: intent to disk, one call, its fate to disk. Never twice.
    fn create(&mut self, piece: &Piece, digests: &[String]) -> Result<(), Error> {
        let provider = &*self.engine.provider;
        let first = self.requests[piece.members[0]];
        let nonce = nonce();
        let intent = Intent {
            nonce: nonce.clone(),
            provider: provider.name().to_owned(),
            endpoint: provider.endpoint().to_owned(),
            kind: first.kind.to_string(),
            model: first.model.clone(),
            requests: piece
                .members
                .iter()
                .map(|&index| (self.requests[index].id.clone(), digests[index].clone()))
                .collect(),
        };
        let waiting: BTreeMap<usize, usize> = piece.members.iter().copied().enumerate().collect();
        let at = self.engine.state().begin(intent)?;
        let _on_its_way = OnItsWay { engine: self.engine, at };
        self.touched.insert(at);
        self.created += 1;
        self.engine.tally(|totals| totals.submissions += 1);
        let ids = custom_ids(&nonce, &waiting);
        let created = provider.create(&entries(&ids, &waiting, self.requests), self.call);
        let (code, kind, message, retryable) = match created {
            Ok(Created { batch_id, progress }) => {
                self.engine.tally(|totals| totals.batches += 1);
                let fate = Fate::Submitted { batch_id: batch_id.clone() };
                self.engine.state().settle(at, fate)?;
                let mut backoff = Backoff::new(self.engine.settings.poll_interval);
                let next = match progress {
                    Progress::Ended => Instant::now(),
                    Progress::Running => Instant::now() + backoff.after_success(),
                };
                let size = waiting.len();
                let open =
                    Open { batch_id, nonce, size, waiting, progress, next, backoff, reads: 0 };
                self.open.push(open);
                return Ok(());
            }
            Err(CreateError::Ambiguous { reason }) => {
                self.engine.state().settle(at, Fate::Ambiguous { reason: reason.clone() })?;
                for &index in &piece.members {
                    self.mark_ambiguous(index, &reason);
                }
                return Ok(());
            }
            Err(CreateError::NotSent { reason }) => (None, "not_sent".to_owned(), reason, true),
            Err(CreateError::Refused { status, kind, message, retryable }) => {
                (Some(status), kind, message, retryable)
            }
        };
        let refused = RequestError::Refused {
            status: code,
            kind: kind.clone(),
            message: message.clone(),
            retryable,
        };
        self.engine.state().settle(at, Fate::Refused { code, kind, message, retryable })?;
        for &index in &piece.members {
            self.hand_over(index, Err(refused.clone()))?;
        }
        Ok(())
    }
}

/// Notes that a create is on its way no more, also where the provider panics.
struct OnItsWay<'s> {
    engine: &'s Engine,
    at: usize,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.engine.state().arrive(self.at);
    }
}

pub(crate) fn custom_ids(nonce: &str, waiting: &BTreeMap<usize, usize>) -> Vec<String> {
    waiting.keys().map(|&seq| custom_id(nonce, seq)).collect()
}

pub(crate) fn entries<'e>(
    ids: &'e [String],
    waiting: &BTreeMap<usize, usize>,
    requests: &[&'e Request],
) -> Vec<Entry<'e>> {
    ids.iter()
        .zip(waiting.values())
        .map(|(custom_id, &index)| Entry { custom_id, request: requests[index] })
        .collect()
}
