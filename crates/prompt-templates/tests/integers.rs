//! Integers that 64 bits do not hold are integers like all others, wherever a template has them.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::cmp::Ordering;

use prompt_templates::{Context, Error, Prompts};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a template can do with the integer `n`; in `m.n`, `l.0` and `x` it is the same.
const CONSTRUCTS: &[&str] = &[
    // Printed, in every place that a value can come from.
    "{{ n }}",
    "{{ m.n }}{{ l.0 }}{{ m?.n }}{{ ?.n }}",
    "{{ (n) }}{{ [n].0 }}",
    "{% for x in l %}{{ x }};{% endfor %}",
    "{% for k, x in m %}{{ k }}={{ x }};{% endfor %}",
    "{% for x in l | default: [] %}{{ x }};{% endfor %}",
    "{% for k, x in {\"k\": n} %}{{ k }}={{ x }}{% endfor %}",
    "{% with n as x %}{{ x }}{% endwith %}",
    "{% with n | default: 1 as x %}{{ x }}{% endwith %}",
    "{% include \"_part\" %}",
    "{% include \"_part\" with {\"n\": n} %}",
    "{% include \"_part\" with m %}",
    // As data of a partial.
    "{% include \"_part\" with n %}",
    "{% include \"_maybe\" with n %}",
    "{% include \"_empty\" with n %}",
    // Members and items that it does not have.
    "{{ n.x }}",
    "{{ n?.x }}",
    "{{ n.0 }}",
    "{{ n?.0 }}",
    "{{ m.n.x }}",
    "{{ m.n?.x }}",
    "{{ ?.n?.x }}",
    "{{ ?.n.x.y }}",
    "{{ l.0.x }}{{ l.0?.x }}",
    "{{ l.0?.x }}",
    "{% for x in l %}{{ x.y }}{% endfor %}",
    "{% for x in l %}{{ x?.y }}{% endfor %}",
    "{% for k, x in m %}{{ x?.y }}{% endfor %}",
    "{% with n as x %}{{ x.y }}{% endwith %}",
    "{% with n as x %}{{ x?.y }}{% endwith %}",
    "{% with [n] as x %}{{ x.0?.y }}{% endwith %}",
    "{{ n?.x | default: 1 }}",
    "{{ len(n.x) }}",
    "{% if n?.x %}1{% endif %}",
    "{% with n?.x as x %}{% endwith %}",
    // Loops over it.
    "{% for x in n %}{{ x }}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for k, x in n %}{{ k }}{{ x }}{% endfor %}",
    "{% for k, x in n %}{% endfor %}",
    "{% for x in m.n %}{% endfor %}",
    "{% for k, x in m?.n %}{% endfor %}",
    "{% for k, x in (n) %}{% endfor %}",
    "{% for k, x in n | default: [] %}{% endfor %}",
    "{% for x in l %}{% for k, y in x %}{{ k }}{% endfor %}{% endfor %}",
    "{% with n as x %}{% for k, y in x %}{{ k }}{% endfor %}{% endwith %}",
    "{% for x in n?.x %}{% endfor %}",
    // Truth.
    "{% if n %}1{% else %}0{% endif %}",
    "{% if not n %}1{% else %}0{% endif %}",
    "{% if ?.gone %}1{% else if m.n %}2{% endif %}",
    "{{ and(n, true) }}{{ or(n, false) }}{{ and(n, 0) }}",
    // Comparisons.
    "{{ eq(n, n) }}{{ eq(n, m.n) }}{{ ne(n, l.0) }}{{ n | eq: l.0 }}",
    "{{ le(n, n) }}{{ ge(n, n) }}{{ lt(n, n) }}{{ gt(n, n) }}",
    "{{ eq(n, \"s\") }}{{ eq(n, true) }}{{ eq(n, l) }}{{ eq(n, m) }}{{ eq(n, 1.5) }}{{ eq(n, 0) }}",
    "{{ eq(l, [n]) }}{{ eq(m, {\"n\": n}) }}",
    "{{ eq(n, digits) }}{{ eq(digits, n) }}",
    "{{ lt(n, \"s\") }}",
    "{{ gt(digits, n) }}",
    "{{ lt(n, l) }}",
    "{{ lt(m, n) }}",
    "{{ lt(n, true) }}",
    // Functions.
    "{{ n | default: 1 }}{{ ?.gone | default: n }}",
    "{{ n | json }}{{ l | json }}{{ m | json }}",
    "{{ l | join: \", \" }}{{ [\"s\", n] | join: \"\" }}",
    "{{ l | contains: n }}{{ l | contains: \"s\" }}{{ contains(l, digits) }}",
    "{{ contains(n, n) }}",
    "{{ contains(n, \"1\") }}",
    "{{ contains(\"s\", n) }}",
    "{{ contains(digits, n) }}",
    "{{ contains(m, n) }}",
    "{{ len(n) }}",
    "{{ len(l) }}{{ len(m) }}",
    "{{ quote(n) }}",
    "{{ fence(n) }}",
    "{{ fence(\"s\", n) }}",
    "{{ xml(n, \"doc\") }}",
    "{{ xml(\"s\", n) }}",
    "{{ indent(n) }}",
    "{{ truncate_tokens(n, 1) }}",
    "{{ join(n, \", \") }}",
    "{{ join(l, n) }}",
    // Functions of the store.
    "{{ same(n) }}",
    "{{ same(l) | json }}",
    "{% with same(m) as x %}{{ x.n }}{% endwith %}",
    "{% with same(n) as x %}{{ x.y }}{% endwith %}",
    "{% with same(n) as x %}{{ x?.y }}{% endwith %}",
    "{% for k, v in same(n) %}{{ k }}{% endfor %}",
    "{{ eq(same(n), n) }}{{ lt(same(n), n) }}",
    // Where a history or a message should be.
    "[[history]]\n[[user]]\n{{ n }}",
    "[[user]]\n{{ n }}",
];

