//! Rendering: a linked template and data give a text or messages.

use upon::Value;

use crate::compiled::Segment;
use crate::integer;
use crate::linked::Linked;
use crate::output::Output;
use crate::roles::{HISTORY, Section};
use crate::value::type_of;
use crate::{Content, Context, Error, ErrorKind, Message, Role};

/// What stands between the messages of a prompt that is rendered as one text.
pub(crate) const SEPARATOR: &str = "\n\n";

impl Linked {
    pub(crate) fn render(&self, context: &Context) -> Result<String, Error> {
        let mut text = String::new();
        self.render_into(context, &mut text)?;
        Ok(text)
    }

    /// Renders as one text, into the memory of `text`, which is empty after an error.
    pub(crate) fn render_into(&self, context: &Context, text: &mut String) -> Result<(), Error> {
        self.counted(|| {
            text.clear();
            let result = self.sections(context, text);
            if result.is_err() {
                text.clear();
            }
            result
        })
    }

    pub(crate) fn messages(&self, context: &Context) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::with_capacity(self.root.segments.len());
        self.messages_into(context, &mut messages)?;
        Ok(messages)
    }

    /// Renders as messages, into the memory of `messages`, which are empty after an error.
    pub(crate) fn messages_into(
        &self,
        context: &Context,
        messages: &mut Vec<Message>,
    ) -> Result<(), Error> {
        let result = self.counted(|| self.fill(context, messages));
        if result.is_err() {
            messages.clear();
        }
        result
    }

    pub(crate) fn fill(&self, context: &Context, messages: &mut Vec<Message>) -> Result<(), Error> {
        let (mut filled, mut length) = (0, 0);
        let mut put = |message: Message| -> Result<(), Error> {
            length += message.content.len();
            self.check_length(length)?;
            match messages.get_mut(filled) {
                Some(old) => *old = message,
                None => messages.push(message),
            }
            filled += 1;
            Ok(())
        };
        for (index, segment) in self.root.segments.iter().enumerate() {
            let role = match segment.section {
                Some(Section::History) => {
                    self.history(segment, context, &mut put)?;
                    continue;
                }
                Some(Section::Message(role)) => role,
                None => Role::User,
            };
            let text = if let Some(constant) = &segment.constant {
                Content::shared(constant)
            } else {
                let mut text = String::new();
                self.segment(index, segment, context, &mut text)?;
                text.into()
            };
            put(Message::new(role, text))?;
        }
        messages.truncate(filled);
        Ok(())
    }

    fn counted<T>(&self, render: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let running = self.counters.render();
        let result = render();
        running.end(result.is_ok());
        result
    }

    /// Renders all messages behind each other.
    fn sections(&self, context: &Context, text: &mut String) -> Result<(), Error> {
        let mut is_first = true;
        for (index, segment) in self.root.segments.iter().enumerate() {
            let mut separate = |text: &mut String| {
                let is_first = std::mem::replace(&mut is_first, false);
                if is_first { Ok(()) } else { self.write(text, SEPARATOR) }
            };
            if segment.section == Some(Section::History) {
                self.history(segment, context, &mut |message| {
                    separate(text)?;
                    self.write(text, &message.content)
                })?;
                continue;
            }
            separate(text)?;
            match &segment.constant {
                Some(constant) => self.write(text, constant)?,
                None => self.segment(index, segment, context, text)?,
            }
        }
        Ok(())
    }

    fn write(&self, text: &mut String, more: &str) -> Result<(), Error> {
        self.check_length(text.len() + more.len())?;
        text.push_str(more);
        Ok(())
    }

    /// Renders a segment behind what is in `text`, which is not to be used after an error.
    fn segment(
        &self,
        index: usize,
        segment: &Segment,
        context: &Context,
        text: &mut String,
    ) -> Result<(), Error> {
        if let Some(program) = segment.program.as_ref().filter(|_| self.has_programs) {
            let start = text.len();
            text.reserve(program.length);
            if crate::run::run(self, program, context.value(), text).is_ok() {
                return Ok(());
            }
            text.truncate(start);
        }
        self.interpret(index, context, text)
    }

    /// Has `upon` render a segment.
    fn interpret(&self, index: usize, context: &Context, text: &mut String) -> Result<(), Error> {
        let template = &self.root.translated(index)?.template;
        let mut output = Output::new(std::mem::take(text), self.max_output_bytes);
        output.bytes.reserve(template.source().len());
        let mut render = template.render_from(&self.root.dialect.engine, context.value());
        if !self.root.includes.is_empty() {
            render = render.with_template_fn(|name| {
                let partial = self.partial(name).ok_or_else(|| "not linked".to_owned())?;
                let translated = partial.translated(0).map_err(|error| error.to_string())?;
                Ok(&translated.template)
            });
        }
        let result = render.to_writer(&mut output);
        let is_full = output.is_full;
        *text = output.into_string();
        result.map_err(|error| {
            if is_full {
                return self.too_long();
            }
            crate::locate::render_error(self, index, context, &error)
        })
    }

    fn check_length(&self, length: usize) -> Result<(), Error> {
        if length <= self.max_output_bytes { Ok(()) } else { Err(self.too_long()) }
    }

    #[cold]
    fn too_long(&self) -> Error {
        let message = format!("what is rendered is longer than {} bytes", self.max_output_bytes);
        let error = Error::new(ErrorKind::Output, message).template(&*self.root.name);
        error
            .path(self.root.path.as_deref())
            .help("give less data, or raise 'max_output_bytes' of the store")
    }

    /// Reads the messages that stand for `[[history]]`.
    fn history(
        &self,
        segment: &Segment,
        context: &Context,
        put: &mut dyn FnMut(Message) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Value::Map(data) = context.value() else { return Ok(()) };
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
        for (index, value) in list.iter().enumerate() {
            let message = message(value).ok_or_else(|| {
                let text = format!("item {index} of '{HISTORY}' is no message of a conversation");
                let help = "each is {\"role\": \"user\" or \"assistant\", \"content\": text}";
                fail(Error::new(ErrorKind::Value, text)).help(help)
            })?;
            put(message)?;
        }
        Ok(())
    }
}

/// Reads `{role, content}`. Instructions do not come from data, so there is no system message here.
fn message(value: &Value) -> Option<Message> {
    let Value::Map(map) = value else { return None };
    let text = |name: &str| integer::text(map.get(name)?);
    let (role, content) = (text("role")?, text("content")?);
    let roles = [Role::User, Role::Assistant];
    let role = roles.into_iter().find(|known| known.as_str() == role)?;
    (map.len() == 2).then(|| Message::new(role, content))
}
