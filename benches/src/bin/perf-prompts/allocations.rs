//! Allocations that a render makes, as a share of what it may make.

use benches::alloc::count;
use prompt_templates::{Context, Prompts};

use crate::{Fallible, Figure, peers};

pub fn measure() -> Fallible<Vec<Figure>> {
    let prompts = Prompts::builder().build()?;
    prompts.compile("large", &peers::large())?;
    prompts.compile("static", "[[system]]\nYou review changes.\n")?;
    let context = Context::from_serialize(&peers::data())?;
    let mut text = String::new();
    prompts.render_into("large", &context, &mut text)?;
    let (into_kept, result) = count(|| prompts.render_into("large", &context, &mut text));
    result?;
    // A text without tags is copied: what is left is the lookup and the counts.
    prompts.render_into("static", &context, &mut text)?;
    let (lookup, result) = count(|| prompts.render_into("static", &context, &mut text));
    result?;
    let prompt = prompts.get("static").ok_or("it was compiled")?;
    let mut messages = prompt.messages(&context)?;
    let (shared, result) = count(|| prompt.messages_into(&context, &mut messages));
    result?;
    assert_eq!(messages[0].content, "You review changes.");
    let figure = |name, count: u64, budget: f64| {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let count = count as f64;
        // None at all counts as a thousandth of one.
        Figure { name, ratio: (count / budget).max(0.001) }
    };
    Ok(vec![
        figure("prompts_allocations_render_into_kept_memory_of_4", into_kept, 4.0),
        figure("prompts_allocations_lookup_and_stats_of_none", lookup, 1.0),
        figure("prompts_allocations_static_message_of_none", shared, 1.0),
    ])
}
