//! Templates of a folder: what is loaded, and that a reload is all or nothing.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fs;
use std::path::Path;

use prompt_templates::{Context, ErrorKind, LoadError, Prompts, check_dir};
use proptest::prelude::*;
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder can be made");
    for (name, text) in files {
        write(dir.path(), name, text);
    }
    dir
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
    fs::write(path, text).expect("a file can be written");
}

fn render(prompts: &Prompts, name: &str) -> String {
    prompts.render(name, &Context::new()).expect("it renders without data")
}

#[test]
fn a_folder_is_loaded_with_partials_and_subfolders() {
    let dir = folder(&[
        ("review.prompt.md", "R {% include \"_part\" %} {% include \"sub/_deep\" %}"),
        ("_part.prompt.md", "P"),
        ("sub/_deep.prompt.md", "D"),
        ("sub/plan.prompt.md", "\u{feff}L"),
        ("README.md", "{{ no template"),
        (".hidden.prompt.md", "{{"),
        (".git/x.prompt.md", "{{"),
    ]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    assert_eq!(prompts.names(), ["review", "sub/plan"]);
    assert_eq!(prompts.len(), 4);
    assert_eq!(render(&prompts, "review"), "R P D");
    assert_eq!(render(&prompts, "sub/plan"), "L");
    let file = prompts.get("sub/plan").unwrap().file().map(Path::to_owned);
    assert_eq!(file, Some(dir.path().join("sub/plan.prompt.md")));
}

#[test]
fn a_reload_takes_in_what_has_changed_and_nothing_else() {
    let dir = folder(&[("a.prompt.md", "1"), ("b.prompt.md", "b"), ("c.prompt.md", "c")]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let (a, b) = (prompts.get("a").unwrap(), prompts.get("b").unwrap());
    write(dir.path(), "a.prompt.md", "2");
    write(dir.path(), "d.prompt.md", "d");
    fs::remove_file(dir.path().join("c.prompt.md")).unwrap();

    let reload = prompts.reload().unwrap();
    assert_eq!((reload.loaded, reload.changed, reload.removed), (3, 2, 1));
    assert_eq!(prompts.names(), ["a", "b", "d"]);
    assert_eq!(render(&prompts, "a"), "2");
    assert!(prompts.get("a").unwrap().version() > a.version());
    assert_eq!(prompts.get("b").unwrap().version(), b.version());
    assert_eq!(prompts.stats().compiles, 5, "three at first, then two");

    assert_eq!(prompts.reload().unwrap().changed, 0);
    assert_eq!(prompts.stats().reloads, 3);
}

#[test]
fn one_bad_file_keeps_the_last_good_set() {
    let dir = folder(&[
        ("a.prompt.md", "1"),
        ("b.prompt.md", "{% include \"_p\" %}"),
        ("_p.prompt.md", "p"),
    ]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    write(dir.path(), "a.prompt.md", "2");
    write(dir.path(), "b.prompt.md", "one\n  {{ x");
    write(dir.path(), "_p.prompt.md", "{% if y %}");

    let errors = prompts.reload().unwrap_err();
    let places: Vec<_> = errors
        .errors()
        .iter()
        .map(|e| (e.file().unwrap().to_owned(), e.line().unwrap(), e.column().unwrap()))
        .collect();
    let path = |name| dir.path().join(name);
    assert_eq!(places, [(path("_p.prompt.md"), 1, 1), (path("b.prompt.md"), 2, 3)]);
    assert_eq!(errors.to_string().lines().count(), 2);
    assert_eq!((render(&prompts, "a"), render(&prompts, "b")), ("1".into(), "p".into()));
    assert_eq!(prompts.stats().reload_failures, 1);

    write(dir.path(), "b.prompt.md", "B");
    write(dir.path(), "_p.prompt.md", "q");
    prompts.reload().unwrap();
    assert_eq!((render(&prompts, "a"), render(&prompts, "b")), ("2".into(), "B".into()));
}

#[test]
fn a_partial_that_is_gone_keeps_the_last_good_set() {
    let dir = folder(&[("a.prompt.md", "{% include \"_p\" %}"), ("_p.prompt.md", "p")]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    fs::remove_file(dir.path().join("_p.prompt.md")).unwrap();
    let errors = prompts.reload().unwrap_err();
    assert_eq!(errors.errors()[0].kind(), ErrorKind::UnknownInclude);
    assert_eq!(render(&prompts, "a"), "p");
}

#[test]
fn a_changed_partial_alone_changes_what_includes_it() {
    let dir = folder(&[("a.prompt.md", "{% include \"_p\" %}"), ("_p.prompt.md", "1")]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    write(dir.path(), "_p.prompt.md", "2");
    assert_eq!(prompts.reload().unwrap().changed, 1);
    assert_eq!(render(&prompts, "a"), "2");
}

#[test]
fn templates_of_the_folder_are_never_evicted() {
    let dir = folder(&[("a.prompt.md", "a"), ("b.prompt.md", "b"), ("c.prompt.md", "c")]);
    let prompts = Prompts::builder().capacity(1).load_dir(dir.path()).unwrap();
    for n in 0..5 {
        prompts.compile(&format!("x{n}"), "x").unwrap();
    }
    assert_eq!(prompts.names(), ["a", "b", "c", "x4"]);
}

#[test]
fn a_call_may_stand_in_for_a_file_until_the_reload() {
    let dir = folder(&[("a.prompt.md", "file")]);
    let prompts = Prompts::builder().capacity(1).load_dir(dir.path()).unwrap();
    prompts.compile("a", "call").unwrap();
    prompts.compile("b", "b").unwrap();
    assert_eq!(render(&prompts, "a"), "call");
    prompts.reload().unwrap();
    assert_eq!(render(&prompts, "a"), "file");
    assert_eq!(prompts.names(), ["a", "b"]);
}

/// A poll publishes only what has changed, unless a call has been at the templates of the folder.
#[test]
fn what_calls_did_to_the_templates_of_the_folder_ends_with_the_next_change() {
    let calls: [fn(&Prompts); 4] = [
        |_| {},
        |prompts| drop(prompts.compile("a", "call").unwrap()),
        |prompts| assert!(prompts.remove("a").unwrap()),
        |prompts| prompts.clear().unwrap(),
    ];
    for call in calls {
        let dir = folder(&[("a.prompt.md", "a"), ("b.prompt.md", "b")]);
        let prompts = Prompts::load_dir(dir.path()).unwrap();
        for text in ["changed", "changed again"] {
            call(&prompts);
            let before = prompts.stats().publications;
            write(dir.path(), "b.prompt.md", text);
            assert_eq!(prompts.reload_if_changed().unwrap().map(|reload| reload.loaded), Some(2));
            assert_eq!(prompts.stats().publications, before + 1);
            assert_eq!((render(&prompts, "a"), render(&prompts, "b")), ("a".into(), text.into()));
        }
    }
}

#[test]
fn what_a_bad_file_held_back_comes_when_it_is_mended() {
    let dir = folder(&[("a.prompt.md", "1"), ("b.prompt.md", "b"), ("c.prompt.md", "c")]);
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    write(dir.path(), "a.prompt.md", "22");
    write(dir.path(), "b.prompt.md", "{{ bad");
    assert!(prompts.reload_if_changed().is_err());
    assert_eq!(render(&prompts, "a"), "1");
    write(dir.path(), "b.prompt.md", "better");
    assert_eq!(prompts.reload_if_changed().unwrap().map(|reload| reload.changed), Some(2));
    assert_eq!((render(&prompts, "a"), render(&prompts, "b")), ("22".into(), "better".into()));

    // One that includes what is not there, and a change that is taken back meanwhile.
    let version = prompts.get("a").unwrap().version();
    write(dir.path(), "a.prompt.md", "333");
    write(dir.path(), "c.prompt.md", "{% include \"d\" %}");
    assert!(prompts.reload_if_changed().is_err());
    write(dir.path(), "a.prompt.md", "22");
    write(dir.path(), "d.prompt.md", "d");
    assert_eq!(prompts.reload_if_changed().unwrap().map(|reload| reload.changed), Some(2));
    assert_eq!((render(&prompts, "c"), prompts.get("a").unwrap().version()), ("d".into(), version));
}

const NAMES: [&str; 4] = ["_p", "a", "b", "sub/c"];

/// What happens to a folder and to the store that is polled for it; templates by their place in `NAMES`.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, &'static str),
    Delete(usize),
    Compile(usize),
    Remove(usize),
    Clear,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let texts = ["1", "22", "{{ bad", "{% include \"_p\" %}", "{{ v }}333333"];
    prop_oneof![
        4 => (name.clone(), prop::sample::select(texts.to_vec()))
            .prop_map(|(name, text)| Step::Write(name, text)),
        1 => name.clone().prop_map(Step::Delete),
        // Not the partial: a file could include what only a call has brought.
        1 => (1..NAMES.len()).prop_map(Step::Compile),
        1 => name.prop_map(Step::Remove),
        1 => Just(Step::Clear),
        4 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_poll_comes_to_what_a_load_comes_to(steps in prop::collection::vec(step(), 1..40)) {
        walk(&steps);
    }
}

fn walk(steps: &[Step]) {
    let dir = folder(&[]);
    let file = |name: usize| format!("{}.prompt.md", NAMES[name]);
    for name in 0..NAMES.len() {
        write(dir.path(), &file(name), "0");
    }
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let mut known = Known { is_called: false, is_told: false };
    for step in steps {
        match *step {
            Step::Write(name, text) => write(dir.path(), &file(name), text),
            Step::Delete(name) => drop(fs::remove_file(dir.path().join(file(name)))),
            Step::Compile(name) => drop(prompts.compile(NAMES[name], "call")),
            Step::Remove(name) => drop(prompts.remove(NAMES[name])),
            Step::Clear => prompts.clear().unwrap(),
            Step::Poll => poll(&prompts, dir.path(), &mut known),
        }
        known.is_called |= matches!(step, Step::Compile(_) | Step::Remove(_) | Step::Clear);
    }
    poll(&prompts, dir.path(), &mut known);
}

/// What a poll that finds nothing may be due to.
struct Known {
    /// Calls have changed the store since a poll published.
    is_called: bool,
    /// The last poll that found something told of an error.
    is_told: bool,
}

/// Polls a store, and compares it with one that is loaded now.
fn poll(prompts: &Prompts, dir: &Path, known: &mut Known) {
    let versions = || {
        let all = prompts.all_template_stats().into_iter();
        all.map(|stats| (stats.name, stats.version)).collect::<Vec<_>>()
    };
    let before = versions();
    let polled = prompts.reload_if_changed();
    let loaded = Prompts::load_dir(dir);
    let compare = |loaded: &Prompts| {
        for name in NAMES {
            let text = |prompts: &Prompts| Some(prompts.get(name)?.text().to_owned());
            let (found, expected) = (text(prompts), text(loaded));
            // What the folder does not have may have come by a call.
            let is_called = expected.is_none() && found.as_deref() == Some("call");
            assert!(is_called || found == expected, "{name}: {found:?}, not {expected:?}");
        }
    };
    match polled {
        Ok(None) => {
            assert_eq!(versions(), before);
            match loaded {
                // Nothing was missed.
                Ok(loaded) if !known.is_called => compare(&loaded),
                Ok(_) => {}
                Err(errors) => assert!(known.is_told, "not told: {errors}"),
            }
        }
        Ok(Some(reload)) => {
            let loaded = loaded.unwrap();
            *known = Known { is_called: false, is_told: false };
            assert_eq!(reload.loaded, loaded.len());
            compare(&loaded);
        }
        Err(errors) => {
            // The names that an error lists as available may have come by a call.
            let places = |errors: &LoadError| {
                let all = errors.errors().iter();
                all.map(|e| (e.kind(), e.file().map(Path::to_owned), e.line())).collect::<Vec<_>>()
            };
            known.is_told = true;
            assert_eq!(places(&errors), places(&loaded.unwrap_err()));
            assert_eq!(versions(), before);
        }
    }
}

#[test]
fn a_folder_that_cannot_be_read_is_an_error() {
    let dir = folder(&[]);
    assert!(Prompts::load_dir(dir.path()).unwrap().is_empty());
    let absent = dir.path().join("absent");
    let errors = Prompts::load_dir(&absent).unwrap_err();
    assert_eq!(errors.errors()[0].kind(), ErrorKind::Io);
    assert_eq!(errors.errors()[0].file(), Some(&*absent));
    assert_eq!(check_dir(&absent).len(), 1);
    let prompts = Prompts::builder().build().unwrap();
    assert_eq!(prompts.reload().unwrap_err().errors()[0].kind(), ErrorKind::Io);
}

#[test]
fn a_file_that_is_not_utf_8_is_an_error_with_a_place() {
    let dir = folder(&[]);
    fs::write(dir.path().join("a.prompt.md"), b"ok\n\xc3\xa9\xff").unwrap();
    let errors = check_dir(dir.path());
    assert_eq!(
        (errors[0].kind(), errors[0].line(), errors[0].column()),
        (ErrorKind::Io, Some(2), Some(2))
    );
}

#[test]
fn check_dir_names_everything_that_is_wrong() {
    let dir = folder(&[
        ("_bad.prompt.md", "{{"),
        ("a.prompt.md", "{% include \"_bad\" %}"),
        ("b.prompt.md", "x\n{% include \"_absent\" %}"),
        ("c.prompt.md", "{{ x | nothing_like_it }}"),
        ("d.prompt.md", "fine"),
    ]);
    let found: Vec<_> = check_dir(dir.path())
        .iter()
        .map(|e| (e.template_name().unwrap().to_owned(), e.kind(), e.line()))
        .collect();
    let expected = [
        ("_bad".to_owned(), ErrorKind::Syntax, Some(1)),
        ("b".to_owned(), ErrorKind::UnknownInclude, Some(2)),
        ("c".to_owned(), ErrorKind::UnknownFunction, Some(1)),
    ];
    assert_eq!(found, expected);
    assert!(check_dir(folder(&[("a.prompt.md", "x")]).path()).is_empty());
}

/// A pipe would be waited for, a device read without end.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_an_error_and_not_waited_for() {
    let dir = folder(&[]);
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("a.prompt.md")).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("sub", dir.path().join("b.prompt.md")).unwrap();
    std::os::unix::fs::symlink("absent", dir.path().join("c.prompt.md")).unwrap();
    let errors = check_dir(dir.path());
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Io && error.file().is_some()));
    assert!(errors[0].message().contains("not a file"), "{}", errors[0]);
}
