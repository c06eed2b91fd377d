//! Downloads of results that break off, lie or do not end.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{KEY, Place, SHAPES, ask, assert_answered, builder, run, run_until, settings};
use llm_batch::providers::Anthropic;
use llm_batch::{Overview, Stage, Status, Submission};
use llm_simulator::{Builder, Endpoint, Reply, Seen, Simulator};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The reads of results, in order.
fn reads(simulator: &Simulator) -> Vec<Seen> {
    let seen = simulator.server().seen();
    let is_read = |seen: &Seen| seen.path.ends_with("/results") || seen.path.ends_with("/content");
    seen.into_iter().filter(is_read).collect()
}

/// Breaks the first download off after so many of a hundred parts.
fn cut_at(simulator: Builder, percent: usize) -> Simulator {
    let hook = move |call: &llm_simulator::Call<'_>, usual: Reply| {
        let is_first = (call.endpoint, call.nth) == (Endpoint::Results, 0);
        let length = usual.body().len();
        if is_first {
            Reply::Cut((length * percent / 100).min(length - 1), Box::new(usual))
        } else {
            usual
        }
    };
    simulator.after(hook).start().unwrap()
}

#[test]
fn a_download_cut_at_any_hundredth_goes_on_there_or_begins_anew_and_tells_each_once() {
    for percent in 0..=100 {
        for ranges in [true, false] {
            let simulator = Simulator::builder();
            let simulator = if ranges { simulator.ranges() } else { simulator };
            let (simulator, place) = (cut_at(simulator, percent), Place::quick());
            let provider = SHAPES[percent % 2](simulator.url(), KEY);
            let llm = settings(provider, &place.state()).build().unwrap();
            let (outcomes, ended) = run(&llm, IDS.map(ask));
            assert_answered(&outcomes, &IDS);
            assert_eq!(ended.unwrap().stray_results, 0, "{percent}");
            let reads = reads(&simulator);
            assert_eq!(reads.len(), 2, "{percent}");
            let range = reads[1].header("range");
            // Before the first byte there is nothing to go on with.
            assert_eq!(range.is_some(), ranges && percent > 0, "{percent}: {range:?}");
            assert_eq!(simulator.paid().len(), IDS.len());
        }
    }
}

