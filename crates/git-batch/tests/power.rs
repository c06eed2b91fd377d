//! A power cut at any moment: the file system loses what was not synced, and half of the rest.
//!
//! One batch is run and every change of a file is noted. Then, for each beginning of these changes, the
//! disk is put together as it may be found after a power cut: contents that were not synced are gone,
//! while the names of such files may be there or not. Each such repository must have no empty ref and
//! no ref to a missing object, and the next run must bring every operation to its end, once.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use git_batch::disk::{self, Change};
use git_batch::{Commit, GitBatch, Operation, Settings};
use support::{Fixture, landed};

/// A file, whatever its names are.
#[derive(Clone, Default)]
struct Content {
    synced: Vec<u8>,
    written: Vec<u8>,
}

/// What a name stands for; `None` is no file.
type Names = BTreeMap<PathBuf, Option<usize>>;

/// A change of a name that may be lost.
#[derive(Clone)]
struct Renaming {
    /// The folders whose sync makes it durable.
    folder: PathBuf,
    changes: Vec<(PathBuf, Option<usize>)>,
}

/// A disk, as far as the changes have touched it.
#[derive(Clone, Default)]
struct Disk {
    contents: Vec<Content>,
    /// As programs see it.
    names: Names,
    /// As it is on the disk for certain.
    durable: Names,
    pending: Vec<Renaming>,
    folders: Vec<PathBuf>,
}

impl Disk {
    /// The file of that name, which may have been there before all changes.
    fn file(&mut self, base: &Path, path: &Path) -> usize {
        if let Some(Some(file)) = self.names.get(path) {
            return *file;
        }
        let content = fs::read(base.join(path)).unwrap_or_default();
        self.contents.push(Content { synced: content.clone(), written: content });
        let file = self.contents.len() - 1;
        if base.join(path).is_file() && !self.names.contains_key(path) {
            self.durable.insert(path.to_owned(), Some(file));
        } else {
            self.change(path, vec![(path.to_owned(), Some(file))]);
        }
        self.names.insert(path.to_owned(), Some(file));
        file
    }

    fn change(&mut self, path: &Path, changes: Vec<(PathBuf, Option<usize>)>) {
        self.names.extend(changes.iter().cloned());
        self.pending.push(Renaming { folder: path.parent().unwrap().to_owned(), changes });
    }

    fn apply(&mut self, base: &Path, change: &Change) {
        match change {
            Change::Write(path, bytes) => {
                let file = self.file(base, path);
                self.contents[file].written.clone_from(bytes);
                // What was there is gone for certain only when the new content is synced.
                self.contents[file].synced.clear();
            }
            Change::Append(path, bytes) => {
                let file = self.file(base, path);
                self.contents[file].written.extend_from_slice(bytes);
            }
            Change::Sync(path) => {
                let file = self.file(base, path);
                self.contents[file].synced = self.contents[file].written.clone();
            }
            Change::Rename(from, to) => {
                let file = self.file(base, from);
                self.change(to, vec![(from.clone(), None), (to.clone(), Some(file))]);
            }
            Change::Link(from, to) => {
                let file = self.file(base, from);
                self.change(to, vec![(to.clone(), Some(file))]);
            }
            Change::Remove(path) => self.change(path, vec![(path.clone(), None)]),
            Change::SyncFolder(folder) => {
                let (synced, left): (Vec<_>, Vec<_>) =
                    self.pending.drain(..).partition(|renaming| renaming.folder == *folder);
                self.pending = left;
                self.durable.extend(synced.into_iter().flat_map(|renaming| renaming.changes));
            }
            Change::MakeFolder(path) => self.folders.push(path.clone()),
            Change::Reach(_) => {}
        }
    }

    /// The names that are found if exactly those pending changes have reached the disk.
    fn names_with(&self, has_arrived: impl Fn(usize) -> bool) -> Names {
        let mut names = self.durable.clone();
        for (n, renaming) in self.pending.iter().enumerate() {
            if has_arrived(n) {
                names.extend(renaming.changes.iter().cloned());
            }
        }
        names
    }

    /// Puts the disk together in a copy of what was there before.
    fn put_together(&self, base: &Path, to: &Path, names: &Names) {
        let status = Command::new("cp").arg("-a").args([base, to]).status().unwrap();
        assert!(status.success());
        for folder in &self.folders {
            fs::create_dir_all(to.join(folder)).unwrap();
        }
        // Locks are names of one file.
        let mut first: BTreeMap<usize, PathBuf> = BTreeMap::new();
        for (path, file) in names {
            let path = to.join(path);
            let _ = fs::remove_file(&path);
            if let Some(file) = file {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                // A folder that a branch has left.
                let _ = fs::remove_dir(&path);
                match first.get(file) {
                    Some(other) => fs::hard_link(other, &path).unwrap(),
                    None => fs::write(&path, &self.contents[*file].synced).unwrap(),
                }
                first.insert(*file, path);
            }
        }
    }
}

