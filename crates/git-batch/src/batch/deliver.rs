//! Pushes so that no branch keeps another back: a refusal of all is taken apart, and what may pass is
//! tried again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use gix::ObjectId;
use gix::refs::FullName;

use super::Batch;
use crate::publish::push;
use crate::{Class, Outcome, Place, stops};

type Wanted = BTreeMap<FullName, ObjectId>;
type Results = BTreeMap<FullName, Result<(), Outcome>>;

/// How often a branch is pushed again whose refusal may pass.
pub(super) const MAX_RETRIES: u32 = 8;
/// The longest pause before the first retry, and before any.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How many bad branches are looked for in a push that was refused as a whole.
const MAX_CULPRITS: u32 = 8;

impl Batch<'_, '_> {
    /// Pushes branches, each alone in its success or failure; gives what was pushed of each, which
    /// is another commit than was wanted where the remote had moved.
    pub(super) fn deliver(
        &mut self,
        wanted: &Wanted,
        outcomes: &mut [Option<Outcome>],
    ) -> BTreeMap<FullName, Result<ObjectId, Outcome>> {
        let mut results = BTreeMap::new();
        let mut left = self.instead_of(wanted);
        for retry in 0.. {
            let mut again = Vec::new();
            for (name, result) in self.push_apart(&left) {
                let pushed =
                    left.get(&name).copied().unwrap_or_else(|| self.session.store.null_id());
                let may_pass =
                    matches!(result, Err(Outcome::Rejected { class: Class::Transient, .. }));
                if may_pass && !self.is_landing && retry < MAX_RETRIES {
                    again.push(name.clone());
                }
                if result.is_ok()
                    && wanted.get(&name) != Some(&pushed)
                    && self.follow_push(&name, wanted.get(&name).copied(), pushed)
                {
                    self.rename_remade(&name, outcomes);
                }
                results.insert(name, result.map(|()| pushed));
            }
            if again.is_empty() {
                break;
            }
            if !self.look_again(retry) {
                break;
            }
            left.clear();
            let again: Wanted = again
                .into_iter()
                .filter_map(|name| wanted.get(&name).map(|id| (name.clone(), *id)))
                .collect();
            for (name, result) in self.catch_up_all(&again) {
                match result {
                    Ok(id) => drop(left.insert(name, id)),
                    Err(outcome) => drop(results.insert(name, Err(outcome))),
                }
            }
        }
        results
    }

    /// Waits a little and asks the remote once more what it has.
    pub(super) fn look_again(&mut self, retry: u32) -> bool {
        // In full jitter, so that those who clashed once do not clash again.
        std::thread::park_timeout(pause(retry));
        self.remote = None;
        self.remote().is_ok()
    }

    /// Pushes in as many commands as the arguments need.
    fn push_apart(&mut self, wanted: &Wanted) -> Results {
        let mut results = Results::new();
        let mut part = Wanted::new();
        let mut bytes = 0;
        let max_refs = self.session.settings.max_refs_per_push.unwrap_or(usize::MAX);
        for (name, &id) in wanted {
            let more = push::arguments_len(name.as_bstr(), id);
            let is_full = bytes + more > push::MAX_ARGUMENTS || part.len() >= max_refs;
            if is_full && !part.is_empty() {
                results.extend(self.push_part(&std::mem::take(&mut part)));
                bytes = 0;
            }
            bytes += more;
            part.insert(name.clone(), id);
        }
        if !part.is_empty() {
            results.extend(self.push_part(&part));
        }
        results
    }

    fn push_part(&mut self, part: &Wanted) -> Results {
        // Each level of halving costs two pushes for each bad branch.
        let levels = usize::BITS - part.len().leading_zeros();
        let mut trips = 1 + 2 * levels * MAX_CULPRITS;
        self.bisect(part, &mut trips)
    }

    /// Pushes; where the remote refused all for a reason that names no branch, pushes both halves.
    fn bisect(&mut self, part: &Wanted, trips: &mut u32) -> Results {
        let moved = |batch: &Self| {
            batch.receipt.refs.iter().filter(|change| change.place == Place::Remote).count()
        };
        let before = moved(self);
        *trips = trips.saturating_sub(1);
        let mut results = self.push_refs(part, false);
        if moved(self) > before {
            return results;
        }
        let refused = refused_as_one(&results);
        if refused.len() < 2 {
            return results;
        }
        let (first, second) = refused.split_at(refused.len() / 2);
        for half in [first, second] {
            if *trips == 0 {
                break;
            }
            let half: Wanted = half
                .iter()
                .filter_map(|name| Some((name.clone(), part.get(name).copied()?)))
                .collect();
            results.extend(self.bisect(&half, trips));
        }
        results
    }
}

/// The branches that were refused for one and the same reason that may be about one of them alone.
fn refused_as_one(results: &Results) -> Vec<FullName> {
    let reason_of = |result: &Result<(), Outcome>| match result {
        Err(Outcome::Rejected { class: Class::Permanent, reason }) => Some(reason.clone()),
        _ => None,
    };
    let mut refused = results.iter().filter_map(|(name, result)| Some((name, reason_of(result)?)));
    let Some((first, reason)) = refused.next() else { return Vec::new() };
    // The hook of each ref has spoken for itself.
    if reason == "hook declined" {
        return Vec::new();
    }
    let mut names = vec![first.clone()];
    for (name, other) in refused {
        if other != reason {
            return Vec::new();
        }
        names.push(name.clone());
    }
    names
}

/// A random time that may be longer the more tries there were.
pub(crate) fn pause(retry: u32) -> Duration {
    let longest = PAUSE.0.saturating_mul(1 << retry.min(16)).min(PAUSE.1);
    let random = RandomState::new().hash_one(retry);
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    stops::waited(Duration::from_micros(random % micros.saturating_add(1)))
}
