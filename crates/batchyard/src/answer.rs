//! From the text of an answer to file changes.

use std::collections::HashSet;

use git_batch::{Action, Change, Mode};

use crate::json::{Fault, Object};
use crate::plan::Allow;
use crate::wire::changes::parse_mode;

/// What a usable answer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) changes: Vec<Change>,
    /// The commit message that the model wrote, if it wrote one.
    pub(crate) message: Option<String>,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The text holds no answer of the agreed shape.
    Shape(String),
    /// The answer writes a path that the plan does not allow.
    Path(String),
}

/// Reads an answer: the text is, or its last `json` fence holds, one object
/// `{"files":[{"path","content"|"delete","mode"?}],"message"?}`.
pub(crate) fn read(text: &str, allow: &Allow) -> Result<Edit, Unusable> {
    let body = object_in(text)?;
    let mut object = Object::parse(body).map_err(shape)?;
    let message: Option<String> = object.optional("message").map_err(shape)?;
    let Some(files) = object.objects("files").map_err(shape)? else {
        return Err(shape(object.fault("files", "is missing")));
    };
    object.finish().map_err(shape)?;
    if files.is_empty() {
        return Err(Unusable::Shape("\"files\" is empty".to_owned()));
    }
    let mut changes: Vec<Change> = Vec::with_capacity(files.len());
    let mut paths = HashSet::new();
    for file in files {
        let change = read_file(file, allow)?;
        if !paths.insert(change.path.clone()) {
            return Err(Unusable::Shape(format!("the path \"{}\" stands twice", change.path)));
        }
        changes.push(change);
    }
    Ok(Edit { changes, message: message.filter(|message| !message.trim().is_empty()) })
}

fn read_file(mut file: Object<'_>, allow: &Allow) -> Result<Change, Unusable> {
    let path: String = file.required("path").map_err(shape)?;
    let content: Option<String> = file.optional("content").map_err(shape)?;
    let delete: Option<bool> = file.optional("delete").map_err(shape)?;
    let mode: Option<String> = file.optional("mode").map_err(shape)?;
    let action = match (content, delete.unwrap_or(false)) {
        (Some(content), false) => {
            let mode = match mode.as_deref().map(|mode| parse_mode(mode, &path)) {
                None => Mode::File,
                Some(Ok(Mode::Submodule)) => {
                    return Err(shape(file.fault("mode", "a file cannot be a submodule")));
                }
                Some(Ok(mode)) => mode,
                Some(Err(fault)) => return Err(Unusable::Shape(fault.message)),
            };
            Action::Write { content: content.into_bytes(), mode }
        }
        (None, true) if mode.is_none() => Action::Delete,
        (None, true) => return Err(shape(file.fault("mode", "belongs to content only"))),
        (Some(_), true) => return Err(shape(file.fault("delete", "excludes \"content\""))),
        (None, false) => return Err(shape(file.fault("content", "is missing"))),
    };
    file.finish().map_err(shape)?;
    let symlink = matches!(action, Action::Write { mode: Mode::Symlink, .. });
    match allow.refuses(&path, symlink) {
        Some(why) => Err(Unusable::Path(why)),
        None => Ok(Change::new(path, action)),
    }
}

/// Finds the object: the whole text, or the last `json` fence in it.
fn object_in(text: &str) -> Result<&str, Unusable> {
    let whole = text.trim();
    if whole.starts_with('{') {
        return Ok(whole);
    }
    let mut last = None;
    let mut open: Option<(usize, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim();
        let ticks = trimmed.len() - trimmed.trim_start_matches('`').len();
        if ticks < 3 {
            continue;
        }
        match open {
            // An inner fence with a name of its own does not close the outer one.
            Some((fence, from)) if ticks >= fence && ticks == trimmed.len() => {
                last = (from != usize::MAX).then(|| &text[from..start]).or(last);
                open = None;
            }
            Some(_) => {}
            None => {
                let is_json = trimmed[ticks..].trim().eq_ignore_ascii_case("json");
                open = Some((ticks, if is_json { at } else { usize::MAX }));
            }
        }
    }
    match (last, open) {
        (_, Some((_, from))) if from != usize::MAX => {
            Err(Unusable::Shape("the json fence is not closed; the answer is cut short".to_owned()))
        }
        (Some(body), _) => Ok(body.trim()),
        (None, _) => {
            Err(Unusable::Shape("the answer has neither a JSON object nor a json fence".to_owned()))
        }
    }
}

fn shape(fault: Fault) -> Unusable {
    Unusable::Shape(fault.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<Edit, Unusable> {
        read(text, &Allow::default())
    }

    fn why(text: &str) -> String {
        match read_all(text) {
            Err(Unusable::Shape(why) | Unusable::Path(why)) => why,
            Ok(edit) => panic!("usable: {edit:?}"),
        }
    }

    #[test]
    fn a_bare_object_is_usable() {
        let edit = read_all(r#" {"files":[{"path":"a","content":"x"}],"message":"Add a"} "#);
        let edit = edit.expect("it is usable");
        assert_eq!(edit.message.as_deref(), Some("Add a"));
        assert_eq!(edit.changes.len(), 1);
        assert_eq!(edit.changes[0].path, "a");
    }

    #[test]
    fn the_last_json_fence_counts() {
        let text = "First:\n```json\n{\"files\":[]}\n```\nthen\n```rust\nfn main() {}\n```\n\
                    better:\n````JSON\n{\"files\":[{\"path\":\"b\",\"delete\":true}]}\n````\nDone.";
        let edit = read_all(text).expect("it is usable");
        assert_eq!(edit.changes[0].action, Action::Delete);
    }

    #[test]
    fn what_is_not_agreed_is_not_usable() {
        assert!(why("I could not do it.").contains("neither"));
        assert!(why("```json\n{\"files\":[").contains("cut short"));
        assert!(why("{\"files\":[]}").contains("empty"));
        assert!(why("{\"file\":[]}").contains("\"files\": is missing"));
        assert!(why(r#"{"files":[{"path":"a"}]}"#).contains("\"files[0].content\": is missing"));
        assert!(why(r#"{"files":[{"path":"a","content":"","delete":true}]}"#).contains("excludes"));
        let twice = r#"{"files":[{"path":"a","content":"1"},{"path":"a","content":"2"}]}"#;
        assert!(why(twice).contains("twice"));
        let mode = r#"{"files":[{"path":"a","content":"","mode":"100600"}]}"#;
        assert!(why(mode).contains("unknown mode"));
        let guarded = r#"{"files":[{"path":".github/workflows/x.yml","content":""}]}"#;
        assert!(why(guarded).contains("guarded"));
    }
}
