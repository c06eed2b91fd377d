//! REQUESTS.jsonl: model requests.

use std::io;
use std::time::{Duration, SystemTime};

use llm_batch::{Body, Content, Kind, Message, Request, Role};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{each_line, read_lines, take_id};
use crate::exit::Stop;
use crate::input::Input;
use crate::json::{Fault, Object};
use crate::suggest;

/// Reads requests and checks all of them.
pub(crate) fn read(input: &Input) -> Result<Vec<Request>, Stop> {
    read_lines(input, parse, id_of)
}

/// Reads requests one at a time and checks each as it comes.
pub(crate) fn each(
    input: &Input,
) -> Result<impl Iterator<Item = Result<Request, Stop>> + use<>, Stop> {
    each_line(input, parse, id_of)
}

fn id_of(request: &Request) -> &str {
    &request.id
}

fn parse(line: &str) -> Result<Request, Fault> {
    let mut object = Object::parse(line)?;
    let id = take_id(&mut object)?;
    let kind: Option<String> = object.optional("kind")?;
    let model: String = object.required("model")?;
    if model.is_empty() {
        return Err(object.fault("model", "is empty"));
    }
    let max_tokens: Option<u32> = object.optional("max_tokens")?;
    let metadata = object.optional("metadata")?;
    let deadline = deadline(&mut object)?;
    let budget = budget(&mut object)?;
    let prompt: Option<String> = object.optional("prompt")?;
    let messages = object.objects("messages")?;
    let body = object.raw("body");
    let body = match (prompt, messages, body) {
        (Some(prompt), None, None) => Body::Prompt(prompt),
        (None, Some(items), None) => Body::Messages(conversation(&object, items)?),
        (None, None, Some(body)) => raw_body(&object, body, &model)?,
        (None, None, None) => {
            return Err(object.fault("prompt", "is missing; give prompt, messages or body"));
        }
        _ => return Err(Fault("prompt, messages and body exclude each other".to_owned())),
    };
    if max_tokens == Some(0) {
        return Err(object.fault("max_tokens", "must be at least 1"));
    }
    if max_tokens.is_some() && matches!(body, Body::Raw(_)) {
        return Err(object.fault("max_tokens", "stands in the body already"));
    }
    object.finish()?;
    let mut request = Request::new(id, model, body);
    if let Some(kind) = kind {
        let Ok(kind) = kind.parse::<Kind>();
        request = request.with_kind(kind);
    }
    if let Some(max_tokens) = max_tokens {
        request = request.with_max_tokens(max_tokens);
    }
    if let Some(metadata) = metadata {
        request = request.with_metadata(metadata);
    }
    if let Some(deadline) = deadline {
        request = request.with_deadline(deadline);
    }
    if let Some(budget) = budget {
        request = request.with_budget(budget);
    }
    Ok(request)
}

fn deadline(object: &mut Object<'_>) -> Result<Option<SystemTime>, Fault> {
    let Some(text) = object.optional::<String>("deadline")? else { return Ok(None) };
    let moment: jiff::Timestamp = text.parse().map_err(|_| {
        object.fault("deadline", "expected a time such as \"2026-11-29T18:00:00Z\"")
    })?;
    let since = u64::try_from(moment.as_millisecond()).unwrap_or(0);
    Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_millis(since)))
}

fn budget(object: &mut Object<'_>) -> Result<Option<f64>, Fault> {
    let Some(raw) = object.raw("budget") else { return Ok(None) };
    let dollars =
        raw.get().parse().ok().filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0);
    match dollars {
        Some(dollars) => Ok(Some(dollars)),
        None => Err(object.fault("budget", "expected dollars, such as 0.05")),
    }
}

fn conversation(object: &Object<'_>, items: Vec<Object<'_>>) -> Result<Vec<Message>, Fault> {
    if items.is_empty() {
        return Err(object.fault("messages", "is empty"));
    }
    items.into_iter().map(message).collect()
}

fn message(mut item: Object<'_>) -> Result<Message, Fault> {
    let name: String = item.required("role")?;
    let role = match name.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let hint = suggest::hint(other, &["system", "user", "assistant"]);
            return Err(item.fault("role", &format!("unknown role {other:?}{hint}")));
        }
    };
    let content: String = item.required("content")?;
    item.finish()?;
    Ok(Message::new(role, content))
}

/// The body passes through byte for byte; only its model is looked at.
fn raw_body(object: &Object<'_>, body: &RawValue, model: &str) -> Result<Body, Fault> {
    let mut inner = Object::parse(body.get()).map_err(|fault| object.fault("body", &fault.0))?;
    match inner.optional::<String>("model") {
        Ok(Some(own)) if own == model => Ok(Body::Raw(body.to_owned())),
        Ok(Some(own)) => {
            Err(object.fault("body", &format!("its model {own:?} is not \"model\" {model:?}")))
        }
        Ok(None) => Err(object.fault("body", "its model is missing")),
        Err(fault) => Err(object.fault("body", &fault.0)),
    }
}

/// Writes requests made of messages as lines that [`read`] takes.
///
/// # Errors
///
/// A request is not made of plain messages.
pub(crate) fn to_lines(requests: &[Request]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for request in requests {
        serde_json::to_writer(&mut lines, &to_json(request)?)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Returns a request made of messages as one object of the input.
pub(crate) fn to_json(request: &Request) -> io::Result<Value> {
    let other = || io::Error::other("the request is not made of plain messages");
    let Body::Messages(messages) = &request.body else { return Err(other()) };
    let messages = messages.iter().map(|message| match &message.content {
        Content::Text(text) => Ok(json!({ "role": message.role, "content": text })),
        _ => Err(other()),
    });
    Ok(json!({
        "id": request.id,
        "kind": request.kind.as_str(),
        "model": request.model,
        "messages": messages.collect::<io::Result<Vec<_>>>()?,
        "max_tokens": request.max_tokens,
    }))
}
