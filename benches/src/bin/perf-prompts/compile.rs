//! A compile with our lexer, checks, digest and publication beside one of `upon` alone.

use std::hint::black_box;

use benches::prompts;
use prompt_templates::Prompts;

use crate::rounds::interleaved;
use crate::{Fallible, Figure};

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let simple = prompts::large();
    let functions = format!("{simple}{{{{ lessons | len }}}}");
    // A list is left to `upon`, which compiles the prompt as well.
    let lists = format!("{simple}{{{{ lessons | default: [] }}}}");
    Ok(vec![
        Figure { name: "prompts_compile_vs_upon", ratio: ratio(&simple)? },
        Figure { name: "prompts_compile_with_functions_vs_upon", ratio: ratio(&functions)? },
        Figure { name: "prompts_compile_with_lists_vs_upon", ratio: ratio(&lists)? },
    ])
}

fn ratio(text: &str) -> Fallible<f64> {
    let texts = [text.to_owned(), format!("{text}\n")];
    let store = Prompts::builder().build()?;
    let engine = upon::Engine::new();
    let (mut turn, mut version) = (0, 0);
    let mut ours = || {
        turn += 1;
        let prompt = store.compile("large", &texts[turn % 2]).expect("both compile");
        assert!(prompt.version() > version, "each is a new version");
        version = prompt.version();
        black_box(prompt.digest());
    };
    let mut at = 0;
    let mut raw = || {
        at += 1;
        drop(black_box(engine.compile(texts[at % 2].clone())));
    };
    let [ours, raw] = interleaved(40, [&mut ours, &mut raw]);
    Ok(ours / raw)
}
