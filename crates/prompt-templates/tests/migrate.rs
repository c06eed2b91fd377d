//! Go `text/template` files, rewritten, against what Go makes of them.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fmt::Write;

use prompt_templates::{Context, ErrorKind, Prompts, migrate};
use serde_json::{Value, json};

/// Migrates one source and renders it.
fn rendered(go: &str, data: &Value) -> String {
    let migration = migrate([("t.tmpl", go)]);
    let prompts = Prompts::builder().build().unwrap();
    for template in migration.templates.iter().filter(|template| template.name != "t") {
        prompts.compile(&template.name, &template.text).unwrap();
    }
    let text = &migration.templates.iter().find(|template| template.name == "t").unwrap().text;
    let prompt = prompts.compile("t", text).unwrap_or_else(|error| panic!("{text}\n{error:#}"));
    let context = Context::from_serialize(data).unwrap();
    prompt.render(&context).unwrap_or_else(|error| panic!("{text}\n{error:#}"))
}

/// What Go 1.24 prints for each, by the documentation of `text/template`.
#[test]
fn what_is_rewritten_renders_as_in_go() {
    let data = json!({
        "Name": "Ada", "N": 3, "Zero": 0, "Empty": [], "Text": "a\nb", "Flag": true,
        "User": {"Name": "Bo", "Mail": ""},
        "Items": [{"Name": "one", "Done": true, "Tags": ["x", "y"]}, {"Name": "two", "Done": false, "Tags": []}],
        "Words": ["p", "q"], "Map": {"key": "value"},
    });
    for (go, expected) in [
        ("Hello {{.Name}}!", "Hello Ada!"),
        ("{{ .User.Name }} {{- .N -}}  x", "Bo3x"),
        ("{{range .Items}}- {{.Name}}\n{{end}}", "- one\n- two\n"),
        ("{{range $i, $e := .Words}}{{$i}}={{$e}}{{.}} {{end}}", "0=pp 1=qq "),
        ("{{range $w := .Words}}{{$w}}{{end}}", "pq"),
        ("{{range .Empty}}x{{else}}none{{end}}", "none"),
        ("{{range .Words}}{{.}}{{else}}none{{end}}", "pq"),
        ("{{range .Absent}}x{{else}}none{{end}}", "none"),
        ("{{range .Items}}{{$.Name}}:{{range .Tags}}{{.}}{{$.N}}{{end}};{{end}}", "Ada:x3y3;Ada:;"),
        ("{{if .Flag}}a{{else}}b{{end}}{{if .Absent}}c{{else if .Zero}}d{{else}}e{{end}}", "ae"),
        (
            "{{if not .Zero}}z{{end}}{{if and .Flag .N}}y{{end}}{{if or .Zero .Empty .Name}}x{{end}}",
            "zyx",
        ),
        ("{{if eq .N 1 2 3}}in{{end}}{{if and (gt .N 2) (lt .N 4)}} range{{end}}", "in range"),
        ("{{with .User}}{{.Name}}{{end}}{{with .Absent}}x{{else}}none{{end}}", "Bonone"),
        ("{{with $u := .User}}{{$u.Name}}{{.Name}}{{end}}{{with .User.Mail}}x{{end}}", "BoBo"),
        ("{{$x := .Name}}{{$x}}{{range .Words}}{{$x}}{{end}}", "AdaAdaAda"),
        ("{{if .Flag}}{{$x := .N}}{{$x}}{{end}}.", "3."),
        ("{{len .Items}} {{len .Name}} {{index .Words 1}} {{index .Map \"key\"}}", "2 3 q value"),
        ("{{.Name | printf \"%s\"}} {{printf \"%s is %d%%\" .Name .N}}", "Ada Ada is 3%"),
        ("{{/* a comment */}}a {{- /* b */ -}} c", "ac"),
        ("{{\"{{\"}} {{`raw \"x\"`}} {{\"a\\tb\"}}", "{{ raw \"x\" a\tb"),
        (
            "{\"a\": {\"b\": {{.N}}}} {% not a tag %} {# nor this #} }}",
            "{\"a\": {\"b\": 3}} {% not a tag %} {# nor this #} }}",
        ),
        (
            "{{define \"T\"}}<{{.Name}}>{{end}}{{template \"T\" .}}{{template \"T\" .User}}",
            "<Ada><Bo>",
        ),
        ("{{block \"B\" .User}}[{{.Name}}]{{end}}", "[Bo]"),
        // In Go a template sees nothing but what it is given, also inside of `with` and `range`.
        (
            "{{define \"T\"}}<{{.Name}}>{{end}}{{with .User}}{{template \"T\" .}}{{end}}{{template \"T\" $}}",
            "<Bo><Ada>",
        ),
        ("{{define \"T\"}}<>{{end}}{{with .User}}{{template \"T\"}}{{end}}", "<>"),
        (
            "{{define \"T\"}}<{{if .Mail}}{{.Mail}}{{end}}>{{end}}{{range .Items}}{{template \"T\" .}}{{end}}",
            "<><>",
        ),
        (
            "{{range .Items}}{{template \"T\" .}}{{end}}{{define \"T\"}}{{.Name}};{{end}}",
            "one;two;",
        ),
        ("---\nno: front matter\n---\n{{.N}}", "---\nno: front matter\n---\n3"),
        (
            "{{default \"none\" .Absent}} {{.Name | default \"none\"}} {{join \", \" .Words}}",
            "none Ada p, q",
        ),
    ] {
        assert_eq!(rendered(go, &data), expected, "{go}");
    }
}

