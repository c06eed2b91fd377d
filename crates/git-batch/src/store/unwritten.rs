//! The objects that are in memory only.

use std::collections::BTreeSet;

use gix::ObjectId;
use gix::objs::{CommitRefIter, Kind, TreeRefIter};
use gix::odb::memory::Storage;

use super::Store;
use super::pack::Keep;
use crate::OpError;

/// An object that is only in memory.
pub(super) type Unwritten = (ObjectId, Kind, Vec<u8>);

impl Store {
    /// Writes all objects in memory that `tips` reach, in one pack, and forgets the others. What is given
    /// has to be synced.
    pub(crate) fn persist(&mut self, tips: &[ObjectId]) -> Result<Keep, OpError> {
        let mut memory = self.repo.objects.reset_object_memory().unwrap_or_default();
        let objects: Vec<Unwritten> = reachable(&memory, tips)
            .into_iter()
            .filter_map(|id| memory.remove(&id).map(|(kind, data)| (id, kind, data)))
            .collect();
        if objects.is_empty() {
            return Ok(Keep::none());
        }
        self.executor.write(self, &objects)
    }

    /// Copies of the objects in memory that `tips` reach.
    pub(super) fn unwritten(&mut self, tips: &[ObjectId]) -> Vec<Unwritten> {
        let memory = self.repo.objects.take_object_memory().unwrap_or_default();
        let objects = reachable(&memory, tips)
            .into_iter()
            .filter_map(|id| memory.get(&id).map(|(kind, data)| (id, *kind, data.clone())))
            .collect();
        self.repo.objects.set_object_memory(memory);
        objects
    }
}

/// The ids in `memory` that `tips` reach, sorted. What is not in memory is complete in the object
/// database, so the walk ends there.
fn reachable(memory: &Storage, tips: &[ObjectId]) -> BTreeSet<ObjectId> {
    let mut seen = BTreeSet::new();
    let mut queue = tips.to_vec();
    while let Some(id) = queue.pop() {
        let Some((kind, data)) = memory.get(&id) else { continue };
        if seen.insert(id) {
            queue.extend(children(*kind, data, id.kind()));
        }
    }
    seen
}

fn children(kind: Kind, data: &[u8], hash: gix::hash::Kind) -> Vec<ObjectId> {
    match kind {
        Kind::Commit => {
            let mut commit = CommitRefIter::from_bytes(data, hash);
            let mut ids: Vec<ObjectId> = commit.tree_id().into_iter().collect();
            ids.extend(CommitRefIter::from_bytes(data, hash).parent_ids());
            ids
        }
        Kind::Tree => TreeRefIter::from_bytes(data, hash)
            .filter_map(Result::ok)
            .map(|entry| entry.oid.to_owned())
            .collect(),
        Kind::Blob | Kind::Tag => Vec::new(),
    }
}
