//! Runs the programs of segments over data; see [`Program`].

use std::borrow::Cow;
use std::collections::btree_map;
use std::fmt::{self, Write};
use std::slice;

use upon::Value;

use crate::compiled::Compiled;
use crate::functions::truthy;
use crate::integer::printed;
use crate::linked::Linked;
use crate::straight::{Expression, Member, Program, Step};
use crate::value::float;

/// Something that is left to `upon`: most often an error, of which it says place and reason.
#[derive(Debug)]
pub(crate) struct Unusual;

type Result<T = ()> = std::result::Result<T, Unusual>;

/// Writes a segment of the root. After an error, what was written is to be taken back.
pub(crate) fn run(linked: &Linked, program: &Program, data: &Value, text: &mut String) -> Result {
    Run { linked, data, frames: Vec::new(), text }.program(&linked.root, program)
}

struct Run<'r> {
    linked: &'r Linked,
    data: &'r Value,
    /// The blocks around a step, those of including templates too.
    frames: Vec<Frame<'r>>,
    text: &'r mut String,
}

/// A block with variables of its own.
enum Frame<'r> {
    With {
        name: &'r str,
        value: Found<'r>,
    },
    List {
        item: &'r str,
        items: slice::Iter<'r, Value>,
        at: usize,
        value: &'r Value,
    },
    Map {
        names: (&'r str, &'r str),
        entries: btree_map::Iter<'r, String, Value>,
        at: usize,
        entry: (&'r String, &'r Value),
    },
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Found<'r> {
    Value(&'r Value),
    Key(&'r str),
    Index(usize),
    Bool(bool),
    Absent,
}

impl<'r> Run<'r> {
    fn program(&mut self, template: &'r Compiled, program: &'r Program) -> Result {
        let source = &*template.text;
        let mut at = 0;
        while let Some(step) = program.steps.get(at) {
            at += 1;
            match step {
                Step::Text(span) => self.push(&source[span.clone()])?,
                Step::Print(path) => {
                    let members = program.members(*path);
                    self.print(self.find(source, members)?, members)?;
                }
                Step::If { value, not, otherwise } => {
                    if self.find(source, program.members(*value))?.is_true() == *not {
                        at = *otherwise;
                    }
                }
                Step::Show(expression) => {
                    let value = self.value(source, program, expression)?;
                    self.print(Found::Value(&value), &[])?;
                }
                Step::Test { value, not, otherwise } => {
                    if truthy(&*self.value(source, program, value)?) == *not {
                        at = *otherwise;
                    }
                }
                Step::Jump(to) => at = *to,
                Step::For { list, names: (first, second), end } => {
                    let first = &source[first.clone()];
                    let second = second.as_ref().map(|name| &source[name.clone()]);
                    let found = self.find(source, program.members(*list))?;
                    match Frame::over(found, first, second)? {
                        Some(frame) => self.frames.push(frame),
                        None => at = *end,
                    }
                }
                Step::Next { body } => {
                    if self.frames.last_mut().is_some_and(Frame::advance) {
                        at = *body;
                    } else {
                        self.frames.pop();
                    }
                }
                Step::With { value, name } => {
                    let value = self.find(source, program.members(*value))?;
                    self.frames.push(Frame::With { name: &source[name.clone()], value });
                }
                Step::EndWith => drop(self.frames.pop()),
                Step::Include(index) => {
                    let partial = self.linked.partial(&template.includes[*index].name);
                    let partial = partial.ok_or(Unusual)?;
                    let program = partial.segments.first().and_then(|one| one.program.as_ref());
                    self.program(partial, program.ok_or(Unusual)?)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, text: &str) -> Result {
        if self.text.len() + text.len() > self.linked.max_output_bytes {
            return Err(Unusual);
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Writes a number, whose few bytes are counted when they are written.
    fn push_number(&mut self, number: impl fmt::Display) -> Result {
        write!(self.text, "{number}").map_err(|_| Unusual)?;
        self.push("")
    }

    fn print(&mut self, found: Found<'_>, members: &[Member]) -> Result {
        match found {
            Found::Value(Value::String(value)) => self.push(printed(value)),
            Found::Value(&Value::Integer(value)) => self.push_number(value),
            Found::Value(Value::Float(value)) => self.push(&float(*value)),
            Found::Value(&Value::Bool(value)) | Found::Bool(value) => {
                self.push(if value { "true" } else { "false" })
            }
            Found::Key(key) => self.push(key),
            Found::Index(index) => self.push_number(index),
            Found::Absent | Found::Value(Value::None) => {
                let may_be = members.iter().any(|member| member.is_optional);
                if may_be { Ok(()) } else { Err(Unusual) }
            }
            Found::Value(Value::List(_) | Value::Map(_)) => Err(Unusual),
        }
    }

    /// Works out what an expression comes to.
    fn value(
        &self,
        source: &str,
        program: &'r Program,
        expression: &'r Expression,
    ) -> Result<Cow<'r, Value>> {
        match expression {
            Expression::Path(path) => self.find(source, program.members(*path))?.into_value(),
            Expression::Literal(value) => Ok(Cow::Borrowed(value)),
            Expression::Call(function, arguments) => {
                let one = self.value(source, program, &arguments.0)?;
                let two = self.value(source, program, &arguments.1)?;
                function(&one, &two).map(Cow::Owned).map_err(|_| Unusual)
            }
        }
    }

    /// Looks a path up: in the blocks around it, from the inside out, and then in the data.
    fn find(&self, source: &str, members: &[Member]) -> Result<Found<'r>> {
        let (first, rest) = members.split_first().ok_or(Unusual)?;
        let name = &source[first.name.clone()];
        for frame in self.frames.iter().rev() {
            if let Some(found) = frame.find(name, source, rest) {
                return found;
            }
        }
        let Value::Map(data) = self.data else { return Err(Unusual) };
        match data.get(name) {
            Some(value) => follow(Found::Value(value), source, rest),
            None if first.is_optional => Ok(Found::Absent),
            None => Err(Unusual),
        }
    }
}

impl<'r> Frame<'r> {
    /// Returns the frame of a loop, or nothing if there is nothing to go over.
    fn over(found: Found<'r>, first: &'r str, second: Option<&'r str>) -> Result<Option<Self>> {
        match (found, second) {
            (Found::Value(Value::List(list)), None) => {
                let mut items = list.iter();
                let Some(value) = items.next() else { return Ok(None) };
                Ok(Some(Self::List { item: first, items, at: 0, value }))
            }
            (Found::Value(Value::Map(map)), Some(second)) => {
                let mut entries = map.iter();
                let Some(entry) = entries.next() else { return Ok(None) };
                Ok(Some(Self::Map { names: (first, second), entries, at: 0, entry }))
            }
            _ => Err(Unusual),
        }
    }

    /// Goes on to the next item; returns whether there is one.
    fn advance(&mut self) -> bool {
        match self {
            Self::List { items, at, value, .. } => items.next().is_some_and(|next| {
                (*at, *value) = (*at + 1, next);
                true
            }),
            Self::Map { entries, at, entry, .. } => entries.next().is_some_and(|next| {
                (*at, *entry) = (*at + 1, next);
                true
            }),
            Self::With { .. } => false,
        }
    }

    /// Finds a variable, and what is behind it, if the block has one of that name.
    fn find(&self, name: &str, source: &str, rest: &[Member]) -> Option<Result<Found<'r>>> {
        let found = match self {
            Self::List { items, at, .. } if name == "loop" => {
                return Some(position(*at, items.len(), source, rest));
            }
            Self::Map { entries, at, .. } if name == "loop" => {
                return Some(position(*at, entries.len(), source, rest));
            }
            Self::With { name: own, value } if *own == name => *value,
            Self::List { item, value, .. } if *item == name => Found::Value(value),
            Self::Map { names, entry, .. } if names.0 == name => Found::Key(entry.0),
            Self::Map { names, entry, .. } if names.1 == name => Found::Value(entry.1),
            Self::With { .. } | Self::List { .. } | Self::Map { .. } => return None,
        };
        Some(follow(found, source, rest))
    }
}

/// `loop.index`, `loop.first` or `loop.last`.
fn position<'r>(at: usize, left: usize, source: &str, rest: &[Member]) -> Result<Found<'r>> {
    let [only] = rest else { return Err(Unusual) };
    match &source[only.name.clone()] {
        "index" => Ok(Found::Index(at)),
        "first" => Ok(Found::Bool(at == 0)),
        "last" => Ok(Found::Bool(left == 0)),
        _ => Err(Unusual),
    }
}

#[inline]
fn follow<'r>(found: Found<'r>, source: &str, rest: &[Member]) -> Result<Found<'r>> {
    let mut found = found;
    for next in rest {
        let Found::Value(value) = found else { return Err(Unusual) };
        found = member(value, source, next)?;
        if let Found::Absent = found {
            break;
        }
    }
    Ok(found)
}

fn member<'r>(value: &'r Value, source: &str, member: &Member) -> Result<Found<'r>> {
    let found = match (value, member.index) {
        (Value::Map(map), None) => map.get(&source[member.name.clone()]),
        (Value::List(list), Some(index)) => list.get(index),
        _ => return Err(Unusual),
    };
    match found {
        Some(value) => Ok(Found::Value(value)),
        None if member.is_optional => Ok(Found::Absent),
        None => Err(Unusual),
    }
}

impl<'r> Found<'r> {
    fn into_value(self) -> Result<Cow<'r, Value>> {
        Ok(match self {
            Self::Value(value) => Cow::Borrowed(value),
            Self::Key(key) => Cow::Owned(Value::String(key.to_owned())),
            Self::Index(index) => {
                Cow::Owned(Value::Integer(index.try_into().map_err(|_| Unusual)?))
            }
            Self::Bool(value) => Cow::Owned(Value::Bool(value)),
            Self::Absent => Cow::Owned(Value::None),
        })
    }

    fn is_true(self) -> bool {
        match self {
            Self::Value(value) => truthy(value),
            Self::Key(key) => !key.is_empty(),
            Self::Index(index) => index != 0,
            Self::Bool(value) => value,
            Self::Absent => false,
        }
    }
}
