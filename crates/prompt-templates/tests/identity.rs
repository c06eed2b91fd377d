//! What a prompt is: its digest, and the part of it that never changes.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use prompt_templates::{Context, Digest, ErrorKind, Prompts};
use serde_json::json;

fn store(texts: &[(&str, &str)]) -> Prompts {
    let prompts = Prompts::builder().build().unwrap();
    for (name, text) in texts {
        prompts.compile(name, text).unwrap();
    }
    prompts
}

#[test]
fn the_digest_changes_with_the_text_and_with_everything_included() {
    let base =
        [("_inner", "i"), ("_part", "{% include \"_inner\" %}"), ("a", "{% include \"_part\" %}")];
    let prompts = store(&base);
    let first = prompts.get("a").unwrap().digest();
    assert_eq!(store(&base).get("a").unwrap().digest(), first, "the same in each store");
    prompts.compile("_inner", "j").unwrap();
    let second = prompts.get("a").unwrap().digest();
    assert_ne!(first, second);
    prompts.compile("_other", "x").unwrap();
    assert_eq!(prompts.get("a").unwrap().digest(), second, "what is not included does not count");
    prompts.compile("_inner", "i").unwrap();
    assert_eq!(prompts.get("a").unwrap().digest(), first);
    assert_ne!(prompts.get("_part").unwrap().digest(), first);
}

#[test]
fn the_digest_of_messages_tells_them_from_their_text() {
    let prompts = store(&[("a", "[[system]]\n{{ x }}\n[[user]]\nb"), ("b", "{{ x }}\n\nb")]);
    let context = Context::from_serialize(&json!({"x": "a"})).unwrap();
    let texts = ["a", "b"].map(|name| Digest::of_text(&prompts.render(name, &context).unwrap()));
    assert_eq!(texts[0], texts[1]);
    let of = |name| Digest::of_messages(&prompts.messages(name, &context).unwrap());
    assert_ne!(of("a"), of("b"));
    assert_eq!(of("a"), of("a"));
}

/// goruck/home-generative-agent#617 and others: a time stamp at the head of a prompt, and a provider
/// finds nothing of it in its cache.
#[test]
fn the_stable_prefix_is_what_all_renders_share() {
    let partials =
        [("_static", "static {# c #}\n"), ("_deep", "{% include \"_static\" %}deep {{ x }} y")];
    for (text, expected, messages, broken_by) in [
        ("all static", "all static", 1, &[][..]),
        ("a {{ x }} b", "a ", 0, &["x"]),
        ("{{ x }}", "", 0, &["x"]),
        ("a \n{{- x }} b", "a", 0, &["x"]),
        ("a {%- if y -%} b {% endif %}", "a", 0, &["y"]),
        ("a{# c -#}\n b {% raw %}{{ x }}{% endraw %} {{ \"c\" }}", "ab {{ x }} ", 0, &[]),
        ("1 {% include \"_static\" %} 2 {{ eq(x, y) }}", "1 static \n 2 ", 0, &["x", "y"]),
        ("1 {% include \"_deep\" %} 2", "1 static \ndeep ", 0, &["x"]),
        ("1 {% include \"_deep\" with m %} 2", "1 ", 0, &["m"]),
        ("[[system]]\nS\n\n[[user]]\nu {{ x }}", "S\n\nu ", 1, &["x"]),
        ("[[system]]\nS\n[[history]]\n[[user]]\nu", "S", 1, &["history"]),
        ("[[system]]\nS\n[[user]]\nU", "S\n\nU", 2, &[]),
    ] {
        let prompts = store(&partials);
        let prompt = prompts.compile("t", text).unwrap();
        let prefix = prompt.stable_prefix();
        assert_eq!((prefix.text(), prefix.messages()), (expected, messages), "{text:?}");
        assert_eq!(prefix.broken_by(), broken_by, "{text:?}");
        assert_eq!(prefix.digest(), Digest::of_text(expected));
        for x in ["1", "another"] {
            let message = json!({"role": "user", "content": x});
            let data = json!({"x": x, "y": x, "m": {"x": x}, "history": [message]});
            let rendered = prompt.render(&Context::from_serialize(&data).unwrap()).unwrap();
            assert!(rendered.starts_with(expected), "{text:?}: {rendered:?}");
        }
    }
}

#[test]
fn only_a_volatile_variable_with_much_behind_it_is_a_warning() {
    let rules = "rule ".repeat(100);
    let head = "---\nvolatile: [now]\n---\n";
    let warned = |texts: &[(&str, &str)]| {
        let prompts = store(texts);
        let warnings = prompts.get("t").unwrap().warnings();
        warnings
            .iter()
            .map(|w| (w.kind(), w.template_name().unwrap().to_owned(), w.line().unwrap()))
            .collect::<Vec<_>>()
    };
    let early = format!("{head}x\n{{{{ now }}}} {rules}");
    assert_eq!(warned(&[("t", &early)]), [(ErrorKind::Volatile, "t".to_owned(), 5)]);
    assert_eq!(warned(&[("t", &format!("{head}{rules} {{{{ now }}}}"))]), []);
    assert_eq!(warned(&[("t", &format!("{head}{{{{ then }}}} {rules}"))]), []);
    assert_eq!(warned(&[("t", &format!("{{{{ now }}}} {rules}"))]), []);
    let include = format!("{head}{{% include \"_p\" %}}{rules}");
    let found = warned(&[("_p", "\n{{ now }}"), ("t", &include)]);
    assert_eq!(found, [(ErrorKind::Volatile, "_p".to_owned(), 2)]);
    let condition = format!("{head}{{% if now %}}{rules}{{% endif %}}");
    assert_eq!(warned(&[("t", &condition)]).len(), 1);
}
