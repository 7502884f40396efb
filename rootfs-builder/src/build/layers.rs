//! What a built tree knows of its own making: the layers, in a file of the tree.
//!
//! A build goes on from the rootfs of the store that has most of its layers, and
//! `rootfs add` prunes and compiles by the rules of what it derives from.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::adopt::{put, read_beneath};
use super::cache::digest_of;
use super::catalogue::Layer;
use super::debian;
use super::lock::{Lock, Locked};
use super::npm;
use super::prune::Globs;
use cell::rootfs::{Package, Prepared, Store};
use record::error::{Result, SetupError, Step};

/// Where it is in a tree.
const PATH: &str = "usr/share/cellblock/layers.json";

const FORMAT: &str = "cellblock.layers.v1";

/// The layers of a tree, the first one first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layers {
    format: String,
    pub(super) layers: Vec<Built>,
}

/// One layer, as it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Built {
    /// Digest of its recipe; of a layer that was added, none.
    pub(super) digest: String,
    /// The name of its recipe, and its packages.
    #[serde(flatten)]
    pub(super) locked: Locked,
    /// Where its packages of Debian come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) suite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mirror: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) prune: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keep: Vec<String>,
    /// Whether Python modules are compiled, where, and which are not.
    #[serde(default)]
    pub(super) bytecode: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) compiled: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<String>,
    /// What came in archives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) archives: Vec<Package>,
}

impl Default for Layers {
    fn default() -> Self {
        Self {
            format: FORMAT.to_owned(),
            layers: Vec::new(),
        }
    }
}

impl Built {
    /// A layer by its recipe, without packages yet.
    pub(super) fn of(layer: &Layer) -> Self {
        let recipe = &layer.recipe;
        let debian = recipe.debian.as_ref();
        let bytecode = recipe.bytecode.clone();
        let inside = |path: &String| PathBuf::from(path.trim_start_matches('/'));
        Self {
            digest: layer.digest.clone(),
            locked: Locked {
                recipe: recipe.name.clone(),
                ..Locked::default()
            },
            suite: debian.and_then(|debian| debian.suite.clone()),
            mirror: debian.and_then(|debian| debian.mirror.clone()),
            prune: recipe.prune.clone(),
            keep: recipe.keep.clone(),
            bytecode: bytecode.is_some() || recipe.pip.is_some(),
            compiled: bytecode
                .iter()
                .flat_map(|b| b.directories.iter().map(inside))
                .collect(),
            skipped: bytecode.map(|b| b.skip).unwrap_or_default(),
            archives: Vec::new(),
        }
    }
}

impl Layers {
    /// Those of the tree, if it says.
    ///
    /// # Errors
    /// It says so in a way that this version does not read.
    pub(super) fn read(tree: &Path) -> Result<Option<Self>> {
        let Some(text) = read_beneath(tree, PATH)? else {
            return Ok(None);
        };
        let wrong = |why: String| {
            SetupError::new(Step::Store, why)
                .on(tree.join(PATH).display())
                .hint("build the rootfs again with --fresh")
        };
        let layers: Self = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if layers.format == FORMAT {
            Ok(Some(layers))
        } else {
            Err(wrong(format!("this version reads `{FORMAT}`")))
        }
    }

    /// Writes them into the tree.
    pub(super) fn write(&self, scratch: &Path, tree: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| SetupError::new(Step::Store, e.to_string()).on(PATH))?;
        put(scratch, tree, PATH, &(text + "\n"))
    }

    /// One digest for all their recipes.
    pub(super) fn digest(layers: &[Layer]) -> String {
        let all: String = layers.iter().map(|l| format!("{}\n", l.digest)).collect();
        digest_of(all.as_bytes())
    }

    /// Where packages of Debian come from: the first layer to say so decides.
    pub(super) fn source(&self) -> Option<debian::Source> {
        let suite = self
            .layers
            .iter()
            .find_map(|layer| layer.suite.as_deref())?;
        let mirror = self.layers.iter().find_map(|layer| layer.mirror.as_deref());
        Some(debian::Source::new(suite, mirror))
    }

    /// What is removed, and what is kept.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(super) fn prune(&self) -> Result<(Globs, Globs)> {
        let all = |field: fn(&Built) -> &Vec<String>| {
            let texts: Vec<&String> = self.layers.iter().flat_map(field).collect();
            Globs::new(&texts)
        };
        Ok((all(|layer| &layer.prune)?, all(|layer| &layer.keep)?))
    }

    /// For the manifest.
    pub(super) fn packages(&self) -> Vec<Package> {
        packages(&self.layers)
    }

    /// Those of the last layer only.
    pub(super) fn packages_of_last(&self) -> Vec<Package> {
        packages(self.layers.last().map_or(&[], std::slice::from_ref))
    }
    pub(super) fn lock(&self) -> Lock {
        Lock::new(self.layers.iter().map(|l| l.locked.clone()).collect())
    }

    /// Whether these are the first of `wanted`, and not all of them.
    fn begin(&self, wanted: &[Layer], lock: Option<&Lock>) -> bool {
        let same = |(index, built): (usize, &Built)| {
            let recipe = wanted.get(index).is_some_and(|l| l.digest == built.digest);
            let packages =
                lock.is_none_or(|lock| lock.layer.get(index).is_some_and(|l| *l == built.locked));
            recipe && packages
        };
        self.layers.len() < wanted.len() && self.layers.iter().enumerate().all(same)
    }
}

fn packages(layers: &[Built]) -> Vec<Package> {
    let mut packages = Vec::new();
    let package = |name: &str, version: &str, source: &str, digest: String| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        source: source.to_owned(),
        digest: Some(digest),
    };
    for layer in layers {
        for deb in &layer.locked.debian {
            let digest = format!("sha256:{}", deb.sha256);
            packages.push(package(&deb.name, &deb.version, "debian", digest));
        }
        packages.extend(layer.archives.iter().cloned());
        for wheel in &layer.locked.pip {
            let digest = format!("sha256:{}", wheel.sha256);
            packages.push(package(&wheel.name, &wheel.version, "pypi", digest));
        }
        // Read when it was written, so it can be read.
        let npm = layer.locked.npm.as_deref().map(npm::installed);
        for tarball in npm.and_then(Result::ok).unwrap_or_default() {
            let (name, version) = (&tarball.name, &tarball.version);
            packages.push(package(name, version, "npm", tarball.integrity));
        }
    }
    packages
}

/// The rootfs of the store that has most of the first layers of `wanted`.
pub(super) fn best_base(
    store: &Store,
    wanted: &[Layer],
    lock: Option<&Lock>,
) -> Option<(Prepared, Layers)> {
    let mut best: Option<(Prepared, Layers)> = None;
    for listed in store.list() {
        let Ok(Some(prepared)) = store.find(&listed.name) else {
            continue;
        };
        let Ok(Some(layers)) = Layers::read(&prepared.path) else {
            continue;
        };
        let most = best.as_ref().map_or(0, |(_, best)| best.layers.len());
        if layers.layers.len() > most && layers.begin(wanted, lock) {
            best = Some((prepared, layers));
        }
    }
    best
}
