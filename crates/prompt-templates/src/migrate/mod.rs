//! From Go `text/template` to templates of this crate.

mod expression;
mod tokens;
mod tree;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::position::{Position, Positions};
use expression::Scope;
use tokens::{Piece, Token};
use write::Writer;

/// Templates that were made of Go templates, and what is left to do by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The templates, ordered by name: one for each source, and one for each definition in it.
    pub templates: Vec<MigratedTemplate>,
    /// What was not rewritten, or should be checked, in the order of the sources.
    pub notes: Vec<MigrationNote>,
}

/// A template that was made of a Go template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigratedTemplate {
    /// The name; it belongs into a file `NAME.prompt.md`.
    pub name: String,
    /// The text.
    pub text: String,
}

/// A place in a Go template that somebody has to look at.
///
/// `{}` is one line: source, line, column and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationNote {
    /// The name of the source.
    pub source: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// What could not be rewritten, and why.
    pub message: String,
}

impl fmt::Display for MigrationNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.source, self.line, self.column, self.message)
    }
}

/// Rewrites Go templates, given as names and texts.
///
/// Whatever has a counterpart is rewritten: fields, `if`, `range`, `with`, variables, definitions,
/// comparisons, white space marks. What has none is left as it is, so that it does not compile, and
/// noted with its line. Text stays byte for byte. A source that others include becomes a partial, with
/// a `_` in front; the endings `.tmpl`, `.gotmpl`, `.tpl`, `.gohtml` and `.txt` are no part of a name.
///
/// Blocks nest up to 100 deep and brackets up to 64; what is deeper is left and noted.
///
/// In a condition a field may be absent, as in Go, and is written `?.name`; elsewhere an absent one is
/// an error, where Go prints `<no value>`.
///
/// ```
/// let go = "{{range .Items}}{{if .Done}}- {{.Name | printf \"%s\"}}\n{{end}}{{end}}{{printf \"%5d\" .N}}";
/// let migration = prompt_templates::migrate([("list.tmpl", go)]);
/// assert_eq!(
///     migration.templates[0].text,
///     "{% for item in Items %}{% if item?.Done %}- {{ item.Name }}\n{% endif %}{% endfor %}\
///      {{printf \"%5d\" .N}}",
/// );
/// assert_eq!((migration.notes[0].line, migration.notes.len()), (2, 1));
/// ```
pub fn migrate<'s>(sources: impl IntoIterator<Item = (&'s str, &'s str)>) -> Migration {
    let sources: Vec<_> = sources
        .into_iter()
        .map(|(name, source)| {
            let (pieces, unclosed) = tokens::split(source);
            (name, source, pieces, unclosed)
        })
        .collect();
    let included: BTreeSet<&str> =
        sources.iter().flat_map(|(_, _, pieces, _)| pieces.iter().filter_map(includes)).collect();
    // A source is included by its whole name, or by the last part of it.
    let is_partial = |name: &str| {
        included.contains(name)
            || name.rsplit('/').next().is_some_and(|last| included.contains(last))
    };
    // What Go calls a source: its whole name, or the last part of it; the first one of that name.
    let mut named = BTreeMap::new();
    for &(name, ..) in &sources {
        named.entry(name).or_insert(name);
        named.entry(name.rsplit('/').next().unwrap_or(name)).or_insert(name);
    }
    let rename = |go: &str| partial(stem(named.get(go).copied().unwrap_or(go)));
    let mut migration = Migration::default();
    for (name, source, pieces, unclosed) in &sources {
        let (nodes, mut faults) = tree::build(pieces.clone());
        faults.extend(unclosed.map(|at| (at, "an action is not closed by '}}'".to_owned())));
        let mut writer = Writer {
            source,
            rename: &rename,
            output: String::new(),
            faults: Vec::new(),
            defined: Vec::new(),
            loops: 0,
        };
        writer.nodes(&nodes, &mut Scope::default());
        let Writer { output, faults: more, defined, .. } = writer;
        faults.extend(more);
        faults.extend(role_lines(source));
        faults.sort_by_key(|(at, _)| *at);
        let own = if is_partial(name) { partial(stem(name)) } else { stem(name).to_owned() };
        let is_only_definitions = !defined.is_empty() && output.trim().is_empty();
        let whole = (!is_only_definitions).then_some((own, output));
        let templates = defined.into_iter().chain(whole);
        migration.templates.extend(templates.map(|(name, text)| MigratedTemplate { name, text }));
        let mut places = Positions::new(source);
        migration.notes.extend(faults.into_iter().map(|(at, message)| {
            let Position { line, column } = places.next_at(at);
            MigrationNote { source: (*name).to_owned(), line, column, message }
        }));
    }
    migration.templates.sort_by(|a, b| a.name.cmp(&b.name));
    migration
}

/// Returns the name that a piece includes.
fn includes(piece: &Piece) -> Option<&str> {
    let Piece::Action(_, tokens) = piece else { return None };
    match tokens.as_slice() {
        [Token::Word(word), Token::Text(name), ..] if word == "template" => Some(name),
        _ => None,
    }
}

fn stem(name: &str) -> &str {
    let endings = [".prompt.md", ".tmpl", ".gotmpl", ".tpl", ".gohtml", ".txt"];
    endings
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .filter(|s| !s.is_empty())
        .unwrap_or(name)
}

/// Returns the name of a partial.
fn partial(name: &str) -> String {
    let (folder, last) = match name.rsplit_once('/') {
        Some((folder, last)) => (format!("{folder}/"), last),
        None => (String::new(), name),
    };
    let last: String = last
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    let mark = if last.starts_with('_') { "" } else { "_" };
    format!("{folder}{mark}{last}")
}

/// Lines that would begin a message.
fn role_lines(source: &str) -> impl Iterator<Item = (usize, String)> {
    let mut at = 0;
    source.split_inclusive('\n').filter_map(move |line| {
        let start = at;
        at += line.len();
        let text = line.trim_end();
        let roles = ["[[system]]", "[[user]]", "[[assistant]]", "[[history]]"];
        roles
            .contains(&text)
            .then(|| (start, format!("'{text}' begins a message here; indent it if it is text")))
    })
}
