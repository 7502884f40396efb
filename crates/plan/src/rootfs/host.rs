//! The `host` rootfs: `/usr`, and the files of `/etc` that it needs.

use std::path::{Path, PathBuf};

use super::{Entry, Tree, entry_at, link_at};

/// Directories beside `/usr` that are links into it on a merged system, and
/// directories of their own on others (hier(7)).
const BESIDE_USR: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The time zone: on most hosts a link into `/usr`.
const LOCALTIME: &str = "etc/localtime";

/// Files of `/etc` that programs in `/usr` need: for the loader, the time zone,
/// public certificates, fonts, interpreters. Cells see nothing else of `/etc`, in
/// particular no passwords, keys or host configuration.
const ETC: [&str; 15] = [
    "etc/alternatives",
    "etc/ca-certificates",
    "etc/crypto-policies",
    "etc/fonts",
    "etc/java-17-openjdk",
    "etc/java-21-openjdk",
    "etc/ld.so.cache",
    LOCALTIME,
    "etc/pki/ca-trust",
    "etc/pki/tls/certs",
    "etc/protocols",
    "etc/services",
    "etc/ssl/certs",
    "etc/ssl/openssl.cnf",
    "etc/R",
];

pub(super) fn tree() -> Tree {
    let base = PathBuf::from("/");
    let find = |path: &&str| match *path == LOCALTIME || BESIDE_USR.contains(path) {
        true => link_at(&base, Path::new(path)),
        false => entry_at(&base, Path::new(path)),
    };
    let all = std::iter::once(&"usr").chain(&BESIDE_USR).chain(&ETC);
    let entries: Vec<Entry> = all.filter_map(find).collect();
    Tree {
        label: "host".to_owned(),
        base,
        entries,
        needs_etc: true,
        interpreters: std::collections::BTreeMap::new(),
        lease: None,
    }
}
