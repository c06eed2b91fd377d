//! What providers over HTTP have in common.

use std::borrow::Cow;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;

use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use ureq::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::answer::{Answer, RequestError};
use crate::draft::Entry;
use crate::error::Error;
use crate::http::{Http, MAX_ANSWER, Post, PostError, Reply, excerpt};
use crate::lines::{Line, next_line};
use crate::provider::{Call, CallError, CreateError};
use crate::request::{Content, Role};

/// How many pages of a list are read. A server may say for ever that there are more.
pub(super) const MAX_PAGES: usize = 1000;
/// How far the clocks behind two times of the same provider may be apart, in seconds.
pub(super) const SKEW: i64 = 120;

/// Why a batch that is not in the list may be there all the same. Another key of the same account
/// is no proof where there was nothing in the list before.
pub(super) const OTHER_KEY: &str = "the create was sent with another key, and nothing proves that \
                                    this one would see its batch; use the very key that sent it";

/// The same, where it is not known which key the create was sent with.
pub(super) const PERHAPS_OTHER_KEY: &str = "the create was perhaps sent with another key, and \
                                            nothing proves that this one would see its batch; use \
                                            the key that sent it";

/// Returns the header that carries the key, as a bearer token where it is `authorization`.
pub(super) fn key_header(
    name: &'static str,
    key: &SecretString,
    variable: &str,
) -> Result<HeaderMap, Error> {
    let setting = |problem: String| Error::Setting { problem };
    let secret = key.expose_secret();
    if secret.trim().is_empty() {
        return Err(setting(format!("the API key is empty; set {variable}")));
    }
    let bearer;
    let value = if name == "authorization" {
        bearer = format!("Bearer {secret}");
        &bearer
    } else {
        secret
    };
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| setting("the API key holds a character that no header may hold".to_owned()))?;
    // So it is never shown.
    value.set_sensitive(true);
    Ok([(HeaderName::from_static(name), value)].into_iter().collect())
}

/// A batch as either shape tells of it.
pub(super) trait WireBatch: DeserializeOwned {
    fn id(&self) -> &str;
}

/// Reads what is of another type than it should be as if it were not there. Servers of a shape differ in
/// what is only of use, and a batch that was taken has to be waited for all the same.
pub(super) fn or_default<'d, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'d>,
    T: DeserializeOwned + Default,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// Reads a batch, and checks that it is the one that was asked for.
pub(super) fn batch<B: WireBatch>(
    http: &Http,
    folder: &str,
    batch_id: &str,
    call: &Call<'_>,
) -> Result<B, CallError> {
    let body = http.get(&path(folder, batch_id, "")?, call)?;
    let batch: B = http.parse(&body, "the batch")?;
    if batch.id() != batch_id {
        return Err(CallError::passing("the provider told about another batch"));
    }
    Ok(batch)
}

/// Reads the batch that a create was answered with.
pub(super) fn created<B: WireBatch>(
    http: &Http,
    posted: Result<Reply, PostError>,
) -> Result<B, CreateError> {
    let body = http.created(posted)?;
    let unknown = |why: String| CreateError::Ambiguous {
        reason: http.scrub(&format!("the provider took the create, but {why}")),
    };
    let batch: B = serde_json::from_slice(&body)
        .map_err(|error| unknown(format!("answered not with a batch: {error}")))?;
    if is_safe_id(batch.id()) {
        return Ok(batch);
    }
    Err(unknown("the batch has an id that cannot stand in a path".to_owned()))
}

/// Returns the path to something in a folder of the provider's.
pub(super) fn path(folder: &str, id: &str, rest: &str) -> Result<String, CallError> {
    if is_safe_id(id) {
        return Ok(format!("{folder}/{id}{rest}"));
    }
    Err(CallError::Refused { message: "its id cannot stand in a path".to_owned() })
}

/// Returns the query for the rest of a list whose page ends with `last`; `None` where that was all.
pub(super) fn next_page(
    first: &str,
    after: &str,
    last: Option<&str>,
    has_more: bool,
) -> Result<Option<String>, CallError> {
    match last.filter(|last| is_safe_id(last)) {
        _ if !has_more => Ok(None),
        Some(last) => Ok(Some(format!("{first}&{after}={last}"))),
        None => Err(CallError::passing("the list of batches does not say how it goes on")),
    }
}

/// A message on the wire, which both shapes write alike.
#[derive(Serialize)]
pub(super) struct Turn<'r> {
    pub(super) role: Role,
    pub(super) content: Said<'r>,
}

