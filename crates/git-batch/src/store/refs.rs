//! Moves local branches by compare-and-swap, each alone in its success or failure.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bstr::{BString, ByteSlice};
use gix::lock::acquire::Fail;
use gix::refs::file::Transaction;
use gix::refs::file::transaction::PackedRefs;
use gix::refs::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix::refs::{FullName, Target};
use gix::{Error, ObjectId};

use super::{Signer, Store};
use crate::outcome::causes;
use crate::{OpError, OpErrorKind};

/// One branch that is to move.
#[derive(Debug, Clone)]
pub(crate) struct RefMove {
    pub(crate) name: FullName,
    /// What it must be; `None` means that it must not exist.
    pub(crate) old: Option<ObjectId>,
    pub(crate) new: ObjectId,
    /// The line of the reflog.
    pub(crate) message: BString,
}

/// Whether a branch moved.
pub(crate) type Moved = Result<(), OpError>;

impl Store {
    /// Moves all branches and makes them durable. New and packed ones move in one rename of
    /// `packed-refs`, the others one by one.
    ///
    /// An error names the branches that somebody else moved or locked; then none has moved.
    /// Otherwise there is one result for each, in the order given.
    pub(crate) fn move_refs(
        &mut self,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Vec<(FullName, OpError)>> {
        let committer = signer.reflog();
        let (loose, packed): (Vec<&RefMove>, Vec<&RefMove>) =
            moves.iter().partition(|m| self.common_dir.join(path_of(&m.name)).is_file());
        // gix locks `packed-refs` for loose refs too, so the two groups cannot hold their locks
        // together. All are checked first, so that as a rule none moves if one cannot.
        if !loose.is_empty() && !packed.is_empty() {
            let all: Vec<&RefMove> = moves.iter().collect();
            self.lock(&all, false).map_err(|error| self.culprits(moves, &error))?;
        }
        let mut time = gix::date::parse::TimeBuf::default();
        let committer = committer.to_ref(&mut time);
        let mut fault = None;
        for (group, is_packed, is_only) in
            [(&loose, false, packed.is_empty()), (&packed, true, loose.is_empty())]
        {
            if group.is_empty() {
                continue;
            }
            match self.lock(group, is_packed).map(|locked| locked.commit(committer)) {
                Ok(Ok(_)) => {}
                Err(error) if is_only => return Err(self.culprits(moves, &error)),
                Ok(Err(error)) | Err(error) => fault = Some(error),
            }
        }
        let mut fsyncs = 0;
        if !packed.is_empty() {
            fsyncs += self.sync(Path::new("packed-refs"));
        }
        fsyncs += loose.iter().map(|m| self.sync(&path_of(&m.name))).sum::<u32>();
        let result = |m: &RefMove| match &fault {
            Some(error) if self.branch_tip(&m.name) != Ok(Some(m.new)) => {
                Err(moved_by_others(m, error))
            }
            _ => Ok(()),
        };
        let results = moves.iter().map(result).collect();
        self.fsyncs += fsyncs;
        Ok(results)
    }

    /// Takes the locks of all these branches and checks what they are now.
    fn lock(&self, moves: &[&RefMove], is_packed: bool) -> Result<Transaction<'_, '_>, Error> {
        let mut transaction = self.repo.refs.transaction();
        if is_packed {
            transaction = transaction.packed_refs(
                PackedRefs::DeletionsAndNonSymbolicUpdatesRemoveLooseSourceReference(Box::new(
                    &self.repo.objects,
                )),
            );
        }
        // As long as git itself waits for these locks by default.
        let (one, all) = (Duration::from_millis(100), Duration::from_secs(1));
        transaction.prepare(
            moves.iter().map(|m| edit(m)),
            Fail::AfterDurationWithBackoff(one),
            Fail::AfterDurationWithBackoff(all),
        )
    }

    /// Finds the branches that cannot be moved by trying each alone.
    fn culprits(&self, moves: &[RefMove], error: &Error) -> Vec<(FullName, OpError)> {
        let describe = |m: &RefMove, error: &Error| (m.name.clone(), moved_by_others(m, error));
        let alone: Vec<_> = moves
            .iter()
            .filter_map(|m| self.lock(&[m], false).err().map(|error| describe(m, &error)))
            .collect();
        // Each can be had alone: what they share, `packed-refs`, is locked.
        if alone.is_empty() { moves.iter().map(|m| describe(m, error)).collect() } else { alone }
    }

    /// Makes a file of the common directory and its folder durable, which gix does not do, and
    /// returns how many calls that took. The rename has happened, so a failure here is no reason
    /// to report that the branch did not move.
    fn sync(&self, name: &Path) -> u32 {
        let path = self.common_dir.join(name);
        let paths = [Some(path.as_path()), path.parent()];
        paths.into_iter().flatten().map(|path| u32::from(sync_path(path).is_ok())).sum()
    }
}

fn moved_by_others(m: &RefMove, error: &Error) -> OpError {
    let name = m.name.shorten().to_str_lossy();
    let message =
        format!("branch {name:?} was moved or is locked by somebody else: {}", causes(error));
    OpError::new(OpErrorKind::BranchMoved, message)
}

/// The path of a loose ref below the common directory.
fn path_of(name: &FullName) -> PathBuf {
    gix::path::from_bstr(name.as_bstr()).unwrap_or_default().into_owned()
}

fn sync_path(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

fn edit(m: &RefMove) -> RefEdit {
    let expected = match m.old {
        None => PreviousValue::MustNotExist,
        Some(old) => PreviousValue::MustExistAndMatch(Target::Object(old)),
    };
    let log = LogChange {
        mode: RefLog::AndReference,
        force_create_reflog: false,
        message: m.message.clone(),
    };
    RefEdit {
        change: Change::Update { log, expected, new: Target::Object(m.new) },
        name: m.name.clone(),
        deref: false,
    }
}
