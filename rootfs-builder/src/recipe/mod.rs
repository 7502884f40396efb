//! `recipe.toml`: the packages and steps of a rootfs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::build::Globs;
use plan::rootfs::check_name;
use record::error::{Result, SetupError, Step};
use spec::read::{Format, parse};

mod catalogue;
mod lock;

pub use catalogue::recipes;
pub(crate) use catalogue::{RecipeFolder, chain};
pub(crate) use lock::{Deb, LOCK_FILE, Lock, Locked, Wheel, is_sha256};

/// The file's name in a recipe's folder.
const FILE: &str = "recipe.toml";

/// One layer of a rootfs: its packages and steps. The layers of recipes that it
/// extends come first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the rootfs: lower-case letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// Purpose of the rootfs, in one line.
    pub summary: String,
    /// Recipes whose layers come before this one's: names of built-in recipes, or
    /// paths (with a `/`) relative to this recipe's folder. Each layer is built
    /// once, where it is first needed.
    #[serde(default)]
    pub extends: Vec<String>,
    /// Packages from Debian.
    #[serde(default)]
    pub debian: Option<Debian>,
    /// Archives from a registry, unpacked as they are after the packages of
    /// Debian.
    #[serde(default)]
    pub archive: Vec<Archive>,
    /// Packages from PyPI.
    #[serde(default)]
    pub pip: Option<Pip>,
    /// Packages from npm's registry.
    #[serde(default)]
    pub npm: Option<Npm>,
    /// Commands, each a list of words, in order. They run after all packages are
    /// installed, each in a cell without network whose root is the new tree,
    /// read-only. The recipe's folder is at `/recipe`. The files that a command
    /// writes to `/out`, its working directory, go into the tree.
    #[serde(default)]
    pub steps: Vec<Vec<String>>,
    /// Paths to remove from the tree after the steps, relative to its top. `*` and
    /// `?` do not match a `/`, and `**` matches any directories. A directory is
    /// removed with everything below it. The patterns apply to later layers too.
    #[serde(default)]
    pub prune: Vec<String>,
    /// Paths that `prune` of this layer and of earlier ones does not remove.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Python modules to compile ahead of time, so that they import fast from a
    /// read-only tree. Without this table, only modules of pip's packages are
    /// compiled.
    #[serde(default)]
    pub bytecode: Option<Bytecode>,
    /// The interpreter of each language.
    #[serde(default)]
    pub interpreters: BTreeMap<String, Interpreter>,
    /// For each language a command that must succeed on the finished tree, in a cell
    /// with all security layers. The recipe's folder is at `/recipe`. The command
    /// gets the policy of its language if cellblock has one.
    #[serde(default)]
    pub smoke: BTreeMap<String, Vec<String>>,
}

/// Packages from Debian. They are unpacked; their scripts are not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// The release. All layers use the one that the first layer with this field
    /// names, or `trixie`.
    #[serde(default)]
    pub suite: Option<String>,
    /// The mirror: the part of its address before `/debian` and
    /// `/debian-security`. All layers use the one that the first layer with this
    /// field names, or `http://deb.debian.org`.
    #[serde(default)]
    pub mirror: Option<String>,
    /// Names of packages. Their dependencies are installed, their recommendations
    /// are not.
    pub packages: Vec<String>,
    /// Packages to leave out although others depend on them, such as those that
    /// only installation scripts need.
    #[serde(default)]
    pub without: Vec<String>,
}

/// An archive from a registry: a tar file, plain or compressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Its name there.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The registry: `npm`, `pypi` or `debian`.
    pub source: String,
    /// Its address.
    pub url: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    #[serde(default)]
    pub size: u64,
    /// The directory of the tree to unpack it into.
    pub into: String,
    /// Number of leading directories to remove from the names in it.
    #[serde(default)]
    pub strip: u32,
}

/// Packages from PyPI: wheels only, so that no code of theirs is compiled or run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pip {
    /// Requirements as pip takes them: `numpy`, `numpy>=2,<3`.
    pub packages: Vec<String>,
}

/// Packages from npm's registry; their scripts are not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Npm {
    /// Packages as npm takes them: `typescript`, `typescript@5`.
    pub packages: Vec<String>,
}

/// Python modules to compile ahead of time. Python does not check their bytecode
/// against the source when it imports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bytecode {
    /// Directories of the tree whose modules are compiled.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Patterns, as in `prune`, of modules that are not compiled, since they are
    /// large or seldom imported.
    #[serde(default)]
    pub skip: Vec<String>,
}

/// An interpreter in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    /// Its absolute path inside.
    pub path: PathBuf,
    /// The command that prints its version.
    pub version: Vec<String>,
}

/// The release of recipes that name none.
pub(crate) const SUITE: &str = "trixie";

/// The mirror of recipes that name none.
pub(crate) const MIRROR: &str = "http://deb.debian.org";

