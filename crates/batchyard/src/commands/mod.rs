//! The subcommands, one file each.

pub(crate) mod git_apply;
pub(crate) mod git_land;
pub(crate) mod lessons;
pub(crate) mod llm_run;
pub(crate) mod llm_settings;
pub(crate) mod llm_state;
pub(crate) mod prompt;
pub(crate) mod run;
