//! Adds layers to a tree: packages, the recipe's steps, `prune` and bytecode.

use crate::errors::store_error;
use std::path::{Path, PathBuf};

use super::BuildContext;
use super::bytecode;
use super::layers::{BuiltLayer, Layers};
use super::prune::prune;
use crate::files::make_directory;
use crate::packages::debian::{self, Repository};
use crate::packages::pip::{self, Pip};
use crate::packages::{Download, fetch, npm};
use crate::recipe::{Archive, Lock, Locked, Recipe, RecipeFolder, SUITE, Wheel};
use crate::tool::{OUT, RECIPE, Tool};
use plan::rootfs::Package;
use record::error::Result;

/// The path of Python when no recipe names it.
pub(super) const PYTHON: &str = "/usr/bin/python3";

const LDCONFIG: &str = "/usr/sbin/ldconfig";

/// Sorted, since file systems have orders of their own.
const COLLECT_CERTIFICATES: &str = "mkdir -p etc/ssl/certs
find /usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat \\
    >etc/ssl/certs/ca-certificates.crt";

/// Adds the layers of `chain` that `layers` lacks.
pub(super) fn add_layers(
    context: &mut BuildContext,
    tree: &Path,
    chain: &[RecipeFolder],
    mut layers: Layers,
    lock: Option<&Lock>,
) -> Result<Layers> {
    let known = chain.last().map(RecipeFolder::lock).transpose()?.flatten();
    let known = known.into_iter().flat_map(|lock| lock.layer);
    context.known_sizes = known
        .flat_map(|layer| layer.pip)
        .map(|wheel| (wheel.sha256, wheel.size))
        .collect();
    let mut interpreters = chain.iter().flat_map(|folder| &folder.recipe.interpreters);
    let python = interpreters.find(|(language, _)| *language == "python");
    let python = python.map_or(Path::new(PYTHON), |(_, python)| &python.path);
    for (index, folder) in chain.iter().enumerate().skip(layers.layers.len()) {
        let recipe = &folder.recipe;
        context
            .job
            .print(&format!("{}: {}", recipe.name, recipe.summary));
        let layer = BuiltLayer::of(recipe, folder.digest.clone());
        let locked = lock.and_then(|lock| lock.layer.get(index));
        install_packages(context, tree, recipe, python, locked, layer, &mut layers)?;
        run_steps(context, tree, folder)?;
        clean_up(context, tree, python, &layers)?;
    }
    Ok(layers)
}

/// Installs the packages of a recipe into the tree, those in `locked` rather than the
/// newest, and adds `layer` with them to `layers`. `python` is the path inside.
pub(super) fn install_packages(
    context: &mut BuildContext,
    tree: &Path,
    recipe: &Recipe,
    python: &Path,
    locked: Option<&Locked>,
    mut layer: BuiltLayer,
    layers: &mut Layers,
) -> Result<()> {
    let name = &recipe.name;
    let repository = layers.repository(&layer);
    let repository = repository.unwrap_or_else(|| Repository::new(SUITE, None));
    if let Some(wanted) = &recipe.debian {
        debian::require_tools()?;
        let debs = match locked {
            Some(locked) => locked.debian.clone(),
            None => debian::resolve(context, tree, &repository, wanted, name)?,
        };
        announce(context, "Debian packages", debs.iter().map(Download::from));
        debian::fetch_all(context, &repository, &debs, locked.is_some())?;
        debian::unpack(context, tree, &debs, wanted, name)?;
        replace_scripts(context, tree)?;
        layer.locked.debian = debs;
    }
    for archive in &recipe.archive {
        layer.archives.push(unpack(context, tree, archive)?);
    }
    if let Some(wanted) = &recipe.pip {
        let package = match locked.and_then(|locked| locked.pip_tool.clone()) {
            Some(package) => package,
            None => pip::find_pip(context, tree, &repository)?,
        };
        let is_locked = locked.is_some();
        let pip = Pip::new(context, tree, python, &repository, &package, is_locked)?;
        let mut wheels = match locked {
            Some(locked) => locked.pip.clone(),
            None => pip.resolve(context, &wanted.packages)?,
        };
        refuse_replacements(&wheels, &wanted.packages, layers)?;
        announce(
            context,
            "Python packages",
            wheels.iter().map(Download::from),
        );
        pip.fetch(context, &mut wheels)?;
        pip.install(context, &wheels)?;
        layer.locked.pip = wheels;
        layer.locked.pip_tool = Some(package);
    }
    if let Some(wanted) = &recipe.npm {
        let locked = locked.and_then(|locked| locked.npm.as_deref());
        layer.locked.npm = Some(npm::install(context, tree, wanted, locked)?);
    }
    layers.layers.push(layer);
    Ok(())
}

