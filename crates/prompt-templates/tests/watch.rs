//! The folder of a store is looked at again, and by a thread of its own if asked for.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use prompt_templates::{Context, ErrorKind, LoadError, Prompts, Reload, Watch};

/// Long enough for a machine that does much else; a test that passes does not wait for it.
const PATIENCE: Duration = Duration::from_mins(1);

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("a file can be written");
}

fn render(prompts: &Prompts) -> String {
    prompts.render("a", &Context::new()).expect("it renders without data")
}

#[test]
fn a_folder_that_has_not_changed_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    assert_eq!(prompts.reload_if_changed().unwrap(), None);
    assert_eq!(prompts.stats().reloads, 1);

    write(dir.path(), "a.prompt.md", "22");
    let reload = prompts.reload_if_changed().unwrap().unwrap();
    assert_eq!((reload.changed, render(&prompts)), (1, "22".to_owned()));
    write(dir.path(), "b.prompt.md", "b");
    assert_eq!(prompts.reload_if_changed().unwrap().unwrap().loaded, 2);
    fs::remove_file(dir.path().join("b.prompt.md")).unwrap();
    assert_eq!(prompts.reload_if_changed().unwrap().unwrap().removed, 1);
    assert_eq!(prompts.reload_if_changed().unwrap(), None);
}

#[test]
fn files_that_are_said_to_have_changed_are_the_only_ones_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("sub")).unwrap();
    let names = ["a.prompt.md", "b.prompt.md", "sub/c.prompt.md"];
    for name in names {
        write(dir.path(), name, "1");
    }
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let changed = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|name| path(name)).collect();
        prompts.reload_files(&files).unwrap().map(|reload| (reload.changed, reload.removed))
    };
    assert_eq!(changed(&names), None);
    for name in names {
        write(dir.path(), name, "22");
    }
    assert_eq!(changed(&["a.prompt.md", "a.prompt.md", ".b.prompt.md.swp"]), Some((1, 0)));
    assert_eq!(prompts.get("b").unwrap().text(), "1", "nobody said that it has changed");
    assert_eq!(changed(&["sub/c.prompt.md"]), Some((1, 0)));
    assert_eq!(prompts.reload_if_changed().unwrap().map(|reload| reload.changed), Some(1));

    // What is no file that is known is a reason to look at all of them.
    write(dir.path(), "d.prompt.md", "1");
    write(dir.path(), "b.prompt.md", "333");
    assert_eq!(changed(&["d.prompt.md"]), Some((2, 0)));
    fs::remove_file(path("d.prompt.md")).unwrap();
    assert_eq!(changed(&["d.prompt.md"]), Some((0, 1)));
    write(dir.path(), "b.prompt.md", "4");
    for unknown in ["sub", "gone", "../elsewhere"] {
        assert_eq!(changed(&[unknown]).is_some(), unknown == "sub", "{unknown}");
    }
    // A bad file is told, and told again only when it has changed.
    write(dir.path(), "b.prompt.md", "{{ bad");
    assert!(prompts.reload_files(&[path("b.prompt.md")]).is_err());
    assert_eq!(changed(&["b.prompt.md"]), None);
    assert_eq!(prompts.get("b").unwrap().text(), "4");
}

#[test]
fn a_bad_folder_is_told_once_and_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    write(dir.path(), "a.prompt.md", "{{ bad");
    let errors = prompts.reload_if_changed().unwrap_err();
    assert_eq!(errors.errors()[0].kind(), ErrorKind::Syntax);
    assert_eq!(prompts.reload_if_changed().unwrap(), None);
    assert_eq!((prompts.stats().reload_failures, render(&prompts)), (1, "1".to_owned()));
    write(dir.path(), "a.prompt.md", "good again");
    prompts.reload_if_changed().unwrap().unwrap();
    assert_eq!(render(&prompts), "good again");
}

fn next(told: &Receiver<Result<Reload, LoadError>>) -> Result<Reload, LoadError> {
    told.recv_timeout(PATIENCE).expect("the watch tells of the change")
}

