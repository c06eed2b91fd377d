//! What is asked: a request, its kind and its body.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The answer length that is asked for unless [`Request::with_max_tokens`] says otherwise.
pub const DEFAULT_MAX_TOKENS: u32 = 4096;

/// One model request of one task.
///
/// The `id` belongs to the caller: any string, unique within a run, and it never goes on the wire.
/// Requests are grouped by ([`Kind`], model), and each answer comes back under its own id.
///
/// ```
/// use llm_batch::{Kind, Request};
///
/// let request = Request::prompt("task-7", "some-model", "Say hello.")
///     .with_kind(Kind::Judge)
///     .with_max_tokens(64);
/// assert_eq!(request.kind.to_string(), "judge");
/// assert_eq!(request.max_tokens, 64);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The caller's name for the request. Never sent to a provider.
    pub id: String,
    /// What the answer is for. Requests of different kinds never share a batch.
    pub kind: Kind,
    /// The model, as the provider names it.
    pub model: String,
    /// What is asked.
    pub body: Body,
    /// The longest answer wanted, in tokens. Not used by [`Body::Raw`], which carries its own.
    pub max_tokens: u32,
    /// When the answer is needed at the latest; `None` where it may come whenever it does.
    ///
    /// Not part of a request's identity: a repeated run may name another one.
    pub deadline: Option<SystemTime>,
    /// What this one request may cost at most, in dollars. One that may cost more is not sent.
    pub budget: Option<f64>,
    /// Notes of the caller. Kept with the request, never sent, never looked at.
    pub metadata: Map<String, Value>,
}

impl Request {
    /// Returns a request of kind [`Kind::other`] with the default answer length.
    pub fn new(id: impl Into<String>, model: impl Into<String>, body: Body) -> Request {
        Request {
            id: id.into(),
            kind: Kind::default(),
            model: model.into(),
            body,
            max_tokens: DEFAULT_MAX_TOKENS,
            deadline: None,
            budget: None,
            metadata: Map::new(),
        }
    }

    /// Returns a request that asks one user message.
    pub fn prompt(
        id: impl Into<String>,
        model: impl Into<String>,
        text: impl Into<String>,
    ) -> Request {
        Request::new(id, model, Body::Prompt(text.into()))
    }

    /// Returns the request with another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Request {
        self.kind = kind;
        self
    }

    /// Returns the request with another longest answer, in tokens.
    #[must_use]
    pub fn with_max_tokens(mut self, max_tokens: u32) -> Request {
        self.max_tokens = max_tokens;
        self
    }

    /// Returns the request with a moment at which its answer is needed at the latest.
    ///
    /// What is done about it is up to the lane; see [`LaneChoice`](crate::LaneChoice).
    #[must_use]
    pub fn with_deadline(mut self, deadline: SystemTime) -> Request {
        self.deadline = Some(deadline);
        self
    }

    /// Returns the request with what it may cost at most, in dollars.
    ///
    /// What it may cost is estimated as for [`max_cost`](crate::Builder::max_cost).
    #[must_use]
    pub fn with_budget(mut self, dollars: f64) -> Request {
        self.budget = Some(dollars);
        self
    }

    /// Returns the request with the caller's notes.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Map<String, Value>) -> Request {
        self.metadata = metadata;
        self
    }
}

/// What an answer is for: one of the three roles of an agent fleet, or a name of the caller's.
///
/// Parses from and prints as its lower-case name; parsing never fails.
///
/// ```
/// use llm_batch::Kind;
///
/// assert_eq!("planner".parse::<Kind>().unwrap(), Kind::Planner);
/// assert_eq!("triage".parse::<Kind>().unwrap(), Kind::Other("triage".to_owned()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Writes the change.
    Implementer,
    /// Judges a change.
    Judge,
    /// Plans the work.
    Planner,
    /// Anything else, by name.
    Other(String),
}

impl Kind {
    /// Returns the kind of requests that name none: `other`.
    pub fn other() -> Kind {
        Kind::Other("other".to_owned())
    }

    /// Returns the name as it is printed.
    pub fn as_str(&self) -> &str {
        match self {
            Kind::Implementer => "implementer",
            Kind::Judge => "judge",
            Kind::Planner => "planner",
            Kind::Other(name) => name,
        }
    }
}

impl Default for Kind {
    fn default() -> Kind {
        Kind::other()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Kind, Infallible> {
        Ok(match name {
            "implementer" => Kind::Implementer,
            "judge" => Kind::Judge,
            "planner" => Kind::Planner,
            other => Kind::Other(other.to_owned()),
        })
    }
}

/// What is asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Body {
    /// One user message.
    Prompt(String),
    /// A conversation. System messages may only stand at its start.
    Messages(Vec<Message>),
    /// The provider's own parameters, passed through byte for byte.
    ///
    /// Must be a JSON object whose `model` equals the request's. Whatever the provider accepts
    /// may stand in it: tools, thinking, documents, cache control.
    Raw(Box<RawValue>),
}

impl Body {
    /// Parses the provider's own parameters from JSON text; the bytes are kept as they are.
    ///
    /// # Errors
    ///
    /// When `json` is not one JSON value. That it is an object with the right model is checked
    /// when the request is sent.
    pub fn raw(json: &str) -> Result<Body, serde_json::Error> {
        serde_json::from_str(json).map(Body::Raw)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
}

impl Message {
    /// Returns a message of plain text.
    pub fn new(role: Role, text: impl Into<String>) -> Message {
        Message { role, content: Content::Text(text.into()) }
    }

    /// Returns a message of the provider's own content blocks, passed on unchanged.
    pub fn blocks(role: Role, blocks: Box<RawValue>) -> Message {
        Message { role, content: Content::Blocks(blocks) }
    }
}

/// Who speaks in a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions that stand before the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

/// What a [`Message`] says.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Content {
    /// Plain text.
    Text(String),
    /// The provider's own content blocks (a JSON array), passed on unchanged.
    Blocks(Box<RawValue>),
}
