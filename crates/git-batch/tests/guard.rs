//! The guards on names, held against what git itself says about the same names.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bstr::{BString, ByteSlice};
use git_batch::guard::path::{PathError, check, check_symlink};
use git_batch::guard::refname::{RefNameError, branch};
use tempfile::TempDir;

/// Runs git without any setting of the user; `home` holds none.
fn git(dir: &Path, args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new("git")
        .args(["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"])
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("XDG_CONFIG_HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", dir.join("no-such-file"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git runs");
    let mut pipe = child.stdin.take().expect("piped");
    let bytes = stdin.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let output = child.wait_with_output().expect("git ends");
    // git may end before it has read everything.
    let _ = writer.join().expect("the writer does not panic");
    output
}

fn repository() -> (TempDir, String) {
    let dir = TempDir::new().expect("a folder");
    assert!(git(dir.path(), &["init", "-q"], b"").status.success());
    let blob = git(dir.path(), &["hash-object", "-w", "--stdin"], b"");
    let blob = String::from_utf8(blob.stdout).expect("hex").trim().to_owned();
    (dir, blob)
}

/// Whether `git update-index` takes `path`: this is git's `verify_path`. It passes over what it
/// refuses, and says so.
fn git_takes(dir: &Path, blob: &str, mode: &str, path: &[u8]) -> bool {
    let line = [format!("{mode} {blob}\t").as_bytes(), path, b"\0"].concat();
    let output = git(dir, &["update-index", "-z", "--add", "--index-info"], &line);
    assert!(output.status.success(), "{}", output.stderr.as_bstr());
    !output.stderr.contains_str("Ignoring path")
}

#[test]
fn paths_are_taken_and_refused_as_by_git() {
    let (dir, blob) = repository();
    let paths: [&[u8]; 60] = [
        b"a",
        b"a/b/c.rs",
        b" a",
        b"a ",
        b"-rf",
        b"caf\xc3\xa9",
        b"\xff\xfe",
        b"a\nb",
        b"...",
        b"..a",
        b".a",
        b"a..",
        b"a\\b",
        b"..\\a",
        b"con",
        b"c:/a",
        b".gitignore",
        b".github/workflows/ci.yml",
        b".git-x",
        b".gitx",
        b"git~2",
        b"git",
        b"a.git",
        b".git.a",
        b".gitmodules",
        b"gitmod~1",
        b"/a",
        b"a//b",
        b"//",
        b"/",
        b".",
        b"..",
        b"./a",
        b"a/.",
        b"a/..",
        b"a/../b",
        b"../a",
        b".git",
        b".git/config",
        b"a/.git",
        b"a/.git/hooks/post-checkout",
        b".GIT",
        b".gIt/config",
        b".git ",
        b".git.",
        b".git. . ./a",
        b".git::$INDEX_ALLOCATION",
        b".git::$INDEX_ALLOCATION/config",
        b".git...:x",
        b"git~1",
        b"GIT~1/config",
        b"git~1 .",
        b"a\\.git",
        b"a\\git~1\\b",
        b".git\\config",
        b".g\xe2\x80\x8cit",
        b"\xef\xbb\xbf.git/config",
        b".Gi\xe2\x80\x8dT",
        b".git\xff",
        b".git\xef\xbf\xbf",
    ];
    for path in paths {
        assert_eq!(
            check(path.as_bstr()).is_ok(),
            git_takes(dir.path(), &blob, "100644", path),
            "{:?}",
            path.as_bstr()
        );
    }
    let links: [&[u8]; 14] = [
        b"link",
        b".gitmodules",
        b".GitModules",
        b"a/.gitmodules",
        b".gitmodules .",
        b".gitmodules:$DATA",
        b"gitmod~1",
        b"GITMOD~4",
        b"gitmod~5",
        b"gi7eba~1",
        b"gi7eb~12",
        b"gi7eba~a",
        b".gitmod\xe2\x80\x8cules",
        b".gitattributes",
    ];
    for path in links {
        assert_eq!(
            check_symlink(path.as_bstr()).is_ok(),
            git_takes(dir.path(), &blob, "120000", path),
            "{:?}",
            path.as_bstr()
        );
        assert_eq!(check(path.as_bstr()), Ok(()), "{:?} is a fine name of a file", path.as_bstr());
    }
}

/// Every name of one component that is near to `.git` or `.gitmodules`: some 10,000 of them, held
/// against `git fsck --strict` in one go.
#[test]
fn near_misses_are_judged_as_by_fsck() {
    let (dir, blob) = repository();
    let stems: [&[u8]; 20] = [
        b".git",
        b".GIT",
        b".gi",
        b"git",
        b"git~1",
        b"GIT~1",
        b"git~2",
        b"git~",
        b".gitmodules",
        b".GITmodules",
        b"gitmod~1",
        b"gitmod~0",
        b"GI7EBA~1",
        b"gi7eb~10",
        b"gi7e~199",
        b"~1000000",
        b"gi7eba~",
        b"g~1",
        b"i7eba~1",
        b"x",
    ];
    let inserts: [&[u8]; 16] = [
        b"",
        b".",
        b" ",
        b":",
        b"\\",
        b"~",
        b"0",
        b"9",
        b"a",
        b"\xe2\x80\x8c",
        b"\xe2\x81\xaf",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xef\xbf\xbe",
        b"\xc3\xa9",
        b"\xe2\x80",
    ];
    let mut names: Vec<Vec<u8>> = Vec::new();
    for stem in stems {
        for at in 0..=stem.len() {
            for insert in inserts {
                for tail in [b"".as_slice(), b" .", b":x"] {
                    names.push([&stem[..at], insert, &stem[at..], tail].concat());
                }
            }
        }
    }
    names.retain(|name| !matches!(name.as_slice(), b"" | b"." | b".."));
    names.sort();
    names.dedup();

    for (mode, is_refused) in [
        ("100644", (|name: &[u8]| check(name.as_bstr()).is_err()) as fn(&[u8]) -> bool),
        ("120000", |name| check_symlink(name.as_bstr()).is_err()),
    ] {
        let input: Vec<u8> = names
            .iter()
            .flat_map(|name| [format!("{mode} blob {blob}\t").as_bytes(), name, b"\0\0"].concat())
            .collect();
        let trees = git(dir.path(), &["mktree", "-z", "--batch"], &input);
        assert!(trees.status.success(), "{}", trees.stderr.as_bstr());
        let trees: Vec<_> = trees.stdout.lines().collect();
        assert_eq!(trees.len(), names.len());

        let fsck = git(dir.path(), &["fsck", "--strict", "--no-dangling"], b"");
        let faults: std::collections::BTreeSet<&[u8]> = fsck
            .stderr
            .lines()
            .filter(|line| line.contains_str("hasDotgit") || line.contains_str("gitmodulesSymlink"))
            .filter_map(|line| line.strip_prefix(b"error in tree ")?.get(..40))
            .collect();
        assert!(faults.len() > 100, "fsck found {} faults only", faults.len());
        for (name, tree) in names.iter().zip(trees) {
            assert_eq!(is_refused(name), faults.contains(tree), "{mode} {:?}", name.as_bstr());
        }
    }
}

#[test]
fn an_error_about_a_path_names_the_path_and_what_to_do() {
    let path = BString::from("a//b");
    assert_eq!(check(path.as_bstr()), Err(PathError::EmptyComponent(path)));
    let messages: Vec<String> = ["", "/a", "a/", "a/../b", "a\0b", "x/git~1/y"]
        .iter()
        .map(|path| check((*path).into()).expect_err("refused").to_string())
        .collect();
    assert_eq!(
        messages,
        [
            "the path is empty; name a file below the root of the repository",
            "path \"/a\" is absolute; name it from the root of the repository, without a leading slash",
            "path \"a/\" ends with a slash; name a file, folders come with their files",
            "path \"a/../b\" holds a \".\" or \"..\" component; name it from the root of the repository",
            "path \"a\\0b\" holds a NUL byte, which no tree can hold",
            "path \"x/git~1/y\" holds \"git~1\", which git or a file system reads as \".git\"; \
             choose another name",
        ]
    );
}

#[test]
fn branch_names_are_taken_and_refused_as_by_git() {
    let (dir, _) = repository();
    for name in [
        "main",
        "a/b",
        "agent/fix-7",
        "a.b",
        "a-",
        "-",
        "--force",
        "-x",
        "HEAD",
        "head",
        "FETCH_HEAD",
        "a/HEAD",
        "a@",
        "@a",
        "a@b",
        "@/a",
        "a@{b",
        "@{",
        "@{-1}",
        "@{u}",
        "a..b",
        ".a",
        "a.",
        "a/.b",
        "a./b",
        "a.lock",
        "a.lock/b",
        "a.lockx",
        ".lock",
        "a/.lock",
        "/a",
        "a/",
        "a//b",
        "/",
        "a b",
        "a~b",
        "a^b",
        "a:b",
        "a?b",
        "a*b",
        "a[b",
        "a]b",
        "a\\b",
        "a\tb",
        "a\u{7f}b",
        "caf\u{e9}",
        "a{b",
        "a}b",
        "a\"b",
        "a'b",
        "a$b",
        "a;b",
        "a|b",
        "a&b",
        "!a",
        "#a",
        "%a",
        "+a",
        "=a",
        "heads/a",
        "tags/a",
        "a\nb",
        ".",
        "..",
        "0123456789012345678901234567890123456789",
    ] {
        let by_git = git(dir.path(), &["check-ref-format", "--branch", name], b"").status.success();
        assert_eq!(branch(name).is_ok(), by_git, "{name:?}");
    }
}

#[test]
fn a_full_name_is_refused_with_the_short_one() {
    for (name, short) in
        [("refs/heads/main", "main"), ("refs/tags/v1", "tags/v1"), ("refs/heads/a/b", "a/b")]
    {
        let want = RefNameError::Full { name: name.to_owned(), short: short.to_owned() };
        assert_eq!(branch(name), Err(want));
    }
    assert_eq!(branch(""), Err(RefNameError::Empty));
    // Taken by `git check-ref-format --branch`, but it is another name of HEAD everywhere else.
    assert!(branch("@").is_err());
}