impl Recipe {
    /// Parses a recipe's text.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn parse(text: &str) -> Result<Self> {
        let recipe: Self = parse(text, Format::Toml)?;
        recipe.check()?;
        Ok(recipe)
    }

    fn check(&self) -> Result<()> {
        check_name(&self.name).map_err(|error| wrong("name", &error.message))?;
        let bytecode = self.bytecode.as_ref();
        for (field, patterns) in [
            ("prune", Some(&self.prune)),
            ("keep", Some(&self.keep)),
            ("bytecode.skip", bytecode.map(|bytecode| &bytecode.skip)),
        ] {
            Globs::new(patterns.map_or(&[], Vec::as_slice)).map_err(|error| error.on(field))?;
        }
        let steps = self.steps.iter().map(|words| ("steps", words));
        let smoke = self.smoke.values().map(|words| ("smoke", words));
        let versions = self.interpreters.values();
        let versions = versions.map(|found| ("interpreters", &found.version));
        for (field, words) in steps.chain(smoke).chain(versions) {
            if words.is_empty() {
                return Err(wrong(field, "a command has at least one word"));
            }
        }
        for (language, interpreter) in &self.interpreters {
            if !interpreter.path.is_absolute() {
                let field = format!("interpreters.{language}.path");
                return Err(wrong(&field, "must be an absolute path"));
            }
        }
        let debian = self.debian.as_ref();
        for (field, packages) in [
            ("debian.packages", debian.map(|debian| &debian.packages)),
            ("debian.without", debian.map(|debian| &debian.without)),
            ("pip.packages", self.pip.as_ref().map(|pip| &pip.packages)),
            ("npm.packages", self.npm.as_ref().map(|npm| &npm.packages)),
        ] {
            check_packages(field, packages.map_or(&[], Vec::as_slice))?;
        }
        if let Some(mirror) = debian.and_then(|debian| debian.mirror.as_ref()) {
            check_url("debian.mirror", mirror)?;
        }
        for archive in &self.archive {
            check_url("archive.url", &archive.url)?;
            if !is_sha256(&archive.sha256) {
                return Err(wrong("archive.sha256", "must be 64 hexadecimal digits"));
            }
            if !["debian", "npm", "pypi"].contains(&archive.source.as_str()) {
                return Err(wrong("archive.source", "must be debian, npm or pypi"));
            }
        }
        Ok(())
    }
}

/// Refuses words that a tool would take for options.
pub(crate) fn check_packages(field: &str, words: &[String]) -> Result<()> {
    let is_bad = |word: &&String| {
        word.is_empty() || word.starts_with('-') || word.contains(|c: char| c.is_control())
    };
    match words.iter().find(is_bad) {
        Some(word) => Err(wrong(field, &format!("{word:?} is not a package name"))),
        None => Ok(()),
    }
}

fn check_url(field: &str, url: &str) -> Result<()> {
    let has_scheme = url.starts_with("http://") || url.starts_with("https://");
    match has_scheme && url.chars().all(|c| c.is_ascii_graphic() && c != '"') {
        true => Ok(()),
        false => Err(wrong(field, "must be an http:// or https:// address")),
    }
}

fn wrong(field: &str, message: &str) -> SetupError {
    SetupError::new(Step::Spec, message).on(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = \"small\"\nsummary = \"a little\"\n";

    fn error(rest: &str) -> String {
        let error = Recipe::parse(&format!("{SMALL}{rest}")).unwrap_err();
        format!("{error} {}", error.hint.as_deref().unwrap_or_default())
    }

    #[test]
    fn a_recipe_is_read() {
        let recipe = Recipe::parse(&format!(
            "{SMALL}extends = [\"base\", \"./other\"]\nsteps = [[\"ldconfig\"]]\n\
             [debian]\npackages = [\"dash\"]\n[interpreters.bash]\npath = \"/bin/sh\"\n\
             version = [\"sh\", \"--version\"]\n"
        ))
        .unwrap();
        assert_eq!(recipe.extends, ["base", "./other"]);
        assert_eq!(recipe.debian.unwrap().packages, ["dash"]);
        assert_eq!(recipe.interpreters["bash"].path, PathBuf::from("/bin/sh"));
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_name() {
        assert!(error("extend = [\"base\"]").contains("did you mean `extends`?"));
        assert!(error("[debian]\npackage = [\"x\"]").contains("debian.package"));
    }

    #[test]
    fn invalid_values_name_their_field() {
        for (rest, wanted) in [
            ("steps = [[]]", "steps"),
            ("prune = [\"a**b\"]", "prune"),
            ("[pip]\npackages = [\"--index-url=x\"]", "pip.packages"),
            ("[debian]\npackages = [\"\"]", "debian.packages"),
            (
                "[debian]\npackages = []\nmirror = \"ftp://x\"",
                "debian.mirror",
            ),
            (
                "[interpreters.x]\npath = \"bin/x\"\nversion = [\"x\"]",
                "interpreters.x.path",
            ),
        ] {
            assert!(error(rest).contains(wanted), "{rest}: {}", error(rest));
        }
        assert!(Recipe::parse("name = \"../x\"\nsummary = \"\"").is_err());
        assert!(Recipe::parse("summary = \"\"").is_err());
    }
}
