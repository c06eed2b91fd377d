//! Anthropic Message Batches over HTTP.

use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::http::header::HeaderValue;

use super::anthropic_wire::{BatchObject, Page, ResultLine, answer, check_sampling, params};
use super::shared::{
    MAX_PAGES, OTHER_KEY, PERHAPS_OTHER_KEY, SKEW, ask, batch, created, each_line, is_safe_id,
    key_header, next_page, parsed, path, without_key,
};
use crate::answer::{Answer, RequestError};
use crate::base_url::BaseUrl;
use crate::draft::{Draft, Entry, Frame};
use crate::error::Error;
use crate::http::{Http, Post};
use crate::provider::{
    CUSTOM_ID_LEN, Call, CallError, Collected, CreateError, Created, Found, Limits, Lost, Progress,
    Provider, Sink,
};
use crate::request::{Body, Request};

const BASE_URL: &str = "https://api.anthropic.com";
const API_VERSION: &str = "2023-06-01";
/// The first version that refuses to have its sampling set.
const NO_SAMPLING: &str = "2026-10-21";
const PATH: &str = "/v1/messages/batches";
const MESSAGES: &str = "/v1/messages";
const PAGE: &str = "?limit=1000";
const MAX_LINE: usize = 64 * 1024 * 1024;
/// How many results without our nonce show that a batch is somebody else's, where it has so many; a
/// smaller one is read to its end.
const PROOF: usize = 1000;

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
    api_version: String,
    /// The newest batch that is known, as a fence for the next create.
    newest: Mutex<Option<String>>,
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
        let name = match self.auth {
            AuthStyle::ApiKey => "x-api-key",
            AuthStyle::Bearer => "authorization",
        };
        let mut headers = key_header(name, &self.key, "ANTHROPIC_API_KEY")?;
        let plain = |name: &str, value: &str| {
            HeaderValue::from_str(value)
                .map_err(|_| setting(&format!("`{value}` cannot stand in the header `{name}`")))
        };
        headers.insert("anthropic-version", plain("anthropic-version", &self.api_version)?);
        if !self.betas.is_empty() {
            headers.insert("anthropic-beta", plain("anthropic-beta", &self.betas.join(","))?);
        }
        Ok(Anthropic {
            http: Http::new(base, self.key, headers),
            limits: self.limits,
            max_line: self.max_line,
            api_version: self.api_version,
            newest: Mutex::default(),
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

    fn account(&self, salt: &str) -> Option<String> {
        Some(self.http.account(salt))
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        if let Body::Raw(raw) = &request.body
            && *self.api_version >= *NO_SAMPLING
        {
            check_sampling(raw, &self.api_version)?;
        }
        params(request)
    }

    /// The system part where it is one text: blocks of the caller's have marks of the caller's.
    fn cacheable(&self, encoded: &RawValue) -> Option<Range<usize>> {
        #[derive(Deserialize)]
        struct System<'r> {
            #[serde(borrow)]
            system: &'r RawValue,
        }
        let text = encoded.get();
        let system = serde_json::from_str::<System<'_>>(text).ok()?.system.get();
        let start = (system.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        system.starts_with('"').then(|| start..start + system.len())
    }

    fn cache_mark(&self) -> (&'static str, &'static str) {
        (r#"[{"type":"text","text":"#, r#","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#)
    }

    /// Looks what the newest batch is: whatever comes of the create stands above it in the list.
    fn prepare(&self, _draft: &Draft<'_>, call: &Call<'_>) -> Result<String, CreateError> {
        if let Some(fence) = &*self.newest.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(fence.clone());
        }
        let page = match self.page("?limit=1", call) {
            Ok(page) => page,
            Err(CallError::Passing { message, retry_after: None }) => {
                return Err(CreateError::NotSent { reason: message });
            }
            Err(CallError::Passing { message, retry_after }) => {
                return Err(CreateError::Busy { message, retry_after });
            }
            // Without a list there is no fence; whether anything works is for the create to tell.
            Err(CallError::Refused { .. }) => return Ok(String::new()),
        };
        let fence = page.batches.first().map_or_else(String::new, fence_of);
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(fence.clone());
        Ok(fence)
    }

    fn create(
        &self,
        draft: &Draft<'_>,
        _anchor: &str,
        call: &Call<'_>,
    ) -> Result<Created, CreateError> {
        let frame = frame();
        let length = frame.length(draft);
        let mut reader = frame.reader(draft);
        let posted = self.http.post(Post::json(PATH, &mut reader, length), call);
        let batch: BatchObject = created(&self.http, posted)?;
        // The next create of ours comes after this one.
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(fence_of(&batch));
        let progress = progress(&batch);
        Ok(Created { batch_id: batch.id, progress })
    }

    fn find(&self, lost: &Lost<'_>, call: &Call<'_>) -> Result<Found, CallError> {
        let fence = Fence::parse(lost.anchor);
        let (mut undecided, mut has_end) = (None, false);
        // Whose key sees the fence, would see the batch.
        let mut is_same_account = lost.is_same_account == Some(true);
        let mut query = PAGE.to_owned();
        'pages: for _ in 0..MAX_PAGES {
            let page = self.page(&query, call)?;
            let has_newest_first = is_descending(&page.batches);
            for batch in &page.batches {
                is_same_account |= batch.id == fence.id;
                if fence.is_reached(batch) {
                    if has_newest_first && is_same_account {
                        has_end = true;
                        break 'pages;
                    }
                    continue;
                }
                // An untold count may be that of the one that is looked for.
                let is_other = batch.requests().is_some_and(|count| count != lost.requests as u64)
                    || lost.known.contains(&batch.id);
                if is_other {
                    continue;
                }
                if !is_safe_id(&batch.id) {
                    return Err(CallError::passing("a batch has an id that cannot be used"));
                }
                let missing = match progress(batch) {
                    Progress::Ended => match self.is_ours(&batch.id, lost, call)? {
                        Some(true) => {
                            let batch_id = batch.id.clone();
                            let progress = Progress::Ended;
                            return Ok(Found::Batch(Created { batch_id, progress }));
                        }
                        Some(false) => continue,
                        None => "its results cannot be read",
                    },
                    _ => "it has not ended",
                };
                let reason = format!("batch `{}` may be it, and {missing}", batch.id);
                undecided = Some(Found::Undecided { reason });
            }
            let end = page.batches.last().map(|oldest| &*oldest.id);
            let Some(next) = next_page(PAGE, "after_id", end, page.has_more)? else {
                has_end = true;
                break;
            };
            query = next;
        }
        match undecided {
            _ if !has_end => Err(CallError::passing("the list of batches does not end")),
            Some(undecided) => Ok(undecided),
            None if is_same_account => Ok(Found::Absent),
            None => {
                let is_known = lost.is_same_account.is_some();
                let message = if is_known { OTHER_KEY } else { PERHAPS_OTHER_KEY };
                Err(CallError::Refused { message: message.to_owned() })
            }
        }
    }

    fn poll(&self, batch_id: &str, call: &Call<'_>) -> Result<Progress, CallError> {
        Ok(progress(&batch(&self.http, PATH, batch_id, call)?))
    }

    fn cancel(&self, batch_id: &str, call: &Call<'_>) -> Result<(), CallError> {
        self.http.nudge(&path(PATH, batch_id, "/cancel")?, call)
    }

    fn results(
        &self,
        batch_id: &str,
        _draft: &Draft<'_>,
        call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        let body = self.http.download(path(PATH, batch_id, "/results")?, call)?;
        let unreadable = each_line(body, self.max_line, call, &mut |line| {
            let line: ResultLine<'_> = parsed(line)?;
            Some(sink(&line.custom_id, without_key(&self.http, line.outcome())))
        })?;
        Ok(Collected { unreadable, rest: None })
    }

    fn answered(&self, batch_id: &str, call: &Call<'_>) -> Result<Option<u64>, CallError> {
        Ok(batch::<BatchObject>(&self.http, PATH, batch_id, call)?.answered())
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn ask(&self, entry: &Entry<'_>, call: &Call<'_>) -> Result<Box<RawValue>, CreateError> {
        ask(&self.http, MESSAGES, entry, call)
    }

    fn answer(&self, response: Box<RawValue>) -> Answer {
        answer(response)
    }
}

impl Anthropic {
    fn page(&self, query: &str, call: &Call<'_>) -> Result<Page, CallError> {
        let body = self.http.get(&format!("{PATH}{query}"), call)?;
        self.http.parse(&body, "the list of batches")
    }

    /// Tells from its results whether a batch that has ended is the one that was lost; `None` where
    /// there are too few of them to tell.
    fn is_ours(
        &self,
        batch_id: &str,
        lost: &Lost<'_>,
        call: &Call<'_>,
    ) -> Result<Option<bool>, CallError> {
        let body = match self.http.download(path(PATH, batch_id, "/results")?, call) {
            Ok(body) => body,
            Err(CallError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut others, mut is_ours) = (0, false);
        let unreadable = each_line(body, self.max_line, call, &mut |line| {
            let line: ResultLine<'_> = parsed(line)?;
            // One line with the nonce is proof. One without is none: it may have strayed there.
            let rest = line.custom_id.strip_prefix(lost.nonce);
            is_ours = rest.is_some_and(|rest| rest.starts_with('-'));
            others += usize::from(!is_ours);
            let is_decided = is_ours || others >= PROOF;
            Some(if is_decided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        // A line that cannot be read may be one of ours.
        let is_other = others >= PROOF || (unreadable == 0 && others >= lost.requests);
        Ok(if is_ours { Some(true) } else { is_other.then_some(false) })
    }
}

/// The newest batch before a create: its id and when it was made.
struct Fence<'a> {
    id: &'a str,
    created_at: &'a str,
}

impl<'a> Fence<'a> {
    fn parse(anchor: &'a str) -> Fence<'a> {
        let (id, created_at) = anchor.split_once(' ').unwrap_or((anchor, ""));
        Fence { id, created_at }
    }

    /// Tells whether a batch of the list is the fence, or older: the fence itself may be deleted.
    fn is_reached(&self, batch: &BatchObject) -> bool {
        batch.id == self.id
            || matches!(
                (second(&batch.created_at), second(self.created_at)),
                (Some(batch), Some(fence)) if batch + SKEW < fence
            )
    }
}

/// Tells whether a page of the list has the newest first, as far as its times tell.
fn is_descending(batches: &[BatchObject]) -> bool {
    let seconds: Vec<i64> = batches.iter().filter_map(|batch| second(&batch.created_at)).collect();
    seconds.is_sorted_by(|newer, older| newer + SKEW >= *older)
}

fn second(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

fn fence_of(newest: &BatchObject) -> String {
    format!("{} {}", newest.id, newest.created_at)
}

fn frame() -> Frame {
    Frame {
        head: HEAD.to_owned(),
        before_id: ID,
        after_id: PARAMS,
        after_body: END,
        separator: ",",
        tail: TAIL.to_owned(),
    }
}

fn progress(batch: &BatchObject) -> Progress {
    match &*batch.processing_status {
        "ended" => Progress::Ended,
        _ => Progress::Running,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::table::{Encoded, Table};

    #[test]
    fn the_body_is_as_long_as_the_limits_count_it() {
        let provider = Anthropic::new("key").unwrap();
        let request = Request::prompt("a", "m", "x");
        let dir = tempfile::tempdir().unwrap();
        let mut table = Table::new(dir.path());
        for _ in 0..4 {
            table.push(&request, Encoded::of(&request, &provider), &provider).unwrap();
        }
        let params = params(&request).unwrap().get().len() as u64;
        for count in 1..4_usize {
            let members: Vec<u32> = (0..4).take(count).collect();
            let nonce = crate::wire_id::nonce();
            let draft = Draft::new(&nonce, &members, &table);
            let mut body = String::new();
            frame().reader(&draft).read_to_string(&mut body).unwrap();
            let json: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(json["requests"].as_array().unwrap().len(), count);
            let limits = provider.limits();
            let counted = limits.frame_bytes + count as u64 * (limits.entry_bytes + params);
            assert_eq!((body.len() as u64, frame().length(&draft)), (counted, counted));
        }
    }
}
