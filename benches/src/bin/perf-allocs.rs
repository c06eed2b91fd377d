//! How often fixed scenarios ask for memory.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::convert::Infallible;
use std::error::Error;

use batch_core::{Batcher, batch_fn};
use benches::alloc::{Counting, count};
use benches::prompts;
use lessons_index::{Lesson, LessonsIndex, Options};
use prompt_templates::{Context, Prompts};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many items, look-ups or records one scenario goes through.
const ITEMS: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    submit_to_resolve()?;
    render()?;
    large_prompt()?;
    lessons()?;
    Ok(())
}

fn print(name: &str, allocations: u64) {
    println!("{name}\t{allocations}");
}

/// Items go in one by one and come out in batches of 100, on the thread of the caller.
fn submit_to_resolve() -> Result<(), Box<dyn Error>> {
    let double = |numbers: &[u64]| -> Vec<Result<u64, Infallible>> {
        numbers.iter().map(|number| Ok(number * 2)).collect()
    };
    let batcher = Batcher::builder(batch_fn(double)).inline().max_batch_items(100).build()?;
    let round = || -> Result<u64, Box<dyn Error>> {
        let outcomes = batcher.submit_all(0..ITEMS)?.wait();
        outcomes.into_iter().try_fold(0, |sum, outcome| Ok(sum + outcome?))
    };
    // The first rounds fill what is kept for the next ones.
    for _ in 0..3 {
        round()?;
    }
    let (allocations, sum) = count(round);
    assert_eq!(sum?, ITEMS * (ITEMS - 1));
    print("batch_core_submit_to_resolve_1000_items", allocations);
    Ok(())
}

fn render() -> Result<(), Box<dyn Error>> {
    let prompts = Prompts::builder().build()?;
    let prompt = prompts.compile(
        "review",
        "Review {{ file }} for {{ name }}.\n{% for rule in rules %}- {{ rule }}\n{% endfor %}",
    )?;
    let data = serde_json::json!({
        "file": "src/main.rs",
        "name": "the team",
        "rules": ["no panics", "small functions", "tests for faults"],
    });
    let context = Context::from_serialize(&data)?;
    let expected = "Review src/main.rs for the team.\n\
                    - no panics\n- small functions\n- tests for faults\n";
    prompt.render(&context)?;
    let (allocations, text) = count(|| prompt.render(&context));
    assert_eq!(text?, expected);
    print("prompt_render", allocations);
    let (allocations, context) = count(|| Context::from_serialize(&data));
    assert_eq!(prompt.render(&context?)?, expected);
    print("prompt_context", allocations);
    Ok(())
}

/// A prompt of 4 KB: compiled anew, rendered into memory that is there, and what is never rendered.
fn large_prompt() -> Result<(), Box<dyn Error>> {
    let store = Prompts::builder().build()?;
    let texts = [prompts::large(), format!("{}\n", prompts::large())];
    for text in &texts {
        store.compile("large", text)?;
    }
    let (allocations, prompt) = count(|| store.compile("large", &texts[0]));
    assert_eq!(prompt?.version(), 3);
    print("prompt_compile_4k", allocations);

    let context = Context::from_serialize(&prompts::data())?;
    let mut text = String::new();
    store.render_into("large", &context, &mut text)?;
    let (allocations, result) = count(|| store.render_into("large", &context, &mut text));
    result?;
    print("prompt_render_4k_into_kept_memory", allocations);

    // A text without tags is copied: what is left is the look-up and the counts.
    let fixed = store.compile("fixed", "[[system]]\nYou review changes.\n")?;
    let (allocations, result) = count(|| store.render_into("fixed", &context, &mut text));
    result?;
    print("prompt_look_up_and_stats", allocations);

    let mut messages = fixed.messages(&context)?;
    let (allocations, result) = count(|| fixed.messages_into(&context, &mut messages));
    result?;
    assert_eq!(messages[0].content, "You review changes.");
    print("prompt_message_without_tags", allocations);
    Ok(())
}

fn lessons() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
    let lessons = (0..ITEMS)
        .map(|n| {
            Lesson::builder(format!("lesson-{n}"))
                .task_type(["build", "test"][usize::from(n % 2 == 0)])
                .failure_msg(format!("task {n} failed: out of memory"))
                .resolution("use fewer jobs")
                .build()
        })
        .collect::<Result<Vec<_>, _>>()?;
    index.add_all(lessons).into_iter().collect::<Result<Vec<_>, _>>()?;
    // Whether what was added has been merged yet is left to a thread in the background.
    index.reload()?;
    let snapshot = index.snapshot();
    let ids: Vec<String> = (0..ITEMS).map(|n| format!("lesson-{n}")).collect();

    let (allocations, found) =
        count(|| ids.iter().filter(|id| snapshot.find(id).is_some()).count());
    assert_eq!(found, ids.len());
    print("lessons_get_1000_ids", allocations);

    let (allocations, found) =
        count(|| snapshot.query().task_type("build").limit(10).iter().count());
    assert_eq!(found, 10);
    print("lessons_query_newest_10_of_a_task_type", allocations);
    Ok(())
}
