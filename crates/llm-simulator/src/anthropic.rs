//! The shape of Anthropic: Message Batches and Messages.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::http::{Reply, Seen};
use crate::model::{Question, Said};
use crate::simulator::{Endpoint, Settings};
use crate::world::{Batch, Cached, Item, Stage, World, moment};

const INVALID: &str = "invalid_request_error";

pub(crate) fn answer(
    endpoint: Endpoint,
    seen: &Seen,
    settings: &Settings,
    world: &mut World,
) -> Reply {
    if seen.header("anthropic-version").is_none() {
        return Reply::error(400, INVALID, "anthropic-version: header is required");
    }
    let host = seen.header("host").unwrap_or("localhost").to_owned();
    let id = seen.path.split('/').nth(4).unwrap_or("").split('?').next().unwrap_or("");
    match endpoint {
        Endpoint::Create => match items(seen, settings) {
            Ok(items) => Reply::json(
                200,
                &object(world.add("msgbatch", items, None, settings), &host, settings),
            ),
            Err(reply) => reply,
        },
        Endpoint::List => list(seen, &host, settings, world),
        Endpoint::Ask => ask(seen, settings, world),
        _ => {
            let Some(batch) = world.batch(id) else {
                return Reply::error(404, "not_found_error", "no such batch");
            };
            if endpoint == Endpoint::Results && batch.polls == 0 {
                // Time passes also for those who do not ask.
                batch.advance();
            }
            match endpoint {
                Endpoint::Poll => {
                    batch.advance();
                    Reply::json(200, &object(batch, &host, settings))
                }
                Endpoint::Cancel => {
                    if batch.is_over() {
                        return Reply::error(400, INVALID, "the batch has ended");
                    }
                    batch.stage = Stage::Canceling;
                    Reply::json(200, &object(batch, &host, settings))
                }
                Endpoint::Results if batch.is_over() => {
                    let said = batch.items.iter().zip(batch.said(settings));
                    // The first request with a text writes it, those behind it read it.
                    let mut written = HashSet::new();
                    let line = |(item, said): (&Item, &Said)| {
                        let is_first = item.cached.is_some_and(|c| written.insert(c.digest));
                        line(item, said, is_first)
                    };
                    let lines: Vec<String> = said.map(line).collect();
                    Reply::jsonl(&lines)
                }
                Endpoint::Results => Reply::error(404, "not_found_error", "no results yet"),
                _ => Reply::error(405, INVALID, "method not allowed"),
            }
        }
    }
}

/// Checks a create as the provider does: what is wrong with ids or shape refuses it whole.
fn items(seen: &Seen, settings: &Settings) -> Result<Vec<Item>, Reply> {
    let invalid = |message: &str| Reply::error(400, INVALID, message);
    if seen.body.len() > settings.max_bytes {
        return Err(Reply::error(413, "request_too_large", "request exceeds the maximum size"));
    }
    let Ok(Value::Object(mut create)) = serde_json::from_slice::<Value>(&seen.body) else {
        return Err(invalid("the body is no JSON object"));
    };
    let Some(Value::Array(requests)) = create.remove("requests") else {
        return Err(invalid("requests: field required"));
    };
    if let Some(key) = create.keys().next() {
        return Err(invalid(&format!("{key}: extra inputs are not permitted")));
    }
    if requests.is_empty() {
        return Err(invalid("requests: at least 1 item"));
    }
    if requests.len() > settings.max_items {
        return Err(Reply::error(413, "request_too_large", "too many requests in the batch"));
    }
    let version = seen.header("anthropic-version").unwrap_or_default();
    let mut ids = HashSet::new();
    let mut items = Vec::with_capacity(requests.len());
    for (at, request) in requests.iter().enumerate() {
        let id = request["custom_id"].as_str().unwrap_or("");
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if !(1..=64).contains(&id.len()) || !id.bytes().all(is_plain) {
            return Err(invalid(&format!("requests.{at}.custom_id: does not match the pattern")));
        }
        if !ids.insert(id) {
            return Err(invalid(&format!("requests.{at}.custom_id: is not unique")));
        }
        let Some(params) = request["params"].as_object() else {
            return Err(invalid(&format!("requests.{at}.params: field required")));
        };
        let body = &request["params"];
        let missing =
            ["model", "max_tokens", "messages"].iter().find(|k| !params.contains_key(**k));
        // Under a newer version some parameters are gone; that shows when the request is run.
        let gone = ["temperature", "top_p", "top_k"].iter().find(|k| params.contains_key(**k));
        let fault = match (missing, gone) {
            (Some(key), _) => Some(format!("{key}: field required")),
            (None, Some(key)) if version >= "2026-10-21" => Some(format!("{key}: not permitted")),
            _ if body["stream"] == true => Some("stream: not permitted in a batch".to_owned()),
            _ => None,
        };
        let marks = body.to_string().matches("\"cache_control\":{").count();
        let fault = fault.or_else(|| (marks > 4).then(|| "cache_control: at most 4".to_owned()));
        let (question, cached) = (Question::of(body), cached(&body["system"]));
        items.push(Item { custom_id: id.to_owned(), question, fault, cached });
    }
    Ok(items)
}