fn prompts() -> Prompts {
    let same = |arguments: &[Value]| Ok::<_, String>(arguments[0].clone());
    let prompts = Prompts::builder().function("same", 1, same).build().unwrap();
    prompts.compile("_part", "<{{ n }}>").unwrap();
    prompts.compile("_maybe", "<{{ ?.n }}>").unwrap();
    prompts.compile("_empty", "<>").unwrap();
    prompts
}

fn context(n: &str) -> Context {
    let data = r#"{"n": N, "m": {"n": N}, "l": [N], "x": N, "digits": "N", "history": N}"#;
    Context::from_json(&data.replace('N', n)).unwrap()
}

/// Renders a construct by a program of the crate and, with a list in it, by `upon`.
fn outcomes(construct: &str, n: &str) -> Vec<Result<String, Error>> {
    let (prompts, context) = (prompts(), context(n));
    let texts = [construct.to_owned(), format!("{construct}{{% if [] %}}{{% endif %}}")];
    let render = |text: String| prompts.compile("t", &text)?.render(&context);
    texts.into_iter().map(render).collect()
}

#[test]
fn an_integer_of_any_size_is_an_integer_in_every_construct() {
    let large = [
        u64::MAX.to_string(),
        (i128::from(i64::MIN) - 1).to_string(),
        i128::MIN.to_string(),
        u128::MAX.to_string(),
    ];
    for construct in CONSTRUCTS {
        for large in &large {
            // A function of a store gets what JSON has no number for as text; that is told.
            if construct.contains("same") && *large != u64::MAX.to_string() {
                continue;
            }
            let pairs = outcomes(construct, "7").into_iter().zip(outcomes(construct, large));
            for (small, found) in pairs {
                match (small, found) {
                    (Ok(small), Ok(found)) => {
                        assert_eq!(found, small.replace('7', large), "{construct}");
                    }
                    (Err(small), Err(found)) => {
                        assert_eq!(found.kind(), small.kind(), "{construct}: {found}");
                        let (place, name) = ((small.line(), small.column()), small.name());
                        assert_eq!((found.line(), found.column()), place, "{construct}: {found}");
                        assert_eq!(found.name(), name, "{construct}: {found}");
                        assert_eq!(found.available(), small.available(), "{construct}: {found}");
                        // Of a variable of a block it is not known what it is.
                        let plain = small.message().replace("an integer, ", "");
                        let message = found.message().replace("an integer, ", "");
                        assert_eq!(message, plain, "{construct}");
                    }
                    (small, found) => panic!("{construct}: {small:?}, {found:?}"),
                }
            }
        }
    }
}

#[test]
fn what_is_said_of_a_large_integer_calls_it_an_integer() {
    for (text, message) in [
        ("{{ n.x }}", "'n' is an integer, not a map, so it has no 'x'"),
        ("{{ m.n?.x }}", "'m.n' is an integer, not a map, so it has no 'x'"),
        ("{{ l.0.1 }}", "'l.0' is an integer, not a list, so it has no '1'"),
        ("{% for x in n %}{% endfor %}", "'n' is an integer, not a list or a map to loop over"),
        (
            "{% for k, v in m.n -%}{% endfor %}",
            "'m.n' is an integer, not a list or a map to loop over",
        ),
        ("{% for x in l %}{{ x.y }}{% endfor %}", "'x' is not a map, so it has no 'y'"),
        ("{% for x in n | json %}{% endfor %}", "this is not a list or a map to loop over"),
        ("{{ digits.x }}", "'digits' is a string, not a map, so it has no 'x'"),
        ("{{ n | len }}", "an integer has no length"),
        ("{{ n | quote }}", "'quote' takes a string, not an integer"),
        ("[[history]]\n[[user]]\nx", "'history' is an integer, not a list of messages"),
    ] {
        let error = outcomes(text, &u128::MAX.to_string()).remove(0).unwrap_err();
        assert_eq!(error.message(), message, "{text}");
    }
}

#[test]
fn a_large_integer_is_a_key_as_a_small_one_is() {
    let keys = std::collections::BTreeMap::from([(u128::MAX, 1), (7, 2)]);
    let mut context = Context::new();
    let context = context.set("m", &keys).unwrap();
    let found = prompts().compile_and_render("t", "{{ m | json }}", context).unwrap();
    assert_eq!(found, format!("{{\"{}\":1,\"7\":2}}", u128::MAX));
}