fn announce(context: &BuildContext, kind: &str, downloads: impl Iterator<Item = Download>) {
    let is_missing = |download: &Download| context.cache.find(&download.sha256).is_none();
    let missing = downloads.filter(is_missing).map(|download| download.size);
    context
        .job
        .begin_downloads(kind, &missing.collect::<Vec<_>>());
}

/// A tree must not have two versions of one package.
fn refuse_replacements(wheels: &[Wheel], wanted: &[String], layers: &Layers) -> Result<()> {
    let mut installed = layers.layers.iter().flat_map(|layer| &layer.locked.pip);
    let replaced = installed.find_map(|old| {
        let new = wheels.iter().find(|new| new.name == old.name)?;
        Some((new, &old.version))
    });
    match replaced {
        None => Ok(()),
        Some((new, old)) => Err(store_error(format!(
            "needs {} {}, but the layers below have {old}",
            new.name, new.version
        ))
        .on(wanted.join(", "))
        .hint("ask for a version that works with the installed one, or write a recipe for both")),
    }
}

/// Does the part of the packages' own scripts that every tree needs: the loader's
/// cache, and one file with all public certificates.
fn replace_scripts(context: &BuildContext, tree: &Path) -> Result<()> {
    if tree.join(&LDCONFIG[1..]).is_file() {
        let out = context.directory("out")?;
        make_directory(&out.join("etc"))?;
        context.give_all(&out)?;
        let cache = format!("{OUT}/etc/ld.so.cache");
        // -X: the packages bring their links.
        let tool = Tool::new("ldconfig", [LDCONFIG, "-X", "-C", &cache]).tree(tree);
        context.install_from(&out, tree, tool)?;
    }
    if tree.join("usr/share/ca-certificates").is_dir() {
        let words = ["/bin/sh", "-c", COLLECT_CERTIFICATES];
        let tool = Tool::new("collect certificates", words).tree(tree).cwd(OUT);
        context.install(tree, tool)?;
    }
    Ok(())
}

/// Fetches an archive and unpacks it into the tree.
fn unpack(context: &BuildContext, tree: &Path, archive: &Archive) -> Result<Package> {
    const SCRIPT: &str = r#"mkdir -p "$2" && tar --extract --file /archive \
        --strip-components "$1" --directory "$2" --no-same-owner"#;
    let download = Download::from(archive);
    announce(context, &archive.name, std::iter::once(download.clone()));
    fetch(context, &archive.url, &download)?;
    let strip = archive.strip.to_string();
    let into = Path::new(OUT).join(archive.into.trim_start_matches('/'));
    let into = into.display().to_string();
    let tool = Tool::new(
        &format!("unpack {}", download.name),
        ["sh", "-c", SCRIPT, "sh", &strip, &into],
    );
    let tool = tool.ro(&context.cache.require(&archive.sha256)?, "/archive");
    context.install(tree, tool)?;
    Ok(Package {
        name: archive.name.clone(),
        version: archive.version.clone(),
        source: archive.source.clone(),
        digest: Some(format!("sha256:{}", archive.sha256)),
    })
}

/// Runs the recipe's own commands.
fn run_steps(context: &BuildContext, tree: &Path, folder: &RecipeFolder) -> Result<()> {
    let recipe = &folder.recipe;
    for words in &recipe.steps {
        let name = words.join(" ");
        context.job.step(&format!("{}: {name}", recipe.name));
        let tool = Tool::new(&name, words.iter().map(String::as_str))
            .tree(tree)
            .ro(&context.directory_with("recipe", folder.files())?, RECIPE)
            .cwd(OUT);
        context.install(tree, tool)?;
    }
    Ok(())
}

/// Removes pruned files and compiles Python modules, by the rules of all layers.
pub(super) fn clean_up(
    context: &BuildContext,
    tree: &Path,
    python: &Path,
    layers: &Layers,
) -> Result<()> {
    let kept = layers.patterns(|layer| &layer.keep)?;
    prune(tree, &layers.patterns(|layer| &layer.prune)?, &kept)?;
    context.job.check()?;
    if layers.layers.last().is_some_and(|layer| layer.bytecode) {
        let compiled = layers
            .layers
            .iter()
            .flat_map(|layer| layer.compiled.clone());
        let compiled: Vec<PathBuf> = compiled.collect();
        let skipped = layers.patterns(|layer| &layer.skipped)?;
        bytecode::compile(context, tree, python, &compiled, &skipped)?;
    }
    Ok(())
}
