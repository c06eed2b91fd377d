//! A provider on loopback: message batches that end at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};

/// How the server answers a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creates {
    /// With a batch.
    Work,
    /// By closing the connection after the whole request was read: nobody knows what it did.
    Vanish,
    /// Not at all, while the connection stays open.
    Hang,
    /// With 401.
    Unauthorized,
    /// With a batch that never ends.
    NeverEnd,
}

/// One request that came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
    batches: Mutex<Vec<Value>>,
    creates: Mutex<Creates>,
}

/// A running server; it ends with the test's process.
pub(crate) struct Server {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Server {
    pub(crate) fn start(creates: Creates) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            more: Condvar::new(),
            batches: Mutex::default(),
            creates: Mutex::new(creates),
        });
        let server = Server { url: url.clone(), shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, url) = (Arc::clone(&shared), url.clone());
                thread::spawn(move || serve(stream, &shared, &url));
            }
        });
        server
    }

    /// Changes how the server answers from now on.
    pub(crate) fn set(&self, creates: Creates) {
        *self.shared.creates.lock().expect("no panic in the server") = creates;
    }

    /// Returns how many requests with that method came in.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|seen| seen.method == method).count()
    }

    /// Waits until so many requests with that method came in, all told.
    pub(crate) fn wait_for(&self, method: &str, wanted: usize) {
        let mut seen = self.shared.seen.lock().expect("no panic in the server");
        while seen.iter().filter(|seen| seen.method == method).count() < wanted {
            seen = self.shared.more.wait(seen).expect("no panic in the server");
        }
    }

    /// The creates that came in.
    pub(crate) fn creates(&self) -> Vec<Seen> {
        let seen = self.shared.seen.lock().expect("no panic in the server");
        seen.iter().filter(|seen| seen.method == "POST").cloned().collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("no panic in the server").clone()
    }
}

fn serve(stream: TcpStream, shared: &Shared, url: &str) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    while let Some(seen) = read_request(&mut reader) {
        let (method, path, body) = (seen.method.clone(), seen.path.clone(), seen.body.clone());
        shared.seen.lock().expect("no panic").push(seen);
        shared.more.notify_all();
        let creates = *shared.creates.lock().expect("no panic");
        let answer = match (method.as_str(), creates) {
            ("POST", Creates::Vanish) => return,
            ("POST", Creates::Hang) => {
                // Until the other side gives up.
                let _ = reader.read(&mut [0]);
                return;
            }
            ("POST", Creates::Unauthorized) => {
                let error = json!({ "type": "authentication_error", "message": "invalid key" });
                (401, json!({ "type": "error", "error": error }).to_string())
            }
            ("POST", _) => {
                let mut batches = shared.batches.lock().expect("no panic");
                batches.push(body);
                (200, batch(url, batches.len() - 1, creates).to_string())
            }
            _ => {
                let mut parts = path.trim_start_matches("/v1/messages/batches/").split('/');
                let number = parts.next().and_then(|id| id.strip_prefix("msgbatch_")?.parse().ok());
                match (number, parts.next()) {
                    (Some(number), None) => (200, batch(url, number, creates).to_string()),
                    (Some(number), Some("results")) => (200, results(shared, number)),
                    _ => (404, "{}".to_owned()),
                }
            }
        };
        let (status, body) = answer;
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .is_err()
        {
            return;
        }
    }
}

fn batch(url: &str, number: usize, creates: Creates) -> Value {
    let ended = creates != Creates::NeverEnd;
    let id = format!("msgbatch_{number}");
    json!({
        "id": id,
        "type": "message_batch",
        "processing_status": if ended { "ended" } else { "in_progress" },
        "request_counts":
            { "processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0 },
        "created_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-02T00:00:00Z",
        "results_url":
            if ended { json!(format!("{url}/v1/messages/batches/{id}/results")) } else { Value::Null },
    })
}

/// One line a request, the last first: the order of results carries no meaning.
fn results(shared: &Shared, number: usize) -> String {
    let batches = shared.batches.lock().expect("no panic");
    let requests = batches[number]["requests"].as_array().cloned().unwrap_or_default();
    let mut lines = String::new();
    for request in requests.iter().rev() {
        let content = request["params"]["messages"][0]["content"].clone();
        let asked = content.as_str().unwrap_or("blocks").to_owned();
        let text = if asked.contains("path:") {
            let path = asked.split("path:").nth(1).and_then(|rest| rest.split_whitespace().next());
            json!({ "files": [{ "path": path, "content": "made\n" }] }).to_string()
        } else {
            format!("answer to {asked}")
        };
        let message = json!({
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": request["params"]["model"],
            "content": [{ "type": "text", "text": text }],
            "stop_reason": "end_turn",
            "usage": { "input_tokens": 10, "output_tokens": 5 },
        });
        let line = json!({
            "custom_id": request["custom_id"],
            "result": { "type": "succeeded", "message": message },
        });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    lines
}

fn read_request(reader: &mut impl BufRead) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut parts = line.split_whitespace();
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = Vec::new();
    let mut length = 0;
    let mut chunked = false;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        let name = name.to_lowercase();
        if name == "content-length" {
            length = value.parse().ok()?;
        }
        chunked |= name == "transfer-encoding" && value == "chunked";
        headers.push((name, value.to_owned()));
    }
    let body = if chunked { read_chunks(reader)? } else { read_exact(reader, length)? };
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Seen { method, path, headers, body })
}

fn read_chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim(), 16).ok()?;
        body.extend(read_exact(reader, length)?);
        reader.read_line(&mut line).ok()?;
        if length == 0 {
            return Some(body);
        }
    }
}

fn read_exact(reader: &mut impl Read, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
