//! Builds prepared root file systems from recipes, without privileges.
//!
//! # Flow
//!
//! 1. [`crate::recipe`] finds the recipe and those that it extends.
//! 2. The store begins a draft. It gets hard links to the files of the rootfs that
//!    has most of the recipe's layers already ([`layers`], [`adopt`]).
//! 3. Each further layer ([`layer`]): packages are resolved ([`crate::packages`]) or
//!    taken from the lock file, fetched into the cache and unpacked; the recipe's
//!    steps run; unwanted files go ([`prune`]); Python modules are compiled
//!    ([`bytecode`]).
//! 4. Each recipe's smoke tests run on the whole tree, and the draft gets its name.
//!
//! Every tool runs in a cell ([`crate::tool`]) and can write to one empty directory.
//! [`adopt`] moves its output into the tree, to which only this process writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use add::{AddRequest, add};
pub(crate) use adopt::adopt;
pub(crate) use context::BuildContext;
pub use dry_run::{PlannedBuild, PlannedFile};
pub(crate) use prune::Globs;

use crate::errors::{failed, store_error};
use crate::import::version_in;
use crate::recipe::{LOCK_FILE, Lock, RecipeFolder, chain};
use crate::store;
use crate::tool::{Failure, RECIPE, Tool};
use layers::Layers;
use plan::rootfs::{Interpreter, Manifest, Prepared, Recipe, Store};
use record::error::{Result, SetupError, Step};

mod add;
mod adopt;
mod bytecode;
mod context;
mod dry_run;
mod layer;
mod layers;
mod prune;

/// A request to build a rootfs.
#[derive(Clone, Debug, Default)]
pub struct BuildRequest {
    /// Name of a built-in recipe, or path of a recipe's folder.
    pub recipe: String,
    /// Name of the rootfs, if not the recipe's.
    pub name: Option<String>,
    /// The store, if not the default one.
    pub store: Option<PathBuf>,
    /// Install exactly the packages in the recipe's lock file.
    pub locked: bool,
    /// Write the lock file.
    pub update_lock: bool,
    /// Start with an empty tree, whatever the store has.
    pub fresh: bool,
    /// Print errors only.
    pub quiet: bool,
}

/// A build before its first layer.
struct Start {
    chain: Vec<RecipeFolder>,
    lock: Option<Lock>,
    store: Store,
    context: BuildContext,
    /// The tree of the store to start from.
    base: Option<(Prepared, Layers)>,
}

fn start(request: &BuildRequest) -> Result<Start> {
    let chain = chain(&request.recipe)?;
    let lock = request.locked.then(|| lock(&chain)).transpose()?;
    let store = Store::open(request.store.as_deref())?;
    let context = BuildContext::open(request.quiet)?;
    let base = match request.fresh {
        true => None,
        false => layers::best_base(&store, &chain, lock.as_ref()),
    };
    Ok(Start {
        chain,
        lock,
        store,
        context,
        base,
    })
}

/// The files that [`build`] would fetch.
///
/// # Errors
/// The recipe is invalid; apt or the network fails.
pub fn plan(request: &BuildRequest) -> Result<PlannedBuild> {
    let mut start = start(request)?;
    let base = start.base.as_ref();
    let base = base.map(|(prepared, layers)| (prepared.path.as_path(), layers));
    dry_run::plan(&mut start.context, &start.chain, start.lock.as_ref(), base)
}

/// Builds a rootfs from a recipe and puts it into the store.
///
/// # Errors
/// The recipe is invalid; a package, the network or the disk fails. The store is
/// unchanged then, and fetched files stay in the cache.
pub fn build(request: &BuildRequest) -> Result<Manifest> {
    let mut start = start(request)?;
    let (chain, context) = (&start.chain, &mut start.context);
    let last = last(chain)?;
    let lock_file = last.path.as_ref().map(|folder| folder.join(LOCK_FILE));
    if request.update_lock && lock_file.is_none() {
        return Err(SetupError::new(
            Step::Spec,
            "the lock file of a built-in recipe is part of cellblock",
        )
        .on("--update-lock")
        .hint("name the folder of a recipe, such as ./rootfs-builder/recipes/python"));
    }
    let draft = store::begin(
        &start.store,
        request.name.as_ref().unwrap_or(&last.recipe.name),
    )?;
    let tree = draft.tree();
    let layers = match start.base {
        Some((prepared, layers)) => {
            context.job.print(&format!("from {}", prepared.name));
            adopt::link_tree(&prepared.path, tree)?;
            layers
        }
        None => {
            adopt::merged_usr(tree)?;
            Layers::new(Vec::new())
        }
    };
    write_default_etc(context, tree)?;
    let layers = layer::add_layers(context, tree, chain, layers, start.lock.as_ref())?;
    layers.write(context, tree)?;
    let manifest = Manifest {
        recipe: Some(Recipe {
            name: last.recipe.name.clone(),
            digest: layers::digest_of_chain(chain),
        }),
        interpreters: interpreters(context, tree, chain)?,
        packages: layers.layers.iter().flat_map(|l| l.packages()).collect(),
        ..Manifest::default()
    };
    for folder in chain {
        smoke_test(context, tree, folder)?;
    }
    let manifest = context.commit(draft, manifest)?;
    if let (true, Some(path)) = (request.update_lock, lock_file) {
        fs::write(&path, layers.lock().to_text()?).map_err(failed("write", &path))?;
    }
    Ok(manifest)
}

