//! `cellblock rootfs add`: some packages more, in seconds.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::adopt::read_beneath;
use super::assemble::{Work, finish as tidy, packages};
use super::debian;
use super::layers::{Built, Layers};
use super::link::link_tree;
use super::lock::Locked;
use super::recipe::{Debian, Npm, check_words};
use super::shop::Shop;
use super::{base_of, finish, furnish, report};
use cell::rootfs::{Manifest, Store};
use record::error::{Result, SetupError, Step};

/// What `cellblock rootfs add` is asked for.
#[derive(Clone, Debug, Default)]
pub struct Addition {
    /// The rootfs that is derived from.
    pub base: String,
    /// The new one's name; without it, the new one takes the place of `base`.
    pub name: Option<String>,
    /// The store, if not the usual one.
    pub store: Option<PathBuf>,
    /// Packages of PyPI, as pip takes them.
    pub pip: Vec<String>,
    /// Packages of npm's registry, as npm takes them.
    pub npm: Vec<String>,
    /// Packages of Debian.
    pub apt: Vec<String>,
    /// Say nothing but errors.
    pub quiet: bool,
}

/// What the added layer is called.
const LAYER: &str = "added";

/// Derives a rootfs from another one.
///
/// # Errors
/// Those of [`super::build`]; or the base is not there, or has nothing that such
/// packages would run on.
pub fn add(addition: &Addition) -> Result<Manifest> {
    let began = Instant::now();
    for (option, words) in [
        ("--pip", &addition.pip),
        ("--npm", &addition.npm),
        ("--apt", &addition.apt),
    ] {
        check_words(option, words)?;
    }
    let store = Store::open(addition.store.as_deref())?;
    let base = store.require(&addition.base)?;
    let described = Manifest::read(&base.path)?.ok_or_else(|| {
        SetupError::new(Step::Store, "has no manifest")
            .on(base.path.display())
            .hint("give it one with `cellblock rootfs import`")
    })?;
    let mut shop = Shop::open(addition.quiet)?;
    let draft = store.begin(addition.name.as_ref().unwrap_or(&addition.base))?;
    let tree = draft.tree().to_owned();
    let result = derive(&mut shop, addition, &base.path, &tree, &described)
        .and_then(|manifest| finish(&shop, draft, manifest));
    shop.progress.clear();
    let manifest = result?;
    report(&shop, &manifest, began);
    Ok(manifest)
}

fn derive(
    shop: &mut Shop,
    addition: &Addition,
    base: &Path,
    tree: &Path,
    described: &Manifest,
) -> Result<Manifest> {
    link_tree(base, tree)?;
    furnish(shop, tree)?;
    let mut layers = Layers::read(tree)?.unwrap_or_default();
    let some = |words: &[String]| (!words.is_empty()).then(|| words.to_vec());
    let debian = some(&addition.apt).map(|packages| Debian {
        packages,
        ..Debian::default()
    });
    if debian.is_some() && !debian::is_debian(tree)? {
        return Err(
            SetupError::new(Step::Store, "has no list of Debian's packages")
                .on(&addition.base)
                .hint("--apt adds to what was built from Debian; try --pip or --npm"),
        );
    }
    layers.layers.push(Built {
        locked: Locked {
            recipe: LAYER.to_owned(),
            ..Locked::default()
        },
        bytecode: !addition.pip.is_empty()
            || (!addition.apt.is_empty() && layers.layers.iter().any(|layer| layer.bytecode)),
        suite: match layers.source() {
            Some(_) => None,
            None => suite(tree)?,
        },
        ..Built::default()
    });
    let python = described.interpreters.get("python");
    let python = python.map_or(Path::new("/usr/bin/python3"), |found| &found.path);
    let npm = some(&addition.npm).map(|packages| Npm { packages });
    let work = Work {
        name: LAYER,
        debian: debian.as_ref(),
        pip: (!addition.pip.is_empty()).then_some(addition.pip.as_slice()),
        npm: npm.as_ref(),
        python,
        locked: None,
    };
    packages(shop, tree, &work, &[], &mut layers)?;
    tidy(shop, tree, &work, &layers)?;
    layers.write(shop.scratch.path(), tree)?;
    let mut all = described.packages.clone();
    all.extend(layers.packages_of_last());
    Ok(Manifest {
        recipe: described.recipe.clone(),
        base: Some(base_of(described)),
        interpreters: described.interpreters.clone(),
        packages: all,
        ..Manifest::default()
    })
}

/// The release that a tree says it is of.
fn suite(tree: &Path) -> Result<Option<String>> {
    let text = read_beneath(tree, "usr/lib/os-release")?.unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let plain = |suite: &String| {
        !suite.is_empty() && suite.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    Ok(match value("ID=").as_deref() {
        Some("debian") => value("VERSION_CODENAME=").filter(plain),
        _ => None,
    })
}
