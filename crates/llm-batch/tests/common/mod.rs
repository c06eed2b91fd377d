//! A small HTTP server on loopback, and on it a provider that takes message batches.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a helper of tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use llm_batch::providers::Anthropic;
use llm_batch::{Answer, Builder, LlmBatch, Request, RequestError};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const KEY: &str = "sk-ant-test-SECRET";

/// Runs `cases` random cases, or as many as `PROPTEST_CASES` says.
pub fn cases(cases: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        proptest::prelude::ProptestConfig { cases, ..config }
    }
}

/// A call as the server read it, whole.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does once it has read a call.
#[derive(Debug, Clone)]
pub enum Reply {
    Full {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Answers, then closes the connection without having said so.
    ThenClose(Box<Reply>),
    /// Announces more than it sends, then closes.
    CutShort {
        body: Vec<u8>,
        announced: usize,
    },
    /// Closes the connection without a word.
    Drop,
    /// Says nothing until the client goes away.
    Silence,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Reply {
        let headers = vec![("content-type", "application/json".to_owned())];
        Reply::Full { status, headers, body: body.to_string().into_bytes() }
    }

    pub fn error(status: u16, kind: &str, message: &str) -> Reply {
        let error = json!({"type": kind, "message": message});
        Reply::json(status, &json!({"type": "error", "error": error}))
    }

    pub fn with_header(self, name: &'static str, value: &str) -> Reply {
        let Reply::Full { status, mut headers, body } = self else { panic!("no full reply") };
        headers.push((name, value.to_owned()));
        Reply::Full { status, headers, body }
    }
}

pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    closed: Arc<AtomicBool>,
}

impl Server {
    pub fn start(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_at("127.0.0.1:0", handler)
    }

    pub fn start_at(
        address: &str,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let handler = Arc::new(handler);
        let (log, gone) = (Arc::clone(&seen), Arc::clone(&closed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if gone.load(Ordering::SeqCst) {
                    break;
                }
                let (log, handler) = (Arc::clone(&log), Arc::clone(&handler));
                thread::spawn(move || serve(stream.unwrap(), &log, &*handler));
            }
        });
        Server { url, seen, closed }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>, handler: &dyn Fn(&Seen) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(seen) = read_call(&mut reader) {
        log.lock().unwrap().push(seen.clone());
        if !answer(&mut stream, &mut reader, handler(&seen)) {
            break;
        }
    }
}

fn read_call(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { method, path, headers, body })
}

/// Returns whether the connection stays open.
fn answer(stream: &mut TcpStream, reader: &mut BufReader<TcpStream>, reply: Reply) -> bool {
    match reply {
        Reply::Full { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                head.extend([name, ": ", &value, "\r\n"]);
            }
            let sent = stream.write_all(format!("{head}\r\n").as_bytes());
            sent.and_then(|()| stream.write_all(&body)).is_ok()
        }
        Reply::ThenClose(reply) => {
            answer(stream, reader, *reply);
            false
        }
        Reply::CutShort { body, announced } => {
            let head = format!("HTTP/1.1 200 x\r\ncontent-length: {announced}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            false
        }
        Reply::Drop => false,
        Reply::Silence => {
            let _ = reader.read(&mut [0]);
            false
        }
    }
}

type OnCreate = dyn Fn(usize, &Seen) -> Option<Reply> + Send + Sync;
type OnResults = dyn Fn(usize, Vec<String>) -> Reply + Send + Sync;

/// A provider of message batches with faults to order.
pub struct Sim {
    pub server: Server,
    pub creates: Arc<AtomicUsize>,
}

/// What a [`Sim`] does otherwise than well.
#[derive(Default)]
pub struct Faults {
    /// Replies to create number n (from 0), which is taken all the same; `None` = as usual.
    pub create: Option<Box<OnCreate>>,
    /// Replies to poll number n; `None` = as usual.
    pub poll: Option<Box<OnCreate>>,
    /// Replies to reading number n of results, given the lines.
    pub results: Option<Box<OnResults>>,
    /// How often a batch is still running when asked.
    pub running: usize,
}

