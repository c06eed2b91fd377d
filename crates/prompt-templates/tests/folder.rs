//! Folders that nobody would make on purpose.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use prompt_templates::{Context, Error, ErrorKind, Prompts, check_dir};
use tempfile::{TempDir, tempdir};

fn folder() -> TempDir {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("good.prompt.md"), "good").unwrap();
    dir
}

/// Returns the only error of a folder, which keeps it from being loaded too.
fn only_error(dir: &Path) -> Error {
    let [error] = &check_dir(dir)[..] else { panic!("{:?}", check_dir(dir)) };
    let loaded = Prompts::load_dir(dir).unwrap_err();
    assert_eq!(loaded.errors()[0].to_string(), error.to_string());
    error.clone()
}

#[test]
fn links_that_go_round_end() {
    let dir = folder();
    symlink(".", dir.path().join("round")).unwrap();
    symlink("..", dir.path().join("up.d")).unwrap();
    assert_eq!(Prompts::load_dir(dir.path()).unwrap().names(), ["good"]);
    symlink("a.prompt.md", dir.path().join("a.prompt.md")).unwrap();
    let error = only_error(dir.path());
    assert_eq!((error.kind(), error.template_name()), (ErrorKind::Io, Some("a")));
    fs::remove_file(dir.path().join("a.prompt.md")).unwrap();
    symlink("nowhere", dir.path().join("b.prompt.md")).unwrap();
    assert_eq!(only_error(dir.path()).kind(), ErrorKind::Io);
}

#[test]
fn a_link_to_a_file_in_the_folder_follows_what_it_leads_to() {
    let dir = folder();
    symlink("good.prompt.md", dir.path().join("same.prompt.md")).unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    fs::write(dir.path().join("good.prompt.md"), "better").unwrap();
    assert_eq!(prompts.reload_if_changed().unwrap().unwrap().changed, 2);
    assert_eq!(prompts.render("same", &Context::new()).unwrap(), "better");
}

#[test]
fn names_that_are_no_text_are_errors_with_their_file() {
    let dir = folder();
    fs::write(dir.path().join(OsStr::from_bytes(b"a\xff.prompt.md")), "a").unwrap();
    let error = only_error(dir.path());
    assert_eq!((error.kind(), error.file().is_some()), (ErrorKind::Name, true));
    fs::remove_file(error.file().unwrap()).unwrap();

    let inner = dir.path().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&inner).unwrap();
    assert_eq!(Prompts::load_dir(dir.path()).unwrap().len(), 1);
    fs::write(inner.join("b.prompt.md"), "b").unwrap();
    assert_eq!(only_error(dir.path()).file(), Some(&*inner.join("b.prompt.md")));
}

#[test]
fn a_folder_whose_own_name_is_no_text_can_be_loaded() {
    let around = tempdir().unwrap();
    let dir = around.path().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/a.prompt.md"), "a").unwrap();
    let prompts = Prompts::load_dir(&dir).unwrap();
    assert_eq!(prompts.names(), ["sub/a"]);
    fs::write(dir.join("sub/a.prompt.md"), "{{").unwrap();
    assert_eq!(prompts.reload_if_changed().unwrap_err().errors()[0].line(), Some(1));
}

#[test]
fn names_that_no_tag_can_write_are_errors() {
    for name in ["a\"b", "a\\b", "a\nb", &"n".repeat(201)] {
        let dir = folder();
        fs::write(dir.path().join(format!("{name}.prompt.md")), "a").unwrap();
        let error = only_error(dir.path());
        assert_eq!((error.kind(), error.file().is_some()), (ErrorKind::Name, true), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    // What only looks as if it left the folder stays in it, and what would is no name.
    let dir = folder();
    fs::write(dir.path().join("a..b.prompt.md"), "a").unwrap();
    fs::write(dir.path().join("use.prompt.md"), "{% include \"a..b\" %}").unwrap();
    assert_eq!(Prompts::load_dir(dir.path()).unwrap().len(), 3);
    for name in ["../good", "sub/../good", "./good", "/etc/passwd", "good.prompt.md"] {
        fs::write(dir.path().join("use.prompt.md"), format!("{{% include \"{name}\" %}}")).unwrap();
        assert_eq!(only_error(dir.path()).kind(), ErrorKind::UnknownInclude, "{name}");
    }
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = folder();
    let pipe = dir.path().join("pipe.prompt.md");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = only_error(dir.path());
    assert_eq!((error.kind(), error.file()), (ErrorKind::Io, Some(&*pipe)));
    fs::remove_file(&pipe).unwrap();
    fs::create_dir(&pipe).unwrap();
    assert_eq!(Prompts::load_dir(dir.path()).unwrap().len(), 1, "a folder is looked into");
}

#[test]
fn a_deep_folder_is_walked_to_its_end() {
    let dir = folder();
    let mut deep = dir.path().to_owned();
    for _ in 0..90 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("a.prompt.md"), "deep").unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let name = format!("{}a", "d/".repeat(90));
    assert_eq!(prompts.render(&name, &Context::new()).unwrap(), "deep");
    // Deeper than a name may be long.
    fs::create_dir_all(deep.join("d/d/d/d/d/d/d/d/d/d")).unwrap();
    fs::write(deep.join("d/d/d/d/d/d/d/d/d/d/a.prompt.md"), "deeper").unwrap();
    assert_eq!(only_error(dir.path()).kind(), ErrorKind::Name);
}

#[test]
fn a_mark_of_an_editor_and_windows_line_ends_change_nothing() {
    let dir = folder();
    let text = "\u{feff}---\r\nvariables: [a]\r\n---\r\n[[system]]\r\nBe strict.\r\n\r\n[[user]]\r\n{{ a }}\r\nb\r\n";
    fs::write(dir.path().join("a.prompt.md"), text).unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let messages = prompts.messages("a", Context::new().set("a", "x\r\ny").unwrap()).unwrap();
    let contents: Vec<_> = messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(contents, ["Be strict.", "x\r\ny\r\nb"]);
    // The mark is part of no place either.
    fs::write(dir.path().join("a.prompt.md"), "\u{feff}{{ b }}").unwrap();
    prompts.reload_if_changed().unwrap();
    let error = prompts.render("a", &Context::new()).unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(1), Some(4)));
    // In the middle it is text.
    fs::write(dir.path().join("a.prompt.md"), "x\u{feff}").unwrap();
    prompts.reload_if_changed().unwrap();
    assert_eq!(prompts.render("a", &Context::new()).unwrap(), "x\u{feff}");
}

#[test]
fn a_folder_that_goes_and_comes_back_is_told_and_loaded() {
    let around = tempdir().unwrap();
    let dir = around.path().join("prompts");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.prompt.md"), "1").unwrap();
    let prompts = Prompts::load_dir(&dir).unwrap();
    fs::rename(&dir, around.path().join("away")).unwrap();
    assert_eq!(prompts.reload_if_changed().unwrap_err().errors()[0].kind(), ErrorKind::Io);
    assert_eq!(prompts.reload_if_changed().unwrap(), None, "told once");
    assert_eq!(prompts.render("a", &Context::new()).unwrap(), "1");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.prompt.md"), "2").unwrap();
    prompts.reload_if_changed().unwrap().unwrap();
    assert_eq!(prompts.render("a", &Context::new()).unwrap(), "2");
}
