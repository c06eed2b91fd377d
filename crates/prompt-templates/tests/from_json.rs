//! `Context::from_json`: JSON is data as it is written.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use prompt_templates::{Context, ErrorKind, Prompts};
use proptest::prelude::*;
use serde_json::Value;

fn render(text: &str, context: &Context) -> String {
    let prompts = Prompts::builder().build().unwrap();
    prompts.compile_and_render("t", text, context).unwrap()
}

#[test]
fn from_json_keeps_integers_of_up_to_128_bits() {
    for n in [
        i64::MIN.to_string(),
        (i128::from(i64::MIN) - 1).to_string(),
        i64::MAX.to_string(),
        (i128::from(i64::MAX) + 1).to_string(),
        u64::MAX.to_string(),
        (u128::from(u64::MAX) + 1).to_string(),
        i128::MIN.to_string(),
        i128::MAX.to_string(),
        u128::MAX.to_string(),
    ] {
        let context = Context::from_json(&format!("{{\"n\": {n}, \"l\": [{n}]}}")).unwrap();
        assert_eq!(render("{{ n }} {{ l.0 }} {{ l | json }}", &context), format!("{n} {n} [{n}]"));
    }
    // One more at either end is an error, and no float.
    for n in ["340282366920938463463374607431768211456", "-170141183460469231731687303715884105729"]
    {
        let error = Context::from_json(&format!("{{\"n\": {n}}}")).unwrap_err();
        assert_eq!(
            (error.kind(), error.line(), error.column()),
            (ErrorKind::Data, Some(1), Some(7))
        );
        assert!(error.message().contains("more than 128 bits"), "{error}");
        assert_eq!(error.help_text(), Some("give it as text, in quotes"));
    }
}

#[test]
fn from_json_tells_a_key_that_stands_twice_with_its_place() {
    for (text, name, line, column) in [
        ("{\"a\": 1, \"a\": 1}", "a", 1, 10),
        ("{\n  \"a\": [{\"\u{e9}\": 1, \"b\": 2,\n \"\\u00e9\": 3}]}", "\u{e9}", 3, 2),
        ("{\"a\": {\"a\": {\"a\": 1, \"a\": 2}}}", "a", 1, 22),
        ("{\"\": 1, \"\": 2}", "", 1, 9),
    ] {
        let error = Context::from_json(text).unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Data, Some(name)), "{error}");
        assert_eq!((error.line(), error.column()), (Some(line), Some(column)), "{error:#}");
    }
    // The same key in two objects is none.
    assert!(Context::from_json("{\"a\": {\"a\": 1}, \"b\": [{\"a\": 1}, {\"a\": 1}]}").is_ok());
}

#[test]
fn from_json_reads_128_levels_and_tells_where_there_are_more() {
    let nested =
        |levels: usize| format!("{{\"a\": {}1{}}}", "[".repeat(levels), "]".repeat(levels));
    let context = Context::from_json(&nested(127)).unwrap();
    assert_eq!(
        render("{{ a | json }}", &context),
        format!("{}1{}", "[".repeat(127), "]".repeat(127))
    );
    for levels in [128, 1_000, 1_000_000] {
        let error = Context::from_json(&nested(levels)).unwrap_err();
        assert_eq!((error.kind(), error.line()), (ErrorKind::Data, Some(1)));
        assert!(
            error.message().contains("deep") || error.message().contains("recursion"),
            "{error}"
        );
    }
}

/// The time did not grow with the length alone but with the depth too: seconds for these, and for deeper
/// texts a minute.
#[test]
fn from_json_reads_8_mib_that_nest_deep_in_two_passes() {
    let (items, item) = (8 << 10, format!("\"{}\",", "x".repeat(1021)));
    let (open, close) = ("[".repeat(126), "]".repeat(126));
    let text = format!("{{\"a\": {open}{}0{close}}}", item.repeat(items));
    assert!(text.len() > 8 << 20);
    let context = Context::from_json(&text).unwrap();
    let path = format!("a{}", ".0".repeat(125));
    assert_eq!(render(&format!("{{{{ {path} | len }}}}"), &context), (items + 1).to_string());
    let mut text = text;
    text.truncate(text.len() - 1);
    let error = Context::from_json(&text).unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(1), Some(text.len() + 1)));
}