#[test]
fn a_large_integer_is_no_content_of_a_message_and_nothing_to_shorten() {
    let prompts = prompts();
    let chat = prompts.compile("chat", "[[history]]\n[[user]]\nx").unwrap();
    for message in [r#"{"role": "user", "content": N}"#, r#"{"role": N, "content": "x"}"#] {
        for n in ["7".to_owned(), u128::MAX.to_string()] {
            let data = format!("{{\"history\": [{}]}}", message.replace('N', &n));
            let error = chat.messages(&Context::from_json(&data).unwrap()).unwrap_err();
            assert!(error.message().contains("item 0 of 'history' is no message"), "{error}");
        }
    }
    let text = "---\ndrop_first: [n]\n---\n[[user]]\n{{ n }}";
    let budget = prompts.compile("budget", text).unwrap();
    for n in ["7".to_owned(), u128::MAX.to_string()] {
        let error = budget.fit(&context(&n), 1).unwrap_err();
        assert_eq!(error.kind(), prompt_templates::ErrorKind::Budget);
    }
}

#[test]
fn a_context_shows_a_large_integer_by_its_digits_and_compares_it() {
    let text = format!("{{\"n\": {}, \"s\": \"\\u0000x\", \"l\": [null, true, 1.0]}}", u128::MAX);
    let context = Context::from_json(&text).unwrap();
    let shown =
        format!("Context({{\"l\": [null, true, 1.0], \"n\": {}, \"s\": \"\\0x\"}})", u128::MAX);
    assert_eq!(format!("{context:?}"), shown);
    assert_eq!(context, Context::from_json(&text).unwrap());
    assert_ne!(context, Context::from_json(&text.replace("455", "454")).unwrap());
}

/// The sign of a whole number or float, and the digits of its whole part, and whether that is all of it.
fn parts(decimal: &str) -> (bool, String, bool) {
    let (is_negative, digits) =
        decimal.strip_prefix('-').map_or((false, decimal), |digits| (true, digits));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    (is_negative, whole.to_owned(), rest.bytes().all(|digit| digit == b'0'))
}

/// Orders decimals without a number type.
fn order(a: &str, b: &str) -> Ordering {
    let ((a_negative, a, a_whole), (b_negative, b, b_whole)) = (parts(a), parts(b));
    let is_zero = |digits: &str, is_whole| digits == "0" && is_whole;
    if is_zero(&a, a_whole) && is_zero(&b, b_whole) {
        return Ordering::Equal;
    }
    let by_size = a.len().cmp(&b.len()).then_with(|| a.cmp(&b)).then_with(|| b_whole.cmp(&a_whole));
    match (a_negative, b_negative) {
        (false, false) => by_size,
        (true, true) => by_size.reverse(),
        _ => b_negative.cmp(&a_negative),
    }
}

fn whole() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i128>().prop_map(|n| n.to_string()),
        any::<u128>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        (0..128_u32, -2_i128..3).prop_map(|(bits, off)| {
            (1_u128 << bits).checked_add_signed(off).unwrap_or(0).to_string()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_ordered_by_their_exact_values(
        a in whole(),
        b in prop_oneof![
            whole(),
            (0..140_i32, -1_i64..2, any::<bool>()).prop_map(|(bits, step, is_negative)| {
                let float = 2_f64.powi(bits);
                let float = f64::from_bits(float.to_bits().checked_add_signed(step).unwrap());
                format!("{:.80}", if is_negative { -float } else { float })
            }),
        ],
    ) {
        let context = Context::from_json(&format!("{{\"a\": {a}, \"b\": {b}}}")).unwrap();
        let text = "{{ lt(a, b) }} {{ eq(a, b) }} {{ gt(a, b) }} {{ lt(b, a) }} {{ eq(b, a) }} {{ gt(b, a) }}";
        let found = Prompts::builder().build().unwrap().compile_and_render("t", text, &context).unwrap();
        let ordering = order(&a, &b);
        let expected = [ordering.is_lt(), ordering.is_eq(), ordering.is_gt()];
        let [lt, eq, gt] = expected;
        prop_assert_eq!(found, format!("{lt} {eq} {gt} {gt} {eq} {lt}"), "{} {}", a, b);
    }

    /// A text is a text, whatever it holds: none is taken for a number, and none is refused.
    #[test]
    fn no_text_passes_for_an_integer(text in "\0?[\0a-f0-9-]{0,40}|\0integer[0-9]{0,3}") {
        let mut context = Context::new();
        let context = context.set("s", &text).unwrap().set("m", &json!({ &*text: 1 })).unwrap();
        let prompts = prompts();
        let found = prompts.compile_and_render("t", "{{ s }}{% for k, v in m %}{{ k }}{{ len(k) }}{% endfor %}", context);
        prop_assert_eq!(found.unwrap(), format!("{text}{text}{}", text.len()));
        let found = prompts.compile_and_render("t", "{{ s | json }}", context).unwrap();
        prop_assert_eq!(found, serde_json::to_string(&text).unwrap());
    }
}
