//! Says in the words of templates what `upon` says of a value that it stops at.

use crate::context::Context;
use crate::facts::Member;
use crate::functions::NOTHING;
use crate::value::type_of;
use crate::{Error, ErrorKind};

/// The path at which `upon` stops.
pub(crate) struct At<'a> {
    pub(crate) members: Vec<Member<'a>>,
    /// Which of the members it stops at.
    pub(crate) index: usize,
    /// What the path is looked up in, if that is known.
    pub(crate) context: Option<&'a Context>,
    /// The path is all that its tag asks for.
    pub(crate) is_alone: bool,
}

/// Returns the error of a value that is not what its tag needs.
pub(crate) fn value_error(reason: &str, at: Option<&At<'_>>) -> Error {
    let (message, help) = if reason == NOTHING {
        let name = at.map_or_else(|| "this".to_owned(), |at| path(&at.members));
        let message = format!("'{name}' is null and would print nothing");
        let help = "if that is right, write '?.' in its path; else '| default: \"..\"'";
        return Error::new(ErrorKind::Value, message).named(name).help(help);
    } else if let Some(kind) = reason.strip_prefix("expression evaluated to unformattable type ") {
        let help = "write '| json', '| join: \", \"' or a '{% for %}' loop";
        (format!("a {kind} cannot be printed"), help)
    } else if let Some(kind) =
        reason.strip_prefix("expected iterable, but expression evaluated to ")
    {
        let help =
            if kind == "none" { "write '| default: []' behind it if that is right" } else { "" };
        (no_iterable(kind, at), help)
    } else if let Some(kind) = no_map(reason)
        && let Some(at) = at.filter(|at| at.index > 0)
    {
        let wanted = if reason.contains("integer-based") || reason.ends_with("with integer") {
            "a list"
        } else {
            "a map"
        };
        return at.no_member(kind, wanted);
    } else if reason == "cannot unpack map item into one variable" {
        ("a loop over a map has two names".to_owned(), "write '{% for key, value in .. %}'")
    } else if reason == "cannot unpack list item into two variables" {
        let help = "write '{% for item in .. %}'; 'loop.index' counts from 0";
        ("a loop over a list has one name".to_owned(), help)
    } else {
        (reason.to_owned(), "")
    };
    let error = Error::new(ErrorKind::Value, message);
    if help.is_empty() { error } else { error.help(help) }
}

/// Returns the names and indices of a path as one text.
pub(crate) fn path(members: &[Member<'_>]) -> String {
    members.iter().map(|member| member.name).collect::<Vec<_>>().join(".")
}

impl At<'_> {
    /// Returns what a value is that `upon` has for a `kind`, if that is known: a text can be an integer
    /// that it does not know.
    fn type_of(&self, kind: &str, members: &[Member<'_>]) -> Option<&'static str> {
        let value = || Some(type_of(self.context?.at(members)?));
        if kind == "string" { value() } else { with_article(kind) }
    }

    fn no_member(&self, kind: &str, wanted: &str) -> Error {
        let (before, upto) = (&self.members[..self.index], path(&self.members[..=self.index]));
        let (value, member) = (path(before), self.members[self.index].name);
        let is = self.type_of(kind, before).map(|is| format!("{is}, ")).unwrap_or_default();
        let message = format!("'{value}' is {is}not {wanted}, so it has no '{member}'");
        Error::new(ErrorKind::Value, message).named(upto)
    }
}

fn no_iterable(kind: &str, at: Option<&At<'_>>) -> String {
    let name =
        at.filter(|at| at.is_alone).map(|at| (path(&at.members), at.type_of(kind, &at.members)));
    match name {
        Some((name, Some(is))) => format!("'{name}' is {is}, not a list or a map to loop over"),
        Some((name, None)) => format!("'{name}' is not a list or a map to loop over"),
        None => "this is not a list or a map to loop over".to_owned(),
    }
}

/// Returns what a value is that has no members of the kind that is asked for.
fn no_map(reason: &str) -> Option<&str> {
    match reason.split_once(" does not support ") {
        Some((kind, "key-based access" | "integer-based access")) => Some(kind),
        Some(_) => None,
        None => reason.strip_prefix("cannot index into ").map(|kind| match kind {
            "map with integer" => "map",
            kind => kind,
        }),
    }
}

/// Returns the word of `upon` for a type as messages have it.
fn with_article(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "none" => "null",
        "bool" => "a bool",
        "integer" => "an integer",
        "float" => "a float",
        "list" => "a list",
        "map" => "a map",
        _ => return None,
    })
}
