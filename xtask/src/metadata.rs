//! What cargo knows of the workspace and its dependencies.

use std::path::{Path, PathBuf};

use crate::json::{Fault, Value};
use crate::{Failure, run};

/// A package of the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its licence, in the words of its own manifest.
    pub(crate) license: Option<String>,
    /// Where it came from; `None` for what lies in this workspace.
    pub(crate) source: Option<String>,
    /// Names of the packages that it depends on by path, of every kind.
    pub(crate) local: Vec<String>,
    /// Its features, `default` among them if it has one.
    pub(crate) features: Vec<String>,
}

/// Reads every package of the lock file, those of other platforms included.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>, Failure> {
    let mut cargo = run::cargo(root, ["metadata", "--format-version=1", "--locked"]);
    let text = String::from_utf8(run::read(&mut cargo)?)?;
    Ok(read(&text)?)
}

/// Returns the folder that cargo builds into.
pub(crate) fn target(root: &Path) -> Result<PathBuf, Failure> {
    let mut cargo = run::cargo(root, ["metadata", "--format-version=1", "--no-deps"]);
    let document = Value::parse(&String::from_utf8(run::read(&mut cargo)?)?)?;
    let folder = document.get("target_directory").as_str();
    Ok(folder.ok_or("cargo metadata names no target folder")?.into())
}

fn read(text: &str) -> Result<Vec<Package>, Fault> {
    let document = Value::parse(text)?;
    Ok(document.get("packages").elements().iter().map(package).collect())
}

fn package(value: &Value) -> Package {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let by_path = |dependency: &&Value| dependency.get("path").as_str().is_some();
    let dependencies = value.get("dependencies").elements().iter();
    Package {
        name: text(value.get("name")).unwrap_or_default(),
        version: text(value.get("version")).unwrap_or_default(),
        license: text(value.get("license")),
        source: text(value.get("source")),
        local: dependencies.filter(by_path).filter_map(|one| text(one.get("name"))).collect(),
        features: value.get("features").members().iter().map(|(name, _)| name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read() {
        let text = r#"{"packages":[
            {"name":"a","version":"0.1.0","license":null,"source":null,"features":{"x":[],"default":["x"]},
             "dependencies":[{"name":"b","path":"somewhere"},{"name":"c","kind":"dev"}]},
            {"name":"c","version":"1.0.0","license":"MIT","source":"registry","features":{},"dependencies":[]}
        ]}"#;
        let packages = read(text).unwrap();
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].local, ["b"]);
        assert_eq!(packages[0].features, ["x", "default"]);
        assert_eq!(packages[1].license.as_deref(), Some("MIT"));
        assert_eq!(packages[1].source.as_deref(), Some("registry"));
    }
}
