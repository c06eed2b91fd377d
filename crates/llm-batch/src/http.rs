//! HTTP as providers need it: a POST leaves at most once, a key goes to one host only.

mod download;

use std::fmt::{self, Write};
use std::io::{self, Read};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use ureq::http::header::HeaderMap;
use ureq::http::{Request, Response, StatusCode};
use ureq::{Agent, Body, SendBody};

use crate::base_url::BaseUrl;
use crate::digest::account;
use crate::provider::{Call, CallError, CreateError};
use crate::retry_after::retry_after;
use crate::stop::Hooked;

const USER_AGENT: &str = concat!("llm-batch/", env!("CARGO_PKG_VERSION"));
const CONNECT: Duration = Duration::from_secs(30);
/// The longest a create may take. The provider answers when it has read and stored the whole body.
const CREATE: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_mins(1);
/// The longest pause within a download.
const SILENCE: Duration = Duration::from_mins(1);
/// What a connection reads and writes at a time. Each has both, from its first byte on.
const BUFFER: usize = 64 * 1024;
/// Connections that are kept open between polls.
const KEPT: usize = 4;
const MAX_HEADER: usize = 64 * 1024;
const MAX_ERROR: u64 = 64 * 1024;
/// A batch, or a page of a thousand of them.
const MAX_OBJECT: u64 = 16 * 1024 * 1024;
const MAX_CREATED: u64 = 1024 * 1024;
/// An answer of the model.
pub(crate) const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// A client for one provider.
pub(crate) struct Http {
    base: BaseUrl,
    key: SecretString,
    headers: HeaderMap,
    creates: Agent,
    reads: Arc<Mutex<Agent>>,
}

/// One POST.
pub(crate) struct Post<'b> {
    pub(crate) path: &'b str,
    pub(crate) content_type: &'b str,
    pub(crate) body: &'b mut dyn Read,
    /// How many bytes the body has.
    pub(crate) length: u64,
    /// How many bytes of the answer are read.
    pub(crate) cap: u64,
}

impl<'b> Post<'b> {
    pub(crate) fn json(path: &'b str, body: &'b mut dyn Read, length: u64) -> Post<'b> {
        Post { path, content_type: "application/json", body, length, cap: MAX_CREATED }
    }
}

/// What a server answered, its body read whole up to a cap.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    /// The body; an error when it could not be read whole.
    pub(crate) body: Result<Vec<u8>, String>,
}

