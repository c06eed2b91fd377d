use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::OpenError;
use crate::fault::Fault;
use crate::intake::Intake;
use crate::lesson::Lesson;
use crate::options::Options;
use crate::path::open_regular;
use crate::report::LoadReport;
use crate::source::CHUNK_BYTES;

/// Reports on a file without an index of it: what [`LessonsIndex::open`](crate::LessonsIndex)
/// would say. A pipe is a file too. Memory: the ids, and one line.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("lessons.jsonl");
/// std::fs::write(&path, "{\"id\":\"a\"}\n{\"id\":\n{\"id\":\"a\"}\n")?;
/// let report = lessons_index::check(&path)?;
/// assert_eq!((report.lines, report.lessons, report.duplicates, report.faults_total), (3, 1, 1, 1));
/// assert_eq!((report.faults[0].line, report.faults[0].offset), (2, 11));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns [`OpenError`] when the file is missing, is no file or cannot be read. Broken lines
/// are no error.
pub fn check(path: impl AsRef<Path>) -> Result<LoadReport, OpenError> {
    check_each(path, &Options::default(), |_| {})
}

/// Does what [`check`] does and hands on every fault, however many there are, in order.
///
/// # Errors
///
/// As [`check`]; in strict mode the first fault is an error too.
pub fn check_each(
    path: impl AsRef<Path>,
    options: &Options,
    on_fault: impl FnMut(&Fault),
) -> Result<LoadReport, OpenError> {
    let path = path.as_ref();
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    let file = if is_pipe {
        File::open(path).map_err(|source| OpenError::Read { path: path.to_owned(), source })?
    } else {
        open_regular(path)?.0
    };
    check_reader(file, path, options, on_fault)
}

fn check_reader(
    input: impl Read,
    path: &Path,
    options: &Options,
    mut on_fault: impl FnMut(&Fault),
) -> Result<LoadReport, OpenError> {
    let mut intake = Intake::new(options);
    let mut ids = HashSet::new();
    let mut note = |lesson: Arc<Lesson>| {
        if lesson.is_tombstone() {
            ids.remove(&lesson.id);
        } else {
            ids.insert(lesson.id.clone());
        }
    };
    let broken = |fault: Fault| OpenError::Fault { path: path.to_owned(), fault: Box::new(fault) };
    let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
    for_each_chunk(input, unreadable, |bytes| {
        intake.feed(bytes, &mut note, &mut on_fault).map_err(broken)
    })?;
    intake.settle(note, on_fault).map_err(broken)?;
    Ok(intake.summary().report(ids.len()))
}

/// Reads anything, in pieces.
fn for_each_chunk<E>(
    mut input: impl Read,
    on_error: impl Fn(io::Error) -> E,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => sink(&chunk[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(on_error(error)),
        }
    }
}
