//! Asks prompts from a file of JSON lines in one batch, and writes the answers as JSON lines.
//!
//! `jsonl REQUESTS URL STATE OUT [SECONDS]`, the key in `ANTHROPIC_API_KEY`. Run again with the same
//! files it goes on. With SECONDS it sends, does not ask for the results, and ends after that time.
//! Where OUT is `-`, only the length of all answers is printed.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use llm_batch::providers::Anthropic;
use llm_batch::{LlmBatch, Request};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Line {
    id: String,
    model: String,
    prompt: String,
}

#[derive(Serialize)]
struct Answered<'a> {
    id: &'a str,
    text: Option<&'a str>,
    response: &'a RawValue,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [requests, url, state, out, seconds @ ..] = &arguments[..] else {
        return Err("usage: jsonl REQUESTS URL STATE OUT [SECONDS]".into());
    };
    let provider = Anthropic::builder(std::env::var("ANTHROPIC_API_KEY")?).base_url(url).build()?;
    let mut settings = LlmBatch::builder(Arc::new(provider)).state(state);
    settings = match seconds {
        [seconds, ..] => {
            let wait = Duration::from_secs(seconds.parse()?);
            settings.poll_interval(wait * 2).timeout(wait)
        }
        [] => settings.poll_interval(Duration::from_millis(100)),
    };
    let llm = settings.build()?;
    let read = |line: std::io::Result<String>| -> Result<Request, Box<dyn Error + Send + Sync>> {
        let Line { id, model, prompt } = serde_json::from_str(&line?)?;
        Ok(Request::prompt(id, model, prompt))
    };
    let loaded = llm.load(BufReader::new(File::open(requests)?).lines().map(read))?;
    let mut out = match out.as_str() {
        "-" => None,
        out => Some(BufWriter::new(OpenOptions::new().append(true).create(true).open(out)?)),
    };
    let (mut failed, mut length) = (None, 0);
    let ended = loaded.run(|id, outcome| {
        let Ok(answer) = outcome else { return };
        length += answer.text.as_deref().map_or(0, str::len);
        let Some(out) = &mut out else { return };
        let line = Answered { id, text: answer.text.as_deref(), response: &answer.response };
        let written = serde_json::to_writer(&mut *out, &line).map_err(Into::into);
        if let Err(error) = written.and_then(|()| out.write_all(b"\n")) {
            failed.get_or_insert(error);
        }
    });
    match &mut out {
        Some(out) => out.flush()?,
        None => writeln!(std::io::stdout(), "{length}")?,
    }
    match (failed, ended) {
        (Some(error), _) => Err(error.into()),
        // It was to end there.
        (None, Err(llm_batch::Error::Pending { .. })) if !seconds.is_empty() => Ok(()),
        (None, ended) => Ok(ended.map(|_| ())?),
    }
}
