//! Simple prompts are run by programs of this crate; they say what `upon` says of the same text.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use prompt_templates::{Context, Error, Prompts};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Partials that read the variables of the blocks that include them.
const PARTIALS: [(&str, &str); 3] = [
    ("_item", "<{{ x }}{% if loop.last %}.{% endif %}>"),
    ("_outer", "({{ a }}{% include \"_item\" %})"),
    ("_each", "{% for y in a %}{{ y }}{% include \"_item\" %}{% endfor %}"),
];

/// Renders a text as it is, and with a tag behind it that only `upon` knows.
fn both(text: &str, context: &Context) -> [Result<String, Error>; 2] {
    let prompts = Prompts::builder().build().unwrap();
    for (name, partial) in PARTIALS {
        prompts.compile(name, partial).unwrap();
    }
    // The letter keeps a brace at the end from joining the tag.
    let short = format!("{text}x");
    let long = format!("{short}{{% if [] %}}{{% endif %}}");
    [short, long].map(|text| prompts.compile_and_render("t", &text, context))
}

fn check_both(text: &str, context: &Context) -> Result<(), TestCaseError> {
    match both(text, context) {
        [Ok(short), Ok(long)] => prop_assert_eq!(short, long, "{}", text),
        [Err(short), Err(long)] => {
            prop_assert_eq!(short.kind(), long.kind(), "{}", text);
            prop_assert_eq!((short.line(), short.column()), (long.line(), long.column()));
            prop_assert_eq!(short.message(), long.message());
        }
        other => prop_assert!(false, "{text}: {other:?}"),
    }
    Ok(())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        Just(Value::from(0)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}%#\"\\\\ \u{e9}\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab01]", inner, 0..3)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

/// Values of which the paths of the blocks below often lead somewhere.
fn usual() -> impl Strategy<Value = Value> {
    let leaf =
        || prop::sample::select(vec![json!("s"), json!(""), json!(7), json!(true), json!(0)]);
    let map = || prop::collection::btree_map("[ab]", leaf(), 0..3);
    prop_oneof![
        prop::collection::vec(leaf(), 0..4).prop_map(Value::from),
        prop::collection::vec(map(), 0..4).prop_map(|maps| json!(maps)),
        map().prop_map(|map| json!(map)),
        leaf(),
    ]
}

fn pieces() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{{ a }}",
        "{{a.b}}",
        "{{ .a.a }}",
        "{{ a.0 }}",
        "{{ a.b.1 }}",
        "{{ a.a.b }}",
        "text ",
        "}}",
        "{",
        "{# c #}",
        "{% raw %}{{{% endraw %}",
        "{{ 1 }}",
        "{{ true }}",
        "{{ \"s\" }}",
        "{{ a?.b }}",
        "\n",
        "{{ ?.c }}",
        "{{ ?.a }}",
        "{{ ?.a?.b?.a }}",
        "{{- a -}}",
        " \n ",
        "{#- c -#}",
        "{{ b }}",
        "{{ x }}",
        "{{ a.99999999999999999999 }}",
    ]);
    prop::collection::vec(pieces, 0..5).prop_map(|pieces| pieces.concat())
}

/// Blocks in blocks, whole.
fn blocks() -> impl Strategy<Value = String> {
    let inner = prop::sample::select(vec![
        "{{ x }}",
        "{{ x.a }}",
        "{{ x.0 }}",
        "{{ loop.index }}",
        "{{ loop.first }}{{ loop.last }}",
        "{{ y }}",
        "{{ loop }}",
        "{{ loop.other }}",
        "{{ loop.index.a }}",
        "{{ a }}",
        "{{ x?.a }}",
        "{{ ?.x }}",
        " t ",
        "{% include \"_item\" %}",
        "{% include \"_outer\" %}",
        "{% include \"_each\" %}",
        "{% include \"_item\" with a %}",
        "{{ loop?.index }}",
        "{{ y?.a }}",
        "\n",
    ]);
    let inner = prop_oneof![3 => inner.prop_map(str::to_owned), 1 => pieces()];
    inner.prop_recursive(3, 12, 3, |inner| {
        let body = prop::collection::vec(inner, 0..3).prop_map(|parts| parts.concat());
        let around = prop::sample::select(vec![
            ("{% for x in a %}", "{% endfor %}"),
            ("{%- for x in a.a -%}", "{%- endfor -%}"),
            ("{% for x, y in a %}", "{% endfor %}"),
            ("{% for x, x in a %}", "{% endfor %}"),
            ("{% for loop in a %}", "{% endfor %}"),
            ("{% for y in x %}", "{% endfor %}"),
            ("{% for x in x %}", "{% endfor %}"),
            ("{% for y in ?.a?.b %}", "{% endfor %}"),
            ("{% if a %}", "{% endif %}"),
            ("{% if not a.b -%}", "{% endif %}"),
            ("{% if ?.c %}1{% else if x %}", "{% else %}2{% endif %}"),
            ("{% if ?.b %}1{% else if not loop.first %}", "{% else if a %}2{% else %}3{% endif %}"),
            ("{% if loop.index %}", "{% else %}0{% endif %}"),
            ("{% if ?.c %}", "{% else %}{% endif %}"),
            ("{% with a as x %}", "{% endwith %}"),
            ("{% with a.a as a %}", "{% endwith %}"),
            ("{% with ?.c as y %}", "{% endwith %}"),
            ("{% with loop.index as y %}", "{% endwith %}"),
            ("{% with x as loop %}", "{% endwith %}"),
        ]);
        (around, body).prop_map(|((open, close), body)| format!("{open}{body}{close}"))
    })
}

