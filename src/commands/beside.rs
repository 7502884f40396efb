//! What lies beside the file with the code, where the code did not find it.
//!
//! A cell has that one file. An import of a neighbour fails like that of a package that is missing, and a
//! package of the same name in a registry may be somebody else's.

use std::path::{Path, PathBuf};

use record::{Category, Record};

/// Longer names in an exception are not looked for.
const LONGEST: usize = 100;
/// Endings of modules whose names are given without one.
const ENDINGS: [&str; 5] = ["py", "js", "mjs", "cjs", "ts"];

/// The operator's hint for code from `file` that did not find a neighbour of it.
pub(super) fn hint(record: &Record, file: &Path) -> Option<String> {
    let error = record.error.as_ref()?;
    if !matches!(
        record.error_category,
        Some(Category::Import | Category::File)
    ) {
        return None;
    }
    let directory = file.parent()?;
    let neighbour = quoted(&error.message).find_map(|name| neighbour(directory, name))?;
    let (option, brought) = match neighbour.is_dir() {
        // Its content goes into the workspace, and so its parent is named.
        true => ("--files-from", directory.join(".")),
        false => ("--file", neighbour),
    };
    let brought = brought.display();
    Some(format!(
        "the cell has only the file with the code: `{option} {brought}` brings what lies beside it"
    ))
}

/// Words in quotation marks.
fn quoted(message: &str) -> impl Iterator<Item = &str> {
    message
        .split(['\'', '"', '`', '\u{2018}', '\u{2019}'])
        .skip(1)
        .step_by(2)
}

/// A file or directory that `name` means; none that is hidden or lies elsewhere.
fn neighbour(directory: &Path, name: &str) -> Option<PathBuf> {
    let name = name.strip_prefix("./").unwrap_or(name);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !begins || name.len() > LONGEST || !name.chars().all(is_plain) {
        return None;
    }
    // `a.b` is a module of the package `a`.
    let package = name.split('.').next().unwrap_or(name);
    let modules = ENDINGS.iter().map(|ending| format!("{package}.{ending}"));
    let names = [name.to_owned()]
        .into_iter()
        .chain(modules)
        .chain([package.to_owned()]);
    // Links are not followed: the code chooses the name, and they may lead anywhere.
    let is_there = |path: &PathBuf| {
        path.symlink_metadata()
            .is_ok_and(|status| status.is_file() || status.is_dir())
    };
    names.map(|name| directory.join(name)).find(is_there)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_neighbour_is_found_by_what_the_exception_quotes() {
        let top = tempfile::tempdir().unwrap();
        for file in ["helper.py", "data.csv", ".env", "lib.js"] {
            fs::write(top.path().join(file), "").unwrap();
        }
        fs::create_dir(top.path().join("package")).unwrap();
        std::os::unix::fs::symlink("/etc", top.path().join("link")).unwrap();
        for (message, found) in [
            ("No module named 'helper'", Some("helper.py")),
            (
                "No module named 'helper.part'; 'helper' is not a package",
                Some("helper.py"),
            ),
            ("No module named 'package.part'", Some("package")),
            (
                "[Errno 2] No such file or directory: 'data.csv'",
                Some("data.csv"),
            ),
            ("Cannot find module './lib'\nRequire stack:", Some("lib.js")),
            (
                "cannot open file 'data.csv': No such file",
                Some("data.csv"),
            ),
            ("No module named 'numpy'", None),
            ("No module named 'link'", None),
            ("No such file: '.env'", None),
            ("No such file: '../x' or '/etc/passwd'", None),
            ("helper", None),
        ] {
            let path = quoted(message).find_map(|name| neighbour(top.path(), name));
            let expected = found.map(|name| top.path().join(name));
            assert_eq!(path, expected, "{message}");
        }
    }
}
