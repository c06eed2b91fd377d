//! What an index of lessons costs, against the seed's way and SQLite, in one process.
//!
//! `perf-lessons [LESSONS] [load|readers]`: 100,000 by default, and all parts if none is named. On
//! standard output one `name<TAB>ratio` a line; what that is in seconds goes to standard error.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the numbers are what it is for")]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;

mod clock;
mod readers;

use benches::lessons::{Corpus, Port, Sqlite};
use lessons_index::measure::Publisher;
use lessons_index::{Fsync, Lesson, LessonsIndex, Options, Sort};
use memchr::memmem::Finder;

use clock::{best_of, cpu, cpu_of_all, each, mean, number, over};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let lessons = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 100_000,
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("lessons.jsonl");
    fs::write(&path, Corpus::new(7).file(lessons))?;
    let only = std::env::args().nth(2);
    if only.as_deref() == Some("readers") {
        return readers::beside_a_writer(&path, lessons);
    }
    memory(&path, lessons)?;
    let text = fs::read_to_string(&path)?;
    say("file", &format!("{lessons} lessons, {} bytes", text.len()));
    let (port, sqlite) = load(&path, &text)?;
    if only.as_deref() == Some("load") {
        return Ok(());
    }
    let index = LessonsIndex::open(&path, options())?;
    warm(&index)?;
    look_up(&index, &port, &sqlite, lessons)?;
    find_text(&index, &sqlite, lessons);
    recall(&index, &sqlite);
    drop(port);
    write(&index, &sqlite, lessons)?;
    publish(index, &sqlite, lessons);
    refresh(&path)?;
    readers::beside_a_writer(&path, lessons)?;
    Ok(())
}

fn options() -> Options {
    Options::default().with_fsync(Fsync::Never).with_eager_text(false).with_auto_compact(None)
}

fn ratio(name: &str, ratio: f64) {
    println!("{name}\t{ratio:.2}");
}

fn say(name: &str, what: &str) {
    eprintln!("{name:<44} {what}");
}

/// Builds all that is built when it is first asked for.
fn warm(index: &LessonsIndex) -> Result {
    warm_text(index)?;
    // The fingerprints of all lessons, which the others have not.
    let failure = lessons_index::Failure::new("", "none");
    black_box(index.snapshot().seen_before(&failure).is_some());
    Ok(())
}

/// Builds what the others have too: parts and words of texts, and the order by frequency.
fn warm_text(index: &LessonsIndex) -> Result {
    let snapshot = index.snapshot();
    black_box(snapshot.query().contains("no such text anywhere")?.count());
    black_box(snapshot.recall("no such word").run().len());
    black_box(snapshot.query().sort(Sort::Frequent).limit(1).iter().count());
    Ok(())
}

fn memory(path: &Path, lessons: usize) -> Result {
    let before = resident()?;
    let index = LessonsIndex::open(path, options())?;
    let loaded = resident()?;
    warm(&index)?;
    let whole = resident()?;
    let raw = fs::metadata(path)?.len();
    let above = |bytes: u64| number(bytes.saturating_sub(before + raw)) / number(lessons as u64);
    say("bytes a lesson above the file, exact", &format!("{:.0}", above(loaded)));
    say("bytes a lesson above the file, with text", &format!("{:.0}", above(whole)));
    ratio("lessons_memory_bar_of_450_bytes", 450.0 / above(whole));
    black_box(index.snapshot().len());
    Ok(())
}

fn load(path: &Path, text: &str) -> Result<(Port, Sqlite)> {
    let ours = best_of(5, || LessonsIndex::open(path, options()).map(drop))?;
    let theirs = best_of(3, || {
        Port::load(&fs::read_to_string(path)?).map(drop).map_err(Box::<dyn Error>::from)
    })?;
    say("load, ready for exact questions, processor", &format!("{ours}, the port {theirs}"));
    ratio("lessons_load_over_port", theirs.cpu.as_secs_f64() / ours.cpu.as_secs_f64());

    let ours = best_of(2, || warm_text(&LessonsIndex::open(path, options())?))?;
    let start = cpu_of_all();
    let sqlite = Sqlite::load(text)?;
    let rows = cpu_of_all().saturating_sub(start);
    sqlite.add_text()?;
    let theirs = cpu_of_all().saturating_sub(start);
    say("load with text", &format!("{ours}, SQLite {rows:?}, with FTS5 {theirs:?}"));
    let ours = ours.cpu;
    ratio("lessons_load_with_text_over_sqlite_fts5", over(theirs, ours));
    Ok((Port::load(text)?, sqlite))
}

