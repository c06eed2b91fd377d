//! Reads inputs whole before anything is done: lines with a cap, files with a name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::exit::Stop;

/// The longest line that is read, in bytes without the line end: 64 MiB.
pub(crate) const MAX_LINE_BYTES: u64 = 64 << 20;

/// The largest file that is read whole (a plan, template data), in bytes: 64 MiB.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Where an input comes from: a file, or stdin for `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Stdin,
    File(PathBuf),
}

/// One line that is not blank, and its number from 1.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl Input {
    /// Returns the name to use in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Input::Stdin => "<stdin>".to_owned(),
            Input::File(path) => path.display().to_string(),
        }
    }

    /// Reads every line that is not blank.
    pub(crate) fn lines(&self) -> Result<Vec<Line>, Stop> {
        self.each_line()?.collect()
    }

    /// Opens the input to read every line that is not blank, one at a time.
    pub(crate) fn each_line(&self) -> Result<Lines, Stop> {
        Ok(Lines { name: self.name(), reader: self.open()?, number: 0 })
    }

    /// Reads everything as one text.
    pub(crate) fn read_text(&self) -> Result<String, Stop> {
        let name = self.name();
        let mut bytes = Vec::new();
        self.open()?
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&name, &error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(Stop::refused(format_args!(
                "{name} is larger than {} MiB",
                MAX_FILE_BYTES >> 20
            )));
        }
        String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + String::from_utf8_lossy(valid).matches('\n').count();
            Stop::refused(format_args!("{name}:{line}: the file is not UTF-8"))
        })
    }

    fn open(&self) -> Result<Box<dyn BufRead>, Stop> {
        match self {
            Input::Stdin => Ok(Box::new(io::stdin().lock())),
            Input::File(path) => Ok(Box::new(BufReader::new(open_file(path)?))),
        }
    }
}

/// The lines of an input that are not blank. After an error there is no more.
pub(crate) struct Lines {
    name: String,
    reader: Box<dyn BufRead>,
    number: usize,
}

impl Lines {
    fn read(&mut self) -> Result<Option<Line>, Stop> {
        let name = &self.name;
        loop {
            let mut bytes = Vec::new();
            let read = (&mut self.reader)
                .take(MAX_LINE_BYTES + 2)
                .read_until(b'\n', &mut bytes)
                .map_err(|error| unreadable(name, &error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let number = self.number;
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.len() as u64 > MAX_LINE_BYTES {
                return Err(Stop::refused(format_args!(
                    "{name}:{number}: the line is longer than {} MiB",
                    MAX_LINE_BYTES >> 20
                ))
                .help("split the record, or refer to the content by its object id"));
            }
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to() + 1;
                Stop::refused(format_args!("{name}:{number}: byte {at} is not UTF-8"))
                    .help("write the file as UTF-8; bytes of other kinds go in as base64")
            })?;
            if !text.trim_ascii().is_empty() {
                return Ok(Some(Line { number, text }));
            }
        }
    }
}

impl Iterator for Lines {
    type Item = Result<Line, Stop>;

    fn next(&mut self) -> Option<Result<Line, Stop>> {
        self.read().transpose()
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Input {
        if path.as_os_str() == "-" { Input::Stdin } else { Input::File(path) }
    }
}

/// Opens a file to read; a folder is refused by name.
pub(crate) fn open_file(path: &Path) -> Result<File, Stop> {
    let name = path.display();
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Stop::refused(format_args!("{name} does not exist")),
        _ => Stop::refused(format_args!("cannot open {name}: {error}")),
    })?;
    let is_folder = file.metadata().is_ok_and(|data| data.is_dir());
    if is_folder {
        return Err(Stop::refused(format_args!("{name} is a folder, not a file")));
    }
    Ok(file)
}

/// Refuses what is there but no file: a folder, and a device, pipe or socket, which may never end
/// or never open. That nothing is there is fine.
pub(crate) fn plain_file(path: &Path) -> Result<(), Stop> {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => {
            Err(Stop::refused(format_args!("{name} is a folder, not a file")))
        }
        Ok(data) if !data.is_file() => {
            Err(Stop::refused(format_args!("{name} is a device, pipe or socket, not a file"))
                .help("name a file on disk"))
        }
        _ => Ok(()),
    }
}

/// Checks that `path` is a folder that exists.
pub(crate) fn existing_folder(path: &Path, what: &str) -> Result<(), Stop> {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => Ok(()),
        Ok(_) => Err(Stop::refused(format_args!("{what} {name} is not a folder"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Stop::refused(format_args!("{what} {name} does not exist")))
        }
        Err(error) => Err(Stop::refused(format_args!("cannot open {what} {name}: {error}"))),
    }
}

fn unreadable(name: &str, error: &io::Error) -> Stop {
    Stop::refused(format_args!("cannot read {name}: {error}"))
}