/// The recipe that the others of a chain are for.
fn last(chain: &[RecipeFolder]) -> Result<&RecipeFolder> {
    let last = chain.last();
    last.ok_or_else(|| SetupError::new(Step::Spec, "the recipe has no layers"))
}

/// The lock file of a chain's last recipe, which must be for the layers of the chain.
fn lock(chain: &[RecipeFolder]) -> Result<Lock> {
    let last = last(chain)?;
    let wrong = |why: &str| {
        SetupError::new(Step::Spec, why)
            .on(format!("{}/{LOCK_FILE}", last.recipe.name))
            .hint("build without --locked; for a recipe of your own, --update-lock writes the file")
    };
    let lock = last.lock()?.ok_or_else(|| wrong("there is no lock file"))?;
    let names = chain.iter().map(|folder| &folder.recipe.name);
    match names.eq(lock.layer.iter().map(|layer| &layer.recipe)) {
        true => Ok(lock),
        false => Err(wrong("the lock file is for other layers")),
    }
}

/// Writes the files of `/etc` that programs expect and no package has. A cell on a
/// prepared tree gets none of its own.
fn write_default_etc(context: &BuildContext, tree: &Path) -> Result<()> {
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
        // Tools with a network get the host's in its place.
        ("etc/resolv.conf", ""),
    ];
    for (path, content) in FILES {
        if tree.join(path).symlink_metadata().is_err() {
            context.put(tree, path, content)?;
        }
    }
    Ok(())
}

/// The interpreters of all layers, with the versions that they print.
fn interpreters(
    context: &BuildContext,
    tree: &Path,
    chain: &[RecipeFolder],
) -> Result<BTreeMap<String, Interpreter>> {
    let mut found = BTreeMap::new();
    for (language, interpreter) in chain.iter().flat_map(|f| &f.recipe.interpreters) {
        let words = interpreter.version.iter().map(String::as_str);
        let name = interpreter.version.join(" ");
        let printed = Tool::new(&name, words).tree(tree).run()?;
        let version = version_in(&printed).ok_or_else(|| {
            let message = format!("prints no version: {:?}", printed.trim());
            store_error(message).on(name)
        })?;
        let path = interpreter.path.clone();
        found.insert(language.clone(), Interpreter { path, version });
        context.job.check()?;
    }
    Ok(found)
}

/// Runs the smoke tests of a recipe on a tree, in cells as strict as any other.
fn smoke_test(context: &BuildContext, tree: &Path, folder: &RecipeFolder) -> Result<()> {
    let recipe = &folder.recipe;
    for (language, words) in &recipe.smoke {
        context
            .job
            .step(&format!("testing {language} of {}", recipe.name));
        let profile = languages::find(language).and_then(|driver| driver.profile);
        let name = format!("{}: smoke.{language}", recipe.name);
        let words = words.iter().map(String::as_str);
        let ended = Tool::confined(&name, words, profile.map(|profile| profile.name))
            .tree(tree)
            .ro(&context.directory_with("recipe", folder.files())?, RECIPE)
            .run();
        context.job.check()?;
        ended.map_err(|failure| match failure {
            Failure::Setup(error) => error,
            Failure::Program { name, message, .. } => {
                store_error(format!("the smoke test failed: {message}"))
                    .on(name)
                    .hint(
                        "the store is unchanged; fix the recipe, or build with the packages of \
                         its lock file (--locked)",
                    )
            }
        })?;
    }
    Ok(())
}
