use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::dialect::Dialect;

/// Shorter than what is in doubt, and longer.
const TICK: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(10);

/// A folder that is looked at by a clock that goes on when the test says so.
struct Polled {
    dir: TempDir,
    tree: Tree,
    now: Instant,
}

impl Polled {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut polled = Self { dir, tree: Tree::default(), now: Instant::now() };
        for (path, text) in files {
            polled.write(path, text);
        }
        assert!(polled.poll(TICK));
        polled
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns whether anything has changed; what is stale is read.
    fn poll(&mut self, after: Duration) -> bool {
        self.now += after;
        let now = self.now;
        self.tree.look(self.dir.path(), Trust::Stamps, &|| now);
        crate::load::read(self.dir.path(), &mut self.tree, &Dialect::standard());
        mem::take(&mut self.tree.is_changed)
    }

    /// Polls until nothing is in doubt; none of it is a change.
    fn settle(&mut self) {
        assert!(!self.poll(LONG));
        assert!(!self.poll(LONG));
    }

    /// Returns how often folders were listed by a poll.
    fn listings(&mut self, after: Duration) -> usize {
        let before = self.tree.listings;
        self.poll(after);
        self.tree.listings - before
    }

    /// Makes it as if all that has happened had been within the tick of the last look.
    fn forge(&mut self) {
        for (path, folder) in &mut self.tree.folders {
            let handle = Handle::open(path).unwrap();
            folder.sighting.stamp = handle.stamp();
            for file in &mut folder.files {
                file.sighting.stamp = handle.stamp_of(&file.name_in_folder, file.is_link);
            }
        }
    }

    /// Makes it as if all had been seen for the first time just now.
    fn doubt(&mut self) {
        let now = self.now;
        for folder in self.tree.folders.values_mut() {
            folder.sighting = Sighting::none(now);
            folder.files.iter_mut().for_each(|file| file.sighting = Sighting::none(now));
        }
    }

    fn texts(&self) -> Vec<String> {
        let templates = crate::load::templates(&self.tree, |_| true);
        templates.iter().map(|template| format!("{}={}", template.name, template.text)).collect()
    }
}

#[test]
fn a_file_added_in_the_same_tick_as_the_listing_is_found() {
    for after in [TICK, LONG] {
        let mut polled = Polled::new(&[("a.prompt.md", "1")]);
        polled.write("b.prompt.md", "2");
        polled.forge();
        assert!(polled.poll(after));
        assert_eq!(polled.texts(), ["a=1", "b=2"]);
        fs::remove_file(polled.dir.path().join("a.prompt.md")).unwrap();
        polled.doubt();
        polled.forge();
        assert!(polled.poll(TICK));
        assert_eq!(polled.texts(), ["b=2"]);
    }
}

#[test]
fn a_rewrite_of_the_same_size_in_the_same_tick_is_found() {
    for after in [TICK, LONG] {
        let mut polled = Polled::new(&[("a.prompt.md", "1"), ("sub/b.prompt.md", "{{ bad")]);
        polled.write("a.prompt.md", "2");
        polled.forge();
        assert!(polled.poll(after));
        assert_eq!(polled.texts(), ["a=2"]);
        // One that could not be compiled as well.
        polled.write("sub/b.prompt.md", "better");
        polled.doubt();
        polled.forge();
        assert!(polled.poll(after));
        assert_eq!(polled.texts(), ["a=2", "sub/b=better"]);
    }
}

#[test]
fn a_file_that_is_told_is_read_again_while_it_is_in_doubt() {
    let mut polled = Polled::new(&[("a.prompt.md", "1")]);
    polled.write("a.prompt.md", "2");
    polled.forge();
    let (file, now) = (polled.dir.path().join("a.prompt.md"), polled.now);
    assert!(polled.tree.look_at(polled.dir.path(), &[file], &|| now));
    crate::load::read(polled.dir.path(), &mut polled.tree, &Dialect::standard());
    assert!(polled.tree.is_changed);
    assert_eq!(polled.texts(), ["a=2"]);
}

#[test]
fn an_untouched_folder_is_not_listed_again() {
    let mut polled = Polled::new(&[("a.prompt.md", "1"), ("sub/b.prompt.md", "2")]);
    assert_eq!(polled.listings(TICK), 2, "within a tick nothing is sure");
    polled.settle();
    assert_eq!(polled.listings(LONG), 0);
    // Writing into a file is no change of its folder, and is found all the same.
    polled.write("a.prompt.md", "3");
    assert_eq!(polled.listings(LONG), 0);
    assert_eq!(polled.texts(), ["a=3", "sub/b=2"]);
    // Only the folder in which something came is listed.
    polled.write("sub/c.prompt.md", "4");
    assert_eq!(polled.listings(LONG), 1);
    assert_eq!(polled.texts(), ["a=3", "sub/b=2", "sub/c=4"]);
    fs::rename(polled.dir.path().join("sub/c.prompt.md"), polled.dir.path().join("d.prompt.md"))
        .unwrap();
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=3", "d=4", "sub/b=2"]);
}

#[test]
fn an_untouched_file_is_not_read_again() {
    let mut polled = Polled::new(&[("a.prompt.md", "1")]);
    polled.settle();
    // A change that no stamp tells, which cannot be: it shows that nobody looks into the file.
    polled.write("a.prompt.md", "2");
    polled.forge();
    assert!(!polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=1"]);
}

#[test]
fn a_nested_folder_that_comes_is_found() {
    let mut polled = Polled::new(&[("a.prompt.md", "1")]);
    polled.settle();
    polled.write("sub/deep/b.prompt.md", "2");
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=1", "sub/deep/b=2"]);
    polled.settle();
    polled.write("sub/deep/er/c.prompt.md", "3");
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=1", "sub/deep/b=2", "sub/deep/er/c=3"]);
    fs::remove_dir_all(polled.dir.path().join("sub")).unwrap();
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=1"]);
    assert!(!polled.poll(LONG));
}

/// All its times may be those of the folder that was there before.
#[cfg(unix)]
#[test]
fn a_folder_replaced_by_another_is_listed() {
    let mut polled = Polled::new(&[("sub/a.prompt.md", "1"), (".new/b.prompt.md", "2")]);
    polled.settle();
    let path = |name| polled.dir.path().join(name);
    fs::rename(path("sub"), path(".old")).unwrap();
    fs::rename(path(".new"), path("sub")).unwrap();
    let sub = path("sub");
    let now = Handle::open(&sub).unwrap().stamp().unwrap();
    let known = polled.tree.folders.get_mut(&sub).unwrap().sighting.stamp.as_mut().unwrap();
    assert_ne!(known.node, now.node);
    *known = crate::sighting::Stamp { node: known.node, ..now };
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["sub/b=2"]);
}

#[cfg(unix)]
#[test]
fn a_folder_that_becomes_a_link_or_a_file_is_left_out() {
    let mut polled = Polled::new(&[("a.prompt.md", "1"), ("sub/b.prompt.md", "2")]);
    polled.settle();
    let sub = polled.dir.path().join("sub");
    fs::rename(&sub, polled.dir.path().join(".away")).unwrap();
    std::os::unix::fs::symlink(".away", &sub).unwrap();
    assert!(polled.poll(LONG));
    assert_eq!(polled.texts(), ["a=1"]);
    fs::remove_file(&sub).unwrap();
    polled.write("sub", "no folder");
    assert!(!polled.poll(LONG));
    assert_eq!((polled.texts(), polled.tree.error.is_none()), (vec!["a=1".to_owned()], true));
}
