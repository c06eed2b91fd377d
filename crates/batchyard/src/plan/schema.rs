//! The keys of a plan file, with what each means.

use serde::Deserialize;
use toml::Spanned;

use super::{ProviderName, Push};

/// The plan file. Relative paths are relative to the folder of the plan file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    /// `anthropic`, `openai` or `offline`; `--provider` overrides it.
    pub(super) provider: Option<ProviderName>,
    /// Address of the provider, `https` or loopback; by default the provider's own.
    pub(super) base_url: Option<Spanned<String>>,
    /// The repository to commit to; by default the folder of the plan.
    pub(super) repo: Option<Spanned<String>>,
    /// The remote to push to, by default `origin`.
    pub(super) remote: Option<Spanned<String>>,
    /// Folder of the prompt templates.
    pub(super) prompts: Spanned<String>,
    /// File of the lessons; made at the first lesson if it does not exist.
    pub(super) lessons: Spanned<String>,
    /// Folder of the recorded answers, for `offline`.
    pub(super) answers: Option<Spanned<String>>,
    /// Folder of an unfinished run, by default `<plan file>.state`.
    pub(super) state: Option<Spanned<String>>,
    /// What a run must cost at most, in dollars; `--max-cost` overrides it.
    pub(super) max_cost: Option<Spanned<f64>>,
    /// Table of prices, by default the one that is built in.
    pub(super) prices: Option<Spanned<String>>,
    /// Where commits go.
    #[serde(default)]
    pub(super) land: LandTable,
    /// What must succeed on the merged tree before the push.
    pub(super) gate: Option<GateTable>,
    /// Paths that answers may write, as globs; by default all but the guarded ones.
    pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// A scratch remote and clone in place of `repo`.
    pub(super) demo: Option<Spanned<DemoTable>>,
    /// The tasks.
    #[serde(default)]
    pub(super) task: Vec<TaskTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LandTable {
    /// The base branch, by default the remote's default branch.
    pub(super) onto: Option<Spanned<String>>,
    /// `branches`, `base` or `both`, by default `both`.
    pub(super) push: Option<Push>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GateTable {
    /// Program and arguments; there is no shell.
    pub(super) run: Spanned<Vec<String>>,
    /// Variables of the environment that the command needs beside the usual ones.
    #[serde(default)]
    pub(super) env: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DemoTable {
    /// The checkout whose history the scratch remote begins with.
    pub(super) source: Spanned<String>,
    /// Whether the tasks are also run one by one on a second scratch remote, by default true.
    pub(super) one_by_one: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskTable {
    /// Unique; part of the branch name `batchyard/<id>`.
    pub(super) id: Spanned<String>,
    /// `implementer`, `judge`, `planner` or a word of your own; lessons are found by it.
    pub(super) kind: Spanned<String>,
    /// The model, as the provider names it.
    pub(super) model: Spanned<String>,
    /// The longest answer, in tokens, by default 4096.
    pub(super) max_tokens: Option<Spanned<u32>>,
    /// Name of the prompt template.
    pub(super) template: Spanned<String>,
    /// Values for the template.
    pub(super) data: Option<Spanned<toml::Table>>,
    /// Tasks whose answers this task needs.
    #[serde(default)]
    pub(super) after: Vec<Spanned<String>>,
    /// `fail` marks a task that is to fail.
    pub(super) expect: Option<Expect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Expect {
    /// The task is there to fail.
    Fail,
}
