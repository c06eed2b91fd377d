//! Side by side with the real thing, on demand: what these need is not on every machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The packages that are run, with the versions that were tried.
const PACKAGES: [&str; 2] = ["anthropic==2.14.0", "openai==3.57.0"];
const SCRIPT: &str = "xtask/src/peers_llm_contract.py";
/// Where a Python that is new enough may be.
const PYTHONS: [&str; 3] = ["python3.13", "python3.12", "python3"];

/// Proves the simulator honest: the official Python packages work against it, and our requests are
/// valid for their types. Prints `not run` with the reason where there is no Python for it.
pub(crate) fn llm_contract(root: &Path, python: Option<&str>) -> Result<(), Failure> {
    let python = match find_python(python) {
        Ok(python) => python,
        Err(reason) => {
            println!("peers llm-contract: not run: {reason}");
            return Ok(());
        }
    };
    let target = target(root)?;
    let venv = target.join("peers").join("llm-contract");
    let in_venv = venv.join("bin").join("python");
    let ready = if in_venv.exists() {
        Ok(())
    } else {
        run(Command::new(&python).args(["-m", "venv"]).arg(&venv))
    };
    let ready = ready.and_then(|()| {
        let mut pip = Command::new(&in_venv);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(pip.args(PACKAGES))
    });
    if let Err(reason) = ready {
        println!("peers llm-contract: not run: the packages cannot be installed: {reason}");
        return Ok(());
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["build", "--quiet", "-p", "llm-simulator", "-p", "batchyard"]);
    run(cargo.args(["--example", "serve", "--bin", "batchyard"]))?;
    let debug = target.join("debug");
    let mut script = Command::new(&in_venv);
    script.arg(root.join(SCRIPT)).arg(debug.join("examples/serve")).arg(debug.join("batchyard"));
    run(&mut script)?;
    println!("peers llm-contract: all of it holds");
    Ok(())
}

/// Returns a Python of 3.12 or newer: the one that was named, or the first that runs.
fn find_python(named: Option<&str>) -> Result<String, String> {
    let candidates: Vec<&str> = named.map_or(PYTHONS.to_vec(), |named| vec![named]);
    let check = "import sys; sys.exit(sys.version_info < (3, 12))";
    let runs = |python: &&&str| {
        let ran = Command::new(python).args(["-c", check]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    candidates.iter().find(runs).map(|python| (*python).to_owned()).ok_or_else(|| {
        format!("none of {} is Python 3.12 or newer; name one by --python", candidates.join(", "))
    })
}

fn target(root: &Path) -> Result<PathBuf, Failure> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => Ok(std::env::current_dir()?.join(target)),
        None => Ok(root.join("target")),
    }
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
