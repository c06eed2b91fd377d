//! The calls that decide what a loss of power can take. They are in one place, so that tests can see
//! their order and have each of them fail.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::path::folder_of;

/// Is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Append,
    SyncData,
    SyncAll,
    Rename,
    SyncFolder,
}

/// Appends bytes to a file that was opened for that.
pub(crate) fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    begin(Step::Append)?;
    file.write_all(bytes)
}

/// Has the bytes of a file on the disk before it returns.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    begin(Step::SyncData)?;
    file.sync_data()
}

/// The same with what the system knows of the file.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    begin(Step::SyncAll)?;
    file.sync_all()
}

/// Puts a file in place of another.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    begin(Step::Rename)?;
    fs::rename(from, to)
}

/// Is the folder of a file, opened.
pub(crate) struct Folder(File);

impl Folder {
    pub(crate) fn of(path_of_file: &Path) -> io::Result<Self> {
        File::open(folder_of(path_of_file)).map(Self)
    }

    /// Has the names in it on the disk before it returns.
    pub(crate) fn sync(&self) -> io::Result<()> {
        begin(Step::SyncFolder)?;
        self.0.sync_all()
    }
}

#[cfg(any(not(test), shuttle))]
#[expect(clippy::unnecessary_wraps, reason = "tests have steps fail")]
fn begin(_: Step) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
use trace::begin;

#[cfg(all(test, not(shuttle)))]
mod trace {
    use std::cell::RefCell;
    use std::io;

    use super::Step;

    /// What is to come right before a step, once.
    type Before = (Step, Box<dyn FnOnce() -> io::Result<()>>);

    thread_local! {
        /// What was done on this thread, and what is to come.
        static STEPS: RefCell<(Vec<Step>, Option<Before>)> = RefCell::default();
    }

    pub(super) fn begin(step: Step) -> io::Result<()> {
        let before = STEPS.with_borrow_mut(|(_, before)| before.take_if(|(at, _)| *at == step));
        if let Some((_, before)) = before {
            before()?;
        }
        STEPS.with_borrow_mut(|(done, _)| done.push(step));
        Ok(())
    }

    pub(super) fn before(step: Step, what: impl FnOnce() -> io::Result<()> + 'static) {
        STEPS.with_borrow_mut(|(_, before)| *before = Some((step, Box::new(what))));
    }

    pub(super) fn fail(step: Step) {
        before(step, || Err(io::Error::other("the disk is broken")));
    }

    /// Returns what was done since the last time.
    pub(super) fn take() -> Vec<Step> {
        STEPS.with_borrow_mut(|(done, _)| std::mem::take(done))
    }
}

