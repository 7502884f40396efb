//! The `host` rootfs: `/usr`, and the files of `/etc` that it needs.

use std::path::{Path, PathBuf};

use super::packages::{self, Names};
use super::{Entry, EntryKind, Tree, entry_at, link_at};
use sys::listing::Kind;

/// The uid that must own what packages have in `/etc` and `/var/lib`.
const ROOT: u32 = 0;

/// Directories beside `/usr` that are links into it on a merged system, and
/// directories of their own on others (hier(7)).
const BESIDE_USR: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The time zone: on most hosts a link into `/usr`.
const LOCALTIME: &str = "etc/localtime";

/// Files of `/etc` that programs in `/usr` need: for the loader, the time zone,
/// public certificates, fonts, interpreters. Of the rest of `/etc`, cells see what
/// [`packages`] has, in particular no passwords, keys or host configuration.
const ETC: [&str; 13] = [
    "etc/alternatives",
    "etc/ca-certificates",
    "etc/crypto-policies",
    "etc/fonts",
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
    let names = Names::read(&base);
    let in_etc = |path: &&str| {
        let mut components = path.split('/').skip(1);
        let kind = names.kind(components.next()?)?;
        let entry = |kind| {
            let path = PathBuf::from(path);
            Some(Entry { path, kind })
        };
        match (components.next(), kind) {
            (None, Kind::Directory) => entry(EntryKind::Directory),
            (None, Kind::Symlink) => link_at(&base, Path::new(path)),
            _ => entry_at(&base, Path::new(path)),
        }
    };
    let mut entries: Vec<Entry> = entry_at(&base, Path::new("usr")).into_iter().collect();
    let beside = BESIDE_USR
        .iter()
        .map(|name| link_at(&base, Path::new(name)));
    entries.extend(beside.flatten());
    entries.extend(ETC.iter().filter_map(in_etc));
    entries.extend(packages::find(&base, &names, ROOT));
    Tree {
        label: "host".to_owned(),
        base,
        entries,
        needs_etc: true,
        interpreters: std::collections::BTreeMap::new(),
        lease: None,
    }
}
