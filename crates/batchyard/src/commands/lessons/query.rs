//! `lessons query` and `lessons top`.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lessons_index::{Cursor, Lesson, Snapshot, Sort};
use serde_json::{Value, json};

use super::{load, time};
use crate::cli::Session;
use crate::exit::{Exit, Stop};

/// What a lesson must have; all that is given must hold.
#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Of this type of task, which `run` calls its kind; given again, of one of them
    #[arg(long, value_name = "T")]
    task_type: Vec<String>,
    /// Of this activity, or one of them
    #[arg(long, value_name = "A")]
    activity_type: Vec<String>,
    /// Of this type of failure, or one of them
    #[arg(long, value_name = "F")]
    failure_type: Vec<String>,
    /// Of this pattern, or one of them
    #[arg(long, value_name = "P")]
    pattern: Vec<String>,
    /// Text in the failure message, in any case
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// With this value in its metadata: a text, or JSON such as 7 or true
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Seen so often, or more
    #[arg(long, value_name = "N")]
    min_times: Option<u64>,
    /// Last seen at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Last seen at this time or earlier (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Lessons at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Query {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Lessons at most
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What comes first
    #[arg(long, value_enum, default_value = "recent")]
    sort: Order,
    /// Go on behind the last lesson of a listing with --limit, which says the cursor on stderr
    #[arg(long, value_name = "CURSOR", conflicts_with = "sort")]
    after: Option<Cursor>,
    /// Print how many there are instead
    #[arg(long, conflicts_with_all = ["limit", "after"])]
    count: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Order {
    /// Last seen first
    Recent,
    /// Last seen last
    Oldest,
    /// Most often seen first
    Frequent,
    /// By id
    Id,
}

impl Filter {
    /// Returns the query for what is asked.
    pub(super) fn query<'s>(
        &self,
        snapshot: &'s Snapshot,
    ) -> Result<lessons_index::Query<'s>, Stop> {
        let mut query = snapshot.query();
        if !self.task_type.is_empty() {
            query = query.task_type_any(&self.task_type);
        }
        if !self.activity_type.is_empty() {
            query = query.activity_type_any(&self.activity_type);
        }
        if !self.failure_type.is_empty() {
            query = query.failure_type_any(&self.failure_type);
        }
        if !self.pattern.is_empty() {
            query = query.pattern_any(&self.pattern);
        }
        if let Some(text) = &self.contains {
            query = query
                .contains(text)
                .map_err(|error| Stop::refused(format_args!("--contains: {error}")))?;
        }
        for (key, value) in &self.metadata {
            // What is no JSON is a text.
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
            query = query.metadata(key, value);
        }
        if let Some(times) = self.min_times {
            query = query.seen_at_least(times);
        }
        let bound = |time: Option<Timestamp>| time.map_or(Bound::Unbounded, Bound::Included);
        if self.since.is_some() || self.until.is_some() {
            query = query.last_seen((bound(self.since), bound(self.until)));
        }
        Ok(query)
    }
}

pub(super) fn run(session: &Session, options: &Query) -> Result<Exit, Stop> {
    let snapshot = load(session, &options.file)?;
    let mut query = options.filter.query(&snapshot)?;
    if options.count {
        let count = query.count();
        if session.output.json {
            session.output.object(&json!({ "summary": { "count": count } }));
        } else {
            session.output.human(count.to_string());
        }
        return Ok(Exit::Done);
    }
    query = query.sort(sort_of(options));
    if let Some(cursor) = &options.after {
        query = query.after(cursor.clone());
    }
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut last: Option<Arc<Lesson>> = None;
    let mut printed = 0;
    // One more than asked for says whether there is more.
    for lesson in query.clone().limit(limit.saturating_add(1)).iter() {
        if printed == limit {
            if let Some(last) = last {
                let cursor = Cursor::after(sort_of(options), &last);
                session.output.note(format!("note: there is more; go on with --after '{cursor}'"));
            }
            break;
        }
        session.output.raw(lesson.raw());
        printed += 1;
        if printed == limit {
            last = Some(lesson.to_lesson());
        }
    }
    Ok(Exit::Done)
}

pub(super) fn top(session: &Session, options: &Top) -> Result<Exit, Stop> {
    let snapshot = load(session, &options.file)?;
    for lesson in snapshot.query().sort(Sort::Frequent).limit(options.limit).iter() {
        session.output.raw(lesson.raw());
    }
    Ok(Exit::Done)
}

fn sort_of(options: &Query) -> Sort {
    match (&options.after, options.sort) {
        (Some(cursor), _) => cursor.sort(),
        (None, Order::Recent) => Sort::Recent,
        (None, Order::Oldest) => Sort::Oldest,
        (None, Order::Frequent) => Sort::Frequent,
        (None, Order::Id) => Sort::Id,
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
