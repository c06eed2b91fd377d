//! Prompts that have to fit a budget of tokens.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use prompt_templates::{Context, ErrorKind, Prompts, Unit, estimate_tokens};
use serde_json::json;

const TEXT: &str = "---\ndrop_first: [history, lessons, task.log]\n---\n[[system]]\nBe strict.\n\
    {% for lesson in lessons %}- {{ lesson }}\n{% endfor %}\n[[history]]\n[[user]]\n{{ task.log }}\n{{ task.ask }}";

fn data() -> Context {
    let history: Vec<_> = (0..10)
        .map(|n| json!({"role": (["user", "assistant"][n % 2]), "content": format!("message {n}")}))
        .collect();
    let lessons: Vec<_> = (0..10).map(|n| format!("lesson number {n}")).collect();
    let log = (0..10).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let task = json!({"log": log, "ask": "Why?"});
    Context::from_serialize(&json!({"history": history, "lessons": lessons, "task": task})).unwrap()
}

fn tokens(messages: &[prompt_templates::Message]) -> usize {
    messages.iter().map(|message| estimate_tokens(&message.content) + 4).sum()
}

#[test]
fn what_fits_is_left_as_it_is() {
    let prompts = Prompts::builder().build().unwrap();
    let prompt = prompts.compile("t", TEXT).unwrap();
    let fitted = prompt.fit(&data(), 10_000).unwrap();
    assert_eq!(fitted.messages, prompt.messages(&data()).unwrap());
    assert_eq!((fitted.tokens, fitted.dropped.len()), (fitted.tokens_before, 0));
    assert_eq!(fitted.tokens, tokens(&fitted.messages));
}

#[test]
fn every_budget_is_kept_and_the_report_says_what_went() {
    let prompts = Prompts::builder().build().unwrap();
    let prompt = prompts.compile("t", TEXT).unwrap();
    let whole = prompt.fit(&data(), 10_000).unwrap().tokens;
    let mut refused = 0;
    for budget in 0..=whole {
        let fitted = match prompt.fit(&data(), budget) {
            Ok(fitted) => fitted,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Budget);
                refused += 1;
                continue;
            }
        };
        assert!(fitted.tokens <= budget, "{budget}: {fitted:?}");
        assert_eq!(fitted.tokens, tokens(&fitted.messages));
        // Nothing is touched before what is in front of it is empty.
        for pair in fitted.dropped.windows(2) {
            assert_eq!(pair[0].kept, 0, "{budget}: {:?}", fitted.dropped);
        }
        let kept =
            |name| fitted.dropped.iter().find(|gone| gone.name == name).map(|gone| gone.kept);
        let roles: Vec<_> = fitted.messages.iter().map(|message| message.role.as_str()).collect();
        let history = &roles[1..roles.len() - 1];
        assert_eq!(history.len(), kept("history").unwrap_or(10));
        assert!(history.first().is_none_or(|role| *role == "user"), "{budget}: {roles:?}");
        let system = fitted.messages[0].content.matches("lesson number").count();
        assert_eq!(system, kept("lessons").unwrap_or(10));
        let last = fitted.messages.last().unwrap();
        assert_eq!(last.content.matches("line ").count(), kept("task.log").unwrap_or(10));
        if let Some(kept @ 1..) = kept("task.log") {
            let more = 10 - kept;
            assert!(last.content.contains(&format!("[{more} more line")), "{}", last.content);
        }
        assert!(last.content.ends_with("Why?"), "what is not named stays");
    }
    assert!(refused > 0 && refused < whole, "{refused} of {whole}");
}

#[test]
fn the_oldest_messages_and_the_last_lines_go() {
    let prompts = Prompts::builder().build().unwrap();
    let prompt = prompts.compile("t", TEXT).unwrap();
    let whole = prompt.fit(&data(), 10_000).unwrap().tokens;
    let fitted = prompt.fit(&data(), whole - 1).unwrap();
    assert_eq!(fitted.messages[1].content, "message 2");
    let [gone] = &fitted.dropped[..] else { panic!("{:?}", fitted.dropped) };
    assert_eq!((gone.dropped, gone.kept, gone.unit), (2, 8, Unit::Messages));
}

#[test]
fn a_fit_counts_as_one_render() {
    let prompts = Prompts::builder().build().unwrap();
    prompts.compile("t", TEXT).unwrap().fit(&data(), 60).unwrap();
    assert_eq!(prompts.stats().renders, 1);
}

#[test]
fn a_cut_text_keeps_its_budget_whatever_that_is() {
    let text = (0..50).map(|n| format!("{n}: a line of the log\n")).collect::<Vec<_>>().concat();
    let prompts = Prompts::builder().build().unwrap();
    let prompt = prompts.compile("t", "{{ text | truncate_tokens: max }}").unwrap();
    let mut before = 0;
    for max in 0..=estimate_tokens(&text) {
        let data = json!({"text": text, "max": max});
        let cut = prompt.render(&Context::from_serialize(&data).unwrap()).unwrap();
        assert!(estimate_tokens(&cut) <= max, "{max}: {cut}");
        assert!(cut.len() >= before || cut.starts_with(&text), "{max}: more tokens, less text");
        before = cut.len().saturating_sub(20);
    }
    let data = json!({"text": text, "max": -1});
    let error = prompt.render(&Context::from_serialize(&data).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
}
