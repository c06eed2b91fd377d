//! One command from the prompts of a fleet of agents to one push.
//!
//! Each part of Batchyard is a subcommand that reads and writes JSON Lines; `run` takes a plan
//! through all of them. See the README for the commands, their formats and their exit codes.

#![forbid(unsafe_code)]

mod cli;

mod commands;

mod answer;
mod demo;
mod pipeline;
mod plan;

mod collect;
mod provider;
mod repository;
mod results;
mod wire;

mod input;
mod json;
mod suggest;

mod exit;
mod gate;
mod git;
mod lock;
mod output;
mod progress;
mod signals;

fn main() -> std::process::ExitCode {
    cli::start()
}
