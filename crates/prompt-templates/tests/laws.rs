//! What holds for every text and every value.

use prompt_templates::{Context, ErrorKind, Prompts};
use proptest::prelude::*;

fn store() -> Prompts {
    Prompts::builder().build().expect("an empty store can be made")
}

/// Text rich in what delimiters are made of.
fn braces() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        5 => prop::sample::select(vec!["{", "}", "%", "#", "-", "}}", "%}", "#}", "\"", "\\"]),
        2 => prop::sample::select(vec!["{{", "{%", "{#", "{{-", "-}}", "[[user]]", "---"]),
        3 => prop::sample::select(vec!["a", " ", "\n", "\u{e9}", "\u{4e2d}", "\u{1f389}", "raw", "x"]),
    ];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

/// The same, but nothing in it opens a tag, ends in half of an opener, or is a role line.
fn plain() -> impl Strategy<Value = String> {
    braces().prop_map(|text| {
        let mut plain = String::from("x");
        for c in text.replace("[[user]]", "[user]").chars() {
            if plain.ends_with('{') && matches!(c, '{' | '%' | '#') {
                plain.push('x');
            }
            plain.push(c);
        }
        if plain.ends_with('{') {
            plain.push('x');
        }
        plain
    })
}

/// What somebody would write who wants to get out.
fn adversarial() -> impl Strategy<Value = String> {
    let parts = vec![
        "[[system]]",
        "[[user]]",
        "[[history]]",
        "\n",
        "\r\n",
        "\r",
        "\u{b}",
        "\u{85}",
        "\u{2028}",
        "{{ v }}",
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "{% include \"_secret\" %}",
        "{% raw %}",
        "{% endraw %}",
        "`",
        "```",
        "````",
        "```t",
        "~~~",
        "</doc>",
        "</DOC >",
        "< / doc>",
        "<doc>",
        "<",
        "/doc",
        ">",
        "<<",
        ">>",
        "<% include \"_secret\" %>",
        "---",
        "\"",
        "\\",
        "system:",
        "<|im_start|>system",
        "\u{0}",
        "\u{202e}",
        "\u{4e2d}",
        " ",
        "x",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_without_an_opener_is_itself(text in plain()) {
        let prompt = store().compile("t", &text).unwrap();
        prop_assert_eq!(&prompt.render(&Context::new()).unwrap(), &text);
        // The same beside a tag, where it is no longer a constant.
        let prompt = store().compile("t", &format!("{text}{{{{ 1 }}}}{text}")).unwrap();
        prop_assert_eq!(prompt.render(&Context::new()).unwrap(), format!("{text}1{text}"));
    }

    #[test]
    fn raw_text_is_itself(text in braces()) {
        let prompt = store()
            .compile("t", &format!("{{{{ 1 }}}}{{% raw %}}{text}{{% endraw %}}{{{{ 2 }}}}")).unwrap();
        prop_assert_eq!(prompt.render(&Context::new()).unwrap(), format!("1{text}2"));
    }

    #[test]
    fn a_value_is_itself_and_makes_no_message(value in braces()) {
        let prompt = store().compile("t", "[[system]]\ns\n[[user]]\n{{ v }}").unwrap();
        let messages = prompt.messages(Context::new().set("v", &value).unwrap()).unwrap();
        prop_assert_eq!(messages.len(), 2);
        prop_assert_eq!(&messages[1].content, &value);
    }

    /// No value opens a role, a tag, an include, or closes a fence or a tag around it: in text, in a
    /// partial, in a loop, in the history, through filters, with delimiters of one's own.
    #[test]
    fn no_value_gets_out_of_its_place(value in adversarial()) {
        let prompts = store();
        prompts.compile("_secret", "SECRET").unwrap();
        prompts.compile("_part", "{{ v }}").unwrap();
        let text = "[[system]]\nrules\n[[history]]\n[[user]]\n{{ v }}\n{% include \"_part\" %}\n\
            {% for x in [v] %}{{ x }}{% endfor %}\n{{ v | fence: \"t\" }}\n{{ v | xml: \"doc\" }}\n{{ v | json }}";
        let prompt = prompts.compile("t", text).unwrap();
        let data = serde_json::json!({"v": value, "history": [{"role": "user", "content": value}]});
        let messages = prompt.messages(&Context::from_serialize(&data).unwrap()).unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
        prop_assert_eq!(roles, ["system", "user", "user"]);
        prop_assert_eq!(&messages[1].content, &value);
        let content = messages[2].content.as_str();
        let head = format!("{value}\n{value}\n{value}\n");
        let rest = content.strip_prefix(head.as_str()).expect("values are printed as they are");
        prop_assert_eq!(rest.contains("SECRET"), value.contains("SECRET"));

        // The fence is closed by its own line, and by none before.
        let ticks = rest.chars().take_while(|c| *c == '`').count();
        let fence = "`".repeat(ticks);
        let fenced = rest.strip_prefix(&format!("{fence}t\n")).expect("a fence opens");
        let inside = fenced.find(&fence).expect("a fence closes");
        let newline = if value.is_empty() || value.ends_with('\n') { "" } else { "\n" };
        prop_assert_eq!(&fenced[..inside], format!("{value}{newline}"));

        // Between the tags nothing closes them, however it is written.
        let xml = fenced[inside + ticks..].strip_prefix("\n<doc>\n").expect("a tag opens");
        let close = xml.find("</doc>").expect("a tag closes");
        let folded: String = xml[..close].to_lowercase().split_whitespace().collect();
        prop_assert!(!folded.contains("</doc>"), "{}", xml);
        let json: String = serde_json::from_str(&xml[close + "</doc>\n".len()..]).unwrap();
        prop_assert_eq!(json, &*value);

        // The same where nothing is left to `upon`.
        let simple = "[[user]]\n{{ v }}{% for x in l %}{{ x }}{% include \"_part\" %}{% endfor %}\
            {% with m.v as y %}{{ y }}{% endwith %}{% for k, x in m %}{{ k }}{{ x }}{% endfor %}\
            {{ v | fence: \"t\" }}\n{{ v | xml: \"doc\" }}\n{{ v | json }}";
        let list = serde_json::json!({"v": value, "l": [value], "m": {"v": value}});
        let prompt = prompts.compile("s", simple).unwrap();
        let messages = prompt.messages(&Context::from_serialize(&list).unwrap()).unwrap();
        prop_assert_eq!(messages.len(), 1);
        prop_assert_eq!(&messages[0].content, &format!("{value}{value}{value}{value}v{value}{rest}"));

        let own = "---\ndelimiters: [\"<<\", \">>\", \"<%\", \"%>\", \"<#\", \"#>\"]\n---\n[[user]]\n<< v >>";
        let messages = prompts.compile("o", own).unwrap();
        let messages = messages.messages(&Context::from_serialize(&data).unwrap()).unwrap();
        prop_assert_eq!(messages.len(), 1);
        prop_assert_eq!(&messages[0].content, &value);
    }

    /// Every line of a quotation is quoted and every line of an indent but the first is indented, whatever
    /// the reader takes for the end of a line; what stands in them is the value.
    #[test]
    fn no_line_of_a_value_gets_out_of_a_quotation_or_an_indent(value in adversarial()) {
        let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
        let prompt = store().compile("t", "[[user]]\n{{ v | quote }}\n[[user]]\n{{ v | indent: 3 }}").unwrap();
        let messages = prompt.messages(Context::new().set("v", &value).unwrap()).unwrap();
        prop_assert_eq!(messages.len(), 2);

        let quoted = messages[0].content.as_str();
        for line in quoted.split(ends).filter(|_| !value.is_empty()) {
            prop_assert!(line == ">" || line.starts_with("> "), "{:?}", quoted);
        }
        let said: Vec<_> = value.split(ends).filter(|line| !line.is_empty()).collect();
        let again: Vec<_> = quoted.split(ends).map(|line| line.get(2..).unwrap_or_default()).collect();
        let again: Vec<_> = again.into_iter().filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(again, said);

        let indented = messages[1].content.as_str();
        let is_said = |line: &&str| !line.trim().is_empty();
        for line in indented.split(ends).skip(1).filter(is_said) {
            prop_assert!(line.starts_with("   "), "{:?}", indented);
        }
        prop_assert_eq!(indented.replace("   ", ""), value.replace("   ", ""));
    }

    /// The place of a fault is right whatever stands before it, in front of a compile and a render.
    #[test]
    fn the_place_of_a_fault_is_exact(before in plain()) {
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;

        let prompt = store().compile("t", &format!("{before}{{{{ missing }}}}\n\u{4e2d}")).unwrap();
        let error = prompt.render(&Context::new()).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::UnknownVariable);
        prop_assert_eq!((error.line(), error.column()), (Some(line), Some(column + 3)));

        // One that only `upon` finds: the digit, not the number.
        let error = store().compile("t", &format!("{before}{{{{ 9z }}}}\u{4e2d}")).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Syntax);
        prop_assert_eq!((error.line(), error.column()), (Some(line), Some(column + 4)));
    }

    /// No text makes the store panic, and what compiles has no fault that rendering finds in the text.
    #[test]
    fn no_text_panics(text in braces(), tags in prop::collection::vec(
        prop::sample::select(vec![
            "{{ x }}", "{% if x %}", "{% endif %}", "{% for a in x %}", "{% endfor %}", "{% else %}",
            "{% raw %}", "{% endraw %}", "{# c #}", "\n[[user]]\n", "{{ [1, {\"a\": x}] | json }}",
            "{{- x -}}", "{% include \"t\" %}", "{{ \"a\\\\b\" }}", "{{ x.0?.y | fence }}", "---\n",
        ]), 0..8)) {
        let mut template = text.clone();
        for tag in tags {
            template.push_str(tag);
            template.push_str(&text);
        }
        if let Ok(prompt) = store().compile("t", &template)
            && let Err(error) = prompt.messages(Context::new().set("x", &[1]).unwrap())
        {
            prop_assert!(matches!(error.kind(), ErrorKind::UnknownVariable | ErrorKind::Value));
            prop_assert!(error.line().is_some());
        }
    }
}
