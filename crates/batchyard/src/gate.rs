//! The command that must succeed on a merged tree before it is pushed.

use std::ffi::OsString;
use std::time::Duration;

use git_batch::Gate;

use crate::cli::{Session, duration};

/// Variables that a command which may run what a model wrote must not see.
const SECRETS: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// What a command says of its gate.
#[derive(Debug, clap::Args)]
pub(crate) struct GateOptions {
    /// How long the gate may take for one tree
    #[arg(long, value_name = "D", value_parser = duration, default_value = "30m", requires = "gate")]
    gate_timeout: Duration,
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
        let gate = of(session, &self.gate)?.with_time_limit(Some(self.gate_timeout));
        Some(if self.fresh { gate.afresh() } else { gate })
    }
}

/// Returns the gate of a command line, which a signal ends; `None` if there is none.
pub(crate) fn of<A: Clone + Into<OsString>>(session: &Session, argv: &[A]) -> Option<Gate> {
    let (program, rest) = argv.split_first()?;
    let gate = Gate::new(program.clone()).with_args(rest.to_vec());
    let gate = gate.stopped_by(session.interrupt.flag());
    Some(SECRETS.into_iter().fold(gate, Gate::without_variable))
}
