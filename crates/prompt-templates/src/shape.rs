//! Messages as the bodies of providers have them.

use serde::Serialize;

use crate::{Error, ErrorKind, Message, Role};

/// The messages part of a body for Anthropic's `/v1/messages`: `system` apart from `messages`.
///
/// ```
/// use prompt_templates::{AnthropicMessages, Context, Prompts};
///
/// let prompts = Prompts::builder().build()?;
/// let prompt = prompts.compile("a", "[[system]]\nBe brief.\n[[user]]\n{{ question }}")?;
/// let messages = prompt.messages(Context::new().set("question", "Why?")?)?;
/// let body = AnthropicMessages::new(&messages)?;
/// assert_eq!(
///     serde_json::to_string(&body).unwrap(),
///     r#"{"system":"Be brief.","messages":[{"role":"user","content":"Why?"}]}"#,
/// );
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct AnthropicMessages<'m> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    messages: &'m [Message],
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum System {
    Text(String),
    Blocks([Block; 1]),
}

#[derive(Clone, Debug, Serialize)]
struct Block {
    r#type: &'static str,
    text: String,
    cache_control: CacheControl,
}

#[derive(Clone, Debug, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

impl<'m> AnthropicMessages<'m> {
    /// Returns the shape of messages; system messages at the head become one text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Role`] for a system message that is not at the head: the shape has no place for it.
    pub fn new(messages: &'m [Message]) -> Result<Self, Error> {
        let count = messages.iter().take_while(|message| message.role == Role::System).count();
        let (system, messages) = messages.split_at(count);
        if let Some(index) = messages.iter().position(|message| message.role == Role::System) {
            let message = format!("message {} is a system message behind others", count + index);
            return Err(Error::new(ErrorKind::Role, message)
                .help("put '[[system]]' in front of all other role lines"));
        }
        let texts: Vec<_> = system.iter().map(|message| message.content.as_str()).collect();
        let system =
            (!texts.is_empty()).then(|| System::Text(texts.join(crate::render::SEPARATOR)));
        Ok(Self { system, messages })
    }

    /// Marks the end of `system` as the end of what the provider is to cache.
    #[must_use]
    pub fn with_cached_system(mut self) -> Self {
        self.system = self.system.map(|system| match system {
            System::Text(text) => {
                let cache_control = CacheControl { r#type: "ephemeral" };
                System::Blocks([Block { r#type: "text", text, cache_control }])
            }
            blocks @ System::Blocks(_) => blocks,
        });
        self
    }
}

/// The messages part of a body for OpenAI's `/v1/chat/completions`: all of them in `messages`.
///
/// ```
/// use prompt_templates::{Message, OpenAiMessages, Role};
///
/// let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "Why?")];
/// assert_eq!(
///     serde_json::to_string(&OpenAiMessages::new(&messages)).unwrap(),
///     r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Why?"}]}"#,
/// );
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct OpenAiMessages<'m> {
    messages: &'m [Message],
}

impl<'m> OpenAiMessages<'m> {
    /// Returns the shape of messages.
    pub fn new(messages: &'m [Message]) -> Self {
        Self { messages }
    }
}
