//! What a `.gitmodules` may say: what git refuses to fetch and to check out later.

use bstr::{BStr, ByteSlice};
use gix::config::file::Metadata;

/// Says what is wrong with the content of a `.gitmodules`, as `git fsck` would. What cannot be read as
/// settings is no fault: git ignores it.
pub(crate) fn fault(content: &[u8]) -> Option<String> {
    let options = gix::config::file::init::Options::default();
    let file = gix::config::File::from_bytes_no_includes(content, Metadata::api(), options).ok()?;
    for section in file.sections_by_name("submodule").into_iter().flatten() {
        let Some(name) = section.header().subsection_name() else { continue };
        if name.is_empty()
            || name.split(|byte| *byte == b'/' || *byte == b'\\').any(|part| part == b"..")
        {
            return Some(format!(
                "the submodule name {name:?} leads out of the folder of submodules"
            ));
        }
        // Each of several counts, whichever git would take.
        let value = |key, is_bad: fn(&BStr) -> bool| {
            section.values(key).into_iter().find(|value| is_bad(value.as_ref()))
        };
        for key in ["url", "path"] {
            if let Some(value) = value(key, |value| value.starts_with(b"-")) {
                return Some(format!(
                    "the {key} {value:?} of submodule {name:?} reads as an option"
                ));
            }
        }
        if let Some(url) = value("url", is_evil) {
            return Some(format!("the url {url:?} of submodule {name:?} holds more than one line"));
        }
        if let Some(update) = value("update", |value| value.starts_with(b"!")) {
            return Some(format!("submodule {name:?} is updated by a command, {update:?}"));
        }
    }
    None
}

/// Whether a credential helper could be asked for another host by it: a line end in it, also encoded, or
/// a relative one that leads to a host of its own.
fn is_evil(url: &BStr) -> bool {
    if url.contains(&b'\n') || url.to_ascii_lowercase().contains_str("%0a") {
        return true;
    }
    let mut rest = url.as_bytes();
    let is_relative = rest.starts_with(b"./") || rest.starts_with(b"../");
    while let Some(inner) = rest.strip_prefix(b"../").or_else(|| rest.strip_prefix(b"./")) {
        rest = inner;
    }
    is_relative && rest.starts_with(b":")
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn what_git_would_refuse_is_found() {
        let with = |more: &str| {
            fault(
                format!("[submodule \"a/b\"]\n\tpath = a/b\n\turl = ../b.git\n{more}\n").as_bytes(),
            )
        };
        assert_eq!(with(""), None);
        assert_eq!(fault(b"nonsense ["), None);
        for evil in [
            "[submodule \"x/../../y\"]\n\turl = u",
            "[submodule \"\"]\n\turl = u",
            "[submodule \"x\"]\n\turl = -u",
            "[submodule \"x\"]\n\turl = u\n\tpath = --all",
            "[submodule \"x\"]\n\turl = -u\n\turl = u",
            "[submodule \"x\"]\n\turl = https://h%0ahost=evil/x",
            "[submodule \"x\"]\n\turl = ../../:host/x",
            "[submodule \"x\"]\n\turl = u\n\tupdate = !run",
        ] {
            assert!(with(evil).is_some(), "{evil}");
        }
    }
}
