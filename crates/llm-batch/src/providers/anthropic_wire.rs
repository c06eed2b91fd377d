//! The shapes of Anthropic's messages, as far as they are looked at.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shared::{Said, Turn, WireBatch, check_raw, or_default, said};
use crate::answer::{Answer, RequestError, Usage};
use crate::request::{Body, Content, Message, Request, Role};

/// Returns the `params` of a request.
pub(super) fn params(request: &Request) -> Result<Box<RawValue>, RequestError> {
    let prompt;
    let (system, messages) = match &request.body {
        Body::Raw(raw) => {
            check_raw(raw, &request.model)?;
            return Ok(raw.clone());
        }
        Body::Prompt(text) => {
            prompt = Turn { role: Role::User, content: Said::Text(text) };
            (None, vec![prompt])
        }
        Body::Messages(messages) => conversation(messages)?,
    };
    if request.max_tokens == 0 {
        return Err(RequestError::invalid("`max_tokens` is 0; ask for at least 1"));
    }
    let params = Params { model: &request.model, max_tokens: request.max_tokens, system, messages };
    serde_json::value::to_raw_value(&params)
        .map_err(|error| RequestError::invalid(format!("the request cannot be written: {error}")))
}

/// Refuses parameters of sampling, which newer versions of the API refuse: in a batch that would show
/// a day later.
pub(super) fn check_sampling(raw: &RawValue, version: &str) -> Result<(), RequestError> {
    let keys: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(raw.get()).unwrap_or_default();
    match ["temperature", "top_p", "top_k"].iter().find(|key| keys.contains_key(**key)) {
        Some(key) => Err(RequestError::invalid(format!(
            "the body sets `{key}`, which version {version} of the API refuses; leave it out"
        ))),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Params<'r> {
    model: &'r str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Said<'r>>,
    messages: Vec<Turn<'r>>,
}

/// Splits the system messages, which stand apart on the wire, from the turns.
fn conversation(messages: &[Message]) -> Result<(Option<Said<'_>>, Vec<Turn<'_>>), RequestError> {
    let turns_at = messages
        .iter()
        .position(|message| message.role != Role::System)
        .ok_or_else(|| RequestError::invalid("the conversation has no user message"))?;
    let (system, turns) = messages.split_at(turns_at);
    if turns.iter().any(|message| message.role == Role::System) {
        let reason = "a system message stands inside the conversation; it may only open it";
        return Err(RequestError::invalid(reason));
    }
    let system = match system {
        [] => None,
        [only] => Some(said(&only.content)),
        several => {
            let mut joined = String::new();
            for message in several {
                let Content::Text(text) = &message.content else {
                    let reason = "several system messages can be joined only if they are text";
                    return Err(RequestError::invalid(reason));
                };
                let gap = if joined.is_empty() { "" } else { "\n\n" };
                let _ = write!(joined, "{gap}{text}");
            }
            Some(Said::Joined(joined))
        }
    };
    let turns = turns
        .iter()
        .map(|message| Turn { role: message.role, content: said(&message.content) })
        .collect();
    Ok((system, turns))
}

/// A batch, as far as it matters.
#[derive(Deserialize)]
pub(super) struct BatchObject {
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) processing_status: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) created_at: String,
    /// How many requests are in which state. States that are not known yet count too.
    #[serde(default, deserialize_with = "or_default")]
    request_counts: BTreeMap<String, serde_json::Value>,
}

impl WireBatch for BatchObject {
    fn id(&self) -> &str {
        &self.id
    }
}

impl BatchObject {
    /// Returns how many requests were answered, where the provider tells.
    pub(super) fn answered(&self) -> Option<u64> {
        self.request_counts.get("succeeded")?.as_u64()
    }

    /// Returns how many requests the batch has, where the provider tells.
    pub(super) fn requests(&self) -> Option<u64> {
        let counts: Option<Vec<u64>> =
            self.request_counts.values().map(serde_json::Value::as_u64).collect();
        counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
    }
}

/// A page of the list of batches, the newest first.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(rename = "data")]
    pub(super) batches: Vec<BatchObject>,
    #[serde(default)]
    pub(super) has_more: bool,
}