/// Why there is no answer to a POST.
#[derive(Debug)]
pub(crate) enum PostError {
    /// Part of the body never left this process.
    NotSent(String),
    /// All of it may have arrived.
    Unknown(String),
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Http {
    /// `headers` go with every call; those with the key in them must be marked sensitive.
    pub(crate) fn new(base: BaseUrl, key: SecretString, headers: HeaderMap) -> Http {
        // A kept connection may be closed by the server just when a create is written to it;
        // then nobody can tell whether it was read. So a create always gets a new one.
        let creates = agent(&base, 0);
        let reads = Arc::new(Mutex::new(agent(&base, KEPT)));
        Http { base, key, headers, creates, reads }
    }

    pub(crate) fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Returns a digest of the key and of where it goes.
    pub(crate) fn account(&self, salt: &str) -> String {
        account(salt, self.base.as_str(), self.key.expose_secret().trim())
    }

    /// Sends one POST, once, whatever happens.
    pub(crate) fn post(&self, post: Post<'_>, call: &Call<'_>) -> Result<Reply, PostError> {
        let Post { path, content_type, body, length, cap } = post;
        let mut body = Drained { inner: body, left: length, is_broken: false };
        let sent = self
            .request("POST", path)
            .header("content-type", content_type)
            .header("content-length", length)
            .body(SendBody::from_reader(&mut body))
            .map_err(ureq::Error::from)
            .and_then(|request| {
                let request = self
                    .creates
                    .configure_request(request)
                    .timeout_global(Some(CREATE.min(call.time_left())))
                    .build();
                call.count_http();
                self.creates.run(request)
            });
        match sent {
            Ok(response) => Ok(reply(response, cap, |text| self.scrub(text))),
            Err(error) if body.left > 0 => {
                let mut story = self.scrub(&error.to_string());
                let sent = length.saturating_sub(body.left);
                if sent > 0 {
                    let _ = write!(story, ", with some {sent} of {length} bytes sent");
                }
                let is_ours = body.is_broken || matches!(error, ureq::Error::Timeout(_));
                if sent > 0 && !is_ours {
                    story.push_str("; a server that takes less at once may end it so");
                }
                Err(PostError::NotSent(story))
            }
            Err(error) => Err(PostError::Unknown(self.scrub(&error.to_string()))),
        }
    }

    /// Returns what a create was answered with, or what has to be made of it.
    pub(crate) fn created(&self, posted: Result<Reply, PostError>) -> Result<Vec<u8>, CreateError> {
        let reply = match posted {
            Ok(reply) => reply,
            Err(PostError::NotSent(reason)) => return Err(CreateError::NotSent { reason }),
            Err(PostError::Unknown(reason)) => return Err(CreateError::Ambiguous { reason }),
        };
        let status = reply.status.as_u16();
        if reply.status.is_success() {
            return reply.body.map_err(|error| CreateError::Ambiguous {
                reason: format!("the provider answered {status}, but was cut off: {error}"),
            });
        }
        let (kind, message) = self.message(&reply);
        Err(match status {
            413 => CreateError::TooLarge { message },
            // This one does not pass by waiting, whatever its status says.
            429 if kind == "insufficient_quota" => {
                CreateError::Refused { status, kind, message, retryable: false }
            }
            429 => CreateError::Busy {
                message: format!("{kind}: {message}"),
                retry_after: reply.retry_after,
            },
            // Refused as it stands: nothing was created.
            301 | 307 | 308 | 400..=404 | 422 => {
                CreateError::Refused { status, kind, message, retryable: false }
            }
            _ => CreateError::Ambiguous {
                reason: format!("the provider answered {status}: {message}"),
            },
        })
    }

    /// Sends one POST without a body; what it asks for may be asked for twice.
    pub(crate) fn nudge(&self, path: &str, call: &Call<'_>) -> Result<(), CallError> {
        match self.post(Post::json(path, &mut io::empty(), 0), call) {
            Ok(reply) if reply.status.is_success() => Ok(()),
            Ok(reply) => Err(self.refusal(&reply)),
            Err(PostError::NotSent(reason) | PostError::Unknown(reason)) => {
                Err(CallError::passing(reason))
            }
        }
    }

    /// Deletes one object; that it is not there is fine.
    pub(crate) fn delete(&self, path: &str, call: &Call<'_>) -> Result<(), CallError> {
        let request = self.request("DELETE", path);
        let (response, _hooked) = self.run(request, POLL.min(call.time_left()), call)?;
        let reply = reply(response, MAX_OBJECT, |text| self.scrub(text));
        let is_gone = reply.status.is_success() || reply.status == StatusCode::NOT_FOUND;
        if is_gone { Ok(()) } else { Err(self.refusal(&reply)) }
    }

    /// Reads one object.
    pub(crate) fn get(&self, path: &str, call: &Call<'_>) -> Result<Vec<u8>, CallError> {
        let reply = self.read(path, call)?;
        if reply.status != StatusCode::OK {
            return Err(self.refusal(&reply));
        }
        reply.body.map_err(CallError::passing)
    }

    fn read(&self, path: &str, call: &Call<'_>) -> Result<Reply, CallError> {
        let request = self.request("GET", path);
        let (response, _hooked) = self.run(request, POLL.min(call.time_left()), call)?;
        Ok(reply(response, MAX_OBJECT, |text| self.scrub(text)))
    }

    /// Reads one object; `None` where it is not there.
    pub(crate) fn get_if_there(
        &self,
        path: &str,
        call: &Call<'_>,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let reply = self.read(path, call)?;
        match reply.status {
            StatusCode::OK => reply.body.map(Some).map_err(CallError::passing),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Sends a request that may be sent twice. It and the reading of its answer are broken off when
    /// somebody stops the call, as long as what is returned beside the answer lives.
    fn run(
        &self,
        request: ureq::http::request::Builder,
        timeout: Duration,
        call: &Call<'_>,
    ) -> Result<(Response<Body>, Hooked), CallError> {
        let passing = |error: ureq::Error| CallError::passing(self.scrub(&error.to_string()));
        let request = request.body(()).map_err(|e| passing(e.into()))?;
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = reads
            .configure_request(request)
            .timeout_global(Some(timeout))
            .timeout_recv_response(Some(POLL))
            .timeout_per_read(Some(SILENCE))
            .build();
        let (current, base) = (Arc::clone(&self.reads), self.base.clone());
        let hooked = call.on_stop(move || {
            // An agent that was shut down stays so; who comes later gets a new one.
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            mem::replace(&mut *current, agent(&base, KEPT)).shutdown();
        });
        call.count_http();
        let response = reads.run(request).map_err(passing)?;
        Ok((response, hooked))
    }

    fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let mut builder = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(headers) = builder.headers_mut() {
            headers.extend(self.headers.clone());
        }
        builder
    }

    /// Reads an object out of an answer; `what` names it where that cannot be.
    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        body: &[u8],
        what: &str,
    ) -> Result<T, CallError> {
        serde_json::from_slice(body)
            // What the parser says may repeat what it read.
            .map_err(|error| self.scrub(&format!("{what} cannot be read: {error}")))
            .map_err(CallError::passing)
    }

    /// Tells passing refusals of a read from lasting ones.
    fn refusal(&self, reply: &Reply) -> CallError {
        let message = self.message(reply).1;
        let status = reply.status;
        let lasts = (status.is_redirection() || status.is_client_error())
            && !matches!(status.as_u16(), 408 | 409 | 425 | 429);
        if lasts {
            CallError::Refused { message: format!("{status}: {message}") }
        } else {
            CallError::Passing { message, retry_after: reply.retry_after }
        }
    }

    /// Returns the provider's word for an error and what it said, without the key.
    pub(crate) fn message(&self, reply: &Reply) -> (String, String) {
        let (kind, message) = match &reply.body {
            _ if reply.status.is_redirection() => {
                (None, "redirects are not followed; set the base URL to where it is".to_owned())
            }
            Ok(body) => error_of(body, &|text| self.scrub(text)),
            Err(error) => (None, error.clone()),
        };
        let kind = kind.unwrap_or_else(|| format!("http_{}", reply.status.as_u16()));
        (excerpt(&self.scrub(&kind)), self.scrub(&message))
    }

    /// Removes the key: some servers repeat it in what they say.
    pub(crate) fn scrub(&self, text: &str) -> String {
        // Blanks around it are lost on the way.
        text.replace(self.key.expose_secret().trim(), "[key]")
    }
}

fn agent(base: &BaseUrl, kept_connections: usize) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .https_only(base.is_encrypted())
        .proxy(None)
        .user_agent(USER_AGENT)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(kept_connections)
        .max_idle_connections_per_host(kept_connections)
        .max_response_header_size(MAX_HEADER)
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        .timeout_connect(Some(CONNECT))
        .build()
        .into()
}

