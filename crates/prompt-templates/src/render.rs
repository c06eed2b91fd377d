//! Rendering: a linked template and data give a text or messages.

use upon::Value;

use crate::compiled::{ENGINE, Segment};
use crate::functions::type_of;
use crate::linked::Linked;
use crate::roles::{HISTORY, Section};
use crate::{Context, Error, ErrorKind, Message, Role};

/// What stands between the messages of a prompt that is rendered as one text.
const SEPARATOR: &str = "\n\n";

impl Linked {
    pub(crate) fn render(&self, context: &Context) -> Result<String, Error> {
        self.counted(|| match self.root.segments.as_slice() {
            [only] if only.section.is_none() => self.segment(0, only, context),
            _ => {
                let messages = self.sections(context)?;
                let contents: Vec<_> = messages.iter().map(|m| m.content.as_str()).collect();
                Ok(contents.join(SEPARATOR))
            }
        })
    }

    pub(crate) fn messages(&self, context: &Context) -> Result<Vec<Message>, Error> {
        self.counted(|| self.sections(context))
    }

    fn counted<T>(&self, render: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let running = self.counters.render();
        let result = render();
        running.end(result.is_ok());
        result
    }

    fn sections(&self, context: &Context) -> Result<Vec<Message>, Error> {
        let segments = &self.root.segments;
        let mut messages = Vec::with_capacity(segments.len());
        for (index, segment) in segments.iter().enumerate() {
            let role = match segment.section {
                Some(Section::History) => {
                    messages.append(&mut self.history(segment, context)?);
                    continue;
                }
                Some(Section::Message(role)) => role,
                None => Role::User,
            };
            messages.push(Message::new(role, self.segment(index, segment, context)?));
        }
        Ok(messages)
    }

    fn segment(&self, index: usize, segment: &Segment, context: &Context) -> Result<String, Error> {
        if let Some(constant) = &segment.constant {
            return Ok(constant.clone());
        }
        let mut render = segment.template.render_from(&ENGINE, context.value());
        if !self.root.includes.is_empty() {
            render = render.with_template_fn(|name| {
                let partial = self.partial(name).and_then(|partial| partial.segments.first());
                partial.map(|segment| &segment.template).ok_or_else(|| "not linked".to_owned())
            });
        }
        render
            .to_string()
            .map_err(|error| crate::locate::render_error(self, index, context, &error))
    }

    /// Reads the messages that stand for `[[history]]`.
    fn history(&self, segment: &Segment, context: &Context) -> Result<Vec<Message>, Error> {
        let Value::Map(data) = context.value() else { return Ok(Vec::new()) };
        let fail = |error: Error| self.root.locate(error.named(HISTORY), segment.offset);
        let Some(history) = data.get(HISTORY) else {
            let names = data.keys().map(String::as_str);
            return Err(fail(Error::unknown(
                ErrorKind::UnknownVariable,
                "variable",
                HISTORY,
                names,
            ))
            .help("'[[history]]' reads it; an empty list is fine"));
        };
        let Value::List(list) = history else {
            let message = format!("'{HISTORY}' is {}, not a list of messages", type_of(history));
            return Err(fail(Error::new(ErrorKind::Value, message)));
        };
        let message = |(index, value)| {
            message(value).ok_or_else(|| {
                let text = format!("item {index} of '{HISTORY}' is no message of a conversation");
                let help = "each is {\"role\": \"user\" or \"assistant\", \"content\": text}";
                fail(Error::new(ErrorKind::Value, text)).help(help)
            })
        };
        list.iter().enumerate().map(message).collect()
    }
}

/// Reads `{role, content}`. Instructions do not come from data, so there is no system message here.
fn message(value: &Value) -> Option<Message> {
    let Value::Map(map) = value else { return None };
    let (Value::String(role), Value::String(content)) = (map.get("role")?, map.get("content")?)
    else {
        return None;
    };
    let roles = [Role::User, Role::Assistant];
    let role = roles.into_iter().find(|known| known.as_str() == role)?;
    (map.len() == 2).then(|| Message::new(role, content.as_str()))
}
