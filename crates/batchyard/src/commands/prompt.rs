//! `prompt`: the prompt templates of one folder.

mod migrate;

use std::path::{Path, PathBuf};

use prompt_templates::{Context, Error, Prompts};
use serde_json::json;

use crate::cli::Session;
use crate::exit::{Exit, Stop};
use crate::input::{Input, existing_folder};
use crate::suggest;

/// A template, and what can stand in one.
const TEMPLATE: &str = r#"A template is a file NAME.prompt.md of the folder:

    [[system]]
    You review {{ language }}.
    {% include "_rules" %}
    [[user]]
    {% for file in files %}
    {{ file | fence: "rust" }}
    {% endfor %}

A line [[system]], [[user]] or [[assistant]] begins a message; a line [[history]] stands for the
messages of the variable history, a list of {"role", "content"}. A file _NAME.prompt.md is a
partial, to be included. {% if x %}, {% else %}, {% endif %} and {% raw %} are as elsewhere. A
variable that is not in the data is an error; one that may be absent is written ?.name.
Functions: default, join, len, json, indent, quote, fence, xml, truncate_tokens, contains, and, or,
eq, ne, lt, le, gt, ge. Front matter between two --- lines: variables, volatile, drop_first,
delimiters (lists) and tidy_blocks: true."#;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Render one template
    #[command(after_long_help = TEMPLATE)]
    Render(Render),
    /// Check all templates; status 1 if one is broken
    #[command(after_long_help = TEMPLATE)]
    Check(Folder),
    /// Print the names of the templates
    List(Folder),
    /// Rewrite templates of Go (text/template); status 1 if some of it is left to do by hand
    #[command(after_long_help = migrate::EXPLAINED)]
    Migrate(migrate::Migrate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Folder {
    /// Folder of the templates
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Render {
    /// Folder of the templates
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the template, without .prompt.md
    #[arg(value_name = "NAME")]
    name: String,
    /// The values, one JSON object; - for stdin. Integers of up to 128 bits come out as written
    #[arg(long, value_name = "FILE.json")]
    data: PathBuf,
    /// Print a JSON array of {"role","content"} in place of one text
    #[arg(long)]
    messages: bool,
}

pub(crate) fn run(session: &Session, command: &Command) -> Result<Exit, Stop> {
    match command {
        Command::Render(options) => render(session, options),
        Command::Check(options) => check(session, &options.folder),
        Command::List(options) => list(session, &options.folder),
        Command::Migrate(options) => migrate::run(session, options),
    }
}

fn render(session: &Session, options: &Render) -> Result<Exit, Stop> {
    let prompts = load(&options.folder)?;
    let prompt = find(&prompts, &options.name).map_err(Stop::refused)?;
    let input = Input::from(options.data.clone());
    let context =
        Context::from_json(&input.read_text()?).map_err(|error| no_data(&input, &error))?;
    let output = &session.output;
    if options.messages {
        let messages = prompt.messages(&context).map_err(|error| not_rendered(&error))?;
        output.object(&messages);
    } else {
        let text = prompt.render(&context).map_err(|error| not_rendered(&error))?;
        if output.json {
            output.object(&json!({ "name": options.name, "text": text }));
        } else {
            output.text(&text);
        }
    }
    Ok(Exit::Done)
}

fn check(session: &Session, folder: &Path) -> Result<Exit, Stop> {
    existing_folder(folder, "the folder")?;
    let faults = prompt_templates::check_dir(folder);
    let output = &session.output;
    let put = |severity: &str, fault: &Error| {
        if output.json {
            output.object(&json!({
                "severity": severity,
                "template": fault.template_name(),
                "line": fault.line(),
                "column": fault.column(),
                "message": fault.message(),
                "help": fault.help_text(),
            }));
        } else {
            // What helps is on a line of its own.
            format!("{severity}: {fault:#}").lines().for_each(|line| output.human(line));
        }
    };
    for fault in &faults {
        put("error", fault);
    }
    // What is not wrong but worth a look is known only of templates that go together.
    let mut warnings = Vec::new();
    if faults.is_empty() {
        let prompts = load(folder)?;
        let all = prompts.names().into_iter().filter_map(|name| prompts.get(&name));
        warnings.extend(all.flat_map(|prompt| prompt.warnings()));
    }
    for warning in &warnings {
        put("warning", warning);
    }
    let (faults, warnings) = (faults.len(), warnings.len());
    if output.json {
        output.object(&json!({ "summary": { "faults": faults, "warnings": warnings } }));
    } else {
        output.human(format!(
            "{}, {}",
            counted(faults, "fault", "faults"),
            counted(warnings, "warning", "warnings")
        ));
    }
    Ok(Exit::of_failed(faults))
}

fn list(session: &Session, folder: &Path) -> Result<Exit, Stop> {
    let prompts = load(folder)?;
    for prompt in prompts.names().iter().filter_map(|name| prompts.get(name)) {
        if session.output.json {
            session.output.object(&json!({
                "name": prompt.name(),
                "variables": prompt.variables(),
                "digest": prompt.digest(),
                "stable_prefix_bytes": prompt.stable_prefix().bytes(),
            }));
        } else {
            session.output.human(prompt.name());
        }
    }
    Ok(Exit::Done)
}

/// Loads a folder of templates; every fault in it is named.
pub(crate) fn load(folder: &Path) -> Result<Prompts, Stop> {
    existing_folder(folder, "the prompts folder")?;
    Prompts::load_dir(folder).map_err(|errors| {
        // Each of them begins as one, as those of `check` do.
        let errors: Vec<_> = errors.errors().iter().map(|error| format!("{error:#}")).collect();
        Stop::refused(errors.join("\nerror: "))
    })
}

/// Finds a template by name.
///
/// # Errors
///
/// There is none; names what there is.
pub(crate) fn find(prompts: &Prompts, name: &str) -> Result<prompt_templates::Prompt, String> {
    prompts.get(name).ok_or_else(|| {
        let names = prompts.names();
        let known: Vec<&str> = names.iter().map(|name| &**name).collect();
        let hint = suggest::hint(name, &known);
        if hint.is_empty() {
            return format!("there is no template {name:?}: it would be the file {name}.prompt.md");
        }
        format!("there is no template {name:?}{hint}")
    })
}

fn not_rendered(error: &Error) -> Stop {
    Stop::failed(format_args!("{error:#}"))
}

fn no_data(input: &Input, error: &Error) -> Stop {
    let place =
        [error.line(), error.column()].map(|at| at.map_or(String::new(), |at| format!(":{at}")));
    let fault =
        Stop::refused(format_args!("{}{}: {}", input.name(), place.concat(), error.message()));
    let shape = "the data is one JSON object whose keys are the names in the template";
    fault.help(error.help_text().unwrap_or(shape))
}

/// Returns a count with the word for it.
fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}
