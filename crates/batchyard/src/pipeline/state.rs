//! The folder of an unfinished run: the prompts as they were sent, and what came back.
//!
//! ```text
//! lock           held by the run that uses the folder
//! run.json       what the run was started with; written first
//! wave-0.jsonl   the requests of the first wave, written before any of them is sent
//! results.jsonl  what came back
//! landing        what the landing is called; written when its branches are where they begin
//! llm/           what is known of the provider's batches
//! ```
//!
//! A run that is over removes all of it, so that the next run of the plan begins anew.

use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use llm_batch::Request;
use serde::{Deserialize, Serialize};

use crate::exit::Stop;
use crate::input::Input;
use crate::lock::FolderLock;
use crate::wire::requests;

/// The version of the folder's layout.
const VERSION: u32 = 1;

/// The state of a run.
#[derive(Debug)]
pub(crate) struct RunState {
    folder: PathBuf,
    _lock: FolderLock,
}

/// What a run was started with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The whole text of the plan.
    pub(crate) plan: String,
    pub(crate) provider: String,
    pub(crate) endpoint: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(flatten)]
    started: Started,
}

const FORMAT: &str = "batchyard run";
const LANDING: &str = "landing";

impl RunState {
    /// Opens the folder of an unfinished run, or begins a new one.
    ///
    /// # Errors
    ///
    /// Another run holds it, it belongs to another plan or provider, or it cannot be written.
    pub(crate) fn open(folder: &Path, started: Started) -> Result<RunState, Stop> {
        let cannot = |error: io::Error| {
            Stop::refused(format_args!("cannot use the state {}: {error}", folder.display()))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
        let mut stray = strangers(folder).map_err(cannot)?;
        if let Some(name) = stray.pop() {
            return Err(Stop::refused(format_args!(
                "{} is no state of a run: it holds \"{name}\"",
                folder.display()
            ))
            .help("name a folder that is empty or does not exist yet"));
        }
        let state = RunState { folder: folder.to_owned(), _lock: FolderLock::take(folder)? };
        let file = state.folder.join("run.json");
        if !file.exists() {
            let header = Header { format: FORMAT.to_owned(), version: VERSION, started };
            let text = serde_json::to_vec_pretty(&header).expect("the header has string keys");
            state.write("run.json", &text).map_err(cannot)?;
            return Ok(state);
        }
        let foreign = |what: &str| {
            Stop::refused(format_args!("the state {} {what}", folder.display()))
                .help("finish that run as it was started, or remove the folder to give it up")
        };
        let text = Input::File(file).read_text()?;
        let header: Header = serde_json::from_str(&text)
            .map_err(|error| foreign(&format!("cannot be read: {error}")))?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(foreign("was written by another version"));
        }
        if header.started.plan != started.plan {
            return Err(foreign("is of an unfinished run of another version of the plan"));
        }
        if header.started != started {
            return Err(foreign("is of an unfinished run with another provider"));
        }
        Ok(state)
    }

    /// Returns the requests of a wave as they were written before they were sent, if they were.
    pub(crate) fn recall(&self, wave: usize) -> Result<Option<Vec<Request>>, Stop> {
        let file = self.folder.join(wave_file(wave));
        if !file.exists() {
            return Ok(None);
        }
        requests::read(&Input::File(file)).map(Some)
    }

    /// Writes the requests of a wave, durable before the first of them is sent.
    pub(crate) fn remember(&self, wave: usize, requests: &[Request]) -> Result<(), Stop> {
        let name = wave_file(wave);
        let written = requests::to_lines(requests).and_then(|lines| self.write(&name, &lines));
        written.map_err(|error| {
            Stop::failed(format_args!(
                "cannot write {}: {error}",
                self.folder.join(&name).display()
            ))
        })
    }

    pub(crate) fn results(&self) -> PathBuf {
        self.folder.join("results.jsonl")
    }

    /// Returns what the landing of the run is called, if it has begun.
    pub(crate) fn landing(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(self.folder.join(LANDING)) {
            Ok(name) => Ok(Some(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that the landing has begun, under a name that no other one has; durable.
    pub(crate) fn begin_landing(&self) -> io::Result<String> {
        let number = |salt: u32| RandomState::new().hash_one((salt, std::process::id()));
        let name = format!("run/{:016x}{:016x}", number(0), number(1));
        self.write(LANDING, name.as_bytes())?;
        Ok(name)
    }

    pub(crate) fn llm(&self) -> PathBuf {
        self.folder.join("llm")
    }

    /// Removes the state of a run that is over, and nothing that is not part of it.
    pub(crate) fn remove(self) -> io::Result<()> {
        // First the header: what is left without it is no run any more.
        fs::remove_file(self.folder.join("run.json"))?;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Some("llm" | "gate") => fs::remove_dir_all(entry.path())?,
                Some(name) if is_ours(name) => fs::remove_file(entry.path())?,
                _ => {}
            }
        }
        fs::remove_dir(&self.folder)
    }

    /// Writes a file whole and durable, or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, temporary) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Returns the names in the folder that no run has put there.
fn strangers(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(is_ours) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    let is_wave = |name: &str| {
        let number = name.strip_prefix("wave-").and_then(|rest| rest.strip_suffix(".jsonl"));
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let fixed = ["lock", "run.json", "results.jsonl", LANDING, "llm", "gate", "gate.index"];
    fixed.contains(&name) || is_wave(name)
}

fn wave_file(wave: usize) -> String {
    format!("wave-{wave}.jsonl")
}
