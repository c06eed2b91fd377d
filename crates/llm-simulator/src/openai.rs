//! The shape of OpenAI: Files, Batch and Chat Completions.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::http::{Reply, Seen};
use crate::model::{Question, Said};
use crate::simulator::{Endpoint, Settings};
use crate::world::{Batch, File, Input, Item, Stage, World};

const BORN: u64 = 1_767_225_600;

pub(crate) fn answer(
    endpoint: Endpoint,
    seen: &Seen,
    settings: &Settings,
    world: &mut World,
) -> Reply {
    let path = seen.path.split('?').next().unwrap_or_default();
    let id = path.split('/').nth(3).unwrap_or("");
    match endpoint {
        Endpoint::Upload => upload(seen, settings, world),
        Endpoint::Files => files(seen, id, world),
        Endpoint::Create => create(seen, settings, world),
        Endpoint::List => list(seen, settings, world),
        Endpoint::Results => content(id, settings, world),
        Endpoint::Ask => ask(seen, settings, world),
        Endpoint::Poll | Endpoint::Cancel => {
            let Some(batch) = world.batch(id) else { return missing("batch", id) };
            if endpoint == Endpoint::Poll {
                batch.advance();
            } else if batch.is_over() {
                return error(409, "invalid_request_error", "the batch has ended", None);
            } else {
                batch.stage = Stage::Canceling;
            }
            Reply::json(200, &object(batch, settings))
        }
        Endpoint::Other => error(404, "invalid_request_error", "unknown request URL", None),
    }
}

fn error(status: u16, kind: &str, message: &str, code: Option<&str>) -> Reply {
    let error = json!({"message": message, "type": kind, "param": null, "code": code});
    Reply::json(status, &json!({"error": error}))
}

fn missing(what: &str, id: &str) -> Reply {
    error(404, "invalid_request_error", &format!("no such {what}: {id}"), None)
}

fn invalid(message: &str) -> Reply {
    error(400, "invalid_request_error", message, None)
}

fn upload(seen: &Seen, settings: &Settings, world: &mut World) -> Reply {
    let Some(parts) = multipart(seen) else { return invalid("the body is no multipart form") };
    let field = |name: &str| parts.iter().find(|part| part.field == name);
    let purpose = field("purpose").map(|part| String::from_utf8_lossy(part.content).into_owned());
    if purpose.as_deref() != Some("batch") {
        return invalid("purpose: must be batch");
    }
    let Some(file) = field("file") else { return invalid("file: field required") };
    if Path::new(&file.name).extension().is_none_or(|extension| extension != "jsonl") {
        return invalid("file: must end with .jsonl");
    }
    if file.content.len() > settings.max_bytes {
        return error(413, "invalid_request_error", "the file is too large", None);
    }
    let number = world.number();
    let id = format!("file-{number}");
    let file = File {
        number,
        name: file.name.clone(),
        purpose: "batch".to_owned(),
        content: file.content.to_vec(),
    };
    let object = file_object(&id, &file);
    world.files.insert(id, file);
    Reply::json(200, &object)
}

fn file_object(id: &str, file: &File) -> Value {
    json!({
        "id": id,
        "object": "file",
        "bytes": file.content.len(),
        "created_at": BORN + file.number,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "expires_at": null,
    })
}

struct Part<'b> {
    field: String,
    name: String,
    content: &'b [u8],
}

/// Takes a multipart body apart.
fn multipart(seen: &Seen) -> Option<Vec<Part<'_>>> {
    let (_, boundary) = seen.header("content-type")?.split_once("boundary=")?;
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let mut parts = Vec::new();
    let mut rest = seen.body.as_slice().strip_prefix(boundary.as_bytes())?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, format!("\r\n{boundary}").as_bytes())?;
        let head_end = find(part, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&part[..head_end]).ok()?;
        let value = |key: &str| {
            let (_, rest) = head.split_once(&format!(" {key}=\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        parts.push(Part {
            field: value("name")?,
            name: value("filename").unwrap_or_default(),
            content: part.get(head_end + 4..end)?,
        });
        rest = &part[end + 2 + boundary.len()..];
    }
    rest.starts_with(b"--").then_some(parts)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn files(seen: &Seen, id: &str, world: &mut World) -> Reply {
    match (seen.method.as_str(), id) {
        ("GET", "") => {
            let mut data: Vec<Value> =
                world.files.iter().map(|(id, file)| file_object(id, file)).collect();
            data.sort_by_key(|file| std::cmp::Reverse(file["created_at"].as_u64()));
            Reply::json(200, &json!({"object": "list", "data": data, "has_more": false}))
        }
        ("GET", id) => match world.files.get(id) {
            Some(file) => Reply::json(200, &file_object(id, file)),
            None => missing("file", id),
        },
        ("DELETE", id) => match world.files.remove(id) {
            Some(_) => Reply::json(200, &json!({"id": id, "object": "file", "deleted": true})),
            None => missing("file", id),
        },
        _ => error(405, "invalid_request_error", "method not allowed", None),
    }
}

