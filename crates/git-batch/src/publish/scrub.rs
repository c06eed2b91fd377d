//! Text from git and from remotes made fit to be shown and stored.

/// Returns `text` in one line, as [`text`] does.
pub(crate) fn line(bytes: &[u8]) -> String {
    text(bytes).replace(['\n', '\t'], " ").trim().to_owned()
}

/// Returns `bytes` as text without credentials in URLs and without control characters other than
/// line ends and tabs: a remote must not be able to write to a terminal what it likes.
pub(crate) fn text(bytes: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(bytes)
        .replace("\r\n", "\n")
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\r' => '\n',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect();
    without_credentials(&shown)
}

/// Returns the beginning of [`text`], at most 4 KiB of it.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 4 << 10;
    let mut text = text(bytes).trim().to_owned();
    if text.len() > MAX {
        text.truncate(text.floor_char_boundary(MAX));
        text.push_str(" ...");
    }
    text
}

/// Replaces what stands between `://` and the `@` of the same authority by `***`.
///
/// A user name alone can be a token, so it goes too; `ssh://git@` stays, it says nothing.
fn without_credentials(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        clean.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '\'' | '"' | '<' | '>' | '?'))
            .unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rfind('@') {
            Some(at) if &authority[..at] != "git" => {
                clean.push_str("***");
                clean.push_str(&authority[at..]);
            }
            _ => clean.push_str(authority),
        }
        rest = &after[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_gone() {
        for (raw, clean) in [
            ("To https://user:s3cret@example.org/r.git", "To https://***@example.org/r.git"),
            ("'https://ghp_token@github.com/a/b'", "'https://***@github.com/a/b'"),
            ("https://a:p@ss@host/x and ftp://b:c@host", "https://***@host/x and ftp://***@host"),
            ("ssh://git@host/r.git", "ssh://git@host/r.git"),
            ("ssh://git:pw@host/r.git", "ssh://***@host/r.git"),
            ("https://host/a@b", "https://host/a@b"),
            ("git@github.com:a/b.git://", "git@github.com:a/b.git://"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(raw), clean);
        }
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(
            text(b"a\x1b]0;title\x07b\r\nc\rd\xff"),
            "a\u{fffd}]0;title\u{fffd}b\nc\nd\u{fffd}"
        );
        assert_eq!(line(b" one\n\ttwo "), "one  two");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "\u{e9}".repeat(4096);
        let cut = excerpt(long.as_bytes());
        assert!(cut.len() <= (4 << 10) + 4 && cut.ends_with(" ..."), "{}", cut.len());
    }
}
