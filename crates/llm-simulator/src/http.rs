//! A small HTTP server on loopback that answers well or badly, as it is told.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A call as the server read it, whole.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Seen {
    /// The method, in capitals.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Seen {
    /// Returns the value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns a value of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// What the server does once it has read a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reply {
    /// Answers in full.
    Full {
        /// The status.
        status: u16,
        /// The headers; `content-length` is added.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Vec<u8>,
    },
    /// Answers, then closes the connection without having said so.
    ThenClose(Box<Reply>),
    /// Sends the answer up to so many bytes of its body, then closes.
    Cut(usize, Box<Reply>),
    /// Announces more than it sends, then closes.
    CutShort {
        /// What is sent.
        body: Vec<u8>,
        /// How much is announced.
        announced: usize,
    },
    /// Closes the connection without a word.
    Drop,
    /// Says nothing until the client goes away.
    Silence,
    /// Answers in full after a pause.
    Late(Duration, Box<Reply>),
}

impl Reply {
    /// Returns an answer of JSON.
    pub fn json(status: u16, body: &Value) -> Reply {
        let headers = vec![("content-type", "application/json".to_owned())];
        Reply::Full { status, headers, body: body.to_string().into_bytes() }
    }

    /// Returns an error as the providers write it.
    pub fn error(status: u16, kind: &str, message: &str) -> Reply {
        let error = json!({"type": kind, "message": message});
        Reply::json(status, &json!({"type": "error", "error": error, "request_id": "req_sim"}))
    }

    /// Returns an answer of JSON Lines.
    pub fn jsonl(lines: &[String]) -> Reply {
        let body = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        let headers = vec![("content-type", "application/x-jsonl".to_owned())];
        Reply::Full { status: 200, headers, body: body.into_bytes() }
    }

    /// Returns the answer with one more header. Other replies stay as they are.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Reply {
        if let Reply::Full { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    /// Returns the body of an answer in full.
    pub fn body(&self) -> &[u8] {
        match self {
            Reply::Full { body, .. } | Reply::CutShort { body, .. } => body,
            Reply::ThenClose(reply) | Reply::Late(_, reply) | Reply::Cut(_, reply) => reply.body(),
            Reply::Drop | Reply::Silence => &[],
        }
    }
}

/// How much of a call is read before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reading {
    /// All of it.
    #[default]
    Whole,
    /// The head, and so many bytes of the body; then the connection is closed.
    CutAfter(u64),
}

/// What answers the calls of a [`Server`].
pub trait Handler: Send + Sync + 'static {
    /// Tells how much of a call is to be read, from its head.
    fn reading(&self, head: &Seen) -> Reading {
        let _ = head;
        Reading::Whole
    }

    /// Answers one call. Each connection is served by a thread of its own.
    fn answer(&self, seen: &Seen) -> Reply;

    /// Is told that a connection was opened, in the order in which they are.
    fn opened(&self) {}

    /// Is told that the first head of a connection was read and [`reading`](Handler::reading) was
    /// asked about it, or that none came.
    fn begun(&self) {}

    /// Is told that a call whose head was read is over: its answer is made, or its body did not
    /// come. Not told of calls that were cut on purpose.
    fn over(&self, head: &Seen) {
        let _ = head;
    }
}

impl<F: Fn(&Seen) -> Reply + Send + Sync + 'static> Handler for F {
    fn answer(&self, seen: &Seen) -> Reply {
        self(seen)
    }
}

/// A server on a port of the loopback interface. It ends when it is dropped.
pub struct Server {
    url: String,
    address: SocketAddr,
    log: Arc<Log>,
    closed: Arc<AtomicBool>,
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
    /// Bodies are not kept.
    is_brief: AtomicBool,
}

impl Log {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server on a free port.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub fn start(handler: impl Handler) -> io::Result<Server> {
        Server::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), handler)
    }

    /// Starts a server at an address.
    ///
    /// # Errors
    ///
    /// When the address cannot be had.
    pub fn start_at(address: SocketAddr, handler: impl Handler) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let log = Arc::new(Log::default());
        let closed = Arc::new(AtomicBool::new(false));
        let (log_of_all, gone) = (Arc::clone(&log), Arc::clone(&closed));
        let handler = Arc::new(handler);
        thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                if gone.load(Ordering::SeqCst) {
                    break;
                }
                let (log, handler) = (Arc::clone(&log_of_all), Arc::clone(&handler));
                let waiting = Waiting::new(Arc::clone(&handler));
                // A connection that cannot be served is closed, as any server may.
                let _ =
                    thread::Builder::new().spawn(move || serve(stream, &log, &*handler, waiting));
            }
        })?;
        Ok(Server { url: format!("http://{address}"), address, log, closed })
    }

    /// Returns where the server is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns all calls so far, in the order in which they were read.
    pub fn seen(&self) -> Vec<Seen> {
        self.log.seen().clone()
    }

    /// Keeps the bodies of calls no longer, so that large ones take no memory.
    pub fn forget_bodies(&self) {
        self.log.is_brief.store(true, Ordering::SeqCst);
    }

    /// Blocks until `wanted` says yes to the calls so far.
    pub fn wait_until(&self, wanted: impl Fn(&[Seen]) -> bool) {
        let seen = self.log.seen();
        let reached = self.log.more.wait_while(seen, |seen| !wanted(seen));
        drop(reached);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, so that it ends.
        let _ = TcpStream::connect(self.address);
    }
}

