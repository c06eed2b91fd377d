//! The one push of a batch.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;

pub(crate) use super::refspecs::MAX_ARGUMENTS;
use super::refspecs::Refspecs;
use super::remote::{Untracked, check_remote, is_full_name, remote_refs};
use super::{Class, PublishError, PushReport, PushStatus, RefUpdate, scrub};
use crate::porcelain;
use crate::program::Git;

/// The reason that git gives for a ref that could have moved, had not another ref been refused.
pub(crate) const ATOMIC: &str = "atomic push failed";

/// The reason that a remote gives for all refs where it could not lock one of them.
const TRANSACTION: &str = "atomic transaction failed";

/// How many bytes of arguments one update takes at most.
pub(crate) fn arguments_len(name: &BStr, new: ObjectId) -> usize {
    const FIXED: usize = "--force-with-lease=::".len() + 2;
    FIXED + 2 * name.len() + 2 * new.kind().len_in_hex()
}

/// Whether that is the reason; a remote words it a little differently.
pub(crate) fn is_innocent(reason: &str) -> bool {
    reason == ATOMIC || reason == "atomic push failure" || reason == TRANSACTION
}

/// Pushes `updates` to `remote` with one command; each ref lands or fails alone.
///
/// A ref moves only if the remote has what `expect` says at that moment (a lease; more than some 3,000
/// refs do not fit on a command line and go without), and only to a
/// descendant of it: git forces an update whose lease holds, so that is checked here, before
/// anything is sent. What cannot be pushed at all (no name of a ref, named twice, an object that
/// is not here) is refused without keeping the others back. The pre-push hook runs once; hooks of
/// the remote run as for any push. If the remote does not say what became of a ref, or says that
/// another was first, its refs are read once to find out: what is there has landed, whoever brought
/// it. What stays open is [`PushStatus::Unknown`].
///
/// Two processes, three if the refs are read; blocks up to the time limit of `git` for each.
///
/// # Errors
/// The remote cannot be reached, the pre-push hook refused, or there was no answer for any ref and none
/// has landed.
pub fn push(git: &Git, remote: &str, updates: &[RefUpdate]) -> Result<PushReport, PublishError> {
    push_with(git, remote, updates, &PushOptions::default())
}

/// How a push is made; see [`push_with`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PushOptions {
    /// Whether the remote is to move all refs or none.
    pub is_atomic: bool,
    /// What the hooks of the remote get as push options.
    pub options: Vec<String>,
}

/// As [`push`], with options.
///
/// An atomic push in which one update cannot be sent sends none. Whether a remote did as it was
/// asked shows in the statuses: they are read from its answer, ref by ref.
///
/// # Errors
/// As [`push`]; a remote that knows no atomic pushes or no push options refuses.
pub fn push_with(
    git: &Git,
    remote: &str,
    updates: &[RefUpdate],
    options: &PushOptions,
) -> Result<PushReport, PublishError> {
    push_known(git, remote, &mut None, updates, options)
}

/// As [`push_with`], where the settings of the remote may be known; they are afterwards. One process less
/// if they are.
pub(crate) fn push_known(
    git: &Git,
    remote: &str,
    known: &mut Option<Untracked>,
    updates: &[RefUpdate],
    options: &PushOptions,
) -> Result<PushReport, PublishError> {
    check_remote(remote)?;
    let mut report =
        PushReport { refs: Vec::new(), pushes: 0, processes: 0, stderr: String::new() };
    let mut round = Round::plan(git, updates)?;
    if options.is_atomic {
        round.all_or_none();
    }
    if !round.sent.is_empty() {
        report.processes += u32::from(known.is_none());
        let remote_here = match known {
            Some(known) => &*known,
            None => known.insert(Untracked::of(git, remote)?),
        };
        let sent: Vec<&RefUpdate> = round.sent.values().map(|index| &updates[*index]).collect();
        let refspecs = Refspecs::of(&sent, remote_here).map_err(PublishError::File)?;
        let mut command = git.command();
        command.args(&remote_here.options).args(&refspecs.settings).args(["push", "--porcelain"]);
        command.args(options.is_atomic.then_some("--atomic"));
        command.args(options.options.iter().map(|option| format!("--push-option={option}")));
        command.args(&refspecs.arguments);
        let failure = match git.finish(command, None) {
            Ok(output) => {
                report.stderr = scrub::excerpt(&output.stderr);
                let is_answered = round.read(&output.stdout, &output.stderr);
                (!is_answered).then(|| PublishError::failed("push to", remote, &output))
            }
            Err(error) => Some(error.into()),
        };
        report.pushes = 1;
        report.processes += 1;
        if round.is_any_open() {
            report.processes += 1;
            match (remote_refs(git, remote), failure) {
                (Ok(state), None) => round.settle(&state.refs, None),
                // It broke off: what landed before that has landed.
                (Ok(state), Some(failure)) if round.has_landed_any(&state.refs) => {
                    round.settle(&state.refs, Some(&failure));
                }
                (_, Some(failure)) => return Err(failure),
                (Err(_), None) => {}
            }
        }
    }
    report.refs = round.into_statuses();
    Ok(report)
}

