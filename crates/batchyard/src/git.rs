//! The `git` program, for what this program itself does beside the batches: what a run asks its
//! repository, and the scratch repositories of a demo.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::exit::Stop;

/// Runs `git` in a folder; no `GIT_*` variable of the caller reaches it.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    folder: PathBuf,
    /// A home folder in place of the user's, with a `.gitconfig` of its own.
    home: Option<PathBuf>,
}

impl Git {
    /// Returns a runner in `folder` with the user's own settings.
    pub(crate) fn at(folder: impl Into<PathBuf>) -> Git {
        Git { folder: folder.into(), home: None }
    }

    /// Takes the settings from `home/.gitconfig` only.
    pub(crate) fn with_home(mut self, home: impl Into<PathBuf>) -> Git {
        self.home = Some(home.into());
        self
    }

    /// Returns the same runner in another folder.
    pub(crate) fn in_folder(&self, folder: impl Into<PathBuf>) -> Git {
        Git { folder: folder.into(), ..self.clone() }
    }

    /// Runs git and returns what it printed, without the last line end.
    ///
    /// # Errors
    ///
    /// What git said on stderr, after the subcommand.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, String> {
        let printed = self.bytes(args)?;
        Ok(String::from_utf8_lossy(&printed).trim_end_matches('\n').to_owned())
    }

    /// Runs git and returns the path that it printed, also one that is not text.
    ///
    /// # Errors
    ///
    /// As [`run`](Git::run).
    pub(crate) fn path<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<PathBuf, String> {
        let mut printed = self.bytes(args)?;
        printed.pop_if(|last| *last == b'\n');
        Ok(PathBuf::from(OsString::from_vec(printed)))
    }

    fn bytes<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Vec<u8>, String> {
        let mut command = Command::new("git");
        for (key, _) in std::env::vars_os() {
            if key.as_encoded_bytes().starts_with(b"GIT_") {
                command.env_remove(key);
            }
        }
        command.current_dir(&self.folder).env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        if let Some(home) = &self.home {
            command
                .env("HOME", home)
                .env("XDG_CONFIG_HOME", home)
                .env("GIT_CONFIG_GLOBAL", home.join(".gitconfig"))
                .env("GIT_CONFIG_NOSYSTEM", "1");
        }
        let args: Vec<S> = args.into_iter().collect();
        let output = command
            .args(&args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let name = args.first().map(|arg| arg.as_ref().to_string_lossy()).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("git {name} failed ({}): {}", output.status, said.trim()))
    }
}

/// Resolves a path so that it can be handed to a program that runs in another folder.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Stop> {
    std::path::absolute(path)
        .map_err(|error| Stop::refused(format_args!("cannot resolve {}: {error}", path.display())))
}
