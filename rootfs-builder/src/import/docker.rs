//! The archives of `docker save` before it wrote OCI layouts.

use serde::Deserialize;

use super::blobs::Blobs;
use super::documents::{Config, Few, MAX_IMAGES, MAX_LAYERS};
use super::image::{Image, ImageLayer, no_single_image};
use super::names;
use record::error::Result;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Few<String, MAX_IMAGES>>,
    layers: Few<String, MAX_LAYERS>,
}

/// The images in `manifest.json`.
type SavedImages = Few<SavedImage, MAX_IMAGES>;

impl SavedImage {
    fn tags(&self) -> &[String] {
        self.repo_tags.as_ref().map_or(&[], |tags| &tags.0)
    }
}

/// Whether a directory's `manifest.json` is docker's.
pub(super) fn is_manifest(blobs: &Blobs) -> bool {
    let images = blobs.document::<SavedImages>("manifest.json", None);
    images.is_ok_and(|images| !images.0.is_empty())
}

/// Finds the image with the tag `wanted`, or the only one.
pub(super) fn find(blobs: &Blobs, wanted: Option<&str>) -> Result<Image> {
    let Few(images) = blobs.document::<SavedImages>("manifest.json", None)?;
    let tags: Vec<String> = images.iter().flat_map(SavedImage::tags).cloned().collect();
    let is_wanted = |image: &SavedImage| match wanted {
        Some(wanted) => image.tags().iter().any(|tag| names::is_same(tag, wanted)),
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
    let diff_ids = config.diff_ids(blobs, image.layers.0.len())?;
    let name = image
        .tags()
        .first()
        .map_or("image", String::as_str)
        .to_owned();
    let layers = image.layers.0.into_iter().zip(diff_ids);
    Ok(Image {
        name,
        digest,
        layers: layers
            .map(|(file, diff_id)| ImageLayer {
                file,
                digest: None,
                diff_id,
            })
            .collect(),
    })
}
