//! What became of a run, as a page for browsers: one file, with nothing to be loaded beside it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::board::Board;
use super::report::{Figure, Summary, Told, short};
use crate::demo::OneByOne;
use crate::exit::Stop;
use crate::input::plain_file;
use crate::plan::Task;

/// How each page begins, by which an earlier one is known.
const BEGINNING: &str = "<!DOCTYPE html>\n<!-- What became of a run of batchyard. -->\n";

const STYLE: &str = "\
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border-bottom: 1px solid #ccc; padding: .3em .8em; text-align: left; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
code { overflow-wrap: anywhere; }
.succeeded { color: #060; } .failed { color: #a00; } .pending, .skipped { color: #850; }
";

/// Where the page is to be.
#[derive(Debug)]
pub(crate) struct Page {
    path: PathBuf,
}

/// What a page tells.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    pub(crate) board: &'a Board<'a>,
    pub(crate) summary: &'a Summary,
    pub(crate) one_by_one: Option<&'a OneByOne>,
    /// What is to be said beside the tasks: what keeps them from landing, what could not be recorded.
    pub(crate) notes: &'a [String],
}

impl Page {
    /// Checks that a page can be written there; an earlier one may be there, and nothing else. Nothing is
    /// left behind.
    ///
    /// # Errors
    ///
    /// It is a folder or no file on disk, holds something else, or the folder cannot be written to.
    pub(crate) fn at(path: &Path) -> Result<Page, Stop> {
        let name = path.display();
        plain_file(path)?;
        let cannot = |error: io::Error| {
            Stop::refused(format_args!("cannot write the report {name}: {error}"))
                .help("name a file in a folder that can be written to")
        };
        if !is_page(path).map_err(cannot)? {
            return Err(Stop::refused(format_args!("{name} holds something else than a report"))
                .help("name another file with --report, or move that one away"));
        }
        tempfile::tempfile_in(folder_of(path)).map_err(cannot)?;
        Ok(Page { path: path.to_owned() })
    }

    /// Writes the page, whole or not at all.
    ///
    /// # Errors
    ///
    /// It cannot be written, for example because the disk is full, or something else is there by now.
    pub(crate) fn write(&self, content: &Content<'_>) -> io::Result<()> {
        if !is_page(&self.path)? {
            return Err(io::Error::other("something else is there by now"));
        }
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(name);
        let written = File::create_new(&new)
            .and_then(|mut file| {
                file.write_all(html(content).as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Says whether nothing is there, or an earlier page.
fn is_page(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut beginning = Vec::new();
    file.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning == BEGINNING.as_bytes())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn html(content: &Content<'_>) -> String {
    let plan = content.board.plan;
    let title = escaped(&format!("Run of {}", plan.file.display()));
    let mut html = format!(
        "{BEGINNING}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    let mut put = |text: std::fmt::Arguments<'_>| {
        html.write_fmt(text).expect("a String takes all that is written");
    };
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC");
    put(format_args!("<p>Ended at {now}.</p>\n<table>\n"));
    let compared = content.one_by_one.map(|compared| content.summary.compared(compared));
    for figure in content.summary.figures().into_iter().chain(compared) {
        put(format_args!("{}", row_of_figure(&figure)));
    }
    put(format_args!("</table>\n"));
    for note in content.notes {
        put(format_args!("<p>{}</p>\n", escaped(note)));
    }
    put(format_args!(
        "<table>\n<tr><th>task</th><th>kind</th><th>model</th><th>status</th><th>commit</th>\
         <th>what happened</th></tr>\n"
    ));
    for (_, task, standing) in content.board.iter() {
        put(format_args!("{}", row_of_task(task, &Told::of(standing))));
    }
    put(format_args!("</table>\n</body>\n</html>\n"));
    html
}

fn row_of_figure((name, value, more): &Figure) -> String {
    let (value, more) = (escaped(value), escaped(more));
    format!("<tr><th>{name}</th><td class=\"number\">{value}</td><td>{more}</td></tr>\n")
}

fn row_of_task(task: &Task, told: &Told<'_>) -> String {
    let status = told.status;
    let commit = told.commit.map_or_else(String::new, |commit| {
        let (full, short) = (escaped(commit), escaped(short(commit)));
        format!("<code title=\"{full}\">{short}</code> on <code>{}</code>", escaped(&task.branch()))
    });
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{status}\">{status}</td><td>{commit}</td>\
         <td>{}</td></tr>\n",
        escaped(&task.id),
        escaped(&task.kind),
        escaped(&task.model),
        escaped(&told.why(task).unwrap_or_default()),
    )
}

/// Text of others as text, whatever is in it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push_str("<br>"),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_becomes_a_part_of_the_page() {
        assert_eq!(
            escaped("<a href=\"x\">&'\u{1b}</a>"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\\u{1b}&lt;/a&gt;"
        );
        assert_eq!(escaped("one\ntwo"), "one<br>two");
    }
}