fn look_up(index: &LessonsIndex, port: &Port, sqlite: &Sqlite, lessons: usize) -> Result {
    let mut corpus = Corpus::new(99);
    let ids: Vec<String> =
        (0..20_000).map(|_| format!("lesson-{:07}", corpus.below(lessons))).collect();
    let snapshot = index.snapshot();
    let ours = mean(&ids, |id| snapshot.find(id).map(|lesson| lesson.times_seen()));
    let decoded = mean(&ids, |id| snapshot.get(id));
    let theirs = mean(&ids, |id| port.by_id.get(id).map(|lesson| lesson.times_seen));
    let rows = mean(&ids[..2_000], |id| sqlite.get(id).ok());
    say("get", &format!("{ours:?}; decoded {decoded:?}, port {theirs:?}, SQLite {rows:?}"));
    ratio("lessons_get_over_sqlite", over(rows, ours));
    ratio("lessons_get_over_hash_map", over(theirs, ours));

    let three: Vec<[String; 3]> = (0..2_000)
        .map(|_| {
            let lesson = &port.by_id[&format!("lesson-{:07}", corpus.below(lessons))];
            [lesson.task_type.clone(), lesson.activity_type.clone(), lesson.failure_type.clone()]
        })
        .collect();
    for [task, activity, failure] in &three[..50] {
        let ours: Vec<String> = and(&snapshot, task, activity, failure);
        assert_eq!(ours, port.newest(task, activity, failure, 10));
        assert_eq!(ours, sqlite.newest(task, activity, failure)?);
    }
    let ours = each(&three, |[a, b, c]| query(&snapshot, a, b, c).iter().count());
    let rows = each(&three[..500], |[a, b, c]| sqlite.newest(a, b, c).ok());
    let scans = each(&three[..100], |[a, b, c]| port.newest(a, b, c, 10).len());
    say(
        "three fields, newest 10",
        &format!("{ours}; port {}, SQLite {}", scans.median(), rows.median()),
    );
    ratio("lessons_and_of_three_over_sqlite", rows.ratio(&ours));
    ratio("lessons_and_of_three_over_port", scans.ratio(&ours));
    let top = mean(&ids, |_| snapshot.query().sort(Sort::Frequent).limit(10).iter().count());
    say("ten most frequent", &format!("{top:?}"));
    Ok(())
}

fn query<'s>(
    snapshot: &'s lessons_index::Snapshot,
    task: &str,
    activity: &str,
    failure: &str,
) -> lessons_index::Query<'s> {
    snapshot.query().task_type(task).activity_type(activity).failure_type(failure).limit(10)
}

fn and(
    snapshot: &lessons_index::Snapshot,
    task: &str,
    activity: &str,
    failure: &str,
) -> Vec<String> {
    query(snapshot, task, activity, failure).iter().map(|lesson| lesson.id().to_owned()).collect()
}

fn find_text(index: &LessonsIndex, sqlite: &Sqlite, lessons: usize) {
    let snapshot = index.snapshot();
    let mut corpus = Corpus::new(3);
    let mut messages: Vec<u8> = Vec::new();
    for lesson in snapshot.query().iter() {
        messages.extend_from_slice(lesson.failure_msg().to_lowercase().as_bytes());
        messages.push(b'\n');
    }
    let needles: Vec<String> = (0..1_500)
        .map(|n| {
            let id = format!("lesson-{:07}", corpus.below(lessons));
            let text: Vec<char> = snapshot
                .get(&id)
                .map(|l| l.failure_msg.clone())
                .unwrap_or_default()
                .chars()
                .collect();
            let len = (6 + corpus.below(18)).min(text.len());
            let from = corpus.below(text.len() - len + 1);
            let mut needle: String = text[from..from + len].iter().collect();
            if n % 10 == 0 {
                needle.push('\u{7}');
            }
            needle
        })
        .collect();
    let mut count = |needle: &String| {
        snapshot.query().contains(needle).map_or(0, |q| q.limit(20).iter().count())
    };
    let ours = each(&needles, &mut count);
    let scan = each(&needles[..200], |needle| {
        Finder::new(needle.to_lowercase().as_bytes()).find_iter(&messages).take(20).count()
    });
    let whole = each(&needles[..50], |needle| {
        let mut needle = needle.to_lowercase();
        needle.push('\u{6}');
        Finder::new(needle.as_bytes()).find_iter(&messages).count()
    });
    let rows = each(&needles[..100], |needle| sqlite.containing(needle).unwrap_or(0));
    say(
        "text, first 20",
        &format!("{ours}; memmem {scan}, of all {}, FTS5 {}", whole.median(), rows.median()),
    );
    ratio("lessons_text_p99_over_one_scan", over(whole.median().0, ours.at(0.99).0));
    ratio("lessons_text_worst_over_one_scan", over(whole.median().0, ours.at(1.0).0));
    ratio("lessons_text_over_fts5", rows.ratio(&ours));
}

