//! The text of each kind of error that no template in `tests/cases` gives.

use prompt_templates::{Context, Error, Prompts};

fn store() -> Prompts {
    Prompts::builder().build().expect("an empty store can be made")
}

fn shown(errors: &[Error]) -> String {
    let lines = errors.iter().map(|error| format!("{:?}: {error}", error.kind()));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn errors_of_data_say_what_cannot_be_given_to_a_template() {
    let big = Context::new().set("big", &u64::MAX).unwrap_err();
    let number = Context::from_serialize(&7).unwrap_err();
    insta::assert_snapshot!(shown(&[big, number]));
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
    ];
    insta::assert_snapshot!(shown(&errors));
}

#[test]
fn errors_of_files_name_the_file_as_it_was_given() {
    let absent = Prompts::load_dir("no/such/folder").unwrap_err();
    let none = store().reload().unwrap_err();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.prompt.md"), "{% if x %}").unwrap();
    let broken = Prompts::load_dir(dir.path()).unwrap_err();
    let errors = [absent, none, broken].map(|errors| shown(errors.errors()));
    let text = errors.join("\n").replace(&dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(text);
}
