//! Packages of Debian, PyPI and npm, and the files that they come in.

use std::path::{Path, PathBuf};

use crate::build::BuildContext;
use crate::recipe::{Archive, Deb, Wheel};
use crate::tool::{Failure, OUT, Tool};

mod cache;
pub(crate) mod debian;
pub(crate) mod npm;
pub(crate) mod pip;

pub(crate) use cache::{Cache, digest_of};

const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// The host's public certificates, where Debian's programs look for them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

const GITHUB: &str = "https://github.com/";

/// A file to download.
#[derive(Clone, Debug)]
pub(crate) struct Download {
    /// For people: name and version.
    pub(crate) name: String,
    pub(crate) sha256: String,
    /// In bytes; 0 when it is unknown.
    pub(crate) size: u64,
}

impl Download {
    fn new(name: &str, version: &str, sha256: &str, size: u64) -> Self {
        Self {
            name: format!("{name} {version}"),
            sha256: sha256.to_owned(),
            size,
        }
    }
}

impl From<&Deb> for Download {
    fn from(deb: &Deb) -> Self {
        Self::new(&deb.name, &deb.version, &deb.sha256, deb.size)
    }
}

impl From<&Wheel> for Download {
    fn from(wheel: &Wheel) -> Self {
        Self::new(&wheel.name, &wheel.version, &wheel.sha256, wheel.size)
    }
}

impl From<&Archive> for Download {
    fn from(archive: &Archive) -> Self {
        let Archive { name, version, .. } = archive;
        Self::new(name, version, &archive.sha256, archive.size)
    }
}

/// Downloads one file by apt-helper, unless the cache has it.
pub(crate) fn fetch(context: &BuildContext, url: &str, download: &Download) -> Result<(), Failure> {
    if context.cache.find(&download.sha256).is_some() {
        return Ok(());
    }
    context.job.begin_download(&download.name);
    context.cache.fetch(download, |directory| {
        let target = format!("{OUT}/file");
        let sum = format!("SHA256:{}", download.sha256);
        let words = "-q -o APT::Sandbox::User= -o Acquire::Retries=3 download-file".split(' ');
        let words = [APT_HELPER].into_iter().chain(words);
        let words = words.chain([url, &target, &sum]);
        let tool = Tool::new(&format!("fetch {}", download.name), words);
        // GitHub sends its releases from other hosts.
        let github = url.starts_with(GITHUB).then_some("preset:github");
        let from = [Some(url), github].into_iter().flatten();
        tool.out(directory).online(from).run().map(drop)
    })?;
    context.job.end_download(&download.name, download.size);
    Ok(context.job.check()?)
}

/// The host's bundle of public certificates, or that of the first of `variables`
/// that the caller has set: the host may be behind a proxy that has its own.
fn certificates(variables: [&str; 2]) -> Option<PathBuf> {
    let given = variables.into_iter().find_map(std::env::var_os);
    let bundle = given.map_or_else(|| Path::new(CERTIFICATES).to_owned(), PathBuf::from);
    bundle.is_file().then_some(bundle)
}
