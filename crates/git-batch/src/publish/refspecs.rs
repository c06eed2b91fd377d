//! What a push names: on the command line, or in a file where that is too short.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::PathBuf;

use super::RefUpdate;
use super::remote::Untracked;

/// How many bytes of arguments one push may have: below what every platform allows, with room
/// for the environment.
pub(crate) const MAX_ARGUMENTS: usize = if cfg!(windows) { 24 << 10 } else { 512 << 10 };

/// The arguments of one push behind its options.
#[derive(Debug, Default)]
pub(super) struct Refspecs {
    /// Before `push`.
    pub(super) settings: Vec<OsString>,
    /// Behind the options of `push`.
    pub(super) arguments: Vec<OsString>,
    /// Removed when the push is over.
    _file: Option<Removed>,
}

#[derive(Debug)]
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Refspecs {
    /// Names each update with a lease, if that fits on a command line. If not, a file of settings names
    /// them, which knows no leases: git then refuses what is no fast-forward of what the remote has at
    /// that moment, so nothing is lost either.
    pub(super) fn of(updates: &[&RefUpdate], remote: &Untracked) -> io::Result<Refspecs> {
        let mut leases: Vec<OsString> = Vec::new();
        let mut refspecs: Vec<OsString> = Vec::new();
        let mut bytes = 0;
        for RefUpdate { name, expect, new } in updates {
            let expect = expect.map(|id| id.to_string()).unwrap_or_default();
            let lease = format!("--force-with-lease={name}:{expect}");
            let refspec = format!("{new}:{name}");
            bytes += lease.len() + refspec.len() + 2;
            leases.push(lease.into());
            refspecs.push(refspec.into());
        }
        if bytes > MAX_ARGUMENTS {
            return Refspecs::in_file(updates, remote);
        }
        let mut arguments = leases;
        arguments.extend(["--".into(), remote.name.clone().into()]);
        arguments.append(&mut refspecs);
        Ok(Refspecs { arguments, ..Refspecs::default() })
    }

    fn in_file(updates: &[&RefUpdate], remote: &Untracked) -> io::Result<Refspecs> {
        let (name, mut settings) = remote.named();
        let mut text = format!("[remote \"{name}\"]\n").into_bytes();
        for RefUpdate { name, new, .. } in updates {
            text.extend_from_slice(format!("\tpush = \"{new}:").as_bytes());
            for &byte in name.iter() {
                if matches!(byte, b'"' | b'\\') {
                    text.push(b'\\');
                }
                text.push(byte);
            }
            text.extend_from_slice(b"\"\n");
        }
        let number = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("batchyard-push-{number:016x}"));
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        let file_name = Removed(path);
        file.write_all(&text)?;
        let mut include = OsString::from("include.path=");
        include.push(std::path::absolute(&file_name.0)?);
        settings.extend(["-c".into(), include]);
        let arguments = vec!["--".into(), name.into()];
        Ok(Refspecs { settings, arguments, _file: Some(file_name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_over_where_the_command_line_ends() {
        let new = gix::ObjectId::null(gix::hash::Kind::Sha1);
        let updates = |count: usize| -> Vec<RefUpdate> {
            (0..count)
                .map(|n| RefUpdate { name: format!("refs/heads/\"{n}").into(), expect: None, new })
                .collect()
        };
        let remote = Untracked::from_settings("/srv/r.git", b"remote.origin.url\nx\0");
        let few = updates(10);
        let refspecs =
            Refspecs::of(&few.iter().collect::<Vec<_>>(), &remote).expect("no file is needed");
        assert!(refspecs.settings.is_empty());
        assert_eq!(refspecs.arguments.len(), 2 * 10 + 2);
        let many = updates(10_000);
        let refspecs =
            Refspecs::of(&many.iter().collect::<Vec<_>>(), &remote).expect("a file can be written");
        assert_eq!(refspecs.arguments, ["--", "batchyard"]);
        assert_eq!(refspecs.settings[1], "remote.batchyard.url=/srv/r.git");
        let path =
            refspecs.settings[3].to_str().and_then(|text| text.strip_prefix("include.path="));
        let path = PathBuf::from(path.expect("a path"));
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.contains(&format!("\tpush = \"{new}:refs/heads/\\\"9999\"\n")));
        drop(refspecs);
        assert!(!path.exists());
    }
}
