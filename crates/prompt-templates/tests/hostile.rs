//! Input that is meant to harm: it is refused or finished in time, with a reason and a place.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};

use prompt_templates::{Context, ErrorKind, Migration, Prompts, check_dir, migrate};

fn store() -> Prompts {
    Prompts::builder().build().unwrap()
}

fn migrated(source: &str) -> Migration {
    migrate([("a.tmpl", source)])
}

#[test]
fn a_go_template_that_nests_without_end_is_left_as_it_is_below_the_hundredth_block() {
    for (open, keyword) in [("{{if .A}}", "if"), ("{{define \"d\"}}", "define")] {
        let (opened, closed) = (open.repeat(50_000), "{{end}}".repeat(50_000));
        let both = migrated(&format!("{opened}x{closed}"));
        assert_eq!(both.notes.len(), 1, "{keyword}");
        assert_eq!(both.notes[0].message, "blocks nest deeper than 100");
        assert_eq!(both.notes[0].column, 100 * open.len() + 1);
        // Without an end, each of the hundred says so.
        assert_eq!(migrated(&opened).notes.len(), 101, "{keyword}");
    }
    let deepest = format!("{}x{}", "{{if .A}}".repeat(100), "{{end}}".repeat(100));
    assert!(migrated(&deepest).notes.is_empty());
}

#[test]
fn a_go_expression_that_nests_without_end_is_left_to_hand() {
    let brackets = migrated(&format!("{{{{{}}}}}", "(".repeat(200_000)));
    assert!(brackets.notes[0].message.ends_with("...: it nests deeper than 64"));
    let arguments = migrated(&format!("{{{{and {}}}}}", ".B ".repeat(20_000)));
    assert!(arguments.notes[0].message.ends_with("...: it has more than 32 arguments"));
    // `eq` writes its first argument once for each other one.
    let power = (0..14).fold(".A".to_owned(), |inner, _| format!("(eq {inner} .B .C .D .E)"));
    let power = migrated(&format!("{{{{{power}}}}}"));
    assert!(power.notes[0].message.ends_with("it would have more than 10000 bytes here"));
    assert!(power.templates[0].text.len() < 1_000);
}

#[test]
fn go_variables_over_what_blocks_can_nest_are_left_to_hand() {
    let migration = migrated(&"{{$x := .A}}\n".repeat(1_000));
    assert_eq!(migration.notes.len(), 910);
    assert_eq!(migration.notes[0].line, 91);
    assert_eq!(migration.templates[0].text.matches("{% endwith %}").count(), 90);
}

#[test]
fn go_numbers_that_are_others_here_are_left_to_hand() {
    let migration = migrated(
        "{{eq .A 9223372036854775807}}{{eq .A 0}}{{eq .A -0.5}}\n{{eq .A 9223372036854775808}}\n{{eq .A 010}}",
    );
    let lines: Vec<_> = migration.notes.iter().map(|note| note.line).collect();
    assert_eq!(lines, [2, 3], "{:?}", migration.notes);
}

#[test]
fn many_notes_of_one_source_have_their_places_in_one_pass() {
    let migration = migrated(&"\u{4e2d}{{foo}}\n".repeat(20_000));
    let last = migration.notes.last().unwrap();
    assert_eq!((migration.notes.len(), last.line, last.column), (20_000, 20_000, 2));
}

#[test]
fn a_brace_at_the_end_of_a_go_template_does_not_join_the_tag_written_behind_it() {
    let migration = migrated("{{$x := .A}}{{$x}} {");
    assert!(migration.notes.is_empty(), "{:?}", migration.notes);
    let prompt = store().compile("a", &migration.templates[0].text).unwrap();
    assert_eq!(prompt.render(Context::new().set("A", "1").unwrap()).unwrap(), "1 {");
}

