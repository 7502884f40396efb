//! `cellblock rootfs add`: derives a rootfs from another one, in seconds.

use crate::errors::store_error;
use std::path::{Path, PathBuf};

use super::adopt::link_tree;
use super::layer::{PYTHON, clean_up, install_packages};
use super::layers::{BuiltLayer, Layers};
use super::{BuildContext, write_default_etc};
use crate::files::read_beneath;
use crate::packages::debian;
use crate::recipe::{Debian, Npm, Pip, Recipe, check_packages};
use crate::store::{self, manifest_at};
use plan::rootfs::{Base, Manifest, Store};
use record::error::Result;

/// A request to derive a rootfs from another one.
#[derive(Clone, Debug, Default)]
pub struct AddRequest {
    /// Name of the base.
    pub base: String,
    /// Name of the new rootfs; without it, the new one replaces the base.
    pub name: Option<String>,
    /// The store, if not the default one.
    pub store: Option<PathBuf>,
    /// Packages of PyPI, as pip takes them.
    pub pip: Vec<String>,
    /// Packages of npm's registry, as npm takes them.
    pub npm: Vec<String>,
    /// Packages of Debian.
    pub apt: Vec<String>,
    /// Print errors only.
    pub quiet: bool,
}

/// The name of the added layer.
const LAYER: &str = "added";

/// Derives a rootfs from another one by adding packages.
///
/// # Errors
/// Those of [`crate::build`]; the base does not exist or cannot run such packages.
pub fn add(request: &AddRequest) -> Result<Manifest> {
    check_packages("--pip", &request.pip)?;
    check_packages("--npm", &request.npm)?;
    check_packages("--apt", &request.apt)?;
    let store = Store::open(request.store.as_deref())?;
    let base = store.require(&request.base)?;
    let manifest = manifest_at(&base.path)?;
    let mut context = BuildContext::open(request.quiet)?;
    let draft = store::begin(&store, request.name.as_ref().unwrap_or(&request.base))?;
    link_tree(&base.path, draft.tree())?;
    let manifest = add_layer(&mut context, request, draft.tree(), manifest)?;
    context.commit(draft, manifest)
}

/// Adds the layer to a copy of the base, and returns the manifest of the result.
fn add_layer(
    context: &mut BuildContext,
    request: &AddRequest,
    tree: &Path,
    base: Manifest,
) -> Result<Manifest> {
    let list = |words: &[String]| Some(words.to_vec()).filter(|words| !words.is_empty());
    let recipe = Recipe {
        name: LAYER.to_owned(),
        debian: list(&request.apt).map(|packages| Debian {
            packages,
            ..Debian::default()
        }),
        pip: list(&request.pip).map(|packages| Pip { packages }),
        npm: list(&request.npm).map(|packages| Npm { packages }),
        ..Recipe::default()
    };
    if recipe.debian.is_some() && !debian::has_packages(tree)? {
        return Err(store_error("has no list of Debian packages")
            .on(&request.base)
            .hint("--apt adds to trees that were built from Debian; try --pip or --npm"));
    }
    write_default_etc(context, tree)?;
    let mut layers = Layers::read(tree)?.unwrap_or_else(|| Layers::new(Vec::new()));
    let has_bytecode = layers.layers.iter().any(|layer| layer.bytecode);
    let mut layer = BuiltLayer::of(&recipe, String::new());
    layer.bytecode |= recipe.debian.is_some() && has_bytecode;
    if layers.repository(&layer).is_none() {
        layer.suite = suite(tree)?;
    }
    let python = base.interpreters.get("python");
    let python = python.map_or(Path::new(PYTHON), |found| &found.path);
    install_packages(context, tree, &recipe, python, None, layer, &mut layers)?;
    clean_up(context, tree, python, &layers)?;
    layers.write(context, tree)?;
    let added = layers.layers.last().map(BuiltLayer::packages);
    Ok(Manifest {
        base: Some(Base {
            name: base.name,
            digest: base.digest,
        }),
        packages: [base.packages, added.unwrap_or_default()].concat(),
        recipe: base.recipe,
        interpreters: base.interpreters,
        ..Manifest::default()
    })
}

/// The release of Debian that a tree names.
fn suite(tree: &Path) -> Result<Option<String>> {
    let text = read_beneath(tree, "usr/lib/os-release")?.unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let is_plain = |suite: &String| {
        !suite.is_empty() && suite.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    Ok(match value("ID=").as_deref() {
        Some("debian") => value("VERSION_CODENAME=").filter(is_plain),
        _ => None,
    })
}
