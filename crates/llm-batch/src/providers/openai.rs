//! Batches as OpenAI has them, and every server of its shape.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use secrecy::SecretString;
use serde_json::json;
use serde_json::value::RawValue;

use super::openai_wire::{BatchObject, FileObject, Files, Page, ResultLine, answer, body};
use super::profile::Profile;
use super::shared::{
    MAX_PAGES, OTHER_KEY, PERHAPS_OTHER_KEY, SKEW, ask, batch, created, each_line, is_safe_id,
    key_header, next_page, parsed, path, without_key,
};
use crate::answer::{Answer, RequestError};
use crate::base_url::BaseUrl;
use crate::draft::{Draft, Entry, Frame};
use crate::error::Error;
use crate::http::{Http, Post, excerpt};
use crate::provider::{
    CUSTOM_ID_LEN, Call, CallError, Collected, CreateError, Created, Found, Limits, Lost, Progress,
    Provider, Rejection, Sink,
};
use crate::request::Request;

const BATCHES: &str = "/v1/batches";
const FILES: &str = "/v1/files";
const CHAT: &str = "/v1/chat/completions";
const PAGE: &str = "?limit=100";
const MAX_LINE: usize = 64 * 1024 * 1024;
/// How many pages of a hundred files are looked through for one of ours.
const PAGES: usize = 10;

/// Why a batch that is not in the list is not taken for absent.
const FILE_GONE: &str = "the list does not have it, but its file was deleted, perhaps by somebody \
                         who goes on with a copy of this state and has sent it again";

const ID: &str = r#"{"custom_id":""#;
const BODY: &str = r#"","method":"POST","url":"/v1/chat/completions","body":"#;
const END: &str = "}\n";

/// OpenAI's [Batch](https://platform.openai.com/docs/guides/batch): a file of up to 50,000 chat
/// completions or 200 MB, results within 24 hours.
///
/// Servers of the same shape differ in little, which a [`Profile`] knows. What is said of the key
/// at [`Anthropic`](super::Anthropic) holds here too.
///
/// ```
/// use llm_batch::Provider;
/// use llm_batch::providers::{OpenAi, Profile};
///
/// let provider = OpenAi::builder("sk-example").profile(Profile::GROQ).build()?;
/// assert_eq!(provider.endpoint(), "https://api.groq.com/openai");
/// assert!(!format!("{provider:?}").contains("sk-example"));
/// # Ok::<(), llm_batch::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenAi {
    http: Http,
    profile: Profile,
    limits: Limits,
    max_line: usize,
    /// Uploads that were not answered, by nonce: the file may be there.
    lost: Mutex<HashSet<String>>,
}

/// Settings of [`OpenAi`].
#[derive(Debug)]
#[must_use]
pub struct OpenAiBuilder {
    key: SecretString,
    base_url: Option<String>,
    profile: Profile,
    max_items: usize,
    max_bytes: Option<u64>,
    max_line: usize,
}

impl OpenAi {
    /// Returns the provider at `https://api.openai.com` with the usual settings.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when the key is empty or cannot stand in a header.
    pub fn new(key: impl Into<SecretString>) -> Result<OpenAi, Error> {
        OpenAi::builder(key).build()
    }

