//! What no text file may hold: trailing space, unfinished work, paths of one person's machine.

use super::Finding;
use super::tree::Tree;

/// Words that mark unfinished work. Built from parts, so that this file does not hold them.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimplem", "ented!"),
];

/// Folders that exist on one machine only.
const MACHINE: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| *path != "Cargo.lock") {
        let exact = is_exact(path);
        for (index, line) in text.lines().enumerate() {
            let mut found = |what: String| findings.push(Finding::new(path, index + 1, what));
            if !exact && line.ends_with([' ', '\t', '\r']) {
                found("trailing space".to_owned());
            }
            if let Some(word) = UNFINISHED.iter().find(|word| stands_alone(line, word)) {
                found(format!("`{word}`: finish it, or write down what is missing in the docs"));
            }
            if let Some(folder) = MACHINE.iter().find(|folder| begins_path(line, folder)) {
                found(format!("`{folder}`: a path of one machine"));
            }
        }
        let well_ended = text.is_empty() || text.ends_with('\n') && !text.ends_with("\n\n");
        if !exact && !well_ended {
            findings.push(Finding::new(path, 0, "does not end with one newline"));
        }
    }
    findings
}

/// Whether every byte of the file is part of a test or a recording.
fn is_exact(path: &str) -> bool {
    let kind = path.rsplit('.').next();
    let sample = path.contains("/tests/") && kind != Some("rs");
    sample || kind == Some("snap") || path.starts_with("examples/")
}

/// Whether the word stands in the line with no letter beside it.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(letter) && !line[at + word.len()..].starts_with(letter)
    })
}

/// Whether an absolute path in the line begins with the folder.
fn begins_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|c: char| {
            c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | ')' | '*' | '~')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_file_passes() {
        assert!(whats("a.rs", "fn a() {}\n").is_empty());
        assert!(whats("a.md", "").is_empty());
    }

    #[test]
    fn trailing_space_and_a_missing_or_doubled_last_newline_are_found() {
        assert_eq!(whats("a.rs", "a \n"), ["a.rs:1: trailing space"]);
        assert_eq!(whats("a.rs", "a\nb\t\n"), ["a.rs:2: trailing space"]);
        assert_eq!(whats("a.rs", "a"), ["a.rs: does not end with one newline"]);
        assert_eq!(whats("a.rs", "a\n\n"), ["a.rs: does not end with one newline"]);
        assert!(whats("crates/a/tests/cases/x.md", "a \nb").is_empty());
        assert!(whats("crates/a/tests/snapshots/x.snap", "a \nb").is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            assert_eq!(whats("a.md", &format!("// {word} later\n")).len(), 1, "{word}");
        }
        assert!(whats("a.rs", "let todos = 1;\n").is_empty());
        assert!(whats("a.rs", &format!("// MY{}S\n", UNFINISHED[0])).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for folder in MACHINE {
            assert_eq!(whats("a.md", &format!("see `{folder}me/x`\n")).len(), 1, "{folder}");
            assert!(
                whats("a.md", &format!("see https://a.example{folder}me\n")).is_empty(),
                "{folder}"
            );
        }
    }
}
