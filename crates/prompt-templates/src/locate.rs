//! Finds out where an error of `upon` is.
//!
//! `upon` tells line and column, but counts the lines before by their width on a screen: after text
//! that is not ASCII, both are wrong. On the way of an error, which is cold, the same source is therefore
//! compiled (and rendered) once more as a shadow: one line, padded so that its width is more than any
//! offset in it. On the first line the column that `upon` tells is the byte offset, whatever the text.

use std::collections::BTreeMap;

use crate::compiled::Compiled;
use crate::context::Context;
use crate::delimiters::Delimiter;
use crate::dialect::Dialect;
use crate::facts::{Member, Scope, Use};
use crate::generate::Generated;
use crate::linked::Linked;
use crate::reason::{At, path};
use crate::{Error, ErrorKind};

/// Returns place and reason of an error that compiling gave.
pub(crate) fn compile_error(
    dialect: &Dialect,
    generated: &Generated,
    error: &upon::Error,
) -> (usize, String) {
    let shadow = dialect.engine.compile(shadow(&generated.source)).err();
    let place = shadow.as_ref().map_or(Place::default(), Place::of);
    (generated.origins.of(place.offset), reason(error))
}

/// Returns an error that rendering a segment gave, with its place and, for names, what there is.
pub(crate) fn render_error(
    linked: &Linked,
    segment: usize,
    context: &Context,
    error: &upon::Error,
) -> Error {
    let place = render_place(linked, segment, context).unwrap_or_default();
    let (compiled, segment) = match place.partial(linked) {
        Some(partial) => (partial, 0),
        None => (&*linked.root, segment),
    };
    let translated = compiled.translated(segment);
    let offset = translated.map_or(0, |translated| translated.origins.of(place.offset));
    let reason = reason(error);
    let is_unknown = reason == "not found in this scope" || reason == "not found in map";
    let unknown = is_unknown.then(|| member_at(compiled, offset)).flatten();
    if let Some((used, members, index)) = unknown {
        let member = &members[index];
        let error = unknown_variable(linked, compiled, context, used, &members, index);
        return compiled.locate(error, member.span.end - member.name.len());
    }
    let place = member_at(compiled, offset).map(|(used, members, index)| At {
        context: linked.is_of_data(compiled, used).then_some(context),
        is_alone: compiled.is_alone(used),
        members,
        index,
    });
    compiled.locate(crate::reason::value_error(&reason, place.as_ref()), offset)
}

/// Renders the shadow of a segment for its error.
fn render_place(linked: &Linked, segment: usize, context: &Context) -> Option<Place> {
    let engine = &linked.root.dialect.engine;
    let root = linked.root.translated(segment).ok()?;
    let root = engine.compile(shadow(root.template.source())).ok()?;
    let mut partials = BTreeMap::new();
    for partial in linked.partials() {
        let source = shadow(partial.translated(0).ok()?.template.source());
        partials.insert(&*partial.name, engine.compile(source).ok()?);
    }
    let render = root.render_from(engine, context.value());
    let render = render.with_template_fn(|name| partials.get(name).ok_or_else(String::new));
    render.to_string().err().as_ref().map(Place::of)
}

fn shadow(source: &str) -> String {
    let mut shadow = source.replace('\n', " ");
    shadow.extend(std::iter::repeat_n(' ', source.len() + 1));
    shadow
}

/// Where `upon` says that an error is.
#[derive(Default)]
struct Place {
    offset: usize,
    /// The debug form of the name of the included template.
    template: Option<String>,
}

impl Linked {
    /// Returns whether what a path leads to is in the data, where it can be looked up. What a variable of
    /// a block holds, around an include too, and what an `include .. with` sees is not known after a render.
    fn is_of_data(&self, compiled: &Compiled, used: &Use) -> bool {
        let name = used.root(&compiled.text);
        let binds = |all: &Compiled| {
            all.includes.iter().any(|include| include.locals.iter().any(|local| local == name))
        };
        let is_bound = used.is_local
            || compiled.name != self.root.name && self.partials().chain([&*self.root]).any(binds);
        !is_bound && !self.has_isolated()
    }
}

impl Compiled {
    /// Returns whether nothing stands behind a path in its tag.
    fn is_alone(&self, used: &Use) -> bool {
        let rest = self.text[used.span.end..].trim_start();
        rest.trim_start_matches('-')
            .starts_with(self.front_matter.delimiters.close(Delimiter::Block))
    }
}

impl Place {
    /// Reads the debug form: the plain one has no place, and the pretty one is drawn with a width that
    /// a long line makes too large to format.
    fn of(error: &upon::Error) -> Self {
        let text = format!("{error:#?}");
        let mut lines = text.lines().map(str::trim);
        let column = lines.clone().find_map(|line| line.strip_prefix("col: ")?.strip_suffix(','));
        let offset = column.and_then(|column| column.parse().ok()).unwrap_or_default();
        let template = lines
            .find(|line| line.starts_with("name: Some("))
            .and_then(|_| lines.next()?.strip_suffix(','))
            .map(str::to_owned);
        Self { offset, template }
    }

    fn partial<'l>(&self, linked: &'l Linked) -> Option<&'l Compiled> {
        let template = self.template.as_ref()?;
        linked.partials().find(|partial| format!("{:?}", partial.name) == *template)
    }
}

/// Returns what an error says, without its kind.
fn reason(error: &upon::Error) -> String {
    let text = error.to_string();
    text.split_once(": ").map_or(text.clone(), |(_, reason)| reason.to_owned())
}

/// Returns the use of a variable at an offset, its members, and which of them is there.
fn member_at(compiled: &Compiled, offset: usize) -> Option<(&Use, Vec<Member<'_>>, usize)> {
    let used = compiled.uses.iter().find(|used| used.span.contains(&offset))?;
    let members = used.members(&compiled.text);
    let index = members.iter().position(|member| member.span.contains(&offset))?;
    Some((used, members, index))
}

fn unknown_variable(
    linked: &Linked,
    compiled: &Compiled,
    context: &Context,
    used: &Use,
    members: &[Member<'_>],
    index: usize,
) -> Error {
    let is_known = linked.is_of_data(compiled, used);
    let mut names: Vec<&str> = match is_known.then(|| context.at(&members[..index])).flatten() {
        Some(upon::Value::Map(map)) => map.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    if index == 0 {
        let is_around = |scope: &&Scope| scope.span.contains(&used.span.start);
        let scopes = compiled.scopes.iter().filter(is_around);
        names.extend(scopes.flat_map(|scope| scope.locals.iter().map(String::as_str)));
    }
    let unknown = path(&members[..=index]);
    let error = Error::unknown(ErrorKind::UnknownVariable, "variable", &unknown, names);
    let optional = format!("{}?.{}", path(&members[..index]), members[index].name);
    let help = format!("if it may be absent, write '{optional}'");
    if index > 0 || error.suggestion().is_some() {
        return error.help(help);
    }
    let raw = compiled.front_matter.delimiters.raw();
    error.help(format!("{help}; if it is no variable but text, write {raw} around it"))
}
