//! How the program ends: exit codes, and the one error type that reaches the user.

use std::fmt;
use std::process::ExitCode;

/// The exit status of the program. The order is that of weight: the heavier of two wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// All is well.
    Done,
    /// Some items failed, the others are done, and the output says which.
    SomeFailed,
    /// Nothing could be started and nothing was done.
    NotStarted,
    /// Not finished: run again to go on.
    Unfinished,
    /// Stopped by SIGINT or SIGTERM.
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::SomeFailed => 1,
            Exit::NotStarted => 2,
            Exit::Unfinished => 3,
            Exit::Interrupted => 130,
        }
    }

    /// Returns the status of a command in which `failed` items failed.
    pub(crate) fn of_failed(failed: usize) -> Exit {
        if failed == 0 { Exit::Done } else { Exit::SomeFailed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command stopped: what is at fault, and what to do about it.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) exit: Exit,
    message: String,
    help: Option<String>,
}

impl Stop {
    /// The input or the usage is at fault and nothing was done: status 2.
    pub(crate) fn refused(message: impl fmt::Display) -> Stop {
        Stop { exit: Exit::NotStarted, message: message.to_string(), help: None }
    }

    /// The work was begun and could not be done: status 1.
    pub(crate) fn failed(message: impl fmt::Display) -> Stop {
        Stop { exit: Exit::SomeFailed, message: message.to_string(), help: None }
    }

    /// The work is not finished and running again goes on with it: status 3.
    pub(crate) fn unfinished(message: impl fmt::Display) -> Stop {
        Stop { exit: Exit::Unfinished, message: message.to_string(), help: None }
    }

    /// Returns what is at fault, without the advice.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Says whether there is advice.
    pub(crate) fn has_help(&self) -> bool {
        self.help.is_some()
    }

    /// Makes of a refusal what it is once the work is begun: unfinished, as running again goes on with it.
    pub(crate) fn once_begun(mut self) -> Stop {
        if self.exit == Exit::NotStarted || self.exit == Exit::SomeFailed {
            self.exit = Exit::Unfinished;
        }
        self
    }

    /// Said of a run that is refused before it asks anything.
    pub(crate) const NOTHING_PAID: &str = "nothing was asked and nothing is paid";

    /// Says that the answers of a run are kept, whatever stopped it.
    pub(crate) fn kept(self) -> Stop {
        self.also("the answers are kept; run again to go on, nothing is paid twice")
    }

    /// Says something beside what to do.
    pub(crate) fn also(self, text: &str) -> Stop {
        match self.help.clone() {
            Some(help) => self.help(format_args!("{help}; {text}")),
            None => self.help(text),
        }
    }

    /// Says what to do.
    pub(crate) fn help(mut self, help: impl fmt::Display) -> Stop {
        self.help = Some(help.to_string());
        self
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// Formats an error and its causes in one line, each cause once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// Says why a run of requests ended, with the status that belongs to it.
pub(crate) fn not_run(error: &llm_batch::Error) -> Stop {
    use llm_batch::Error;
    let message = chain(error);
    match error {
        Error::Ambiguous { .. } | Error::Pending { .. } | Error::StateBusy { .. } => {
            Stop::unfinished(message)
        }
        _ => Stop::refused(message),
    }
}
