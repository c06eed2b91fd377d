//! Faults by chance, the same for the same seed.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::http::{Reading, Reply, Seen};
use crate::rng::Rng;
use crate::simulator::{Call, Endpoint};

/// Something that goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The provider does what was asked, and the connection is closed without an answer.
    LostAnswer,
    /// It does what was asked and answers with a server error.
    ErrorAfter,
    /// It does what was asked and answers with a page of a proxy.
    Html,
    /// It does what was asked and the answer breaks off.
    CutAnswer,
    /// It does nothing, and the connection is closed without an answer.
    LostCall,
    /// It does nothing and answers with a server error: 500, 502, 503, 504, 529, 408 or 409.
    ErrorBefore,
    /// It does nothing and answers 429, with one of the spellings of a wait, or none, or nonsense.
    RateLimit,
    /// The connection is closed while the call is being sent.
    CutCall,
    /// Result lines come in another order.
    Shuffled,
    /// Some result lines come twice.
    Repeated,
    /// Some result lines are missing this time.
    Missing,
    /// Result lines of somebody else come along.
    Foreign,
    /// The download breaks off somewhere.
    CutDownload,
    /// Lines end with CRLF, and the last one not at all.
    OddLineEnds,
    /// Lines that are no JSON, or nothing, stand between the others.
    Noise,
    /// Fields and values that nobody knows yet.
    Unknown,
    /// `results_url` names another host.
    ForeignUrl,
    /// The list of batches does not have the newest ones yet.
    ListLag,
}

const CREATE: &[Fault] = &[
    Fault::LostAnswer,
    Fault::ErrorAfter,
    Fault::Html,
    Fault::CutAnswer,
    Fault::LostCall,
    Fault::ErrorBefore,
    Fault::RateLimit,
    Fault::CutCall,
    Fault::Unknown,
];
const READ: &[Fault] = &[
    Fault::LostAnswer,
    Fault::ErrorBefore,
    Fault::Html,
    Fault::CutAnswer,
    Fault::RateLimit,
    Fault::Unknown,
    Fault::ForeignUrl,
];
const RESULTS: &[Fault] = &[
    Fault::LostAnswer,
    Fault::ErrorBefore,
    Fault::RateLimit,
    Fault::Shuffled,
    Fault::Repeated,
    Fault::Missing,
    Fault::Foreign,
    Fault::CutDownload,
    Fault::OddLineEnds,
    Fault::Noise,
    Fault::Unknown,
];

/// Faults that come by chance.
pub struct Faults {
    share: usize,
    rng: Mutex<Rng>,
    /// The fault of the call whose head was just read, and those that happened.
    happened: Mutex<Vec<(Endpoint, Fault)>>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("share", &self.share).finish_non_exhaustive()
    }
}