/// One line of the results: only the envelope is parsed, the message stays as it is.
#[derive(Deserialize)]
pub(super) struct ResultLine<'r> {
    #[serde(borrow)]
    pub(super) custom_id: Cow<'r, str>,
    #[serde(borrow)]
    result: LineResult<'r>,
}

#[derive(Deserialize)]
struct LineResult<'r> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'r, str>,
    #[serde(borrow, default)]
    message: Option<&'r RawValue>,
    #[serde(borrow, default)]
    error: Option<&'r RawValue>,
}

impl ResultLine<'_> {
    /// Returns the length of the message as it stands on the line.
    pub(super) fn body_len(&self) -> Option<usize> {
        self.result.message.map(|message| message.get().len())
    }

    pub(super) fn outcome(&self) -> Result<Answer, RequestError> {
        let result = &self.result;
        match (&*result.kind, result.message) {
            ("succeeded", Some(message)) => Ok(answer(message.to_owned())),
            ("succeeded", None) => Err(errored("invalid_result", "the result holds no message")),
            ("errored", _) => Err(error(result.error)),
            ("expired", _) => Err(RequestError::Expired),
            ("canceled", _) => Err(RequestError::Canceled),
            (other, _) => {
                Err(errored("unknown_result", &format!("the result has the type `{other}`")))
            }
        }
    }
}

fn errored(kind: &str, message: &str) -> RequestError {
    let retryable =
        matches!(kind, "api_error" | "overloaded_error" | "rate_limit_error" | "timeout_error");
    RequestError::Errored { kind: kind.to_owned(), message: message.to_owned(), retryable }
}

#[derive(Deserialize)]
struct ErrorObject<'r> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'r, str>,
    #[serde(borrow, default)]
    message: Cow<'r, str>,
    #[serde(borrow, default)]
    error: Option<&'r RawValue>,
}

/// Reads an error object, which may stand inside another one.
fn error(raw: Option<&RawValue>) -> RequestError {
    let parse = |raw: &'_ RawValue| -> Option<(String, String, Option<Box<RawValue>>)> {
        let object: ErrorObject<'_> = serde_json::from_str(raw.get()).ok()?;
        let inner = object.error.map(ToOwned::to_owned);
        Some((object.kind.into_owned(), object.message.into_owned(), inner))
    };
    let outer = raw.and_then(parse);
    let read = match outer {
        Some((_, _, Some(inner))) => parse(&inner),
        other => other,
    };
    match read {
        Some((kind, message, _)) if !kind.is_empty() => errored(&kind, &message),
        _ => errored("unknown_error", raw.map_or("no reason given", RawValue::get)),
    }
}

#[derive(Deserialize)]
struct MessageObject<'r> {
    #[serde(borrow, default)]
    content: Vec<Block<'r>>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Block<'r> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'r, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'r, str>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation: Option<CacheCreation>,
}

#[derive(Deserialize)]
struct CacheCreation {
    #[serde(default)]
    ephemeral_1h_input_tokens: Option<u64>,
}

/// Picks text and usage out of a message; one that looks otherwise is an answer all the same.
pub(super) fn answer(response: Box<RawValue>) -> Answer {
    let mut answer = Answer::new(response);
    let Ok(message) = serde_json::from_str::<MessageObject<'_>>(answer.response.get()) else {
        return answer;
    };
    let blocks = message.content.into_iter().filter(|block| block.kind == "text");
    // Mostly there is one, and it is not copied again.
    let text = blocks.filter_map(|block| block.text).reduce(|text, more| text + more);
    let text = text.map(Cow::into_owned);
    // What came out of a cache or went into it was read too.
    let usage = message.usage.map(|usage| {
        let read = usage.cache_read_input_tokens.unwrap_or(0);
        let written = usage.cache_creation_input_tokens.unwrap_or(0);
        let for_an_hour = usage.cache_creation.and_then(|c| c.ephemeral_1h_input_tokens);
        Usage {
            input_tokens: usage.input_tokens.saturating_add(written).saturating_add(read),
            output_tokens: usage.output_tokens,
            cache_read_tokens: read,
            cache_write_tokens: written,
            cache_write_1h_tokens: for_an_hour.unwrap_or(0),
        }
    });
    answer.text = text;
    answer.usage = usage;
    answer
}