/// Paths below the git directory; changes elsewhere do not matter here.
fn inside(git_dir: &Path, changes: Vec<Change>) -> Vec<Change> {
    let short = |path: PathBuf| path.strip_prefix(git_dir).map(Path::to_owned).ok();
    let shorten = |change| {
        Some(match change {
            Change::Write(path, bytes) => Change::Write(short(path)?, bytes),
            Change::Append(path, bytes) => Change::Append(short(path)?, bytes),
            Change::Sync(path) => Change::Sync(short(path)?),
            Change::Rename(from, to) => Change::Rename(short(from)?, short(to)?),
            Change::Link(from, to) => Change::Link(short(from)?, short(to)?),
            Change::Remove(path) => Change::Remove(short(path)?),
            Change::MakeFolder(path) => Change::MakeFolder(short(path)?),
            Change::SyncFolder(path) => Change::SyncFolder(short(path)?),
            reached @ Change::Reach(_) => reached,
        })
    };
    changes.into_iter().filter_map(shorten).collect()
}

fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for branch in ["new/0", "new/1", "packed", "loose", "deep/loose"] {
        let commit = Commit::new(branch, "Once").write("once.txt", branch);
        operations.push(Operation::commit(format!("c {branch}"), commit));
        operations.push(Operation::push(format!("p {branch}"), branch));
    }
    operations
}

fn hash(content: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(content)
}

/// No empty ref, and none to an object that is not there.
fn assert_refs(git_dir: &Path, what: &str) {
    let mut folders = vec![git_dir.join("refs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|end| end != "lock") {
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(text.trim().len(), 40, "{what}: {} holds {text:?}", path.display());
            }
        }
    }
    let (code, said) = support::try_run(git_dir, ["rev-list", "--objects", "--all", "--quiet"]);
    assert_eq!(code, Some(0), "{what}: {said}");
}

/// The next run, after the power is back.
fn assert_finished(fixture: &Fixture, what: &str) {
    let report = GitBatch::open(fixture.work(), Settings::default())
        .unwrap_or_else(|error| panic!("{what}: {error}"))
        .apply(operations())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    for (id, outcome) in &report.outcomes {
        assert!(outcome.is_success(), "{what}: {id} {outcome:?}");
    }
    for branch in ["new/0", "new/1", "packed", "loose", "deep/loose"] {
        let commit = landed(&report, &format!("c {branch}")).to_string();
        assert_eq!(fixture.git(["rev-parse", branch]).trim(), commit, "{what}: {branch}");
        assert_eq!(fixture.at_remote(["rev-parse", branch]).trim(), commit, "{what}: {branch}");
        let once = fixture.at_remote(["rev-list", "--count", "--grep=^Once", branch]);
        assert_eq!(once.trim(), "1", "{what}: {branch}");
        let log = fixture.at_remote(["reflog", "show", branch]);
        assert_eq!(log.lines().count(), 1, "{what}: {branch} moved more than once: {log}");
    }
    fixture.assert_sound();
}

/// What the disk does is noted for all of a process, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two new branches are packed by a process that is killed before it makes that durable. The next one
/// finds them where they are to be, and ends the batch; then the power goes.
#[test]
fn what_a_killed_process_did_not_make_durable_the_next_one_does() {
    cut_the_power_after_a_kill_at("packed refs moved");
}

/// As above, with a process that had its record and its pack in place only: their names are not durable.
#[test]
fn a_pack_that_a_killed_process_did_not_make_durable_the_next_one_does() {
    cut_the_power_after_a_kill_at("record in place");
}

