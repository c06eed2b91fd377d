//! What a store of templates promises: one compile a text, new versions, bounds, exact counts.

use prompt_templates::{Context, Error, ErrorKind, Prompts};
use serde_json::json;

fn store(capacity: usize) -> Prompts {
    Prompts::builder().capacity(capacity).build().expect("an empty store can be made")
}

fn data(value: &serde_json::Value) -> Context {
    Context::from_serialize(value).expect("a map is data")
}

#[test]
fn a_new_store_is_empty_and_has_its_capacity() {
    assert_eq!(store(50).stats().capacity, 50);
    assert_eq!(store(0).stats().capacity, 100);
    assert!(store(50).is_empty());
}

#[test]
fn a_text_is_compiled_under_its_name() {
    let prompts = store(50);
    let prompt = prompts.compile("test", "Hello {{.Name}}!").unwrap();
    assert_eq!((prompt.name(), prompt.text()), ("test", "Hello {{.Name}}!"));
    assert!(prompts.contains("test") && !prompts.contains("other"));
}

#[test]
fn the_same_text_is_compiled_once() {
    let prompts = store(50);
    let first = prompts.compile("test", "Hello {{.Name}}!").unwrap();
    let second = prompts.compile("test", "Hello {{.Name}}!").unwrap();
    assert_eq!(first.version(), second.version());
    assert_eq!(prompts.len(), 1);
    let stats = prompts.stats();
    assert_eq!((stats.compiles, stats.hits, stats.publications), (1, 1, 1));
}

#[test]
fn a_template_renders_data() {
    let prompts = store(50);
    prompts.compile("test", "Hello {{.Name}}!").unwrap();
    assert_eq!(prompts.render("test", &data(&json!({"Name": "World"}))).unwrap(), "Hello World!");
}

#[test]
fn an_unknown_name_is_an_error_that_suggests() {
    let prompts = store(50);
    prompts.compile("review", "x").unwrap();
    let error = prompts.render("reveiw", &Context::new()).unwrap_err();
    assert_eq!((error.kind(), error.suggestion()), (ErrorKind::NotFound, Some("review")));
    assert!(prompts.get("reveiw").is_none());
}

#[test]
fn compile_and_render_does_both() {
    let sum = "{{.X}} + {{.Y}} = {{.Z}}";
    let text = store(50).compile_and_render("test", sum, &data(&json!({"X": 2, "Y": 3, "Z": 5})));
    assert_eq!(text.unwrap(), "2 + 3 = 5");
}

#[test]
fn every_render_is_counted() {
    let prompts = store(50);
    prompts.compile("test", "Count: {{ n }}").unwrap();
    for n in 1..=3 {
        let text = prompts.render("test", &data(&json!({"n": n}))).unwrap();
        assert_eq!(text, format!("Count: {n}"));
    }
    prompts.render("test", &Context::new()).unwrap_err();
    let stats = prompts.template_stats("test").unwrap();
    assert_eq!((stats.renders, stats.render_failures), (4, 1));
    assert!(stats.avg_render.is_some());
}

#[test]
fn a_template_has_figures_of_its_own() {
    let prompts = store(50);
    prompts.compile("test", "Hello {{ x }}").unwrap();
    let stats = prompts.template_stats("test").unwrap();
    assert_eq!((stats.name.as_str(), stats.renders, stats.hits), ("test", 0, 0));
    assert!(stats.compiled_at > std::time::SystemTime::UNIX_EPOCH);
    assert!(stats.compile_time > std::time::Duration::ZERO);
    assert_eq!(stats.avg_render, None);
    assert!(prompts.template_stats("other").is_none());
}

#[test]
fn all_templates_have_figures_ordered_by_name() {
    let prompts = store(50);
    for name in ["test2", "test3", "test1"] {
        prompts.compile(name, "Template").unwrap();
    }
    let names: Vec<_> = prompts.all_template_stats().into_iter().map(|stats| stats.name).collect();
    assert_eq!(names, ["test1", "test2", "test3"]);
    assert_eq!(prompts.names(), names);
}

#[test]
fn clear_removes_everything() {
    let prompts = store(50);
    prompts.compile("_part", "p").unwrap();
    prompts.compile("test1", "{% include \"_part\" %}").unwrap();
    assert_eq!(prompts.len(), 2);
    prompts.clear().unwrap();
    assert!(prompts.is_empty() && !prompts.contains("test1"));
}

#[test]
fn remove_removes_one() {
    let prompts = store(50);
    prompts.compile("test1", "Template 1").unwrap();
    prompts.compile("test2", "Template 2").unwrap();
    assert!(prompts.remove("test1").unwrap());
    assert!(!prompts.remove("test1").unwrap());
    assert!(!prompts.contains("test1") && prompts.contains("test2"));
}

#[test]
fn what_others_include_cannot_be_removed() {
    let prompts = store(50);
    prompts.compile("_part", "p").unwrap();
    prompts.compile("whole", "{% include \"_part\" %}").unwrap();
    let error = prompts.remove("_part").unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::InUse, Some("_part")));
    assert!(prompts.remove("whole").unwrap() && prompts.remove("_part").unwrap());
}