/// Reads the part of a system text that is marked, which is all of it up to the last mark.
fn cached(system: &Value) -> Option<Cached> {
    let blocks = system.as_array()?;
    let last = blocks.iter().rposition(|block| block["cache_control"]["type"] == "ephemeral")?;
    let text: String =
        blocks[..=last].iter().map(|block| block["text"].as_str().unwrap_or("")).collect();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let tokens = text.len() as u64 / 4;
    // What is shorter is not cached.
    (tokens >= 1024).then(|| Cached { digest: hasher.finish(), tokens })
}

fn list(seen: &Seen, host: &str, settings: &Settings, world: &mut World) -> Reply {
    let limit = seen.query("limit").map_or(Ok(20), str::parse);
    let Some(limit) = limit.ok().filter(|limit| (1..=1000).contains(limit)) else {
        return Reply::error(400, INVALID, "limit: between 1 and 1000");
    };
    let (page, has_more) = world.page(limit, seen.query("after_id"));
    let data: Vec<Value> = page.iter().map(|batch| object(batch, host, settings)).collect();
    let id = |batch: Option<&&Batch>| batch.map_or(Value::Null, |batch| json!(batch.id));
    Reply::json(
        200,
        &json!({
            "data": data,
            "has_more": has_more,
            "first_id": id(page.first()),
            "last_id": id(page.last()),
        }),
    )
}

fn ask(seen: &Seen, settings: &Settings, world: &mut World) -> Reply {
    let body = seen.json();
    for key in ["model", "max_tokens", "messages"] {
        if body.get(key).is_none() {
            return Reply::error(400, INVALID, &format!("{key}: field required"));
        }
    }
    let question = Question::of(&body);
    match (settings.model.0)(&question) {
        said @ Said::Text { .. } => {
            let message = said.message(&question.model);
            world.asked.push(question.text);
            Reply::json(200, &message)
        }
        Said::Error { kind, message } => {
            let status = match kind.as_str() {
                "overloaded_error" => 529,
                "rate_limit_error" => 429,
                "api_error" => 500,
                _ => 400,
            };
            Reply::error(status, &kind, &message)
        }
        Said::Expired | Said::Canceled => Reply::error(504, "timeout_error", "took too long"),
    }
}

fn object(batch: &Batch, host: &str, settings: &Settings) -> Value {
    let is_over = batch.is_over();
    let status = match batch.stage {
        Stage::Running => "in_progress",
        Stage::Canceling => "canceling",
        _ => "ended",
    };
    let mut counts = [0_usize; 4];
    if is_over {
        for said in batch.said(settings) {
            let at = match said {
                Said::Text { .. } => 0,
                Said::Error { .. } => 1,
                Said::Canceled => 2,
                Said::Expired => 3,
            };
            counts[at] += 1;
        }
    }
    let [succeeded, errored, canceled, expired] = counts;
    let at = moment(batch.number);
    let ended = if is_over { json!(at) } else { Value::Null };
    let canceling = matches!(batch.stage, Stage::Canceling | Stage::Canceled);
    json!({
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        // Nothing but the total is told before the whole batch has ended.
        "request_counts": {
            "processing": if is_over { 0 } else { batch.items.len() },
            "succeeded": succeeded,
            "errored": errored,
            "canceled": canceled,
            "expired": expired,
        },
        "created_at": at,
        "expires_at": "2026-03-01T00:00:00Z",
        "ended_at": ended,
        "archived_at": null,
        "cancel_initiated_at": if canceling { json!(at) } else { Value::Null },
        "results_url": if is_over {
            json!(format!("http://{host}/v1/messages/batches/{}/results", batch.id))
        } else {
            Value::Null
        },
    })
}

fn line(item: &Item, said: &Said, writes: bool) -> String {
    let result = match said {
        Said::Text { .. } => {
            let mut message = said.message(&item.question.model);
            if let Some(Cached { tokens, .. }) = item.cached {
                let usage = &mut message["usage"];
                let (written, read) = if writes { (tokens, 0) } else { (0, tokens) };
                usage["cache_creation_input_tokens"] = json!(written);
                usage["cache_creation"] = json!({"ephemeral_1h_input_tokens": written});
                usage["cache_read_input_tokens"] = json!(read);
            }
            json!({"type": "succeeded", "message": message})
        }
        Said::Error { kind, message } => json!({
            "type": "errored",
            "error": {
                "type": "error",
                "error": {"type": kind, "message": message},
                "request_id": "req_sim",
            },
        }),
        Said::Canceled => json!({"type": "canceled"}),
        Said::Expired => json!({"type": "expired"}),
    };
    json!({"custom_id": item.custom_id, "result": result}).to_string()
}