/// What is said in it.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Said<'r> {
    Text(&'r str),
    Joined(String),
    Blocks(&'r RawValue),
}

pub(super) fn said(content: &Content) -> Said<'_> {
    match content {
        Content::Text(text) => Said::Text(text),
        Content::Blocks(blocks) => Said::Blocks(blocks),
    }
}

/// Tells whether a provider's id can stand in a path without changing its meaning.
pub(super) fn is_safe_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !id.contains("..")
        && id != "."
}

#[derive(Deserialize)]
struct RawParams<'r> {
    #[serde(borrow)]
    model: Cow<'r, str>,
    #[serde(default)]
    stream: bool,
}

/// Checks parameters of the caller's own: an object, for that model, without a stream.
pub(super) fn check_raw(raw: &RawValue, model: &str) -> Result<(), RequestError> {
    if !raw.get().trim_start().starts_with('{') {
        return Err(RequestError::invalid("the body is no JSON object"));
    }
    let params: RawParams<'_> = serde_json::from_str(raw.get())
        .map_err(|error| RequestError::invalid(format!("the body cannot be used: {error}")))?;
    if params.model != model {
        return Err(RequestError::invalid(format!(
            "the body asks for the model `{}` and the request for `{model}`",
            params.model
        )));
    }
    if params.stream {
        return Err(RequestError::invalid("the body sets `stream`; a batch cannot stream"));
    }
    Ok(())
}

/// Hands every line of a download to `take` and returns how many could not be read: those over
/// `max_line` bytes, and those of which `take` makes nothing. Ends early when `take` breaks.
pub(super) fn each_line(
    body: impl Read,
    max_line: usize,
    call: &Call<'_>,
    take: &mut dyn FnMut(&[u8]) -> Option<ControlFlow<()>>,
) -> Result<u64, CallError> {
    let mut reader = BufReader::with_capacity(64 * 1024, body);
    let mut buffer = Vec::new();
    let mut unreadable = 0;
    loop {
        if call.is_stopped() {
            return Err(CallError::passing("interrupted"));
        }
        let line = next_line(&mut reader, &mut buffer, max_line)
            .map_err(|error| CallError::passing(format!("the results broke off: {error}")))?;
        match line {
            None => return Ok(unreadable),
            Some(Line::TooLong) => unreadable += 1,
            Some(Line::Whole) if buffer.trim_ascii().is_empty() => {}
            Some(Line::Whole) => match take(&buffer) {
                Some(ControlFlow::Continue(())) => {}
                Some(ControlFlow::Break(())) => return Ok(unreadable),
                None => unreadable += 1,
            },
        }
    }
}

/// Parses one line; one that is something else is nothing.
pub(super) fn parsed<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

/// Removes the key from what a provider says of a request that failed.
pub(super) fn without_key(
    http: &Http,
    outcome: Result<Answer, RequestError>,
) -> Result<Answer, RequestError> {
    outcome.map_err(|error| match error {
        RequestError::Errored { kind, message, retryable } => {
            let (kind, message) = (http.scrub(&kind), excerpt(&http.scrub(&message)));
            RequestError::Errored { kind, message, retryable }
        }
        other => other,
    })
}

/// Sends the body of one request to `path` and returns the answer as it came.
pub(super) fn ask(
    http: &Http,
    path: &str,
    entry: &Entry<'_>,
    call: &Call<'_>,
) -> Result<Box<RawValue>, CreateError> {
    let not_sent = |error: std::io::Error| CreateError::NotSent { reason: error.to_string() };
    let body = entry.body().map_err(not_sent)?;
    let mut bytes = body.get().as_bytes();
    let post = Post { cap: MAX_ANSWER, ..Post::json(path, &mut bytes, entry.body_bytes) };
    let posted = http.post(post, call);
    if let Ok(reply) = &posted
        && matches!(reply.status.as_u16(), 503 | 529)
        && let (kind, message) = http.message(reply)
        && kind == "overloaded_error"
    {
        // The provider itself says that nothing was done; asking for one answer, that is taken at
        // its word. A proxy says 503 also where the provider got the request.
        let (message, retry_after) = (format!("{kind}: {message}"), reply.retry_after);
        return Err(CreateError::Busy { message, retry_after });
    }
    let answer = http.created(posted)?;
    serde_json::from_slice(&answer).map_err(|error| CreateError::Ambiguous {
        reason: http.scrub(&format!("the answer is no JSON: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_would_lead_elsewhere_are_refused() {
        assert!(is_safe_id("msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d"));
        for id in ["", ".", "..", "a/b", "a..b", "a%2fb", "a?b", "a b", &"a".repeat(129)] {
            assert!(!is_safe_id(id), "{id}");
        }
    }
}
