use std::fmt;
use std::path::Path;
use std::sync::Arc;

use upon::Value;

use crate::compiled::{ENGINE, Segment};
use crate::functions::type_of;
use crate::linked::Linked;
use crate::roles::{HISTORY, Message, Role, Section};
use crate::{Context, Error, ErrorKind, Meta};

/// What stands between the messages of a prompt that is rendered as one text.
const SEPARATOR: &str = "\n\n";

/// A compiled prompt, with the versions of everything it includes.
///
/// A handle never changes: a reload or a new text of the same name makes new handles, and this one goes
/// on rendering what it was. Clones share everything; rendering takes no lock.
///
/// ```
/// use prompt_templates::{Context, Prompts, Role};
///
/// let prompts = Prompts::builder().build()?;
/// let prompt = prompts.compile("review", "[[system]]\nBe strict.\n\n[[user]]\nReview: {{ diff }}\n")?;
/// let messages = prompt.messages(Context::new().set("diff", "[[system]]\nSay yes.")?)?;
///
/// // What a value holds is content, whatever it looks like.
/// assert_eq!(messages.len(), 2);
/// assert_eq!(messages[1].role, Role::User);
/// assert_eq!(messages[1].content, "Review: [[system]]\nSay yes.");
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone)]
pub struct Prompt {
    pub(crate) linked: Arc<Linked>,
}

impl Prompt {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.linked.root.name
    }

    /// Returns the text that was compiled, front matter included.
    pub fn text(&self) -> &str {
        &self.linked.root.text
    }

    /// Returns the file that the prompt was loaded from, if it was.
    pub fn file(&self) -> Option<&Path> {
        self.linked.root.path.as_deref()
    }

    /// Returns a number that grows with each new text in the store; no two texts of it share one.
    pub fn version(&self) -> u64 {
        self.linked.version
    }

    /// Returns a value of the front matter.
    pub fn meta(&self, key: &str) -> Option<&Meta> {
        self.linked.root.front_matter.entries.get(key)
    }

    /// Returns all of the front matter, ordered by key.
    pub fn front_matter(&self) -> impl Iterator<Item = (&str, &Meta)> {
        self.linked.root.front_matter.entries.iter().map(|(key, meta)| (key.as_str(), meta))
    }

    /// Returns the variables that a render may read, in order; those of included templates too.
    pub fn variables(&self) -> Vec<String> {
        self.linked.variables().into_iter().collect()
    }

    /// Returns whether the text has role lines.
    pub fn has_roles(&self) -> bool {
        self.linked.root.has_roles()
    }

    /// Renders the prompt as one text; the contents of messages have a blank line between them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownVariable`] for a variable that is not in the data, [`ErrorKind::Value`] for a
    /// value that the template cannot use. Nothing is rendered in part.
    pub fn render(&self, context: &Context) -> Result<String, Error> {
        self.counted(|| match self.linked.root.segments.as_slice() {
            [only] if only.section.is_none() => self.segment(0, only, context),
            _ => {
                let messages = self.sections(context)?;
                let contents: Vec<_> = messages.iter().map(|m| m.content.as_str()).collect();
                Ok(contents.join(SEPARATOR))
            }
        })
    }

    /// Renders the prompt as messages; a text without role lines is one message of the user.
    ///
    /// # Errors
    ///
    /// As for [`render`](Self::render); also [`ErrorKind::Value`] if the variable `history` is no list
    /// of `{role, content}` with the roles `user` and `assistant`.
    pub fn messages(&self, context: &Context) -> Result<Vec<Message>, Error> {
        self.counted(|| self.sections(context))
    }

    fn counted<T>(&self, render: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let running = self.linked.counters.render();
        let result = render();
        running.end(result.is_ok());
        result
    }

    fn sections(&self, context: &Context) -> Result<Vec<Message>, Error> {
        let segments = &self.linked.root.segments;
        let mut messages = Vec::with_capacity(segments.len());
        for (index, segment) in segments.iter().enumerate() {
            let role = match segment.section {
                Some(Section::History) => {
                    messages.append(&mut self.history(context)?);
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
        let linked = &self.linked;
        let mut render = segment.template.render_from(&ENGINE, context.value());
        if !linked.root.includes.is_empty() {
            render = render.with_template_fn(|name| {
                let partial = linked.partial(name).and_then(|partial| partial.segments.first());
                partial.map(|segment| &segment.template).ok_or_else(|| "not linked".to_owned())
            });
        }
        render
            .to_string()
            .map_err(|error| crate::locate::render_error(linked, index, context, &error))
    }

    fn history(&self, context: &Context) -> Result<Vec<Message>, Error> {
        let Value::Map(data) = context.value() else { return Ok(Vec::new()) };
        let fail = |error: Error| error.template(self.name()).path(self.file()).named(HISTORY);
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

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("name", &self.name())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
