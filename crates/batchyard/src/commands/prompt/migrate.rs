//! `prompt migrate`: templates of Go, rewritten.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use prompt_templates::Migration;
use serde_json::json;

use super::counted;
use crate::cli::Session;
use crate::exit::{Exit, Stop};
use crate::input::{Input, existing_folder};

/// What files of Go templates end in.
const ENDINGS: [&str; 4] = [".tmpl", ".gotmpl", ".tpl", ".gohtml"];

/// What a template of ours may have.
const MAX_BYTES: usize = 16 << 20;

/// What becomes of a source.
pub(super) const EXPLAINED: &str = r#"Every *.tmpl, *.gotmpl, *.tpl and *.gohtml of the folder is read, none is changed. With --out the
rewritten templates are written as NAME.prompt.md, a definition or an included file as _NAME.prompt.md;
files that are there already are never replaced. What has no counterpart is left as it is, so that it
does not compile, and printed with its line. Exit status 1 if anything is left to look at; then
"batchyard prompt check" names what does not compile yet."#;

#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    /// Folder of the Go templates
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder to write the templates to; without it nothing is written
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(session: &Session, options: &Migrate) -> Result<Exit, Stop> {
    existing_folder(&options.folder, "the folder")?;
    let sources = read(&options.folder)?;
    let named = sources.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let migration = prompt_templates::migrate(named);
    let paths = paths(&migration, options.out.as_deref().unwrap_or(Path::new("")))?;
    if let Some(out) = &options.out {
        write(&migration, out, &paths)?;
    }
    let output = &session.output;
    for note in &migration.notes {
        if output.json {
            output.object(&json!({
                "source": note.source,
                "line": note.line,
                "column": note.column,
                "message": note.message,
            }));
        } else {
            output.human(format!("{}/{note}", options.folder.display()));
        }
    }
    let [all, templates, notes] = [sources.len(), migration.templates.len(), migration.notes.len()];
    if output.json {
        for template in &migration.templates {
            output.object(&json!({ "template": template.name, "text": template.text }));
        }
        let summary = json!({ "sources": all, "templates": templates, "notes": notes });
        output.object(&json!({ "summary": summary }));
    } else {
        output.human(format!(
            "{}, {}, {} to look at",
            counted(all, "source", "sources"),
            counted(templates, "template", "templates"),
            counted(notes, "place", "places")
        ));
    }
    Ok(Exit::of_failed(notes))
}

/// Reads the Go templates of a folder, by their path in it.
fn read(folder: &Path) -> Result<Vec<(String, String)>, Stop> {
    let mut sources = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(dir) = folders.pop() {
        let cannot = |error| Stop::refused(format_args!("{}: {error}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(cannot)?);
            let name = entry.file_name();
            let shown = name.to_string_lossy();
            if shown.starts_with('.') {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if ENDINGS.iter().any(|ending| shown.ends_with(ending)) {
                let refuse = |why: &str| Stop::refused(format_args!("{}: {why}", path.display()));
                if !kind.is_file() {
                    return Err(refuse("it is a link, device or pipe, not a file"));
                }
                let text = Input::File(path.clone()).read_text()?;
                if text.len() > MAX_BYTES {
                    return Err(refuse("it is larger than the 16 MiB that a template may have"));
                }
                let name = path.strip_prefix(folder).unwrap_or(&path).to_str();
                sources
                    .push((name.ok_or_else(|| refuse("its name is not UTF-8"))?.to_owned(), text));
            }
        }
    }
    if sources.is_empty() {
        let endings = ENDINGS.join(", *");
        return Err(Stop::refused(format_args!("{}: no Go templates", folder.display()))
            .help(format_args!("their names end in *{endings}")));
    }
    sources.sort();
    Ok(sources)
}

/// Returns where each template goes. Their names come from the sources: none may lead out of the
/// folder, or to where another one is.
fn paths(migration: &Migration, out: &Path) -> Result<Vec<PathBuf>, Stop> {
    let mut paths = Vec::new();
    for name in migration.templates.iter().map(|template| &template.name) {
        let is_inside =
            Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || name.contains(|c: char| c.is_control() || "\"\\".contains(c)) {
            return Err(Stop::refused(format_args!("{name:?} cannot be the name of a template"))
                .help("rename the source or the definition, and what includes it"));
        }
        let file = format!("{name}.prompt.md");
        // By its parts, so that one path is written in one way.
        paths.push(out.components().chain(Path::new(&file).components()).collect::<PathBuf>());
    }
    let mut sorted: Vec<_> = paths.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Stop::refused(format_args!("two sources would become {}", twice[0].display()))
            .help("rename one of them, and what includes it"));
    }
    Ok(paths)
}

/// Writes the templates; if one is there already, none is written.
fn write(migration: &Migration, out: &Path, paths: &[PathBuf]) -> Result<(), Stop> {
    // A link counts, wherever it leads.
    if let Some(there) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Stop::refused(format_args!("{} is there already", there.display()))
            .help("name an empty folder, or move the file away"));
    }
    fs::create_dir_all(out)
        .map_err(|error| Stop::refused(format_args!("{}: {error}", out.display())))?;
    for (template, path) in migration.templates.iter().zip(paths) {
        create(path, &template.text)
            .map_err(|error| Stop::failed(format_args!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Writes a file that is not there.
fn create(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
