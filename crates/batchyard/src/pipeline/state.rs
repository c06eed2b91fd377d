//! The folder of an unfinished run: the prompts as they were sent, and what came back.
//!
//! ```text
//! lock           held by the run that uses the folder
//! run.json       what the run asks and whom; written first
//! wave-0.jsonl   the requests of the first wave, written before any of them is sent
//! results.jsonl  what came back
//! landing        what the landing is called, and where it is; written when its branches are where
//!                they begin
//! made           the commits that the landing has made, with their branches
//! others         commits of others that it lands in their place: what an answer changes nothing of, or
//!                what somebody has put right
//! search         what is left to be tried of a search for what the remote does not take
//! end            what became of the tasks, and when: written before lessons are recorded of it
//! llm/           what is known of the provider's batches
//! over           run.json, once the run is over and the rest is being removed
//! ```
//!
//! A run that is over removes all of it, so that the next run of the plan begins anew. What is left
//! where that was cut off is known by `over` and belongs to nobody.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use git_batch::ObjectId;
use llm_batch::Request;
use serde::{Deserialize, Serialize};

use super::end::End;
use crate::exit::Stop;
use crate::input::Input;
use crate::lock::{self, FolderLock};
use crate::plan::Plan;
use crate::wire::requests;

/// The version of the folder's layout.
const VERSION: u32 = 2;

/// The state of a run.
#[derive(Debug)]
pub(crate) struct RunState {
    folder: PathBuf,
    is_new: bool,
    _lock: FolderLock,
}

/// What a run asks, and whom. Where its commits go and what judges them may change while it is
/// unfinished.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// As text, so that numbers compare as they are written.
    asks: String,
    provider: String,
    endpoint: String,
}

impl Started {
    pub(crate) fn new(plan: &Plan, provider: &dyn llm_batch::Provider) -> Started {
        let (provider, endpoint) = (provider.name().to_owned(), provider.endpoint().to_owned());
        Started { asks: plan.asks(), provider, endpoint }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(flatten)]
    started: Started,
}

/// What is read of a header of any version, with its text.
#[derive(Debug, Deserialize)]
struct Layout {
    format: String,
    version: u32,
    #[serde(skip)]
    text: String,
}

const FORMAT: &str = "batchyard run";
const HEADER: &str = "run.json";
const OVER: &str = "over";
const LANDING: &str = "landing";
const MADE: &str = "made";
const OTHERS: &str = "others";
const SEARCH: &str = "search";
const END: &str = "end";
const LLM: &str = "llm";
const RESULTS: &str = "results.jsonl";

impl RunState {
    /// Says whether the folder holds what an unfinished run was asked, as far as can be told without it being
    /// opened.
    pub(crate) fn is_begun(folder: &Path) -> bool {
        let has = |name| folder.join(name).exists();
        has(HEADER) && !has(OVER) && has(&wave_file(0))
    }

