//! Renders of a large and of a small prompt.

use std::hint::black_box;

use benches::prompts;
use prompt_templates::{Context, Prompts};

use crate::rounds::interleaved;
use crate::{Fallible, Figure};

/// Three variables, as most prompts of a pipeline have.
const SMALL: &str = "Review {{ file }} for {{ name }}, attempt {{ attempt }}.\n";

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let mut figures = large()?;
    figures.extend(small()?);
    Ok(figures)
}

fn large() -> Fallible<Vec<Figure>> {
    let (text, data) = (prompts::large(), prompts::data());
    let store = Prompts::builder().build()?;
    store.compile("large", &text)?;
    let context = Context::from_serialize(&data)?;
    let expected = store.render("large", &context)?;

    let engine = upon::Engine::new();
    let template = engine.compile(text.as_str())?;
    let value = upon::to_value(&data)?;
    assert_eq!(template.render_from(&engine, &value).to_string()?, expected);

    let mut jinja = minijinja::Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().keep_trailing_newline(true).build()?;
    jinja.set_syntax(syntax);
    jinja.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    jinja.add_template_owned("large", text.clone())?;
    let jinja_template = jinja.get_template("large")?;
    let jinja_value = minijinja::Value::from(minijinja::value::Serde(&data));
    assert_eq!(jinja_template.render(&jinja_value)?, expected);

    let mut bars = handlebars::Handlebars::new();
    bars.register_escape_fn(handlebars::no_escape);
    bars.set_strict_mode(true);
    bars.register_template_string("large", prompts::large_handlebars())?;
    let bars_context = handlebars::Context::wraps(&data)?;
    assert_eq!(bars.render_with_context("large", &bars_context)?, expected);

    // The same with a function, and with a list, which leaves all of it to `upon`.
    let functions = format!("{text}{{{{ lessons | len }}}}");
    store.compile("functions", &functions)?;
    let mut with_len = upon::Engine::new();
    with_len.add_function("len", |list: &[upon::Value]| i64::try_from(list.len()).unwrap_or(0));
    let with_functions = with_len.compile(functions.as_str())?;
    let said = with_functions.render_from(&with_len, &value).to_string()?;
    assert_eq!(store.render("functions", &context)?, said);

    let lists = format!("{text}{{{{ [lessons] | len }}}}");
    store.compile("lists", &lists)?;
    let with_lists = with_len.compile(lists.as_str())?;
    let said = with_lists.render_from(&with_len, &value).to_string()?;
    assert_eq!(store.render("lists", &context)?, said);

    let mut buffer = String::new();
    let [
        ours,
        reused,
        raw,
        minijinja,
        handlebars,
        unchanged,
        ours_functions,
        raw_functions,
        ours_lists,
        raw_lists,
    ] = interleaved(
        40,
        [
            &mut || drop(black_box(store.render("large", &context))),
            &mut || drop(black_box(store.render_into("large", &context, &mut buffer))),
            &mut || drop(black_box(template.render_from(&engine, &value).to_string())),
            &mut || drop(black_box(jinja_template.render(&jinja_value))),
            &mut || drop(black_box(bars.render_with_context("large", &bars_context))),
            &mut || drop(black_box(store.compile_and_render("large", &text, &context))),
            &mut || drop(black_box(store.render("functions", &context))),
            &mut || drop(black_box(with_functions.render_from(&with_len, &value).to_string())),
            &mut || drop(black_box(store.render("lists", &context))),
            &mut || drop(black_box(with_lists.render_from(&with_len, &value).to_string())),
        ],
    );
    let figure = |name, ratio| Figure { name, ratio };
    Ok(vec![
        figure("prompts_render_4k_vs_upon", ours / raw),
        figure("prompts_render_4k_into_kept_memory_vs_upon", reused / raw),
        figure("prompts_render_4k_with_functions_vs_upon", ours_functions / raw_functions),
        figure("prompts_render_4k_with_lists_vs_upon", ours_lists / raw_lists),
        figure("prompts_render_4k_vs_minijinja", ours / minijinja),
        figure("prompts_render_4k_vs_handlebars", ours / handlebars),
        figure("prompts_compile_and_render_unchanged_vs_render", unchanged / ours),
    ])
}

fn small() -> Fallible<Vec<Figure>> {
    let data = serde_json::json!({"file": "src/lib.rs", "name": "the team", "attempt": 2});
    let store = Prompts::builder().build()?;
    store.compile("small", SMALL)?;
    let context = Context::from_serialize(&data)?;
    let engine = upon::Engine::new();
    let template = engine.compile(SMALL)?;
    let value = upon::to_value(&data)?;
    let expected = template.render_from(&engine, &value).to_string()?;
    assert_eq!(store.render("small", &context)?, expected);

    let [ours, raw] = interleaved(
        2_000,
        [&mut || drop(black_box(store.render("small", &context))), &mut || {
            drop(black_box(template.render_from(&engine, &value).to_string()));
        }],
    );
    Ok(vec![Figure { name: "prompts_render_small_with_stats_vs_upon", ratio: ours / raw }])
}