    /// Returns settings to change before [`build`](OpenAiBuilder::build).
    pub fn builder(key: impl Into<SecretString>) -> OpenAiBuilder {
        OpenAiBuilder {
            key: key.into(),
            base_url: None,
            profile: Profile::OPENAI,
            max_items: 50_000,
            max_bytes: None,
            max_line: MAX_LINE,
        }
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the file of a create by its name; the newest files come first.
    fn uploaded(&self, nonce: &str, call: &Call<'_>) -> Result<Option<FileObject>, CallError> {
        let name = file_name(nonce);
        let mut query = "?purpose=batch&order=desc&limit=100".to_owned();
        for _ in 0..PAGES {
            let body = self.http.get(&format!("{FILES}{query}"), call)?;
            let page: Files = self.http.parse(&body, "the list of files")?;
            let last = page.files.last().map(|file| file.id.clone());
            if let Some(file) = page.files.into_iter().find(|file| file.filename == name) {
                return Ok(Some(file).filter(|file| is_safe_id(&file.id)));
            }
            match last {
                Some(last) if page.has_more && is_safe_id(&last) => {
                    query = format!("?purpose=batch&order=desc&limit=100&after={last}");
                }
                _ => break,
            }
        }
        Ok(None)
    }

    fn batch(&self, batch_id: &str, call: &Call<'_>) -> Result<BatchObject, CallError> {
        batch(&self.http, BATCHES, batch_id, call)
    }

    /// Returns what it means that a batch is not in the list. The file of the create is ours alone:
    /// whose key sees it would see the batch too, and whoever goes on with a copy of the state has
    /// deleted it before he sent the create again.
    fn absent(&self, file: &str, lost: &Lost<'_>, call: &Call<'_>) -> Result<Found, CallError> {
        let seen = match self.http.get_if_there(&path(FILES, file, "")?, call) {
            Ok(seen) => seen,
            Err(CallError::Refused { message }) => {
                let message =
                    format!("the list does not have it, nor can its file be read: {message}");
                return Err(CallError::Refused { message });
            }
            Err(error) => return Err(error),
        };
        if let Some(body) = seen {
            let seen: FileObject = self.http.parse(&body, "the file")?;
            if seen.id == file {
                return Ok(Found::Absent);
            }
            return Err(CallError::passing("the provider told about another file"));
        }
        let message = match lost.is_same_account {
            Some(true) => FILE_GONE.to_owned(),
            Some(false) => OTHER_KEY.to_owned(),
            None => format!("{FILE_GONE}; or {PERHAPS_OTHER_KEY}"),
        };
        Err(CallError::Refused { message })
    }

    /// Reads one file of results.
    fn read(&self, file: &str, call: &Call<'_>, sink: &mut Sink<'_>) -> Result<Read, CallError> {
        let body = self.http.download(path(FILES, file, "/content")?, call)?;
        let mut is_cut = false;
        let unreadable = each_line(body, self.max_line, call, &mut |line| {
            let line: ResultLine<'_> = parsed(line)?;
            let flow = sink(&line.custom_id, without_key(&self.http, line.outcome()));
            is_cut = flow.is_break();
            Some(flow)
        })?;
        Ok(Read { unreadable, is_cut })
    }
}

struct Read {
    unreadable: u64,
    is_cut: bool,
}

impl OpenAiBuilder {
    /// Sets which server of this shape it is; OpenAI by default.
    pub fn profile(mut self, profile: Profile) -> OpenAiBuilder {
        self.profile = profile;
        self
    }

    /// Sets where the provider is, without `/v1`: https, or http to this machine.
    pub fn base_url(mut self, url: impl Into<String>) -> OpenAiBuilder {
        self.base_url = Some(url.into());
        self
    }

    /// Lowers how much one file may carry, for servers that take less.
    pub fn limits(mut self, max_items: usize, max_bytes: u64) -> OpenAiBuilder {
        self.max_items = max_items;
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Sets the longest result line that is kept, in bytes; 64 MiB by default. A longer one is
    /// skipped, and its request ends as [`RequestError::Missing`].
    pub fn max_line(mut self, bytes: usize) -> OpenAiBuilder {
        self.max_line = bytes;
        self
    }

    /// Returns the provider. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when the base URL is neither https nor on this machine or carries user
    /// information, when it is missing for a profile without one, or when the key cannot stand in
    /// a header.
    pub fn build(self) -> Result<OpenAi, Error> {
        let setting = |problem: &str| Error::Setting { problem: problem.to_owned() };
        let base = self.base_url.unwrap_or_else(|| self.profile.base_url.to_owned());
        if base.is_empty() {
            return Err(setting("this profile has no base URL of its own; set the account's"));
        }
        let base = BaseUrl::parse(&base)?;
        let headers = key_header(self.profile.key_header, &self.key, "OPENAI_API_KEY")?;
        // The frame depends on the nonce in its bytes, not in its length.
        let frame = frame(&"0".repeat(NONCE_LEN));
        let limits = Limits {
            max_items: self.max_items,
            max_bytes: self.max_bytes.unwrap_or(self.profile.max_bytes),
            frame_bytes: (frame.head.len() + frame.tail.len()) as u64,
            entry_bytes: (ID.len() + CUSTOM_ID_LEN + BODY.len() + END.len()) as u64,
        };
        let http = Http::new(base, self.key, headers);
        let (profile, max_line) = (self.profile, self.max_line);
        Ok(OpenAi { http, profile, limits, max_line, lost: Mutex::default() })
    }
}

impl Provider for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
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
        body(request, self.profile.max_tokens)
    }

