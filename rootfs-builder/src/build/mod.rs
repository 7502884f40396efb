//! Builds prepared root file systems from recipes, without privileges.
//!
//! # Flow
//!
//! 1. [`catalogue`] finds the recipe and those that it extends: the layers.
//! 2. A draft of the store is begun, from the rootfs of the store that has most
//!    of these layers already ([`layers`], [`link`]).
//! 3. Each layer ([`assemble`]): packages are resolved ([`debian`], [`pip`],
//!    [`npm`]) or taken from the lock file ([`lock`]), fetched into the cache
//!    ([`cache`]), unpacked; the recipe's steps run; what is unwanted goes
//!    ([`prune`]); Python modules are compiled ([`bytecode`]).
//! 4. Each recipe's smoke test runs on the whole ([`smoke`]), and the draft gets
//!    its name.
//!
//! Every outside tool runs in a cell ([`tool`]), can write to one empty directory,
//! and what it leaves there is taken over by [`adopt`]: nobody but this process
//! ever writes to a tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use add::{Addition, add};
pub use catalogue::{Layer, built_in, find};
pub use lock::Lock;
pub use recipe::Recipe;

use adopt::put;
use layers::Layers;
use progress::spoken;
use scratch::failed;
use shop::Shop;
use tool::Tool;

use cell::rootfs::{Base, Draft, Interpreter, Manifest, Store};
use cell::spec::units::Bytes;
use record::error::{Result, SetupError, Step};

mod add;
mod adopt;
mod assemble;
mod bytecode;
mod cache;
mod catalogue;
mod debian;
mod dry;
mod layers;
mod link;
mod lock;
mod npm;
mod pip;
mod progress;
mod prune;
mod recipe;
mod scratch;
mod shop;
mod smoke;
mod tool;

/// What `cellblock rootfs build` is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A built-in recipe's name, or the path of a recipe's folder.
    pub recipe: String,
    /// What the rootfs is to be called, if not as its recipe.
    pub name: Option<String>,
    /// The store, if not the usual one.
    pub store: Option<PathBuf>,
    /// Take the packages that the recipe's lock file names, and no others.
    pub locked: bool,
    /// Write the lock file.
    pub update_lock: bool,
    /// Begin with nothing, whatever the store has.
    pub fresh: bool,
    /// Only say what would be fetched.
    pub dry_run: bool,
    /// Say nothing but errors.
    pub quiet: bool,
}

/// The caller's interrupt, as an error.
fn cancelled() -> SetupError {
    SetupError::new(Step::Store, "interrupted")
        .hint("nothing half-made is left; what was fetched is kept, and the same command goes on from there")
}

/// Builds a rootfs and puts it into the store; `None` for a dry run.
///
/// # Errors
/// What is wrong with the recipe, the network, the disk or a package; nothing is
/// left of the rootfs then, and what was fetched stays in the cache.
pub fn build(request: &Request) -> Result<Option<Manifest>> {
    let began = Instant::now();
    let wanted = catalogue::chain(&request.recipe)?;
    let Some(last) = wanted.last() else {
        return Ok(None);
    };
    let lock = if request.locked {
        Some(locked(last, &wanted)?)
    } else {
        None
    };
    if request.update_lock && last.folder.is_none() {
        return Err(SetupError::new(
            Step::Spec,
            "a built-in recipe's lock file is part of cellblock",
        )
        .on("--update-lock")
        .hint("name the folder of a recipe, such as ./rootfs-builder/recipes/python"));
    }
    let store = Store::open(request.store.as_deref())?;
    let mut shop = Shop::open(request.quiet)?;
    let result = build_in(&mut shop, request, &store, &wanted, lock.as_ref());
    shop.progress.clear();
    let Some((manifest, layers)) = result? else {
        return Ok(None);
    };
    if let (true, Some(folder)) = (request.update_lock, &last.folder) {
        let path = folder.join(lock::FILE);
        fs::write(&path, layers.lock().to_text()?).map_err(failed("write", &path))?;
    }
    report(&shop, &manifest, began);
    Ok(Some(manifest))
}

fn build_in(
    shop: &mut Shop,
    request: &Request,
    store: &Store,
    wanted: &[Layer],
    lock: Option<&Lock>,
) -> Result<Option<(Manifest, Layers)>> {
    let recipe = wanted.last().map(|layer| &layer.recipe.name);
    let name = request
        .name
        .as_ref()
        .or(recipe)
        .cloned()
        .unwrap_or_default();
    let base = if request.fresh {
        None
    } else {
        layers::best_base(store, wanted, lock)
    };
    if request.dry_run {
        let base = base
            .as_ref()
            .map(|(prepared, layers)| (prepared.path.as_path(), layers));
        return dry::show(shop, wanted, lock, base).map(|()| None);
    }
    let draft = store.begin(&name)?;
    let tree = draft.tree().to_owned();
    let layers = match base {
        Some((prepared, layers)) => {
            shop.progress.say(&format!("from {}", prepared.name));
            link::link_tree(&prepared.path, &tree)?;
            layers
        }
        None => {
            adopt::merged_usr(&tree)?;
            Layers::default()
        }
    };
    furnish(shop, &tree)?;
    let layers = assemble::assemble(shop, &tree, wanted, layers, lock)?;
    layers.write(shop.scratch.path(), &tree)?;
    let manifest = Manifest {
        recipe: Some(cell::rootfs::Recipe {
            name: recipe.cloned().unwrap_or_default(),
            digest: Layers::digest(wanted),
        }),
        interpreters: interpreters(shop, &tree, wanted)?,
        packages: layers.packages(),
        ..Manifest::default()
    };
    for layer in wanted {
        smoke::test(shop, &tree, layer)?;
    }
    finish(shop, draft, manifest).map(|manifest| Some((manifest, layers)))
}