/// A server that answers with another part, another content, all of it, an error or nothing: the
/// download begins anew.
#[test]
fn a_server_that_does_not_keep_to_ranges_is_asked_for_all_of_it() {
    type Lie = fn(Reply) -> Reply;
    let lies: [Lie; 7] = [
        |_| Reply::error(416, "k", "no"),
        |_| Reply::error(500, "k", "no"),
        |_| Reply::Drop,
        |reply| with(reply, 206, &[("content-range", "bytes 0-1/2")]),
        |reply| with(reply, 206, &[]),
        |reply| with(reply, 206, &[("etag", "\"other\"")]),
        // The right part, of a content that is not named.
        |reply| {
            let Reply::Full { status, mut headers, body } = reply else { return reply };
            headers.retain(|(name, _)| *name != "etag");
            Reply::Full { status, headers, body }
        },
    ];
    for lie in lies {
        let simulator = Simulator::builder()
            .ranges()
            .after(move |call, usual| match (call.endpoint, call.nth) {
                (Endpoint::Results, 0) => Reply::Cut(usual.body().len() / 2, Box::new(usual)),
                (Endpoint::Results, 1) => lie(usual),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::new();
        let llm = builder(simulator.url(), &place.state()).build().unwrap();
        let (outcomes, _) = run(&llm, IDS.map(ask));
        assert_answered(&outcomes, &IDS);
        let reads = reads(&simulator);
        assert_eq!(reads.len(), 3);
        assert_eq!(reads[2].header("range"), None);
    }
}

/// Returns the answer with another status, and other headers in place of those that say where it
/// belongs.
fn with(reply: Reply, status: u16, headers: &[(&'static str, &str)]) -> Reply {
    let Reply::Full { body, .. } = reply else { return reply };
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Reply::Full { status, headers, body }
}

/// A weak tag says that the content means the same, not that its bytes are the same.
#[test]
fn a_weak_tag_is_not_trusted() {
    let simulator = Simulator::builder()
        .after(|call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Results, 0) => {
                let tagged = usual.with_header("etag", "W/\"1\"");
                Reply::Cut(tagged.body().len() / 2, Box::new(tagged))
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::new();
    let llm = builder(simulator.url(), &place.state()).build().unwrap();
    assert_answered(&run(&llm, IDS.map(ask)).0, &IDS);
    assert_eq!(reads(&simulator)[1].header("range"), None);
}

/// A download that breaks off again and again comes further each time, and ends.
#[test]
fn a_download_that_breaks_off_at_every_few_bytes_arrives_without_being_read_twice() {
    let simulator = Simulator::builder()
        .ranges()
        .after(|call, usual| match call.endpoint {
            Endpoint::Results => Reply::Cut(100, Box::new(usual)),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::new();
    let llm = builder(simulator.url(), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, IDS.map(ask));
    assert_answered(&outcomes, &IDS);
    assert!(ended.is_ok());
    let reads = reads(&simulator);
    assert!(reads.len() > 10, "{}", reads.len());
    assert_eq!(reads.iter().filter(|read| read.header("range").is_none()).count(), 1);
}

/// Bombs, endless lines and odd text: nobody else is harmed, and memory stays what it was.
#[test]
fn whatever_stands_in_the_results_harms_nobody_else() {
    let endless = "x".repeat(3_000_000);
    let odd: Vec<String> = vec![
        endless,
        "[".repeat(100_000),
        "{\"a\":".repeat(50_000),
        "\u{feff}".to_owned(),
        "\u{2028}\u{85}".to_owned(),
        "{\"custom_id\":\"\\ud800\",\"result\":{}}".to_owned(),
        "\0\0\0".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
    ];
    let count = odd.len() as u64;
    let simulator = Simulator::builder()
        .after(move |call, usual| match call.endpoint {
            Endpoint::Results => {
                let text = String::from_utf8_lossy(usual.body()).into_owned();
                let mut lines = odd.clone();
                lines.extend(text.lines().map(str::to_owned));
                let lines: Vec<String> = lines.into_iter().map(|line| line + "\r").collect();
                Reply::jsonl(&lines)
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::new();
    let provider = Anthropic::builder(KEY).base_url(simulator.url()).max_line(1 << 20);
    let llm = settings(Arc::new(provider.build().unwrap()), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, IDS.map(ask));
    assert_answered(&outcomes, &IDS);
    let run = ended.unwrap();
    assert_eq!(run.stray_results, count);
    assert!(run.outcomes.iter().all(|(_, status)| *status == Status::Succeeded));
}

/// Nothing is taken apart that was not asked for compressed, so a bomb stays a small odd line.
#[test]
fn a_compressed_answer_is_not_unpacked() {
    // What `gzip` makes of nothing.
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let simulator = Simulator::builder()
        .after(move |call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Results, 0) => Reply::Full {
                status: 200,
                headers: vec![("content-encoding", "gzip".to_owned())],
                body: gzip.to_vec(),
            },
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::new();
    let llm = builder(simulator.url(), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, IDS.map(ask));
    assert_answered(&outcomes, &IDS);
    assert_eq!(ended.unwrap().stray_results, 1);
    assert!(reads(&simulator)[0].header("accept-encoding").is_none_or(|e| e == "identity"));
}

/// A server that gives out byte by byte is not asked without a pause for ever.
#[test]
fn a_download_that_gives_a_byte_at_a_time_is_left_after_a_hundred_calls() {
    let simulator = Simulator::builder()
        .ranges()
        .after(|call, usual| match call.endpoint {
            Endpoint::Results => Reply::Cut(1, Box::new(usual)),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let rarely = || {
        builder(simulator.url(), &place.state()).poll_interval(std::time::Duration::from_mins(10))
    };
    // The first run sends it, the second asks for it at once, and does not ask again.
    let is_sent = |submission: &Submission| submission.stage == Stage::Submitted;
    let is_there = || Overview::read(place.state()).unwrap().submissions.iter().any(is_sent);
    assert!(run_until(is_there, rarely(), IDS.map(ask)).1.is_err());
    assert_eq!(reads(&simulator).len(), 0);
    let looked = AtomicUsize::new(0);
    let has_left = || {
        let has_left = simulator.count(Endpoint::Results) > 100;
        has_left && looked.fetch_add(1, Ordering::SeqCst) > 100
    };
    assert!(run_until(has_left, rarely(), IDS.map(ask)).1.is_err());
    assert_eq!(reads(&simulator).len(), 101);
}
