//! Opening a repository, deaf to the environment, and refusing what cannot be handled.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gix::bstr::{BString, ByteSlice};
use gix::open::permissions::{Attributes, Config, Environment};
use gix::sec::Permission;

use super::Store;
use super::executor::executor;
use crate::outcome::causes;
use crate::publish::scrub;
use crate::{ExecutorKind, OpenError};

impl Store {
    /// Opens the repository whose work tree or git directory is `dir`; reads only.
    pub(crate) fn open(dir: &Path, kind: ExecutorKind) -> Result<Store, OpenError> {
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
        let mut store = Store {
            repo,
            git_dir,
            common_dir,
            executor: executor(kind == ExecutorKind::GitProgram),
            git: None,
            promisor: None,
            own_attributes: OnceCell::new(),
            fsyncs: 0,
            names: BTreeSet::new(),
            unsynced: None,
            processes: Cell::new(0),
            bytes: 0,
            merger: None,
            lineage: None,
            scratch: None,
            has_scratch: false,
            is_unsigned: false,
            signed: RefCell::default(),
        };
        let needs_git = store.look_for_oddities(dir)?;
        if let Some(what) = needs_git {
            if kind == ExecutorKind::Gix {
                return Err(OpenError::Unsupported { path: dir.to_owned(), what });
            }
            store.executor = executor(true);
        }
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

    /// Refuses what nobody here can handle, and returns what only the git program can.
    fn look_for_oddities(&mut self, dir: &Path) -> Result<Option<String>, OpenError> {
        let refuse = |what: String| Err(OpenError::Unsupported { path: dir.to_owned(), what });
        let mut needs_git = None;
        let mut promisor = None;
        let config = self.repo.config_snapshot();
        for section in config.plumbing().sections_by_name("extensions").into_iter().flatten() {
            for name in section.value_names() {
                let value = section.value(&name).unwrap_or_default();
                match name.to_ascii_lowercase().as_str() {
                    "noop" | "noop-v1" | "objectformat" | "preciousobjects" | "worktreeconfig"
                    | "relativeworktrees" => {}
                    "refstorage" if value.eq_ignore_ascii_case(b"files") => {}
                    "refstorage" if value.eq_ignore_ascii_case(b"reftable") => {
                        needs_git = Some(format!("keeps its refs as {value:?}"));
                    }
                    "refstorage" => return refuse(format!("keeps its refs as {value:?}")),
                    "partialclone" => promisor = Some(value.to_str_lossy().into_owned()),
                    other => return refuse(format!("uses the extension {other:?}")),
                }
            }
        }
        for section in config.plumbing().sections_by_name("remote").into_iter().flatten() {
            let is_true = |value: BString| {
                gix::config::Boolean::try_from(value.as_bstr()).is_ok_and(|value| value.0)
            };
            if !section.value("promisor").is_some_and(is_true) {
                continue;
            }
            // Without trees or commits there is nothing to build on.
            let filter = section.value("partialclonefilter").unwrap_or_default();
            if !filter.is_empty() && !filter.starts_with(b"blob:") {
                return refuse(format!("is a partial clone that lacks more than blobs ({filter})"));
            }
            let name = section.header().subsection_name().map(|name| name.to_str_lossy());
            promisor = name.map(Cow::into_owned).or(promisor);
        }
        let hooks = match config.trusted_path("core.hooksPath") {
            // A relative path counts from where hooks run.
            Ok(Some(path)) => self.repo.workdir().unwrap_or(&self.git_dir).join(path),
            _ => self.common_dir.join("hooks"),
        };
        if is_executable(&hooks.join("reference-transaction")) {
            needs_git = Some("has a reference-transaction hook".to_owned());
        }
        self.promisor = promisor;
        Ok(needs_git)
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
