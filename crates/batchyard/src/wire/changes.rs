//! One change of a path, as operations and answers write it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use git_batch::{Action, Change, Mode, ObjectId};

use crate::json::{Fault, Object};

/// What is wrong with one operation: it fails alone, the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpFault {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// A change whose shape is right; its values may still be at fault.
pub(crate) type Parsed = Result<Change, OpFault>;

/// Reads the keys `path`, `content`, `content_base64`, `delete`, `from`, `mode`, `oid`, `expect`.
///
/// # Errors
///
/// The shape is wrong: unknown keys, wrong types, base64 that is none, no action or two of them.
pub(crate) fn parse(mut object: Object<'_>) -> Result<Parsed, Fault> {
    let path: String = object.required("path")?;
    let content: Option<String> = object.optional("content")?;
    let encoded: Option<String> = object.optional("content_base64")?;
    let delete: Option<bool> = object.optional("delete")?;
    let from: Option<String> = object.optional("from")?;
    let mode: Option<String> = object.optional("mode")?;
    let oid: Option<String> = object.optional("oid")?;
    let expect: Option<String> = object.optional("expect")?;
    let named: Vec<&str> = [
        ("content", content.is_some()),
        ("content_base64", encoded.is_some()),
        ("delete", delete == Some(true)),
        ("from", from.is_some()),
        ("oid", oid.is_some()),
    ]
    .into_iter()
    .filter_map(|(key, there)| there.then_some(key))
    .collect();
    match named.as_slice() {
        [_] => {}
        [] => {
            let what = "needs one of content, content_base64, delete, from, oid";
            return Err(object.fault("path", &format!("the change of {path:?} {what}")));
        }
        [first, second, ..] => {
            return Err(object.fault(second, &format!("excludes \"{first}\"")));
        }
    }
    if mode.is_some() && (delete == Some(true) || from.is_some()) {
        return Err(object.fault("mode", "belongs to content, content_base64 or oid only"));
    }
    let content = match (content, encoded) {
        (None, Some(text)) => Some(STANDARD.decode(&text).map_err(|error| {
            object.fault("content_base64", &format!("is not base64 (RFC 4648, padded): {error}"))
        })?),
        (content, _) => content.map(String::into_bytes),
    };
    object.finish()?;
    Ok(change(&path, content, from, mode.as_deref(), oid.as_deref(), expect.as_deref()))
}

fn change(
    path: &str,
    content: Option<Vec<u8>>,
    from: Option<String>,
    mode: Option<&str>,
    oid: Option<&str>,
    expect: Option<&str>,
) -> Parsed {
    let mode = mode.map_or(Ok(Mode::File), |mode| parse_mode(mode, path))?;
    let action = match (content, from, oid) {
        (Some(content), ..) => Action::Write { content, mode },
        (_, Some(from), _) => Action::Copy { from: from.into() },
        (_, _, Some(oid)) => Action::Object { oid: parse_oid(oid, "oid", path)?, mode },
        _ => Action::Delete,
    };
    let mut change = Change::new(path, action);
    if let Some(expect) = expect {
        change.expect = Some(parse_oid(expect, "expect", path)?);
    }
    Ok(change)
}

/// Parses the mode of a tree entry.
pub(crate) fn parse_mode(mode: &str, path: &str) -> Result<Mode, OpFault> {
    match mode {
        "100644" => Ok(Mode::File),
        "100755" => Ok(Mode::Executable),
        "120000" => Ok(Mode::Symlink),
        "160000" => Ok(Mode::Submodule),
        _ => Err(OpFault {
            kind: "invalid_change",
            message: format!(
                "{path:?}: unknown mode {mode:?}; git knows 100644, 100755, 120000 and 160000"
            ),
        }),
    }
}

fn parse_oid(text: &str, key: &str, path: &str) -> Result<ObjectId, OpFault> {
    ObjectId::from_hex(text.as_bytes()).map_err(|_| OpFault {
        kind: "invalid_change",
        message: format!("{path:?}: \"{key}\" {text:?} is no object id; give all its hex digits"),
    })
}
