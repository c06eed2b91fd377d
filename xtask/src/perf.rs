//! The gates of speed: what is measured now against what was committed.
//!
//! A gate is programs in `benches` that print one `name<TAB>value` a line, and a file in `perf/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::flat::{self, Numbers};
use crate::{Failure, metadata, run};

/// Part of a measured ratio that its bound leaves free, because machines differ.
const SLACK: f64 = 0.15;

/// Part of a measured ratio that becomes its bound when it is blessed: [`SLACK`] and a little more.
const BLESSED: f64 = 0.8;

/// A kind of measurement with a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Numbers of allocations: the same on every machine, so any difference fails.
    Allocs,
    /// How many times faster than the other way in the same process: at least the bound.
    Ratio,
}

impl Gate {
    pub(crate) const ALL: [Gate; 2] = [Gate::Allocs, Gate::Ratio];

    /// The programs that measure, one after the other.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Gate::Allocs => &["perf-allocs"],
            Gate::Ratio => &["perf-ratio", "perf-core", "perf-llm", "perf-prompts", "perf-lessons"],
        }
    }

    fn file(self) -> &'static str {
        match self {
            Gate::Allocs => "perf/allocs.toml",
            Gate::Ratio => "perf/ratios.toml",
        }
    }

    /// The section that holds the bounds.
    fn section(self) -> &'static str {
        match self {
            Gate::Allocs => "allocs",
            Gate::Ratio => "minimum",
        }
    }

    fn judge(self, measured: f64, bound: f64) -> Verdict {
        match self {
            Gate::Allocs if measured > bound => Verdict::Fails("rose"),
            Gate::Allocs if measured < bound => Verdict::Fails("fell: commit it with --bless"),
            Gate::Ratio if measured < bound => Verdict::Fails("below its bound"),
            Gate::Ratio if bound > measured * (1.0 - SLACK) => Verdict::Holds("ok, little slack"),
            _ => Verdict::Holds("ok"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Holds(&'static str),
    Fails(&'static str),
}

type Measured = BTreeMap<String, f64>;

/// Measures each gate and compares, or writes what was measured into the file of bounds.
pub(crate) fn perf(root: &Path, gates: &[Gate], bless: bool) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for &gate in gates {
        let mut measured = measure(root, gate)?;
        let path = root.join(gate.file());
        let text = if bless && !path.exists() { String::new() } else { read(&path)? };
        let bounds = flat::numbers(&text).map_err(|fault| format!("{}: {fault}", gate.file()))?;
        if bless {
            std::fs::write(&path, blessed(gate, &text, &bounds, &measured)?)?;
            println!("perf: wrote {}", gate.file());
            continue;
        }
        let (mut table, mut faults) = compare(gate, &measured, &bounds);
        // A ratio of two times can be spoiled by a neighbour; one that is really lost stays lost.
        if gate == Gate::Ratio && faults > 0 {
            println!("{table}perf: once more, a busy machine can spoil a ratio");
            measured = measure(root, gate)?;
            (table, faults) = compare(gate, &measured, &bounds);
        }
        print!("{table}");
        if faults > 0 {
            failed.push(format!("{faults} in {}", gate.file()));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("perf: {}", failed.join(", ")).into()) }
}

/// Builds and runs the programs. The build names `batchyard` too, because cargo joins the features
/// of what it is asked to build: so the dependencies are those of the README's command, and are
/// not built a second time. For the same reason every gate is built with the peers.
fn measure(root: &Path, gate: Gate) -> Result<Measured, Failure> {
    let mut cargo = run::cargo(root, ["build", "--release", "--quiet", "--locked"]);
    cargo.args(["-p", "benches", "-p", "batchyard"]);
    cargo.args(["--features", "benches/peers,benches/lessons"]);
    run::run(cargo.args(gate.programs().iter().flat_map(|program| ["--bin", program])))?;
    let folder = metadata::target(root)?.join("release");
    let mut measured = Measured::new();
    for program in gate.programs() {
        let mut command = Command::new(folder.join(program));
        command.current_dir(root).stdin(Stdio::null());
        let output = String::from_utf8(run::read(&mut command)?)?;
        for (name, value) in lines(&output).map_err(|fault| format!("{program}: {fault}"))? {
            if measured.insert(name.clone(), value).is_some() {
                return Err(format!("{program}: another program measures `{name}` too").into());
            }
        }
    }
    Ok(measured)
}

/// Reads `name<TAB>value` lines.
fn lines(output: &str) -> Result<Measured, String> {
    let mut measured = Measured::new();
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let value = line.split_once('\t').and_then(|(name, value)| {
            let value: f64 = value.trim().parse().ok()?;
            value.is_finite().then(|| (name.trim().to_owned(), value))
        });
        let (name, value) = value.ok_or_else(|| format!("not `name<TAB>value`: `{line}`"))?;
        if measured.insert(name.clone(), value).is_some() {
            return Err(format!("`{name}` stands twice"));
        }
    }
    if measured.is_empty() { Err("measured nothing".to_owned()) } else { Ok(measured) }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns a table of all names, and how many of them fail. A name on one side only fails.
fn compare(gate: Gate, measured: &Measured, bounds: &Numbers) -> (String, usize) {
    let none = BTreeMap::new();
    let promised = bounds.get("promised").unwrap_or(&none);
    let bounds = bounds.get(gate.section()).unwrap_or(&none);
    let names: BTreeSet<&String> =
        measured.keys().chain(bounds.keys()).chain(promised.keys()).collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(4);
    let mut table =
        format!("{:width$}  {:>12}  {:>12}  verdict\n", gate.section(), "measured", "bound");
    let mut faults = 0;
    for name in names {
        let (now, bound) = (measured.get(name), bounds.get(name));
        let verdict = match (now, bound) {
            (Some(_), Some(bound))
                if promised.get(name).is_some_and(|promised| promised > bound) =>
            {
                Verdict::Fails("its bound is less than was promised")
            }
            (Some(&now), Some(&bound)) => gate.judge(now, bound),
            (None, _) => Verdict::Fails("no longer measured"),
            (_, None) => Verdict::Fails("no bound: commit one with --bless"),
        };
        let (mark, words) = match verdict {
            Verdict::Holds(words) => ("", words),
            Verdict::Fails(words) => ("FAILED: ", words),
        };
        faults += usize::from(!mark.is_empty());
        let _ = writeln!(
            table,
            "{name:width$}  {:>12}  {:>12}  {mark}{words}",
            shown(now),
            shown(bound)
        );
    }
    (table, faults)
}

fn shown(number: Option<&f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number.fract() == 0.0 => format!("{number}"),
        Some(number) => format!("{number:.2}"),
    }
}

/// The new text of the file: the comment at its head and the other sections stay as they are.
///
/// A ratio that was promised is never blessed away: it is an error to measure less than
/// `[promised]` says, slack included.
fn blessed(
    gate: Gate,
    text: &str,
    bounds: &Numbers,
    measured: &Measured,
) -> Result<String, String> {
    let none = BTreeMap::new();
    let promised = bounds.get("promised").unwrap_or(&none);
    let mut section = BTreeMap::new();
    for (name, &value) in measured {
        let bound = match gate {
            Gate::Allocs => value,
            Gate::Ratio => {
                let floor = promised.get(name).copied().unwrap_or(0.0);
                if floor > value * (1.0 - SLACK) {
                    return Err(format!(
                        "`{name}`: {value:.2} leaves no slack above the promised {floor}"
                    ));
                }
                // Two digits are more than a busy machine can tell apart.
                ((value * BLESSED * 100.0).floor() / 100.0).max(floor)
            }
        };
        section.insert(name.clone(), bound);
    }
    let head: String = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .fold(String::new(), |head, line| head + line + "\n");
    let mut out = head;
    for (name, numbers) in bounds.iter().filter(|(name, _)| *name != gate.section()) {
        out.push('\n');
        flat::write_section(&mut out, name, numbers);
    }
    out.push('\n');
    flat::write_section(&mut out, gate.section(), &section);
    Ok(out.trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(pairs: &[(&str, f64)]) -> Measured {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    }

    fn faults(gate: Gate, now: &[(&str, f64)], bounds: &str) -> usize {
        compare(gate, &measured(now), &flat::numbers(bounds).unwrap()).1
    }

    #[test]
    fn any_difference_in_allocations_fails() {
        assert_eq!(faults(Gate::Allocs, &[("a", 10.0)], "[allocs]\na = 10"), 0);
        assert_eq!(faults(Gate::Allocs, &[("a", 11.0)], "[allocs]\na = 10"), 1);
        assert_eq!(faults(Gate::Allocs, &[("a", 9.0)], "[allocs]\na = 10"), 1);
    }

    #[test]
    fn a_ratio_fails_below_its_bound_only() {
        assert_eq!(faults(Gate::Ratio, &[("a", 20.0)], "[minimum]\na = 15"), 0);
        assert_eq!(faults(Gate::Ratio, &[("a", 15.0)], "[minimum]\na = 15"), 0);
        assert_eq!(faults(Gate::Ratio, &[("a", 14.9)], "[minimum]\na = 15"), 1);
    }

    #[test]
    fn a_name_on_one_side_only_fails() {
        assert_eq!(faults(Gate::Allocs, &[("a", 1.0), ("b", 1.0)], "[allocs]\na = 1"), 1);
        assert_eq!(faults(Gate::Allocs, &[("a", 1.0)], "[allocs]\na = 1\nb = 1"), 1);
        assert_eq!(faults(Gate::Allocs, &[("a", 1.0)], "[other]\na = 1"), 1);
    }

    #[test]
    fn a_bound_below_the_promise_fails() {
        let now = [("push", 40.0)];
        assert_eq!(faults(Gate::Ratio, &now, "[promised]\npush = 15\n[minimum]\npush = 15"), 0);
        assert_eq!(faults(Gate::Ratio, &now, "[promised]\npush = 15\n[minimum]\npush = 14"), 1);
        assert_eq!(faults(Gate::Ratio, &now, "[promised]\nx = 1\n[minimum]\npush = 14"), 1);
    }

    #[test]
    fn the_table_shows_both_numbers_and_the_verdict() {
        let bounds = flat::numbers("[minimum]\npush_100 = 15").unwrap();
        let (table, _) = compare(Gate::Ratio, &measured(&[("push_100", 12.345)]), &bounds);
        assert!(
            table.contains("push_100         12.35            15  FAILED: below its bound"),
            "{table}"
        );
    }

    #[test]
    fn output_that_is_not_name_and_value_is_refused() {
        assert_eq!(lines("a\t1\n\nb/c\t2.5\n").unwrap(), measured(&[("a", 1.0), ("b/c", 2.5)]));
        for output in ["", "a 1", "a\tx", "a\tinf", "a\t1\na\t2"] {
            assert!(lines(output).is_err(), "{output:?}");
        }
    }

    #[test]
    fn blessing_keeps_the_comment_and_other_sections() {
        let text = "# why these\n[minimum]\nold = 2\n[promised]\npush = 15\n";
        let bounds = flat::numbers(text).unwrap();
        let new = blessed(Gate::Ratio, text, &bounds, &measured(&[("push", 40.0)])).unwrap();
        assert_eq!(new, "# why these\n\n[promised]\npush = 15\n\n[minimum]\npush = 32\n");
    }

    #[test]
    fn a_promise_is_never_blessed_away() {
        let text = "[promised]\npush = 15\n";
        let bounds = flat::numbers(text).unwrap();
        let near = blessed(Gate::Ratio, text, &bounds, &measured(&[("push", 18.0)])).unwrap();
        assert!(near.ends_with("[minimum]\npush = 15\n"), "{near}");
        let fault = blessed(Gate::Ratio, text, &bounds, &measured(&[("push", 16.0)])).unwrap_err();
        assert!(fault.contains("promised 15"), "{fault}");
    }
}