/// A connection whose first head was not read yet.
struct Waiting<H: Handler>(Arc<H>);

impl<H: Handler> Waiting<H> {
    fn new(handler: Arc<H>) -> Waiting<H> {
        handler.opened();
        Waiting(handler)
    }
}

impl<H: Handler> Drop for Waiting<H> {
    fn drop(&mut self) {
        self.0.begun();
    }
}

fn serve<H: Handler>(stream: TcpStream, log: &Log, handler: &H, waiting: Waiting<H>) {
    let mut waiting = Some(waiting);
    let Ok(second) = stream.try_clone() else { return };
    let mut reader = BufReader::with_capacity(64 * 1024, second);
    let mut stream = stream;
    // Small answers must not wait for a second packet.
    let _ = stream.set_nodelay(true);
    while let Some(head) = read_head(&mut reader, &mut stream) {
        let reading = handler.reading(&head);
        drop(waiting.take());
        if let Reading::CutAfter(bytes) = reading {
            let _ = io::copy(&mut reader.by_ref().take(bytes), &mut io::sink());
            return;
        }
        let call = Ongoing { handler, seen: head };
        let Some(reply) = call.read_and_answer(&mut reader, log) else { return };
        drop(call);
        if !answer(&mut stream, &mut reader, reply) {
            return;
        }
    }
}

/// A call whose head was read.
struct Ongoing<'h> {
    handler: &'h dyn Handler,
    seen: Seen,
}

impl Ongoing<'_> {
    fn read_and_answer(&self, reader: &mut BufReader<TcpStream>, log: &Log) -> Option<Reply> {
        let seen = Seen { body: read_body(reader, &self.seen)?, ..self.seen.clone() };
        let mut logged = seen.clone();
        if log.is_brief.load(Ordering::SeqCst) {
            logged.body = Vec::new();
        }
        log.seen().push(logged);
        log.more.notify_all();
        Some(self.handler.answer(&seen))
    }
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        self.handler.over(&self.seen);
    }
}

fn read_head(reader: &mut BufReader<TcpStream>, stream: &mut TcpStream) -> Option<Seen> {
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
    let seen = Seen { method, path, headers, body: Vec::new() };
    if seen.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    Some(seen)
}

fn read_body(reader: &mut BufReader<TcpStream>, head: &Seen) -> Option<Vec<u8>> {
    if head.header("transfer-encoding") == Some("chunked") {
        return read_chunks(reader);
    }
    let length = head.header("content-length").map_or(Ok(0), str::parse).ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn read_chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = u64::from_str_radix(line.trim(), 16).ok()?;
        let read = reader.by_ref().take(length).read_to_end(&mut body).ok()?;
        line.clear();
        reader.read_line(&mut line).ok()?;
        if read as u64 != length {
            return None;
        }
        if length == 0 {
            return Some(body);
        }
    }
}

/// Sends an answer in full, but for its body so many bytes at most; tells whether that went well.
fn send(stream: &mut TcpStream, reply: &Reply, most: usize) -> bool {
    let Reply::Full { status, headers, body } = reply else { return false };
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    let sent = stream.write_all(format!("{head}\r\n").as_bytes());
    sent.and_then(|()| stream.write_all(&body[..most.min(body.len())])).is_ok()
}

/// Returns whether the connection stays open.
fn answer(stream: &mut TcpStream, reader: &mut BufReader<TcpStream>, reply: Reply) -> bool {
    match reply {
        Reply::Full { .. } => send(stream, &reply, usize::MAX),
        Reply::Cut(bytes, reply) => {
            send(stream, &reply, bytes);
            false
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
        Reply::Late(pause, reply) => {
            // Ends early when the client goes away.
            let _ = stream.set_read_timeout(Some(pause));
            let _ = reader.fill_buf();
            let _ = stream.set_read_timeout(None);
            answer(stream, reader, *reply)
        }
    }
}