/// The seed's own example of a longer template.
#[test]
fn the_templates_of_the_seed_are_rewritten_whole() {
    let go = "\n{{range .Items}}\n- {{.Name}}: {{.Value}}\n{{end}}\n";
    let data = json!({"Items": [{"Name": "Item1", "Value": 10}, {"Name": "Item2", "Value": 20}]});
    assert_eq!(migrate([("complex", go)]).notes, []);
    let migration = migrate([("complex", go)]);
    let prompts = Prompts::builder().build().unwrap();
    let context = Context::from_serialize(&data).unwrap();
    let text =
        prompts.compile_and_render("complex", &migration.templates[0].text, &context).unwrap();
    assert_eq!(text, "\n\n- Item1: 10\n\n- Item2: 20\n\n");
}

/// golang/go#24963: what prints `<no value>` in Go is an error here; in a condition it is absent.
#[test]
fn what_go_prints_as_no_value_is_an_error() {
    let migration = migrate([("t", "{{if .X}}{{end}}{{.X}}")]);
    let prompts = Prompts::builder().build().unwrap();
    let error = prompts.compile_and_render("t", &migration.templates[0].text, &Context::new());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::UnknownVariable);
}

#[test]
fn what_has_no_counterpart_is_listed_with_its_line_and_does_not_compile() {
    for (go, why) in [
        ("a\n {{printf \"%5d\" .N}}", "formatting"),
        ("a\n {{ .Time.Format \"2006\" }}", "called with arguments"),
        ("a\n {{upper .Name}}", "Builder::function"),
        ("a\n {{.Name | upper}}", "Builder::function"),
        ("a\n {{html .Name}}", "web"),
        ("a\n {{$x = 2}}", "keeps its value"),
        ("a\n {{range 5}}x{{end}}", "not up to a number"),
        ("a\n {{range .L}}{{break}}{{end}}", "'break'"),
        ("a\n {{if eq 'a' .C}}x{{end}}", "literal"),
        ("a\n {{.}}", "no name"),
        ("a\n {{$y}}", "not declared"),
        ("a\n {{(index .L 0).Name}}", "chain"),
        ("a\n {{template .Name .}}", "is a string"),
        ("a\n {{range $i, $a := .L}}{{range .M}}{{$i}}{{end}}{{end}}", "outer loop"),
        ("{{with .X}}\n {{template \"T\" $}}{{end}}", "what it is to see"),
        ("{{$x := .X}}\n {{template \"T\" .}}", "what it is to see"),
        ("a\n {{else}}", "'else' without"),
        ("a\n {{end}}", "'end' without"),
        ("a\n {{if .X}}", "no 'end'"),
        ("a\n {{.X", "not closed"),
        ("a\n[[user]]\nb", "begins a message"),
    ] {
        let migration = migrate([("t.tmpl", go)]);
        let note = migration.notes.iter().find(|note| note.message.contains(why));
        let note = note.unwrap_or_else(|| panic!("{go}: {:?}", migration.notes));
        assert_eq!((note.source.as_str(), note.line), ("t.tmpl", 2), "{go}");
        let is_dropped =
            why.contains("without") || why.contains("'end'") || why.contains("message");
        let prompts = Prompts::builder().build().unwrap();
        let text = &migration.templates[0].text;
        let outcome = prompts.compile_and_render("t", text, &Context::new());
        assert!(is_dropped || outcome.is_err(), "{go} -> {text}");
    }
}

