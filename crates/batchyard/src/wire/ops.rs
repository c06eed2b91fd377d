//! OPS.jsonl: commits, merges and pushes.

use std::collections::HashMap;

use git_batch::{
    Action, Author, Change, Commit, Merge, Mode, Operation, OperationKind, Push, Strategy, Worktree,
};
use serde_json::{Value, json};

use super::changes::{self, OpFault};
use super::{read_lines, take_id};
use crate::exit::Stop;
use crate::input::Input;
use crate::json::{Fault, Object};
use crate::suggest;

/// One operation of the input.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) id: String,
    /// Ids of operations that must succeed first.
    pub(crate) after: Vec<String>,
    /// All operations of a group are done, or none is.
    pub(crate) group: Option<String>,
    /// What to do, or what is wrong with this operation alone.
    pub(crate) kind: Result<OperationKind, OpFault>,
}

impl Op {
    /// Returns whether the operation asks for a push.
    pub(crate) fn is_push(&self) -> bool {
        matches!(self.kind, Ok(OperationKind::Push(_)))
    }
}

/// Reads operations and checks all of them.
pub(crate) fn read(input: &Input) -> Result<Vec<Op>, Stop> {
    read_lines(input, parse, |op| &op.id)
}

fn parse(line: &str) -> Result<Op, Fault> {
    let mut object = Object::parse(line)?;
    let id = take_id(&mut object)?;
    let op: String = object.required("op")?;
    let after: Vec<String> = object.optional("after")?.unwrap_or_default();
    let group: Option<String> = object.optional("group")?;
    let kind = match op.as_str() {
        "commit" => commit(&mut object)?,
        "merge" => merge(&mut object)?,
        "push" => Ok(OperationKind::Push(Push { branch: object.required("branch")? })),
        other => {
            let hint = suggest::hint(other, &["commit", "merge", "push"]);
            return Err(object.fault("op", &format!("unknown operation {other:?}{hint}")));
        }
    };
    object.finish()?;
    Ok(Op { id, after, group, kind })
}

fn commit(object: &mut Object<'_>) -> Result<Result<OperationKind, OpFault>, Fault> {
    let branch: String = object.required("branch")?;
    let base: Option<String> = object.optional("base")?;
    let message: String = object.required("message")?;
    let author = match object.object("author")? {
        Some(mut author) => {
            let name: String = author.required("name")?;
            let email: String = author.required("email")?;
            author.finish()?;
            Some(Author::new(name, email))
        }
        None => None,
    };
    let mut commit = Commit::new(branch, message);
    (commit.base, commit.author) = (base, author);
    commit.worktree = worktree(object)?;
    let items = match (object.objects("changes")?, &commit.worktree) {
        (Some(items), None) => items,
        (None, Some(_)) => Vec::new(),
        (Some(_), Some(_)) => return Err(object.fault("worktree", "excludes \"changes\"")),
        (None, None) => {
            return Err(object.fault("changes", "is missing; give changes or a worktree"));
        }
    };
    // The shape of every change is checked before the fault of one of them counts.
    let parsed = items.into_iter().map(changes::parse).collect::<Result<Vec<_>, _>>()?;
    let changes = parsed.into_iter().collect::<Result<Vec<_>, _>>();
    Ok(changes.map(|changes| OperationKind::Commit(Commit { changes, ..commit })))
}

/// Reads the keys `worktree`, `files` and `all`.
fn worktree(object: &mut Object<'_>) -> Result<Option<Worktree>, Fault> {
    let dir: Option<String> = object.optional("worktree")?;
    let files: Option<Vec<String>> = object.optional("files")?;
    let all: Option<bool> = object.optional("all")?;
    let Some(dir) = dir else {
        let stray = [("files", files.is_some()), ("all", all.is_some())];
        return match stray.into_iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err(object.fault(key, "belongs to a worktree only")),
            None => Ok(None),
        };
    };
    match (files, all.unwrap_or_default()) {
        (Some(files), false) => Ok(Some(Worktree::files(dir, files))),
        (None, true) => Ok(Some(Worktree::all(dir))),
        (Some(_), true) => Err(object.fault("all", "excludes \"files\"")),
        (None, false) => Err(object.fault("worktree", "needs \"files\" or \"all\":true")),
    }
}

