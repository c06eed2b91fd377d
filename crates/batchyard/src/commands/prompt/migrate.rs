//! `prompt migrate`: templates of Go, rewritten.

use std::fs;
use std::path::{Path, PathBuf};

use prompt_templates::Migration;
use serde_json::json;

use crate::cli::Session;
use crate::exit::{Exit, Stop};
use crate::input::existing_folder;

/// What files of Go templates end in.
const ENDINGS: [&str; 4] = [".tmpl", ".gotmpl", ".tpl", ".gohtml"];

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
    if let Some(out) = &options.out {
        write(&migration, out)?;
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
            output.line(format!("{}/{note}", options.folder.display()));
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
        output.line(format!("{all} sources, {templates} templates, {notes} places to look at"));
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
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                let text = fs::read_to_string(&path)
                    .map_err(|error| Stop::refused(format_args!("{}: {error}", path.display())))?;
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy();
                sources.push((name.into_owned(), text));
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

/// Writes the templates; if one is there already, none is written.
fn write(migration: &Migration, out: &Path) -> Result<(), Stop> {
    let path = |name: &str| out.join(format!("{name}.prompt.md"));
    let mut paths: Vec<_> = migration.templates.iter().map(|one| path(&one.name)).collect();
    if let Some(there) = paths.iter().find(|path| path.exists()) {
        return Err(Stop::refused(format_args!("{} is there already", there.display()))
            .help("name an empty folder, or move the file away"));
    }
    paths.sort();
    if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Stop::refused(format_args!("two sources would become {}", twice[0].display()))
            .help("rename one of them, and what includes it"));
    }
    for template in &migration.templates {
        let path = path(&template.name);
        let folder = path.parent().unwrap_or(out);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, &template.text))
            .map_err(|error| Stop::failed(format_args!("{}: {error}", path.display())))?;
    }
    Ok(())
}
