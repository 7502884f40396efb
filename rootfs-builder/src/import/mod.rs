//! `cellblock rootfs import`: a prepared rootfs from what others have made.
//!
//! A source is a directory, a tar archive, or an image: an OCI layout or what
//! `docker save` writes, as a directory or in a tar archive, compressed or not.
//! All of it is hostile: names go through [`archive`], blobs are checked
//! against their digests, and nothing gets a name in the store before all of it
//! was right. The interpreters in it are asked for their versions by running
//! them, in a cell on the new tree, hence this stands above [`cell::run`].

use std::path::{Path, PathBuf};

use archive::{self, Destination, Options, Report};
use cell::BlockedSignals;
use cell::rootfs::{Draft, Manifest, Package, Store};
use record::error::{Result, SetupError, Step};

mod blobs;
mod docker;
mod interpreters;
mod oci;
mod platform;
mod source;

pub use interpreters::detect;
use source::Source;

/// What is to be imported.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name in the store.
    pub name: String,
    /// A path, or `-` for an archive on standard input.
    pub source: PathBuf,
    /// Which image, where the source has several: its reference or tag.
    pub reference: Option<String>,
    /// Bytes that it may unpack to.
    pub max_bytes: u64,
}

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// What the tree says of itself.
    pub manifest: Manifest,
    /// What was unpacked, and what was left out.
    pub report: Report,
}

/// Imports a rootfs into `store`. `progress` is told what is being done and how
/// far it is.
///
/// # Errors
/// What is wrong with the source, or cannot be written. Nothing is left in the
/// store then.
pub fn import(
    store: &Store,
    request: &Request,
    progress: &mut dyn FnMut(&str, &Report),
) -> Result<Imported> {
    // From here on, an interrupted call still removes what it has made.
    let signals = BlockedSignals::block()?;
    let draft = store.begin(&request.name)?;
    let options = Options {
        max_bytes: request.max_bytes,
        ..Options::default()
    };
    let mut tick = |doing: &str, report: &Report| {
        if let Ok(Some(signal)) = signals.fd().read_signal() {
            return Err(interrupted(signal.ssi_signo));
        }
        progress(doing, report);
        Ok(())
    };
    let unpacked = unpack(&draft, request, &options, &mut tick)?;
    draft.forget_description()?;
    progress("asking interpreters for their versions", &unpacked.report);
    let manifest = Manifest {
        interpreters: interpreters::detect(draft.tree())?,
        packages: vec![Package {
            name: unpacked.name,
            version: unpacked.version,
            source: "import".to_owned(),
            digest: unpacked.digest,
        }],
        ..Manifest::default()
    };
    progress("computing digests", &unpacked.report);
    Ok(Imported {
        manifest: draft.commit(manifest)?,
        report: unpacked.report,
    })
}

/// What came out of a source.
struct Unpacked {
    /// What it is called there.
    name: String,
    /// A version, where it has one.
    version: String,
    /// Its own digest, where it has one.
    digest: Option<String>,
    report: Report,
}

/// Tells what is being done and how far it is; its error ends the import.
type Tick<'a> = &'a mut dyn FnMut(&str, &Report) -> Result<()>;

fn unpack(draft: &Draft, request: &Request, options: &Options, tick: Tick<'_>) -> Result<Unpacked> {
    let to = Destination::open(draft.tree(), Step::Store)?;
    let shown = request.source.file_name().map_or_else(
        || request.source.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    let plain = |report| Unpacked {
        name: shown.clone(),
        version: String::new(),
        digest: None,
        report,
    };
    let wanted = request.reference.as_deref();
    let no_images = || match wanted {
        None => Ok(()),
        Some(reference) => Err(SetupError::new(
            Step::Store,
            "this source is no image, so that it has none to choose",
        )
        .on(format!("--ref {reference}"))
        .hint("leave --ref out")),
    };
    match source::open(&request.source, draft, tick)? {
        Source::Directory => {
            no_images()?;
            let report = archive::copy_directory(&request.source, &to, options, &mut |report| {
                tick("copying", report)
            })?;
            Ok(plain(report))
        }
        Source::Archive(reader) => {
            no_images()?;
            let report = archive::unpack(reader, &to, options, &mut |report| {
                tick("unpacking", report)
            })?;
            Ok(plain(report))
        }
        Source::Oci(blobs) => oci::unpack(&blobs, wanted, &to, options, tick),
        Source::Docker(blobs) => docker::unpack(&blobs, wanted, &to, options, tick),
    }
}

fn interrupted(signal: u32) -> SetupError {
    let name = i32::try_from(signal)
        .ok()
        .and_then(|number| nix::sys::signal::Signal::try_from(number).ok())
        .map_or("a signal", nix::sys::signal::Signal::as_str);
    SetupError::new(
        Step::Store,
        format!("interrupted by {name}; nothing is left of it"),
    )
}

/// A source that is not what it seems to be.
fn broken(path: &Path, message: impl Into<String>) -> SetupError {
    SetupError::new(Step::Store, message)
        .on(path.display())
        .hint(
            "fetch or make it again; images are read as OCI layouts (`skopeo copy docker://… \
         oci:DIR`) and as `docker save` writes them",
        )
}
