//! Tests that try many orders of events: loom all of them for the slots, shuttle many of them for
//! the whole engine and for what shares snapshots.
//!
//! Both need a build of their own, in which the locks and threads are the tool's.

use std::path::Path;

use crate::count::Counts;
use crate::{Failure, run};

/// The tools and the crates that they look at. The name of a tool is also the `cfg` of its build,
/// and how its tests' names begin.
const TOOLS: [(&str, &[&str]); 2] =
    [("loom", &["batch-core"]), ("shuttle", &["batch-core", "lessons-index"])];

/// Runs the tests of each tool in a target folder of its own, and counts them.
pub(crate) fn models(root: &Path, counts: &mut Counts) -> Result<(), Failure> {
    for (tool, packages) in TOOLS {
        let mut ran = Counts::default();
        let folder = root.join("target").join("models").join(tool);
        let mut cargo = run::cargo(root, arguments(tool, packages));
        cargo.env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", flags(tool));
        let outcome = run::count(&mut cargo, &mut ran);
        *counts += ran;
        outcome?;
        if ran.passed == 0 {
            return Err(format!("no test of {tool} ran").into());
        }
    }
    Ok(())
}

fn arguments(tool: &str, packages: &[&str]) -> Vec<String> {
    let mut arguments = ["test", "--locked", "--lib", "--release"].map(str::to_owned).to_vec();
    for package in packages {
        arguments.extend(["-p", package].map(str::to_owned));
    }
    arguments.push(format!("{tool}_"));
    arguments
}

/// What the caller wants of the compiler, and the build of the tool.
fn flags(tool: &str) -> String {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    format!("{given} --cfg {tool}").trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_runs_its_own_tests_in_its_own_build() {
        let words = arguments("loom", &["one", "two"]).join(" ");
        assert_eq!(words, "test --locked --lib --release -p one -p two loom_");
        assert!(flags("shuttle").ends_with("--cfg shuttle"));
    }
}
