//! The bodies of a pass, outside of memory once they are many.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::durable::{self, private};
use crate::error::Error;

/// What is kept in memory; more goes into a file.
const KEPT: usize = 1024 * 1024;
/// The same of a batch of tickets, of which there may be thousands.
const KEPT_OF_TICKETS: usize = 4096;

/// The name that the file of a run has for the moment between making it and removing it from the
/// folder.
pub(crate) const FILE: &str = "bodies.tmp";

/// What the name of the file of a batch of tickets has behind its number.
pub(crate) const OF_TICKETS: &str = ".bodies";

/// Bytes that are written once and read by position, in a file that is of no use to anybody else.
#[derive(Debug)]
pub(crate) struct Bodies {
    dir: PathBuf,
    is_of_tickets: bool,
    tail: Vec<u8>,
    file: Option<Spilt>,
    /// How much is in the file; the tail begins there.
    flushed: u64,
    /// Whether there was no room for more on the disk: then the tail stays in memory.
    is_stuck: bool,
}

/// A file of bodies.
#[derive(Debug)]
enum Spilt {
    /// It is open and has no name: gone with the process.
    Open(File),
    /// It is open only while it is read: of these there may be more than a process may have open.
    Closed(PathBuf),
}

impl Bodies {
    /// Returns none yet. A file, if one is needed, is made in `dir`.
    pub(crate) fn new(dir: &Path) -> Bodies {
        let dir = dir.to_owned();
        let tail = Vec::new();
        Bodies { dir, is_of_tickets: false, tail, file: None, flushed: 0, is_stuck: false }
    }

    /// Returns the same for a batch of tickets.
    pub(crate) fn of_tickets(self) -> Bodies {
        Bodies { is_of_tickets: true, ..self }
    }

    /// Appends and returns the position. Bodies of tickets for which there is no room on the disk stay
    /// in memory, where their requests were until now: what is at the provider is brought home all the
    /// same, and of the others no create can be written down.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        if self.tail.len() + bytes.len() > KEPT && !self.tail.is_empty() {
            let flushed = self.flush();
            if !self.is_of_tickets {
                flushed.map_err(durable::io("write the bodies to", &self.dir))?;
            }
        }
        let at = self.flushed + self.tail.len() as u64;
        self.tail.extend_from_slice(bytes);
        Ok(at)
    }

    /// Takes no more memory than a small batch of tickets may, for as long as it is waited for and as
    /// far as there is room on the disk.
    pub(crate) fn put_away(&mut self) {
        if self.tail.len() > KEPT_OF_TICKETS {
            // Without room it stays where it is.
            let _ = self.flush();
        }
        self.tail.shrink_to_fit();
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_stuck {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => Ok(file),
            none if self.is_of_tickets => Spilt::closed(&self.dir).map(|file| none.insert(file)),
            none => nameless(&self.dir.join(FILE)).map(|file| none.insert(Spilt::Open(file))),
        };
        if let Err(error) = file.and_then(|file| file.append(&self.tail)) {
            self.is_stuck = true;
            if self.flushed == 0 {
                // What little was written takes room from what is of more use.
                self.file = None;
            }
            return Err(error);
        }
        self.flushed += self.tail.len() as u64;
        self.tail.clear();
        self.tail.shrink_to(KEPT);
        Ok(())
    }

    /// Fills `buffer` from the position on.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        match (at.checked_sub(self.flushed), &self.file) {
            (Some(start), _) => {
                let start = usize::try_from(start).map_err(|_| beyond())?;
                let end = start.checked_add(buffer.len()).ok_or_else(beyond)?;
                buffer.copy_from_slice(self.tail.get(start..end).ok_or_else(beyond)?);
                Ok(())
            }
            (None, Some(file)) => file.read(at, buffer),
            (None, None) => Err(beyond()),
        }
    }
}

impl Spilt {
    /// Makes one for a batch of tickets.
    fn closed(dir: &Path) -> io::Result<Spilt> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        let path = dir.join(format!("{number:06}{OF_TICKETS}.tmp"));
        private().write(true).create_new(true).open(&path)?;
        Ok(Spilt::Closed(path))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Spilt::Open(file) => file.write_all(bytes),
            Spilt::Closed(path) => private().append(true).open(path)?.write_all(bytes),
        }
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Spilt::Open(file) => file.read_exact_at(buffer, at),
            Spilt::Closed(path) => File::open(path)?.read_exact_at(buffer, at),
        }
    }
}