fn recall(index: &LessonsIndex, sqlite: &Sqlite) {
    let snapshot = index.snapshot();
    let mut corpus = Corpus::new(31);
    let texts = |corpus: &mut Corpus, messages: usize| -> Vec<String> {
        (0..60)
            .map(|_| (0..messages).map(|_| corpus.message().0).collect::<Vec<_>>().join(" "))
            .collect()
    };
    for (name, messages) in [("30 words", 3), ("10 words", 1)] {
        let texts = texts(&mut corpus, messages);
        let ours = each(&texts, |text| snapshot.recall(text).limit(10).run().len());
        let rows = each(&texts[..5], |text| sqlite.best(text).map_or(0, |ids| ids.len()));
        say(&format!("recall, about {name}"), &format!("{ours}; FTS5 {}", rows.median()));
        let name = name.replace(' ', "_");
        ratio(&format!("lessons_recall_{name}_over_fts5"), rows.ratio(&ours));
    }
}

fn write(index: &LessonsIndex, sqlite: &Sqlite, lessons: usize) -> Result {
    let mut corpus = Corpus::new(5);
    let changed: Vec<Lesson> = (0..5_000)
        .map(|_| {
            let id = format!("lesson-{:07}", corpus.below(lessons));
            Lesson::builder(id)
                .failure_msg("changed")
                .times_seen(2)
                .build()
                .map_err(|e| e.to_string())
        })
        .collect::<std::result::Result<_, _>>()?;
    let ours = each(&changed, |lesson| index.add(lesson.clone()).is_ok());
    let rows = each(&changed[..1_000], |lesson| sqlite.upsert(&lesson.id, lesson.raw()).is_ok());
    say(
        "upsert to return, no fsync",
        &format!("{ours}; SQLite in memory, no file: {}", rows.median()),
    );
    let all: Vec<Lesson> = changed.clone();
    let start = cpu();
    let added = index.add_all(all).into_iter().flatten().count();
    let took = cpu().saturating_sub(start) / u32::try_from(added)?;
    say("upsert in batches of 1,000, each", &format!("{took:?}"));
    ratio("lessons_upsert_alone_over_in_batches", over(ours.median().0, took));
    let old: Vec<u8> = b"x".repeat(500);
    let folder = tempfile::tempdir()?;
    let mut file = fs::File::create(folder.path().join("plain"))?;
    let plain = each(&changed[..1_000], |_| file.write_all(&old).is_ok());
    say("one plain write of 500 bytes", &plain.median().to_string());
    ratio("lessons_upsert_vs_plain_write", plain.ratio(&ours));
    Ok(())
}

/// Makes lessons visible without writing them, each in place of an older one.
fn publish(index: LessonsIndex, sqlite: &Sqlite, lessons: usize) {
    let publisher = Publisher::of(index);
    let (mut lines, mut corpus) = (Corpus::new(8), Corpus::new(6));
    let lines: Vec<(String, String)> = (0..20_000)
        .map(|_| {
            let (number, mut line) = (corpus.below(lessons), String::new());
            lines.line(number, &mut line);
            (format!("lesson-{number:07}"), line)
        })
        .collect();
    let ours = each(&lines, |(_, line)| publisher.publish(line).is_ok());
    let rows = each(&lines[..1_000], |(id, line)| sqlite.upsert(id, line).is_ok());
    say("publish of one upsert, no file", &format!("{ours}; SQLite {}", rows.median()));
    ratio("lessons_publish_over_sqlite", rows.ratio(&ours));
}

fn refresh(path: &Path) -> Result {
    let index = LessonsIndex::open(path, options())?;
    let rounds = [(); 500];
    let same = each(&rounds, |()| index.refresh().is_ok());
    let look = each(&rounds, |()| fs::metadata(path).is_ok());
    let whole = each(&rounds[..3], |()| index.reload().is_ok());
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    let mut n = 0;
    let line = each(&rounds, |()| {
        n += 1;
        let line = format!("{{\"id\":\"new-{n}\",\"failure_msg\":\"appended\"}}\n");
        file.write_all(line.as_bytes()).is_ok() && index.refresh().is_ok()
    });
    say(
        "refresh",
        &format!(
            "unchanged {}, one line {line}; metadata {}, the whole file {}",
            same.median(),
            look.median(),
            whole.median()
        ),
    );
    ratio("lessons_refresh_unchanged_vs_metadata", look.ratio(&same));
    ratio("lessons_refresh_of_one_line_vs_reload", whole.ratio(&line));
    Ok(())
}

fn resident() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
