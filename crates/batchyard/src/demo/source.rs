//! What the scratch remote begins with: the commits of a checkout, or else its files.

use std::fs;
use std::io;
use std::path::Path;

use crate::exit::Stop;
use crate::git::Git;
use crate::output::Output;

/// Bounds for the repository that is made of files: it is a stand-in, not a backup.
const MAX_FILES: usize = 2_000;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Makes `root/remote.git` with the branch `base` at the current commit of `source`.
///
/// Any checkout will do: a linked worktree, a detached head, a shallow clone, one that belongs to
/// another user. Only commits are taken, never what is uncommitted. Where there are none, or they
/// cannot be read, the files of `source` become the first commit.
pub(super) fn fill(
    git: &Git,
    root: &Path,
    source: &Path,
    base: &str,
    output: &Output,
) -> Result<(), Stop> {
    let unusable = |error: io::Error| {
        Stop::refused(format_args!("the source {} cannot be opened: {error}", source.display()))
    };
    let source = fs::canonicalize(source).map_err(unusable)?;
    if !fs::metadata(&source).map_err(unusable)?.is_dir() {
        return Err(Stop::refused(format_args!("the source {} is no folder", source.display())));
    }
    if source.join(".git").exists() {
        match fetch(git, root, &source, base) {
            Ok(()) => return Ok(()),
            Err(why) => output.note(format!(
                "note: the commits of {} cannot be used ({why}); using its files",
                source.display()
            )),
        }
    } else {
        output.detail(format!("{} is no git repository; using its files", source.display()));
    }
    let seed = root.join("seed");
    let made =
        seed_from_files(git, &source, &seed, base).and_then(|()| fetch(git, root, &seed, base));
    made.map_err(|why| Stop::refused(format_args!("cannot make the scratch remote: {why}")))
}

fn fetch(git: &Git, root: &Path, source: &Path, base: &str) -> Result<(), String> {
    let remote = root.join("remote.git");
    super::remove(&remote).map_err(|error| error.to_string())?;
    let object_format = git.in_folder(source).run(["rev-parse", "--show-object-format"])?;
    let object_format = format!("--object-format={object_format}");
    let initial = format!("--initial-branch={base}");
    git.run(["init", "--quiet", "--bare", "--template=", &object_format, &initial, "remote.git"])?;
    let there = git.in_folder(&remote);
    // A reflog of the remote shows afterwards what one push did.
    there.run(["config", "core.logAllRefUpdates", "true"])?;
    super::without_hooks(&there, root)?;
    let refspec = format!("HEAD:refs/heads/{base}");
    let source = source.as_os_str();
    let args = ["fetch", "--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--"];
    let args = args.iter().map(AsRef::as_ref).chain([source, refspec.as_ref()]);
    there.run(args)?;
    Ok(())
}

fn seed_from_files(git: &Git, source: &Path, seed: &Path, base: &str) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    super::remove(seed).map_err(text)?;
    fs::create_dir_all(seed).map_err(text)?;
    let mut left = MAX_FILES;
    copy_tree(source, seed, &mut left).map_err(text)?;
    if left == MAX_FILES {
        fs::write(seed.join("README.md"), "# A scratch repository\n").map_err(text)?;
    }
    let git = git.in_folder(seed);
    git.run(["init", "--quiet", "--template=", &format!("--initial-branch={base}")])?;
    git.run(["add", "--all"])?;
    git.run(["commit", "--quiet", "--message", "Begin with the files of the project"])?;
    Ok(())
}

/// Copies regular files, smallest folders first; leaves out git's own folders, build output and
/// whatever is over the bounds.
fn copy_tree(from: &Path, to: &Path, left: &mut usize) -> io::Result<()> {
    let mut entries = fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = name == "target"
                || name.as_encoded_bytes().starts_with(b".git")
                || path.join("CACHEDIR.TAG").exists();
            if !skipped && *left > 0 {
                let folder = to.join(&name);
                fs::create_dir_all(&folder)?;
                copy_tree(&path, &folder, left)?;
            }
        } else if kind.is_file() && *left > 0 && entry.metadata()?.len() <= MAX_FILE_BYTES {
            // A file that cannot be read is not worth the demo.
            if fs::copy(&path, to.join(&name)).is_ok() {
                *left -= 1;
            }
        }
    }
    Ok(())
}
