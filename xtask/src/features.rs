//! Each feature alone, none and all. A crate without features has nothing to choose: the other
//! steps compile it.

use std::path::Path;

use crate::metadata::{self, Package};
use crate::{Failure, run};

/// Checks every choice of features that a user of one crate is likely to make.
pub(crate) fn features(root: &Path) -> Result<(), Failure> {
    let choices = choices(&metadata::packages(root)?);
    for choice in &choices {
        println!("features: cargo check {}", choice.join(" "));
        run::run(run::cargo(root, ["check", "--quiet", "--locked"]).args(choice))?;
    }
    println!("features: {} choices", choices.len());
    Ok(())
}

/// Arguments of `cargo check` for each choice.
fn choices(packages: &[Package]) -> Vec<Vec<String>> {
    let mut choices = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_none()) {
        let named: Vec<&String> =
            package.features.iter().filter(|name| *name != "default").collect();
        if named.is_empty() {
            continue;
        }
        let mut add = |words: &[&str]| {
            let words = ["-p", package.name.as_str()].into_iter().chain(words.iter().copied());
            choices.push(words.map(str::to_owned).collect());
        };
        add(&["--no-default-features"]);
        if named.len() > 1 {
            for name in named {
                add(&["--no-default-features", "--features", name]);
            }
        }
        add(&["--all-features"]);
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, source: Option<&str>, features: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            source: source.map(str::to_owned),
            features: features.iter().map(|&name| name.to_owned()).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn only_our_own_crates_with_features_are_checked() {
        let packages = [
            package("none", None, &[]),
            package("one", None, &["default", "x"]),
            package("two", None, &["x", "y"]),
            package("foreign", Some("registry"), &["x"]),
        ];
        let choices: Vec<String> = choices(&packages).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            choices,
            [
                "-p one --no-default-features",
                "-p one --all-features",
                "-p two --no-default-features",
                "-p two --no-default-features --features x",
                "-p two --no-default-features --features y",
                "-p two --all-features",
            ]
        );
    }
}
