//! Recorded answers from a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::anthropic_wire::{answer, params};
use crate::answer::{Answer, RequestError, Usage};
use crate::draft::Draft;
use crate::error::Error;
use crate::provider::{
    Call, CallError, Collected, CreateError, Created, Found, Limits, Lost, Progress, Provider, Sink,
};
use crate::request::Request;

/// A provider that answers from recordings: no network, no key, no cost, the same every time.
///
/// The answer to the request `ID` is in one of three files of the folder:
///
/// * `ID.json`: an object with `text`, or with `response` (a whole message of a provider, handed
///   on as it is), or with `error` (`{"type", "message"}`: the request ends as errored). Beside
///   `text` may stand `usage` (`{"input_tokens", "output_tokens"}`).
/// * `ID.md` or `ID.txt`: the text alone. No tokens are counted then.
///
/// In the file name every byte of the id other than `A-Z a-z 0-9 . _ -` is written as `%XX`, as
/// is a leading dot: the answer to `a/b` is in `a%2Fb.md`. So no id leads out of the folder, and
/// no two ids share a file (on file systems that tell upper from lower case).
///
/// A request without a recording ends as errored, alone, with the name of the file it wants.
///
/// ```
/// use std::sync::Arc;
/// use llm_batch::providers::Offline;
/// use llm_batch::{LlmBatch, Request};
///
/// # let dir = tempfile::tempdir()?;
/// # let (answers, state) = (dir.path().join("answers"), dir.path().join("state"));
/// # std::fs::create_dir(&answers)?;
/// std::fs::write(answers.join("greet.json"), r#"{"text": "Hello.", "usage": {"output_tokens": 2}}"#)?;
///
/// let llm = LlmBatch::builder(Arc::new(Offline::open(&answers)?)).state(state).build()?;
/// let answer = llm.submit(Request::prompt("greet", "any", "Say hello."))?.wait()?;
/// assert_eq!(answer.text.as_deref(), Some("Hello."));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Offline {
    dir: PathBuf,
    shown: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    text: Option<String>,
    response: Option<Box<RawValue>>,
    error: Option<RecordedError>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct RecordedError {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

impl Offline {
    /// Returns a provider for the recordings in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when `dir` is no folder that can be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<Offline, Error> {
        let dir = dir.as_ref();
        let unreadable = |error: io::Error| Error::Setting {
            problem: format!(
                "the folder of recorded answers `{}` cannot be read: {error}",
                dir.display()
            ),
        };
        // The same folder is the same provider, from wherever it is named.
        let dir = dir.canonicalize().map_err(unreadable)?;
        fs::read_dir(&dir).map_err(unreadable)?;
        let shown = dir.display().to_string();
        Ok(Offline { dir, shown })
    }

    fn recorded(&self, id: &str, model: &str) -> Result<Answer, RequestError> {
        let stem = file_stem(id);
        let mut found: Option<(&str, String)> = None;
        for extension in ["json", "md", "txt"] {
            match fs::read_to_string(self.dir.join(format!("{stem}.{extension}"))) {
                Ok(text) if found.is_none() => found = Some((extension, text)),
                Ok(_) => {
                    let message = format!("`{}` holds several recordings `{stem}.*`", self.shown);
                    return Err(errored("ambiguous_recording", message));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let message = format!("`{stem}.{extension}` in `{}`: {error}", self.shown);
                    return Err(errored("unreadable_recording", message));
                }
            }
        }
        match found {
            None => Err(errored(
                "no_recording",
                format!("`{}` holds no `{stem}.json`, `{stem}.md` or `{stem}.txt`", self.shown),
            )),
            Some(("json", text)) => parse(&text, model).map_err(|problem| match problem {
                Problem::Recorded(error) => error,
                Problem::Broken(why) => errored(
                    "unreadable_recording",
                    format!("`{stem}.json` in `{}`: {why}", self.shown),
                ),
            }),
            Some((_, text)) => {
                message(model, &text, None).map_err(|why| errored("unreadable_recording", why))
            }
        }
    }
}

enum Problem {
    Recorded(RequestError),
    Broken(String),
}

