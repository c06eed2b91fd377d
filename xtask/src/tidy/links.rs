//! Links between the pages of the repository lead somewhere.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| !path.contains("/tests/")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut code = false;
        for (index, line) in text.lines().enumerate() {
            code ^= line.trim_start().starts_with("```");
            if code {
                continue;
            }
            for target in targets(line) {
                if resolve(folder, target).is_none_or(|target| !tree.has(&target)) {
                    findings.push(Finding::new(
                        path,
                        index + 1,
                        format!("`{target}` leads nowhere"),
                    ));
                }
            }
        }
    }
    findings
}

/// Returns the files that the links of a line name; other sites and headings are left out.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices("](").map(|(at, open)| &line[at + open.len()..]);
    ends.filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        let elsewhere =
            target.contains("://") || target.contains("::") || target.starts_with("mailto:");
        (!target.is_empty() && !elsewhere && target.contains(['.', '/'])).then_some(target)
    })
}

/// The path from the root; `None` above it.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found() {
        let text = "[a](b.md) [c](../x.md)\n[d](https://e.example/f.md) [g](#h) [i](b.md#j) [k](Type::method)\n";
        let found = check(&Tree::of(&[("docs/a.md", text), ("docs/b.md", "")]));
        assert_eq!(found, [Finding::new("docs/a.md", 1, "`../x.md` leads nowhere")]);
    }

    #[test]
    fn a_link_may_name_a_folder_but_nothing_above_the_root() {
        let files =
            [("docs/a.md", "[a](../crates/x/) [b](../../y/z)\n"), ("crates/x/src/lib.rs", "")];
        let found = check(&Tree::of(&files));
        assert_eq!(found, [Finding::new("docs/a.md", 1, "`../../y/z` leads nowhere")]);
    }

    #[test]
    fn code_holds_no_links() {
        assert!(check(&Tree::of(&[("a.md", "```\n[a](b.md)\n```\n")])).is_empty());
    }
}