#[test]
fn sources_that_include_each_other_are_partials_of_each_other() {
    let sources = [
        (
            "mail/body.tmpl",
            "{{template \"header.tmpl\" .}}Body {{template \"sign\" .}}{{define \"sign\"}}-- {{.Me}}{{end}}",
        ),
        ("mail/header.tmpl", "To {{.You}}\n"),
        ("only.tmpl", "{{define \"unused\"}}x{{end}}\n"),
    ];
    let migration = migrate(sources);
    let names: Vec<_> = migration.templates.iter().map(|template| template.name.as_str()).collect();
    assert_eq!(names, ["_sign", "_unused", "mail/_header", "mail/body"]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mail")).unwrap();
    for template in &migration.templates {
        std::fs::write(dir.path().join(format!("{}.prompt.md", template.name)), &template.text)
            .unwrap();
    }
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let context = Context::from_serialize(&json!({"You": "Bo", "Me": "Ada"})).unwrap();
    assert_eq!(prompts.render("mail/body", &context).unwrap(), "To Bo\nBody -- Ada");
}

#[test]
fn a_migration_reads_as_people_would_have_written_it() {
    let go = "{{- /* Reviews a change. */ -}}\n{{with .Task}}# {{.Title}}{{if .Urgent}} (urgent){{end}}\n{{end}}\
              {{range $i, $f := .Files}}\n{{$i}}. {{$f.Path}}: {{printf \"%.1f\" $f.Ratio}}\n{{else}}\nnothing\n{{end}}\
              {{if and .A (or .B (not .C))}}x{{end}}{{template \"rules\" .}}";
    let migration = migrate([("review.tmpl", go)]);
    let mut shown = String::new();
    for template in &migration.templates {
        writeln!(shown, "== {}\n{}", template.name, template.text).unwrap();
    }
    for note in &migration.notes {
        writeln!(shown, "{note}").unwrap();
    }
    insta::assert_snapshot!(shown);
}

mod laws {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the source is, nothing panics, and every note has a place in it.
        #[test]
        fn no_source_panics(parts in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{{- ", " -}}", "if ", "range ", "with ", "end", "else", "define ", "template ",
            "block ", ".A", ".", "$", "$x", ":=", "=", "|", "(", ")", "\"", "`", "'", "\\", "/*", "*/", "{%",
            "{#", "}", "\n", " ", "len ", "index ", "printf ", "\u{4e2d}", "1", "not ", "and ", "---\n", "[[user]]\n",
        ]), 0..40)) {
            let source = parts.concat();
            let migration = prompt_templates::migrate([("t", source.as_str())]);
            for note in &migration.notes {
                prop_assert!(note.line <= source.matches('\n').count() + 1);
            }
        }

        /// Text without actions comes out as it is.
        #[test]
        fn text_is_itself(parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "%", "#", "{%", "%}", "{#", "#}", "}}", "---\n", "x", "\n", " ", "\u{e9}", "raw", "endraw",
        ]), 0..30)) {
            let source = parts.concat();
            prop_assume!(!source.contains("{{"));
            let migration = prompt_templates::migrate([("t", source.as_str())]);
            let text = migration.templates.first().map(|template| template.text.as_str()).unwrap_or_default();
            let prompts = prompt_templates::Prompts::builder().build().unwrap();
            let found = prompts.compile_and_render("t", text, &prompt_templates::Context::new());
            let found = found.map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            prop_assert_eq!(found, source);
        }
    }
}
