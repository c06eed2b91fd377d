//! What is not wrong with a prompt, but worth a look.

use std::collections::{HashMap, HashSet};

use crate::compiled::Compiled;
use crate::facts::Use;
use crate::front_matter::VARIABLES;
use crate::lex::Chunk;
use crate::linked::Linked;
use crate::parse::Parsed;
use crate::{Error, ErrorKind};

/// Warnings about variables that are not used; nobody reads more.
const MAX_UNUSED: usize = 100;

/// Bytes behind a volatile variable that nobody would move it for.
const SLACK: usize = 200;

pub(crate) fn warnings(linked: &Linked) -> Vec<Error> {
    let mut warnings = unused(linked);
    warnings.extend(volatile(linked));
    warnings
}

/// Declared variables that neither the template nor anything it includes uses.
fn unused(linked: &Linked) -> Vec<Error> {
    let root = &linked.root;
    let used = linked.variables();
    let places = declarations(&root.text[..root.front_matter.body]);
    let unused = |name: &&String| !used.contains(*name);
    let warning = |name: &String| {
        let message = format!("the variable '{name}' is declared and not used");
        let error = Error::new(ErrorKind::Unused, message).named(name);
        root.locate(error, places.get(name.as_str()).copied().unwrap_or_default())
    };
    let declared = root.front_matter.variables().unwrap_or_default();
    declared.iter().filter(unused).take(MAX_UNUSED).map(warning).collect()
}

/// Returns where each word first stands behind the key of the variables.
fn declarations(head: &str) -> HashMap<&str, usize> {
    let mut places = HashMap::new();
    let start = head.find(VARIABLES).map_or(0, |key| key + VARIABLES.len());
    let mut at = start;
    for piece in head[start..].split_inclusive(|c: char| c != '_' && !c.is_alphanumeric()) {
        let word = piece.trim_end_matches(|c: char| c != '_' && !c.is_alphanumeric());
        places.entry(word).or_insert(at);
        at += piece.len();
    }
    places
}

/// The first variable that is another in each render, if text that never changes comes behind it.
fn volatile(linked: &Linked) -> Option<Error> {
    let names: HashSet<&str> =
        linked.root.front_matter.volatile().iter().map(String::as_str).collect();
    if names.is_empty() {
        return None;
    }
    let mut walk = Walk { linked, names, first: None, behind: 0 };
    walk.visit(&linked.root);
    let Walk { first, behind, .. } = walk;
    let (name, compiled, offset) = first.filter(|_| behind > SLACK)?;
    let message = format!(
        "the volatile variable '{name}' stands in front of {behind} bytes that are the same in every render"
    );
    let help = "move it behind them: a provider's cache ends at the first byte that differs";
    let error = Error::new(ErrorKind::Volatile, message).named(name).help(help);
    Some(compiled.locate(error, offset))
}

/// Goes through a template in the order in which it is rendered.
struct Walk<'w> {
    linked: &'w Linked,
    names: HashSet<&'w str>,
    /// The first volatile variable: its name, its template and its place there.
    first: Option<(String, &'w Compiled, usize)>,
    /// Bytes of text behind it.
    behind: usize,
}

impl<'w> Walk<'w> {
    fn visit(&mut self, compiled: &'w Compiled) {
        let Some(Parsed { segments, facts, .. }) = compiled.parsed() else { return };
        let is_volatile =
            |used: &&Use| !used.is_local && self.names.contains(used.root(&compiled.text));
        let volatile = facts.uses.iter().filter(is_volatile).min_by_key(|used| used.span.start);
        // In the order of the text, as the tags are.
        let mut includes = facts.includes.iter().peekable();
        for chunk in segments.iter().flat_map(|segment| &segment.chunks) {
            let tag = match chunk {
                Chunk::Text(span) | Chunk::Raw(span) => {
                    self.behind += if self.first.is_some() { span.len() } else { 0 };
                    continue;
                }
                Chunk::Silent { .. } => continue,
                Chunk::Expression(tag) | Chunk::Block(tag) => tag,
            };
            let used = volatile.filter(|used| tag.span.contains(&used.span.start));
            if let (None, Some(used)) = (&self.first, used) {
                let name = used.root(&compiled.text).to_owned();
                self.first = Some((name, compiled, used.span.start));
            }
            let include = includes.next_if(|include| tag.span.contains(&include.offset));
            if let Some(partial) = include.and_then(|include| self.linked.partial(&include.name)) {
                self.visit(partial);
            }
        }
    }
}