    /// Uploads the file. One whose upload was not answered is looked for first, and uploaded again
    /// where it is not there: it costs nothing.
    fn prepare(&self, draft: &Draft<'_>, call: &Call<'_>) -> Result<String, CreateError> {
        let is_lost = self.lost().contains(draft.nonce());
        if is_lost && let Ok(Some(file)) = self.uploaded(draft.nonce(), call) {
            self.lost().remove(draft.nonce());
            return Ok(format!("{} {}", file.id, file.created_at));
        }
        let frame = frame(draft.nonce());
        let length = frame.length(draft);
        let mut reader = frame.reader(draft);
        let content_type = format!("multipart/form-data; boundary={}", boundary(draft.nonce()));
        let mut post = Post::json(FILES, &mut reader, length);
        post.content_type = &content_type;
        let posted = self.http.created(self.http.post(post, call));
        if let Err(CreateError::Ambiguous { .. }) = posted {
            self.lost().insert(draft.nonce().to_owned());
        }
        let uploaded = posted?;
        let file: FileObject = serde_json::from_slice(&uploaded).map_err(|error| {
            self.lost().insert(draft.nonce().to_owned());
            let reason = self.http.scrub(&format!("the upload was answered oddly: {error}"));
            CreateError::NotSent { reason }
        })?;
        if !is_safe_id(&file.id) {
            let reason = "the file has an id that cannot stand in a path".to_owned();
            return Err(CreateError::NotSent { reason });
        }
        Ok(format!("{} {}", file.id, file.created_at))
    }

    fn create(
        &self,
        draft: &Draft<'_>,
        anchor: &str,
        call: &Call<'_>,
    ) -> Result<Created, CreateError> {
        let (file, _) = anchor.split_once(' ').unwrap_or((anchor, ""));
        let mut create = json!({
            "input_file_id": file,
            "endpoint": CHAT,
            "completion_window": "24h",
        });
        if self.profile.has_metadata {
            create["metadata"] = json!({"llm_batch": draft.nonce()});
        }
        if self.profile.has_idempotency_key {
            create["idempotency_key"] = json!(draft.nonce());
        }
        let create = create.to_string();
        let mut bytes = create.as_bytes();
        let posted = self.http.post(Post::json(BATCHES, &mut bytes, create.len() as u64), call);
        let batch: BatchObject = created(&self.http, posted)?;
        // Whatever it says so far: a poll tells what became of it.
        Ok(Created { batch_id: batch.id, progress: Progress::Running })
    }

    fn leaves_traces(&self) -> bool {
        true
    }

    /// Deletes the file of a create that made no batch. It is told by its name, which nobody else's
    /// has, where the answer to its upload was lost.
    fn discard(&self, nonce: &str, anchor: &str, call: &Call<'_>) -> Result<(), CallError> {
        let (file, _) = anchor.split_once(' ').unwrap_or((anchor, ""));
        let found = if file.is_empty() { self.uploaded(nonce, call)? } else { None };
        let file = found.as_ref().map_or(file, |found| &found.id);
        if file.is_empty() { Ok(()) } else { self.http.delete(&path(FILES, file, "")?, call) }
    }

    /// The file is ours alone, so the batch made of it is ours.
    fn find(&self, lost: &Lost<'_>, call: &Call<'_>) -> Result<Found, CallError> {
        let (file, uploaded_at) = lost.anchor.split_once(' ').unwrap_or((lost.anchor, ""));
        let uploaded_at: i64 = uploaded_at.parse().unwrap_or(0);
        let is_older =
            |batch: &BatchObject| batch.created_at > 0 && batch.created_at + SKEW < uploaded_at;
        let (mut undecided, mut has_end) = (None, false);
        let mut query = PAGE.to_owned();
        for _ in 0..MAX_PAGES {
            let body = self.http.get(&format!("{BATCHES}{query}"), call)?;
            let page: Page = self.http.parse(&body, "the list of batches")?;
            if let Some(batch) = page.batches.iter().find(|batch| batch.input_file_id == file) {
                if !is_safe_id(&batch.id) {
                    return Err(CallError::passing("the batch has an id that cannot be used"));
                }
                let (batch_id, progress) = (batch.id.clone(), Progress::Running);
                return Ok(Found::Batch(Created { batch_id, progress }));
            }
            let unnamed = page.batches.iter().find(|batch| {
                batch.input_file_id.is_empty()
                    && !is_older(batch)
                    && !lost.known.contains(&batch.id)
            });
            if let Some(batch) = unnamed {
                let id = excerpt(&self.http.scrub(&batch.id));
                let reason = format!("batch `{id}` may be it, and its file is not told");
                undecided = Some(Found::Undecided { reason });
            }
            let oldest = page.batches.last();
            // What is older than the file was not made of it, nor what comes after that in a list
            // with the newest first.
            has_end = oldest.is_some_and(is_older)
                && page.batches.is_sorted_by(|a, b| a.created_at + SKEW >= b.created_at);
            let end = oldest.map(|oldest| &*oldest.id);
            let Some(next) = next_page(PAGE, "after", end, page.has_more && !has_end)? else {
                has_end = true;
                break;
            };
            query = next;
        }
        match undecided {
            _ if !has_end => Err(CallError::passing("the list of batches does not end")),
            Some(undecided) => Ok(undecided),
            None => self.absent(file, lost, call),
        }
    }