impl Faults {
    /// Returns faults in `percent` of a hundred calls.
    ///
    /// For the same seed and the same order of calls they are the same.
    pub fn seeded(seed: u64, percent: usize) -> Faults {
        let (share, rng) = (percent.min(100), Mutex::new(Rng::new(seed)));
        Faults { share, rng, happened: Mutex::default() }
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the fault of a call.
    fn draw(&self, endpoint: Endpoint) -> Option<Fault> {
        let kinds = match endpoint {
            Endpoint::Create | Endpoint::Ask | Endpoint::Upload => CREATE,
            Endpoint::Results => RESULTS,
            Endpoint::Poll | Endpoint::List | Endpoint::Files | Endpoint::Cancel => READ,
            Endpoint::Other => return None,
        };
        let mut rng = self.rng();
        if !rng.percent(self.share) {
            return None;
        }
        Some(kinds[rng.below(kinds.len())])
    }

    pub(crate) fn reading(&self, endpoint: Endpoint, head: &Seen) -> Reading {
        let mut rng = self.rng();
        let is_sent = matches!(endpoint, Endpoint::Create | Endpoint::Upload | Endpoint::Ask);
        // One of the nine faults of a create.
        if !is_sent || !rng.percent(self.share) || rng.below(CREATE.len()) != 0 {
            return Reading::Whole;
        }
        let length = head.header("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
        let cut = rng.next() % 1_u64.max(length);
        self.note(endpoint, Fault::CutCall);
        Reading::CutAfter(cut)
    }

    fn note(&self, endpoint: Endpoint, fault: Fault) {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).push((endpoint, fault));
    }

    pub(crate) fn before(&self, call: &Call<'_>) -> Option<Reply> {
        let fault = self.draw(call.endpoint)?;
        let reply = match fault {
            Fault::LostCall => Reply::Drop,
            Fault::ErrorBefore => server_error(&mut self.rng()),
            Fault::RateLimit => rate_limit(&mut self.rng()),
            _ => {
                // It comes after the provider did what was asked.
                PENDING.with(|pending| pending.set(Some(fault)));
                return None;
            }
        };
        self.note(call.endpoint, fault);
        Some(reply)
    }

    pub(crate) fn after(&self, call: &Call<'_>, usual: Reply) -> Reply {
        let Some(fault) = PENDING.with(std::cell::Cell::take) else { return usual };
        let mut rng = self.rng();
        let reply = match fault {
            Fault::LostAnswer => Reply::Drop,
            Fault::ErrorAfter => server_error(&mut rng),
            Fault::Html => html(&mut rng),
            Fault::CutAnswer | Fault::CutDownload => {
                let body = usual.body();
                let kept = rng.below(body.len());
                Reply::CutShort { body: body[..kept].to_vec(), announced: body.len().max(1) }
            }
            Fault::Unknown => unknown(usual, call.endpoint),
            Fault::ForeignUrl => foreign_url(usual),
            fault if call.endpoint == Endpoint::Results => lines(usual, fault, &mut rng),
            _ => usual,
        };
        drop(rng);
        self.note(call.endpoint, fault);
        reply
    }

    /// Returns what happened so far.
    pub fn happened(&self) -> Vec<(Endpoint, Fault)> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

thread_local! {
    // Each connection has a thread of its own, and a thread has one call at a time.
    static PENDING: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

fn server_error(rng: &mut Rng) -> Reply {
    let status = [500, 502, 503, 504, 529, 408, 409][rng.below(7)];
    let kind = if status == 529 { "overloaded_error" } else { "api_error" };
    Reply::error(status, kind, "simulated")
}

fn rate_limit(rng: &mut Rng) -> Reply {
    let reply = Reply::error(429, "rate_limit_error", "simulated");
    match rng.below(8) {
        0 => reply.with_header("retry-after", "0"),
        1 => reply.with_header("retry-after-ms", "1"),
        2 => reply.with_header("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT"),
        3 => reply.with_header("retry-after", "-5"),
        4 => reply.with_header("retry-after", "soon"),
        5 => reply.with_header("x-should-retry", "true").with_header("retry-after", "0.001"),
        6 => reply
            .with_header("x-ratelimit-remaining-requests", "0")
            .with_header("x-ratelimit-reset-requests", "1ms"),
        _ => reply,
    }
}

fn html(rng: &mut Rng) -> Reply {
    let status = [200, 502, 503, 520][rng.below(4)];
    let body = b"<html><head><title>Bad gateway</title></head></html>".to_vec();
    Reply::Full { status, headers: vec![("content-type", "text/html".to_owned())], body }
}

/// Adds what a later version of the provider may say.
fn unknown(usual: Reply, endpoint: Endpoint) -> Reply {
    let Reply::Full { status, headers, body } = usual else { return usual };
    let add = |line: &[u8]| -> Vec<u8> {
        let mut value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        let Some(object) = value.as_object_mut() else { return line.to_vec() };
        object.insert("not_known_yet".to_owned(), serde_json::json!({"deep": [1, {"er": null}]}));
        value.to_string().into_bytes()
    };
    let body = match endpoint {
        Endpoint::Results => body
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .flat_map(|line| [add(line), b"\n".to_vec()].concat())
            .collect(),
        _ => add(&body),
    };
    Reply::Full { status, headers, body }
}

fn foreign_url(usual: Reply) -> Reply {
    let Reply::Full { status, headers, body } = usual else { return usual };
    let mut value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if value.get("results_url").is_some_and(|url| !url.is_null()) {
        value["results_url"] = "http://127.0.0.1.elsewhere.invalid/results".into();
        return Reply::Full { status, headers, body: value.to_string().into_bytes() };
    }
    Reply::Full { status, headers, body }
}

fn lines(usual: Reply, fault: Fault, rng: &mut Rng) -> Reply {
    let Reply::Full { status, headers, body } = usual else { return usual };
    let text = String::from_utf8_lossy(&body).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut end = "\n";
    let some = |rng: &mut Rng, lines: &[String]| lines.get(rng.below(lines.len())).cloned();
    match fault {
        Fault::Shuffled => rng.shuffle(&mut lines),
        Fault::Repeated => {
            let repeated: Vec<String> = (0..3).filter_map(|_| some(rng, &lines)).collect();
            lines.extend(repeated);
            rng.shuffle(&mut lines);
        }
        Fault::Missing => {
            let keep = rng.below(lines.len());
            rng.shuffle(&mut lines);
            lines.truncate(keep);
        }
        Fault::Foreign => {
            if let Some(line) = some(rng, &lines) {
                let foreign = line.replacen("\"custom_id\":\"", "\"custom_id\":\"f", 1);
                lines.insert(0, foreign);
            }
        }
        Fault::OddLineEnds => end = "\r\n",
        Fault::Noise => {
            let deep = "[".repeat(2_000);
            for noise in ["", "{", "null", "\u{feff}", "{\"custom_id\":\"\\ud800\"}", &deep] {
                let at = rng.below(lines.len() + 1);
                lines.insert(at, noise.to_owned());
            }
        }
        _ => {}
    }
    let mut body = lines.join(end).into_bytes();
    if end == "\n" && !body.is_empty() {
        body.push(b'\n');
    }
    Reply::Full { status, headers, body }
}