#[test]
fn a_watch_reloads_keeps_what_is_good_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let (tell, told) = channel();
    let watch = prompts
        .watch(Duration::from_millis(5), move |outcome| tell.send(outcome).expect("it is awaited"))
        .unwrap();

    write(dir.path(), "a.prompt.md", "{{ bad");
    // A file that is being written may be seen empty first.
    while next(&told).is_ok() {}
    assert!(matches!(render(&prompts).as_str(), "1" | ""));
    write(dir.path(), "a.prompt.md", "better");
    while next(&told).is_err() || render(&prompts) != "better" {}

    drop(watch);
    // What it told before may still be there; then it has dropped its end.
    let end = std::iter::repeat_with(|| told.recv_timeout(PATIENCE)).find_map(Result::err);
    assert_eq!(end, Some(RecvTimeoutError::Disconnected));
    write(dir.path(), "a.prompt.md", "not seen");
    assert_eq!(render(&prompts), "better");
}

/// A thread that waits for its own end panics.
#[test]
fn a_watch_can_be_dropped_by_what_it_calls() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let (give, given) = channel();
    let (tell, told) = channel();
    let outcome = move |reload: Result<Reload, LoadError>| {
        drop::<Watch>(given.recv().expect("the watch is given"));
        tell.send(reload.is_ok()).unwrap();
    };
    let watch = prompts.watch(Duration::from_millis(5), outcome).unwrap();
    write(dir.path(), "a.prompt.md", "22");
    give.send(watch).unwrap();
    assert!(told.recv_timeout(PATIENCE).unwrap());
    assert!(told.recv().is_err(), "the thread has ended without a second call");
}

/// The system tells of the change long before the interval is over.
#[cfg(feature = "watch")]
#[test]
fn the_system_tells_of_a_change() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let (tell, told) = channel();
    let day = Duration::from_hours(24);
    let _watch = prompts.watch(day, move |outcome| drop(tell.send(outcome))).unwrap();
    write(dir.path(), "a.prompt.md", "changed");
    while next(&told).is_err() || render(&prompts) != "changed" {}
}

#[test]
fn a_store_without_a_folder_cannot_be_watched() {
    let prompts = Prompts::builder().build().unwrap();
    let error = prompts.watch(Duration::from_secs(1), |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(prompts.reload_if_changed().unwrap_err().errors()[0].kind(), ErrorKind::Io);
}

/// What editors leave beside the files they write, and what they write for a moment.
#[test]
fn files_of_editors_are_no_templates() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.prompt.md", "1");
    for name in [
        ".a.prompt.md.swp",
        ".#a.prompt.md",
        "#a.prompt.md#",
        "a.prompt.md~",
        "4913",
        "a.prompt.md.tmp",
        ".goutputstream-X1Y2Z3",
        "a.prompt.md.orig",
        "~$a.prompt.md",
        "a.prompt.md___jb_tmp___",
    ] {
        write(dir.path(), name, "{{ no template");
    }
    assert_eq!(Prompts::load_dir(dir.path()).unwrap().names(), ["a"]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leaves_the_folder_is_refused_and_one_inside_is_followed() {
    use std::os::unix::fs::symlink;
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "secret", "a key");
    fs::create_dir(dir.path().join("..data")).unwrap();
    write(&dir.path().join("..data"), "b.prompt.md", "mounted");
    symlink("..data/b.prompt.md", dir.path().join("b.prompt.md")).unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    assert_eq!(prompts.render("b", &Context::new()).unwrap(), "mounted");

    symlink(outside.path().join("secret"), dir.path().join("a.prompt.md")).unwrap();
    let errors = prompts.reload().unwrap_err();
    assert_eq!(errors.errors().len(), 1);
    assert_eq!(errors.errors()[0].kind(), ErrorKind::Io);
    assert!(errors.to_string().contains("leaves the folder"), "{errors}");
}

#[test]
fn variants_are_templates_of_their_own_with_the_plain_one_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in
        [("a", "plain"), ("a.short", "short"), ("a.long", "long"), ("ab.c", "other")]
    {
        write(dir.path(), &format!("{name}.prompt.md"), text);
    }
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    assert_eq!(prompts.variants("a"), ["long", "short"]);
    let text = |variant| prompts.variant("a", variant).map(|prompt| prompt.text().to_owned());
    assert_eq!(text("short").as_deref(), Some("short"));
    assert_eq!(text("unknown").as_deref(), Some("plain"));
    assert!(prompts.variant("absent", "short").is_none());
}
