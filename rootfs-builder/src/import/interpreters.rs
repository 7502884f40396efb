//! Finds the interpreters in a tree, and their versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tool::{Failure, Tool};
use plan::rootfs::{Interpreter, Tree};
use record::error::{Result, Step};
use spec::RootfsRef;

/// Time for an interpreter to print its version; a Java machine needs a second.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The languages' interpreters in the tree in `directory`, with the versions that they
/// print in a cell on it. Interpreters that do not run are left out.
///
/// # Errors
/// The tree is not a rootfs, or this host cannot run cells.
pub(super) fn detect(directory: &Path) -> Result<BTreeMap<String, Interpreter>> {
    let tree = Tree::find(&RootfsRef::Dir(directory.to_owned()), None, None)?;
    let mut versions: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for driver in languages::TABLE {
        for path in own_first(driver.interpreters) {
            if !tree.has_program(Path::new(path)) {
                continue;
            }
            // Languages may share an interpreter.
            let version = match versions.get(path) {
                Some(known) => known.clone(),
                None => ask(directory, path)?,
            };
            versions.insert(path, version.clone());
            if let Some(version) = version {
                let path = PathBuf::from(path);
                let interpreter = Interpreter { path, version };
                found.insert(driver.name.to_owned(), interpreter);
                break;
            }
        }
    }
    Ok(found)
}

/// The paths with those outside of `/usr/bin` and `/bin` first: an image has its own
/// interpreter elsewhere, and there the one of the distribution that it builds on.
fn own_first(paths: &[&'static str]) -> Vec<&'static str> {
    let mut paths = paths.to_vec();
    paths.sort_by_key(|path| path.starts_with("/usr/bin/") || path.starts_with("/bin/"));
    paths
}

/// The version that the program at `path` prints; `None` if it fails.
fn ask(tree: &Path, path: &str) -> Result<Option<String>> {
    let tool = Tool::confined(path, [path, "--version"], None);
    match tool.tree(tree).timeout(TIMEOUT).output() {
        Ok((stdout, stderr)) => Ok(version_in(&stdout).or_else(|| version_in(&stderr))),
        // A program for another machine, or without its loader.
        Err(Failure::Setup(error)) if error.step == Step::Exec => Ok(None),
        Err(Failure::Setup(error)) => Err(error),
        Err(Failure::Program { .. }) => Ok(None),
    }
}

/// The first number of `Python 3.13.1`, `v22.1.0` or `GNU bash, version
/// 5.2.37(1)-release`.
pub(crate) fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == '"');
    let words = words.map(|word| word.trim_start_matches('v'));
    let number = |word: &str| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
        let number = word[..end.unwrap_or(word.len())].trim_end_matches('.');
        (!number.is_empty() && !number.starts_with('.')).then(|| number.to_owned())
    };
    words.take(64).find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_interpreters_print() {
        for (text, wanted) in [
            ("Python 3.13.1\n", "3.13.1"),
            ("v22.1.0\n", "22.1.0"),
            (
                "GNU bash, version 5.2.37(1)-release (x86_64-pc-linux-gnu)\n",
                "5.2.37",
            ),
            ("Rscript (R) version 4.5.0 (2025-04-11)\n", "4.5.0"),
            ("openjdk 21 2023-09-19\n", "21"),
            ("openjdk version \"17.0.1\"", "17.0.1"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(version_in("no such thing ..."), None);
        assert_eq!(version_in(""), None);
    }
}