#[test]
fn over_the_capacity_the_oldest_unused_goes() {
    let prompts = store(3);
    for name in ["test1", "test2", "test3", "test4"] {
        prompts.compile(name, "Template").unwrap();
    }
    assert_eq!(prompts.names(), ["test2", "test3", "test4"]);
    // Used ones stay: here the second.
    prompts.get("test2").unwrap();
    prompts.compile("test5", "Template").unwrap();
    assert_eq!(prompts.names(), ["test2", "test4", "test5"]);
    assert_eq!(prompts.stats().evictions, 2);
    assert_eq!(prompts.stats().called, 3);
}

#[test]
fn what_is_included_is_never_evicted() {
    let prompts = store(2);
    prompts.compile("_part", "p").unwrap();
    prompts.compile("whole", "{% include \"_part\" %}").unwrap();
    for n in 0..10 {
        prompts.get("whole").unwrap();
        prompts.compile(&format!("other{n}"), "x").unwrap();
        assert_eq!(prompts.render("whole", &Context::new()).unwrap(), "p");
    }
    assert!(prompts.len() <= 3);
}

#[test]
fn an_evicted_prompt_that_is_held_goes_on() {
    let prompts = store(1);
    let held = prompts.compile("a", "I am {{ x }}").unwrap();
    prompts.compile("b", "x").unwrap();
    assert!(!prompts.contains("a"));
    assert_eq!(held.render(&data(&json!({"x": "here"}))).unwrap(), "I am here");
}

#[test]
fn contains_says_whether_a_name_is_there() {
    let prompts = store(50);
    assert!(!prompts.contains("test"));
    prompts.compile("test", "Template").unwrap();
    assert!(prompts.contains("test"));
}

#[test]
fn the_store_counts_exactly() {
    let prompts = store(50);
    prompts.compile("test1", "Template 1").unwrap();
    prompts.render("test1", &Context::new()).unwrap();
    prompts.compile("test2", "Template 2").unwrap();
    prompts.messages("test2", &Context::new()).unwrap();
    prompts.render("test2", &Context::new()).unwrap();
    prompts.compile("test3", "{{").unwrap_err();
    prompts.compile("test3", "{% include \"absent\" %}").unwrap_err();
    let stats = prompts.stats();
    assert_eq!((stats.templates, stats.capacity, stats.renders), (2, 50, 3));
    assert_eq!((stats.compile_failures, stats.render_failures), (2, 0));
    assert!(stats.avg_render.is_some());
    assert!((stats.usage_ratio() - 0.04).abs() < 1e-9);
}

#[test]
fn counts_stay_when_a_name_gets_a_new_text_or_goes() {
    let prompts = store(50);
    prompts.compile("a", "1").unwrap().render(&Context::new()).unwrap();
    prompts.compile("a", "2").unwrap().render(&Context::new()).unwrap();
    assert_eq!(prompts.template_stats("a").unwrap().renders, 2);
    prompts.remove("a").unwrap();
    assert_eq!(prompts.stats().renders, 2);
}

#[test]
fn a_list_is_rendered_item_by_item() {
    let text = "\n{% for item in .Items %}\n- {{ item.Name }}: {{ item.Value }}\n{% endfor %}\n";
    let items = json!({"Items": [{"Name": "Item1", "Value": 10}, {"Name": "Item2", "Value": 20}]});
    let text = store(50).compile_and_render("list", text, &data(&items)).unwrap();
    assert_eq!(text, "\n\n- Item1: 10\n\n- Item2: 20\n\n");
}

#[test]
fn a_text_that_does_not_parse_is_an_error_with_a_place() {
    let error = store(50).compile("test", "{{.Name} missing closing bracket").unwrap_err();
    assert_eq!((error.kind(), error.line(), error.column()), (ErrorKind::Syntax, Some(1), Some(1)));
    assert_eq!(error.template_name(), Some("test"));
}

#[test]
fn a_new_partial_is_a_new_version_of_what_includes_it() {
    let prompts = store(50);
    prompts.compile("_inner", "1").unwrap();
    prompts.compile("_part", "<{% include \"_inner\" %}>").unwrap();
    let old = prompts.compile("whole", "{% include \"_part\" %}{% include \"_inner\" %}").unwrap();
    prompts.compile("_inner", "2").unwrap();
    assert_eq!(prompts.render("whole", &Context::new()).unwrap(), "<2>2");
    assert_eq!(old.render(&Context::new()).unwrap(), "<1>1", "a handle keeps what it has");
}

