//! `--dry-run`: what a build would fetch.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::catalogue::Layer;
use super::debian::{self, Source};
use super::layers::{Built, Layers};
use super::lock::{Deb, Lock};
use super::pip;
use super::recipe::{Debian, SUITE};
use super::scratch::failed;
use super::shop::{Item, Shop};
use super::size;
use record::error::{Result, SetupError, Step};
use record::terminal;

/// Prints every file that a build of `wanted` on `base` would take, its size,
/// and whether it is in the cache.
///
/// # Errors
/// apt's; the network's.
pub(super) fn show(
    shop: &mut Shop,
    wanted: &[Layer],
    lock: Option<&Lock>,
    base: Option<(&Path, &Layers)>,
) -> Result<()> {
    let done = base.map_or(0, |(_, layers)| layers.layers.len());
    let todo: Vec<(usize, &Layer)> = wanted.iter().enumerate().skip(done).collect();
    let mut items = Vec::new();
    let mut open = Vec::new();
    let debs = match lock {
        Some(lock) => locked_debs(lock, done),
        None => resolved(shop, wanted, &todo, base)?,
    };
    items.extend(debian::items(&debs));
    // Without a tree there is no Python for pip to resolve for: what the lock
    // file says is the best guess.
    let guess = wanted.last().map(Layer::lock).transpose()?.flatten();
    for (index, layer) in todo {
        let recipe = &layer.recipe;
        items.extend(recipe.archive.iter().map(|archive| Item {
            name: format!("{} {}", archive.name, archive.version),
            sha256: archive.sha256.clone(),
            size: archive.size,
        }));
        let Some(wanted) = &recipe.pip else { continue };
        match lock
            .or(guess.as_ref())
            .and_then(|lock| lock.layer.get(index))
        {
            Some(locked) => items.extend(pip::items(&locked.pip)),
            None => open.extend(wanted.packages.iter().cloned()),
        }
    }
    shop.progress.clear();
    print(&text(shop, &items, &open, lock.is_some()))
}

fn locked_debs(lock: &Lock, done: usize) -> Vec<Deb> {
    let layers = lock.layer.iter().skip(done);
    layers.flat_map(|layer| layer.debian.clone()).collect()
}

/// All layers' packages of Debian at once: later ones do not know what earlier
/// ones will have brought.
fn resolved(
    shop: &mut Shop,
    wanted: &[Layer],
    todo: &[(usize, &Layer)],
    base: Option<(&Path, &Layers)>,
) -> Result<Vec<Deb>> {
    let mut all = Debian::default();
    for debian in todo
        .iter()
        .filter_map(|(_, layer)| layer.recipe.debian.as_ref())
    {
        all.packages.extend(debian.packages.iter().cloned());
        all.without.extend(debian.without.iter().cloned());
    }
    if all.packages.is_empty() {
        return Ok(Vec::new());
    }
    let mut layers = Layers::default();
    layers.layers.extend(wanted.iter().map(Built::of));
    let source = layers.source().unwrap_or_else(|| Source::new(SUITE, None));
    let empty = shop.scratch.path().join("empty");
    fs::create_dir_all(&empty).map_err(failed("mkdir", &empty))?;
    let tree = base.map_or(empty.as_path(), |(path, _)| path);
    debian::resolve(shop, tree, &source, &all, "all")
}

fn text(shop: &Shop, items: &[Item], open: &[String], locked: bool) -> String {
    let mut text = String::new();
    for item in items {
        let here = shop.cache.find(&item.sha256).is_some();
        let note = if here { "  in the cache" } else { "" };
        text += &format!("{:>9}  {}{note}\n", size(item.size), item.name);
    }
    if !open.is_empty() {
        text += &format!("           and what pip chooses for {}\n", open.join(", "));
    } else if !locked {
        text += "Python packages are those of the lock file; a build takes the newest\n";
    }
    let all: u64 = items.iter().map(|item| item.size).sum();
    let missing: u64 = shop.missing(items).iter().map(|item| item.size).sum();
    text + &format!(
        "{} files, {}; {} to fetch\n",
        items.len(),
        size(all),
        size(missing)
    )
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(terminal::lines(text).as_bytes())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))
}
