//! The bodies of a run, outside of memory once they are many.

mod anew;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::durable::{self, private};
use crate::error::Error;

pub(crate) use anew::{Anew, Encode};

/// What is kept in memory; more goes into a file.
const KEPT: usize = 1024 * 1024;

/// The name that the file has for the moment between making it and removing it from the folder.
pub(crate) const FILE: &str = "bodies.tmp";

/// Bytes that are written once and read by position, in a file that is gone with the process.
#[derive(Debug)]
pub(crate) struct Bodies {
    dir: PathBuf,
    tail: Vec<u8>,
    file: Option<File>,
    /// How much is in the file; the tail begins there.
    flushed: u64,
}

impl Bodies {
    /// Returns none yet. A file, if one is needed, is made in `dir`.
    pub(crate) fn new(dir: &Path) -> Bodies {
        Bodies { dir: dir.to_owned(), tail: Vec::new(), file: None, flushed: 0 }
    }

    /// Appends and returns the position.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        if self.tail.len() + bytes.len() > KEPT && !self.tail.is_empty() {
            self.flush()?;
        }
        let at = self.flushed + self.tail.len() as u64;
        self.tail.extend_from_slice(bytes);
        Ok(at)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let path = self.dir.join(FILE);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless(&path).map_err(durable::io("write", &path))?),
        };
        file.write_all(&self.tail).map_err(durable::io("write", &path))?;
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
            (None, Some(file)) => file.read_exact_at(buffer, at),
            (None, None) => Err(beyond()),
        }
    }
}

/// Makes a file for the owner alone that no crash leaves behind.
fn nameless(path: &Path) -> io::Result<File> {
    // Passes of one batcher may want one at the same time, under the same name.
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

    #[test]
    fn what_goes_in_comes_out_wherever_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut bodies = Bodies::new(dir.path());
        let pieces: Vec<Vec<u8>> =
            (0..50_u8).map(|n| vec![n; 1 + usize::from(n) * 2_500]).collect();
        let places: Vec<u64> = pieces.iter().map(|piece| bodies.push(piece).unwrap()).collect();
        assert!(bodies.file.is_some() && !bodies.tail.is_empty());
        for (piece, at) in pieces.iter().zip(places) {
            let mut read = vec![0; piece.len()];
            bodies.read(at, &mut read).unwrap();
            assert_eq!(read, *piece);
        }
        assert!(bodies.read(bodies.flushed, &mut vec![0; bodies.tail.len() + 1]).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
    }

    /// Two passes of tickets took each other's file away before it was open.
    #[test]
    fn many_at_a_time_have_a_file_each() {
        let dir = tempfile::tempdir().unwrap();
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
