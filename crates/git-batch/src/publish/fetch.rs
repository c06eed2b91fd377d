//! Fetches into refs of our own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bstr::{BString, ByteSlice};
use gix::ObjectId;

use super::remote::{check_remote, is_full_name};
use super::{PublishError, scrub};
use crate::program::Git;

/// Where fetched refs are kept.
const FETCHED: &str = "refs/batchyard/fetched";
/// And for how long, at least.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Fetches `refs` (full names) of `remote` and returns what they are there, in the order given.
///
/// They land in `refs/batchyard/fetched/`, under names that are made from those of the remote and
/// the ref, replace what an earlier fetch left there, and are removed by a batch a week later. Writes
/// neither `FETCH_HEAD` nor `refs/remotes` nor tags, and no reflog. Two processes, one round trip;
/// blocks up to the time limit of `git`.
///
/// # Errors
/// The remote cannot be reached or lacks one of the refs; then no ref has moved.
pub fn fetch(
    git: &Git,
    remote: &str,
    refs: &[BString],
) -> Result<Vec<(BString, ObjectId)>, PublishError> {
    check_remote(remote)?;
    if refs.is_empty() {
        return Ok(Vec::new());
    }
    let mut refspecs = Vec::new();
    for name in refs {
        if !is_full_name(name.as_ref()) {
            return Err(PublishError::BadName { what: "ref", name: name.to_string() });
        }
        refspecs.extend_from_slice(b"+");
        refspecs.extend_from_slice(name);
        refspecs.extend_from_slice(format!(":{}\n", private_name(remote, name)).as_bytes());
    }

    let mut command = git.command();
    // A ref that nobody reads by name needs no history.
    command.args(["-c", "core.logAllRefUpdates=false"]);
    if !remote.contains(['=', ':', '/']) {
        // Newer versions of git move `refs/remotes/<name>/HEAD` along.
        command.args(["-c", &format!("remote.{remote}.followRemoteHEAD=never")]);
    }
    command.args(["fetch", "--quiet", "--atomic", "--no-write-fetch-head", "--refmap="]);
    command.args(["--no-tags", "--no-prune", "--no-prune-tags", "--no-recurse-submodules"]);
    command.args(["--no-auto-maintenance", "--no-write-commit-graph", "--no-show-forced-updates"]);
    command.args(["--stdin", "--", remote]);
    let output = git.finish(command, Some(&refspecs))?;
    if !output.is_success() {
        return Err(missing_ref(remote, &output.stderr)
            .unwrap_or_else(|| PublishError::failed("fetch from", remote, &output)));
    }

    // Git reads them wherever it keeps them.
    let mut args = vec!["for-each-ref".to_owned(), "--format=%(refname) %(objectname)".to_owned()];
    args.extend(refs.iter().map(|name| private_name(remote, name)));
    let output = git.run(args, None)?;
    let found: BTreeMap<&[u8], ObjectId> = output
        .stdout
        .lines()
        .filter_map(|line| line.split_once_str(" "))
        .filter_map(|(name, id)| Some((name, ObjectId::from_hex(id).ok()?)))
        .collect();
    refs.iter()
        .map(|name| match found.get(private_name(remote, name).as_bytes()) {
            Some(id) => Ok((name.clone(), *id)),
            None => Err(PublishError::MissingRef {
                remote: scrub::line(remote.as_bytes()),
                name: name.to_string(),
            }),
        })
        .collect()
}

/// Removes what was fetched more than a week ago: what came of it is on branches by now, and all else
/// would be kept from `git gc` for ever. One process if there is any; refs that are no files stay. Returns how
/// many processes it took.
pub(crate) fn forget(git: &Git, common_dir: &Path) -> u32 {
    let mut old = Vec::new();
    for entry in std::fs::read_dir(common_dir.join(FETCHED)).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|data| data.modified());
        let is_old = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MAX_AGE));
        if let Some(name) = entry.file_name().to_str().filter(|_| is_old) {
            old.extend_from_slice(format!("delete {FETCHED}/{name}\n").as_bytes());
        }
    }
    if old.is_empty() {
        return 0;
    }
    // What cannot be removed now is tried again.
    let _ = git.run(["update-ref", "--no-deref", "--stdin"], Some(&old));
    1
}

/// Returns the ref in which `name` of `remote` is kept here.
///
/// A digest, because the names of one remote at two times can clash as folder and file, and two
/// names can differ by case alone.
fn private_name(remote: &str, name: &BString) -> String {
    let key = [remote.as_bytes(), b"\0", name].concat();
    let digest = gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, &key)
        .expect("short names are no attack on SHA-1");
    format!("{FETCHED}/{digest}")
}

fn missing_ref(remote: &str, stderr: &[u8]) -> Option<PublishError> {
    let said = scrub::text(stderr);
    let (_, name) = said.split_once("couldn't find remote ref ")?;
    let name = name.lines().next().unwrap_or_default().to_owned();
    Some(PublishError::MissingRef { remote: scrub::line(remote.as_bytes()), name })
}
