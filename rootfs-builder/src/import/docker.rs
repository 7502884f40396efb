//! The archives of `docker save` before it wrote OCI layouts.

use serde::Deserialize;

use super::blobs::Blobs;
use super::image::{Image, ImageLayer, Platform, no_single_image};
use record::error::Result;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(flatten)]
    platform: Platform,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl SavedImage {
    fn tags(&self) -> &[String] {
        self.repo_tags.as_deref().unwrap_or_default()
    }
}

/// Whether a directory's `manifest.json` is docker's.
pub(super) fn is_manifest(blobs: &Blobs) -> bool {
    let images = blobs.document::<Vec<SavedImage>>("manifest.json", None);
    images.is_ok_and(|images| !images.is_empty())
}

/// Finds the image with the tag `wanted`, or the only one.
pub(super) fn find(blobs: &Blobs, wanted: Option<&str>) -> Result<Image> {
    let images: Vec<SavedImage> = blobs.document("manifest.json", None)?;
    let tags: Vec<String> = images.iter().flat_map(SavedImage::tags).cloned().collect();
    let is_wanted = |image: &SavedImage| match wanted {
        Some(wanted) => image.tags().iter().any(|tag| tag == wanted),
        None => true,
    };
    let mut found = images.into_iter().filter(is_wanted);
    let (image, others) = (found.next(), found.next());
    let has_several = others.is_some();
    let image = image
        .filter(|_| !has_several)
        .ok_or_else(|| no_single_image(blobs, wanted, &tags, has_several))?;
    // The configuration's name is its digest.
    let id = image.config.rsplit('/').next().unwrap_or_default();
    let id = id.trim_start_matches("sha256:").trim_end_matches(".json");
    let digest = format!("sha256:{id}");
    let config: Config = blobs.document(&image.config, Some(&digest))?;
    config.platform.require(blobs)?;
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(blobs.broken("its configuration has another number of layers"));
    }
    let name = image
        .tags()
        .first()
        .map_or("image", String::as_str)
        .to_owned();
    let layers = image.layers.into_iter().zip(config.rootfs.diff_ids);
    Ok(Image {
        name,
        digest,
        layers: layers
            .map(|(file, digest)| ImageLayer {
                file,
                digest,
                is_digest_of_file: false,
            })
            .collect(),
    })
}
