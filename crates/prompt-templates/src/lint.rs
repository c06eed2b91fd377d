//! What is not wrong with a prompt, but worth a look.

use std::collections::HashSet;

use crate::compiled::Compiled;
use crate::lex::Chunk;
use crate::linked::Linked;
use crate::parse::Parsed;
use crate::{Error, ErrorKind};

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
    let head = &root.text[..root.front_matter.body];
    let unused = |name: &&String| !used.contains(*name);
    let warning = |name: &String| {
        let message = format!("the variable '{name}' is declared and not used");
        let error = Error::new(ErrorKind::Unused, message).named(name);
        root.locate(error, head.find(name.as_str()).unwrap_or_default())
    };
    let declared = root.front_matter.variables().unwrap_or_default();
    declared.iter().filter(unused).map(warning).collect()
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
        let Some(Parsed { segments, facts }) = compiled.parsed() else { return };
        for chunk in segments.iter().flat_map(|segment| &segment.chunks) {
            let tag = match chunk {
                Chunk::Text(span) | Chunk::Raw(span) => {
                    self.behind += if self.first.is_some() { span.len() } else { 0 };
                    continue;
                }
                Chunk::Silent { .. } => continue,
                Chunk::Expression(tag) | Chunk::Block(tag) => tag,
            };
            let used = facts.uses.iter().find(|used| {
                let is_here =
                    used.members.first().is_some_and(|m| tag.span.contains(&m.span.start));
                is_here && !used.is_local && self.names.contains(used.root())
            });
            if let (None, Some(used)) = (&self.first, used) {
                self.first = Some((used.root().to_owned(), compiled, used.members[0].span.start));
            }
            let include = facts.includes.iter().find(|include| tag.span.contains(&include.offset));
            if let Some(partial) = include.and_then(|include| self.linked.partial(&include.name)) {
                self.visit(partial);
            }
        }
    }
}
