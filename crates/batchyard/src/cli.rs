//! The command line: what can be asked for, and the way from there to an exit status.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::commands::{git_apply, git_land, lessons, llm_run, llm_state, prompt, run};
use crate::exit::{Exit, Stop};
use crate::output::{Output, complain};
use crate::signals::Interrupt;

/// One command from the prompts of a fleet of agents to one push.
///
/// Exit status: 0 all well; 1 some items failed, the others are done; 2 nothing could be started
/// and nothing was done; 3 not finished, run again to go on; 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "batchyard", version, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Flags {
    /// Print one JSON object a line on stdout, and nothing else there
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    /// Print errors only on stderr
    #[arg(long, global = true, display_order = 901)]
    quiet: bool,
    /// Say more about what is being done on stderr
    #[arg(long, global = true, conflicts_with = "quiet", display_order = 902)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take a plan of agent tasks from prompts to one push
    Run(run::Options),
    /// Commits, merges and pushes of many tasks in one push
    #[command(subcommand)]
    Git(Git),
    /// Model requests of many tasks in one provider batch
    #[command(subcommand)]
    Llm(Llm),
    /// Lessons that agents learned, in one JSON Lines file
    #[command(subcommand)]
    Lessons(lessons::Command),
    /// Prompt templates of one folder
    #[command(subcommand)]
    Prompt(prompt::Command),
}

#[derive(Debug, Subcommand)]
enum Git {
    /// Apply operations from JSON Lines: any number of tasks, one push
    Apply(git_apply::Options),
    /// Merge local branches onto a branch of the remote and push it once
    Land(git_land::Options),
}

#[derive(Debug, Subcommand)]
enum Llm {
    /// Send requests from JSON Lines in as few submissions as possible, and collect the answers
    Run(Box<llm_run::Options>),
    /// Say what a state folder knows of its submissions, also while a run is using it
    Status(llm_state::Options),
    /// Ask the provider to stop working on the batches of a state folder
    Cancel(llm_state::Cancel),
}

/// What every command is given beside its own options.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) output: Output,
    pub(crate) interrupt: Interrupt,
}

/// Runs the program.
pub(crate) fn start() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with status 0, usage errors to stderr with status 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let output = Output::new(cli.flags.json, cli.flags.quiet, cli.flags.verbose);
    let session = match Interrupt::watch(&output) {
        Ok(interrupt) => Session { output, interrupt },
        Err(error) => {
            complain(Stop::refused(format_args!("cannot watch for signals: {error}")).to_string());
            return Exit::NotStarted.into();
        }
    };
    let ended = match cli.command {
        Command::Run(options) => run::run(&session, &options),
        Command::Git(Git::Apply(options)) => git_apply::run(&session, &options),
        Command::Git(Git::Land(options)) => git_land::run(&session, &options),
        Command::Llm(Llm::Run(options)) => llm_run::run(&session, &options),
        Command::Llm(Llm::Status(options)) => llm_state::status(&session, &options),
        Command::Llm(Llm::Cancel(options)) => llm_state::cancel(&session, &options),
        Command::Lessons(command) => lessons::run(&session, &command),
        Command::Prompt(command) => prompt::run(&session, &command),
    };
    let exit = ended.unwrap_or_else(|stop| {
        session.output.flush();
        complain(stop.to_string());
        stop.exit
    });
    let mut exit = session.output.finish(exit);
    if session.interrupt.has_cut_short() {
        session.interrupt.say_goodbye();
        exit = Exit::Interrupted;
    }
    exit.into()
}

/// Returns the command that starts this process again, quoted for a shell, from whatever folder.
pub(crate) fn resume_command() -> String {
    let folder = std::env::current_dir().map(|folder| format!("cd {} && ", quoted(&folder)));
    let args: Vec<String> = std::env::args_os().map(|arg| quoted(arg.as_ref())).collect();
    folder.unwrap_or_default() + &args.join(" ")
}

/// Quotes an argument for a shell of POSIX, where that is needed; what is not text, or would drive a
/// terminal, is written byte by byte.
fn quoted(arg: &Path) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    match arg.to_str() {
        Some(arg) if !arg.is_empty() && arg.chars().all(is_plain) => arg.to_owned(),
        Some(arg) if !arg.chars().any(char::is_control) => {
            format!("'{}'", arg.replace('\'', r"'\''"))
        }
        _ => {
            let byte = |byte: &u8| match byte {
                b if b.is_ascii_alphanumeric() || b"_./".contains(b) => char::from(*b).to_string(),
                b => format!("\\{b:03o}"),
            };
            let arg = arg.as_os_str().as_encoded_bytes();
            // A shell takes line ends at the end of what is printed away.
            let ends = arg.iter().rev().take_while(|byte| **byte == b'\n').count();
            let bytes: String = arg[..arg.len() - ends].iter().map(byte).collect();
            format!("\"$(printf '{bytes}'){}\"", "\n".repeat(ends))
        }
    }
}

/// Parses a duration of the command line: a whole number and `ms`, `s`, `m`, `h` or `d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a whole number and ms, s, m, h or d, such as 15s".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "expected a whole number before the unit".to_owned())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "too long".to_owned())
}

/// Parses an amount of dollars of the command line.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| "expected dollars, such as 2.50".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_is_quoted_so_that_a_shell_reads_it_back() {
        use std::os::unix::ffi::OsStrExt;
        let quote = |bytes: &[u8]| quoted(Path::new(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!(quote(b"plan/plan.toml"), "plan/plan.toml");
        assert_eq!(quote(b""), "''");
        assert_eq!(quote(b"it's"), r"'it'\''s'");
        assert_eq!(quote(b"r\xff p"), r#""$(printf 'r\377\040p')""#);
        assert_eq!(quote(b"a\x1bb"), r#""$(printf 'a\033b')""#);
        // As every shell reads it, not only those that know more than POSIX.
        for odd in [&b"r\xff p%n"[..], b"a\x1bb", b"it's\t", b"-n\n\\x", b"a\n\n"] {
            let script = format!("printf %s {}", quote(odd));
            let printed = std::process::Command::new("sh").args(["-c", &script]).output();
            assert_eq!(printed.expect("a shell").stdout, odd, "{script}");
        }
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("24h"), Ok(Duration::from_hours(24)));
        for wrong in ["", "5", "s", "1.5s", "-1s", "1 s", "5S", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
