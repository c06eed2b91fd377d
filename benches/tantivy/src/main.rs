//! What a full load and a recall cost, against tantivy, in one process.
//!
//! `perf-tantivy [LESSONS]`: 1,000,000 by default. On standard output one `name<TAB>ratio` a line;
//! what that is in seconds goes to standard error.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use benches::lessons::{Corpus, Lesson};
use lessons_index::{Fsync, LessonsIndex, Options, Sort};
use rustix::time::{ClockId, clock_gettime};
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TokenStream;
use tantivy::{Index, IndexReader, ReloadPolicy, TantivyDocument, Term};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let lessons = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 1_000_000,
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("lessons.jsonl");
    fs::write(&path, Corpus::new(7).file(lessons))?;

    let ours = (0..3).map(|_| ours(&path).map(|(_, took)| took)).collect::<Result<Vec<_>>>()?;
    let ours = ours.into_iter().min().unwrap_or_default();
    let text = fs::read_to_string(&path)?;
    let (peer, theirs) = Peer::load(&text)?;
    eprintln!("full load: {ours:?}, tantivy {theirs:?} of processor time");
    ratio("lessons_load_with_text_over_tantivy", theirs, ours);

    let (index, _) = self::ours(&path)?;
    let snapshot = index.snapshot();
    let mut corpus = Corpus::new(31);
    for (name, messages) in [("30_words", 3), ("10_words", 1)] {
        let texts: Vec<String> = (0..60)
            .map(|_| (0..messages).map(|_| corpus.message().0).collect::<Vec<_>>().join(" "))
            .collect();
        let ours = median(&texts, |text| Ok(snapshot.recall(text).limit(10).run().len()))?;
        let theirs = median(&texts, |text| peer.best(text))?;
        eprintln!("recall, {name}: {ours:?}, tantivy {theirs:?}");
        ratio(&format!("lessons_recall_{name}_over_tantivy"), theirs, ours);
    }
    Ok(())
}

/// Loads a file and builds all that queries need.
fn ours(path: &Path) -> Result<(LessonsIndex, Duration)> {
    let options = Options::default().with_fsync(Fsync::Never).with_eager_text(false);
    let start = time(ClockId::ProcessCPUTime);
    let index = LessonsIndex::open(path, options)?;
    let snapshot = index.snapshot();
    black_box(snapshot.query().contains("no such text anywhere")?.count());
    black_box(snapshot.recall("no such word").run().len());
    black_box(snapshot.query().sort(Sort::Frequent).limit(1).iter().count());
    let took = time(ClockId::ProcessCPUTime).saturating_sub(start);
    drop(snapshot);
    Ok((index, took))
}

/// Is the same lessons in tantivy, in memory: exact fields, times and words, and the lines.
struct Peer {
    index: Index,
    reader: IndexReader,
    words: [Field; 3],
}

impl Peer {
    /// Loads the lines with one thread, and waits for all merges.
    fn load(text: &str) -> Result<(Self, Duration)> {
        /// More than it asks for.
        const MEMORY: usize = 1 << 30;
        let start = time(ClockId::ProcessCPUTime);
        let mut schema = Schema::builder();
        let words = TextFieldIndexing::default()
            .set_tokenizer("default")
            .set_index_option(IndexRecordOption::WithFreqs);
        let words = TextOptions::default().set_indexing_options(words);
        let id = schema.add_text_field("id", STRING);
        let exact = ["task", "activity", "failure"].map(|name| schema.add_text_field(name, STRING));
        let words = ["message", "resolution", "pattern"]
            .map(|name| schema.add_text_field(name, words.clone()));
        let times = schema.add_u64_field("times", FAST | INDEXED);
        let last = schema.add_text_field("last", STRING | FAST);
        let raw = schema.add_text_field("raw", STORED);
        let index = Index::create_in_ram(schema.build());
        let mut writer = index.writer_with_num_threads(1, MEMORY)?;
        for line in text.lines() {
            let lesson: Lesson = serde_json::from_str(line)?;
            let mut document = TantivyDocument::new();
            document.add_text(id, &lesson.id);
            let of_exact = [&lesson.task_type, &lesson.activity_type, &lesson.failure_type];
            for (field, value) in exact.into_iter().zip(of_exact) {
                document.add_text(field, value);
            }
            let of_words = [&lesson.failure_msg, &lesson.resolution, &lesson.pattern];
            for (field, value) in words.into_iter().zip(of_words) {
                document.add_text(field, value);
            }
            document.add_u64(times, lesson.times_seen);
            document.add_text(last, &lesson.last_seen);
            document.add_text(raw, line);
            writer.add_document(document)?;
        }
        writer.commit()?;
        writer.wait_merging_threads()?;
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        let took = time(ClockId::ProcessCPUTime).saturating_sub(start);
        Ok((Self { index, reader, words }, took))
    }

    /// Returns how many of the best ten lessons for a text there are.
    fn best(&self, text: &str) -> Result<usize> {
        let mut words: Vec<String> = Vec::new();
        let mut tokenizer = self.index.tokenizers().get("default").ok_or("no tokenizer")?;
        let mut stream = tokenizer.token_stream(text);
        while stream.advance() {
            words.push(stream.token().text.clone());
        }
        words.sort_unstable();
        words.dedup();
        let terms = words.iter().flat_map(|word| {
            self.words.map(|field| {
                let term = Term::from_field_text(field, word);
                let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
                (Occur::Should, Box::new(query) as Box<dyn Query>)
            })
        });
        let query = BooleanQuery::new(terms.collect());
        let best = TopDocs::with_limit(10).order_by_score();
        Ok(self.reader.searcher().search(&query, &best)?.len())
    }
}

/// Returns the median time of the processor, after some rounds that do not count.
fn median(texts: &[String], mut work: impl FnMut(&str) -> Result<usize>) -> Result<Duration> {
    for text in texts.iter().take(10) {
        black_box(work(text)?);
    }
    let mut times = Vec::with_capacity(texts.len());
    for text in texts {
        let start = time(ClockId::ThreadCPUTime);
        black_box(work(text)?);
        times.push(time(ClockId::ThreadCPUTime).saturating_sub(start));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

fn ratio(name: &str, theirs: Duration, ours: Duration) {
    println!("{name}\t{:.2}", theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9));
}
