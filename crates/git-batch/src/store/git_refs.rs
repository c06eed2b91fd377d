//! Moves local branches by one transaction of `git update-ref`.

use std::collections::BTreeSet;
use std::time::Instant;

use bstr::ByteSlice;
use gix::refs::FullName;

use super::ref_locks::RefLocks;
use super::refs::{Faults, Moved, PATIENCE, RefMove, check_unmoved, each, faults, not_moved};
use super::{Signer, Store, check_not_checked_out, clashes};
use crate::publish::scrub;
use crate::{OpError, OpErrorKind, stops};

impl Store {
    /// Moves branches back, all or none; one whose `new` is no id is removed.
    pub(crate) fn take_back(&mut self, moves: &[RefMove], signer: &Signer) -> Result<(), Faults> {
        self.move_by_git(moves, signer).map(drop)
    }

    pub(super) fn move_by_git(
        &mut self,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults> {
        let locks = self.lock_indexes(moves)?;
        self.fsyncs += locks.fsyncs;
        let names: Vec<&FullName> = moves.iter().map(|m| &m.name).collect();
        let failed = |error: &OpError| -> Faults {
            moves.iter().map(|m| (m.name.clone(), error.clone())).collect()
        };
        let found = self.tips_by_git(&names).map_err(|error| failed(&error))?;
        let checked_out = self.checked_out();
        let mut arrived: BTreeSet<FullName> = BTreeSet::new();
        each(moves, |m| {
            let found = found.get(&m.name);
            if found.is_some_and(|found| found.is_symbolic) {
                return Err(not_moved(m, &std::io::Error::other("it is a symbolic ref")));
            }
            let found = found.map(|found| found.commit);
            if m.has_arrived(self, found) {
                arrived.insert(m.name.clone());
                return Ok(());
            }
            check_unmoved(m, found).map_err(|error| not_moved(m, &error))?;
            let own = m.worktree.as_ref().map(|own| own.checkout.git_dir.as_path());
            check_not_checked_out(&checked_out, &m.name, own)?;
            if m.old.is_none()
                && let Some(found) = self.clashing_branch(&m.name)?
            {
                return Err(clashes(&m.name, &found));
            }
            Ok(())
        })?;
        let indexes = self.prepare_indexes(moves)?;
        let left: Vec<&RefMove> = moves.iter().filter(|m| !arrived.contains(&m.name)).collect();
        if !left.is_empty() {
            self.transact(&left, signer)?;
            // At least one call for each of the files that git has written.
            self.fsyncs += u32::try_from(left.len()).unwrap_or(u32::MAX);
        }
        for index in indexes.into_values() {
            // The branch has moved. An index that does not follow shows the commit as undone, but
            // loses nothing.
            let _ = index.commit();
        }
        stops::reach("refs moved");
        let committer = signer.reflog_bytes();
        for m in left {
            // Git notes the move of the work tree that it runs in by itself.
            if m.worktree.as_ref().is_some_and(|own| own.checkout.git_dir != self.git_dir) {
                let _ = self.log_head(m, &committer);
            }
        }
        drop(locks);
        let _ = self.repo.refs.force_refresh_packed_buffer();
        Ok(moves.iter().map(|_| Ok(())).collect())
    }

    /// Takes the locks of the indexes that change with their branches.
    fn lock_indexes(&self, moves: &[RefMove]) -> Result<RefLocks, Faults> {
        let all: Vec<&RefMove> = moves.iter().collect();
        let files: Vec<_> = moves.iter().filter_map(|m| self.index_of(m)).collect();
        let mut locks =
            RefLocks::begin(&self.common_dir, &files).map_err(|error| faults(&all, &error))?;
        self.take_indexes(&mut locks, moves, Instant::now() + PATIENCE.1)?;
        Ok(locks)
    }

    /// All or none.
    fn transact(&self, moves: &[&RefMove], signer: &Signer) -> Result<(), Faults> {
        let mut input = Vec::new();
        for m in moves {
            let old = m.old.unwrap_or_else(|| self.null_id());
            input.extend_from_slice(b"update ");
            input.extend_from_slice(m.name.as_bstr());
            input.extend_from_slice(format!("\0{}\0{old}\0", m.new).as_bytes());
        }
        let failed = |error: &OpError| -> Faults {
            moves.iter().map(|m| (m.name.clone(), error.clone())).collect()
        };
        let mut command = self.program().map_err(|error| failed(&error))?.command();
        // One line for all: git has one message for a transaction.
        let message = match moves {
            [only] => only.message.to_str_lossy().into_owned(),
            _ => format!("git-batch: {} branches", moves.len()),
        };
        let (name, email, time) = signer.reflog_parts();
        command
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", email)
            .env("GIT_COMMITTER_DATE", time)
            .args(["-c", "core.fsync=committed,loose-object,reference"])
            .args(["-c", "core.fsyncMethod=fsync"])
            .args(["update-ref", "--no-deref", "-m", &message, "--stdin", "-z"]);
        let output = self.finish_program(command, Some(&input)).map_err(|error| failed(&error))?;
        if output.is_success() {
            return Ok(());
        }
        let said = scrub::excerpt(&output.stderr);
        let is_hook = said.contains("aborted by hook");
        let kind = if is_hook { OpErrorKind::Hook } else { OpErrorKind::BranchMoved };
        let error = |m: &RefMove| {
            let message = format!("branch {:?} cannot be moved: {said}", m.name.shorten());
            OpError::new(kind, message)
        };
        let is_named = |m: &RefMove| said.contains(&format!("'{}'", m.name.as_bstr()));
        let mut culprits: Vec<&&RefMove> = moves.iter().filter(|m| is_named(m)).collect();
        if culprits.is_empty() {
            culprits.extend(moves);
        }
        Err(culprits.into_iter().map(|m| (m.name.clone(), error(m))).collect())
    }
}
