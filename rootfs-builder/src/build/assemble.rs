//! Layer by layer, from packages to a tree.

use std::path::{Path, PathBuf};

use super::adopt::adopt;
use super::bytecode;
use super::cache::Cache;
use super::catalogue::Layer;
use super::debian::{self, Source};
use super::layers::{Built, Layers};
use super::lock::{Lock, Locked};
use super::npm;
use super::pip::{self, Pip};
use super::prune::{Globs, prune};
use super::recipe::{Archive, Debian, Npm, Recipe, SUITE};
use super::scratch::make_directory;
use super::shop::{Item, Shop};
use super::tool::{OUT, Tool};
use cell::rootfs::Package;
use record::error::{Result, SetupError, Step};

/// Where Python is when no recipe says.
const PYTHON: &str = "/usr/bin/python3";

/// Where the recipe's folder is for its steps.
const RECIPE: &str = "/recipe";

const LDCONFIG: &str = "/usr/sbin/ldconfig";

/// In one order, whatever the file system's is.
const CERTIFICATES: &str = "mkdir -p etc/ssl/certs
find /usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat \\
    >etc/ssl/certs/ca-certificates.crt";

/// Adds to `tree` the layers of `wanted` that `done` does not have yet.
pub(super) fn assemble(
    shop: &mut Shop,
    tree: &Path,
    wanted: &[Layer],
    done: Layers,
    lock: Option<&Lock>,
) -> Result<Layers> {
    let mut layers = done;
    let known = wanted.last().map(Layer::lock).transpose()?.flatten();
    let wheels = known.into_iter().flat_map(|lock| lock.layer);
    shop.sizes = wheels
        .flat_map(|layer| layer.pip)
        .map(|wheel| (wheel.sha256, wheel.size))
        .collect();
    for (index, layer) in wanted.iter().enumerate().skip(layers.layers.len()) {
        let locked = lock.and_then(|lock| lock.layer.get(index));
        layers.layers.push(Built::of(layer));
        let recipe = &layer.recipe;
        let work = Work {
            name: &recipe.name,
            debian: recipe.debian.as_ref(),
            pip: recipe.pip.as_ref().map(|pip| pip.packages.as_slice()),
            npm: recipe.npm.as_ref(),
            python: &python(wanted),
            locked,
        };
        shop.progress
            .say(&format!("{}: {}", recipe.name, recipe.summary));
        packages(shop, tree, &work, &recipe.archive, &mut layers)?;
        steps(shop, tree, layer)?;
        finish(shop, tree, &work, &layers)?;
    }
    Ok(layers)
}

/// The packages of one layer.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) name: &'a str,
    pub(super) debian: Option<&'a Debian>,
    pub(super) pip: Option<&'a [String]>,
    pub(super) npm: Option<&'a Npm>,
    /// The interpreter inside.
    pub(super) python: &'a Path,
    /// The packages to take, rather than those that are the newest now.
    pub(super) locked: Option<&'a Locked>,
}

fn python(wanted: &[Layer]) -> PathBuf {
    let named = |recipe: &Recipe| recipe.interpreters.get("python").map(|i| i.path.clone());
    let found = wanted.iter().find_map(|layer| named(&layer.recipe));
    found.unwrap_or_else(|| PYTHON.into())
}

/// Gets all packages of the last of `layers` into the tree.
pub(super) fn packages(
    shop: &mut Shop,
    tree: &Path,
    work: &Work<'_>,
    archives: &[Archive],
    layers: &mut Layers,
) -> Result<()> {
    let source = layers.source().unwrap_or_else(|| Source::new(SUITE, None));
    let mut got = Locked {
        recipe: work.name.to_owned(),
        ..Locked::default()
    };
    if let Some(wanted) = work.debian {
        debian::require_tools()?;
        got.debian = match work.locked {
            Some(locked) => locked.debian.clone(),
            None => debian::resolve(shop, tree, &source, wanted, work.name)?,
        };
        let items = debian::items(&got.debian);
        shop.progress
            .fetching("Debian packages", &shop.missing(&items));
        debian::fetch(shop, &source, &got.debian, work.locked.is_some())?;
        debian::unpack(shop, tree, &got.debian, wanted, work.name)?;
        after(shop, tree)?;
    }
    for archive in archives {
        let package = unpack(shop, tree, archive)?;
        if let Some(layer) = layers.layers.last_mut() {
            layer.archives.push(package);
        }
    }
    if let Some(wanted) = work.pip {
        install_wheels(shop, tree, work, wanted, &source, layers, &mut got)?;
    }
    if let Some(wanted) = work.npm {
        let locked = work.locked.and_then(|locked| locked.npm.as_deref());
        got.npm = Some(npm::install(shop, tree, wanted, locked)?);
    }
    if let Some(layer) = layers.layers.last_mut() {
        layer.locked = got;
    }
    Ok(())
}

