//! RESULTS.jsonl: what became of model requests.

use std::io::{self, Write};

use llm_batch::{Answer, RequestError, Usage};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Debug, Serialize)]
struct ResultLine<'a> {
    id: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorLine<'a>>,
}

#[derive(Debug, Serialize)]
struct ErrorLine<'a> {
    kind: &'a str,
    message: String,
}

/// Writes one result line in one piece.
pub(crate) fn write(
    out: &mut impl Write,
    id: &str,
    outcome: &Result<Answer, RequestError>,
) -> io::Result<()> {
    let line = match outcome {
        Ok(answer) => ResultLine {
            id,
            status: "succeeded",
            text: answer.text.as_deref(),
            response: Some(&answer.response),
            usage: answer.usage,
            error: None,
        },
        Err(error) => ResultLine {
            id,
            status: error.status().as_str(),
            text: None,
            response: None,
            usage: None,
            error: Some(ErrorLine { kind: error.kind(), message: error.to_string() }),
        },
    };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}
