//! Every public function of a library that returns a `Result` says when it fails.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.crates().filter(|folder| tree.has(&format!("{folder}/src/lib.rs"))) {
        let source = format!("{folder}/src/");
        for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(&source)) {
            for (line, name) in undocumented(text) {
                let what = format!("`{name}` returns a Result and has no `# Errors` section");
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// Returns the line and name of each public function without the section. Relies on the layout
/// that rustfmt gives.
fn undocumented(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut docs: Vec<&str> = Vec::new();
    let mut public_trait: Option<usize> = None;
    let mut test_module = false;
    for (index, &line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim();
        if test_module {
            test_module = line != "}";
            continue;
        }
        if public_trait == Some(indent) && code.starts_with('}') {
            public_trait = None;
        }
        if let Some(doc) = code.strip_prefix("///") {
            docs.push(doc.trim());
        } else if code.is_empty() {
            docs.clear();
        } else if code.starts_with("mod ") && index > 0 && lines[index - 1].trim() == "#[cfg(test)]"
        {
            test_module = code.ends_with('{');
        } else if code.starts_with("pub trait ") || code.starts_with("pub unsafe trait ") {
            public_trait = (!code.ends_with('}')).then_some(indent);
            docs.clear();
        } else if let Some(name) = public_function(code, public_trait.is_some()) {
            let signature = signature(&lines[index..]);
            if returns_result(&signature) && !has_section(&docs) {
                found.push((index + 1, name.to_owned()));
            }
            docs.clear();
        } else if code.ends_with([';', '{', '}']) {
            docs.clear();
        }
    }
    found
}

/// The name of the public function that begins on the line.
fn public_function(code: &str, in_public_trait: bool) -> Option<&str> {
    let mut rest = match code.strip_prefix("pub ") {
        Some(rest) => rest,
        None if in_public_trait => code,
        None => return None,
    };
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_')?])
}

/// The text from the name to the body or the semicolon.
fn signature(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.trim();
        text.push_str(line);
        text.push(' ');
        if line.ends_with(['{', ';', '}']) {
            break;
        }
    }
    text
}

/// Whether the outermost type behind the parameter list is a `Result`, by whatever path.
fn returns_result(signature: &str) -> bool {
    let Some(rest) = behind_parameters(signature) else { return false };
    let Some(returned) = rest.trim_start().strip_prefix("->") else { return false };
    let end = returned.find(['<', '{', ';', ' ']).unwrap_or(returned.len());
    let (path, blank) = (returned.trim_start(), returned.len() - returned.trim_start().len());
    let end = if end < blank {
        path.find(['<', '{', ';', ' ']).unwrap_or(path.len())
    } else {
        end - blank
    };
    path[..end].rsplit("::").next() == Some("Result")
}

/// What follows the parameter list: the first round brackets outside of the type parameters.
fn behind_parameters(signature: &str) -> Option<&str> {
    let (mut angle, mut round) = (0_i32, 0_i32);
    let mut before = ' ';
    for (at, character) in signature.char_indices() {
        match character {
            '<' if round == 0 => angle += 1,
            '>' if round == 0 && before != '-' => angle -= 1,
            '(' => round += 1,
            ')' => {
                round -= 1;
                if round == 0 && angle == 0 {
                    return Some(&signature[at + 1..]);
                }
            }
            _ => {}
        }
        before = character;
    }
    None
}

/// Whether the heading is there and says something.
fn has_section(docs: &[&str]) -> bool {
    let heading = docs.iter().position(|line| *line == "# Errors");
    let after = heading.map(|at| docs[at + 1..].iter().find(|line| !line.is_empty()));
    after.flatten().is_some_and(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        undocumented(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn a_function_without_the_section_is_found() {
        assert_eq!(names("/// Opens.\npub fn open() -> Result<(), Error> {\n"), ["open"]);
        assert_eq!(names("pub fn open() -> io::Result<()> {\n"), ["open"]);
        assert_eq!(
            names(
                "    pub const fn a<F: Fn(u8) -> u8>(\n        f: F,\n    ) -> std::result::Result<u8, E>\n    where\n        F: Copy,\n    {\n"
            ),
            ["a"]
        );
        assert_eq!(
            names(
                "/// Opens.\n///\n/// # Errors\n///\n/// # Panics\npub fn open() -> Result<()> {\n"
            ),
            ["open"]
        );
    }

    #[test]
    fn with_the_section_it_passes() {
        let docs = "/// Opens.\n///\n/// # Errors\n///\n/// When it is shut.\n";
        assert!(names(&format!("{docs}#[must_use]\npub fn open() -> Result<()> {{\n")).is_empty());
        assert!(
            names(&format!("{docs}pub async fn open(\n    a: u8,\n) -> Result<()> {{\n"))
                .is_empty()
        );
    }

    #[test]
    fn the_section_of_another_function_does_not_count() {
        let text = "/// # Errors\n///\n/// When.\npub fn a() -> Result<()> {}\npub fn b() -> Result<()> {}\n";
        assert_eq!(names(text), ["b"]);
    }

    #[test]
    fn methods_of_a_public_trait_are_public() {
        let text = "pub trait T {\n    fn a(&self) -> Result<()>;\n    fn b(&self);\n}\nfn c() -> Result<()> {\n";
        assert_eq!(names(text), ["a"]);
        assert!(names("trait T {\n    fn a(&self) -> Result<()>;\n}\n").is_empty());
    }

    #[test]
    fn other_functions_need_no_section() {
        for text in [
            "pub fn a(f: impl Fn() -> Result<()>) -> u8 {\n",
            "pub fn a() -> Option<Result<u8, E>> {\n",
            "pub fn a() -> TaskResult<u8> {\n",
            "pub fn a() {\n",
            "pub(crate) fn a() -> Result<u8, E> {\n",
            "fn a() -> Result<u8, E> {\n",
            "#[cfg(test)]\nmod tests {\n    pub fn a() -> Result<u8, E> {\n}\n",
        ] {
            assert!(names(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn only_libraries_are_asked() {
        let bad = "pub fn a() -> Result<u8, E> {\n";
        let library =
            [("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", ""), ("crates/a/src/b.rs", bad)];
        assert_eq!(check(&Tree::of(&library)).len(), 1);
        let program =
            [("crates/a/Cargo.toml", ""), ("crates/a/src/main.rs", ""), ("crates/a/src/b.rs", bad)];
        assert!(check(&Tree::of(&program)).is_empty());
    }
}
