//! `--dry-run`: the files that a build would fetch.

use std::path::Path;

use super::BuildContext;
use super::layers::{BuiltLayer, Layers};
use crate::packages::Download;
use crate::packages::debian::{self, Repository};
use crate::recipe::{Deb, Debian, Lock, RecipeFolder, SUITE};
use record::error::Result;

/// The files that a build would take.
#[derive(Clone, Debug)]
pub struct PlannedBuild {
    /// The files, by layer.
    pub files: Vec<PlannedFile>,
    /// Python packages that pip will resolve, since no lock file has them.
    pub unresolved: Vec<String>,
    /// Whether Python packages are those of a lock file although the build will
    /// take the newest.
    pub is_estimate: bool,
}

/// A file that a build would take.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// Name and version.
    pub name: String,
    /// In bytes; 0 when it is unknown.
    pub size: u64,
    /// Whether the cache has it.
    pub is_cached: bool,
}

/// The files of a build of `chain` on `base`.
pub(super) fn plan(
    context: &mut BuildContext,
    chain: &[RecipeFolder],
    lock: Option<&Lock>,
    base: Option<(&Path, &Layers)>,
) -> Result<PlannedBuild> {
    let done = base.map_or(0, |(_, layers)| layers.layers.len());
    let debs = match lock {
        Some(lock) => {
            let layers = lock.layer.iter().skip(done);
            layers.flat_map(|layer| layer.debian.clone()).collect()
        }
        None => resolve(context, chain, done, base.map(|(tree, _)| tree))?,
    };
    let mut downloads: Vec<Download> = debs.iter().map(Download::from).collect();
    let mut unresolved = Vec::new();
    let mut is_estimate = false;
    // pip needs the Python of the tree, which does not exist yet.
    let known = chain.last().map(RecipeFolder::lock).transpose()?.flatten();
    let known = lock.or(known.as_ref());
    for (index, folder) in chain.iter().enumerate().skip(done) {
        downloads.extend(folder.recipe.archive.iter().map(Download::from));
        let Some(wanted) = &folder.recipe.pip else {
            continue;
        };
        match known.and_then(|lock| lock.layer.get(index)) {
            Some(locked) => {
                is_estimate = lock.is_none();
                downloads.extend(locked.pip.iter().map(Download::from));
            }
            None => unresolved.extend(wanted.packages.iter().cloned()),
        }
    }
    let planned = |download: Download| PlannedFile {
        is_cached: context.cache.find(&download.sha256).is_some(),
        name: download.name,
        size: download.size,
    };
    Ok(PlannedBuild {
        files: downloads.into_iter().map(planned).collect(),
        unresolved,
        is_estimate,
    })
}

/// Packages of Debian of all layers at once: apt resolves later ones on top of
/// earlier ones, which are not installed.
fn resolve(
    context: &mut BuildContext,
    chain: &[RecipeFolder],
    done: usize,
    base: Option<&Path>,
) -> Result<Vec<Deb>> {
    let mut all = Debian::default();
    let recipes = chain.iter().skip(done).map(|folder| &folder.recipe);
    for debian in recipes.filter_map(|recipe| recipe.debian.as_ref()) {
        all.packages.extend(debian.packages.iter().cloned());
        all.without.extend(debian.without.iter().cloned());
    }
    if all.packages.is_empty() {
        return Ok(Vec::new());
    }
    let all_layers = chain.iter();
    let all_layers = all_layers.map(|f| BuiltLayer::of(&f.recipe, f.digest.clone()));
    let layers = Layers::new(all_layers.collect());
    let repository = layers.repository(&BuiltLayer::default());
    let repository = repository.unwrap_or_else(|| Repository::new(SUITE, None));
    let empty = context.directory("empty")?;
    debian::resolve(context, base.unwrap_or(&empty), &repository, &all, "all")
}