impl Drop for Spilt {
    fn drop(&mut self) {
        if let Spilt::Closed(path) = self {
            // What stays there is removed when the folder is opened the next time.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes what processes have left of batches of tickets that they ended without. Nobody else may be at the folder.
pub(crate) fn clear(dir: &Path) -> Result<(), Error> {
    let left = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().strip_suffix(".tmp").is_some_and(|stem| stem.ends_with(OF_TICKETS))
    };
    for entry in fs::read_dir(dir).map_err(durable::io("read", dir))? {
        let entry = entry.map_err(durable::io("read", dir))?;
        if left(&entry) {
            fs::remove_file(entry.path()).map_err(durable::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Makes a file for the owner alone that no crash leaves behind.
fn nameless(path: &Path) -> io::Result<File> {
    // Runs of one batcher may want one at the same time, under the same name.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = private().read(true).write(true).create_new(true).open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Vec<Vec<u8>> {
        (0..50_u8).map(|n| vec![n; 1 + usize::from(n) * 2_500]).collect()
    }

    fn assert_holds(bodies: &Bodies, pieces: &[Vec<u8>], places: Vec<u64>) {
        for (piece, at) in pieces.iter().zip(places) {
            let mut read = vec![0; piece.len()];
            bodies.read(at, &mut read).unwrap();
            assert_eq!(read, *piece);
        }
        let end = bodies.flushed + bodies.tail.len() as u64;
        assert!(bodies.read(end - 1, &mut [0; 1]).is_ok());
        assert!(bodies.read(end - 1, &mut [0; 2]).is_err());
    }

    #[test]
    fn what_goes_in_comes_out_wherever_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut bodies = Bodies::new(dir.path());
        let pieces = pieces();
        let places: Vec<u64> = pieces.iter().map(|piece| bodies.push(piece).unwrap()).collect();
        assert!(bodies.file.is_some() && !bodies.tail.is_empty());
        assert_holds(&bodies, &pieces, places);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
    }

    #[test]
    fn what_tickets_wait_for_is_in_no_memory_and_gone_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(dir.path()).unwrap().count();
        let mut bodies = Bodies::new(dir.path()).of_tickets();
        let pieces = pieces();
        let places: Vec<u64> = pieces.iter().map(|piece| bodies.push(piece).unwrap()).collect();
        bodies.put_away();
        assert_eq!((bodies.tail.capacity(), files()), (0, 1));
        assert_holds(&bodies, &pieces, places);
        let mut small = Bodies::new(dir.path()).of_tickets();
        let places = pieces[..2].iter().map(|piece| small.push(piece).unwrap()).collect();
        small.put_away();
        assert_eq!((small.tail.capacity(), files()), (2_502, 1), "it takes no file");
        assert_holds(&small, &pieces[..2], places);
        drop((bodies, small));
        assert_eq!(files(), 0);
    }

    /// A ticket whose batch was at the provider already was told that its fate is unknown.
    #[test]
    fn bodies_of_tickets_stay_in_memory_where_the_folder_takes_none() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, pieces) = (dir.path().join("gone"), pieces());
        let mut bodies = Bodies::new(&gone).of_tickets();
        let places: Vec<u64> = pieces.iter().map(|piece| bodies.push(piece).unwrap()).collect();
        bodies.put_away();
        assert_holds(&bodies, &pieces, places);
        let mut of_a_run = Bodies::new(&gone);
        let pushed = pieces.iter().find_map(|piece| of_a_run.push(piece).err());
        assert!(pushed.unwrap().to_string().starts_with("cannot write the bodies to"));
    }

    /// Two runs took each other's file away before it was open.
    #[test]
    fn many_at_a_time_have_a_file_each() {
        // On a busy disk it takes seconds to make so many files.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join(FILE);
        std::thread::scope(|scope| {
            for n in 0..8_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut file = nameless(path).unwrap();
                        file.write_all(&[n; 9]).unwrap();
                        assert_eq!(file.metadata().unwrap().len(), 9);
                    }
                });
            }
        });
    }
}
