//! OCI image layouts.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::Deserialize;

use super::blobs::{Blobs, blob_name};
use super::platform::{Platform, fetch_ours, ours};
use super::{Tick, Unpacked};
use archive::{self, Destination, Options, Report};
use record::error::Result;

/// Indexes within indexes.
const DEEPEST: usize = 4;

/// Layers that an image may have: containerd and docker stop at 127.
const MOST_LAYERS: usize = 500;

/// The annotation that says what an image is called.
const REFERENCE: &str = "org.opencontainers.image.ref.name";

/// The same, as docker writes it.
const FULL_NAME: &str = "io.containerd.image.name";

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ImageManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Descriptor {
    fn is_index(&self) -> bool {
        self.media_type.ends_with("image.index.v1+json")
            || self.media_type.ends_with("manifest.list.v2+json")
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        [REFERENCE, FULL_NAME]
            .into_iter()
            .filter_map(|key| self.annotations.get(key).map(String::as_str))
    }
}

/// Unpacks the image of a layout that is for this machine.
pub(super) fn unpack(
    blobs: &Blobs,
    wanted: Option<&str>,
    to: &Destination,
    options: &Options,
    tick: Tick<'_>,
) -> Result<Unpacked> {
    let index: Index = blobs.document("index.json", None)?;
    let chosen = named(blobs, index.manifests, wanted)?;
    let name = chosen.names().next().unwrap_or("image").to_owned();
    let image = for_this_machine(blobs, chosen, 0)?;
    let manifest: ImageManifest = document(blobs, &image)?;
    let platform: Platform = document(blobs, &manifest.config)?;
    platform.require(|message| blobs.broken(message))?;
    if manifest.layers.len() > MOST_LAYERS {
        return Err(blobs.broken(format!("the image has more than {MOST_LAYERS} layers")));
    }
    let mut report = Report::default();
    let count = manifest.layers.len();
    for (index, layer) in manifest.layers.iter().enumerate() {
        if !layer.media_type.contains("tar") {
            return Err(blobs.broken(format!(
                "layer {} is of the unknown kind `{}`",
                layer.digest, layer.media_type
            )));
        }
        let doing = format!("unpacking layer {} of {count}", index + 1);
        let (content, size) = open(blobs, layer)?;
        check_size(blobs, layer, size)?;
        let content = blobs.checked(content, &layer.digest)?;
        let unpacked = unpack_layer(
            blobs,
            content,
            &layer.digest,
            to,
            options,
            &report,
            &mut |r| tick(&doing, r),
        )?;
        report.add(unpacked);
    }
    Ok(Unpacked {
        name,
        version: String::new(),
        digest: Some(image.digest),
        report,
    })
}

/// Unpacks one layer onto those before, to the end of its content, where its
/// digest is compared.
pub(super) fn unpack_layer(
    blobs: &Blobs,
    mut content: impl Read,
    name: &str,
    to: &Destination,
    options: &Options,
    before: &Report,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let options = Options {
        is_layer: true,
        max_bytes: options.max_bytes.saturating_sub(before.bytes),
        max_entries: options.max_entries.saturating_sub(before.entries),
        ..*options
    };
    let report = archive::unpack(&mut content, to, &options, &mut |own| {
        let mut all = before.clone();
        all.skipped.clear();
        all.add(Report {
            skipped: Vec::new(),
            ..own.clone()
        });
        tick(&all)
    })
    .map_err(|mut error| {
        error.operand = Some(error.operand.map_or_else(
            || format!("layer {name}"),
            |operand| format!("{operand} (layer {name})"),
        ));
        error
    })?;
    io::copy(&mut content, &mut io::sink())
        .map_err(|e| blobs.broken(format!("layer {name}: {e}")))?;
    Ok(report)
}

