//! `recipe.toml`: what a rootfs is built from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prune::Globs;
use cell::spec::read::read_toml;
use record::error::{Result, SetupError, Step};

/// The file's name in a recipe's folder.
pub(super) const FILE: &str = "recipe.toml";

/// What one layer of a rootfs is built from. The layers that it extends come
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What the rootfs is called: lower-case letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// What it is for, in one line.
    pub summary: String,
    /// Recipes whose layers come before this one's: names of built-in ones, or
    /// paths (with a `/`) relative to this recipe's folder. Each recipe's layer
    /// is there once, where it is first needed.
    #[serde(default)]
    pub extends: Vec<String>,
    /// Packages from Debian.
    #[serde(default)]
    pub debian: Option<Debian>,
    /// Files from a registry, unpacked as they are. They come after the packages
    /// of Debian.
    #[serde(default)]
    pub archive: Vec<Archive>,
    /// Packages from PyPI.
    #[serde(default)]
    pub pip: Option<Pip>,
    /// Packages from npm's registry.
    #[serde(default)]
    pub npm: Option<Npm>,
    /// Commands, each a list of words, in their order. They run after all
    /// packages are in the tree, in a cell without network that has the new tree
    /// as its root, read-only. The recipe's folder is at `/recipe`, and what a
    /// command leaves in `/out`, its working directory, goes into the tree.
    #[serde(default)]
    pub steps: Vec<Vec<String>>,
    /// Paths to remove from the tree once the steps are done, relative to its
    /// top. `*` and `?` do not match a `/`, and `**` stands for any directories;
    /// a directory goes with all below it. They hold for later layers too.
    #[serde(default)]
    pub prune: Vec<String>,
    /// Paths that `prune` leaves, of this layer and of those before.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Python modules that are compiled ahead, so that they are imported fast
    /// from a read-only tree. Without it, those of pip's packages are.
    #[serde(default)]
    pub bytecode: Option<Bytecode>,
    /// Where the interpreter of each language is.
    #[serde(default)]
    pub interpreters: BTreeMap<String, Interpreter>,
    /// For each language a command that must succeed in a cell with all layers
    /// of protection, on the finished tree; the recipe's folder is at `/recipe`.
    /// It gets the policy of its language where cellblock knows that.
    #[serde(default)]
    pub smoke: BTreeMap<String, Vec<String>>,
}

/// Packages from Debian. They are unpacked; their scripts are not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// The release: `trixie`, unless the first layer to name one says
    /// otherwise. All layers have packages of the same.
    #[serde(default)]
    pub suite: Option<String>,
    /// Where it comes from, if not from `http://deb.debian.org`: the part of the
    /// address before `/debian` and `/debian-security`. The first layer to name
    /// one decides.
    #[serde(default)]
    pub mirror: Option<String>,
    /// Names of packages. What they depend on comes along, what they recommend
    /// does not.
    pub packages: Vec<String>,
    /// Packages to do without although others depend on them, such as those
    /// that only installation scripts need.
    #[serde(default)]
    pub without: Vec<String>,
}

/// A file from a registry, unpacked as it is: a tar, plain or compressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// What it is called there.
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
    /// The directory of the tree that it goes into.
    pub into: String,
    /// So many leading directories are taken off the names in it.
    #[serde(default)]
    pub strip: u32,
}

/// Packages from PyPI: wheels only, so that nothing is compiled or run.
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

/// Python modules that are compiled ahead. Their bytecode is not checked against
/// the source when they are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bytecode {
    /// Directories inside the tree whose modules are compiled.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Modules that are left as they are, in the words of `prune`: seldom
    /// imported, or large.
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

/// The release that a recipe gets which names none.
pub(super) const SUITE: &str = "trixie";

/// Where Debian's packages come from unless told otherwise.
pub(super) const MIRROR: &str = "http://deb.debian.org";

impl Recipe {
    /// Reads a recipe's text. Pure: nothing on the host is looked at.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with its field.
    pub fn parse(text: &str) -> Result<Self> {
        let recipe: Self = read_toml(text)?;
        recipe.check()?;
        Ok(recipe)
    }

    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        for (field, globs) in [("prune", &self.prune), ("keep", &self.keep)] {
            Globs::new(globs).map_err(|error| error.on(field))?;
        }
        if let Some(bytecode) = &self.bytecode {
            Globs::new(&bytecode.skip).map_err(|error| error.on("bytecode.skip"))?;
        }
        let commands = self.steps.iter().map(|words| ("steps", words));
        let commands = commands.chain(self.smoke.values().map(|words| ("smoke", words)));
        let versions = self
            .interpreters
            .values()
            .map(|i| ("interpreters", &i.version));
        for (field, words) in commands.chain(versions) {
            if words.is_empty() {
                return Err(wrong(field, "a command has at least one word"));
            }
        }
        for (language, interpreter) in &self.interpreters {
            if !interpreter.path.is_absolute() {
                let field = format!("interpreters.{language}.path");
                return Err(wrong(&field, "an absolute path is wanted"));
            }
        }
        if let Some(debian) = &self.debian {
            for (field, names) in [("packages", &debian.packages), ("without", &debian.without)] {
                check_words(&format!("debian.{field}"), names)?;
            }
            let urls = debian.mirror.iter().map(|url| ("debian.mirror", url));
            for (field, url) in urls {
                check_url(field, url)?;
            }
        }
        if let Some(pip) = &self.pip {
            check_words("pip.packages", &pip.packages)?;
        }
        if let Some(npm) = &self.npm {
            check_words("npm.packages", &npm.packages)?;
        }
        for archive in &self.archive {
            check_url("archive.url", &archive.url)?;
            let digest = &archive.sha256;
            if digest.len() != 64
                || !digest
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            {
                return Err(wrong("archive.sha256", "64 hexadecimal digits are wanted"));
            }
            if !["debian", "npm", "pypi"].contains(&archive.source.as_str()) {
                return Err(wrong("archive.source", "is one of debian, npm, pypi"));
            }
        }
        Ok(())
    }
}

/// Names go into paths and lists.
fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    let good = name.len() <= 64
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good {
        Ok(())
    } else {
        Err(wrong(
            "name",
            "is made of at most 64 lower-case letters, digits, `-`, `.` and `_`, a letter or digit first",
        ))
    }
}

/// Words that a tool must not take for options.
pub(super) fn check_words(field: &str, words: &[String]) -> Result<()> {
    let bad = |word: &&String| {
        word.is_empty() || word.starts_with('-') || word.contains(|c: char| c.is_control())
    };
    match words.iter().find(bad) {
        Some(word) => Err(wrong(
            field,
            &format!("{word:?} is not the name of a package"),
        )),
        None => Ok(()),
    }
}

fn check_url(field: &str, url: &str) -> Result<()> {
    let good = ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
        && url.chars().all(|c| c.is_ascii_graphic() && c != '"');
    if good {
        Ok(())
    } else {
        Err(wrong(
            field,
            "an address with http:// or https:// is wanted",
        ))
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
    fn wrong_values_name_their_field() {
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