fn parse(text: &str, model: &str) -> Result<Answer, Problem> {
    let recording: Recording =
        serde_json::from_str(text).map_err(|error| Problem::Broken(error.to_string()))?;
    match recording {
        Recording { text: Some(text), response: None, error: None, usage } => {
            message(model, &text, usage).map_err(Problem::Broken)
        }
        Recording { text: None, response: Some(response), error: None, usage: None } => {
            Ok(answer(response))
        }
        Recording { text: None, response: None, error: Some(error), usage: None } => {
            Err(Problem::Recorded(errored(&error.kind, error.message)))
        }
        _ => Err(Problem::Broken(
            "write one of `text`, `response` and `error`, and `usage` only beside `text`"
                .to_owned(),
        )),
    }
}

/// Builds the message that a provider would have sent.
fn message(model: &str, text: &str, usage: Option<Usage>) -> Result<Answer, String> {
    let mut message = json!({
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
    });
    if let Some(usage) = usage {
        message["usage"] = json!(usage);
    }
    to_raw_value(&message).map(answer).map_err(|error| error.to_string())
}

fn errored(kind: &str, message: String) -> RequestError {
    // A recording says the same however often it is asked.
    RequestError::Errored { kind: kind.to_owned(), message, retryable: false }
}

/// Returns the name of an id's recording, without its extension. No two ids have the same.
fn file_stem(id: &str) -> String {
    let mut stem = String::with_capacity(id.len());
    for (at, byte) in id.bytes().enumerate() {
        match byte {
            b'.' if at == 0 => stem.push_str("%2E"),
            b'.' | b'_' | b'-' => stem.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => stem.push(char::from(byte)),
            _ => {
                stem.push('%');
                for half in [byte >> 4, byte & 15] {
                    let digit = char::from_digit(u32::from(half), 16).unwrap_or('0');
                    stem.push(digit.to_ascii_uppercase());
                }
            }
        }
    }
    stem
}

impl Provider for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn endpoint(&self) -> &str {
        &self.shown
    }

    fn limits(&self) -> Limits {
        Limits { max_items: 100_000, max_bytes: u64::MAX, frame_bytes: 0, entry_bytes: 0 }
    }

    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        params(request)
    }

    fn create(
        &self,
        draft: &Draft<'_>,
        _anchor: &str,
        _call: &Call<'_>,
    ) -> Result<Created, CreateError> {
        let batch_id = format!("offline-{}", draft.nonce());
        Ok(Created { batch_id, progress: Progress::Ended })
    }

    /// Nothing that was lost here was ever anywhere else.
    fn find(&self, lost: &Lost<'_>, _call: &Call<'_>) -> Result<Found, CallError> {
        let batch_id = format!("offline-{}", lost.nonce);
        Ok(Found::Batch(Created { batch_id, progress: Progress::Ended }))
    }

    fn poll(&self, _batch_id: &str, _call: &Call<'_>) -> Result<Progress, CallError> {
        Ok(Progress::Ended)
    }

    fn cancel(&self, _batch_id: &str, _call: &Call<'_>) -> Result<(), CallError> {
        Ok(())
    }

    fn results(
        &self,
        _batch_id: &str,
        draft: &Draft<'_>,
        _call: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        for entry in draft.entries() {
            if sink(&entry.custom_id, self.recorded(entry.id, entry.model)).is_break() {
                break;
            }
        }
        Ok(Collected::default())
    }
}

#[cfg(test)]
mod tests {
    use super::file_stem;
    use proptest::prelude::*;

    #[test]
    fn plain_ids_are_their_own_file_names() {
        assert_eq!(file_stem("impl-1_b.v2"), "impl-1_b.v2");
        assert_eq!(file_stem("../a b"), "%2E.%2Fa%20b");
        assert_eq!(file_stem("é"), "%C3%A9");
    }

    proptest! {
        #[test]
        fn no_two_ids_share_a_file_and_none_leaves_the_folder(a in ".*", b in ".*") {
            prop_assert_eq!(a == b, file_stem(&a) == file_stem(&b));
            prop_assert!(!file_stem(&a).contains('/') && !file_stem(&a).starts_with('.'));
        }
    }
}
