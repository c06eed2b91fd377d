//! The text files of the repository, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{Failure, run};

/// Every file that git knows or would offer to add, by its path with `/`.
#[derive(Debug, Default)]
pub(super) struct Tree {
    text: BTreeMap<String, String>,
    /// Paths of files that are no UTF-8 text.
    binary: BTreeSet<String>,
}

impl Tree {
    pub(super) fn load(root: &Path) -> Result<Tree, Failure> {
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let list = String::from_utf8(run::read(&mut run::git(root, list))?)?;
        let mut tree = Tree::default();
        for path in list.split_terminator('\0') {
            let file = root.join(path);
            // Deleted but not yet committed, or a symbolic link or submodule: nothing to read.
            if !file.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            match String::from_utf8(std::fs::read(&file)?) {
                Ok(text) => drop(tree.text.insert(path.to_owned(), text)),
                Err(_) => drop(tree.binary.insert(path.to_owned())),
            }
        }
        Ok(tree)
    }

    /// A tree of samples.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let text = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
        Tree { text, binary: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len() + self.binary.len()
    }

    /// Returns the text of a file; `None` if there is no such text file.
    pub(super) fn get(&self, path: &str) -> Option<&str> {
        self.text.get(path).map(String::as_str)
    }

    /// Whether there is such a file, or a folder with files in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.text.contains_key(path)
            || self.binary.contains(path)
            || self.text.range(folder.clone()..).next().is_some_and(|(p, _)| p.starts_with(&folder))
            || self.binary.range(folder.clone()..).next().is_some_and(|p| p.starts_with(&folder))
    }

    /// Returns every text file with its path, in order of path.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns every text file whose name ends so.
    pub(super) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| path.ends_with(end))
    }

    /// Returns the folder of every crate under `crates/`.
    pub(super) fn crates(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(|(path, _)| {
            let folder = path.strip_suffix("/Cargo.toml")?;
            let name = folder.strip_prefix("crates/")?;
            (!name.contains('/')).then_some(folder)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_files_and_folders() {
        let tree = Tree::of(&[("a/b.md", "x"), ("c.rs", "y")]);
        assert!(tree.has("a") && tree.has("a/b.md") && tree.has("c.rs") && tree.has(""));
        assert!(!tree.has("b") && !tree.has("a/b") && !tree.has("c"));
        assert_eq!(tree.get("c.rs"), Some("y"));
        assert_eq!(tree.ending(".rs").count(), 1);
    }

    #[test]
    fn crates_are_the_packages_right_under_their_folder() {
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/fuzz/Cargo.toml", ""),
            ("xtask/Cargo.toml", ""),
        ]);
        assert_eq!(tree.crates().collect::<Vec<_>>(), ["crates/a"]);
    }
}
