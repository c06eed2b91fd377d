//! What is known of the requests already, and which of them are to be sent.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Job, Session, Tell};
use crate::answer::Status;
use crate::direct::Ask;
use crate::draft::NOBODY;
use crate::error::Error;
use crate::lane::{Lane, LaneChoice};
use crate::plan::{Candidate, Piece, plan};
use crate::provider::Progress;
use crate::record::Fate;
use crate::seek::Seek;
use crate::send::Send;

impl<T: Tell> Session<'_, T> {
    /// Settles what is known already. Returns the requests that are still to be sent, each with
    /// the record in which it was given up.
    pub(super) fn sort(&mut self) -> Result<Vec<(u32, Option<u64>)>, Error> {
        let mut fresh = Vec::new();
        let mut known_to: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for index in 0..self.table.items().len() {
            let item = &self.table.items()[index];
            let state = self.engine.state();
            let known = state.known(item);
            let delivered = self.engine.delivered(&state, item, self.mode);
            drop(state);
            self.touched.extend(known.map(|known| known.at));
            let wire = u32::try_from(index).map_err(|_| too_many())?;
            if let Some(delivered) = delivered {
                self.status[index] = delivered.status;
                self.count(index, delivered);
                if delivered.status == Status::Succeeded {
                    let (group, lane) = (self.table.group(index), self.lane_of(index));
                    self.accounting.ran(group, lane, &self.engine.settings.prices);
                }
            } else if let Some(known) = known {
                let size = self.engine.state().record(known.at).size;
                let members = known_to.entry(known.at).or_insert_with(|| vec![NOBODY; size]);
                members[known.seq] = wire;
            } else if let Some(error) = self.table.invalid(index) {
                self.hand_over(index, Err(error.clone()))?;
            } else {
                fresh.push((wire, None));
            }
        }
        for (at, members) in known_to {
            let wanted = members.clone();
            let taken_up = self.take_up(at, members, &mut fresh);
            taken_up.or_else(|fault| self.fail(&wanted, fault))?;
        }
        Ok(fresh)
    }

    /// Has what a create left behind that made no batch removed.
    pub(crate) fn discard(&mut self, at: usize) {
        if !self.engine.provider.leaves_traces() {
            return;
        }
        let (nonce, anchor) = {
            let state = self.engine.state();
            let intent = &state.record(at).intent;
            (intent.nonce.clone(), intent.anchor.clone())
        };
        self.jobs.push(Instant::now(), Job::Discard { nonce, anchor });
    }

    /// Goes on with a create of an earlier pass.
    pub(crate) fn take_up(
        &mut self,
        at: usize,
        members: Vec<u32>,
        fresh: &mut Vec<(u32, Option<u64>)>,
    ) -> Result<(), Error> {
        let state = self.engine.state();
        let record = state.record(at);
        let (fate, nonce) = (record.fate.clone(), record.intent.nonce.clone());
        let (lane, number) = (record.intent.lane, record.number);
        let ambiguity = record.ambiguity().to_owned();
        let is_void = matches!(fate, Some(Fate::Void { .. }));
        let is_copied = state.is_copied(at);
        drop(state);
        let wanted = members.iter().copied().filter(|member| *member != NOBODY);
        match (fate, lane) {
            (Some(Fate::Submitted { batch_id }), _) => {
                let watch = self.watch_of(at, batch_id, nonce, members, Progress::Running);
                self.jobs.push(Instant::now(), Job::Watch(watch));
            }
            (Some(Fate::Preparing | Fate::Unsent { .. } | Fate::Void { .. }), lane) => {
                // What a copy finds uploaded the original may be about to use.
                if lane == Lane::Batch && !is_void && !is_copied {
                    self.discard(at);
                }
                fresh.extend(wanted.map(|member| (member, Some(number))));
            }
            (Some(fate @ Fate::Refused { .. }), _) => {
                if let Some(refusal) = fate.refusal() {
                    for member in wanted {
                        self.hand_over(member as usize, Err(refusal.clone()))?;
                    }
                }
            }
            (None | Some(Fate::Sending | Fate::Ambiguous { .. }), Lane::Batch) => {
                let seek = Seek::new(at, members, nonce, ambiguity, &self.engine.settings);
                self.jobs.push(Instant::now(), Job::Seek(seek));
            }
            (None | Some(Fate::Sending | Fate::Ambiguous { .. }), Lane::Sync) => {
                for member in wanted {
                    self.take_up_ask(at, member, &ambiguity)?;
                }
            }
        }
        Ok(())
    }

    /// Plans the creates of what is to be sent.
    pub(crate) fn send_all(&mut self, fresh: &[(u32, Option<u64>)]) -> Result<(), Error> {
        let mut limits = self.engine.provider.limits();
        let settings = &self.engine.settings;
        if settings.lane == LaneChoice::Sync {
            let asks = fresh.iter().map(|&(member, replaces)| Ask::new(member, replaces));
            self.direct.extend(asks, &self.table);
            return Ok(());
        }
        let soon = Instant::now().checked_add(settings.batch_time);
        let is_urgent = |member: u32| {
            let due = self.table.due(member as usize);
            settings.lane == LaneChoice::Auto && due.is_some() && due <= soon
        };
        let (urgent, fresh): (Vec<_>, Vec<_>) =
            fresh.iter().partition(|(member, _)| is_urgent(*member));
        let urgent = urgent.into_iter().map(|(member, replaces)| Ask::new(member, replaces));
        self.direct.extend(urgent, &self.table);
        if settings.cache_prefixes {
            let (before, after) = self.engine.provider.cache_mark();
            limits.entry_bytes += (before.len() + after.len()) as u64;
        }
        let max_items = settings.max_items.unwrap_or(limits.max_items);
        let candidates: Vec<Candidate> = {
            let state = self.engine.state();
            let candidate = |&(member, replaces): &(u32, Option<u64>)| {
                let at = replaces.and_then(|number| state.numbered(number));
                let resent = at.map_or(0, |at| state.record(at).intent.resent);
                let is_doubted = at.is_some_and(|at| state.doubts(at) > 0);
                Candidate { member, replaces, resent, is_doubted }
            };
            fresh.iter().map(candidate).collect()
        };
        let (pieces, refused) = plan(&self.table, &candidates, &limits, max_items);
        for (index, error) in refused {
            self.hand_over(index, Err(error))?;
        }
        for Piece { members, replaces, resent } in pieces {
            let send = Send::new(members, replaces, resent, settings.poll_interval);
            self.jobs.push(Instant::now(), Job::Send(send));
        }
        Ok(())
    }
}

fn too_many() -> Error {
    Error::Setting { problem: "a run takes at most 4 billion requests; split it".to_owned() }
}
