//! OCI image layouts.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::blobs::Blobs;
use super::documents::{Config, Few, MAX_IMAGES, MAX_LAYERS};
use super::image::{Image, ImageLayer, Platform, no_single_image, other_machine};
use super::names;
use record::error::{Result, SetupError};

/// Maximum depth of indexes within indexes.
const MAX_DEPTH: usize = 4;

#[derive(Deserialize)]
struct Index {
    manifests: Few<Descriptor, MAX_IMAGES>,
}

#[derive(Clone, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Annotations,
}

/// The annotations with an image's name.
#[derive(Clone, Default, Deserialize)]
struct Annotations {
    /// Docker's is the whole name, of which OCI's is only the tag then.
    #[serde(rename = "io.containerd.image.name")]
    docker: Option<String>,
    #[serde(rename = "org.opencontainers.image.ref.name")]
    oci: Option<String>,
}

#[derive(Deserialize)]
struct ImageManifest {
    config: Descriptor,
    layers: Few<Descriptor, MAX_LAYERS>,
}

impl Descriptor {
    fn is_index(&self) -> bool {
        self.media_type.ends_with("image.index.v1+json")
            || self.media_type.ends_with("manifest.list.v2+json")
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let Annotations { docker, oci } = &self.annotations;
        docker.iter().chain(oci)
    }

    fn is_ours(&self) -> bool {
        self.platform.as_ref().is_some_and(Platform::is_ours)
    }

    /// The name of its file, whose size is checked.
    fn file(&self, blobs: &Blobs) -> Result<String> {
        let is_plain =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        let parts = self.digest.split_once(':');
        let parts = parts.filter(|(algorithm, value)| is_plain(algorithm) && is_plain(value));
        let (algorithm, value) =
            parts.ok_or_else(|| blobs.broken(format!("`{}` is not a digest", self.digest)))?;
        let name = format!("blobs/{algorithm}/{value}");
        let (_, size) = blobs.open(&name)?;
        match size == self.size {
            true => Ok(name),
            false => Err(blobs.broken(format!(
                "the blob {} has {size} bytes, but should have {}",
                self.digest, self.size
            ))),
        }
    }

    fn document<T: DeserializeOwned>(&self, blobs: &Blobs) -> Result<T> {
        blobs.document(&self.file(blobs)?, Some(&self.digest))
    }
}

/// Finds the image of a layout that is for this machine and named `wanted`.
pub(super) fn find(blobs: &Blobs, wanted: Option<&str>) -> Result<Image> {
    let index: Index = blobs.document("index.json", None)?;
    let chosen = choose(blobs, index.manifests.0, wanted)?;
    let name = chosen.names().next().map_or("image", String::as_str);
    let name = name.to_owned();
    let image = for_this_machine(blobs, chosen)?;
    let manifest: ImageManifest = image.document(blobs)?;
    let Few(layers) = manifest.layers;
    let config: Config = manifest.config.document(blobs)?;
    let diff_ids = config.diff_ids(blobs, layers.len())?;
    let layer = |(layer, diff_id): (Descriptor, String)| match layer.media_type.contains("tar") {
        true => Ok(ImageLayer {
            file: layer.file(blobs)?,
            digest: Some(layer.digest),
            diff_id,
        }),
        false => Err(blobs.broken(format!(
            "layer {} has the unknown type `{}`",
            layer.digest, layer.media_type
        ))),
    };
    let layers = layers.into_iter().zip(diff_ids).map(layer);
    Ok(Image {
        name,
        digest: image.digest,
        layers: layers.collect::<Result<_>>()?,
    })
}

/// The image named `wanted`, or the only one.
fn choose(blobs: &Blobs, mut images: Vec<Descriptor>, wanted: Option<&str>) -> Result<Descriptor> {
    let names: Vec<String> = images.iter().flat_map(Descriptor::names).cloned().collect();
    if let Some(wanted) = wanted {
        images.retain(|image| image.names().any(|name| names::is_same(name, wanted)));
    }
    images.dedup_by(|a, b| a.digest == b.digest);
    // One image for several machines counts once.
    if images.len() > 1 && images.iter().all(|image| image.platform.is_some()) {
        if !images.iter().any(Descriptor::is_ours) {
            return Err(only_for_others(blobs, &images));
        }
        images.retain(Descriptor::is_ours);
    }
    match images.as_slice() {
        [only] => Ok(only.clone()),
        images => Err(no_single_image(blobs, wanted, &names, !images.is_empty())),
    }
}

/// Follows indexes down to the manifest for this machine.
fn for_this_machine(blobs: &Blobs, mut image: Descriptor) -> Result<Descriptor> {
    for _ in 0..=MAX_DEPTH {
        if !image.is_index() {
            return Ok(image);
        }
        let Few(mut images) = image.document::<Index>(blobs)?.manifests;
        // Attestations have a platform that no machine has.
        images.retain(|image| {
            let platform = image.platform.as_ref();
            platform.is_none_or(|platform| platform.name() != "unknown/unknown")
        });
        let ours = images.iter().find(|image| image.is_ours());
        image = match (ours, images.as_slice()) {
            (Some(ours), _) => ours.clone(),
            // Its configuration has the platform.
            (None, [only]) if only.platform.is_none() => only.clone(),
            (None, images) => return Err(only_for_others(blobs, images)),
        };
    }
    Err(blobs.broken("its indexes are nested too deep"))
}

fn only_for_others(blobs: &Blobs, images: &[Descriptor]) -> SetupError {
    let platforms = images.iter().filter_map(|image| image.platform.as_ref());
    let names: Vec<String> = platforms.map(Platform::name).collect();
    other_machine(blobs, &names.join(", "))
}