fn create(seen: &Seen, settings: &Settings, world: &mut World) -> Reply {
    let body = seen.json();
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let (file, endpoint) = (text("input_file_id"), text("endpoint"));
    if text("completion_window") != "24h" {
        return invalid("completion_window: must be 24h");
    }
    if endpoint != "/v1/chat/completions" {
        return invalid("endpoint: not served here");
    }
    let Some(content) = world.files.get(&file).map(|file| file.content.clone()) else {
        return missing("file", &file);
    };
    // What is wrong with the lines shows after the batch was taken.
    let (items, mut faults) = read(&content, &endpoint, settings);
    let running: usize =
        world.batches.iter().filter(|batch| !batch.is_over()).map(|batch| batch.items.len()).sum();
    if faults.is_empty() && running + items.len() > settings.enqueued {
        let message = "Enqueued token limit reached".to_owned();
        faults.push(("token_limit_exceeded".to_owned(), message, None));
    }
    let input = Input { file, endpoint, metadata: body["metadata"].clone() };
    let batch = world.add("batch", items, Some(input), settings);
    let mut answer = object(batch, settings);
    answer["status"] = json!("validating");
    if !faults.is_empty() {
        batch.stage = Stage::Failed(faults);
    }
    Reply::json(200, &answer)
}

type Fault = (String, String, Option<usize>);

fn read(content: &[u8], endpoint: &str, settings: &Settings) -> (Vec<Item>, Vec<Fault>) {
    let (mut items, mut faults) = (Vec::new(), Vec::new());
    let mut ids = HashSet::new();
    let mut model = None;
    let lines = content.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    for (at, line) in lines.enumerate() {
        let line: Value = serde_json::from_slice(line).unwrap_or_default();
        let id = line["custom_id"].as_str().unwrap_or("").to_owned();
        let body = &line["body"];
        let question = Question::of(body);
        let first = model.get_or_insert_with(|| question.model.clone());
        let fault = if !line.is_object() || !body.is_object() {
            Some(("invalid_json_line", "the line is not parseable as a request"))
        } else if id.is_empty() || !ids.insert(id.clone()) {
            Some(("duplicate_custom_id", "the custom_id is missing or stands twice"))
        } else if line["method"] != "POST" || line["url"] != endpoint {
            Some(("invalid_url", "method or url are not those of the batch"))
        } else if *first != question.model {
            Some(("mismatched_model", "the model is not that of the first line"))
        } else if question.model.starts_with("no-such") {
            Some(("model_not_found", "the model does not exist"))
        } else {
            None
        };
        if let Some((code, message)) = fault {
            faults.push((code.to_owned(), message.to_owned(), Some(at + 1)));
        }
        let fault = body["messages"].is_null().then(|| "messages: field required".to_owned());
        items.push(Item { custom_id: id, question, fault, cached: None });
    }
    if items.is_empty() {
        faults.push(("empty_file".to_owned(), "the file holds no request".to_owned(), None));
    }
    if items.len() > settings.max_items {
        let message = "the file holds too many requests".to_owned();
        faults.push(("too_many_tasks".to_owned(), message, None));
    }
    (items, faults)
}

fn list(seen: &Seen, settings: &Settings, world: &mut World) -> Reply {
    let limit = seen.query("limit").and_then(|limit| limit.parse().ok()).unwrap_or(20);
    let (page, has_more) = world.page(limit, seen.query("after"));
    let data: Vec<Value> = page.iter().map(|batch| object(batch, settings)).collect();
    let id = |batch: Option<&&Batch>| batch.map_or(Value::Null, |batch| json!(batch.id));
    let (first, last) = (id(page.first()), id(page.last()));
    Reply::json(
        200,
        &json!({"object": "list", "data": data, "first_id": first, "last_id": last,
                "has_more": has_more}),
    )
}

/// The content of a file: one that was taken, or the output or errors of a batch.
fn content(id: &str, settings: &Settings, world: &World) -> Reply {
    if let Some(file) = world.files.get(id) {
        return Reply::Full { status: 200, headers: Vec::new(), body: file.content.clone() };
    }
    for batch in world.batches.iter().filter(|batch| batch.is_over()) {
        let [output, errors] = result_files(batch, settings);
        if output.as_deref() == Some(id) {
            return Reply::jsonl(&lines(batch, settings, true));
        }
        if errors.as_deref() == Some(id) {
            return Reply::jsonl(&lines(batch, settings, false));
        }
    }
    missing("file", id)
}

