//! `var/lib/dpkg/status`: the list of installed packages, which apt reads to
//! resolve a later layer, and which scanners look for.

use std::collections::BTreeMap;
use std::path::Path;

use crate::build::adopt::{put, read_beneath};
use record::error::Result;

pub(super) const PATH: &str = "var/lib/dpkg/status";

/// What the tree says is installed; empty when it says nothing.
pub(super) fn read(tree: &Path) -> Result<String> {
    Ok(read_beneath(tree, PATH)?.unwrap_or_default())
}

/// A package that stands for those that a recipe does without: apt takes their
/// names for provided, and a reader of the list finds out by whom.
pub(super) fn stub(recipe: &str, without: &[String]) -> String {
    if without.is_empty() {
        return String::new();
    }
    let provided: Vec<String> = without
        .iter()
        // Newer than what any package asks for.
        .map(|name| format!("{name} (= 9999:0)"))
        .collect();
    format!(
        "Package: cellblock-without-{recipe}\nStatus: install ok installed\nMaintainer: cellblock\n\
         Architecture: all\nMulti-Arch: allowed\nVersion: 1\nProvides: {}\n\
         Description: what the recipe {recipe} does without\n\n",
        provided.join(", ")
    )
}

/// Adds packages, each by what `dpkg-deb --field` printed of it. A package that
/// is there already is replaced.
pub(super) fn add(scratch: &Path, tree: &Path, stanzas: &[String], stub: &str) -> Result<()> {
    let old = read(tree)?;
    let mut packages = BTreeMap::new();
    for stanza in old.split("\n\n").filter(|stanza| !stanza.trim().is_empty()) {
        packages.insert(name(stanza), stanza.trim_end().to_owned());
    }
    for stanza in stanzas {
        packages.insert(name(stanza), installed(stanza.trim_end()));
    }
    if !stub.is_empty() {
        packages.insert(name(stub), stub.trim_end().to_owned());
    }
    let text: String = packages
        .values()
        .map(|stanza| format!("{stanza}\n\n"))
        .collect();
    put(scratch, tree, PATH, &text)
}

fn name(stanza: &str) -> String {
    let named = stanza
        .lines()
        .find_map(|line| line.strip_prefix("Package: "));
    named.unwrap_or_default().to_owned()
}

fn installed(stanza: &str) -> String {
    match stanza.split_once('\n') {
        Some((first, rest)) => format!("{first}\nStatus: install ok installed\n{rest}"),
        None => stanza.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_listed_once_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let (scratch, tree) = (
            directory.path().join("scratch"),
            directory.path().join("tree"),
        );
        std::fs::create_dir(&scratch).unwrap();
        std::fs::create_dir(&tree).unwrap();
        let stanza = |name: &str, version: u8| {
            format!("Package: {name}\nVersion: {version}\nDescription: x\n more\n")
        };
        add(&scratch, &tree, &[stanza("b", 1), stanza("a", 1)], "").unwrap();
        let without = stub("base", &["dpkg".to_owned()]);
        add(&scratch, &tree, &[stanza("b", 2)], &without).unwrap();
        let text = read(&tree).unwrap();
        assert!(text.starts_with("Package: a\nStatus: install ok installed\nVersion: 1\n"));
        assert_eq!(text.matches("Package: b\n").count(), 1);
        assert!(text.contains("Version: 2"));
        assert!(text.contains("Provides: dpkg (= 9999:0)"));
        assert!(text.ends_with("\n\n"));
    }
}