/// Gives the draft its name.
fn finish(shop: &Shop, draft: Draft, manifest: Manifest) -> Result<Manifest> {
    shop.progress.stage("checking and storing");
    shop.check()?;
    draft.commit(manifest)
}

/// The lock file of `last`, if it is for these layers.
fn locked(last: &Layer, wanted: &[Layer]) -> Result<Lock> {
    let wrong = |why: &str| {
        SetupError::new(Step::Spec, why)
            .on(format!("{}/{}", last.recipe.name, lock::FILE))
            .hint("build without --locked; for a recipe of your own, --update-lock writes the file")
    };
    let lock = last.lock()?.ok_or_else(|| wrong("there is no lock file"))?;
    let names = wanted.iter().map(|layer| &layer.recipe.name);
    if names.eq(lock.layer.iter().map(|layer| &layer.recipe)) {
        Ok(lock)
    } else {
        Err(wrong(
            "the lock file is for other layers than the recipe has",
        ))
    }
}

/// The little of `/etc` that programs expect and no package brings. A cell on a
/// prepared tree gets none of its own.
fn furnish(shop: &Shop, tree: &Path) -> Result<()> {
    const FILES: [(&str, &str); 5] = [
        (
            "etc/passwd",
            "root:x:0:0:root:/:/bin/sh\ncell:x:1000:1000:cell:/tmp:/bin/sh\n\
             nobody:x:65534:65534:nobody:/:/bin/false\n",
        ),
        ("etc/group", "root:x:0:\ncell:x:1000:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost cell\n::1 localhost\n"),
        (
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n",
        ),
        // A place for the host's, in the cells that fetch.
        ("etc/resolv.conf", ""),
    ];
    for (path, content) in FILES {
        if tree.join(path).symlink_metadata().is_err() {
            put(shop.scratch.path(), tree, path, content)?;
        }
    }
    Ok(())
}

/// The interpreters of all layers with their versions, by asking them.
fn interpreters(
    shop: &Shop,
    tree: &Path,
    wanted: &[Layer],
) -> Result<BTreeMap<String, Interpreter>> {
    let mut found = BTreeMap::new();
    for (language, interpreter) in wanted.iter().flat_map(|l| &l.recipe.interpreters) {
        let words = interpreter.version.iter().map(String::as_str);
        let doing = interpreter.version.join(" ");
        let printed = Tool::new(&doing, words).tree(tree).run()?;
        let version = version_in(&printed).ok_or_else(|| {
            SetupError::new(
                Step::Store,
                format!("prints no version: {:?}", printed.trim()),
            )
            .on(doing)
        })?;
        let path = interpreter.path.clone();
        found.insert(language.clone(), Interpreter { path, version });
        shop.check()?;
    }
    Ok(found)
}

/// The first thing in `text` that looks like a version: `3.13.5`.
fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || "(),\"".contains(c));
    words
        .map(|word| word.trim_start_matches('v'))
        .map(|word| {
            let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
            &word[..end.unwrap_or(word.len())]
        })
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
        .map(|word| word.trim_end_matches('.').to_owned())
}

fn report(shop: &Shop, manifest: &Manifest, began: Instant) {
    shop.progress.say(&format!(
        "{}: {} files, {}, {} packages, sha256:{} ({})",
        manifest.name,
        manifest.files,
        size(manifest.size_bytes),
        manifest.packages.len(),
        manifest.digest,
        spoken(began.elapsed()),
    ));
}

/// `57.3M`.
fn size(bytes: u64) -> String {
    match bytes {
        0..Bytes::MIB => format!("{}K", bytes.div_ceil(Bytes::KIB)),
        _ => format!("{:.1}M", bytes as f64 / Bytes::MIB as f64),
    }
}

/// What a rootfs is derived from, for its manifest.
fn base_of(manifest: &Manifest) -> Base {
    Base {
        name: manifest.name.clone(),
        digest: manifest.digest.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_interpreters_print() {
        for (printed, version) in [
            ("Python 3.13.5\n", "3.13.5"),
            ("v24.9.0\n", "24.9.0"),
            ("R version 4.5.0 (2025-04-11) -- \"x\"", "4.5.0"),
            ("openjdk 21.0.8 2025-07-15\n", "21.0.8"),
            ("jshell 21.0.8\n", "21.0.8"),
            ("GNU bash, version 5.2.37(1)-release (x86_64)", "5.2.37"),
            ("Rscript (R) version 4.5.0 (2025-04-11)", "4.5.0"),
        ] {
            assert_eq!(version_in(printed).as_deref(), Some(version), "{printed}");
        }
        assert_eq!(version_in("none"), None);
    }
}
