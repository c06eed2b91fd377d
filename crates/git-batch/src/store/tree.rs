//! A tree that is edited path by path, loading only what a change reaches.

use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::objs::tree::{Entry, EntryKind, EntryMode};
use gix::objs::{Tree, Write};

use super::Store;
use crate::{OpError, OpErrorKind};

/// The edited tree. What is put in the way replaces what was there, but nothing is put behind a
/// symlink or a submodule.
#[derive(Debug)]
pub(crate) struct TreeEdit {
    root: Folder,
}

type Folder = BTreeMap<BString, Node>;

#[derive(Debug)]
enum Node {
    /// As in the base, or put there; a tree too.
    Entry(EntryMode, ObjectId),
    /// A folder that a change reaches into.
    Open(Folder),
}

impl TreeEdit {
    pub(crate) fn new(store: &Store, base: ObjectId) -> Result<TreeEdit, OpError> {
        Ok(TreeEdit { root: store.load_folder(base)? })
    }

    /// Removes the file or folder at `path`; tells whether there was one.
    pub(crate) fn remove(&mut self, store: &Store, path: &BStr) -> Result<bool, OpError> {
        let mut folder = &mut self.root;
        let mut parts = path.split_str("/").map(BStr::new).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok(folder.remove(part).is_some());
            }
            match folder.get_mut(part) {
                Some(node) if node.is_folder() => folder = node.open(store)?,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Puts an entry at `path`, in place of whatever is there or in the way.
    pub(crate) fn put(
        &mut self,
        store: &Store,
        path: &BStr,
        mode: EntryMode,
        id: ObjectId,
    ) -> Result<(), OpError> {
        let mut folder = &mut self.root;
        let mut parts = path.split_str("/").map(BStr::new).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                folder.insert(part.to_owned(), Node::Entry(mode, id));
                return Ok(());
            }
            let node = folder.entry(part.to_owned()).or_insert_with(|| Node::Open(Folder::new()));
            if let Some(what) = node.leads_elsewhere() {
                return Err(leads_elsewhere(path, part, what));
            }
            if !node.is_folder() {
                *node = Node::Open(Folder::new());
            }
            folder = node.open(store)?;
        }
        Ok(())
    }

    /// Writes what changed and returns the root; folders left empty are gone.
    pub(crate) fn write(self, store: &Store) -> Result<ObjectId, OpError> {
        match store.write_folder(self.root)? {
            Some(id) => Ok(id),
            None => store.write_tree(&Tree::empty()),
        }
    }
}

impl Node {
    fn is_folder(&self) -> bool {
        match self {
            Node::Entry(mode, _) => mode.is_tree(),
            Node::Open(_) => true,
        }
    }

    /// What the node is if a path behind it means something outside of this tree's folders.
    fn leads_elsewhere(&self) -> Option<&'static str> {
        match self {
            Node::Entry(mode, _) if mode.is_link() => Some("symlink"),
            Node::Entry(mode, _) if mode.is_commit() => Some("submodule"),
            _ => None,
        }
    }

    /// The folder behind the node, loaded on the way. Only for what [`Node::is_folder`].
    fn open(&mut self, store: &Store) -> Result<&mut Folder, OpError> {
        if let Node::Entry(_, id) = *self {
            *self = Node::Open(store.load_folder(id)?);
        }
        match self {
            Node::Open(folder) => Ok(folder),
            Node::Entry(..) => unreachable!("it was opened above"),
        }
    }
}

fn leads_elsewhere(path: &BStr, part: &BStr, what: &str) -> OpError {
    OpError::new(
        OpErrorKind::InvalidPath,
        format!(
            "path {path:?} is behind the {what} {part:?}; delete the {what} in the same commit, or \
             name the path that is meant"
        ),
    )
}

impl Store {
    /// The mode and id at `path` in `tree`.
    pub(crate) fn entry_at(
        &self,
        tree: ObjectId,
        path: &BStr,
    ) -> Result<Option<(EntryMode, ObjectId)>, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot read a tree", &error);
        let tree = self.repo.find_tree(tree).map_err(fault)?;
        let entry = tree.lookup_entry(path.split_str("/")).map_err(fault)?;
        Ok(entry.map(|entry| (entry.mode(), entry.object_id())))
    }

    /// The names in a folder of a tree; `folder` ends with a slash, or is empty for the root.
    pub(crate) fn names_in(&self, tree: ObjectId, folder: &BStr) -> Result<Vec<BString>, OpError> {
        let folder = folder.strip_suffix(b"/").unwrap_or(folder).as_bstr();
        let id = if folder.is_empty() {
            Some(tree)
        } else {
            self.entry_at(tree, folder)?.filter(|(mode, _)| mode.is_tree()).map(|(_, id)| id)
        };
        let Some(id) = id else { return Ok(Vec::new()) };
        Ok(self.load_folder(id)?.into_keys().collect())
    }

    /// The content of a file, if there is one at the path.
    pub(crate) fn file_at(&self, tree: ObjectId, path: &BStr) -> Result<Option<Vec<u8>>, OpError> {
        let Some((_, id)) = self.entry_at(tree, path)?.filter(|(mode, _)| mode.is_blob()) else {
            return Ok(None);
        };
        let fault =
            |error: gix::Error| OpError::repository(&format!("cannot read object {id}"), &error);
        Ok(Some(self.repo.find_blob(id).map_err(fault)?.take_data()))
    }

    /// How many files a tree has, folders not counted.
    pub(crate) fn count_files(&self, tree: ObjectId) -> Result<usize, OpError> {
        Ok(self.files_of(tree)?.len())
    }

    fn load_folder(&self, id: ObjectId) -> Result<Folder, OpError> {
        let fault =
            |error: gix::Error| OpError::repository(&format!("cannot read tree {id}"), &error);
        let tree = self.repo.find_tree(id).map_err(fault)?;
        let entries = tree.decode().map_err(fault)?.entries;
        Ok(entries
            .iter()
            .map(|entry| (entry.filename.to_owned(), Node::Entry(entry.mode, entry.oid.to_owned())))
            .collect())
    }

    fn write_folder(&self, folder: Folder) -> Result<Option<ObjectId>, OpError> {
        let mut entries = Vec::with_capacity(folder.len());
        for (filename, node) in folder {
            let (mode, oid) = match node {
                Node::Entry(mode, oid) => (mode, oid),
                Node::Open(folder) => match self.write_folder(folder)? {
                    Some(oid) => (EntryKind::Tree.into(), oid),
                    None => continue,
                },
            };
            entries.push(Entry { mode, filename, oid });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        // Git's order: a folder sorts as if its name ended in a slash.
        entries.sort();
        self.write_tree(&Tree { entries }).map(Some)
    }

    pub(super) fn write_tree(&self, tree: &Tree) -> Result<ObjectId, OpError> {
        self.repo
            .objects
            .write(tree)
            .map_err(|error| OpError::repository("cannot build a tree", &error))
    }
}
