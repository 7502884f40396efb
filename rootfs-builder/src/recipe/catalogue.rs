//! Finds recipes: built-in ones, and folders of the caller's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::stat::SFlag;

use super::{FILE, LOCK_FILE, Lock, Recipe};
use crate::errors::failed;
use crate::files::walk;
use crate::packages::digest_of;
use record::error::{Result, SetupError, Step};
use spec::read::{did_you_mean, listed};

/// A built-in recipe: the name of its folder, and all its files.
type BuiltIn = (&'static str, &'static [(&'static str, &'static [u8])]);

/// Every folder of `rootfs-builder/recipes`, by build.rs.
static BUILT_IN: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/recipes.rs"));

/// A recipe and the files beside it.
#[derive(Clone, Debug)]
pub(crate) struct RecipeFolder {
    pub(crate) recipe: Recipe,
    /// Its path; `None` for a built-in one.
    pub(crate) path: Option<PathBuf>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// SHA-256 over all files except the lock file, in hexadecimal.
    pub(crate) digest: String,
}

/// A larger folder is a mistake: recipes are small.
const MAX_BYTES: usize = 64 << 20;
const MAX_FILES: usize = 4096;

/// The built-in recipes.
pub fn recipes() -> Vec<Recipe> {
    let read = |(name, files): &BuiltIn| embedded(name, files).ok();
    let found = BUILT_IN.iter().filter_map(read);
    found.map(|found| found.recipe).collect()
}

/// The recipe `name`, a built-in one or the path of a folder (with a `/`).
///
/// # Errors
/// There is no such recipe, or it is invalid.
fn find(name: &str) -> Result<RecipeFolder> {
    if is_path(name) {
        return read(Path::new(name));
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((name, files)) => embedded(name, files),
        None => Err(unknown(name)),
    }
}

/// The recipe `name` and all that it extends, in the order in which their layers
/// are built. It
/// comes last.
///
/// # Errors
/// One of them is missing or invalid, or they extend each other in a circle.
pub(crate) fn chain(name: &str) -> Result<Vec<RecipeFolder>> {
    let mut chain = Vec::new();
    add(find(name)?, &mut chain, &mut Vec::new())?;
    Ok(chain)
}

fn add(folder: RecipeFolder, chain: &mut Vec<RecipeFolder>, above: &mut Vec<String>) -> Result<()> {
    let name = folder.recipe.name.clone();
    if above.contains(&folder.digest) {
        return Err(SetupError::new(Step::Spec, "extends itself")
            .on(format!("{name}: extends"))
            .hint("break the circle of recipes"));
    }
    if chain.iter().any(|found| found.digest == folder.digest) {
        return Ok(());
    }
    above.push(folder.digest.clone());
    for base in &folder.recipe.extends {
        let base = match &folder.path {
            Some(path) if is_path(base) => read(&path.join(base)),
            _ => find(base),
        };
        add(base?, chain, above)?;
    }
    above.pop();
    if chain.iter().any(|found| found.recipe.name == name) {
        return Err(SetupError::new(Step::Spec, "two different recipes have this name").on(name));
    }
    chain.push(folder);
    Ok(())
}

fn is_path(name: &str) -> bool {
    name.contains('/')
}

fn unknown(name: &str) -> SetupError {
    let names = BUILT_IN.iter().map(|(name, _)| *name);
    let near = did_you_mean(name, names.clone());
    SetupError::new(Step::Spec, format!("there is no recipe `{name}`{near}")).hint(format!(
        "built in: {}; the path of a folder of your own has a `/` in it",
        listed(names)
    ))
}

fn embedded(name: &str, files: &[(&str, &[u8])]) -> Result<RecipeFolder> {
    let files = files.iter();
    let files = files.map(|(path, content)| (PathBuf::from(path), content.to_vec()));
    RecipeFolder::new(None, files.collect()).map_err(|error| in_file(error, name, FILE))
}