fn merge(object: &mut Object<'_>) -> Result<Result<OperationKind, OpFault>, Fault> {
    let source: String = object.required("source")?;
    let into: String = object.required("into")?;
    let message: Option<String> = object.optional("message")?;
    let strategy = match object.optional::<String>("strategy")? {
        Some(name) => strategy(&name).map_err(|what| object.fault("strategy", &what))?,
        None => Strategy::default(),
    };
    let message = message.map(Into::into);
    Ok(Ok(OperationKind::Merge(Merge { source, into, strategy, message })))
}

fn strategy(name: &str) -> Result<Strategy, String> {
    match name {
        "merge" => Ok(Strategy::Merge),
        "squash" => Ok(Strategy::Squash),
        "fast-forward" => Ok(Strategy::FastForward),
        other => {
            let hint = suggest::hint(other, &["merge", "squash", "fast-forward"]);
            Err(format!("unknown strategy {other:?}{hint}"))
        }
    }
}

/// Splits the input: what git can be asked for, and what fails or is skipped before that.
///
/// An operation that needs a faulty one is skipped, at any depth, and so is one that shares a group
/// with it.
pub(crate) fn split(ops: Vec<Op>) -> (Vec<Operation>, HashMap<String, Refusal>) {
    let mut refused: HashMap<String, Refusal> = HashMap::new();
    for op in &ops {
        if let Err(fault) = &op.kind {
            refused.insert(op.id.clone(), Refusal::Fault(fault.clone()));
        }
    }
    loop {
        let mut grown = false;
        let groups: HashMap<&str, &String> = ops
            .iter()
            .filter(|op| refused.contains_key(&op.id))
            .filter_map(|op| Some((op.group.as_deref()?, &op.id)))
            .collect();
        for op in &ops {
            if refused.contains_key(&op.id) {
                continue;
            }
            let group = op.group.as_deref().and_then(|group| groups.get(group)).copied();
            if let Some(because) = op.after.iter().chain(group).find(|id| refused.contains_key(*id))
            {
                refused.insert(op.id.clone(), Refusal::Skipped(because.clone()));
                grown = true;
            }
        }
        if !grown {
            break;
        }
    }
    let operations = ops
        .into_iter()
        .filter(|op| !refused.contains_key(&op.id))
        .filter_map(|op| {
            let kind = op.kind.ok()?;
            let mut operation = Operation::new(op.id, kind);
            (operation.after, operation.group) = (op.after, op.group);
            Some(operation)
        })
        .collect();
    (operations, refused)
}

/// Why an operation never got as far as git.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    Fault(OpFault),
    Skipped(String),
}

/// Returns an operation that the program made as one object of the input.
pub(crate) fn to_json(operation: &Operation) -> Value {
    let mut value = match &operation.kind {
        OperationKind::Commit(commit) => json!({
            "id": operation.id,
            "op": "commit",
            "branch": commit.branch,
            "base": commit.base,
            "message": commit.message.to_string(),
            "changes": commit.changes.iter().map(change).collect::<Vec<_>>(),
        }),
        OperationKind::Merge(merge) => json!({
            "id": operation.id,
            "op": "merge",
            "source": merge.source,
            "into": merge.into,
        }),
        OperationKind::Push(push) => {
            json!({ "id": operation.id, "op": "push", "branch": push.branch })
        }
        other => json!({ "id": operation.id, "op": format!("{other:?}") }),
    };
    if !operation.after.is_empty() {
        value["after"] = json!(operation.after);
    }
    if let Some(group) = &operation.group {
        value["group"] = json!(group);
    }
    value
}

/// Returns an operation that the program made in one line for people.
pub(crate) fn describe(operation: &Operation) -> String {
    match &operation.kind {
        OperationKind::Commit(commit) => {
            let paths: Vec<String> =
                commit.changes.iter().map(|change| change.path.to_string()).collect();
            format!("commit  {}  {}", commit.branch, paths.join(", "))
        }
        OperationKind::Merge(merge) => format!("merge   {} into {}", merge.source, merge.into),
        OperationKind::Push(push) => format!("push    {}", push.branch),
        other => format!("{other:?}"),
    }
}

/// The changes of answers are texts and deletions.
fn change(change: &Change) -> Value {
    let path = change.path.to_string();
    match &change.action {
        Action::Write { content, mode } => {
            let content = String::from_utf8_lossy(content);
            let mode = match mode {
                Mode::Executable => "100755",
                Mode::Symlink => "120000",
                _ => "100644",
            };
            json!({ "path": path, "content": content, "mode": mode })
        }
        _ => json!({ "path": path, "delete": true }),
    }
}
