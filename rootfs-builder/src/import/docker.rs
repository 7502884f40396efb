//! What `docker save` wrote before it wrote OCI layouts.

use serde::Deserialize;

use super::blobs::Blobs;
use super::oci::unpack_layer;
use super::platform::Platform;
use super::{Tick, Unpacked};
use archive::{self, Destination, Options, Report};
use record::error::Result;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
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

/// Whether a directory's `manifest.json` is one of docker's.
pub(super) fn is_manifest(blobs: &Blobs) -> bool {
    let images = blobs.document::<Vec<Image>>("manifest.json", None);
    images.is_ok_and(|images| !images.is_empty())
}

/// Unpacks the image that is meant.
pub(super) fn unpack(
    blobs: &Blobs,
    wanted: Option<&str>,
    to: &Destination,
    options: &Options,
    tick: Tick<'_>,
) -> Result<Unpacked> {
    let images: Vec<Image> = blobs.document("manifest.json", None)?;
    let image = choose(blobs, images, wanted)?;
    let tags = image.repo_tags.unwrap_or_default();
    // Its name is its digest.
    let id = image.config.rsplit('/').next().unwrap_or_default();
    let id = id.trim_start_matches("sha256:").trim_end_matches(".json");
    let digest = format!("sha256:{id}");
    let config: Config = blobs.document(&image.config, Some(&digest))?;
    config.platform.require(|message| blobs.broken(message))?;
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(blobs.broken("its configuration has another number of layers"));
    }
    let mut report = Report::default();
    let count = image.layers.len();
    let layers = image.layers.iter().zip(&config.rootfs.diff_ids);
    for (index, (layer, digest)) in layers.enumerate() {
        let doing = format!("unpacking layer {} of {count}", index + 1);
        let (content, _) = blobs.open(layer)?;
        // The digest is that of the layer without compression.
        let plain = archive::decompress(content)
            .map_err(|e| blobs.broken(format!("layer {layer}: {e}")))?;
        let content = blobs.checked(plain, digest)?;
        let unpacked = unpack_layer(blobs, content, layer, to, options, &report, &mut |r| {
            tick(&doing, r)
        })?;
        report.add(unpacked);
    }
    Ok(Unpacked {
        name: tags.first().map_or("image", String::as_str).to_owned(),
        version: String::new(),
        digest: Some(digest),
        report,
    })
}

fn choose(blobs: &Blobs, images: Vec<Image>, wanted: Option<&str>) -> Result<Image> {
    let tags = |image: &Image| image.repo_tags.clone().unwrap_or_default();
    let there: Vec<String> = images.iter().flat_map(tags).collect();
    let is_wanted = |image: &Image| match wanted {
        Some(wanted) => tags(image).iter().any(|tag| tag == wanted),
        None => true,
    };
    let mut found = images.into_iter().filter(is_wanted);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => {
            let mut error = blobs.broken("there is no such image in it");
            if !there.is_empty() {
                error.hint = Some(format!("there are: {}", there.join(", ")));
            }
            Err(error)
        }
        (Some(_), Some(_)) => {
            let mut error = blobs.broken("there are several images in it");
            error.hint = Some(format!("choose one with --ref: {}", there.join(", ")));
            Err(error)
        }
    }
}
