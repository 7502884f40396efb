//! `var/lib/dpkg/status`: the list of installed packages. apt reads it to resolve
//! later packages, and scanners look for it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::read_beneath;
use record::error::Result;

pub(super) const PATH: &str = "var/lib/dpkg/status";

/// The tree's list of installed packages; empty when it has none.
pub(super) fn read(tree: &Path) -> Result<String> {
    Ok(read_beneath(tree, PATH)?.unwrap_or_default())
}

/// A package that provides those that a recipe does without, so that apt does not
/// install them. Its name tells readers of the list which recipe added it.
pub(super) fn stub(recipe: &str, without: &[String]) -> String {
    if without.is_empty() {
        return String::new();
    }
    let provided: Vec<String> = without
        .iter()
        // Newer than any version that a package depends on.
        .map(|name| format!("{name} (= 9999:0)"))
        .collect();
    format!(
        "Package: cellblock-without-{recipe}\nStatus: install ok installed\nMaintainer: cellblock\n\
         Architecture: all\nMulti-Arch: allowed\nVersion: 1\nProvides: {}\n\
         Description: what the recipe {recipe} does without\n\n",
        provided.join(", ")
    )
}

/// The list `old` with more packages, each as `dpkg-deb --field` printed it. They
/// replace packages of the same name.
pub(super) fn merge(old: &str, stanzas: &[String], stub: &str) -> String {
    let old = old.split("\n\n").map(str::to_owned);
    let new = stanzas.iter().map(|stanza| installed(stanza));
    let packages: BTreeMap<String, String> = old
        .chain(new)
        .chain([stub.to_owned()])
        .filter(|stanza| !stanza.trim().is_empty())
        .map(|stanza| (name(&stanza), stanza.trim_end().to_owned()))
        .collect();
    packages
        .values()
        .map(|stanza| format!("{stanza}\n\n"))
        .collect()
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
        let stanza = |name: &str, version: u8| {
            format!("Package: {name}\nVersion: {version}\nDescription: x\n more\n")
        };
        let old = merge("", &[stanza("b", 1), stanza("a", 1)], "");
        let text = merge(&old, &[stanza("b", 2)], &stub("base", &["dpkg".to_owned()]));
        assert!(text.starts_with("Package: a\nStatus: install ok installed\nVersion: 1\n"));
        assert_eq!(text.matches("Package: b\n").count(), 1);
        assert!(text.contains("Version: 2"));
        assert!(text.contains("Provides: dpkg (= 9999:0)"));
        assert!(text.ends_with("\n\n"));
    }
}
