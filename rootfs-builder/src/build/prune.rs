//! What is removed from a tree again: documents, caches, tests.

use std::fs;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::scratch::failed;
use record::error::{Result, SetupError, Step};

/// A list of patterns for paths relative to a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Globs(Vec<Pattern>);

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl Globs {
    /// # Errors
    /// The first that is no pattern.
    pub(super) fn new<T: AsRef<str>>(patterns: &[T]) -> Result<Self> {
        let compile = |text: &T| {
            let text = text.as_ref();
            if text.starts_with('/') {
                return Err(wrong(text, "starts at the top of the tree, without a `/`"));
            }
            Pattern::new(text).map_err(|error| wrong(text, error.msg))
        };
        patterns
            .iter()
            .map(compile)
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Whether one of them stands for `path` or a directory above it.
    pub(super) fn cover(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.name(above))
    }

    fn name(&self, path: &Path) -> bool {
        let is = |pattern: &Pattern| pattern.matches_path_with(path, OPTIONS);
        self.0.iter().any(is)
    }
}

fn wrong(pattern: &str, why: &str) -> SetupError {
    SetupError::new(Step::Spec, format!("{pattern:?} is no pattern: {why}"))
}

/// Removes what `prune` covers and `keep` does not, and the directories that
/// are empty then.
///
/// # Errors
/// What cannot be read or removed.
pub(super) fn prune(tree: &Path, prune: &Globs, keep: &Globs) -> Result<()> {
    below(tree, PathBuf::new(), prune, keep)
}

fn below(tree: &Path, directory: PathBuf, prune: &Globs, keep: &Globs) -> Result<()> {
    let place = tree.join(&directory);
    for entry in fs::read_dir(&place).map_err(failed("readdir", &place))? {
        let entry = entry.map_err(failed("readdir", &place))?;
        let path = directory.join(entry.file_name());
        let kind = entry.file_type().map_err(failed("stat", &place))?;
        if kind.is_dir() {
            below(tree, path, prune, keep)?;
        } else if prune.cover(&path) && !keep.cover(&path) {
            fs::remove_file(entry.path()).map_err(failed("unlink", &entry.path()))?;
        }
    }
    if prune.cover(&directory) {
        // What is kept is in its way.
        let _ = fs::remove_dir(&place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_all_below() {
        let globs = Globs::new(&["usr/share/doc", "usr/lib/python3*/**/tests", "*.la"]).unwrap();
        for path in [
            "usr/share/doc/x/copyright",
            "usr/lib/python3.13/tests/a.py",
            "usr/lib/python3.13/site/a/tests/b.py",
            "x.la",
        ] {
            assert!(globs.cover(Path::new(path)), "{path}");
        }
        for path in ["usr/share/docs", "usr/lib/tests/a", "usr/x.la"] {
            assert!(!globs.cover(Path::new(path)), "{path}");
        }
        assert!(Globs::new(&["/usr"]).is_err());
    }

    #[test]
    fn what_is_kept_stays_with_its_directories() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path();
        for path in ["doc/a/copyright", "doc/a/README", "doc/b/README", "lib/x"] {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let globs = |text: &str| Globs::new(&[text]).unwrap();
        prune(tree, &globs("doc"), &globs("doc/*/copyright")).unwrap();
        assert!(tree.join("doc/a/copyright").exists());
        assert!(!tree.join("doc/a/README").exists());
        assert!(!tree.join("doc/b").exists());
        assert!(tree.join("lib/x").exists());
    }
}
