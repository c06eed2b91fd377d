//! Prompts of text and plain paths have a short way of their own; it says what the long one says.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use prompt_templates::{Context, Error, Prompts};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Renders a text as it is, and with a tag behind it that the short way does not know.
fn both(text: &str, context: &Context) -> [Result<String, Error>; 2] {
    let prompts = Prompts::builder().build().unwrap();
    // The letter keeps a brace at the end from joining the tag.
    let short = format!("{text}x");
    let long = format!("{short}{{% if true %}}{{% endif %}}");
    [short, long].map(|text| prompts.compile_and_render("t", &text, context))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}%#\"\\\\ \u{e9}\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_says_what_the_long_one_says(
        a in value(),
        parts in prop::collection::vec(prop::sample::select(vec![
            "{{ a }}", "{{a.b}}", "{{ .a.a }}", "{{ a.0 }}", "{{ a.b.1 }}", "{{ a.a.b }}", "text ", "}}", "{",
            "{# c #}", "{% raw %}{{{% endraw %}", "{{ 1 }}", "{{ true }}", "{{ \"s\" }}", "{{ a?.b }}", "\n",
        ]), 0..8),
    ) {
        let context = Context::from_serialize(&json!({"a": a})).unwrap();
        match both(&parts.concat(), &context) {
            [Ok(short), Ok(long)] => prop_assert_eq!(short, long),
            [Err(short), Err(long)] => {
                prop_assert_eq!(short.kind(), long.kind());
                prop_assert_eq!((short.line(), short.column()), (long.line(), long.column()));
                prop_assert_eq!(short.message(), long.message());
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn the_short_way_keeps_the_bound_and_gives_the_error_of_the_long_one() {
    let prompts = Prompts::builder().max_output_bytes(5).build().unwrap();
    let mut context = Context::new();
    let context = context.set("a", "12345").unwrap();
    assert_eq!(prompts.compile_and_render("t", "{{ a }}", context).unwrap(), "12345");
    let error = prompts.compile_and_render("t", "{{ a }}6", context).unwrap_err();
    assert_eq!(error.kind(), prompt_templates::ErrorKind::Output);
    let error = prompts.compile_and_render("t", "x\n{{ b }}", context).unwrap_err();
    assert_eq!((error.name(), error.line(), error.column()), (Some("b"), Some(2), Some(4)));
}
