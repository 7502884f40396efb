//! Container images: which one is meant, and its layers.

use std::io::{self, Read};

use serde::Deserialize;

use super::Unpacked;
use super::blobs::Blobs;
use crate::job::Job;
use crate::packages::debian::architecture;
use archive::{Destination, Options, Report};
use record::error::{Result, SetupError};

/// An image that was found in a source.
pub(super) struct Image {
    /// Its name or tag there.
    pub(super) name: String,
    pub(super) digest: String,
    pub(super) layers: Vec<ImageLayer>,
}

/// One layer of an image.
pub(super) struct ImageLayer {
    /// The name of its file.
    pub(super) file: String,
    /// The digest of the file, if the manifest names it.
    pub(super) digest: Option<String>,
    /// The digest of its decompressed content.
    pub(super) diff_id: String,
}

/// Unpacks the layers of an image, each onto those before.
pub(super) fn unpack(
    blobs: &Blobs,
    image: Image,
    to: &Destination<'_>,
    options: &Options,
    job: &Job,
) -> Result<Unpacked> {
    let mut report = Report::default();
    let count = image.layers.len();
    for (index, layer) in image.layers.iter().enumerate() {
        let step = format!("unpacking layer {} of {count}", index + 1);
        let unpacked = unpack_layer(blobs, layer, to, options, &mut |own| {
            job.advance(&step, report.bytes.saturating_add(own.bytes))
        });
        let named = |mut error: SetupError| {
            let operand = error.operand.map(|operand| format!("{operand} "));
            let operand = operand.unwrap_or_default();
            let digest = layer.digest.as_ref().unwrap_or(&layer.diff_id);
            error.operand = Some(format!("{operand}(layer {digest})"));
            error
        };
        let unpacked = unpacked.map_err(named)?;
        report.add(unpacked);
    }
    Ok(Unpacked {
        name: image.name,
        digest: Some(image.digest),
        report,
    })
}

/// Unpacks one layer to the end of its content, where its digests are compared.
fn unpack_layer(
    blobs: &Blobs,
    layer: &ImageLayer,
    to: &Destination<'_>,
    options: &Options,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Report> {
    let options = Options {
        is_layer: true,
        ..*options
    };
    let failed = |e: io::Error| blobs.broken(e.to_string());
    let (file, _) = blobs.open(&layer.file)?;
    let file: Box<dyn Read> = match &layer.digest {
        Some(digest) => Box::new(blobs.checked(file, "digest", digest)?),
        None => file,
    };
    let content = archive::decompress(file).map_err(failed)?;
    let mut content = blobs.checked(content, "diff_id", &layer.diff_id)?;
    let report = archive::unpack(&mut content, to, &options, tick)?;
    io::copy(&mut content, &mut io::sink()).map_err(failed)?;
    Ok(report)
}

/// The error for a source that has no image of this name, or several; `names` are
/// those that it has.
pub(super) fn no_single_image(
    blobs: &Blobs,
    wanted: Option<&str>,
    names: &[String],
    has_several: bool,
) -> SetupError {
    let names = names.join(", ");
    let error = match (has_several, wanted) {
        (true, _) => blobs.broken("it has several images"),
        (false, Some(wanted)) => blobs.broken(format!("it has no image `{wanted}`")),
        (false, None) => blobs.broken("it has no image"),
    };
    match (has_several, names.is_empty()) {
        (true, true) => error.hint("copy the wanted image to a layout of its own"),
        (true, false) => error.hint(format!("choose one with --ref: {names}")),
        (false, false) => error.hint(format!("it has: {names}")),
        (false, true) => error,
    }
}

/// The platform in an image's index or configuration.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) os: String,
}

impl Platform {
    /// Whether its programs run on this machine.
    pub(super) fn is_ours(&self) -> bool {
        self.os == "linux" && self.architecture == architecture()
    }

    /// For messages: `linux/amd64`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }

    /// Refuses an image for another machine.
    pub(super) fn require(&self, blobs: &Blobs) -> Result<()> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(other_machine(blobs, &self.name())),
        }
    }
}

/// The error for an image that is only for the platforms `names`.
pub(super) fn other_machine(blobs: &Blobs, names: &str) -> SetupError {
    let ours = architecture();
    blobs
        .broken(format!(
            "the image is for {names}, and this machine is linux/{ours}"
        ))
        .hint(format!(
            "fetch the image for linux/{ours}, with --platform or --override-arch"
        ))
}
