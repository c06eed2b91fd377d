//! The verdict of `git merge-tree` on commits that are not in the object database yet.
//!
//! Git works in a scratch repository that borrows the objects of the real one, so that a merge
//! that conflicts leaves nothing behind.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use bstr::{BString, ByteSlice, ByteVec};
use gix::ObjectId;
use gix::objs::Write;

use super::{Merged, Store};
use crate::program::Git;
use crate::publish::scrub;
use crate::{OpError, OpErrorKind};

/// The folder of the scratch repository.
const QUARANTINE: &str = "quarantine";

/// Removes what an interrupted merge left. Only for the one writer.
pub(crate) fn sweep_quarantine(state: &Path) {
    // It costs space, not correctness.
    let _ = fs::remove_dir_all(state.join(QUARANTINE));
}

impl Store {
    pub(super) fn ask_git(
        &mut self,
        ours: ObjectId,
        theirs: ObjectId,
        state: &Path,
    ) -> Result<Merged, OpError> {
        self.merge_in(&state.join(QUARANTINE), ours, theirs)
    }

    /// Removes what git was asked in, after a batch.
    pub(crate) fn drop_scratch(&mut self, state: &Path) {
        if std::mem::take(&mut self.has_scratch) {
            sweep_quarantine(state);
        }
    }

    fn merge_in(
        &mut self,
        scratch: &Path,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Merged, OpError> {
        if !self.has_scratch {
            self.make_scratch(scratch)
                .map_err(|error| OpError::repository("cannot make a scratch repository", &error))?;
            self.has_scratch = true;
        }
        let loose = gix::odb::loose::Store::at(scratch.join("objects"), self.repo.object_hash());
        for (id, kind, data) in self.unwritten(&[ours, theirs]) {
            // From an earlier merge of the batch.
            if loose.contains(&id) {
                continue;
            }
            loose
                .write_buf_with_known_id(kind, &data, id)
                .map_err(|error| OpError::repository("cannot write a scratch object", &error))?;
        }
        let git = if let Some(git) = &self.scratch {
            git.clone()
        } else {
            // Once: it asks git for its version.
            self.processes.set(self.processes.get() + 1);
            let git = Git::open(scratch)
                .map_err(|error| OpError::repository("cannot run git", &error))?;
            self.scratch.insert(git).clone()
        };
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        let attributes = format!("--attr-source={ours}");
        let args = [
            attributes.as_str(),
            "merge-tree",
            "--write-tree",
            "-z",
            "--name-only",
            "--no-messages",
            &ours,
            &theirs,
        ];
        let output = git
            .finish(deaf(&git, scratch, &args), None)
            .map_err(|error| OpError::repository("cannot run git", &error))?;
        self.processes.set(self.processes.get() + 1);
        let mut fields = output.stdout.split_str("\0");
        let tree = fields.next().and_then(|hex| ObjectId::from_hex(hex).ok());
        match (output.code, tree) {
            (Some(0), Some(tree)) => {
                self.import(&loose, tree)?;
                Ok(Merged::Clean(tree))
            }
            (Some(1), Some(_)) => {
                let paths: BTreeSet<BString> = fields
                    .filter(|path| !path.is_empty())
                    .map(|path| without_side(path, [&ours, &theirs]))
                    .collect();
                Ok(Merged::Conflict(paths.into_iter().collect()))
            }
            (code, _) => Err(OpError::new(
                OpErrorKind::Repository,
                format!("git merge-tree failed ({code:?}): {}", scrub::excerpt(&output.stderr)),
            )),
        }
    }

    fn make_scratch(&self, scratch: &Path) -> std::io::Result<()> {
        if scratch.exists() {
            fs::remove_dir_all(scratch)?;
        }
        fs::create_dir_all(scratch.join("objects/info"))?;
        fs::create_dir_all(scratch.join("objects/pack"))?;
        fs::create_dir_all(scratch.join("refs"))?;
        fs::write(scratch.join("HEAD"), "ref: refs/heads/none\n")?;
        let config = match self.repo.object_hash() {
            gix::hash::Kind::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            _ => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\
                 [extensions]\n\tobjectformat = sha256\n"
            }
        };
        fs::write(scratch.join("config"), config)?;
        let shallow = self.common_dir.join("shallow");
        if shallow.exists() {
            fs::copy(shallow, scratch.join("shallow"))?;
        }
        let attributes = self.common_dir.join("info/attributes");
        if attributes.exists() {
            fs::create_dir_all(scratch.join("info"))?;
            fs::copy(attributes, scratch.join("info/attributes"))?;
        }
        let mut alternates = quoted(&self.common_dir.join("objects"));
        alternates.push(b'\n');
        fs::write(scratch.join("objects/info/alternates"), alternates)
    }

    /// Takes the new parts of a tree that git wrote into the memory of this store.
    pub(super) fn import(
        &self,
        from: &gix::odb::loose::Store,
        id: ObjectId,
    ) -> Result<(), OpError> {
        if self.repo.has_object(id) {
            return Ok(());
        }
        let fault =
            |error: gix::Error| OpError::repository("cannot read an object that git made", &error);
        let mut buffer = Vec::new();
        let Some(object) = from.try_find(&id, &mut buffer).map_err(fault)? else {
            // What git has not written was there, or is at the remote as it was before.
            if self.promisor.is_some() {
                return Ok(());
            }
            return Err(OpError::new(
                OpErrorKind::Repository,
                format!("git did not write object {id}"),
            ));
        };
        let kind = object.kind;
        let children: Vec<ObjectId> = match kind {
            gix::objs::Kind::Tree => gix::objs::TreeRefIter::from_bytes(object.data, id.kind())
                .filter_map(Result::ok)
                .filter(|entry| !entry.mode.is_commit())
                .map(|entry| entry.oid.to_owned())
                .collect(),
            _ => Vec::new(),
        };
        self.repo.objects.write_buf_with_known_id(kind, object.data, id).map_err(fault)?;
        children.into_iter().try_for_each(|child| self.import(from, child))
    }
}

/// The command without the settings and attributes of the user and the system: a merge is to give
/// the same tree everywhere, and to run nobody's merge driver.
fn deaf(git: &Git, scratch: &Path, args: &[&str]) -> Command {
    let none = scratch.join("none");
    let mut attributes = OsString::from("core.attributesFile=");
    attributes.push(&none);
    let mut command = git.command();
    command
        .env("GIT_CONFIG_GLOBAL", &none)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "0")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env_remove("GIT_CONFIG_SYSTEM")
        .env_remove("GIT_CONFIG_PARAMETERS")
        .arg("-c")
        .arg(attributes)
        .args(args);
    command
}

/// A path as a line that git reads: quoted as a C string where it would be more than one line.
pub(super) fn quoted(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if !bytes.contains(&b'\n') {
        return bytes.to_vec();
    }
    quoted_always(path).into_encoded_bytes()
}

/// A path as git reads it in a list, whatever it holds.
pub(super) fn quoted_always(path: &Path) -> OsString {
    let mut line = vec![b'"'];
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            _ => line.push(byte),
        }
    }
    line.push(b'"');
    line.into_os_string().unwrap_or_default()
}

/// Where a file and a folder clash, git moves one aside as `<path>~<commit>`; the path that the
/// user knows is the one before.
fn without_side(path: &[u8], commits: [&str; 2]) -> BString {
    let at = commits.iter().filter_map(|commit| path.find(format!("~{commit}"))).min();
    path[..at.unwrap_or(path.len())].into()
}
