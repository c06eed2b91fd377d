//! What tells one input from another.

use std::fmt;

use gix::ObjectId;
use gix::hash::{Kind, hasher};

use super::Wire;
use crate::{Action, Mode, Operation, OperationKind, Strategy};

/// The key of one batch: a digest of the whole input, or of the name that it was given, and the number
/// of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    digest: [u8; 32],
    part: usize,
}

impl Key {
    /// The key of an input that is known by its content. What it names without containing it does not
    /// count here, see [`References`](super::References).
    pub(crate) fn of_content(remote: &str, operations: &[&Operation]) -> Key {
        let mut bytes = b"content".to_vec();
        remote.to_owned().put(&mut bytes);
        operations.len().put(&mut bytes);
        for operation in operations {
            put(operation, &mut bytes);
        }
        Key::digest(&bytes)
    }

    /// The key of an input that its caller gave a name.
    pub(crate) fn of_name(remote: &str, name: &str) -> Key {
        let mut bytes = b"name".to_vec();
        remote.to_owned().put(&mut bytes);
        name.to_owned().put(&mut bytes);
        Key::digest(&bytes)
    }

    /// The key of what a command says of a tree.
    pub(crate) fn of_gate(command: &[Vec<u8>], tree: ObjectId) -> Key {
        let mut bytes = b"gate".to_vec();
        command.to_vec().put(&mut bytes);
        tree.put(&mut bytes);
        Key::digest(&bytes)
    }

    /// The key of one of the batches of the input.
    pub(crate) fn part(self, number: usize) -> Key {
        Key { part: number, ..self }
    }

    /// The key of the first one.
    pub(crate) fn input(self) -> Key {
        self.part(0)
    }

    /// A key that was never there.
    pub(crate) fn unique() -> Key {
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::time::{SystemTime, UNIX_EPOCH};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut bytes = now.as_nanos().to_be_bytes().to_vec();
        std::process::id().put(&mut bytes);
        COUNT.fetch_add(1, Ordering::Relaxed).put(&mut bytes);
        Key::digest(&bytes)
    }

    /// Reads the name of a file.
    pub(crate) fn from_name(name: &str) -> Option<Key> {
        let (hex, part) = name.split_once('-').unwrap_or((name, "0"));
        let id = gix::ObjectId::from_hex(hex.as_bytes()).ok()?;
        Some(Key { digest: id.as_bytes().try_into().ok()?, part: part.parse().ok()? })
    }

    fn digest(bytes: &[u8]) -> Key {
        let mut hasher = hasher(Kind::Sha256);
        hasher.update(bytes);
        let id = hasher.try_finalize().expect("only SHA-1 can be under attack");
        let mut digest = [0; 32];
        digest.copy_from_slice(id.as_bytes());
        Key { digest, part: 0 }
    }
}

/// The name of its file.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if self.part > 0 { write!(f, "-{}", self.part) } else { Ok(()) }
    }
}

fn put(operation: &Operation, out: &mut Vec<u8>) {
    operation.id.put(out);
    operation.after.put(out);
    operation.group.put(out);
    match &operation.kind {
        OperationKind::Commit(commit) => {
            out.push(0);
            commit.branch.put(out);
            commit.base.put(out);
            commit.message.put(out);
            commit.author.as_ref().map(|who| (who.name.clone(), who.email.clone())).put(out);
            commit.changes.len().put(out);
            for change in &commit.changes {
                change.path.put(out);
                change.expect.put(out);
                put_action(&change.action, out);
            }
            commit.worktree.as_ref().map(|from| (from.dir.clone(), from.files.clone())).put(out);
        }
        OperationKind::Merge(merge) => {
            out.push(1);
            merge.source.put(out);
            merge.into.put(out);
            merge.message.put(out);
            out.push(match merge.strategy {
                Strategy::Merge => 0,
                Strategy::Squash => 1,
                Strategy::FastForward => 2,
                Strategy::Rebase => 3,
            });
        }
        OperationKind::Push(push) => {
            out.push(2);
            push.branch.put(out);
        }
    }
}

fn put_action(action: &Action, out: &mut Vec<u8>) {
    match action {
        Action::Write { content, mode } => {
            out.push(0);
            content.len().put(out);
            out.extend_from_slice(content);
            put_mode(*mode, out);
        }
        Action::Delete => out.push(1),
        Action::Object { oid, mode } => {
            out.push(2);
            oid.put(out);
            put_mode(*mode, out);
        }
        Action::Copy { from } => {
            out.push(3);
            from.put(out);
        }
    }
}

fn put_mode(mode: Mode, out: &mut Vec<u8>) {
    out.push(match mode {
        Mode::File => 0,
        Mode::Executable => 1,
        Mode::Symlink => 2,
        Mode::Submodule => 3,
    });
}
