//! The attributes of paths, read from the tree that is made and not from anybody's work tree.

use std::collections::BTreeMap;
use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::attrs::search::{MetadataCollection, Outcome};
use gix::attrs::{Search, StateRef};
use gix::glob::pattern::Case;

use super::Store;
use crate::OpError;

/// Stands for the root of the tree; attributes are relative to the folder of their file.
const ROOT: &str = "/";

impl Store {
    /// The first of `paths` that has a filter by the attributes in `tree` or by those of the
    /// repository, with the filter's name.
    pub(crate) fn filtered(
        &self,
        tree: ObjectId,
        paths: &[&BStr],
    ) -> Result<Option<(BString, BString)>, OpError> {
        let has_filter = |state: StateRef<'_>| match state {
            StateRef::Value(name) => Some(name.as_bstr().to_owned()),
            _ => None,
        };
        self.find_attribute(tree, paths, "filter", &["filter"], has_filter)
    }

    /// Whether an attribute asks for another merge of one of `paths` than the one by lines.
    pub(super) fn has_merge_driver(
        &self,
        tree: ObjectId,
        paths: &[&BStr],
    ) -> Result<bool, OpError> {
        let is_special = |state: StateRef<'_>| match state {
            StateRef::Set | StateRef::Unspecified => None,
            StateRef::Unset | StateRef::Value(_) => Some(()),
        };
        let words = ["merge", "binary"];
        Ok(self.find_attribute(tree, paths, "merge", &words, is_special)?.is_some())
    }

    /// The first of `paths` for which `wanted` takes the state of the attribute `name`. Files that
    /// hold none of `words` cannot set it and are not parsed.
    fn find_attribute<T>(
        &self,
        tree: ObjectId,
        paths: &[&BStr],
        name: &str,
        words: &[&str],
        wanted: impl Fn(StateRef<'_>) -> Option<T>,
    ) -> Result<Option<(BString, T)>, OpError> {
        let own = self.own_attributes.get_or_init(|| {
            std::fs::read(self.common_dir.join("info/attributes")).unwrap_or_default()
        });
        let mut folders: BTreeMap<BString, Option<Vec<u8>>> = BTreeMap::new();
        for &path in paths {
            for folder in folders_of(path) {
                if !folders.contains_key(folder) {
                    folders.insert(folder.to_owned(), self.attributes_in(tree, folder)?);
                }
            }
            let mut relevant: Vec<(&BStr, &[u8])> = folders_of(path)
                .filter_map(|folder| Some((folder, folders.get(folder)?.as_deref()?)))
                .collect();
            relevant.push((BStr::new(""), own));
            let may_set = |content: &[u8]| words.iter().any(|word| content.contains_str(word));
            if relevant.iter().any(|(_, content)| may_set(content))
                && let Some(found) = state_of(path, name, &relevant, &wanted)
            {
                return Ok(Some((path.to_owned(), found)));
            }
        }
        Ok(None)
    }

    fn attributes_in(&self, tree: ObjectId, folder: &BStr) -> Result<Option<Vec<u8>>, OpError> {
        let path: BString = [folder.as_bytes(), b".gitattributes"].concat().into();
        let Some((mode, id)) = self.entry_at(tree, path.as_bstr())? else { return Ok(None) };
        if !mode.is_blob() {
            return Ok(None);
        }
        self.fetch_missing([id])?;
        let blob = self
            .repo
            .find_blob(id)
            .map_err(|error| OpError::repository("cannot read .gitattributes", &error))?;
        Ok(Some(blob.data.clone()))
    }
}

/// The folders above a path, the root first, each with its slash.
fn folders_of(path: &BStr) -> impl Iterator<Item = &BStr> {
    std::iter::once(BStr::new(""))
        .chain(path.find_iter("/").map(|slash| BStr::new(&path[..=slash])))
}

fn state_of<T>(
    path: &BStr,
    name: &str,
    attributes: &[(&BStr, &[u8])],
    wanted: impl Fn(StateRef<'_>) -> Option<T>,
) -> Option<T> {
    let mut names = MetadataCollection::default();
    // With the macro that git has built in.
    let none: [&Path; 0] = [];
    let mut search = Search::new_globals(none, &mut Vec::new(), &mut names).ok()?;
    for (folder, content) in attributes {
        let source =
            Path::new(ROOT).join(gix::path::from_bstr(*folder).ok()?).join(".gitattributes");
        // Only the files at the top may define macros.
        let may_define = folder.is_empty();
        search
            .add_patterns_buffer(content, source, Some(Path::new(ROOT)), &mut names, may_define)
            .ok()?;
    }
    let mut outcome = Outcome::default();
    outcome.initialize_with_selection(&names, [name]);
    search.pattern_matching_relative_path(path, Case::Sensitive, Some(false), &mut outcome);
    wanted(outcome.iter_selected().next()?.assignment.state)
}
