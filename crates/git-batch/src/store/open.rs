//! Opening a repository, deaf to the environment, and refusing what cannot be handled.

use std::path::{Path, PathBuf};

use gix::bstr::ByteSlice;
use gix::open::permissions::{Attributes, Config, Environment};
use gix::sec::Permission;

use super::Store;
use crate::OpenError;
use crate::outcome::causes;
use crate::publish::scrub;

impl Store {
    /// Opens the repository whose work tree or git directory is `dir`; reads only.
    pub(crate) fn open(dir: &Path) -> Result<Store, OpenError> {
        let repo = gix::open_opts(dir, options()).map_err(|error| OpenError::NotARepository {
            path: dir.to_owned(),
            reason: causes(&error),
        })?;
        let absolute = |path: &Path| -> Result<PathBuf, OpenError> {
            std::fs::canonicalize(path).map_err(|error| OpenError::NotARepository {
                path: path.to_owned(),
                reason: error.to_string(),
            })
        };
        let git_dir = absolute(repo.git_dir())?;
        let common_dir = absolute(repo.common_dir())?;
        let mut repo = repo.with_object_memory();
        repo.object_cache_size_if_unset(16 << 20);
        let store = Store {
            repo,
            git_dir,
            common_dir,
            fsyncs: 0,
            processes: 0,
            bytes: 0,
            merger: None,
            scratch: None,
        };
        store.refuse_unsupported(dir)?;
        Ok(store)
    }

    /// Checks that the remote is configured.
    pub(crate) fn check_remote(&self, dir: &Path, name: &str) -> Result<(), OpenError> {
        let config = self.repo.config_snapshot();
        let mut known = Vec::new();
        for section in config.plumbing().sections_by_name("remote").into_iter().flatten() {
            let Some(other) = section.header().subsection_name().map(|name| name.to_str_lossy())
            else {
                continue;
            };
            if other == name {
                return Ok(());
            }
            known.push(other.into_owned());
        }
        known.sort();
        known.dedup();
        // A URL is no name, but may well be given for one, with a password in it.
        let name = scrub::line(name.as_bytes());
        Err(OpenError::UnknownRemote { path: dir.to_owned(), name, known })
    }

    fn refuse_unsupported(&self, dir: &Path) -> Result<(), OpenError> {
        let refuse = |what: String| Err(OpenError::Unsupported { path: dir.to_owned(), what });
        let config = self.repo.config_snapshot();
        for section in config.plumbing().sections_by_name("extensions").into_iter().flatten() {
            for name in section.value_names() {
                let value = section.value(&name).unwrap_or_default();
                match name.to_ascii_lowercase().as_str() {
                    "noop" | "noop-v1" | "objectformat" | "preciousobjects" | "worktreeconfig"
                    | "relativeworktrees" => {}
                    "refstorage" if value.eq_ignore_ascii_case(b"files") => {}
                    "refstorage" => return refuse(format!("keeps its refs as {value:?}")),
                    "partialclone" => return refuse("is a partial clone".to_owned()),
                    other => return refuse(format!("uses the extension {other:?}")),
                }
            }
        }
        for section in config.plumbing().sections_by_name("remote").into_iter().flatten() {
            if section.value("promisor").is_some_and(|value| value.eq_ignore_ascii_case(b"true")) {
                return refuse("is a partial clone".to_owned());
            }
        }
        let hooks = match config.trusted_path("core.hooksPath") {
            // A relative path counts from where hooks run.
            Ok(Some(path)) => self.repo.workdir().unwrap_or(&self.git_dir).join(path),
            _ => self.common_dir.join("hooks"),
        };
        if is_executable(&hooks.join("reference-transaction")) {
            return refuse("has a reference-transaction hook".to_owned());
        }
        Ok(())
    }
}

/// The user's and the repository's own configuration count; `GIT_*` variables do not.
pub(super) fn options() -> gix::open::Options {
    let allow = Permission::Allow;
    let deny = Permission::Deny;
    let permissions = gix::open::Permissions {
        env: Environment {
            xdg_config_home: allow,
            home: allow,
            http_transport: deny,
            identity: deny,
            objects: deny,
            git_prefix: deny,
            other: allow,
            ssh_prefix: deny,
        },
        config: Config {
            git_binary: false,
            system: true,
            git: true,
            user: true,
            env: false,
            includes: true,
        },
        attributes: Attributes { git_binary: false, system: true, git: true },
    };
    gix::open::Options::default().permissions(permissions).bail_if_untrusted(true)
}

fn is_executable(path: &Path) -> bool {
    let Ok(data) = path.metadata() else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        data.is_file() && data.permissions().mode() & 0o111 != 0
    }
    #[cfg(not(unix))]
    data.is_file()
}