impl Sim {
    pub fn start(faults: Faults) -> Sim {
        let creates = Arc::new(AtomicUsize::new(0));
        let (polls, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let batches: Mutex<BTreeMap<String, (Value, usize)>> = Mutex::default();
        let count = Arc::clone(&creates);
        let server = Server::start(move |seen| {
            let path = seen.path.strip_prefix("/v1/messages/batches").unwrap_or("?");
            let id = path.trim_start_matches('/').trim_end_matches("/results").to_owned();
            match (seen.method.as_str(), path) {
                ("POST", "") => {
                    let nth = count.fetch_add(1, Ordering::SeqCst);
                    let id = format!("msgbatch_{nth}");
                    let body = serde_json::from_slice(&seen.body).unwrap();
                    batches.lock().unwrap().insert(id.clone(), (body, faults.running));
                    let custom = faults.create.as_ref().and_then(|create| create(nth, seen));
                    custom.unwrap_or_else(|| batch_object(&id, false))
                }
                ("GET", path) if path.ends_with("/results") => {
                    let nth = reads.fetch_add(1, Ordering::SeqCst);
                    let lines = result_lines(&batches.lock().unwrap()[&id].0);
                    match &faults.results {
                        Some(results) => results(nth, lines),
                        None => jsonl(&lines),
                    }
                }
                ("GET", _) => {
                    let nth = polls.fetch_add(1, Ordering::SeqCst);
                    if let Some(reply) = faults.poll.as_ref().and_then(|poll| poll(nth, seen)) {
                        return reply;
                    }
                    let mut batches = batches.lock().unwrap();
                    let left = &mut batches.get_mut(&id).unwrap().1;
                    let ended = *left == 0;
                    *left = left.saturating_sub(1);
                    batch_object(&id, ended)
                }
                other => panic!("unexpected call {other:?}"),
            }
        });
        Sim { server, creates }
    }

    pub fn creates(&self) -> usize {
        self.creates.load(Ordering::SeqCst)
    }

    pub fn bodies(&self) -> Vec<Value> {
        let seen = self.server.seen().into_iter().filter(|seen| seen.method == "POST");
        seen.map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect()
    }
}

pub fn batch_object(id: &str, ended: bool) -> Reply {
    let status = if ended { "ended" } else { "in_progress" };
    let results = ended.then(|| format!("https://elsewhere.invalid/{id}/results"));
    Reply::json(
        200,
        &json!({"id": id, "type": "message_batch", "processing_status": status,
                "results_url": results, "request_counts": {"processing": 1}}),
    )
}

pub fn jsonl(lines: &[String]) -> Reply {
    let body = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
    Reply::Full { status: 200, headers: Vec::new(), body: body.into_bytes() }
}

/// Answers each request with its own prompt, so that a swapped answer shows.
fn result_lines(create: &Value) -> Vec<String> {
    let requests = create["requests"].as_array().unwrap().iter();
    requests
        .map(|request| {
            let asked = request["params"]["messages"][0]["content"].as_str().unwrap_or("raw");
            let message = json!({"id": "msg", "type": "message", "role": "assistant",
                "content": [{"type": "text", "text": format!("answer to {asked}")}],
                "usage": {"input_tokens": 3, "output_tokens": 5}});
            json!({"custom_id": request["custom_id"],
                   "result": {"type": "succeeded", "message": message}})
            .to_string()
        })
        .collect()
}

/// A folder for the state that is gone after the test.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

pub fn builder(url: &str, state: &Path) -> Builder {
    let provider = Anthropic::builder(KEY).base_url(url).build().unwrap();
    LlmBatch::builder(Arc::new(provider))
        .state(state)
        .poll_interval(Duration::from_millis(1))
        .timeout(Duration::from_mins(1))
}

pub fn open(sim: &Sim, place: &Place) -> LlmBatch {
    builder(&sim.server.url, &place.state()).build().unwrap()
}

pub fn ask(id: &str) -> Request {
    Request::prompt(id, "model-a", format!("question {id}"))
}

pub type Outcome = (String, Result<Answer, RequestError>);

/// Runs, and returns the outcomes in order of arrival with what the run came to.
pub fn run(
    llm: &LlmBatch,
    requests: impl IntoIterator<Item = Request>,
) -> (Vec<Outcome>, Result<llm_batch::Run, llm_batch::Error>) {
    let mut outcomes = Vec::new();
    let run = llm.run(requests, |id, outcome| outcomes.push((id.to_owned(), outcome)));
    (outcomes, run)
}

/// Asserts that each of the ids has the answer to its own question, once.
pub fn assert_answered(outcomes: &[Outcome], ids: &[&str]) {
    let mut got: Vec<(String, String)> = outcomes
        .iter()
        .map(|(id, outcome)| (id.clone(), outcome.as_ref().unwrap().text.clone().unwrap()))
        .collect();
    got.sort();
    let mut expected: Vec<(String, String)> =
        ids.iter().map(|id| ((*id).to_owned(), format!("answer to question {id}"))).collect();
    expected.sort();
    assert_eq!(got, expected);
}
