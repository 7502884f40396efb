//! Imports a rootfs from a directory, a tar archive or an image: an OCI layout or
//! the output of `docker save`, as a directory or in a tar archive.
//!
//! The source is hostile: names go through [`archive`], blobs are checked against
//! their digests, and nothing gets a name in the store before all of it was
//! checked. Its interpreters are asked for their versions in cells on the new tree.

use crate::errors::store_error;
use std::path::{Path, PathBuf};

use crate::job::Job;
use crate::store::{self, Draft};
use archive::{Budget, Destination, Options, Report};
use plan::rootfs::{Manifest, Package, Store};
use record::error::{Result, SetupError, Step};

mod blobs;
mod docker;
mod documents;
mod image;
mod interpreters;
mod names;
mod oci;
mod source;

pub(crate) use interpreters::version_in;
use source::Source;

/// Bytes that an import may write by default.
const MAX_BYTES: u64 = 16 << 30;

/// A request to import a rootfs.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// Its name in the store.
    pub name: String,
    /// The store, if not the default one.
    pub store: Option<PathBuf>,
    /// A path, or `-` for an archive on standard input.
    pub source: PathBuf,
    /// The image, if the source has several: its reference or tag.
    pub reference: Option<String>,
    /// Maximum number of bytes to write, if not the default.
    pub max_bytes: Option<u64>,
    /// Whether entries that have no place in the tree are left out.
    pub skip_unplaced: bool,
}

/// An imported rootfs.
#[derive(Debug)]
pub struct Imported {
    /// Its manifest.
    pub manifest: Manifest,
    /// The entries that were unpacked, and those that were left out.
    pub report: Report,
}

/// Makes a rootfs from an image, an archive or a directory.
///
/// # Errors
/// The source is damaged or too large, or the disk fails. The store is unchanged then.
pub fn import(request: &ImportRequest) -> Result<Imported> {
    let store = Store::open(request.store.as_deref())?;
    let job = Job::begin(false)?;
    let draft = store::begin(&store, &request.name)?;
    let budget = Budget::new(Step::Store, request.max_bytes.unwrap_or(MAX_BYTES));
    let unpacked = unpack(&draft, request, &budget, &job)?;
    draft.remove_description()?;
    job.step("asking interpreters for their versions");
    let manifest = Manifest {
        interpreters: interpreters::detect(draft.tree())?,
        packages: vec![Package {
            name: unpacked.name,
            version: String::new(),
            source: "import".to_owned(),
            digest: unpacked.digest,
        }],
        ..Manifest::default()
    };
    job.step("computing digests");
    Ok(Imported {
        manifest: draft.commit(manifest, &budget)?,
        report: unpacked.report,
    })
}

/// The content of a source.
struct Unpacked {
    /// The source's name, or that of the image in it.
    name: String,
    /// The digest of an image.
    digest: Option<String>,
    report: Report,
}

fn unpack(draft: &Draft, request: &ImportRequest, budget: &Budget, job: &Job) -> Result<Unpacked> {
    let to = Destination::open(draft.tree(), budget)?;
    let options = Options {
        skips_unplaced: request.skip_unplaced,
        ..Options::default()
    };
    let source = source::open(&request.source, draft, budget, job)?;
    let reference = request.reference.as_deref();
    if let (Source::Directory | Source::Archive(_), Some(reference)) = (&source, reference) {
        return Err(
            store_error("this source is not an image, so there is none to choose")
                .on(format!("--ref {reference}"))
                .hint("leave --ref out"),
        );
    }
    let report = match source {
        Source::Directory => {
            archive::copy_directory(&request.source, &to, &options, &mut |report| {
                job.advance("copying", report.bytes)
            })?
        }
        Source::Archive(reader) => archive::unpack(reader, &to, &options, &mut |report| {
            job.advance("unpacking", report.bytes)
        })?,
        Source::Oci(blobs) => {
            return image::unpack(&blobs, oci::find(&blobs, reference)?, &to, &options, job);
        }
        Source::Docker(blobs) => {
            return image::unpack(&blobs, docker::find(&blobs, reference)?, &to, &options, job);
        }
    };
    let path = &request.source;
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(Unpacked {
        name: name.to_string_lossy().into_owned(),
        digest: None,
        report,
    })
}

/// The error for a damaged source.
fn broken(path: &Path, message: impl Into<String>) -> SetupError {
    store_error(message).on(path.display()).hint(
        "fetch or make it again; images are read as OCI layouts (`skopeo copy docker://… \
             oci:DIR`) and as the output of `docker save`",
    )
}