#[test]
fn a_partial_that_does_not_go_with_its_users_is_refused() {
    let prompts = store(50);
    prompts.compile("_part", "{{ a }}").unwrap();
    prompts.compile("whole", "---\nvariables: [a]\n---\n{% include \"_part\" %}").unwrap();
    let error = prompts.compile("_part", "{{ b }}").unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::UnknownVariable, Some("b")));
    assert_eq!(error.template_name(), Some("whole"));
    let error = prompts.compile("_part", "{% include \"whole\" %}").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cycle);
    assert_eq!(prompts.render("whole", &data(&json!({"a": 1}))).unwrap(), "1");
}

#[test]
fn variables_are_those_that_no_block_binds() {
    let prompts = store(50);
    prompts.compile("_part", "{{ item }}{{ ?.deep.er }}").unwrap();
    let text = "[[system]]\n{% for item in items %}{{ loop.index }}{% include \"_part\" %}{% endfor %}\n\
                {% with a.b as c %}{{ c }}{% endwith %}{% include \"_part\" with x %}\n[[history]]\n";
    let prompt = prompts.compile("whole", text).unwrap();
    assert_eq!(prompt.variables(), ["a", "deep", "history", "items", "x"]);
}

#[test]
fn front_matter_is_kept_and_not_rendered() {
    let text = "---\nmodel: small\nlabels: [a, b]\n---\nHi";
    let prompt = store(50).compile("a", text).unwrap();
    assert_eq!(prompt.meta("model").and_then(|meta| meta.as_text()), Some("small"));
    assert_eq!(prompt.meta("labels").and_then(|meta| meta.as_list()).unwrap(), ["a", "b"]);
    assert_eq!(prompt.front_matter().map(|(key, _)| key).collect::<Vec<_>>(), ["labels", "model"]);
    assert_eq!(prompt.render(&Context::new()).unwrap(), "Hi");
}

#[test]
fn windows_line_ends_are_kept_and_understood() {
    let text =
        "---\r\nvariables: [a]\r\n---\r\n[[system]]\r\nS\r\n\r\n[[user]]\r\nx\r\n{{ a }}\r\n";
    let messages = store(50).compile("a", text).unwrap().messages(&data(&json!({"a": 1}))).unwrap();
    let contents: Vec<_> = messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(contents, ["S", "x\r\n1"]);
}

#[test]
fn a_failed_change_has_every_accessor_of_an_error() {
    let error: Error = store(50).compile("t", "\n {{ lenn(x) }}").unwrap_err();
    assert_eq!((error.name(), error.suggestion()), (Some("lenn"), Some("len")));
    assert_eq!((error.message(), error.file()), ("unknown function 'lenn'", None));
    assert!(error.available().iter().any(|name| name == "json"));
    assert_eq!(error.help_text(), None);
}

#[test]
fn the_times_of_renders_are_counted_by_powers_of_two() {
    let prompts = Prompts::builder().exact_timing().build().unwrap();
    let prompt = prompts.compile("test", "{{ n }}").unwrap();
    for n in 0..100 {
        prompt.render(&data(&json!({"n": n}))).unwrap();
    }
    prompt.render(&Context::new()).unwrap_err();
    let times = prompts.template_stats("test").unwrap().render_times;
    assert_eq!(times.count(), 101);
    assert_eq!(times.buckets().map(|(_, count)| count).sum::<u64>(), 101);
    assert!(times.buckets().map(|(limit, _)| limit).is_sorted());
    let (half, most, all) = (times.quantile(0.5), times.quantile(0.99), times.quantile(1.0));
    assert!(half <= most && most <= all && half.is_some(), "{times:?}");
    assert_eq!(all, times.buckets().last().map(|(limit, _)| limit));
    assert_eq!(prompts.stats().render_times, times, "the store has no other template");

    let sampled = store(50);
    let prompt = sampled.compile("test", "x").unwrap();
    for _ in 0..129 {
        prompt.render(&Context::new()).unwrap();
    }
    assert_eq!(sampled.stats().render_times.count(), 3, "one in 64, the first among them");
    assert_eq!(sampled.stats().renders, 129);
}

#[test]
fn a_reset_sets_every_count_to_zero_and_keeps_the_templates() {
    let prompts = store(50);
    let prompt = prompts.compile("test", "{{ n }}").unwrap();
    prompts.compile("test", "{{ n }}").unwrap();
    prompt.render(&data(&json!({"n": 1}))).unwrap();
    prompt.render(&Context::new()).unwrap_err();
    prompts.compile("bad", "{{").unwrap_err();
    prompts.reset_stats();
    let stats = prompts.stats();
    assert_eq!(
        (stats.compiles, stats.compile_failures, stats.hits, stats.renders, stats.render_failures),
        (0, 0, 0, 0, 0)
    );
    assert_eq!((stats.publications, stats.avg_render, stats.templates), (0, None, 1));
    assert_eq!(stats.render_times.count(), 0);
    let of_one = prompts.template_stats("test").unwrap();
    assert_eq!((of_one.renders, of_one.hits, of_one.version), (0, 0, prompt.version()));
    prompt.render(&data(&json!({"n": 1}))).unwrap();
    assert_eq!((prompts.stats().renders, prompts.template_stats("test").unwrap().renders), (1, 1));
}