fn cut_the_power_after_a_kill_at(stop: &str) {
    let _alone = alone();
    let fixture = Fixture::new();
    let before = fixture.copy();
    let operations = || -> Vec<Operation> {
        let of = |n: u32| Commit::new(format!("new/{n}"), "Once").write("once.txt", "x");
        (0..2).map(|n| Operation::commit(n.to_string(), of(n))).collect()
    };
    let git_dir = |fixture: &Fixture| fixture.work().join(".git").canonicalize().unwrap();
    disk::record();
    fixture.open().apply(operations()).unwrap();
    let mut changes = inside(&git_dir(&fixture), disk::record());
    let killed = Change::Reach(stop.to_owned());
    changes.truncate(changes.iter().position(|change| *change == killed).unwrap());
    let base = before.work().join(".git");
    let mut disk = Disk::default();
    for change in &changes {
        disk.apply(&base, change);
    }
    // A process that is killed takes nothing from the others.
    let found = before.copy();
    fs::remove_dir_all(found.work().join(".git")).unwrap();
    let written: Vec<Content> = disk.contents.clone();
    for content in &mut disk.contents {
        content.synced.clone_from(&content.written);
    }
    disk.put_together(&base, &found.work().join(".git"), &disk.names);
    disk.contents = written;
    disk::record();
    let other = Commit::new("other", "m").write("other.txt", "x");
    found.open().apply(vec![Operation::commit("other", other)]).unwrap();
    let mut next = inside(&git_dir(&found), disk::record());
    // Its own branches would make them durable too.
    let done = |change: &Change| matches!(change, Change::Rename(_, to) if to.starts_with("batchyard/done"));
    next.truncate(next.iter().position(done).unwrap() + 1);
    next.push(Change::SyncFolder("batchyard/done".into()));
    next.push(Change::SyncFolder("batchyard/open".into()));
    for change in &next {
        disk.apply(&base, change);
    }
    let after = before.copy();
    fs::remove_dir_all(after.work().join(".git")).unwrap();
    disk.put_together(&base, &after.work().join(".git"), &disk.names_with(|_| false));
    assert_refs(&after.work().join(".git"), "power cut after the second process");
    let report = after.open().apply(operations()).unwrap();
    for n in ["0", "1"] {
        assert_eq!(after.id(&format!("new/{n}")), landed(&report, n));
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_no_broken_ref_and_doubles_nothing() {
    let _alone = alone();
    cut_the_power(20);
}

/// As above, but every repository is gone on with.
#[test]
#[ignore = "takes minutes: for whoever changes what is synced, and when"]
fn what_every_power_cut_leaves_is_finished() {
    cut_the_power(1);
}

/// Goes on with one in `every` of the repositories that are found.
fn cut_the_power(every: usize) {
    let fixture = Fixture::new();
    for branch in ["packed", "loose", "deep/loose"] {
        fixture.branch(branch, "main", "start.txt", branch);
    }
    fixture.git(["push", "-q", "origin", "packed", "loose", "deep/loose"]);
    fixture.git(["pack-refs", "--all"]);
    for branch in ["loose", "deep/loose"] {
        // So that it is loose, and packed with something else.
        let tip = fixture.id(branch).to_string();
        fixture.git(["update-ref", &format!("refs/heads/{branch}"), "main"]);
        fixture.git(["update-ref", &format!("refs/heads/{branch}"), &tip]);
    }
    fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
    let before = fixture.copy();

    disk::record();
    let report = fixture.open().apply(operations()).unwrap();
    let git_dir = fixture.work().join(".git").canonicalize().unwrap();
    let changes = inside(&git_dir, disk::record());
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
    assert!(changes.len() > 40, "{changes:?}");
    let reached = |stop: &str| {
        let is_stop = |change: &Change| *change == Change::Reach(stop.to_owned());
        changes.iter().position(is_stop).unwrap()
    };
    let (sent, pushed) = (reached("before push"), reached("pushed"));
    let heads = ["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"];
    let moved = fixture.git(heads);

    let base = before.work().join(".git");
    let mut disk = Disk::default();
    let mut random = 7_u64;
    let mut seen = BTreeSet::new();
    for n in 0..=changes.len() {
        // While it pushes, the remote may have it or not.
        let remotes: &[bool] = if n <= sent || n > pushed { &[n > pushed] } else { &[false, true] };
        // Nothing has arrived that was not synced, all has, or some of it.
        let ways = ["nothing", "all", "some"].into_iter().enumerate();
        for ((way, arrived), is_there) in
            ways.flat_map(|way| remotes.iter().map(move |r| (way, *r)))
        {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let some = random >> 16;
            let names = disk.names_with(|n| match way {
                0 => false,
                1 => true,
                _ => some >> (n % 48) & 1 == 1,
            });
            // Most changes make no difference to what is found.
            let contents = names.iter().map(|(path, file)| {
                (path.clone(), file.map(|file| hash(&disk.contents[file].synced)))
            });
            if !seen.insert((is_there, contents.collect::<Vec<_>>())) {
                continue;
            }
            let last = n.checked_sub(1).map(|n| &changes[n]);
            let what = format!(
                "power cut after change {n} ({last:?}), {arrived} has arrived, there: {is_there}"
            );
            let found = before.beside("found");
            disk.put_together(&base, &found, &names);
            assert_refs(&found, &what);
            if is_there {
                // Whoever goes on from a branch here goes on from what the remote has of it.
                assert_eq!(support::run(&found, heads), moved, "{what}");
            }
            if seen.len() % every == 0 || n.abs_diff(pushed) < 2 {
                let after = Fixture::beside_of(&before, is_there, &fixture);
                fs::remove_dir_all(after.work().join(".git")).unwrap();
                fs::rename(&found, after.work().join(".git")).unwrap();
                after.git(["remote", "set-url", "origin", after.remote().to_str().unwrap()]);
                assert_finished(&after, &what);
            } else {
                fs::remove_dir_all(&found).unwrap();
            }
        }
        if let Some(change) = changes.get(n) {
            disk.apply(&base, change);
        }
    }
}
