//! The READMEs say what `--help` says: no option is missing, and none is there that does not exist.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Yard;

/// Options of every command, which are told once.
const OF_ALL: [&str; 4] = ["--help", "--json", "--quiet", "--verbose"];

const OWN: &str = include_str!("../README.md");
const ROOT: &str = include_str!("../../../README.md");

/// Every command that does something, as it is typed, with its options.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let yard = Yard::new();
    let mut commands = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let help = yard.run(command.split_whitespace().chain(["-h"])).code(0).stdout;
        let subcommands: Vec<String> = section(&help, "Commands:")
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .map(|name| format!("{command} {name}").trim_start().to_owned())
            .collect();
        if subcommands.is_empty() {
            // A description may speak of another option; it begins further on.
            let begins = |line: &&str| line.starts_with("      --") || line.starts_with("  -");
            let lines = section(&help, "Options:").filter(begins);
            let options = lines.filter_map(|line| options_in(line).into_iter().next());
            commands.insert(command, options.collect());
        } else {
            open.extend(subcommands);
        }
    }
    commands
}

/// The lines of a section of a help text.
fn section<'t>(help: &'t str, name: &'t str) -> impl Iterator<Item = &'t str> {
    let lines = help.lines().skip_while(move |line| *line != name).skip(1);
    lines.take_while(|line| line.is_empty() || line.starts_with(' '))
}

/// The options that a text names.
fn options_in(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let is_beginning = !rest[..at].ends_with(|c: char| is_part(c) || c == '|');
        rest = &rest[at..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if is_beginning && end > 2 && !rest[..end].ends_with('-') {
            found.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    found
}

/// The commands that a text begins with; `lessons add|query FILE` are two.
fn named<'c>(
    text: &str,
    commands: &'c BTreeMap<String, BTreeSet<String>>,
) -> Vec<(&'c String, &'c BTreeSet<String>)> {
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_named = |command: &str| {
        let mut parts = command.split(' ');
        parts.next() == Some(first)
            && parts.next().is_none_or(|part| second.split('|').any(|word| word == part))
    };
    commands.iter().filter(|(command, _)| is_named(command)).collect()
}

/// The rows of the table that begins with that head, cell by cell; `\|` in them is a bar.
fn rows<'t>(text: &'t str, head: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| *line != head).skip(2);
    let cells = |line: &'t str| {
        let cells = line.trim_matches('|').replace("\\|", "\0");
        cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
    };
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What stands between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_option_stands_in_the_readme_and_no_other() {
    let commands = commands();
    assert!(commands.len() > 15 && commands.contains_key("git apply"), "{commands:?}");
    let mut told: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(OWN, "| options of | |") {
        let of: Vec<_> = code(&row[0]).flat_map(|name| named(name, &commands)).collect();
        assert!(!of.is_empty(), "no command: {row:?}");
        for (command, _) in of {
            let options = told.entry(command).or_default();
            options.extend(code(&row[1]).flat_map(options_in));
        }
    }
    for (command, options) in &commands {
        let own: BTreeSet<String> =
            options.iter().filter(|option| !OF_ALL.contains(&option.as_str())).cloned().collect();
        let told = told.remove(command).unwrap_or_default();
        let missing: Vec<_> = own.difference(&told).collect();
        let unknown: Vec<_> = told.difference(&own).collect();
        assert!(missing.is_empty(), "README.md lacks {missing:?} of `{command}`");
        assert!(unknown.is_empty(), "README.md has {unknown:?}, which `{command}` has not");
    }
}

#[test]
fn every_command_stands_in_the_readme_with_options_that_it_has() {
    let commands = commands();
    let mut told = BTreeSet::new();
    for row in rows(OWN, "| command | what it does |") {
        for text in code(&row[0]) {
            let of = named(text, &commands);
            assert!(!of.is_empty(), "no command: {text}");
            for (command, options) in of {
                told.insert(command);
                for option in options_in(text) {
                    assert!(options.contains(&option), "`{command}` has no {option}: {text}");
                }
            }
        }
    }
    let missing: Vec<_> = commands.keys().filter(|command| !told.contains(command)).collect();
    assert!(missing.is_empty(), "README.md lacks the commands {missing:?}");
}

/// In examples the command is known; elsewhere an option must be one of some command.
#[test]
fn what_the_readmes_type_can_be_typed() {
    let commands = commands();
    let of_others = ["--release", "--open", "--path", "--all"];
    let mut examples = 0;
    for (name, text) in [("crates/batchyard/README.md", OWN), ("README.md", ROOT)] {
        for (number, line) in text.lines().enumerate() {
            let place = format!("{name}:{}: {line}", number + 1);
            for option in options_in(line) {
                let is_known = commands.values().any(|options| options.contains(&option));
                assert!(is_known || of_others.contains(&option.as_str()), "{option}: {place}");
            }
            for typed in line.match_indices("batchyard ").map(|(at, word)| &line[at + word.len()..])
            {
                let typed = typed.split(['`', '|', '&', ';']).next().unwrap_or_default();
                for (command, options) in named(typed, &commands) {
                    examples += 1;
                    for option in options_in(typed) {
                        assert!(options.contains(&option), "`{command}` has no {option}: {place}");
                    }
                }
            }
        }
    }
    assert!(examples >= 5, "{examples} examples were found");
}

/// The program itself says which keys there are.
#[test]
fn every_key_of_a_plan_stands_in_the_readme_and_in_the_example() {
    let example = include_str!("../../../examples/fleet/fleet.toml");
    let yard = Yard::new();
    let plans = OWN.split_once("## Plans").expect("a section").1;
    let mut keys = 0;
    for table in ["", "[land]", "[gate]\nrun = [\"x\"]", "[demo]\nsource = \".\"", "[[task]]"] {
        let head = "prompts = \"p\"\nlessons = \"l\"\n";
        yard.write("plan.toml", format!("{head}{table}\nunknown_key = 1\n"));
        let said = yard.run(["run", "plan.toml"]).code(2).stderr;
        let known = said.split_once("expected").expect("the keys are told").1;
        for key in code(known) {
            keys += 1;
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let has = |text: &str| text.split(|c| !is_word(c)).any(|word| word == key);
            assert!(has(plans), "README.md lacks {key} of {table}");
            assert!(has(example), "fleet.toml lacks {key} of {table}");
        }
    }
    assert!(keys > 20, "{keys} keys were found");
}