/// Opens the repository for reading objects and refs, without the settings of a user.
pub(super) fn open(git: &Git) -> Result<gix::Repository, PublishError> {
    gix::open_opts(git.git_dir(), gix::open::Options::isolated().open_path_as_is(true))
        .map_err(PublishError::Repository)
}

/// Whether an object is here; one of another hash never is, and cannot be looked up.
fn is_here(repo: &gix::Repository, id: ObjectId) -> bool {
    id.kind() == repo.object_hash() && repo.has_object(id)
}

/// The updates of one push with what is known about each.
struct Round<'a> {
    updates: &'a [RefUpdate],
    /// `None` as long as nobody has said what became of the ref.
    statuses: Vec<Option<PushStatus>>,
    /// Where in `updates` each ref is that is sent.
    sent: BTreeMap<&'a BStr, usize>,
}

impl<'a> Round<'a> {
    /// Refuses what must not be sent, and notes the rest.
    fn plan(git: &Git, updates: &'a [RefUpdate]) -> Result<Round<'a>, PublishError> {
        let mut round =
            Round { updates, statuses: vec![None; updates.len()], sent: BTreeMap::new() };
        if updates.is_empty() {
            return Ok(round);
        }
        let repo = open(git)?;
        let cache = repo.commit_graph_if_enabled().ok().flatten();
        let mut graph = repo.revision_graph(cache.as_ref());
        for (index, update) in updates.iter().enumerate() {
            let refused = if !is_full_name(update.name.as_ref()) || update.name.to_str().is_err() {
                Some((Class::Permanent, "not the full name of a ref"))
            } else if round.sent.contains_key(update.name.as_bstr()) {
                Some((Class::Permanent, "named twice in one push"))
            } else if !is_here(&repo, update.new) {
                Some((Class::Permanent, "the new object is not in this repository"))
            } else {
                let mut descends = |old, new| {
                    // The best of them may be another one, where commits are not older than what
                    // was made on top of them.
                    let bases = repo.merge_bases_many_with_graph(old, &[new], &mut graph);
                    bases.is_ok_and(|bases| bases.into_iter().any(|base| base == old))
                };
                match update.expect {
                    None => None,
                    Some(old) if old == update.new => None,
                    Some(old) if !is_here(&repo, old) => Some((Class::Transient, "fetch first")),
                    Some(old) if descends(old, update.new) => None,
                    Some(_) => Some((Class::Transient, "non-fast-forward")),
                }
            };
            match refused {
                Some((class, reason)) => {
                    round.statuses[index] =
                        Some(PushStatus::Rejected { class, reason: reason.to_owned() });
                }
                None => {
                    round.sent.insert(update.name.as_bstr(), index);
                }
            }
        }
        Ok(round)
    }

    /// Sends nothing if something cannot be sent.
    fn all_or_none(&mut self) {
        if self.sent.len() == self.updates.len() {
            return;
        }
        for (_, index) in std::mem::take(&mut self.sent) {
            let reason = ATOMIC.to_owned();
            self.statuses[index] = Some(PushStatus::Rejected { class: Class::Transient, reason });
        }
    }

    /// Reads the output of a push; false if it says nothing about any ref that was sent.
    fn read(&mut self, stdout: &[u8], stderr: &[u8]) -> bool {
        let mut heard = BTreeSet::new();
        for line in porcelain::lines(stdout) {
            let Some(index) = self.sent.get(line.to.as_bstr()).copied() else { continue };
            if self.updates[index].new.to_string().as_bytes() != line.from {
                continue;
            }
            let status = &mut self.statuses[index];
            // Of two lines about one ref at most one is git's: the one that promises less counts.
            if heard.insert(index) || promise(line.status.as_ref()) < promise(status.as_ref()) {
                *status = line.status;
            }
        }
        for (update, status) in self.updates.iter().zip(&mut self.statuses) {
            if let Some(PushStatus::Rejected { class, reason }) = status
                && (reason == "failed to update ref" || reason == TRANSACTION)
                && let Some(detail) = why_locked(stderr, &update.name)
            {
                (*class, *reason) = (porcelain::classify(&detail), detail);
            }
        }
        !heard.is_empty()
    }

    /// Whether the remote's refs can say more about a ref than its answer did: there was none, or
    /// another was first, who may have pushed the very same commit.
    fn is_any_open(&self) -> bool {
        let is_open = |status: &Option<PushStatus>| match status {
            None => true,
            Some(PushStatus::Rejected { class, .. }) => *class == Class::Transient,
            Some(_) => false,
        };
        self.sent.values().any(|index| is_open(&self.statuses[*index]))
    }

    fn has_landed_any(&self, refs: &BTreeMap<BString, ObjectId>) -> bool {
        self.sent.iter().any(|(name, index)| refs.get(*name) == Some(&self.updates[*index].new))
    }

    /// Finds out from the remote's refs what nobody has said; `failure` is why nothing was said.
    fn settle(&mut self, refs: &BTreeMap<BString, ObjectId>, failure: Option<&PublishError>) {
        for (name, &index) in &self.sent {
            let (update, status) = (&self.updates[index], &mut self.statuses[index]);
            let there = refs.get(*name).copied();
            let has_landed = there == Some(update.new);
            *status = match (status.take(), failure) {
                (Some(PushStatus::Rejected { class: Class::Transient, .. }), _) if has_landed => {
                    Some(PushStatus::UpToDate)
                }
                (Some(known), _) => Some(known),
                (None, _) if has_landed => Some(match update.expect {
                    Some(_) => PushStatus::Updated,
                    None => PushStatus::Created,
                }),
                // Another may have gone on from it.
                (None, _) if there != update.expect => {
                    Some(unknown("the remote gave no answer, and the ref was moved by another"))
                }
                (None, Some(failure)) => Some(PushStatus::Rejected {
                    class: failure.class(),
                    reason: failure.to_string(),
                }),
                (None, None) => Some(PushStatus::Rejected {
                    class: Class::Transient,
                    reason: "the remote gave no answer, and the ref has not moved".to_owned(),
                }),
            };
        }
    }

    fn into_statuses(self) -> Vec<(BString, PushStatus)> {
        let silent = || unknown("the remote gave no answer, and its refs cannot be read");
        let statuses = self.statuses.into_iter().map(|status| status.unwrap_or_else(silent));
        self.updates.iter().map(|update| update.name.clone()).zip(statuses).collect()
    }
}

/// A ref that may have landed. To push it again is safe: the lease holds it back if another has moved
/// it, and it is up to date if it had landed.
fn unknown(reason: &str) -> PushStatus {
    PushStatus::Unknown { reason: reason.to_owned() }
}

/// Orders what is known about a ref by how much of it is promised to have landed.
fn promise(status: Option<&PushStatus>) -> u8 {
    match status {
        Some(PushStatus::Rejected { .. }) => 0,
        None | Some(PushStatus::Unknown { .. }) => 1,
        Some(_) => 2,
    }
}

/// Finds what the remote wrote about a ref that it could not lock; its answer alone does not tell
/// a busy ref from a name that clashes with another.
fn why_locked(stderr: &[u8], name: &BString) -> Option<String> {
    let start = format!("cannot lock ref '{name}': ");
    stderr.lines().find_map(|line| {
        line.split_once_str(&start).map(|(_, why)| format!("{start}{}", scrub::line(why)))
    })
}