/// The image that is meant, among those that a layout names.
fn named(blobs: &Blobs, manifests: Vec<Descriptor>, wanted: Option<&str>) -> Result<Descriptor> {
    let there: Vec<String> = manifests
        .iter()
        .flat_map(Descriptor::names)
        .map(str::to_owned)
        .collect();
    let mut found: Vec<Descriptor> = manifests
        .into_iter()
        .filter(|image| wanted.is_none_or(|wanted| image.names().any(|name| name == wanted)))
        .collect();
    found.dedup_by(|a, b| a.digest == b.digest);
    // One image for several machines is one image.
    let ours = |image: &&Descriptor| image.platform.as_ref().is_some_and(Platform::is_ours);
    let for_us: Vec<Descriptor> = found.iter().filter(ours).cloned().collect();
    let has_platforms = found.iter().all(|image| image.platform.is_some());
    match (found.as_slice(), for_us.as_slice()) {
        ([only], _) => Ok(only.clone()),
        (_, [only]) if has_platforms => Ok(only.clone()),
        ([], _) => {
            let mut error = blobs.broken(match wanted {
                Some(wanted) => format!("there is no image `{wanted}` in it"),
                None => "there is no image in it".to_owned(),
            });
            if !there.is_empty() {
                error.hint = Some(format!("there are: {}", there.join(", ")));
            }
            Err(error)
        }
        (several, []) if has_platforms => Err(other_machines(blobs, several)),
        _ => {
            let mut error = blobs.broken("there are several images in it");
            error.hint = Some(match there.as_slice() {
                [] => "copy the one that you want to a layout of its own".to_owned(),
                there => format!("choose one with --ref: {}", there.join(", ")),
            });
            Err(error)
        }
    }
}

/// Follows indexes down to the manifest for this machine.
fn for_this_machine(blobs: &Blobs, image: Descriptor, depth: usize) -> Result<Descriptor> {
    if !image.is_index() {
        return Ok(image);
    }
    if depth == DEEPEST {
        return Err(blobs.broken("its indexes lead in a circle, or too deep"));
    }
    let index: Index = document(blobs, &image)?;
    // Attestations name a platform that no machine has.
    let known = |image: &&Descriptor| {
        let platform = image.platform.as_ref();
        platform.is_none_or(|platform| platform.name() != "unknown/unknown")
    };
    let images: Vec<Descriptor> = index.manifests.iter().filter(known).cloned().collect();
    let ours = images
        .iter()
        .find(|image| image.platform.as_ref().is_some_and(Platform::is_ours));
    match (ours, images.as_slice()) {
        (Some(image), _) => for_this_machine(blobs, image.clone(), depth + 1),
        // Its configuration will say.
        (None, [only]) if only.platform.is_none() => {
            for_this_machine(blobs, only.clone(), depth + 1)
        }
        (None, images) => Err(other_machines(blobs, images)),
    }
}

fn other_machines(blobs: &Blobs, images: &[Descriptor]) -> record::error::SetupError {
    let names: Vec<String> = images
        .iter()
        .filter_map(|image| image.platform.as_ref().map(Platform::name))
        .collect();
    let mut error = blobs.broken(format!(
        "the image is not for linux/{}, but for: {}",
        ours(),
        names.join(", ")
    ));
    error.hint = Some(fetch_ours());
    error
}

fn open<'a>(blobs: &'a Blobs, of: &Descriptor) -> Result<(Box<dyn Read + 'a>, u64)> {
    let name = blob_name(&of.digest)
        .ok_or_else(|| blobs.broken(format!("`{}` is not a digest", of.digest)))?;
    blobs.open(&name)
}

fn document<T: serde::de::DeserializeOwned>(blobs: &Blobs, of: &Descriptor) -> Result<T> {
    let (_, size) = open(blobs, of)?;
    check_size(blobs, of, size)?;
    let name = blob_name(&of.digest).unwrap_or_default();
    blobs.document(&name, Some(&of.digest))
}

fn check_size(blobs: &Blobs, of: &Descriptor, size: u64) -> Result<()> {
    if size == of.size {
        return Ok(());
    }
    Err(blobs.broken(format!(
        "the blob {} has {size} bytes, but should have {}",
        of.digest, of.size
    )))
}
