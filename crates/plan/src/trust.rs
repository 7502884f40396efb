//! Whom a cell trusts in which the broker ends TLS.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::rootfs::{EntryKind, Tree};
use spec::Network;

/// Where the cell's bundle of certificates is, inside.
pub(crate) const BUNDLE: &str = "/run/cellblock/certificates.pem";
/// Where the same certificates are as a Java keystore.
pub(super) const JAVA_STORE: &str = "/run/cellblock/cacerts";

/// Variables by which clients that bring certificates of their own find others.
pub(super) const VARIABLES: [&str; 5] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
];

/// Where distributions have their bundle.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Where distributions have Java's keystore.
const JAVA_STORES: [&str; 2] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
];

/// A certificate authority of the cell's own, beside those of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// The hosts that it signs a certificate for.
    pub hosts: Vec<String>,
    /// The host's bundle.
    pub bundle: PathBuf,
}

impl Trust {
    /// For a cell with secret fields in requests by TLS.
    pub(super) fn of(network: &Network) -> Option<Self> {
        let Network::Hosts(egress) = network else {
            return None;
        };
        let with_tls = egress.secrets.iter().filter(|secret| secret.tls);
        let mut hosts: Vec<String> = with_tls.map(|secret| secret.host.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        (!hosts.is_empty()).then(|| Self {
            hosts,
            bundle: host_bundle(),
        })
    }
}

/// What this host's programs trust.
pub fn host_bundle() -> PathBuf {
    let usual = || BUNDLES.iter().map(Path::new).find(|path| path.is_file());
    let given = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    given.unwrap_or_else(|| usual().unwrap_or(Path::new(BUNDLES[0])).to_owned())
}

/// The bundles of `tree`, over which the cell's own is mounted.
pub(super) fn bundles(tree: &Tree) -> impl Iterator<Item = &'static Path> {
    held(tree, &BUNDLES)
}

/// The Java keystores of `tree`, over which the cell's own is mounted.
pub(super) fn java_stores(tree: &Tree) -> impl Iterator<Item = &'static Path> {
    held(tree, &JAVA_STORES)
}

/// Those of `paths` that are files of `tree` and have no symbolic link in their path.
fn held(tree: &Tree, paths: &'static [&'static str]) -> impl Iterator<Item = &'static Path> {
    let base = tree.base.canonicalize().unwrap_or_default();
    paths.iter().map(Path::new).filter(move |path| {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let holds = |kind: &EntryKind| !matches!(kind, EntryKind::Symlink(_));
        let mut entries = tree.entries.iter();
        let is_held = entries.any(|entry| relative.starts_with(&entry.path) && holds(&entry.kind));
        let real = base.join(relative);
        is_held && real.is_file() && real.canonicalize().is_ok_and(|found| found == real)
    })
}
