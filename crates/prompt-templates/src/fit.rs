//! Makes a prompt fit a budget of tokens, and says what it left out.

use upon::Value;

use crate::functions::lines;
use crate::integer;
use crate::linked::Linked;
use crate::roles::HISTORY;
use crate::tokens::{estimate_tokens, left_out, whole_lines};
use crate::{Context, Error, ErrorKind, Message, Role};

/// What a provider adds to each message: its role and where it ends.
const TOKENS_PER_MESSAGE: usize = 4;

/// A prompt that fits its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fitted {
    /// The messages.
    pub messages: Vec<Message>,
    /// The estimate of their tokens, with four for each message.
    pub tokens: usize,
    /// The estimate before anything was left out.
    pub tokens_before: usize,
    /// What was left out, in the order of the front matter's `drop_first`; empty if all of it fits.
    pub dropped: Vec<Dropped>,
}

/// What was left out of one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The variable, as `drop_first` names it.
    pub name: String,
    /// How many items, messages or lines are gone.
    pub dropped: usize,
    /// How many are left.
    pub kept: usize,
    /// What is counted.
    pub unit: Unit,
}

/// What a variable is shortened by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Items of a list, from its end.
    Items,
    /// Messages of the history, from the oldest.
    Messages,
    /// Lines of a text, from its end.
    Lines,
}

pub(crate) fn fit(linked: &Linked, context: &Context, max_tokens: usize) -> Result<Fitted, Error> {
    let running = linked.counters.render();
    let fitted = Fit { linked, max_tokens }.run(context);
    running.end(fitted.is_ok());
    fitted
}

struct Fit<'f> {
    linked: &'f Linked,
    max_tokens: usize,
}

impl Fit<'_> {
    fn run(&self, context: &Context) -> Result<Fitted, Error> {
        let (mut messages, mut tokens) = self.render(context)?;
        let tokens_before = tokens;
        let mut dropped = Vec::new();
        let names = self.linked.root.front_matter.drop_first();
        let mut context = (tokens > self.max_tokens && !names.is_empty()).then(|| context.clone());
        for name in names {
            let Some(context) = context.as_mut().filter(|_| tokens > self.max_tokens) else {
                break;
            };
            let Some(value) = context.at_mut(name) else { continue };
            let Some(whole) = Whole::new(name, value.clone()) else { continue };
            // The most that fits is found by halving; if nothing does, nothing of it stays.
            let (mut low, mut over) = (0, whole.len());
            while low < over {
                let middle = usize::midpoint(low, over);
                whole.put(context, name, middle);
                if self.render(context)?.1 <= self.max_tokens {
                    low = middle + 1;
                } else {
                    over = middle;
                }
            }
            let kept = whole.put(context, name, low.saturating_sub(1));
            (messages, tokens) = self.render(context)?;
            let gone = whole.len() - kept;
            if gone > 0 {
                let (name, unit) = (name.clone(), whole.unit);
                dropped.push(Dropped { name, dropped: gone, kept, unit });
            }
        }
        if tokens > self.max_tokens {
            return Err(self.too_long(tokens, names));
        }
        Ok(Fitted { messages, tokens, tokens_before, dropped })
    }

    fn render(&self, context: &Context) -> Result<(Vec<Message>, usize), Error> {
        let mut messages = Vec::new();
        self.linked.fill(context, &mut messages)?;
        let tokens = |message: &Message| estimate_tokens(&message.content) + TOKENS_PER_MESSAGE;
        let tokens = messages.iter().map(tokens).sum();
        Ok((messages, tokens))
    }

    fn too_long(&self, tokens: usize, names: &[String]) -> Error {
        let root = &self.linked.root;
        let max = self.max_tokens;
        let message = match names {
            [] => format!("the prompt has about {tokens} tokens, {max} are allowed"),
            names => format!(
                "the prompt has about {tokens} tokens without '{}', {max} are allowed",
                names.join("', '")
            ),
        };
        let error = Error::new(ErrorKind::Budget, message);
        error.template(&*root.name).path(root.path.as_deref()).help(
            "name what can be shortened in the front matter: 'drop_first: [history, lessons]'",
        )
    }
}

/// A value that can be shortened.
struct Whole {
    value: Value,
    unit: Unit,
}

impl Whole {
    fn new(name: &str, value: Value) -> Option<Self> {
        let unit = match &value {
            Value::List(_) if name == HISTORY => Unit::Messages,
            Value::List(_) => Unit::Items,
            value if integer::text(value).is_some() => Unit::Lines,
            _ => return None,
        };
        Some(Self { value, unit })
    }

    fn len(&self) -> usize {
        match &self.value {
            Value::List(list) => list.len(),
            Value::String(text) => lines(text).count(),
            _ => 0,
        }
    }

    /// Puts at most so much of the value in its place; returns how much.
    fn put(&self, context: &mut Context, name: &str, kept: usize) -> usize {
        let (value, kept) = self.shortened(kept);
        if let Some(place) = context.at_mut(name) {
            *place = value;
        }
        kept
    }

    fn shortened(&self, kept: usize) -> (Value, usize) {
        match &self.value {
            Value::List(list) if self.unit == Unit::Messages => {
                let mut rest = &list[list.len() - kept.min(list.len())..];
                // A conversation begins with its user; an answer without its question goes too.
                while rest.len() < list.len()
                    && let Some((first, others)) = rest.split_first()
                    && is_answer(first)
                {
                    rest = others;
                }
                (Value::List(rest.to_vec()), rest.len())
            }
            Value::List(list) => (Value::List(list.iter().take(kept).cloned().collect()), kept),
            Value::String(_) if kept == 0 => (Value::String(String::new()), 0),
            Value::String(text) => {
                let lines = whole_lines(text);
                let gone = lines.len() - kept.min(lines.len());
                let mut head = lines[..lines.len() - gone].concat();
                if gone > 0 {
                    head.push_str(&left_out(gone));
                }
                (Value::String(head), lines.len() - gone)
            }
            other => (other.clone(), 0),
        }
    }
}

fn is_answer(message: &Value) -> bool {
    let Value::Map(message) = message else { return false };
    matches!(message.get("role"), Some(Value::String(role)) if role == Role::Assistant.as_str())
}