    /// Opens the folder of an unfinished run, or begins a new one.
    ///
    /// # Errors
    ///
    /// Another run holds it, it belongs to another plan or provider, or it cannot be written.
    pub(crate) fn open(folder: &Path, started: Started) -> Result<RunState, Stop> {
        let cannot = |error: io::Error| {
            Stop::refused(format_args!("cannot use the state {}: {error}", folder.display()))
                .help("name a folder that can be written to with `state` in the plan")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
        let stray = names(folder).map_err(cannot)?.into_iter().find(|name| !is_ours(name));
        if let Some(name) = stray {
            return Err(Stop::refused(format_args!(
                "{} is no state of a run: it holds \"{name}\"",
                folder.display()
            ))
            .help("name a folder that is empty or does not exist yet"));
        }
        // Answers are in it, and prompts.
        if fs::metadata(folder).map_err(cannot)?.permissions().mode() & 0o077 != 0 {
            // A file system without owners has none to keep out.
            let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
        }
        let lock = FolderLock::take(folder)?;
        let mut state = RunState { folder: folder.to_owned(), is_new: false, _lock: lock };
        if is_there(&folder.join(OVER)).map_err(cannot)? {
            state.clear().map_err(cannot)?;
        }
        // What was being written when a run ended counts for nothing.
        let counts = |name: &String| {
            name != lock::FILE && name != HEADER && name.strip_suffix(".new").is_none()
        };
        let work = names(folder).map_err(cannot)?.into_iter().find(counts);
        if is_there(&folder.join(HEADER)).map_err(cannot)? {
            let layout = Layout::read(folder)?;
            if work.is_some() {
                layout.goes_on_with(folder, &started)?;
                return Ok(state);
            }
            // A run that was cut off before it asked anything.
        } else if let Some(name) = work {
            return Err(Stop::refused(format_args!(
                "the state {} holds \"{name}\", but not what it belongs to: there is no {HEADER}",
                folder.display()
            ))
            .help("remove the folder, or name another with `state`"));
        }
        let header = Header { format: FORMAT.to_owned(), version: VERSION, started };
        let text = serde_json::to_vec_pretty(&header).expect("the header has string keys");
        state.write(HEADER, &text).map_err(cannot)?;
        state.is_new = true;
        Ok(state)
    }

    /// Returns whether no earlier run has worked in the folder.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the requests of a wave as they were written before they were sent, if they were.
    pub(crate) fn recall(&self, wave: usize) -> Result<Option<Vec<Request>>, Stop> {
        let file = self.folder.join(wave_file(wave));
        match is_there(&file) {
            Ok(false) => Ok(None),
            Ok(true) => requests::read(&Input::File(file)).map(Some),
            Err(error) => {
                Err(Stop::refused(format_args!("cannot read {}: {error}", file.display())))
            }
        }
    }

    /// Writes the requests of a wave, durable before the first of them is sent.
    pub(crate) fn remember(&self, wave: usize, requests: &[Request]) -> Result<(), Stop> {
        let name = wave_file(wave);
        let written = requests::to_lines(requests).and_then(|lines| self.write(&name, &lines));
        written.map_err(|error| {
            let file = self.folder.join(&name);
            Stop::refused(format_args!("cannot write {}: {error}", file.display()))
                .help("make room, or make the folder writable, and run again")
        })
    }

    pub(crate) fn results(&self) -> PathBuf {
        self.folder.join(RESULTS)
    }

    /// Returns what the landing of the run is called, and where it is, if it has begun.
    pub(crate) fn landing(&self) -> io::Result<Option<(String, String)>> {
        match fs::read_to_string(self.folder.join(LANDING)) {
            Ok(text) => match text.split_once('\n') {
                Some((name, place)) => Ok(Some((name.to_owned(), place.to_owned()))),
                None => Err(io::Error::other(format!("{LANDING} does not say where it is"))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that the landing has begun at `place`, under a name that no other one has, with what an earlier
    /// one has made of it; durable.
    pub(crate) fn begin_landing(
        &self,
        place: &str,
        made: &BTreeMap<String, ObjectId>,
    ) -> io::Result<String> {
        let number = |salt: u32| RandomState::new().hash_one((salt, std::process::id()));
        let name = format!("run/{:016x}{:016x}", number(0), number(1));
        self.write_commits(MADE, made)?;
        self.note_landing(&name, place)?;
        Ok(name)
    }

    /// Notes where a landing is; durable.
    pub(crate) fn note_landing(&self, name: &str, place: &str) -> io::Result<()> {
        self.write(LANDING, format!("{name}\n{place}").as_bytes())
    }

    /// Returns the commits that the landing has made, by their branches.
    pub(crate) fn made(&self) -> io::Result<BTreeMap<String, ObjectId>> {
        self.commits(MADE)
    }

    /// Returns the commits of others that the landing goes on with in place of its own, by their branches.
    pub(crate) fn others(&self) -> io::Result<BTreeMap<String, ObjectId>> {
        self.commits(OTHERS)
    }

    fn commits(&self, file: &str) -> io::Result<BTreeMap<String, ObjectId>> {
        let text = match fs::read_to_string(self.folder.join(file)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let read = |line: &str| {
            let (id, branch) = line.split_once(' ')?;
            Some((branch.to_owned(), ObjectId::from_hex(id.as_bytes()).ok()?))
        };
        let commits: Option<BTreeMap<_, _>> = text.lines().map(read).collect();
        commits.ok_or_else(|| io::Error::other(format!("{file} is damaged")))
    }

    /// Notes commits that the landing has made, beside those that are noted; durable.
    pub(crate) fn note_made(&self, made: &[(String, ObjectId)]) -> io::Result<()> {
        let mut all = self.made()?;
        all.extend(made.iter().cloned());
        self.write_commits(MADE, &all)
    }

    /// Notes the commits of others that the landing goes on with, in place of those that are noted; durable.
    pub(crate) fn note_others(&self, others: &BTreeMap<String, ObjectId>) -> io::Result<()> {
        self.write_commits(OTHERS, others)
    }

    fn write_commits(&self, file: &str, commits: &BTreeMap<String, ObjectId>) -> io::Result<()> {
        let lines: Vec<String> =
            commits.iter().map(|(branch, id)| format!("{id} {branch}\n")).collect();
        self.write(file, lines.concat().as_bytes())
    }

    /// Returns what a search for what the remote does not take has left to be tried, as indexes of tasks;
    /// nothing where there is none, or it cannot be read: it is begun anew then.
    pub(crate) fn search(&self) -> Vec<Vec<usize>> {
        let text = fs::read(self.folder.join(SEARCH)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Notes what such a search has left.
    pub(crate) fn note_search(&self, left: &VecDeque<Vec<usize>>) -> io::Result<()> {
        self.write(SEARCH, &serde_json::to_vec(left).expect("numbers can be written"))
    }

    /// Returns what became of the tasks of a run that was cut off at its end.
    pub(crate) fn end(&self) -> io::Result<Option<End>> {
        let file = self.folder.join(END);
        let cannot =
            |error: io::Error| io::Error::other(format!("cannot read {}: {error}", file.display()));
        match fs::read(&file) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|error| cannot(error.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot(error)),
        }
    }

    /// Notes what became of the tasks; durable.
    pub(crate) fn note_end(&self, end: &End) -> io::Result<()> {
        self.write(END, &serde_json::to_vec(end).expect("the end of a run has string keys"))
    }

    pub(crate) fn llm(&self) -> PathBuf {
        self.folder.join(LLM)
    }

    /// Removes the state of a run that is over, and nothing that is not part of it.
    pub(crate) fn remove(self) -> io::Result<()> {
        // By this one step it is no run any more, wherever the rest is cut off.
        fs::rename(self.folder.join(HEADER), self.folder.join(OVER))?;
        self.sync()?;
        self.clear()?;
        // The lock last: who gets it finds nothing else.
        fs::remove_file(self.folder.join(lock::FILE))?;
        match fs::remove_dir(&self.folder) {
            // Somebody has begun anew in it by now.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed,
        }
    }

    /// Removes all of a run that is over but the lock; the mark of that at the end.
    fn clear(&self) -> io::Result<()> {
        let is_kept = |name: &String| !is_ours(name) || name == OVER || name == lock::FILE;
        for name in names(&self.folder)?.into_iter().filter(|name| !is_kept(name)) {
            let path = self.folder.join(name);
            if fs::symlink_metadata(&path)?.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        self.sync()?;
        fs::remove_file(self.folder.join(OVER))
    }

    /// Writes a file whole and durable, or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, temporary) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let mut how = OpenOptions::new();
        let mut file = how.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        self.sync()
    }

    /// Makes durable which names there are.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl Layout {
    fn read(folder: &Path) -> Result<Layout, Stop> {
        let text = Input::File(folder.join(HEADER)).read_text()?;
        let layout: Layout =
            serde_json::from_str(&text).map_err(|error| unreadable(folder, &error))?;
        if layout.format != FORMAT {
            return Err(foreign(folder, &format!("is no state of a run: {HEADER} says so")));
        }
        Ok(Layout { text, ..layout })
    }

    /// Checks that a run which asks this goes on with what is there.
    fn goes_on_with(&self, folder: &Path, started: &Started) -> Result<(), Stop> {
        if self.version != VERSION {
            let (there, here) = (self.version, VERSION);
            let what = format!("has the layout {there}, and this program knows {here} only");
            return Err(foreign(folder, &what).help(
                "end that run with the version of batchyard that began it, or remove the folder to \
                 give its answers up",
            ));
        }
        let header: Header =
            serde_json::from_str(&self.text).map_err(|error| unreadable(folder, &error))?;
        if header.started.asks != started.asks {
            return Err(foreign(folder, "is of an unfinished run that asks something else"));
        }
        if header.started != *started {
            return Err(foreign(folder, "is of an unfinished run with another provider"));
        }
        Ok(())
    }
}

fn foreign(folder: &Path, what: &str) -> Stop {
    Stop::refused(format_args!("the state {} {what}", folder.display()))
        .help("finish that run as it was started, or remove the folder to give it up")
}

fn unreadable(folder: &Path, error: &serde_json::Error) -> Stop {
    foreign(folder, &format!("cannot be read: {HEADER}: {error}"))
}

/// Returns the names in the folder, as far as they are text.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into());
    fs::read_dir(folder)?.map(name).collect()
}

fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a run has put it there.
fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    let number = name.strip_prefix("wave-").and_then(|rest| rest.strip_suffix(".jsonl"));
    let is_wave = number.is_some_and(|number| number.parse::<usize>().is_ok());
    is_wave
        || [lock::FILE, HEADER, OVER, RESULTS, LANDING, MADE, OTHERS, SEARCH, END, LLM]
            .contains(&name)
}

fn wave_file(wave: usize) -> String {
    format!("wave-{wave}.jsonl")
}
