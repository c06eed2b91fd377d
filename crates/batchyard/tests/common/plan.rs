//! Plans of a user's own: a repository, a remote, a provider.

use std::process::Command;

use super::server::Server;
use super::{Ran, Yard, finish};

/// A yard with a repository and a plan of its own.
pub(crate) fn planned(head: &str, tasks: &[(&str, &str)]) -> Yard {
    let yard = Yard::with_repository();
    yard.write("plan/prompts/do.prompt.md", "Task {{ task.id }} path:{{ path }} now\n");
    let mut plan =
        format!("repo = \"../repo\"\nprompts = \"prompts\"\nlessons = \"lessons.jsonl\"\n{head}\n");
    for (id, path) in tasks {
        plan.push_str(&task(id, path, ""));
    }
    yard.write("plan/plan.toml", plan);
    yard
}

pub(crate) fn task(id: &str, path: &str, more: &str) -> String {
    format!(
        "[[task]]\nid = \"{id}\"\nkind = \"implementer\"\nmodel = \"m\"\ntemplate = \"do\"\n\
         data = {{ path = \"{path}\" }}\n{more}\n"
    )
}

pub(crate) fn command(yard: &Yard, server: &Server) -> Command {
    let mut command = yard.program();
    command.env("ANTHROPIC_API_KEY", "sk-ant-very-secret");
    command.args(["run", "plan/plan.toml", "--json"]);
    // The plan's own address would do as well; here the port is known only now.
    let plan = yard.read("plan/plan.toml");
    if !plan.contains("base_url") {
        let plan = format!("provider = \"anthropic\"\nbase_url = \"{}\"\n{plan}", server.url);
        yard.write("plan/plan.toml", plan);
    }
    command
}

pub(crate) fn run(yard: &Yard, server: &Server) -> Ran {
    let ran = finish(&mut command(yard, server), b"");
    assert!(!ran.stdout.contains("sk-ant") && !ran.stderr.contains("sk-ant"), "{ran:?}");
    ran
}

/// Changes the plan, and takes the server out of it.
pub(crate) fn another_plan(yard: &Yard, changes: &[(&str, &str)]) {
    let mut plan = yard.read("plan/plan.toml");
    for (from, to) in changes {
        assert!(plan.contains(from), "{from}: {plan}");
        plan = plan.replace(from, to);
    }
    let is_of_server = |line: &&str| line.starts_with("base_url") || line.starts_with("provider =");
    let lines: Vec<&str> = plan.lines().filter(|line| !is_of_server(line)).collect();
    yard.write("plan/plan.toml", lines.join("\n"));
}
