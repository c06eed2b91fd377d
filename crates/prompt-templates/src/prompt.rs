use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::linked::Linked;
use crate::{Context, Digest, Error, Fitted, Message, Meta, StablePrefix};

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
    /// [`UnknownVariable`](crate::ErrorKind::UnknownVariable) for a variable that is not in the data, [`Value`](crate::ErrorKind::Value) for a
    /// value that the template cannot use, [`Output`](crate::ErrorKind::Output) for more than the store
    /// allows. Nothing is rendered in part.
    pub fn render(&self, context: &Context) -> Result<String, Error> {
        self.linked.render(context)
    }

    /// Renders the prompt as one text into the memory of `text`; what was in it is gone, also after an
    /// error. Into memory that is large enough, a text without tags is copied and nothing is allocated.
    ///
    /// # Errors
    ///
    /// As for [`render`](Self::render).
    pub fn render_into(&self, context: &Context, text: &mut String) -> Result<(), Error> {
        self.linked.render_into(context, text)
    }

    /// Renders the prompt as messages; a text without role lines is one message of the user.
    ///
    /// # Errors
    ///
    /// As for [`render`](Self::render); also [`Value`](crate::ErrorKind::Value) if the variable `history` is no list
    /// of `{role, content}` with the roles `user` and `assistant`.
    pub fn messages(&self, context: &Context) -> Result<Vec<Message>, Error> {
        self.linked.messages(context)
    }

    /// Renders the prompt as messages into the memory of `messages`; those that were in it are gone,
    /// also after an error. Messages without tags are shared and not copied: nothing is allocated for
    /// them.
    ///
    /// # Errors
    ///
    /// As for [`messages`](Self::messages).
    pub fn messages_into(
        &self,
        context: &Context,
        messages: &mut Vec<Message>,
    ) -> Result<(), Error> {
        self.linked.messages_into(context, messages)
    }

    /// Renders the prompt as messages of at most `max_tokens`, by the estimate of
    /// [`estimate_tokens`](crate::estimate_tokens); says what it left out for that.
    ///
    /// The variables of the front matter's `drop_first` give way, the first one first: a list loses
    /// items from its end, `history` its oldest messages, a text its last lines, and a line
    /// `[12 more lines]` says so in the prompt. No variable is touched before the ones in front of it
    /// are empty. Each variable costs as many renders as its length has binary digits.
    ///
    /// ```
    /// use prompt_templates::{Context, Prompts};
    ///
    /// let prompts = Prompts::builder().build()?;
    /// let text = "---\ndrop_first: [lessons]\n---\nTask: {{ task }}\n\
    ///             {% for lesson in lessons %}- {{ lesson }}\n{% endfor %}";
    /// let prompt = prompts.compile("work", text)?;
    /// let data = serde_json::json!({"task": "Fix it", "lessons": ["short", "longer than that", "last"]});
    /// let fitted = prompt.fit(&Context::from_serialize(&data)?, 15)?;
    ///
    /// assert_eq!(fitted.messages[0].content, "Task: Fix it\n- short\n");
    /// assert_eq!((fitted.dropped[0].name.as_str(), fitted.dropped[0].dropped), ("lessons", 2));
    /// # Ok::<(), prompt_templates::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`messages`](Self::messages); [`Budget`](crate::ErrorKind::Budget) if the prompt is longer
    /// with all of these empty.
    pub fn fit(&self, context: &Context, max_tokens: usize) -> Result<Fitted, Error> {
        crate::fit::fit(&self.linked, context, max_tokens)
    }

    /// Returns the digest of the text and of the texts of everything it includes, with their names.
    ///
    /// It is made once for each version. For what a render gives, see [`Digest::of_text`] and
    /// [`Digest::of_messages`].
    pub fn digest(&self) -> Digest {
        self.linked.digest()
    }

    /// Returns what every render of this version begins with: what a provider can cache. Costs about as
    /// much as a compile.
    pub fn stable_prefix(&self) -> StablePrefix {
        crate::prefix::stable_prefix(&self.linked)
    }

    /// Returns what is not wrong but worth a look: [`Volatile`](crate::ErrorKind::Volatile) variables in
    /// front of text that never changes, declared variables that are [`Unused`](crate::ErrorKind::Unused).
    /// Costs about as much as a compile.
    pub fn warnings(&self) -> Vec<Error> {
        crate::lint::warnings(&self.linked)
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("name", &self.name())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