/// Returns the kind and message of an error body: nested, flat, or no JSON at all. Secrets are
/// removed from the message before it is cut: of half a secret nothing would be found.
fn error_of(body: &[u8], scrub: &dyn Fn(&str) -> String) -> (Option<String>, String) {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let error = value.get("error").filter(|e| e.is_object()).unwrap_or(&value);
    let text = |key: &str| error.get(key).and_then(|v| v.as_str()).map(str::to_owned);
    let message = text("message").or_else(|| value.get("error")?.as_str().map(str::to_owned));
    // The code says more than the type where there is one.
    let kind = text("code").or_else(|| text("type").filter(|kind| kind != "error"));
    match message {
        Some(message) => (kind, excerpt(&scrub(&message))),
        None => (kind, excerpt(&scrub(&String::from_utf8_lossy(body)))),
    }
}

/// Returns the beginning of a text, for people.
pub(crate) fn excerpt(text: &str) -> String {
    let printable: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect();
    if printable.is_empty() { "no reason given".to_owned() } else { printable }
}

fn reply(response: Response<Body>, cap: u64, scrub: impl Fn(&str) -> String) -> Reply {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let cap = if status.is_success() { cap } else { MAX_ERROR };
    let mut bytes = Vec::new();
    let body = match response.into_body().into_reader().take(cap).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(scrub(&error.to_string())),
    };
    Reply { status, retry_after, body }
}

