//! Results of model batches: how they are parsed, and what a large batch takes in memory.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_batch::providers::{Anthropic, measured};
use llm_batch::{LlmBatch, Request};
use llm_simulator::{Said, Simulator};
use serde_json::{Value, json};

type Failure = Box<dyn Error>;

/// What a source file looks like in JSON: a good part of it is escaped.
const CODE: &str = "fn main() { println!(\"\\n\"); }\n";
const LINES: usize = 2_000;
const ROUNDS: usize = 9;

/// The batch whose memory is measured: 2,400 bytes each, 256 MB in all with what is escaped.
const REQUESTS: usize = 94_000;
const REPEATED: usize = 80;
const BUDGET_KIB: f64 = 48.0 * 1024.0;

/// Returns how many times faster the envelope of result lines is parsed, and an answer made of them,
/// than a [`Value`] of each, all on one thread.
///
/// # Errors
///
/// The ways do not agree on what the lines say.
pub fn parsing() -> Result<(f64, f64), Failure> {
    let lines: Vec<Vec<u8>> = (0..LINES).map(line).collect();
    let (mut value, mut envelope, mut answer) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut texts = [0; 2];
    for _ in 0..ROUNDS {
        value = value.min(time(|| texts[0] = lines.iter().filter_map(|l| by_value(l)).sum()));
        envelope = envelope.min(time(|| {
            black_box(lines.iter().filter_map(|line| measured::envelope(line)).sum::<usize>());
        }));
        answer = answer.min(time(|| {
            texts[1] = lines.iter().filter_map(|line| measured::answer(line)).sum();
        }));
    }
    if texts[0] != texts[1] || texts[0] == 0 {
        return Err(format!("the texts differ: {texts:?}").into());
    }
    let times = |ours: Duration| value.as_secs_f64() / ours.as_secs_f64();
    Ok((times(envelope), times(answer)))
}

fn line(number: usize) -> Vec<u8> {
    let text = format!("{number} {}", CODE.repeat(REPEATED));
    let message = json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": "a-model",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 100, "output_tokens": 700},
    });
    let id = format!("0123456789abcdef-{number:06}");
    let line = json!({"custom_id": id, "result": {"type": "succeeded", "message": message}});
    line.to_string().into_bytes()
}

/// The straight way.
fn by_value(line: &[u8]) -> Option<usize> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let result = &value["result"];
    black_box((value["custom_id"].as_str()?, result["type"].as_str()?));
    Some(result["message"]["content"][0]["text"].as_str()?.len())
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Returns how often the peak memory of a process with a batch of 256 MB each way, above what it
/// takes when idle, fits into 48 MiB; `None` where the system does not tell.
///
/// # Errors
///
/// The process failed.
pub fn memory_budget(program: &Path) -> Result<Option<f64>, Failure> {
    if peak_kib().is_none() {
        return Ok(None);
    }
    let simulator = Simulator::builder()
        .limits(usize::MAX, usize::MAX)
        .model(|question| Said::text(question.text.clone()))
        .start()?;
    simulator.server().forget_bodies();
    let output = Command::new(program).arg(simulator.url()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let kib: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Some(BUDGET_KIB / kib))
}

/// Runs the large batch at `url`; returns the peak of this process above its idle state, in KiB.
///
/// # Errors
///
/// Not every request was answered with what it asked.
pub fn large_batch(url: &str) -> Result<u64, Failure> {
    let dir = tempfile::tempdir()?;
    let provider = Anthropic::builder("key").base_url(url).build()?;
    let llm = LlmBatch::builder(Arc::new(provider))
        .state(dir.path().join("state"))
        .poll_interval(Duration::from_millis(100))
        .build()?;
    let idle = peak_kib().ok_or("the system does not tell the memory of a process")?;
    let text = CODE.repeat(REPEATED);
    let ask = |n: usize| Request::prompt(n.to_string(), "m", format!("{n} {text}"));
    let mut right = 0;
    llm.run((0..REQUESTS).map(ask), |id, outcome| {
        let text = outcome.ok().and_then(|answer| answer.text);
        let is_its_own = |text: String| text.split(' ').next() == Some(id);
        right += usize::from(text.is_some_and(is_its_own));
    })?;
    if right != REQUESTS {
        return Err(format!("{right} of {REQUESTS} have their answer").into());
    }
    Ok(peak_kib().unwrap_or(0).saturating_sub(idle))
}

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