/// Expressions with functions, of values that they are for and of others.
fn calls() -> impl Strategy<Value = String> {
    let bases = vec![
        "a",
        "b",
        "x",
        "a.b",
        "a.0",
        ".a",
        "?.c",
        "?.a?.b",
        "1",
        "007",
        "\"s\"",
        "\"\\n\\\"\"",
        "true",
        "false",
        "(?.c)",
        "(a.b)",
        "loop.index",
        "loop.last",
        "99999999999999999999",
        "1.5",
        "-1",
        "[1]",
        "loop",
    ];
    let filters = vec![
        "len",
        "json",
        "quote",
        "fence",
        "fence: \"rust\"",
        "fence: b",
        "indent",
        "indent: 2",
        "indent: a",
        "join: \", \"",
        "join: b",
        "truncate_tokens: 3",
        "truncate_tokens: b",
        "xml: \"doc\"",
        "xml: b",
        "default: b",
        "default: \"none\"",
        "eq: b",
        "contains: \"s\"",
    ];
    let one = vec!["len", "json", "quote", "fence", "indent"];
    let two = vec![
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "contains",
        "default",
        "join",
        "fence",
        "indent",
        "truncate_tokens",
        "xml",
    ];
    prop::sample::select(bases).prop_map(str::to_owned).prop_recursive(3, 8, 2, move |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(filters.clone()))
                .prop_map(|(value, filter)| format!("({value} | {filter})")),
            (prop::sample::select(one.clone()), inner.clone())
                .prop_map(|(name, value)| format!("{name}({value})")),
            (prop::sample::select(two.clone()), inner.clone(), inner)
                .prop_map(|(name, one, two)| format!("{name}({one}, {two})")),
        ]
    })
}

/// Tags with calls in them.
fn calling() -> impl Strategy<Value = String> {
    let around = prop::sample::select(vec![
        ("{{ ", " }}"),
        ("{{- ", " | default: 1 -}}"),
        ("{{ ", " | json | quote }}"),
        ("{% if ", " %}1{% else %}0{% endif %}"),
        ("{% if not ", " %}1{% endif %}"),
        ("{% if ?.c %}1{% else if ", " %}2{% else %}3{% endif %}"),
        ("{% for x in a %}{{ ", " }}{% endfor %}"),
        ("{% for x, b in a %}{{ ", " }};{% endfor %}"),
        ("{% with a as b %}{{ ", " }}{% endwith %}"),
        ("{% for x in a %}{% if ", " %}1{% else %}{{ x }}{% endif %}{% endfor %}"),
    ]);
    (around, calls()).prop_map(|((open, close), call)| format!("{open}{call}{close}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_says_what_the_long_one_says(a in value(), text in pieces()) {
        check_both(&text, &Context::from_serialize(&json!({"a": a})).unwrap())?;
    }

    #[test]
    fn calls_say_what_the_long_way_says(
        a in prop_oneof![1 => usual(), 2 => value()],
        b in prop_oneof![4 => usual(), 1 => value()],
        x in usual(),
        parts in prop::collection::vec(calling(), 1..3),
    ) {
        check_both(&parts.concat(), &Context::from_serialize(&json!({"a": a, "b": b, "x": x})).unwrap())?;
    }

    #[test]
    fn blocks_say_what_the_long_way_says(
        a in prop_oneof![4 => usual(), 1 => value()],
        b in usual(),
        x in usual(),
        parts in prop::collection::vec(blocks(), 1..4),
    ) {
        check_both(&parts.concat(), &Context::from_serialize(&json!({"a": a, "b": b, "x": x})).unwrap())?;
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