#[test]
fn includes_that_double_with_each_level_are_refused() {
    let prompts = store();
    prompts.compile("_p0", "").unwrap();
    let twice = |n| format!("{{% include \"_p{n}\" %}}{{% include \"_p{n}\" %}}");
    // Level 12 comes to 2^13 - 2 includes, and level 13 to more than 10,000.
    for n in 0..12 {
        prompts.compile(&format!("_p{}", n + 1), &twice(n)).unwrap();
    }
    let prompt = prompts.get("_p12").unwrap();
    assert_eq!(prompt.render(&Context::new()).unwrap(), "");
    assert!(prompt.warnings().is_empty());
    assert_eq!(prompt.stable_prefix().bytes(), 0);
    let error = prompts.compile("_p13", &twice(12)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cycle);
    assert_eq!((error.line(), error.column()), (Some(1), Some(32)));
}

#[test]
fn a_long_chain_of_includes_is_refused_file_by_file() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..500 {
        let text = format!("{{% include \"f{}\" %}}", n + 1);
        fs::write(dir.path().join(format!("f{n}.prompt.md")), text).unwrap();
    }
    fs::write(dir.path().join("f500.prompt.md"), "x").unwrap();
    let errors = check_dir(dir.path());
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Cycle));
    // Those that are at most 60 away from the end go.
    assert_eq!(errors.len(), 500 - 59);
}

#[test]
fn names_are_listed_with_the_first_hundred_errors_only() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..150 {
        let file = dir.path().join(format!("file-{n:03}.prompt.md"));
        fs::write(file, "{% include \"file-0000\" %}").unwrap();
    }
    let errors = check_dir(dir.path());
    let listed: Vec<_> = errors.iter().map(|error| error.available().len()).collect();
    assert_eq!(listed, [[149; 100].as_slice(), &[0; 50]].concat());
    assert_eq!(errors[1].suggestion(), Some("file-000"));
}

#[test]
fn data_that_nests_without_end_is_an_error() {
    #[derive(serde::Serialize)]
    struct Deep(Vec<Deep>);
    let deep = |levels| (0..levels).fold(Deep(vec![]), |inner, _| Deep(vec![inner]));
    let prompt = store().compile("a", "{{ a | json }}").unwrap();
    let mut context = Context::new();
    let text = prompt.render(context.set("a", &deep(127)).unwrap()).unwrap();
    assert_eq!(text.len(), 256);
    let error = context.set("a", &deep(128)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.to_string().contains("nests deeper than 128"), "{error}");
    // What was there before is still there.
    assert_eq!(prompt.render(&context).unwrap(), text);
}

#[test]
fn what_a_function_gives_may_not_nest_without_end() {
    let nest = |arguments: &[serde_json::Value]| -> Result<_, String> {
        let levels = arguments[0].as_u64().unwrap_or_default();
        Ok((0..levels).fold(serde_json::Value::Null, |inner, _| vec![inner].into()))
    };
    let prompts = Prompts::builder().function("nest", 1, nest).build().unwrap();
    let prompt = prompts.compile("a", "{{ nest(n) | json }}").unwrap();
    let text = prompt.render(Context::new().set("n", &128).unwrap()).unwrap();
    assert_eq!(text.len(), 2 * 128 + "null".len());
    let error = prompt.render(Context::new().set("n", &129).unwrap()).unwrap_err();
    assert!(error.message().contains("nests deeper than 128"), "{error}");
}

/// A short template could otherwise ask for more memory than any machine has.
#[test]
fn what_a_function_gives_has_a_bound() {
    let prompts = Prompts::builder().max_output_bytes(usize::MAX).build().unwrap();
    let lines = "x\n".repeat(70_000);
    let list = vec![""; 70_000];
    let data = serde_json::json!({
        "lines": lines,
        "list": list,
        "separator": " ".repeat(1_000),
        "long": "x".repeat((64 << 20) + 1),
    });
    let context = Context::from_serialize(&data).unwrap();
    for text in [
        "{{ lines | indent: 1000 }}",
        "{{ list | join: separator }}",
        "{{ [join(list, separator)] | json }}",
        "{{ long | quote }}",
        "{{ long | fence }}",
        "{{ long | xml: \"doc\" }}",
    ] {
        let error = prompts.compile_and_render("a", text, &context).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
        assert!(error.message().contains("longer than 67108864 bytes"), "{error}");
    }
    let indented =
        prompts.compile_and_render("a", "{{ lines | indent: 900 | len }}", &context).unwrap();
    assert_eq!(indented, (2 * 70_000 + 900 * 69_999).to_string());
}

