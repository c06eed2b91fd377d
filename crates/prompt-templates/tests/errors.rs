//! The text of each kind of error, in one line and with the line at fault.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::BTreeMap;

use prompt_templates::{AnthropicMessages, Context, Error, LoadError, Message, Prompts, Role};

fn store() -> Prompts {
    Prompts::builder().build().expect("an empty store can be made")
}

fn shown(errors: &[Error]) -> String {
    let lines = errors.iter().map(|error| format!("{:?}: {error}\n{error:#}", error.kind()));
    lines.collect::<Vec<_>>().join("\n\n")
}

#[test]
fn errors_of_data_say_what_cannot_be_given_to_a_template() {
    let key = Context::from_serialize(&BTreeMap::from([([1, 2], 1)])).unwrap_err();
    let number = Context::from_serialize(&7).unwrap_err();
    let inner = Context::new().set("map", &BTreeMap::from([((), 1)])).map(drop).unwrap_err();
    let twice = Context::from_json("{\"a\": 1,\n \"a\": 2}").unwrap_err();
    insta::assert_snapshot!(shown(&[key, number, inner, twice]));
}

#[test]
fn errors_of_the_store_say_what_to_do() {
    let prompts = store();
    prompts.compile("_part", "p").unwrap();
    prompts.compile("whole", "{% include \"_part\" %}").unwrap();
    let errors = [
        prompts.remove("_part").unwrap_err(),
        prompts.render("hole", &Context::new()).unwrap_err(),
        prompts.compile("", "x").unwrap_err(),
        prompts.compile("a\nb", "x").unwrap_err(),
        prompts.compile("../a", "x").unwrap_err(),
        prompts.compile("/a", "x").unwrap_err(),
    ];
    insta::assert_snapshot!(shown(&errors));
}

#[test]
fn errors_of_files_name_the_file_as_it_was_given() {
    let absent = Prompts::load_dir("no/such/folder").unwrap_err();
    let none = store().reload().unwrap_err();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.prompt.md"), "{% if x %}").unwrap();
    std::fs::write(dir.path().join("b.prompt.md"), "\t\u{4e2d}{{ 1").unwrap();
    let broken = Prompts::load_dir(dir.path()).unwrap_err();
    let errors = [&absent, &none, &broken].map(|errors| shown(errors.errors()));
    let text = format!("{}\n\n{}", errors.join("\n\n"), both(&broken));
    insta::assert_snapshot!(text.replace(&dir.path().display().to_string(), "DIR"));
}

fn both(errors: &LoadError) -> String {
    format!("{errors}\n\n{errors:#}")
}

#[test]
fn errors_of_bounds_say_which_and_what_to_raise() {
    let small = Prompts::builder().max_output_bytes(10).build().unwrap();
    let long = small.compile_and_render("t", "{{ \"0123456789a\" }}", &Context::new()).unwrap_err();
    let fixed = small.compile_and_render("t", "0123456789a", &Context::new()).unwrap_err();
    let prompt = store().compile("t", "one two three four five six").unwrap();
    let fit = prompt.fit(&Context::new(), 3).unwrap_err();
    let text = "---\ndrop_first: [a]\n---\none two three four five six {{ a }}";
    let prompt = store().compile("t", text).unwrap();
    let empty = prompt.fit(Context::new().set("a", "x").unwrap(), 3).unwrap_err();
    insta::assert_snapshot!(shown(&[long, fixed, fit, empty]));
}

#[test]
fn errors_of_functions_name_them() {
    let own = |name: &str, arity| {
        let builder = Prompts::builder().function(name, arity, |_| Err::<_, &str>("on fire"));
        builder.build()
    };
    let prompts = own("burn", 1).unwrap();
    let errors = [
        prompts.compile_and_render("t", "\u{4e2d} {{ burn(1) }}", &Context::new()).unwrap_err(),
        prompts.compile("t", "{{ burn(1, 2) }}").unwrap_err(),
        prompts.compile("t", "{{ brn(1) }}").unwrap_err(),
        own("json", 1).unwrap_err(),
        own("optional", 1).unwrap_err(),
        own("if", 1).unwrap_err(),
        own("a b", 1).unwrap_err(),
        own("none", 0).unwrap_err(),
        own("many", 6).unwrap_err(),
    ];
    insta::assert_snapshot!(shown(&errors));
}

#[test]
fn warnings_say_what_to_move() {
    let text = format!(
        "---\nvariables: [now, task, unused]\nvolatile: [now]\n---\nAt \u{23f0} {{{{ now }}}}: {}\n{{{{ task }}}}",
        "rules ".repeat(100)
    );
    let warnings = store().compile("t", &text).unwrap().warnings();
    insta::assert_snapshot!(shown(&warnings));
}

#[test]
fn a_shape_that_has_no_place_for_a_message_says_so() {
    let messages = [Message::new(Role::User, "u"), Message::new(Role::System, "s")];
    let error = AnthropicMessages::new(&messages).unwrap_err();
    insta::assert_snapshot!(shown(&[error]));
}

#[test]
fn a_long_line_is_cut_around_its_place() {
    let text = format!("{}{{{{ missing }}}}{}", "a ".repeat(100), " b".repeat(100));
    let error = store().compile_and_render("t", &text, &Context::new()).unwrap_err();
    insta::assert_snapshot!(format!("{error:#}"));
    assert_eq!(error.snippet(), Some(text.as_str()));
}