fn read(path: &Path) -> Result<RecipeFolder> {
    let path = fs::canonicalize(path).map_err(|e| {
        SetupError::io(Step::Spec, "realpath", &e)
            .on(path.display())
            .hint("name a folder that holds a recipe.toml")
    })?;
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    walk(&path, &mut |below, kind| {
        if kind == SFlag::S_IFREG {
            let file = path.join(below);
            let content = fs::read(&file).map_err(failed("read", &file))?;
            bytes += content.len();
            files.insert(below.to_owned(), content);
        }
        if files.len() > MAX_FILES || bytes > MAX_BYTES {
            return Err(SetupError::new(
                Step::Spec,
                format!("a recipe has at most {MAX_FILES} files and {MAX_BYTES} bytes"),
            )
            .on(path.display())
            .hint("name a folder that holds a recipe.toml and little else"));
        }
        Ok(())
    })?;
    let place = path.display().to_string();
    RecipeFolder::new(Some(path), files).map_err(|error| in_file(error, &place, FILE))
}

/// Puts the file before the field in an error.
fn in_file(mut error: SetupError, place: &str, file: &str) -> SetupError {
    let field = error.operand.map(|field| format!(": {field}"));
    error.operand = Some(format!("{place}/{file}{}", field.unwrap_or_default()));
    error
}

impl RecipeFolder {
    fn new(path: Option<PathBuf>, files: BTreeMap<PathBuf, Vec<u8>>) -> Result<Self> {
        let text = files.get(Path::new(FILE)).ok_or_else(|| {
            SetupError::new(Step::Spec, "there is no such file")
                .hint("a recipe is a folder with a recipe.toml; see cellblock-recipe(5)")
        })?;
        let text =
            std::str::from_utf8(text).map_err(|_| SetupError::new(Step::Spec, "is not UTF-8"))?;
        let recipe = Recipe::parse(text)?;
        let mut all = Vec::new();
        for (path, content) in &files {
            if path != Path::new(LOCK_FILE) {
                all.extend(format!("{} {} ", path.display(), content.len()).into_bytes());
                all.extend(content);
            }
        }
        Ok(Self {
            recipe,
            path,
            digest: digest_of(&all),
            files,
        })
    }

    /// The content of its lock file, if it has one.
    ///
    /// # Errors
    /// The file is invalid.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        let Some(text) = self.files.get(Path::new(LOCK_FILE)) else {
            return Ok(None);
        };
        let lock = Lock::parse(&String::from_utf8_lossy(text));
        lock.map(Some)
            .map_err(|error| in_file(error, &self.recipe.name, LOCK_FILE))
    }

    /// Its files by their paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&PathBuf, &[u8])> {
        let files = self.files.iter();
        files.map(|(path, content)| (path, content.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_valid() {
        assert!(!BUILT_IN.is_empty());
        for (name, files) in BUILT_IN {
            let folder = embedded(name, files).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(folder.recipe.name, *name);
            let chain = chain(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(chain.last().unwrap().recipe.name, *name);
            folder.lock().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    fn recipe(folder: &Path, name: &str, extends: &str) {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("name = {name:?}\nsummary = \"\"\nextends = {extends}\n");
        fs::write(folder.join(FILE), text).unwrap();
    }

    fn names(path: &Path) -> Result<Vec<String>> {
        let chain = chain(path.to_str().unwrap())?;
        Ok(chain.into_iter().map(|found| found.recipe.name).collect())
    }

    #[test]
    fn layers_come_once_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path();
        recipe(folder, "a", "[]");
        recipe(folder, "b", "[\"../a\"]");
        recipe(folder, "c", "[\"../a\"]");
        recipe(folder, "d", "[\"../c\", \"../b\"]");
        assert_eq!(names(&folder.join("d")).unwrap(), ["a", "c", "b", "d"]);
        recipe(folder, "a", "[\"../d\"]");
        let error = names(&folder.join("d")).unwrap_err();
        assert_eq!(error.message, "extends itself");
    }

    #[test]
    fn missing_recipes_are_named() {
        let error = find("pythn").unwrap_err();
        assert!(error.message.contains("did you mean `python`?"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let error = find(directory.path().to_str().unwrap()).unwrap_err();
        assert!(error.operand.unwrap().ends_with("recipe.toml"));
    }

    #[test]
    fn a_lock_file_is_not_part_of_the_recipe() {
        let directory = tempfile::tempdir().unwrap();
        recipe(directory.path(), "a", "[]");
        let path = directory.path().join("a");
        let find = || find(path.to_str().unwrap()).unwrap();
        let before = find().digest;
        fs::write(path.join(LOCK_FILE), "").unwrap();
        assert_eq!(find().digest, before);
        fs::write(path.join("smoke.py"), "").unwrap();
        assert_ne!(find().digest, before);
    }
}