/// Remembers whether the last byte of a body was asked for.
struct Drained<'b> {
    inner: &'b mut dyn Read,
    left: u64,
    /// Whether the body itself could not be read.
    is_broken: bool,
}

impl Read for Drained<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).inspect_err(|_| self.is_broken = true)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;
    use crate::stop::Stop;

    /// It said that the connection was reset, time after time, and nothing of the size.
    #[test]
    fn a_post_that_a_server_does_not_read_says_how_much_of_it_was_sent() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = BaseUrl::parse(&format!("http://{}", server.local_addr().unwrap())).unwrap();
        // It reads the beginning, and closes with the rest unread.
        let once = thread::spawn(move || server.accept().unwrap().0.read(&mut [0; 1000]));
        let http = Http::new(base, SecretString::from("key"), HeaderMap::new());
        let length = 32 << 20;
        let mut body = io::repeat(b'x').take(length);
        let (stop, total) = (Stop::new(), AtomicU64::new(0));
        let call = Call::within(Duration::from_mins(1), &stop, &total);
        let posted = http.post(Post::json("/", &mut body, length), &call);
        let Err(PostError::NotSent(story)) = posted else { panic!("{posted:?}") };
        assert!(story.contains("of 33554432 bytes sent; a server"), "{story}");
        assert!(once.join().unwrap().is_ok());
    }

    /// It said that the server may take less.
    #[test]
    fn a_post_whose_body_cannot_be_read_does_not_lay_it_to_the_server() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no such body"))
            }
        }
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = BaseUrl::parse(&format!("http://{}", server.local_addr().unwrap())).unwrap();
        let http = Http::new(base, SecretString::from("key"), HeaderMap::new());
        let mut body = io::repeat(b'x').take(1000).chain(Broken);
        let (stop, total) = (Stop::new(), AtomicU64::new(0));
        let call = Call::within(Duration::from_mins(1), &stop, &total);
        let posted = http.post(Post::json("/", &mut body, 2000), &call);
        let Err(PostError::NotSent(story)) = posted else { panic!("{posted:?}") };
        assert!(story.contains("no such body") && !story.contains("server"), "{story}");
    }

    #[test]
    fn errors_are_read_in_every_shape() {
        let error_of = |body: &[u8]| error_of(body, &str::to_owned);
        let nested = br#"{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}"#;
        assert_eq!(error_of(nested), (Some("overloaded_error".to_owned()), "Busy".to_owned()));
        let flat = br#"{"type":"not_found","message":"No such batch"}"#;
        assert_eq!(error_of(flat), (Some("not_found".to_owned()), "No such batch".to_owned()));
        assert_eq!(error_of(br#"{"error":"nope"}"#), (None, "nope".to_owned()));
        assert_eq!(error_of(b"<html>\nBad gateway"), (None, "<html> Bad gateway".to_owned()));
        assert_eq!(error_of(b""), (None, "no reason given".to_owned()));
        assert_eq!(error_of(&[0xff, 0xfe]).1, "\u{fffd}\u{fffd}");
    }
}
