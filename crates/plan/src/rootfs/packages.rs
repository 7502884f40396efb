//! What packages of the host keep beside `/usr`: without it, their programs in `/usr` fail.
//!
//! Something is on the list if a link or a fixed path of a program in `/usr` leads there, a
//! package owns it, and it is the same for everybody on the host: settings of a program that is
//! started by users, and what a package has compiled. Servers, whose directories have keys and
//! passwords, are not on it, and neither are files in which administrators keep passwords
//! (Maven's `settings.xml`, PHP's pools).
//!
//! Each mount takes 16 µs of a start, and most hosts have some of these packages: what few programs
//! miss (`/etc/magic`, the catalogs of SGML) is left to `--ro`, which the record's hint names.
//!
//! Of that, a cell sees what belongs to root, what everybody may read, and what nobody else can
//! change, nor the directories that lead there. A link is made again and not followed.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::{Entry, classify};
use sys::listing::{self, Kind, Listed};

/// Below `/etc`. One `*` in a component stands for any characters. Sorted.
const ETC: [&str; 24] = [
    "ImageMagick-*",
    "OpenCL",
    "chromium.d",
    "emacs",
    "erlang",
    "ghostscript",
    "groff",
    "java-*-openjdk",
    "libreoffice",
    "manpath.config",
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "mono",
    "octave.conf",
    "octaverc",
    "openmpi",
    "os-release",
    "perl/XML/SAX/ParserDetails.ini",
    "php/*/cli",
    "php/*/mods-available",
    "racket",
    "texmf",
    "xml",
];

/// Below `/var/lib`.
const VAR_LIB: [&str; 6] = ["aspell", "chicken", "gems", "ghc", "ghostscript", "texmf"];

/// The names in `/etc`, which are read once: most of the list is missing on most hosts.
pub(super) struct Names(Vec<Listed>);

impl Names {
    pub(super) fn read(base: &Path) -> Self {
        let etc = File::open(base.join("etc")).map_err(|_| Errno::ENOENT);
        let mut names = etc
            .and_then(|etc| listing::read(etc.as_fd()))
            .unwrap_or_default();
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Self(names)
    }

    /// What `/etc/NAME` is, if it is there.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        let of = |listed: &Listed| listed.name.as_slice().cmp(name.as_bytes());
        let index = self.0.binary_search_by(of);
        Some(self.0[index.ok()?].kind)
    }

    /// Names that match a component of [`ETC`].
    fn matching(&self, wanted: &str) -> impl Iterator<Item = &Path> {
        let start = wanted.split('*').next().unwrap_or(wanted).as_bytes();
        let from = self
            .0
            .partition_point(|listed| listed.name.as_slice() < start);
        let names = self.0[from..].iter().map(|listed| &*listed.name);
        let names = names.take_while(move |name| name.starts_with(start));
        let names = names.map(|name| Path::new(OsStr::from_bytes(name)));
        names.filter(move |name| matches(wanted, name))
    }
}

/// What there is of both lists. `owner` is root, but in tests.
pub(super) fn find(base: &Path, names: &Names, owner: u32) -> Vec<Entry> {
    let shelf = Shelf { base, owner };
    let mut found = Vec::new();
    for path in ETC {
        let (first, rest) = path
            .split_once('/')
            .map_or((path, None), |(a, b)| (a, Some(b)));
        for name in names.matching(first) {
            shelf.collect(&Path::new("etc").join(name), rest, &mut found);
        }
    }
    if !shelf.is_safe_way(Path::new("etc"), &found) {
        found.clear();
    }
    let mut states = Vec::new();
    for name in VAR_LIB {
        shelf.collect(&Path::new("var/lib").join(name), None, &mut states);
    }
    if shelf.is_safe_way(Path::new("var/lib"), &states) {
        found.append(&mut states);
    }
    found
}

/// A file system with such files.
struct Shelf<'a> {
    base: &'a Path,
    owner: u32,
}

