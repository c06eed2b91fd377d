//! The same prompt for each engine, and data for it.

use serde_json::{Value, json};

/// Returns a prompt of 4 KB with 20 lessons, 10 files and 4 conditions.
pub fn large() -> String {
    format!(
        "{}Task {{{{ task.id }}}}: {{{{ task.title }}}}\n\
         {{% if task.urgent %}}This is urgent.\n{{% endif %}}\
         {{% if task.notes %}}Notes: {{{{ task.notes }}}}\n{{% else %}}No notes.\n{{% endif %}}\
         ## Lessons\n{{% for lesson in lessons %}}- {{{{ lesson.failure }}}} ({{{{ lesson.seen }}}} times): \
         {{{{ lesson.resolution }}}}\n{{% endfor %}}\
         ## Files\n{{% for file in files %}}### {{{{ file.path }}}}\n{{% if file.generated %}}generated\n\
         {{% endif %}}{{{{ file.text }}}}\n{{% endfor %}}\
         {{% if strict %}}Answer with JSON only.\n{{% endif %}}{}",
        rules(18),
        rules(18)
    )
}

/// Returns the same for handlebars.
pub fn large_handlebars() -> String {
    let pairs = [
        ("{% if task.urgent %}", "{{#if task.urgent}}"),
        ("{% if task.notes %}", "{{#if task.notes}}"),
        ("{% if strict %}", "{{#if strict}}"),
        ("{% if file.generated %}", "{{#if generated}}"),
        ("{% else %}", "{{else}}"),
        ("{% endif %}", "{{/if}}"),
        ("{% for lesson in lessons %}", "{{#each lessons}}"),
        ("{% for file in files %}", "{{#each files}}"),
        ("{% endfor %}", "{{/each}}"),
        ("{{ lesson.", "{{ "),
        ("{{ file.", "{{ "),
    ];
    pairs.iter().fold(large(), |text, (from, to)| text.replace(from, to))
}

/// Returns data for them.
pub fn data() -> Value {
    let lesson = |n: u64| {
        json!({
            "failure": format!("the build of target {n} failed: out of memory while linking"),
            "seen": n,
            "resolution": "link with fewer jobs, and strip debug information first",
        })
    };
    let file = |n: u64| {
        json!({
            "path": format!("crates/part-{n}/src/lib.rs"),
            "generated": n.is_multiple_of(3),
            "text": "pub fn add(a: u64, b: u64) -> u64 {\n    a.saturating_add(b)\n}".repeat(2),
        })
    };
    json!({
        "task": {
            "id": 4_711,
            "title": "Make the linker use less memory",
            "urgent": true,
            "notes": "Only the release build is concerned.",
        },
        "lessons": (1..=20).map(lesson).collect::<Vec<_>>(),
        "files": (1..=10).map(file).collect::<Vec<_>>(),
        "strict": true,
    })
}

/// Text that is the same in every render.
fn rules(count: usize) -> String {
    let rule = |n| {
        format!("{n}. Keep functions small; name what can fail, and test what you name it for.\n")
    };
    (1..=count).map(rule).collect::<Vec<_>>().concat()
}