#[test]
fn from_json_takes_data_as_it_is_written() {
    let integers = "[0, -1, 9223372036854775808, -9223372036854775809, \
                    340282366920938463463374607431768211455, -170141183460469231731687303715884105728]";
    let text = format!(
        " {{\"i\": {integers}, \"f\": [1.0, 0.1, 1e2, -0, 5E-324], \"s\": \"\\u00e9\\n\\\"\", \r\n\
         \"\\u0061\": null, \"n\": [[], {{}}, [true, false]]}}\n"
    );
    let context = Context::from_json(&text).unwrap();
    assert_eq!(context.names().collect::<Vec<_>>(), ["a", "f", "i", "n", "s"]);
    assert_eq!(render("{{ i | json }}", &context), integers.replace(' ', ""));
    assert_eq!(render("{{ f | join: \" \" }}", &context), "1.0 0.1 100.0 -0.0 5e-324");
    assert_eq!(
        render("{{ s }}{{ ?.a }}{{ n | json }}", &context),
        "\u{e9}\n\"[[],{},[true,false]]"
    );
    // What others read comes to the same.
    let plain = "{\"a\": [1, -2.5, \"x\", null, {\"b\": [true]}]}";
    let value: Value = serde_json::from_str(plain).unwrap();
    assert_eq!(Context::from_json(plain).unwrap(), Context::from_serialize(&value).unwrap());
}

#[test]
fn from_json_tells_what_is_no_data_with_its_place() {
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(2_000), "]".repeat(2_000));
    for (text, line, column, message) in [
        ("", 1, 1, "broken JSON: EOF"),
        ("\u{feff}", 1, 2, "broken JSON: EOF"),
        ("{\"a\": 1", 1, 8, "broken JSON: EOF"),
        ("{\"\u{4e2d}\": 1,\n\u{feff}\"b\": 2}", 2, 1, "broken JSON: key must be a string"),
        ("{\"a\":\n[1,\n 01]}", 3, 3, "broken JSON: invalid number"),
        ("{\"a\": [1, \"\u{4e2d}\\ud800\"]}", 1, 19, "broken JSON: unexpected end of hex escape"),
        ("{\"a\": \"\t\"}", 1, 7, "broken JSON: control character"),
        ("{\"a\": 1} x", 1, 10, "broken JSON: trailing characters"),
        ("{\"a\": NaN}", 1, 7, "broken JSON: expected value"),
        ("[{\"a\": 1}]", 1, 1, "the data is a list, not a map"),
        ("\n  340282366920938463463374607431768211455", 2, 3, "the data is an integer, not a map"),
        ("{\"a\":\r\n {\"b\": 1, \"\\u0062\": 1}}", 2, 11, "the key 'b' stands twice"),
        ("{\"a\": -340282366920938463463374607431768211455}", 1, 7, "more than 128 bits"),
        ("{\"a\": -1e400}", 1, 7, "larger than a float of 64 bits"),
        (&deep, 1, 7 + 127, "nests deeper than 128"),
    ] {
        let error = Context::from_json(text).unwrap_err();
        let text = &text[..text.len().min(60)];
        assert_eq!(error.kind(), ErrorKind::Data);
        assert_eq!((error.line(), error.column()), (Some(line), Some(column)), "{text}: {error}");
        assert!(error.message().contains(message), "{text}: {error}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,6}|[\"\\\\\0-\u{20}\u{7f}\u{2028}\u{1f600}]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"\\\\\u{e9}\0]{0,2}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_json_reads_what_serde_json_writes(
        entries in prop::collection::btree_map("[a-d]", value(), 0..4),
        is_pretty in any::<bool>(),
    ) {
        let value: Value = entries.into_iter().collect();
        let text = if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let found = Context::from_json(&text.unwrap()).unwrap();
        prop_assert_eq!(found, Context::from_serialize(&value).unwrap());
    }

    /// What is no JSON to `serde_json` is none here, and what is one is the same data.
    #[test]
    fn from_json_takes_what_serde_json_takes(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"\\u0061\"", "1", "-1", "0.5", "-0", "01", "1.", "1e2",
            "null", "true", "fals", " ", "\n", "\t", "\u{a0}", "\"\\x\"", "\"", "{\"c\": 1}", "\"d\": [1, {}]", "\"e\":2,",
        ]), 0..9),
    ) {
        let text = format!("{{{}}}", parts.concat());
        match (serde_json::from_str::<Value>(&text), Context::from_json(&text)) {
            (Ok(value), Ok(found)) => prop_assert_eq!(found, Context::from_serialize(&value).unwrap()),
            (Ok(_), Err(error)) => prop_assert!(error.message().contains("stands twice"), "{}: {}", text, error),
            (Err(_), Err(error)) => {
                prop_assert_eq!(error.kind(), ErrorKind::Data);
                prop_assert!(error.line().is_some() && error.column().is_some(), "{}: {}", text, error);
            }
            (Err(error), Ok(_)) => prop_assert!(false, "{text}: {error}"),
        }
    }
}