#[cfg(all(test, not(shuttle)))]
mod replaced;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::path::PathBuf;

    use super::Step::{Append, Rename, SyncAll, SyncData, SyncFolder};
    use super::trace::{fail, take};
    use super::*;
    use crate::{
        AddError, CompactError, Compaction, Fsync, Lesson, LessonsIndex, Options, WriteError,
        merge_files,
    };

    pub(super) fn scratch() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("there is room");
        let path = dir.path().join("lessons.jsonl");
        (dir, path)
    }

    pub(super) fn open(path: &Path, fsync: Fsync) -> LessonsIndex {
        LessonsIndex::open(path, Options::default().with_fsync(fsync)).expect("it can be read")
    }

    pub(super) fn lesson(id: &str) -> Lesson {
        Lesson::builder(id).build().expect("it has an id")
    }

    #[test]
    fn a_lesson_is_synced_as_the_options_say() {
        for (fsync, first, next) in [
            (Fsync::Never, &[Append][..], &[Append][..]),
            (Fsync::OnBatch, &[Append, SyncData, SyncFolder], &[Append, SyncData]),
            (Fsync::Always, &[Append, SyncAll, SyncFolder], &[Append, SyncAll]),
        ] {
            let (_dir, path) = scratch();
            let index = open(&path, fsync);
            take();
            index.add(lesson("a")).unwrap();
            assert_eq!(take(), first, "{fsync:?}");
            for added in index.add_all([lesson("b"), lesson("c")]) {
                added.unwrap();
            }
            assert_eq!(take(), next, "one sync for a batch: {fsync:?}");
        }
        let (_dir, path) = scratch();
        let index = LessonsIndex::open(&path, Options::default()).unwrap();
        index.add(lesson("a")).unwrap();
        assert_eq!(take(), [Append, SyncData, SyncFolder], "that is the default");
    }

    /// Nobody sees a lesson that a loss of power could still take.
    #[test]
    fn a_lesson_that_cannot_be_synced_is_not_told_and_not_kept() {
        for step in [Append, SyncData, SyncFolder] {
            let (_dir, path) = scratch();
            let index = open(&path, Fsync::OnBatch);
            fail(step);
            let error = index.add(lesson("a")).unwrap_err();
            let AddError::Write { source, .. } = error else { panic!("{error:?}") };
            assert!(matches!(*source, WriteError::Write { .. }), "{step:?}: {source:?}");
            assert!(index.snapshot().is_empty(), "{step:?}");
            assert_eq!(fs::read(&path).unwrap(), b"", "{step:?}");

            take();
            index.add(lesson("b")).unwrap();
            assert_eq!(take(), [Append, SyncData, SyncFolder], "the folder is still to be synced");
            assert_eq!(open(&path, Fsync::Never).snapshot().all(), index.snapshot().all());
        }
    }

    #[test]
    fn a_compaction_is_on_the_disk_before_it_is_in_place() {
        let (dir, path) = scratch();
        let text = "{\"id\":\"a\"}\nbroken\n{\"id\":\"a\",\"n\":2}\n";
        let policies = [Compaction::default(), Compaction::default().with_quarantine(true)];
        for (policy, wanted) in policies.iter().zip([
            &[SyncAll, Rename, SyncFolder][..],
            &[SyncAll, SyncAll, SyncFolder, Rename, SyncFolder],
        ]) {
            fs::write(&path, text).unwrap();
            let index = open(&path, Fsync::Never);
            take();
            index.compact(policy).unwrap();
            assert_eq!(take(), wanted);
        }
        for step in [SyncAll, Rename] {
            fs::write(&path, text).unwrap();
            let index = open(&path, Fsync::Never);
            fail(step);
            let error = index.compact(&Compaction::default()).unwrap_err();
            assert!(matches!(error, CompactError::Write { .. }), "{step:?}: {error:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert!(!dir.path().join(".lessons.jsonl.compact").exists());
        }
        fs::write(&path, text).unwrap();
        let index = open(&path, Fsync::Never);
        fail(SyncFolder);
        let error = index.compact(&Compaction::default()).unwrap_err();
        assert!(matches!(error, CompactError::Unsynced { .. }), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
        // Whoever appends next syncs the folder, whatever became of that.
        take();
        open(&path, Fsync::OnBatch).add(lesson("b")).unwrap();
        assert_eq!(take(), [Append, SyncData, SyncFolder]);
    }

    #[test]
    fn a_merge_is_on_the_disk_before_it_is_in_place() {
        let (dir, ours) = scratch();
        let [base, theirs] = ["base", "theirs"].map(|name| dir.path().join(name));
        fs::write(&base, "").unwrap();
        fs::write(&theirs, "{\"id\":\"b\"}\n").unwrap();
        fs::write(&ours, "{\"id\":\"a\"}\n").unwrap();
        for step in [SyncAll, Rename] {
            fail(step);
            merge_files(&base, &ours, &theirs).unwrap_err();
            assert_eq!(fs::read_to_string(&ours).unwrap(), "{\"id\":\"a\"}\n", "{step:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "{step:?}");
        }
        take();
        merge_files(&base, &ours, &theirs).unwrap();
        assert_eq!(take(), [SyncAll, Rename, SyncFolder]);
    }
}