impl Shelf<'_> {
    /// Adds what is at `path`, or at `rest` below it.
    fn collect(&self, path: &Path, rest: Option<&str>, found: &mut Vec<Entry>) {
        let Ok(status) = fs::symlink_metadata(self.base.join(path)) else {
            return;
        };
        let Some(rest) = rest else {
            let is_shown =
                status.is_symlink() && status.uid() == self.owner || self.is_public(&status);
            found.extend(
                is_shown
                    .then(|| classify(self.base, path.to_owned(), status.file_type()))
                    .flatten(),
            );
            return;
        };
        if !status.is_dir() || !self.is_public(&status) {
            return;
        }
        let (next, rest) = rest
            .split_once('/')
            .map_or((rest, None), |(a, b)| (a, Some(b)));
        if !next.contains('*') {
            return self.collect(&path.join(next), rest, found);
        }
        let entries = fs::read_dir(self.base.join(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
        names.retain(|name| matches(next, name));
        names.sort_unstable();
        for name in names {
            self.collect(&path.join(name), rest, found);
        }
    }

    /// Whether only the owner can change it, and everybody may read it.
    fn is_public(&self, status: &Metadata) -> bool {
        let needed = if status.is_dir() { 0o005 } else { 0o004 };
        let mode = status.mode();
        status.uid() == self.owner && mode & 0o022 == 0 && mode & needed == needed
    }

    /// Whether nobody else can put something in the place of what was found in `directory`. Where
    /// nothing was found, this takes no system call.
    fn is_safe_way(&self, directory: &Path, found: &[Entry]) -> bool {
        let is_public = |way: &Path| {
            let status = fs::symlink_metadata(self.base.join(way));
            status.is_ok_and(|status| status.is_dir() && self.is_public(&status))
        };
        let mut way = directory
            .ancestors()
            .filter(|way| !way.as_os_str().is_empty());
        found.is_empty() || way.all(is_public)
    }
}

fn matches(wanted: &str, name: &Path) -> bool {
    let name = name.as_os_str().as_bytes();
    match wanted.split_once('*') {
        None => name == wanted.as_bytes(),
        Some((start, end)) => {
            name.len() >= start.len() + end.len()
                && name.starts_with(start.as_bytes())
                && name.ends_with(end.as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::rootfs::EntryKind;

    /// A host with `/etc` and `/var/lib` that belongs to whoever runs the test.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for directory in ["", "etc", "var", "var/lib"] {
                host.directory(directory, 0o755);
            }
            host
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn directory(&self, path: &str, mode: u32) {
            fs::create_dir_all(self.at(path)).unwrap();
            self.chmod(path, mode);
        }

        fn file(&self, path: &str, mode: u32) {
            fs::write(self.at(path), "").unwrap();
            self.chmod(path, mode);
        }

        fn chmod(&self, path: &str, mode: u32) {
            fs::set_permissions(self.at(path), Permissions::from_mode(mode)).unwrap();
        }

        fn found_of(&self, owner: u32) -> Vec<(String, EntryKind)> {
            let names = Names::read(self.0.path());
            let found = find(self.0.path(), &names, owner).into_iter();
            found
                .map(|entry| (entry.path.display().to_string(), entry.kind))
                .collect()
        }

        fn found(&self) -> Vec<String> {
            let own = fs::metadata(self.0.path()).unwrap().uid();
            self.found_of(own)
                .into_iter()
                .map(|(path, _)| path)
                .collect()
        }
    }

    #[test]
    fn what_packages_have_is_found_and_servers_files_are_not() {
        let host = Host::new();
        for directory in [
            "etc/ImageMagick-6",
            "etc/ImageMagick-7",
            "etc/maven/logging",
            "etc/php/8.2/cli",
            "etc/php/8.2/fpm",
            "etc/php/8.2/mods-available",
            "etc/postgresql",
            "etc/racket",
            "var/lib/ghc",
            "var/lib/postgresql",
        ] {
            host.directory(directory, 0o755);
        }
        for way in ["etc/maven", "etc/php", "etc/php/8.2"] {
            host.chmod(way, 0o755);
        }
        for file in [
            "etc/maven/m2.conf",
            "etc/maven/settings.xml",
            "etc/passwd",
            "etc/mime.types",
        ] {
            host.file(file, 0o644);
        }
        symlink("../usr/lib/os-release", host.at("etc/os-release")).unwrap();
        let expected = [
            "etc/ImageMagick-6",
            "etc/ImageMagick-7",
            "etc/maven/logging",
            "etc/maven/m2.conf",
            "etc/mime.types",
            "etc/os-release",
            "etc/php/8.2/cli",
            "etc/php/8.2/mods-available",
            "etc/racket",
            "var/lib/ghc",
        ];
        assert_eq!(host.found(), expected);
    }

    #[test]
    fn what_others_own_or_can_change_or_not_everybody_can_read_is_not_shown() {
        let host = Host::new();
        host.directory("etc/racket", 0o755);
        host.file("etc/mime.types", 0o644);
        host.directory("var/lib/ghc", 0o755);
        assert_eq!(host.found().len(), 3);
        assert_eq!(host.found_of(u32::MAX), []);
        for (path, good, bad) in [
            ("etc/racket", 0o755, 0o750),
            ("etc/racket", 0o755, 0o754),
            ("etc/racket", 0o755, 0o775),
            ("etc/racket", 0o755, 0o757),
            ("etc/mime.types", 0o644, 0o640),
            ("etc/mime.types", 0o644, 0o666),
            ("var/lib/ghc", 0o755, 0o1777),
        ] {
            host.chmod(path, bad);
            let found = host.found();
            assert_eq!(found.len(), 2, "{path} {bad:o}: {found:?}");
            host.chmod(path, good);
        }
        for (way, left) in [("etc", 1), ("var/lib", 2), ("var", 2)] {
            host.chmod(way, 0o777);
            assert_eq!(host.found().len(), left, "{way}");
            host.chmod(way, 0o755);
        }
    }

    #[test]
    fn links_lead_nowhere() {
        let host = Host::new();
        host.directory("secret", 0o755);
        host.directory("secret/8.2/cli", 0o755);
        host.chmod("secret/8.2", 0o755);
        // At the place itself, a link is made again, and leads to what the cell has there.
        symlink(host.at("secret"), host.at("etc/texmf")).unwrap();
        // On the way, it is not followed.
        symlink(host.at("secret"), host.at("etc/php")).unwrap();
        let own = fs::metadata(host.at("")).unwrap().uid();
        let link = (
            "etc/texmf".to_owned(),
            EntryKind::Symlink(host.at("secret")),
        );
        assert_eq!(host.found_of(own), [link]);
        fs::remove_file(host.at("etc/php")).unwrap();
        host.directory("etc/php", 0o755);
        symlink(host.at("secret/8.2"), host.at("etc/php/8.2")).unwrap();
        assert_eq!(host.found(), ["etc/texmf"]);
        fs::remove_dir(host.at("var/lib")).unwrap();
        host.directory("secret/ghc", 0o755);
        symlink(host.at("secret"), host.at("var/lib")).unwrap();
        assert_eq!(host.found(), ["etc/texmf"]);
    }

    #[test]
    fn the_lists_are_sorted() {
        assert!(ETC.is_sorted());
        assert!(VAR_LIB.is_sorted());
    }
}
