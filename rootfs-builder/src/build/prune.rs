//! Removes documents, caches and tests from a tree.

use std::fs;
use std::path::Path;

use glob::{MatchOptions, Pattern};
use nix::sys::stat::SFlag;

use crate::errors::failed;
use crate::files::walk;
use record::error::{Result, SetupError, Step};

/// A list of patterns for paths relative to a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globs(Vec<Pattern>);

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl Globs {
    /// # Errors
    /// The first invalid pattern.
    pub(crate) fn new<T: AsRef<str>>(patterns: &[T]) -> Result<Self> {
        let compile = |text: &T| {
            let text = text.as_ref();
            if text.starts_with('/') {
                return Err(wrong(
                    text,
                    "patterns are relative to the tree, without a `/` first",
                ));
            }
            Pattern::new(text).map_err(|error| wrong(text, error.msg))
        };
        patterns
            .iter()
            .map(compile)
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Whether one of them matches `path` or a directory above it.
    pub(super) fn cover(&self, path: &Path) -> bool {
        let matches = |path: &Path| {
            let mut patterns = self.0.iter();
            patterns.any(|pattern| pattern.matches_path_with(path, OPTIONS))
        };
        path.ancestors().any(matches)
    }
}

fn wrong(pattern: &str, why: &str) -> SetupError {
    SetupError::new(Step::Spec, format!("invalid pattern {pattern:?}: {why}"))
}

/// Removes the files that `prune` covers and `keep` does not, and the directories
/// that become empty.
///
/// # Errors
/// Something cannot be read or removed.
pub(super) fn prune(tree: &Path, prune: &Globs, keep: &Globs) -> Result<()> {
    let mut directories = Vec::new();
    walk(tree, &mut |path, kind| {
        let is_pruned = prune.cover(path);
        let path_outside = tree.join(path);
        if kind == SFlag::S_IFDIR {
            if is_pruned {
                directories.push(path_outside);
            }
        } else if is_pruned && !keep.cover(path) {
            fs::remove_file(&path_outside).map_err(failed("unlink", &path_outside))?;
        }
        Ok(())
    })?;
    for directory in directories.iter().rev() {
        // It fails where something is kept.
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_everything_below() {
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
    fn kept_files_stay_with_their_directories() {
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
