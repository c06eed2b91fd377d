//! Templates and what comes of them: `tests/cases/*.md` against reviewed snapshots.
//!
//! A case is cut by lines `=== KIND`: `partial NAME` (any number), `template`, `data` (JSON), and for
//! messages instead of text, `messages`. The line break before such a line is not part of the section.

use std::fmt::Write;
use std::path::Path;

use prompt_templates::{Context, Error, Prompts};

#[derive(Default)]
struct Case<'c> {
    partials: Vec<(&'c str, &'c str)>,
    template: &'c str,
    data: &'c str,
    is_messages: bool,
}

fn parse(text: &str) -> Case<'_> {
    let mut case = Case { data: "{}", ..Case::default() };
    for section in text.split("\n=== ").map(|section| section.trim_start_matches("=== ")) {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        match head.split_once(' ').unwrap_or((head, "")) {
            ("partial", name) => case.partials.push((name, body)),
            ("template", _) => case.template = body,
            ("data", _) => case.data = body,
            ("messages", _) => case.is_messages = true,
            other => panic!("unknown section {other:?}"),
        }
    }
    case
}

fn run(case: &Case<'_>) -> Result<String, Error> {
    let prompts = Prompts::builder().build()?;
    for (name, text) in &case.partials {
        prompts.compile(name, text)?;
    }
    let prompt = prompts.compile("case", case.template)?;
    let data: serde_json::Value = serde_json::from_str(case.data).expect("the data is JSON");
    let context = Context::from_serialize(&data)?;
    if !case.is_messages {
        return prompt.render(&context);
    }
    let mut text = String::new();
    for message in prompt.messages(&context)? {
        writeln!(text, "[{}] {:?}", message.role, message.content).expect("a string takes it all");
    }
    Ok(text)
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("the case can be read");
    let is_error = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("err_"));
    let shown = match run(&parse(&text)) {
        Ok(text) if !is_error => format!("{text}<end>"),
        Err(error) if is_error => format!("{:?}\n{error}\n\n{error:#}", error.kind()),
        other => panic!("{}: {other:?}", path.display()),
    };
    insta::assert_snapshot!(shown);
}

#[test]
fn every_case_gives_what_was_reviewed() {
    insta::glob!("cases/*.md", check);
}
