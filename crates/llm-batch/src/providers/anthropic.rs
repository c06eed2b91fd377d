//! Anthropic Message Batches over HTTP.

use std::io::{BufReader, Read};

use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use ureq::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::anthropic_wire::{BatchObject, ResultLine, params};
use crate::answer::RequestError;
use crate::base_url::BaseUrl;
use crate::error::Error;
use crate::http::{Http, PostError, secret_header};
use crate::lines::{Line, next_line};
use crate::provider::{
    CUSTOM_ID_LEN, Call, CallError, CreateError, Created, Entry, Limits, Progress, Provider, Sink,
};
use crate::request::Request;

const BASE_URL: &str = "https://api.anthropic.com";
const API_VERSION: &str = "2023-06-01";
const PATH: &str = "/v1/messages/batches";
const MAX_LINE: usize = 64 * 1024 * 1024;

const HEAD: &str = r#"{"requests":["#;
const TAIL: &str = "]}";
const ID: &str = r#"{"custom_id":""#;
const PARAMS: &str = r#"","params":"#;
const END: &str = "}";

/// Anthropic's [Message Batches](https://docs.anthropic.com/en/api/creating-message-batches): up
/// to 100,000 requests or 256 MB in a create, results within 24 hours.
///
/// The key goes to the base URL and nowhere else: results are read from a URL that is built here
/// (the `results_url` of the answers is not looked at), redirects are not followed, and proxies
/// named in the environment are not used. The key is in no `Debug` output, error or file.
///
/// ```
/// use llm_batch::providers::Anthropic;
///
/// let provider = Anthropic::new("sk-example")?;
/// assert!(!format!("{provider:?}").contains("sk-example"));
/// # Ok::<(), llm_batch::Error>(())
/// ```
#[derive(Debug)]
pub struct Anthropic {
    http: Http,
    limits: Limits,
    max_line: usize,
}

/// How the key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AuthStyle {
    /// In the header `x-api-key`.
    #[default]
    ApiKey,
    /// In the header `authorization`, as a bearer token.
    Bearer,
}

/// Settings of [`Anthropic`].
#[derive(Debug)]
#[must_use]
pub struct AnthropicBuilder {
    key: SecretString,
    base_url: String,
    api_version: String,
    betas: Vec<String>,
    auth: AuthStyle,
    limits: Limits,
    max_line: usize,
}

impl Anthropic {
    /// Returns the provider at `https://api.anthropic.com` with the usual settings.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when the key is empty or cannot stand in a header.
    pub fn new(key: impl Into<SecretString>) -> Result<Anthropic, Error> {
        Anthropic::builder(key).build()
    }

    /// Returns settings to change before [`build`](AnthropicBuilder::build).
    pub fn builder(key: impl Into<SecretString>) -> AnthropicBuilder {
        AnthropicBuilder {
            key: key.into(),
            base_url: BASE_URL.to_owned(),
            api_version: API_VERSION.to_owned(),
            betas: Vec::new(),
            auth: AuthStyle::default(),
            limits: Limits {
                max_items: 100_000,
                max_bytes: 256_000_000,
                // One separator less than there are requests.
                frame_bytes: (HEAD.len() + TAIL.len()) as u64 - 1,
                entry_bytes: (ID.len() + CUSTOM_ID_LEN + PARAMS.len() + END.len()) as u64 + 1,
            },
            max_line: MAX_LINE,
        }
    }
}

impl AnthropicBuilder {
    /// Sets where the provider is: https, or http to this machine.
    pub fn base_url(mut self, url: impl Into<String>) -> AnthropicBuilder {
        self.base_url = url.into();
        self
    }

    /// Sets the `anthropic-version` header; `2023-06-01` by default.
    pub fn api_version(mut self, version: impl Into<String>) -> AnthropicBuilder {
        self.api_version = version.into();
        self
    }

    /// Adds a name to the `anthropic-beta` header.
    pub fn beta(mut self, name: impl Into<String>) -> AnthropicBuilder {
        self.betas.push(name.into());
        self
    }

    /// Sets how the key is sent; in `x-api-key` by default.
    pub fn auth_style(mut self, auth: AuthStyle) -> AnthropicBuilder {
        self.auth = auth;
        self
    }

    /// Lowers how much one create may carry, for servers that take less than Anthropic does.
    pub fn limits(mut self, max_items: usize, max_bytes: u64) -> AnthropicBuilder {
        self.limits.max_items = max_items;
        self.limits.max_bytes = max_bytes;
        self
    }

