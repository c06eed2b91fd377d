//! `lessons recall`: what is known about a text.

use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lessons_index::Recalled;
use serde_json::json;
use serde_json::value::RawValue;

use super::query::Filter;
use super::{load, time};
use crate::cli::{Session, duration};
use crate::exit::{Exit, Stop};
use crate::input::Input;

#[derive(Debug, clap::Args)]
pub(crate) struct Recall {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A task, an error, any text; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    filter: Filter,
    /// Lessons at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Tokens of all lessons together at most, about a quarter of their bytes
    #[arg(long, value_name = "N")]
    budget_tokens: Option<usize>,
    /// The best lesson of each pattern only
    #[arg(long)]
    one_per_pattern: bool,
    /// After what time half as much counts that a lesson is recent
    #[arg(long, value_name = "D", default_value = "14d", value_parser = duration)]
    half_life: Duration,
    /// What time it is (RFC 3339), for answers that can be repeated
    #[arg(long, value_name = "TIME", value_parser = time)]
    now: Option<Timestamp>,
    /// Say what each score is made of
    #[arg(long)]
    explain: bool,
}

pub(super) fn run(session: &Session, options: &Recall) -> Result<Exit, Stop> {
    let mut text = options.text.clone();
    if text == "-" {
        text = Input::Stdin.read_text()?;
    }
    let snapshot = load(session, &options.file)?;
    let half_life = SignedDuration::try_from(options.half_life).unwrap_or(SignedDuration::MAX);
    let query = options.filter.query(&snapshot)?;
    let mut recall = snapshot.recall(&text).limit(options.limit).half_life(half_life).among(&query);
    if let Some(tokens) = options.budget_tokens {
        recall = recall.budget_tokens(tokens);
    }
    if options.one_per_pattern {
        recall = recall.one_per_pattern();
    }
    if let Some(now) = options.now {
        recall = recall.now(now);
    }
    for found in recall.run() {
        print(session, &found, options.explain);
    }
    Ok(Exit::Done)
}

fn print(session: &Session, found: &Recalled, explain: bool) {
    let lesson = &found.lesson;
    if session.output.json {
        let raw: Option<&RawValue> = serde_json::from_str(lesson.raw()).ok();
        let mut object = json!({
            "id": lesson.id,
            "score": found.score,
            "tokens": found.tokens,
        });
        if explain {
            let why = &found.why;
            object["why"] = json!({
                "text": why.text,
                "frequency": why.frequency,
                "recency": why.recency,
                "votes": why.votes,
                "terms": why.terms.iter().map(|(term, worth)| json!({ "term": term, "worth": worth })).collect::<Vec<_>>(),
            });
        }
        object["lesson"] = json!(raw);
        session.output.object(&object);
        return;
    }
    session.output.human(format!("{:.2} {}: {}", found.score, lesson.id, lesson.failure_msg));
    if !lesson.resolution.is_empty() {
        session.output.human(format!("     {}", lesson.resolution));
    }
    if explain {
        let why = &found.why;
        let terms: Vec<String> =
            why.terms.iter().map(|(term, worth)| format!("{term} {worth:.2}")).collect();
        session.output.human(format!(
            "     {:.2} for {}; {:+.0} % frequency, {:+.0} % recency, {:+.0} % feedback",
            why.text,
            terms.join(", "),
            why.frequency * 100.0,
            why.recency * 100.0,
            why.votes * 100.0,
        ));
    }
}
