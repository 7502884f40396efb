//! The layers of a built tree, noted in a file of the tree.
//!
//! A build continues from the rootfs of the store that has most of its layers, and
//! `rootfs add` prunes and compiles by the rules of the base's layers.

use crate::errors::store_error;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{BuildContext, Globs};
use crate::files::read_beneath;
use crate::packages::debian::Repository;
use crate::packages::{digest_of, npm};
use crate::recipe::{Lock, Locked, Recipe, RecipeFolder};
use plan::rootfs::{Manifest, Package, Prepared, Store};
use record::error::Result;

/// The file's path in a tree.
const PATH: &str = "usr/share/cellblock/layers.json";

const FORMAT: &str = "cellblock.layers.v1";

/// The layers of a tree, in the order in which they were built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layers {
    format: String,
    pub(super) layers: Vec<BuiltLayer>,
}

/// One layer as it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BuiltLayer {
    /// Digest of its recipe; empty for a layer of `rootfs add`.
    pub(super) digest: String,
    /// The name of its recipe, and its packages.
    #[serde(flatten)]
    pub(super) locked: Locked,
    /// The release and mirror of its packages of Debian.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) suite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mirror: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) prune: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keep: Vec<String>,
    /// Whether Python modules are compiled.
    #[serde(default)]
    pub(super) bytecode: bool,
    /// Directories whose modules are compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) compiled: Vec<PathBuf>,
    /// Patterns of modules that are not compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<String>,
    /// Packages that came in archives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) archives: Vec<Package>,
}

impl BuiltLayer {
    /// The layer of a recipe, without packages yet.
    pub(super) fn of(recipe: &Recipe, digest: String) -> Self {
        let debian = recipe.debian.as_ref();
        let bytecode = recipe.bytecode.clone();
        let has_bytecode = bytecode.is_some() || recipe.pip.is_some();
        let bytecode = bytecode.unwrap_or_default();
        let directories = bytecode.directories.iter();
        Self {
            digest,
            locked: Locked {
                recipe: recipe.name.clone(),
                ..Locked::default()
            },
            suite: debian.and_then(|debian| debian.suite.clone()),
            mirror: debian.and_then(|debian| debian.mirror.clone()),
            prune: recipe.prune.clone(),
            keep: recipe.keep.clone(),
            bytecode: has_bytecode,
            compiled: directories
                .map(|path| path.trim_start_matches('/').into())
                .collect(),
            skipped: bytecode.skip,
            archives: Vec::new(),
        }
    }

    /// Its packages, for the manifest.
    pub(super) fn packages(&self) -> Vec<Package> {
        let package = |name: &String, version: &String, source: &str, sha256: &String| Package {
            name: name.clone(),
            version: version.clone(),
            source: source.to_owned(),
            digest: Some(format!("sha256:{sha256}")),
        };
        let Locked {
            debian, pip, npm, ..
        } = &self.locked;
        // It was parsed when it was written.
        let npm = npm.as_deref().map(npm::installed).and_then(Result::ok);
        debian
            .iter()
            .map(|deb| package(&deb.name, &deb.version, "debian", &deb.sha256))
            .chain(self.archives.iter().cloned())
            .chain(
                pip.iter()
                    .map(|w| package(&w.name, &w.version, "pypi", &w.sha256)),
            )
            .chain(npm.into_iter().flatten())
            .collect()
    }
}

impl Layers {
    pub(super) fn new(layers: Vec<BuiltLayer>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            layers,
        }
    }

    /// The layers that the tree names; `None` when it names none.
    ///
    /// # Errors
    /// This version does not read the file.
    pub(super) fn read(tree: &Path) -> Result<Option<Self>> {
        let Some(text) = read_beneath(tree, PATH)? else {
            return Ok(None);
        };
        let wrong = |why: String| {
            store_error(why)
                .on(tree.join(PATH).display())
                .hint("build the rootfs again with --fresh")
        };
        let layers: Self = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        match layers.format == FORMAT {
            true => Ok(Some(layers)),
            false => Err(wrong(format!("this version reads `{FORMAT}`"))),
        }
    }

    /// Writes the file into the tree.
    pub(super) fn write(&self, context: &BuildContext, tree: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(self).map_err(|e| store_error(e.to_string()).on(PATH))?;
        context.put(tree, PATH, &(text + "\n"))
    }

    /// The release and mirror that packages of Debian in the layer `next` come from:
    /// those of the first layers that name them.
    pub(super) fn repository(&self, next: &BuiltLayer) -> Option<Repository> {
        let layers = || self.layers.iter().chain([next]);
        let suite = layers().find_map(|layer| layer.suite.as_deref());
        let mirror = layers().find_map(|layer| layer.mirror.as_deref());
        suite.map(|suite| Repository::new(suite, mirror))
    }

    /// The patterns in one field of all layers.
    ///
    /// # Errors
    /// An invalid pattern.
    pub(super) fn patterns(&self, field: fn(&BuiltLayer) -> &Vec<String>) -> Result<Globs> {
        let patterns: Vec<&String> = self.layers.iter().flat_map(field).collect();
        Globs::new(&patterns)
    }

    pub(super) fn lock(&self) -> Lock {
        Lock::new(self.layers.iter().map(|l| l.locked.clone()).collect())
    }

    /// Whether these are the first layers of `chain`, and not all of them.
    fn begin(&self, chain: &[RecipeFolder], lock: Option<&Lock>) -> bool {
        let is_same = |(index, built): (usize, &BuiltLayer)| {
            let folder = chain.get(index);
            let locked = lock.map(|lock| lock.layer.get(index));
            folder.is_some_and(|folder| folder.digest == built.digest)
                && locked.is_none_or(|locked| locked == Some(&built.locked))
        };
        self.layers.len() < chain.len() && self.layers.iter().enumerate().all(is_same)
    }
}

/// One digest of all recipes of a chain.
pub(super) fn digest_of_chain(chain: &[RecipeFolder]) -> String {
    let all: String = chain.iter().map(|f| format!("{}\n", f.digest)).collect();
    digest_of(all.as_bytes())
}

/// The rootfs of the store that has most of the first layers of `chain`.
pub(super) fn best_base(
    store: &Store,
    chain: &[RecipeFolder],
    lock: Option<&Lock>,
) -> Option<(Prepared, Layers)> {
    let names = store.names().into_keys();
    names
        .filter_map(|name| {
            let prepared = store.find(&name).ok()??;
            // An imported tree may claim any layers; it has no recipe.
            Manifest::read(&prepared.path).ok()??.recipe?;
            let layers = Layers::read(&prepared.path).ok()??;
            layers.begin(chain, lock).then_some((prepared, layers))
        })
        .max_by_key(|(_, layers)| layers.layers.len())
}
