//! The history of a branch's tips, as git writes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bstr::ByteSlice;

use super::Store;
use super::refs::{RefMove, path_of};
use crate::disk;

impl Store {
    /// Whether moving a branch begins a reflog where there is none yet.
    pub(super) fn begins_reflogs(&self) -> bool {
        let config = self.repo.config_snapshot();
        let is_always = config
            .string("core.logAllRefUpdates")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"always"));
        let has_checkout = self.repo.workdir().is_some();
        is_always || config.boolean("core.logAllRefUpdates").unwrap_or(has_checkout)
    }

    /// Adds a line to the reflog of a branch, and of the `HEAD` that stands on it and moves with it,
    /// if they have one or are to have one.
    pub(super) fn log_move(&self, m: &RefMove, committer: &[u8], begins: bool) -> io::Result<()> {
        self.log_at(&self.log_of(m), m, committer, begins)?;
        self.log_head_at(m, committer, begins)
    }

    /// Removes the reflog of a branch that was to be new and did not come. Only with its lock.
    pub(super) fn forget_log(&self, m: &RefMove) {
        if m.old.is_none() {
            let _ = disk::remove(&self.log_of(m));
        }
    }

    fn log_of(&self, m: &RefMove) -> PathBuf {
        self.common_dir.join("logs").join(path_of(&m.name))
    }

    /// Adds a line to the reflog of the `HEAD` alone.
    pub(super) fn log_head(&self, m: &RefMove, committer: &[u8]) -> io::Result<()> {
        self.log_head_at(m, committer, self.begins_reflogs())
    }

    fn log_head_at(&self, m: &RefMove, committer: &[u8], begins: bool) -> io::Result<()> {
        match &m.worktree {
            Some(moved) if moved.checkout.is_on_branch() => {
                self.log_at(&moved.checkout.git_dir.join("logs/HEAD"), m, committer, begins)
            }
            _ => Ok(()),
        }
    }

    fn log_at(&self, path: &Path, m: &RefMove, committer: &[u8], begins: bool) -> io::Result<()> {
        if !begins && !path.is_file() {
            return Ok(());
        }
        let old = m.old.unwrap_or_else(|| self.null_id());
        let mut line = format!("{old} {} ", m.new).into_bytes();
        line.extend_from_slice(committer);
        line.push(b'\t');
        line.extend_from_slice(&bstr::join(" ", m.message.fields()));
        line.push(b'\n');
        // One write, so that lines of others do not stand in the middle of it.
        open_log(path)?.write_all(&line)?;
        disk::note(|| disk::Change::Append(path.to_owned(), line));
        Ok(())
    }
}

/// Opens a reflog, and makes it first if need be.
fn open_log(path: &Path) -> io::Result<File> {
    let open = || File::options().append(true).create(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            open()
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            remove_empty(path)?;
            open()
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            // No branch is above another one, so it is of one that did not come.
            let mut above = path.ancestors().skip(1);
            let above = above.find(|above| above.is_file()).filter(|above| is_of_branch(above));
            fs::remove_file(above.ok_or(error)?)?;
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            open()
        }
        other => other,
    }
}

/// Whether a file is where only reflogs of branches are.
fn is_of_branch(file: &Path) -> bool {
    file.ancestors().skip(1).any(|folder| folder.ends_with("logs/refs/heads"))
}

/// Removes the folders that branches which are gone have left, if nothing else is in them.
pub(super) fn remove_empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