/// Returns the ids of the output and the error file, where there is something in them.
fn result_files(batch: &Batch, settings: &Settings) -> [Option<String>; 2] {
    let counts = counts(batch, settings);
    let file = |count: usize, kind: &str| {
        (batch.is_over() && count > 0).then(|| format!("file-{kind}-{}", batch.number))
    };
    [file(counts.0, "out"), file(batch.items.len() - counts.0, "err")]
}

/// Returns how many requests were answered and how many failed.
fn counts(batch: &Batch, settings: &Settings) -> (usize, usize) {
    if !batch.is_over() || matches!(batch.stage, Stage::Failed(_)) {
        return (0, 0);
    }
    batch.said(settings).iter().fold((0, 0), |(completed, failed), said| match said {
        Said::Text { .. } => (completed + 1, failed),
        Said::Error { .. } => (completed, failed + 1),
        Said::Expired | Said::Canceled => (completed, failed),
    })
}

fn lines(batch: &Batch, settings: &Settings, answered: bool) -> Vec<String> {
    let line = |(item, said): (&Item, &Said)| {
        let response = |status: u16, body: Value| json!({"status_code": status, "request_id": "req_sim", "body": body});
        let unrun = |code: &str| json!({"code": code, "message": "This request was not executed."});
        let (response, error) = match said {
            Said::Text { .. } => {
                (response(200, said.completion(&item.question.model)), Value::Null)
            }
            Said::Error { kind, message } => {
                let error = json!({"message": message, "type": kind, "param": null, "code": null});
                (response(status_of(kind), json!({"error": error})), Value::Null)
            }
            Said::Expired => (Value::Null, unrun("batch_expired")),
            Said::Canceled => (Value::Null, unrun("batch_cancelled")),
        };
        let id = format!("batch_req_{}", item.custom_id);
        let line = json!({"id": id, "custom_id": item.custom_id, "response": response,
                          "error": error});
        (matches!(said, Said::Text { .. }) == answered).then(|| line.to_string())
    };
    batch.items.iter().zip(batch.said(settings)).filter_map(line).collect()
}

fn object(batch: &Batch, settings: &Settings) -> Value {
    let said_expired = || batch.said(settings).iter().any(|said| matches!(said, Said::Expired));
    let status = match &batch.stage {
        Stage::Running => "in_progress",
        Stage::Canceling => "cancelling",
        Stage::Canceled => "cancelled",
        Stage::Failed(_) => "failed",
        Stage::Ended if said_expired() => "expired",
        Stage::Ended => "completed",
    };
    let (completed, failed) = counts(batch, settings);
    let [output, errors] = match batch.stage {
        Stage::Failed(_) => [None, None],
        _ => result_files(batch, settings),
    };
    let faults = match &batch.stage {
        Stage::Failed(faults) => {
            let fault = |(code, message, line): &Fault| json!({"code": code, "message": message, "line": line, "param": null});
            json!({"object": "list", "data": faults.iter().map(fault).collect::<Vec<_>>()})
        }
        _ => Value::Null,
    };
    let input = batch.input.as_ref();
    let created_at = BORN + batch.number;
    json!({
        "id": batch.id,
        "object": "batch",
        "endpoint": input.map_or("/v1/chat/completions", |input| &input.endpoint),
        "errors": faults,
        "input_file_id": input.map_or("file-foreign", |input| &input.file),
        "completion_window": "24h",
        "status": status,
        "output_file_id": output,
        "error_file_id": errors,
        "created_at": created_at,
        "in_progress_at": created_at,
        "expires_at": created_at + 86_400,
        "finalizing_at": null,
        "completed_at": if status == "completed" { json!(created_at) } else { Value::Null },
        "failed_at": if status == "failed" { json!(created_at) } else { Value::Null },
        "expired_at": if status == "expired" { json!(created_at) } else { Value::Null },
        "cancelling_at": null,
        "cancelled_at": if status == "cancelled" { json!(created_at) } else { Value::Null },
        "request_counts":
            {"total": batch.items.len(), "completed": completed, "failed": failed},
        "metadata": input.map_or(Value::Null, |input| input.metadata.clone()),
    })
}

fn status_of(kind: &str) -> u16 {
    match kind {
        "rate_limit_exceeded" | "insufficient_quota" => 429,
        "server_error" | "api_error" | "overloaded_error" => 500,
        _ => 400,
    }
}

fn ask(seen: &Seen, settings: &Settings, world: &mut World) -> Reply {
    let body = seen.json();
    if body["model"].as_str().is_none() || !body["messages"].is_array() {
        return invalid("model and messages are required");
    }
    let question = Question::of(&body);
    match (settings.model.0)(&question) {
        said @ Said::Text { .. } => {
            let completion = said.completion(&question.model);
            world.asked.push(question.text);
            Reply::json(200, &completion)
        }
        Said::Error { kind, message } => error(status_of(&kind), "requests", &message, Some(&kind)),
        Said::Expired | Said::Canceled => error(504, "server_error", "took too long", None),
    }
}