#[test]
fn a_file_too_long_for_a_prompt_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    // Without blocks on the disk: to read it would take as much memory as it claims.
    File::create(dir.path().join("long.prompt.md")).unwrap().set_len(1 << 40).unwrap();
    let errors = check_dir(dir.path());
    assert_eq!(errors[0].kind(), ErrorKind::Io);
    assert_eq!(errors[0].message(), "the file has 1099511627776 bytes, over 16777216");
}

#[test]
fn control_characters_of_a_template_do_not_reach_the_terminal() {
    let prompts = store();
    for text in ["{% include \"\u{1b}[31mred\" %}", "{{ \u{1b}[2J }}", "{{ a }}\u{7}{% if %}"] {
        let error = prompts.compile("a", text).unwrap_err();
        for shown in [format!("{error}"), format!("{error:#}")] {
            assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
        }
    }
}

#[test]
fn an_unused_variable_is_shown_where_it_is_declared() {
    let text = "---\nabout: i\nvariables: [used, i, a]\n---\n{{ used }}";
    let warnings = store().compile("a", text).unwrap().warnings();
    let places: Vec<_> = warnings.iter().map(|w| (w.line(), w.column())).collect();
    assert_eq!(places, [(Some(3), Some(19)), (Some(3), Some(22))]);
}

#[test]
fn a_key_twice_in_json_front_matter_is_an_error() {
    let text = "---\n{\"variables\": [\"a\"], \"variables\": [\"b\"]}\n---\n{{ a }}";
    let error = store().compile("a", text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrontMatter);
    assert!(error.message().contains("the key 'variables' stands twice"), "{error}");
    assert_eq!((error.line(), error.column()), (Some(2), Some(22)));
    // At any depth.
    let text = "---\n{\"schema\": {\"a\": 1,\n  \"a\": 2}}\n---\nx";
    let error = store().compile("a", text).unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(3), Some(3)), "{error}");
}

/// The parser says what is wrong by the names of its own types.
#[test]
fn an_error_of_json_front_matter_is_in_words() {
    for (head, line, column, message) in [
        ("{\"a\": [1,}", 2, 10, "broken JSON: expected value"),
        ("{\"variables\": [\"a\" \"b\"]}", 2, 20, "broken JSON: expected `,` or `]`"),
        ("{\"a\":\n 1", 3, 3, "broken JSON: EOF"),
        ("{\"a\": 18446744073709551616}", 2, 1, "an integer of more than 64 bits"),
        ("{\"a\": 1e999}", 2, 7, "larger than a float of 64 bits"),
    ] {
        let error = store().compile("a", &format!("---\n{head}\n---\nx")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FrontMatter);
        assert!(error.message().contains(message), "{head}: {error}");
        assert_eq!((error.line(), error.column()), (Some(line), Some(column)), "{head}: {error}");
    }
}

/// Each include is found among all of them, and each is asked for what its partial reads.
#[test]
fn many_includes_in_many_loops_take_no_minutes() {
    let prompts = store();
    prompts.compile("_p", &"{{ a?.b }}".repeat(10_000)).unwrap();
    let one = |n| format!("{{% for x{n} in l %}}{{% include \"_p\" %}}{{% endfor %}}");
    let loops = (0..5_000).map(one).collect::<Vec<_>>().concat();
    prompts.compile("t", &loops).unwrap();
    let error = prompts.compile("t", &"{% include \"_p\" %}".repeat(200_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cycle);
    let error = prompts
        .compile("t", &format!("{loops}{{% for a in l %}}{{% include \"_p\" %}}{{% endfor %}}"));
    assert_eq!(error.unwrap_err().name(), Some("a"));
}
