//! The shapes of OpenAI's messages, as far as they are looked at.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::shared::{Said, Turn, WireBatch, check_raw, or_default, said};
use crate::answer::{Answer, RequestError, Usage};
use crate::request::{Body, Request, Role};

/// Returns the body of a request.
pub(super) fn body(request: &Request, max_tokens: &str) -> Result<Box<RawValue>, RequestError> {
    let messages = match &request.body {
        Body::Raw(raw) => {
            check_raw(raw, &request.model)?;
            return one_line(raw);
        }
        Body::Prompt(text) => vec![Turn { role: Role::User, content: Said::Text(text) }],
        Body::Messages(messages) => {
            let turn = |(role, content)| Turn { role, content: said(content) };
            messages.iter().map(|message| turn((message.role, &message.content))).collect()
        }
    };
    if messages.iter().all(|turn| turn.role == Role::System) {
        return Err(RequestError::invalid("the conversation has no user message"));
    }
    if request.max_tokens == 0 {
        return Err(RequestError::invalid("`max_tokens` is 0; ask for at least 1"));
    }
    let mut body = serde_json::Map::new();
    body.insert("model".to_owned(), request.model.clone().into());
    body.insert(max_tokens.to_owned(), request.max_tokens.into());
    let written = |error: serde_json::Error| {
        RequestError::invalid(format!("the request cannot be written: {error}"))
    };
    let head = serde_json::to_string(&body).map_err(written)?;
    let messages = serde_json::to_string(&messages).map_err(written)?;
    // The messages may hold blocks of the caller's, which stay as they are.
    let text = format!("{},\"messages\":{messages}}}", &head[..head.len() - 1]);
    one_line(&RawValue::from_string(text).map_err(written)?)
}

/// Puts a body on one line: a file of requests has one a line. Line breaks stand between tokens
/// only, so nothing is changed that means something.
fn one_line(raw: &RawValue) -> Result<Box<RawValue>, RequestError> {
    if !raw.get().contains(['\n', '\r']) {
        return Ok(raw.to_owned());
    }
    RawValue::from_string(raw.get().replace(['\n', '\r'], " "))
        .map_err(|error| RequestError::invalid(format!("the body cannot be used: {error}")))
}

/// A file that was taken.
#[derive(Deserialize)]
pub(super) struct FileObject {
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) created_at: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) filename: String,
}

/// A page of the list of files, the newest first.
#[derive(Deserialize)]
pub(super) struct Files {
    #[serde(rename = "data")]
    pub(super) files: Vec<FileObject>,
    #[serde(default)]
    pub(super) has_more: bool,
}

/// A batch, as far as it matters.
#[derive(Deserialize)]
pub(super) struct BatchObject {
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) input_file_id: String,
    // Not of any type: what is in them is paid for, and one that cannot be read is no absent one.
    #[serde(default)]
    pub(super) output_file_id: Option<String>,
    #[serde(default)]
    pub(super) error_file_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) created_at: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) request_counts: Counts,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) errors: Option<Faults>,
}

impl WireBatch for BatchObject {
    fn id(&self) -> &str {
        &self.id
    }
}

impl BatchObject {
    /// Returns how many requests were answered as far as it says so.
    pub(super) fn completed(&self) -> u64 {
        self.request_counts.completed.unwrap_or(0)
    }
}

#[derive(Deserialize, Default)]
pub(super) struct Counts {
    #[serde(default, deserialize_with = "number")]
    pub(super) completed: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Faults {
    #[serde(default, deserialize_with = "each_fault")]
    pub(super) data: Vec<Fault>,
}

#[derive(Deserialize)]
pub(super) struct Fault {
    #[serde(default, deserialize_with = "word")]
    pub(super) code: Option<String>,
    #[serde(default, deserialize_with = "word")]
    pub(super) message: Option<String>,
    #[serde(default, deserialize_with = "number")]
    pub(super) line: Option<u64>,
}

impl Fault {
    pub(super) fn code(&self) -> &str {
        self.code.as_deref().unwrap_or("batch_failed")
    }

    pub(super) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or("no reason given")
    }
}

/// Reads each by itself: one that is of another type hides no other.
fn each_fault<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<Fault>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(faults) => {
            faults.into_iter().filter_map(|f| Fault::deserialize(f).ok()).collect()
        }
        _ => Vec::new(),
    })
}