    /// Sets the longest result line that is kept, in bytes; 64 MiB by default. A longer one is
    /// skipped, and its request ends as [`RequestError::Missing`].
    pub fn max_line(mut self, bytes: usize) -> AnthropicBuilder {
        self.max_line = bytes;
        self
    }

    /// Returns the provider. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when the base URL is neither https nor on this machine or carries user
    /// information, or when key, version or a beta name cannot stand in a header.
    pub fn build(self) -> Result<Anthropic, Error> {
        let base = BaseUrl::parse(&self.base_url)?;
        let setting = |problem: &str| Error::Setting { problem: problem.to_owned() };
        let secret = self.key.expose_secret();
        if secret.trim().is_empty() {
            return Err(setting("the API key is empty; set ANTHROPIC_API_KEY"));
        }
        let (name, value) = match self.auth {
            AuthStyle::ApiKey => ("x-api-key", secret.to_owned()),
            AuthStyle::Bearer => ("authorization", format!("Bearer {secret}")),
        };
        let key = secret_header(&value)
            .ok_or_else(|| setting("the API key holds a character that no header may hold"))?;
        let plain = |name: &str, value: &str| {
            HeaderValue::from_str(value)
                .map_err(|_| setting(&format!("`{value}` cannot stand in the header `{name}`")))
        };
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), key);
        headers.insert("anthropic-version", plain("anthropic-version", &self.api_version)?);
        if !self.betas.is_empty() {
            headers.insert("anthropic-beta", plain("anthropic-beta", &self.betas.join(","))?);
        }
        Ok(Anthropic {
            http: Http::new(base, self.key, headers),
            limits: self.limits,
            max_line: self.max_line,
        })
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn endpoint(&self) -> &str {
        self.http.base().as_str()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        params(request)
    }

    fn create(&self, entries: &[Entry<'_>], call: &Call<'_>) -> Result<Created, CreateError> {
        let mut parts = Vec::with_capacity(entries.len());
        for entry in entries {
            let params = params(entry.request)
                .map_err(|error| CreateError::NotSent { reason: error.to_string() })?;
            parts.push((entry.custom_id, params));
        }
        let length = length(&parts);
        let posted = self.http.post(PATH, &mut CreateBody::new(&parts), length, call);
        let reply = match posted {
            Ok(reply) => reply,
            Err(PostError::NotSent(reason)) => return Err(CreateError::NotSent { reason }),
            Err(PostError::Unknown(reason)) => return Err(CreateError::Ambiguous { reason }),
        };
        let status = reply.status.as_u16();
        if reply.status.is_success() {
            let unknown = |why: String| CreateError::Ambiguous {
                reason: self.http.scrub(&format!("the provider answered {status}, but {why}")),
            };
            let body = reply.body.map_err(|error| unknown(format!("was cut off: {error}")))?;
            let batch: BatchObject<'_> = serde_json::from_slice(&body)
                .map_err(|error| unknown(format!("not with a batch: {error}")))?;
            if !is_safe_id(&batch.id) {
                return Err(unknown("the batch has an id that cannot stand in a path".to_owned()));
            }
            return Ok(Created { batch_id: batch.id.to_string(), progress: progress(&batch) });
        }
        let (kind, message) = self.http.message(&reply);
        match status {
            // Refused as it stands: nothing was created.
            301 | 307 | 308 | 400..=404 | 413 | 422 => {
                Err(CreateError::Refused { status, kind, message, retryable: false })
            }
            429 => Err(CreateError::Refused { status, kind, message, retryable: true }),
            _ => Err(CreateError::Ambiguous {
                reason: format!("the provider answered {status}: {message}"),
            }),
        }
    }

    fn poll(&self, batch_id: &str, call: &Call<'_>) -> Result<Progress, CallError> {
        let body = self.http.get(&path(batch_id, "")?, call)?;
        let batch: BatchObject<'_> = serde_json::from_slice(&body)
            // What the parser says may repeat what it read.
            .map_err(|error| self.http.scrub(&format!("the batch cannot be read: {error}")))
            .map_err(CallError::passing)?;
        if batch.id != batch_id {
            return Err(CallError::passing("the provider told about another batch"));
        }
        Ok(progress(&batch))
    }

    fn results(
        &self,
        batch_id: &str,
        _entries: &[Entry<'_>],
        call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<u64, CallError> {
        let body = self.http.download(&path(batch_id, "/results")?, call)?;
        let mut reader = BufReader::with_capacity(64 * 1024, body);
        let mut buffer = Vec::new();
        let mut unreadable = 0;
        loop {
            if call.is_stopped() {
                return Err(CallError::passing("interrupted"));
            }
            let line = next_line(&mut reader, &mut buffer, self.max_line)
                .map_err(|error| CallError::passing(format!("the results broke off: {error}")))?;
            match line {
                None => return Ok(unreadable),
                Some(Line::TooLong) => unreadable += 1,
                Some(Line::Whole) if buffer.trim_ascii().is_empty() => {}
                Some(Line::Whole) => {
                    let Ok(line) = serde_json::from_slice::<ResultLine<'_>>(&buffer) else {
                        unreadable += 1;
                        continue;
                    };
                    if sink(&line.custom_id, line.outcome()).is_break() {
                        return Ok(unreadable);
                    }
                }
            }
        }
    }
}

fn progress(batch: &BatchObject<'_>) -> Progress {
    match &*batch.processing_status {
        "ended" => Progress::Ended,
        _ => Progress::Running,
    }
}

/// Tells whether a provider's id can stand in a path without changing its meaning.
fn is_safe_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !id.contains("..")
        && id != "."
}

