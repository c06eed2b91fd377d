//! The plan of a run: a TOML file in which every key is known and checked before anything is done.

mod allow;
mod load;
mod schema;
mod waves;

use std::path::{Path, PathBuf};

pub(crate) use allow::Allow;
use serde_json::{Map, Value, json};

use crate::exit::Stop;

/// A plan that passed its checks; paths are resolved against the folder of the plan file.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The plan file as it was named.
    pub(crate) file: PathBuf,
    pub(crate) provider: Option<ProviderName>,
    pub(crate) base_url: Option<String>,
    /// The repository; `None` if and only if `demo` makes one.
    pub(crate) repo: Option<PathBuf>,
    pub(crate) remote: String,
    pub(crate) prompts: PathBuf,
    pub(crate) lessons: PathBuf,
    pub(crate) answers: Option<PathBuf>,
    /// Where an unfinished run keeps its state; `None` = beside the plan, or in the demo's folder.
    pub(crate) state: Option<PathBuf>,
    /// What a run must cost at most, in dollars.
    pub(crate) max_cost: Option<f64>,
    /// Table of prices; `None` = the one that is built in.
    pub(crate) prices: Option<PathBuf>,
    pub(crate) land: Land,
    /// What must succeed on the merged tree before the push.
    pub(crate) gate: Option<Gate>,
    pub(crate) allow: Allow,
    pub(crate) demo: Option<Demo>,
    /// The tasks in the order of the plan.
    pub(crate) tasks: Vec<Task>,
    /// Indexes of tasks: each wave needs only answers of the waves before it.
    pub(crate) waves: Vec<Vec<usize>>,
}

/// The command that judges the merged tree.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Variables of the environment that it sees beside the usual ones.
    pub(crate) env: Vec<String>,
}

/// Where the commits go.
#[derive(Debug)]
pub(crate) struct Land {
    /// The base branch; `None` = the default branch of the remote.
    pub(crate) onto: Option<String>,
    pub(crate) push: Push,
}

/// Which branches are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Push {
    Branches,
    Base,
    Both,
}

/// A scratch remote and clone for a run that needs nothing but the plan.
#[derive(Debug)]
pub(crate) struct Demo {
    /// The checkout whose commits the scratch remote begins with.
    pub(crate) source: PathBuf,
    /// Whether the same tasks are also run one by one, for comparison.
    pub(crate) one_by_one: bool,
}

/// A provider that the program can talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// Anthropic Message Batches
    Anthropic,
    /// OpenAI Batch, and servers of its shape
    Openai,
    /// Recorded answers of a folder; nothing leaves the machine
    Offline,
}

/// One task of an agent.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) model: String,
    pub(crate) max_tokens: u32,
    /// Name of the prompt template.
    pub(crate) template: String,
    /// Values for the template.
    pub(crate) data: Map<String, Value>,
    /// Indexes of the tasks whose answers this one needs.
    pub(crate) after: Vec<usize>,
    /// Whether the task is there to fail.
    pub(crate) expect_failure: bool,
}

impl Task {
    /// Returns the branch that the task commits to.
    pub(crate) fn branch(&self) -> String {
        branch_of(&self.id)
    }
}

fn branch_of(id: &str) -> String {
    format!("batchyard/{id}")
}

impl Plan {
    /// Reads and checks a plan.
    pub(crate) fn load(path: &Path) -> Result<Plan, Stop> {
        load::load(path)
    }

    /// Returns what the plan asks, and which answers can be used, as one text: what must not change
    /// while a run is unfinished.
    pub(crate) fn asks(&self) -> String {
        let id = |at: &usize| &self.tasks[*at].id;
        let tasks = self.tasks.iter().map(|task| {
            json!({
                "id": task.id,
                "kind": task.kind,
                "model": task.model,
                "max_tokens": task.max_tokens,
                "template": task.template,
                "data": task.data,
                "after": task.after.iter().map(id).collect::<Vec<_>>(),
            })
        });
        json!({ "tasks": tasks.collect::<Vec<_>>(), "allow": self.allow.globs() }).to_string()
    }

    /// Returns where an unfinished run keeps its state, unless the plan says otherwise: the name
    /// of the plan file with `.state` behind it.
    pub(crate) fn default_state(&self) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(".state");
        PathBuf::from(name)
    }
}
