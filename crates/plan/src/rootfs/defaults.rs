//! The default rootfs of a language.
//!
//! Each driver names a usual one. A store may have another in its place, which is a
//! link with a name as its text:
//!
//! ```text
//! STORE/.defaults/python -> python-data
//! ```

use std::fs;
use std::io;
use std::path::PathBuf;

use super::store::{Prepared, Store, check_name, is_absent};
use record::error::{Result, SetupError, Step};

/// The directory of a store that has the choices.
const DEFAULTS: &str = ".defaults";

/// Recipes that have the languages of another one, the smallest first: what stands in
/// for one that was not built.
const WIDER: [(&str, &[&str]); 5] = [
    ("java", &["full"]),
    ("node", &["full"]),
    ("python", &["python-data", "full"]),
    ("r", &["full"]),
    (
        "shell",
        &["python", "r", "node", "java", "python-data", "full"],
    ),
];

impl Store {
    /// The default rootfs of a language whose usual one is `usual`, kept from being
    /// removed: the chosen one, the usual one, or a wider one; `None` when the store
    /// has none of them.
    ///
    /// # Errors
    /// The chosen one does not exist; those of [`Store::find`].
    pub fn find_default(&self, usual: &str) -> Result<Option<Prepared>> {
        if let Some(chosen) = self.chosen(usual)? {
            let found = self.find(&chosen)?;
            return found.map(Some).ok_or_else(|| {
                SetupError::new(Step::Rootfs, "the rootfs chosen as default is not there")
                    .on(&chosen)
                    .hint(format!(
                        "`cellblock rootfs build {chosen}` builds it if it is a recipe; `cellblock \
                         rootfs default {usual} auto` withdraws the choice"
                    ))
            });
        }
        for name in std::iter::once(usual).chain(wider(usual).iter().copied()) {
            if let Some(found) = self.find(name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The name chosen in place of `usual`, if one was. The caller's store is asked
    /// before the administrator's.
    ///
    /// # Errors
    /// The choice cannot be read, or is not the name of a rootfs.
    pub fn chosen(&self, usual: &str) -> Result<Option<String>> {
        for store in self.stores() {
            let link = store.join(DEFAULTS).join(usual);
            let failed = |e: &io::Error| {
                SetupError::io(Step::Rootfs, "readlink", e)
                    .on(link.display())
                    .hint("the choice of a default is damaged or you may not read it")
            };
            match fs::read_link(&link) {
                Ok(text) => {
                    let name = text.display().to_string();
                    return check_name(&name).map(|()| Some(name));
                }
                Err(e) if is_absent(&e) || e.kind() == io::ErrorKind::PermissionDenied => {}
                Err(e) => return Err(failed(&e)),
            }
        }
        Ok(None)
    }

    /// Where this store has the choice in place of `usual`.
    pub fn choice(&self, usual: &str) -> PathBuf {
        self.path().join(DEFAULTS).join(usual)
    }
}

fn wider(usual: &str) -> &'static [&'static str] {
    let found = WIDER.iter().find(|(name, _)| *name == usual);
    found.map_or(&[], |(_, wider)| wider)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn make(store: &Path, name: &str) {
        fs::create_dir_all(store.join(".trees").join(name)).unwrap();
        symlink(Path::new(".trees").join(name), store.join(name)).unwrap();
    }

    #[test]
    fn what_was_chosen_comes_before_what_is_usual_and_that_before_what_is_wider() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let store = Store::open(Some(path)).unwrap();
        let name = |usual: &str| store.find_default(usual).map(|f| f.map(|f| f.name));
        assert_eq!(name("python").unwrap(), None);
        make(path, "full");
        assert_eq!(name("python").unwrap().as_deref(), Some("full"));
        make(path, "python-data");
        assert_eq!(name("python").unwrap().as_deref(), Some("python-data"));
        make(path, "python");
        assert_eq!(name("python").unwrap().as_deref(), Some("python"));
        assert_eq!(name("shell").unwrap().as_deref(), Some("python"));
        assert_eq!(name("node").unwrap().as_deref(), Some("full"));

        fs::create_dir(path.join(DEFAULTS)).unwrap();
        symlink("python-data", store.choice("python")).unwrap();
        assert_eq!(name("python").unwrap().as_deref(), Some("python-data"));
        fs::remove_file(path.join("python-data")).unwrap();
        let error = name("python").unwrap_err();
        assert!(error.to_string().contains("python-data"), "{error}");
        assert!(error.hint.unwrap().contains("rootfs default python auto"));
        // Nothing outside the store.
        fs::remove_file(store.choice("python")).unwrap();
        symlink("../../etc", store.choice("python")).unwrap();
        assert!(name("python").is_err());
    }
}
