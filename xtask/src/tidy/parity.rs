//! The table of what the seed had and where it is here: no item is missing, and every test that a
//! row names exists.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

/// Sections (`## path of the seed's file`) of rows `| item | status | where |`.
const TABLE: &str = "docs/seed-parity.md";

/// Every item that has to have a row, one a line: the seed's file, a space, the item.
const ITEMS: &str = "docs/seed-items.txt";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(table), Some(items)) = (tree.get(TABLE), tree.get(ITEMS)) else {
        return vec![Finding::new(TABLE, 0, format!("missing, or {ITEMS} is"))];
    };
    let mut findings = Vec::new();
    let mut cells = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for row in rows(table) {
        let mut found = |what: String| findings.push(Finding::new(TABLE, row.line, what));
        let item = row.item();
        seen.insert((row.file, item));
        if !cells.insert((row.file, row.cell)) {
            found(format!("`{item}` stands twice"));
        }
        let named = references(row.place);
        match row.status {
            "covered" | "fault" if named.is_empty() => {
                found(format!("`{item}` is {} and names no test", row.status));
            }
            "owed" if row.place.is_empty() => found(format!("`{item}` is owed by nobody")),
            "covered" | "fault" | "owed" => {}
            other => found(format!("`{other}` is neither covered nor owed nor fault")),
        }
        for (path, function) in named {
            if !defines(tree, path, function) {
                found(format!("no `fn {function}` in `{path}`"));
            }
        }
    }
    let items: BTreeSet<(&str, &str)> = items
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect();
    if items.is_empty() {
        findings.push(Finding::new(ITEMS, 0, "names no item"));
    }
    for (file, item) in items {
        if !seen.contains(&(file, item)) {
            findings.push(Finding::new(TABLE, 0, format!("no row for `{item}` of {file}")));
        }
    }
    findings
}

struct Row<'a> {
    line: usize,
    file: &'a str,
    /// The whole first cell: an item between backticks, and what of it is meant.
    cell: &'a str,
    status: &'a str,
    place: &'a str,
}

impl<'a> Row<'a> {
    fn item(&self) -> &'a str {
        self.cell.split('`').nth(1).unwrap_or(self.cell)
    }
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut file = "";
    for (index, line) in table.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            file = heading.trim().trim_matches('`');
        }
        let inside = line.strip_prefix('|').and_then(|rest| rest.trim_end().strip_suffix('|'));
        let Some(inside) = inside else { continue };
        let mut cells = inside.splitn(3, '|').map(str::trim);
        let (Some(cell), Some(status), Some(place)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let rule = cell.trim_matches(['-', ':']).is_empty();
        if !rule && cell != "seed item" {
            rows.push(Row { line: index + 1, file, cell, status, place });
        }
    }
    rows
}

/// Returns the file and function of each `crate/path.rs::module::function`.
fn references(place: &str) -> Vec<(&str, &str)> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | ':');
    let words = place.split(|c| !part(c)).map(|word| word.trim_matches([':', '.']));
    words
        .filter_map(|word| {
            let (path, function) = word.split_once(".rs::")?;
            Some((&word[..path.len() + ".rs".len()], function.rsplit("::").next()?))
        })
        .collect()
}

/// Whether the function stands in the file; a path of a crate may leave out `crates/`.
fn defines(tree: &Tree, path: &str, function: &str) -> bool {
    let text = tree.get(path).or_else(|| tree.get(&format!("crates/{path}")));
    let begin = format!("fn {function}");
    text.is_some_and(|text| {
        text.match_indices(&begin).any(|(at, _)| text[at + begin.len()..].starts_with(['(', '<']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\nfn holds() {}\nfn generic<T>() {}\n";

    fn whats(items: &str, rows: &str) -> Vec<String> {
        let table = format!(
            "# Parity\n\n## `a/b.go`\n\n| seed item | status | where |\n|---|---|---|\n{rows}"
        );
        let files = [(TABLE, table.as_str()), (ITEMS, items), ("crates/x/tests/t.rs", SOURCE)];
        check(&Tree::of(&files)).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn a_whole_table_passes() {
        let rows = "| `TestA` | covered | `x/tests/t.rs::holds` |\n\
                    | `B.Go` | fault | it drops; `crates/x/tests/t.rs::tests::generic` |\n\
                    | `C` | owed | lease-lock |\n\
                    | `C`: its order | fault | random; x/tests/t.rs::holds (sorted), x/tests/t.rs::generic |\n";
        assert_eq!(
            whats("# names\na/b.go TestA\na/b.go B.Go\na/b.go C\n", rows),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_missing_item_is_found() {
        assert_eq!(whats("a/b.go TestA\n", ""), ["no row for `TestA` of a/b.go"]);
        let row = "| `TestA` | owed | x |\n";
        assert_eq!(whats("a/c.go TestA\n", row), ["no row for `TestA` of a/c.go"]);
        assert_eq!(whats("", row), ["names no item"]);
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        for (row, what) in [
            ("| `A` | covered | `x/tests/t.rs::hold` |\n", "no `fn hold` in `x/tests/t.rs`"),
            ("| `A` | covered | `x/tests/u.rs::holds` |\n", "no `fn holds` in `x/tests/u.rs`"),
            ("| `A` | owed | x: `x/tests/t.rs::none` |\n", "no `fn none` in `x/tests/t.rs`"),
            ("| `A` | covered | somewhere |\n", "`A` is covered and names no test"),
            ("| `A` | fault | it drops |\n", "`A` is fault and names no test"),
            ("| `A` | owed | |\n", "`A` is owed by nobody"),
            ("| `A` | done | x |\n", "`done` is neither covered nor owed nor fault"),
            ("| `A` | owed | x |\n| `A` | owed | x |\n", "`A` stands twice"),
        ] {
            assert_eq!(whats("a/b.go A\n", row), [what], "{row}");
        }
    }

    #[test]
    fn missing_files_are_found() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
