//! What the benchmarks of the toy in Go measured, done here for real.
//!
//! `cargo bench -p benches` runs them. They are for looking, not for gates: wall-clock figures of a
//! busy machine tell little on their own.

use std::convert::Infallible;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use batch_core::{Batcher, batch_fn};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lessons_index::{Fsync, Lesson, LessonsIndex, Options};
use llm_batch::providers::Offline;
use llm_batch::{LlmBatch, Request};
use prompt_templates::{Context, Prompts};
use task_dispatch::{CancelToken, Dispatcher, Task};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// More than any benchmark takes.
const NEVER: Duration = Duration::from_hours(1);

/// `BenchmarkEnqueue` and `BenchmarkFlush`: in Go nothing is sent; here each item gets its result.
fn engine(c: &mut Criterion) -> Result {
    let echo = |items: &[u64]| items.iter().map(|item| Ok::<_, Infallible>(*item)).collect();
    let mut group = c.benchmark_group("engine");
    group.throughput(Throughput::Elements(100));

    let batcher = Batcher::builder(batch_fn(echo)).max_batch_items(100).build()?;
    group.bench_function("enqueue_100_and_wait", |b| {
        b.iter(|| batcher.submit_all(0..100).map(batch_core::TicketSet::wait));
    });
    let lingering = Batcher::builder(batch_fn(echo)).linger(NEVER).build()?;
    group.bench_function("enqueue_5_and_flush", |b| {
        b.iter(|| {
            let tickets = lingering.submit_all(0..5);
            (lingering.flush().wait(), tickets)
        });
    });
    // The price of a channel alone, without batches and results.
    let (sender, receiver) = crossbeam_channel::bounded::<u64>(100);
    group.bench_function("channel_send_and_receive_100", |b| {
        b.iter(|| {
            let sent = (0..100).try_for_each(|item| sender.send(item));
            (sent, receiver.try_iter().map(black_box).sum::<u64>())
        });
    });
    group.finish();
    Ok(())
}

/// `BenchmarkLLMEnqueue` and `BenchmarkLLMFlush`: ten requests, one durable submission, ten answers.
fn llm(c: &mut Criterion) -> Result {
    let folder = tempfile::tempdir()?;
    let answers = folder.path().join("answers");
    fs::create_dir(&answers)?;
    for id in 0..10 {
        fs::write(answers.join(format!("{id}.txt")), "done")?;
    }
    let llm = LlmBatch::builder(Arc::new(Offline::open(&answers)?))
        .state(folder.path().join("state"))
        .max_items(10)
        .linger(NEVER)
        .build()?;
    c.bench_function("llm/enqueue_10_and_flush", |b| {
        b.iter(|| {
            let request = |id: u32| Request::prompt(id.to_string(), "model", "work");
            let tickets: Vec<_> = (0..10).map(|id| llm.submit(request(id))).collect();
            (llm.flush().wait(), tickets)
        });
    });
    Ok(())
}

/// `BenchmarkAddLesson`, `BenchmarkFindByTaskType` and `BenchmarkFindByActivityType`.
fn lessons(c: &mut Criterion) -> Result {
    let folder = tempfile::tempdir()?;
    let lesson = |id: u32| {
        let lesson = Lesson::builder(format!("lesson-{id}"))
            .task_type(format!("task-{}", id % 10))
            .activity_type(format!("activity-{}", id % 5))
            .build();
        lesson.map_err(|error| error.to_string())
    };
    let index = LessonsIndex::open(folder.path().join("lessons.jsonl"), Options::default())?;
    let thousand = (0..1_000).map(lesson).collect::<std::result::Result<Vec<_>, _>>()?;
    for added in index.add_all(thousand) {
        added?;
    }
    let mut group = c.benchmark_group("lessons");
    group.bench_function("find_by_task_type_in_1000", |b| {
        b.iter(|| index.snapshot().query().task_type("task-3").run());
    });
    group.bench_function("find_by_activity_type_in_1000", |b| {
        b.iter(|| index.snapshot().query().activity_type("activity-3").run());
    });
    let options = Options::default().with_fsync(Fsync::Never);
    let growing = LessonsIndex::open(folder.path().join("growing.jsonl"), options)?;
    let mut id = 0;
    group.bench_function("add_without_fsync", |b| {
        b.iter(|| {
            id += 1;
            lesson(id).map(|lesson| growing.add(lesson))
        });
    });
    group.finish();
    Ok(())
}

/// `BenchmarkRender` and `BenchmarkCompileAndRender`.
fn prompts(c: &mut Criterion) -> Result {
    let prompts = Prompts::builder().capacity(50).build()?;
    let text = "Hello {{ name }}, welcome to {{ place }}";
    let prompt = prompts.compile("greeting", text)?;
    let mut context = Context::new();
    context.set("name", &"Alice")?.set("place", &"the yard")?;
    let mut group = c.benchmark_group("prompts");
    group.bench_function("render", |b| b.iter(|| prompt.render(&context)));
    group.bench_function("compile_and_render_known_text", |b| {
        b.iter(|| prompts.compile_and_render("greeting", text, &context));
    });
    group.finish();
    Ok(())
}

/// `BenchmarkParallelDispatch` and `BenchmarkDispatchSingleTask`.
fn dispatch(c: &mut Criterion) {
    let mut group = c.benchmark_group("dispatch");
    for (name, workers, tasks) in [("parallel_100_tasks", 10, 100), ("single_task", 1, 1)] {
        let dispatcher = Dispatcher::builder().max_concurrency(workers).build();
        group.bench_function(name, |b| {
            b.iter(|| {
                let task = |id: u32| {
                    Task::new(id.to_string(), move |_: &CancelToken| Ok::<_, Infallible>(id))
                };
                dispatcher.run((0..tasks).map(task).collect(), &CancelToken::new())
            });
        });
    }
    group.finish();
}

#[expect(clippy::expect_used, reason = "a benchmark that cannot be set up has to stop")]
fn all(c: &mut Criterion) {
    engine(c).expect("the engine starts");
    llm(c).expect("recorded answers can be written and read");
    lessons(c).expect("an index can be written");
    prompts(c).expect("the template is right");
    dispatch(c);
}

criterion_group! {
    name = seed;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(seed);
