//! Which paths an answer may write.

use globset::{GlobBuilder, GlobMatcher};

/// The globs of a plan's `allow`, and the rule for guarded paths.
///
/// Guarded are paths with a component that begins with `.git` (`.github/**` is one of them), and
/// symlinks. They need an allowance that names them: for the former a glob that itself has a
/// component beginning with `.git`, for the latter the exact path.
#[derive(Debug, Default)]
pub(crate) struct Allow {
    /// `None` allows every path that is not guarded; an empty list allows none.
    globs: Option<Vec<(String, GlobMatcher)>>,
}

impl Allow {
    /// Compiles the globs; `*` does not cross a `/`, `**` does. Nothing but what they match is allowed.
    ///
    /// # Errors
    ///
    /// Position and fault of the first glob that does not compile.
    pub(crate) fn new(globs: &[&str]) -> Result<Allow, (usize, String)> {
        let compile = |(at, text): (usize, &&str)| {
            let glob = GlobBuilder::new(text).literal_separator(true).build();
            glob.map(|glob| ((*text).to_owned(), glob.compile_matcher()))
                .map_err(|error| (at, error.to_string()))
        };
        let globs = globs.iter().enumerate().map(compile).collect::<Result<_, _>>()?;
        Ok(Allow { globs: Some(globs) })
    }

    /// Returns the globs as they were given, if they were.
    pub(crate) fn globs(&self) -> Option<Vec<&str>> {
        let globs = self.globs.as_ref()?;
        Some(globs.iter().map(|(text, _)| text.as_str()).collect())
    }

    /// Returns why an answer may not write `path`, or `None` if it may.
    pub(crate) fn refuses(&self, path: &str, symlink: bool) -> Option<String> {
        let matching = || self.globs.iter().flatten().filter(|(_, glob)| glob.is_match(path));
        if self.globs.is_some() && matching().next().is_none() {
            return Some(format!("\"{path}\" is outside \"allow\""));
        }
        if is_guarded(path) && !matching().any(|(text, _)| is_guarded(text)) {
            return Some(format!("\"{path}\" is guarded; \"allow\" does not name it"));
        }
        if symlink && !matching().any(|(text, _)| text == path) {
            return Some(format!("\"{path}\" is a symlink; \"allow\" does not name it"));
        }
        None
    }
}

fn is_guarded(path: &str) -> bool {
    // As any file system reads it: NTFS splits at backslashes, HFS+ passes over what is not seen.
    let seen: String = path.chars().filter(|c| !is_unseen(*c)).collect();
    seen.split(['/', '\\'])
        .any(|part| part.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(".git")))
}

/// The code points that HFS+ ignores in names.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(globs: &[&str]) -> Allow {
        Allow::new(globs).expect("the globs compile")
    }

    #[test]
    fn everything_but_the_guarded_is_allowed_by_default() {
        let allow = Allow::default();
        assert_eq!(allow.refuses("src/lib.rs", false), None);
        for path in [
            ".github/workflows/ci.yml",
            ".gitignore",
            "a/.gitattributes",
            ".GitHub/x",
            ".g\u{200c}ithub/x",
            "\u{feff}.github/x",
            "a\\.github\\x",
        ] {
            assert!(allow.refuses(path, false).is_some(), "{path}");
        }
        assert!(allow.refuses("link", true).is_some());
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        assert!(allow(&[]).refuses("src/lib.rs", false).is_some());
        assert!(allow(&[""]).refuses("src/lib.rs", false).is_some());
    }

    #[test]
    fn globs_bound_and_names_open() {
        let narrow = allow(&["notes/*.md"]);
        assert_eq!(narrow.refuses("notes/a.md", false), None);
        assert!(narrow.refuses("notes/deep/a.md", false).is_some());
        assert!(narrow.refuses("src/lib.rs", false).is_some());
        let wide = allow(&["**"]);
        assert!(wide.refuses(".github/workflows/ci.yml", false).is_some());
        let named = allow(&["**", ".github/**", "link"]);
        assert_eq!(named.refuses(".github/workflows/ci.yml", false), None);
        assert_eq!(named.refuses("link", true), None);
        assert!(named.refuses("other", true).is_some());
    }
}
