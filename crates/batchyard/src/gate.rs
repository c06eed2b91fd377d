//! The command that must succeed on a merged tree before it is pushed.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git_batch::Gate;

use crate::cli::{Session, duration};
use crate::exit::Stop;

/// Variables that no command sees which may run what a model wrote, whatever is asked for.
const SECRETS: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// The variables that a gate sees: where it is and how it builds. `*` stands for any end of a name.
const SEEN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "NO_COLOR",
    "CI",
    "LD_LIBRARY_PATH",
    "DYLD_*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST*",
    "CARGO_HOME",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_*",
    "CARGO_PROFILE_*",
    "CARGO_TERM_*",
    "GOPATH",
    "GOCACHE",
    "GOMODCACHE",
    "GOFLAGS",
    "GOROOT",
    "GOPROXY",
    "GRADLE_USER_HOME",
    "ANDROID_HOME",
    "JAVA_HOME",
    "NODE_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CC",
    "CXX",
    "AR",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "PKG_CONFIG_PATH",
    "LIBCLANG_PATH",
    "NIX_*",
    "XDG_*",
    "NO_PROXY",
];

/// What a command says of its gate.
#[derive(Debug, clap::Args)]
pub(crate) struct GateOptions {
    /// How long the gate may take for one tree
    #[arg(long, value_name = "D", value_parser = time_limit, default_value = "30m", requires = "gate")]
    gate_timeout: Duration,
    /// Let the gate see this variable of the environment too; it sees those of the system and of
    /// common build tools, but no tokens and no keys
    #[arg(long, value_name = "NAME", value_parser = variable, requires = "gate")]
    gate_env: Vec<String>,
    /// Run the gate also for trees that it has judged before
    #[arg(long, requires = "gate")]
    fresh: bool,
    /// A command that must succeed in a folder with the files of what is to be pushed; what it fails
    /// with is left out. Takes the rest of the line, so it stands last
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    gate: Vec<OsString>,
}

impl GateOptions {
    /// Returns the gate, if there is one.
    pub(crate) fn gate(&self, session: &Session) -> Option<Gate> {
        let gate = of(session, &self.gate, &self.gate_env)?;
        let gate = gate.with_time_limit(Some(self.gate_timeout));
        Some(if self.fresh { gate.afresh() } else { gate })
    }
}

/// Returns the gate of a command line, which sees the variables `env` beside the usual ones and which a
/// signal ends; `None` if there is none.
pub(crate) fn of<A: Clone + Into<OsString>>(
    session: &Session,
    argv: &[A],
    env: &[String],
) -> Option<Gate> {
    let (program, rest) = argv.split_first()?;
    let seen = SEEN.iter().copied().chain(env.iter().map(String::as_str));
    let gate = Gate::new(program.clone()).with_args(rest.to_vec()).with_only_variables(seen);
    let gate = gate.stopped_by(session.interrupt.flag());
    Some(SECRETS.into_iter().fold(gate, Gate::without_variable))
}

/// Checks that the program of a gate is there to be run, as far as that can be known without a tree.
///
/// # Errors
///
/// There is none, so that no tree could pass.
pub(crate) fn refuse_missing(program: &str) -> Result<(), Stop> {
    let is_program = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let path = Path::new(program);
    let place = if path.is_absolute() {
        if is_program(path) {
            return Ok(());
        }
        ""
    } else if program.contains('/') {
        // It is a file of the tree.
        return Ok(());
    } else {
        let folders =
            std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/bin:/usr/bin").into());
        // A relative folder is one of the tree.
        let has_it = |folder: PathBuf| folder.is_relative() || is_program(&folder.join(path));
        if std::env::split_paths(&folders).any(has_it) {
            return Ok(());
        }
        " on PATH"
    };
    Err(Stop::refused(format_args!(
        "the gate cannot be run: there is no program {program:?}{place}"
    ))
    .help("put `run` in [gate] right, or install it"))
}

/// Parses the name of a variable that a gate is to see.
pub(crate) fn variable(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(['=', '\0', '*']) {
        return Err("expected the name of a variable".to_owned());
    }
    if SECRETS.contains(&name) {
        return Err(format!("{name} is the key of a provider, which no gate sees"));
    }
    Ok(name.to_owned())
}

/// Parses how long a gate may take.
fn time_limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a gate needs some time".to_owned()),
        limit => Ok(limit),
    }
}
