//! Blobs and commits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bstr::{BStr, BString, ByteSlice, ByteVec};
use gix::ObjectId;
use gix::actor::Signature;
use gix::objs::{Write, WriteTo};

use super::Store;
use crate::{OpError, OpErrorKind};

/// Commits that were signed, by what they are without: a batch that is built again because the gate left
/// something out asks for no signature twice.
#[derive(Debug, Default)]
pub(crate) struct Signed(BTreeMap<Vec<u8>, gix::objs::Commit>);

/// A commit that is to be made.
#[derive(Debug)]
pub(crate) struct NewCommit {
    pub(crate) tree: ObjectId,
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) author: Signature,
    pub(crate) committer: Signature,
    pub(crate) message: BString,
}

impl Store {
    pub(crate) fn write_blob(&self, content: &[u8]) -> Result<ObjectId, OpError> {
        // Also if the object is there: nothing may reach it, and then `git gc` may remove it any
        // moment. The same holds for trees and commits.
        self.repo
            .objects
            .write_buf(gix::objs::Kind::Blob, content)
            .map_err(|error| OpError::repository("cannot build a blob", &error))
    }

    /// Takes a blob into memory that nothing but an index may reach.
    pub(super) fn copy_blob(&self, id: ObjectId) -> Result<(), OpError> {
        let fault = |error: gix::Error| {
            OpError::repository(&format!("cannot read object {id} of the index"), &error)
        };
        self.fetch_missing([id])?;
        let blob = self.repo.find_blob(id).map_err(fault)?;
        self.write_blob(&blob.data).map(drop)
    }

    /// Whether the object is a blob of this repository.
    pub(crate) fn is_blob(&self, id: ObjectId) -> bool {
        // What cannot be fetched is none.
        let _ = self.fetch_missing([id]);
        self.repo.find_header(id).is_ok_and(|header| header.kind() == gix::objs::Kind::Blob)
    }

    /// Builds the commit, signed if the configuration says so.
    pub(crate) fn write_commit(&self, new: NewCommit) -> Result<ObjectId, OpError> {
        self.sign_and_write(new.into())
    }

    /// Builds a commit that nobody will see.
    pub(crate) fn write_unsigned(&self, new: NewCommit) -> Result<ObjectId, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot build a commit", &error);
        self.repo.objects.write(&gix::objs::Commit::from(new)).map_err(fault)
    }

    /// Builds a commit like `commit`, with another tree and parent: its author, message and encoding
    /// stay, signatures do not.
    pub(crate) fn rewrite_commit(
        &self,
        commit: ObjectId,
        tree: ObjectId,
        parent: ObjectId,
        committer: Signature,
    ) -> Result<ObjectId, OpError> {
        let fault = |error: gix::Error| {
            OpError::repository(&format!("cannot read commit {commit}"), &error)
        };
        let found = self.repo.find_commit(commit).map_err(fault)?;
        let old = found.decode().map_err(fault)?;
        let author = old.author().map_err(fault)?.to_owned().map_err(fault)?;
        self.sign_and_write(gix::objs::Commit {
            tree,
            parents: [parent].into_iter().collect(),
            author,
            committer,
            encoding: old.encoding.map(ToOwned::to_owned),
            message: old.message.to_owned(),
            extra_headers: Vec::new(),
        })
    }

    /// The parents of a commit.
    pub(crate) fn parents(&self, commit: ObjectId) -> Result<Vec<ObjectId>, OpError> {
        let found = self.repo.find_commit(commit).map_err(|error| {
            OpError::repository(&format!("cannot read commit {commit}"), &error)
        })?;
        Ok(found.parent_ids().map(gix::Id::detach).collect())
    }

    fn sign_and_write(&self, commit: gix::objs::Commit) -> Result<ObjectId, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot build a commit", &error);
        let signing = self.repo.commit_signing_options_if_enabled().map_err(fault)?;
        let Some(options) = signing.filter(|_| !self.is_unsigned) else {
            return self.repo.objects.write(&commit).map_err(fault);
        };
        let mut bytes = Vec::new();
        commit
            .write_to(&mut bytes)
            .map_err(|error| OpError::repository("cannot build a commit", &error))?;
        let signed = match self.signed.borrow_mut().0.entry(bytes) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let signed = commit.sign(options);
                let signed =
                    signed.map_err(|error| OpError::repository("cannot sign a commit", &error))?;
                new.insert(signed).clone()
            }
        };
        self.repo.objects.write(&signed).map_err(fault)
    }

    /// Exchanges the signatures made so far for those of an earlier build.
    pub(crate) fn swap_signed(&self, others: &mut Signed) {
        std::mem::swap(&mut *self.signed.borrow_mut(), others);
    }
}

impl From<NewCommit> for gix::objs::Commit {
    fn from(new: NewCommit) -> gix::objs::Commit {
        gix::objs::Commit {
            tree: new.tree,
            parents: new.parents.into(),
            author: new.author,
            committer: new.committer,
            encoding: None,
            message: new.message,
            extra_headers: Vec::new(),
        }
    }
}

/// The message as git stores it.
pub(crate) fn check_message(message: &BStr) -> Result<BString, OpError> {
    let refuse = |why: &str| Err(OpError::new(OpErrorKind::InvalidMessage, why));
    if message.trim().is_empty() {
        return refuse("the commit message is empty");
    }
    if message.contains(&0) {
        return refuse("the commit message holds a NUL byte");
    }
    let mut message = message.to_owned();
    if !message.ends_with(b"\n") {
        message.push_byte(b'\n');
    }
    Ok(message)
}