fn path(batch_id: &str, rest: &str) -> Result<String, CallError> {
    if is_safe_id(batch_id) {
        return Ok(format!("{PATH}/{batch_id}{rest}"));
    }
    Err(CallError::Refused { message: "its id cannot stand in a path".to_owned() })
}

type Part<'p> = (&'p str, Box<RawValue>);

fn length(parts: &[Part<'_>]) -> u64 {
    let entries: usize = parts
        .iter()
        .map(|(id, params)| ID.len() + id.len() + PARAMS.len() + params.get().len() + END.len())
        .sum();
    let separators = parts.len().saturating_sub(1);
    (HEAD.len() + entries + separators + TAIL.len()) as u64
}

/// The body of a create, read piece by piece without a copy of the whole.
struct CreateBody<'p> {
    pieces: Box<dyn Iterator<Item = &'p str> + 'p>,
    current: &'p [u8],
}

impl<'p> CreateBody<'p> {
    fn new(parts: &'p [Part<'p>]) -> CreateBody<'p> {
        let entries = parts.iter().enumerate().flat_map(|(at, (id, params))| {
            let separator = if at == 0 { "" } else { "," };
            [separator, ID, id, PARAMS, params.get(), END]
        });
        let pieces = [HEAD].into_iter().chain(entries).chain([TAIL]);
        CreateBody { pieces: Box::new(pieces), current: b"" }
    }
}

impl Read for CreateBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut written = 0;
        while written < buffer.len() {
            if self.current.is_empty() {
                match self.pieces.next() {
                    Some(piece) => self.current = piece.as_bytes(),
                    None => break,
                }
                continue;
            }
            let taken = self.current.len().min(buffer.len() - written);
            buffer[written..written + taken].copy_from_slice(&self.current[..taken]);
            self.current = &self.current[taken..];
            written += taken;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_as_long_as_the_limits_count_it() {
        let provider = Anthropic::new("key").unwrap();
        let request = Request::prompt("a", "m", "x");
        let nonce = crate::wire_id::nonce();
        for count in 1..4_usize {
            let ids: Vec<String> =
                (0..count).map(|seq| crate::wire_id::custom_id(&nonce, seq)).collect();
            let parts: Vec<Part<'_>> =
                ids.iter().map(|id| (id.as_str(), params(&request).unwrap())).collect();
            let mut body = String::new();
            CreateBody::new(&parts).read_to_string(&mut body).unwrap();
            let json: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(json["requests"].as_array().unwrap().len(), count);
            let limits = provider.limits();
            let params = params(&request).unwrap().get().len() as u64;
            let counted = limits.frame_bytes + count as u64 * (limits.entry_bytes + params);
            assert_eq!((body.len() as u64, length(&parts)), (counted, counted));
        }
    }

    #[test]
    fn ids_that_would_lead_elsewhere_are_refused() {
        assert!(is_safe_id("msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d"));
        for id in ["", ".", "..", "a/b", "a..b", "a%2fb", "a?b", "a b", &"a".repeat(129)] {
            assert!(!is_safe_id(id), "{id}");
        }
    }
}