    fn poll(&self, batch_id: &str, call: &Call<'_>) -> Result<Progress, CallError> {
        let batch = self.batch(batch_id, call)?;
        Ok(match batch.status.as_str() {
            "completed" | "expired" | "cancelled" => Progress::Ended,
            // Nothing was run, unless it says otherwise.
            "failed" if batch.output_file_id.is_some() || batch.completed() > 0 => Progress::Ended,
            "failed" => Progress::Rejected(rejection(&batch, &|text| self.http.scrub(text))),
            _ => Progress::Running,
        })
    }

    fn cancel(&self, batch_id: &str, call: &Call<'_>) -> Result<(), CallError> {
        self.http.nudge(&path(BATCHES, batch_id, "/cancel")?, call)
    }

    fn results(
        &self,
        batch_id: &str,
        _draft: &Draft<'_>,
        call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        let batch = self.batch(batch_id, call)?;
        let late = (batch.completed() > 0 && batch.output_file_id.is_none())
            || (batch.status == "completed"
                && batch.output_file_id.is_none()
                && batch.error_file_id.is_none());
        if late {
            // The state is ahead of the files now and then, and what is in them was paid for.
            return Err(CallError::passing("the batch has ended, and its files are not there yet"));
        }
        let mut collected = Collected::default();
        // What ended early still has an output file, and its lines are paid for.
        for file in [&batch.output_file_id, &batch.error_file_id].into_iter().flatten() {
            let read = self.read(file, call, sink)?;
            collected.unreadable += read.unreadable;
            if read.is_cut {
                return Ok(collected);
            }
        }
        // Without an output file and without a count nothing says that the rest was not run.
        let is_told = batch.output_file_id.is_some() || batch.request_counts.completed.is_some();
        collected.rest = match batch.status.as_str() {
            _ if !is_told => None,
            "expired" => Some(RequestError::Expired),
            "cancelled" => Some(RequestError::Canceled),
            _ => None,
        };
        Ok(collected)
    }

    fn answered(&self, batch_id: &str, call: &Call<'_>) -> Result<Option<u64>, CallError> {
        Ok(self.batch(batch_id, call)?.request_counts.completed)
    }

    fn takes_batches(&self) -> bool {
        self.profile.has_batches
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn ask(&self, entry: &Entry<'_>, call: &Call<'_>) -> Result<Box<RawValue>, CreateError> {
        ask(&self.http, CHAT, entry, call)
    }

    fn answer(&self, response: Box<RawValue>) -> Answer {
        answer(response)
    }
}

/// Reads why nothing was run.
fn rejection(batch: &BatchObject, scrub: &dyn Fn(&str) -> String) -> Rejection {
    let faults = batch.errors.as_ref().map_or(&[][..], |errors| &errors.data);
    let first = faults.first();
    let is_passing = faults.iter().any(|fault| fault.code() == "token_limit_exceeded");
    let lines = faults.iter().filter_map(|fault| {
        let line = usize::try_from(fault.line?).ok()?.checked_sub(1)?;
        Some((line, scrub(fault.code()), scrub(fault.message())))
    });
    Rejection {
        kind: first.map_or_else(|| "batch_failed".to_owned(), |fault| scrub(fault.code())),
        message: first.map_or_else(|| "no reason given".to_owned(), |f| scrub(f.message())),
        lines: if is_passing { Vec::new() } else { lines.collect() },
        is_passing,
    }
}

const NONCE_LEN: usize = 16;

fn file_name(nonce: &str) -> String {
    format!("{nonce}.jsonl")
}

fn boundary(nonce: &str) -> String {
    format!("llm-batch-{nonce}")
}

/// The form in which the file goes up.
fn frame(nonce: &str) -> Frame {
    let (boundary, name) = (boundary(nonce), file_name(nonce));
    let head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --{boundary}\r\ncontent-disposition: form-data; name=\"file\"; \
         filename=\"{name}\"\r\ncontent-type: application/jsonl\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    Frame { head, before_id: ID, after_id: BODY, after_body: END, separator: "", tail }
}