fn install_wheels(
    shop: &mut Shop,
    tree: &Path,
    work: &Work<'_>,
    wanted: &[String],
    source: &Source,
    layers: &Layers,
    got: &mut Locked,
) -> Result<()> {
    let locked = work.locked;
    let tool = match locked.and_then(|locked| locked.pip_tool.clone()) {
        Some(tool) => tool,
        None => pip::find_tool(shop, tree, source)?,
    };
    let pip = Pip::new(shop, tree, work.python, source, &tool, locked.is_some())?;
    let mut wheels = match locked {
        Some(locked) => locked.pip.clone(),
        None => pip.resolve(shop, wanted)?,
    };
    let before = layers.layers.iter().flat_map(|layer| &layer.locked.pip);
    for wheel in before {
        if let Some(new) = wheels.iter().find(|new| new.name == wheel.name) {
            return Err(SetupError::new(
                Step::Store,
                format!(
                    "needs {} {}, and the layers below have {}",
                    new.name, new.version, wheel.version
                ),
            )
            .on(wanted.join(", "))
            .hint(
                "ask for a version that goes with what is there, or write a recipe that has both",
            ));
        }
    }
    let items = pip::items(&wheels);
    shop.progress
        .fetching("Python packages", &shop.missing(&items));
    pip.fetch(shop, &mut wheels)?;
    pip.install(shop, &wheels)?;
    got.pip = wheels;
    got.pip_tool = Some(tool);
    Ok(())
}

/// What the packages' own scripts would have done, as far as every tree needs it:
/// the loader's cache, and one file with all public certificates.
fn after(shop: &mut Shop, tree: &Path) -> Result<()> {
    if tree.join(&LDCONFIG[1..]).is_file() {
        let out = shop.scratch.writable("out", shop.writer)?;
        let etc = out.join("etc");
        make_directory(&etc)?;
        shop.writer.give(&etc)?;
        let cache = format!("{OUT}/etc/ld.so.cache");
        // -X: the packages bring their links.
        Tool::new("ldconfig", [LDCONFIG, "-X", "-C", &cache])
            .tree(tree)
            .out(&out)
            .run()?;
        adopt(&out, tree)?;
    }
    if tree.join("usr/share/ca-certificates").is_dir() {
        let out = shop.scratch.writable("out", shop.writer)?;
        Tool::new("collect certificates", ["/bin/sh", "-c", CERTIFICATES])
            .tree(tree)
            .out(&out)
            .cwd(OUT)
            .run()?;
        adopt(&out, tree)?;
    }
    shop.check()
}

/// Fetches an archive and unpacks it into the tree.
fn unpack(shop: &mut Shop, tree: &Path, archive: &Archive) -> Result<Package> {
    let item = Item {
        name: format!("{} {}", archive.name, archive.version),
        sha256: archive.sha256.clone(),
        size: archive.size,
    };
    shop.progress
        .fetching(&archive.name, &shop.missing(std::slice::from_ref(&item)));
    debian::fetch_file(shop, &archive.url, &item)?;
    let out = shop.scratch.writable("out", shop.writer)?;
    let file = Path::new("/blobs").join(Cache::relative(&archive.sha256));
    const SCRIPT: &str = r#"mkdir -p "$3" && tar --extract --file "$1" --strip-components "$2" --directory "$3" --no-same-owner"#;
    let into = Path::new(OUT).join(archive.into.trim_start_matches('/'));
    let words = [
        "sh",
        "-c",
        SCRIPT,
        "sh",
        &file.display().to_string(),
        &archive.strip.to_string(),
        &into.display().to_string(),
    ];
    Tool::new(&format!("unpack {}", item.name), words)
        .ro(&shop.cache.blobs(), "/blobs")
        .out(&out)
        .run()?;
    adopt(&out, tree)?;
    shop.check()?;
    Ok(Package {
        name: archive.name.clone(),
        version: archive.version.clone(),
        source: archive.source.clone(),
        digest: Some(format!("sha256:{}", archive.sha256)),
    })
}

/// The recipe's own commands.
fn steps(shop: &mut Shop, tree: &Path, layer: &Layer) -> Result<()> {
    for words in &layer.recipe.steps {
        let doing = words.join(" ");
        shop.progress
            .stage(&format!("{}: {doing}", layer.recipe.name));
        let folder = shop.scratch.writable("recipe", shop.writer)?;
        layer.write_to(&folder)?;
        let out = shop.scratch.writable("out", shop.writer)?;
        Tool::new(&doing, words.iter().map(String::as_str))
            .tree(tree)
            .ro(&folder, RECIPE)
            .out(&out)
            .cwd(OUT)
            .run()?;
        adopt(&out, tree)?;
        shop.check()?;
    }
    Ok(())
}

/// Removes what is unwanted, and compiles Python.
pub(super) fn finish(shop: &mut Shop, tree: &Path, work: &Work<'_>, layers: &Layers) -> Result<()> {
    let (unwanted, kept) = layers.prune()?;
    prune(tree, &unwanted, &kept)?;
    shop.check()?;
    if layers.layers.last().is_some_and(|layer| layer.bytecode) {
        let compiled: Vec<PathBuf> = layers
            .layers
            .iter()
            .flat_map(|l| l.compiled.clone())
            .collect();
        let skipped: Vec<&String> = layers.layers.iter().flat_map(|l| &l.skipped).collect();
        let skipped = Globs::new(&skipped)?;
        bytecode::compile(shop, tree, work.python, &compiled, &skipped)?;
    }
    Ok(())
}
