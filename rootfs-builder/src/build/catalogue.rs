//! Where recipes come from: the built-in ones, and folders of the caller's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::cache::digest_of;
use super::lock::{self, Lock};
use super::recipe::{self, Recipe};
use super::scratch::{failed, make_directory};
use cell::spec::read::{did_you_mean, listed};
use record::error::{Result, SetupError, Step};

/// A built-in recipe: the name of its folder, and all its files.
type BuiltIn = (&'static str, &'static [(&'static str, &'static [u8])]);

/// Every folder of `rootfs-builder/recipes`, by build.rs.
static BUILT_IN: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/recipes.rs"));

/// A recipe and the files beside it.
#[derive(Clone, Debug)]
pub struct Layer {
    /// What it says.
    pub recipe: Recipe,
    /// The folder it comes from; `None` for a built-in one.
    pub(super) folder: Option<PathBuf>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// SHA-256 over all files but the lock file, in hexadecimal.
    pub(super) digest: String,
}

/// Files of a recipe are small; larger folders are a mistake.
const MOST_BYTES: usize = 64 << 20;
/// So are folders with more files.
const MOST_FILES: usize = 4096;

/// The built-in recipes, each with its summary.
pub fn built_in() -> Vec<Layer> {
    let read = |(name, files): &BuiltIn| embedded(name, files).ok();
    BUILT_IN.iter().filter_map(read).collect()
}

/// The recipe `name`, a built-in one or the path of a folder (with a `/`).
///
/// # Errors
/// There is none, or something is wrong with it.
pub fn find(name: &str) -> Result<Layer> {
    if is_path(name) {
        return in_folder(Path::new(name));
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((name, files)) => embedded(name, files),
        None => Err(unknown(name)),
    }
}

/// All layers that `name` consists of, in the order in which they are built; it
/// comes last.
///
/// # Errors
/// One of them is not found or wrong, or they extend each other in a circle.
pub(super) fn chain(name: &str) -> Result<Vec<Layer>> {
    let mut layers = Vec::new();
    add(find(name)?, &mut layers, &mut Vec::new())?;
    Ok(layers)
}