/// A page of the list of batches, the newest first.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(rename = "data")]
    pub(super) batches: Vec<BatchObject>,
    #[serde(default)]
    pub(super) has_more: bool,
}

/// Reads a whole number, also one in a string or with a fraction of nothing.
fn number<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = word(deserializer)?;
    Ok(text.and_then(|text| text.strip_suffix(".0").unwrap_or(&text).parse().ok()))
}

/// Reads a word, also one that is a number, as some servers write their codes.
fn word<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// One line of the results: only the envelope is parsed, the body stays as it is.
#[derive(Deserialize)]
pub(super) struct ResultLine<'r> {
    #[serde(borrow)]
    pub(super) custom_id: Cow<'r, str>,
    #[serde(borrow, default)]
    response: Option<Response<'r>>,
    #[serde(default)]
    error: Option<LineError>,
}

#[derive(Deserialize)]
struct Response<'r> {
    #[serde(default)]
    status_code: u16,
    #[serde(borrow, default)]
    body: Option<&'r RawValue>,
}

#[derive(Deserialize)]
struct LineError {
    #[serde(default, deserialize_with = "word")]
    code: Option<String>,
    #[serde(default, deserialize_with = "word", rename = "type")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "word")]
    message: Option<String>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: LineError,
}

impl LineError {
    /// Returns what the error says; `status` is that of the answer it came in, if it came in one.
    fn outcome(&self, status: Option<u16>) -> RequestError {
        let kind = self.code.as_deref().or(self.kind.as_deref()).unwrap_or("unknown_error");
        let passes = status.is_some_and(passes)
            || matches!(kind, "request_timeout" | "server_error" | "rate_limit_exceeded");
        match kind {
            "batch_expired" => RequestError::Expired,
            "batch_cancelled" => RequestError::Canceled,
            kind => RequestError::Errored {
                kind: kind.to_owned(),
                message: self.message.as_deref().unwrap_or("no reason given").to_owned(),
                retryable: passes && kind != "insufficient_quota",
            },
        }
    }
}

/// Tells whether a request that was answered with this status may well succeed later.
fn passes(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..)
}

impl ResultLine<'_> {
    pub(super) fn outcome(&self) -> Result<Answer, RequestError> {
        if let Some(error) = &self.error {
            return Err(error.outcome(None));
        }
        let body = self.response.as_ref().and_then(|response| {
            let body = response.body?;
            // Some servers put the body into a string.
            let inner = serde_json::from_str::<String>(body.get()).ok();
            let body = match inner {
                Some(inner) => RawValue::from_string(inner).ok()?,
                None => body.to_owned(),
            };
            Some((response.status_code, body))
        });
        match body {
            Some((status, body)) if (200..300).contains(&status) => Ok(answer(body)),
            Some((status, body)) => {
                let error = serde_json::from_str::<ErrorBody>(body.get());
                Err(error.map_or_else(
                    |_| RequestError::Errored {
                        kind: format!("http_{status}"),
                        // It is cut once the key is out of it.
                        message: body.get().to_owned(),
                        retryable: passes(status),
                    },
                    |body| body.error.outcome(Some(status)),
                ))
            }
            None => Err(RequestError::Errored {
                kind: "invalid_result".to_owned(),
                message: "the result holds neither a response nor an error".to_owned(),
                retryable: false,
            }),
        }
    }
}

#[derive(Deserialize)]
struct Completion<'r> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'r>>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice<'r> {
    #[serde(borrow)]
    message: Spoken<'r>,
}

#[derive(Deserialize)]
struct Spoken<'r> {
    #[serde(borrow, default)]
    content: Option<Cow<'r, str>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// Picks text and usage out of a completion; one that looks otherwise is an answer all the same.
pub(super) fn answer(response: Box<RawValue>) -> Answer {
    let mut answer = Answer::new(response);
    let Ok(completion) = serde_json::from_str::<Completion<'_>>(answer.response.get()) else {
        return answer;
    };
    let text = completion.choices.into_iter().next().and_then(|choice| choice.message.content);
    let text = text.map(Cow::into_owned);
    let usage = completion.usage.map(|usage| Usage {
        input_tokens: usage.prompt_tokens,
        output_tokens: usage.completion_tokens,
        cache_read_tokens: usage.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or(0),
        ..Usage::default()
    });
    answer.text = text;
    answer.usage = usage;
    answer
}