fn add(layer: Layer, layers: &mut Vec<Layer>, above: &mut Vec<String>) -> Result<()> {
    let name = layer.recipe.name.clone();
    if above.contains(&layer.digest) {
        return Err(SetupError::new(Step::Spec, "extends itself")
            .on(format!("{name}: extends"))
            .hint("break the circle of recipes"));
    }
    if layers.iter().any(|there| there.digest == layer.digest) {
        return Ok(());
    }
    above.push(layer.digest.clone());
    for base in &layer.recipe.extends {
        let found = match &layer.folder {
            Some(folder) if is_path(base) => in_folder(&folder.join(base)),
            _ => find(base),
        };
        add(found?, layers, above)?;
    }
    above.pop();
    if layers.iter().any(|there| there.recipe.name == name) {
        return Err(SetupError::new(Step::Spec, "two different recipes have this name").on(name));
    }
    layers.push(layer);
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

fn embedded(name: &str, files: &[(&str, &[u8])]) -> Result<Layer> {
    let owned = |(path, content): &(&str, &[u8])| (PathBuf::from(path), content.to_vec());
    let layer = Layer::new(None, files.iter().map(owned).collect());
    layer.map_err(|error| within(error, name))
}

fn in_folder(folder: &Path) -> Result<Layer> {
    let folder = fs::canonicalize(folder).map_err(|e| {
        SetupError::io(Step::Spec, "realpath", &e)
            .on(folder.display())
            .hint("name a folder that holds a recipe.toml")
    })?;
    let mut files = BTreeMap::new();
    collect(&folder, Path::new(""), &mut files)?;
    Layer::new(Some(folder.clone()), files)
        .map_err(|error| within(error, &folder.display().to_string()))
}

fn collect(folder: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let place = folder.join(below);
    for entry in fs::read_dir(&place).map_err(failed("readdir", &place))? {
        let entry = entry.map_err(failed("readdir", &place))?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type().map_err(failed("stat", &place))?;
        if kind.is_dir() {
            collect(folder, &path, files)?;
        } else if kind.is_file() {
            let content = fs::read(entry.path()).map_err(failed("read", &entry.path()))?;
            files.insert(path, content);
        }
        let bytes: usize = files.values().map(Vec::len).sum();
        if files.len() > MOST_FILES || bytes > MOST_BYTES {
            return Err(SetupError::new(
                Step::Spec,
                format!("a recipe has at most {MOST_FILES} files and {MOST_BYTES} bytes"),
            )
            .on(folder.display())
            .hint("name a folder that holds a recipe.toml and little else"));
        }
    }
    Ok(())
}

/// The error with its file before its field.
fn within(mut error: SetupError, place: &str) -> SetupError {
    let file = format!("{place}/{}", recipe::FILE);
    error.operand = Some(match error.operand {
        Some(field) => format!("{file}: {field}"),
        None => file,
    });
    error
}

impl Layer {
    fn new(folder: Option<PathBuf>, files: BTreeMap<PathBuf, Vec<u8>>) -> Result<Self> {
        let text = files.get(Path::new(recipe::FILE)).ok_or_else(|| {
            SetupError::new(Step::Spec, "there is no such file")
                .hint("a recipe is a folder with a recipe.toml; see cellblock-recipe(5)")
        })?;
        let text =
            std::str::from_utf8(text).map_err(|_| SetupError::new(Step::Spec, "is not UTF-8"))?;
        let recipe = Recipe::parse(text)?;
        let mut all = Vec::new();
        for (path, content) in &files {
            if path != Path::new(lock::FILE) {
                all.extend(format!("{} {} ", path.display(), content.len()).into_bytes());
                all.extend(content);
            }
        }
        Ok(Self {
            recipe,
            folder,
            digest: digest_of(&all),
            files,
        })
    }

    /// What its lock file says, if it has one.
    ///
    /// # Errors
    /// The file is wrong.
    pub(super) fn lock(&self) -> Result<Option<Lock>> {
        let Some(text) = self.files.get(Path::new(lock::FILE)) else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(text);
        Lock::parse(&text).map(Some).map_err(|mut error| {
            let file = format!("{}/{}", self.recipe.name, lock::FILE);
            error.operand = Some(match error.operand {
                Some(field) => format!("{file}: {field}"),
                None => file,
            });
            error
        })
    }

    /// Writes its files to a directory, for cells to read.
    pub(super) fn write_to(&self, directory: &Path) -> Result<()> {
        for (path, content) in &self.files {
            let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
            if !inside {
                continue;
            }
            let target = directory.join(path);
            if let Some(parent) = target.parent() {
                make_directory(parent)?;
            }
            fs::write(&target, content).map_err(failed("write", &target))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&target, mode).map_err(failed("chmod", &target))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_sound() {
        assert!(!BUILT_IN.is_empty());
        for (name, files) in BUILT_IN {
            let layer = embedded(name, files).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(layer.recipe.name, *name);
            let layers = chain(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(layers.last().unwrap().recipe.name, *name);
            layer.lock().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    fn recipe(folder: &Path, name: &str, extends: &str) {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("name = {name:?}\nsummary = \"\"\nextends = {extends}\n");
        fs::write(folder.join(recipe::FILE), text).unwrap();
    }

    fn names(path: &Path) -> Result<Vec<String>> {
        let layers = chain(path.to_str().unwrap())?;
        Ok(layers.into_iter().map(|layer| layer.recipe.name).collect())
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
    fn what_is_missing_is_named() {
        let error = find("pythn").unwrap_err();
        assert!(error.message.contains("did you mean `python`?"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let error = find(directory.path().to_str().unwrap()).unwrap_err();
        assert!(error.operand.unwrap().ends_with("recipe.toml"));
    }

    #[test]
    fn a_lock_file_is_no_part_of_the_recipe() {
        let directory = tempfile::tempdir().unwrap();
        recipe(directory.path(), "a", "[]");
        let path = directory.path().join("a");
        let find = || find(path.to_str().unwrap()).unwrap();
        let before = find().digest;
        fs::write(path.join(lock::FILE), "").unwrap();
        assert_eq!(find().digest, before);
        fs::write(path.join("smoke.py"), "").unwrap();
        assert_ne!(find().digest, before);
    }
}
