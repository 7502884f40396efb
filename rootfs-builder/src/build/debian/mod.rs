//! Packages of Debian: resolved by apt against signed lists, fetched one by one,
//! and unpacked without their scripts.

use std::fs;
use std::path::Path;

use super::adopt::adopt;
use super::cache::Cache;
use super::lock::Deb;
use super::recipe::{Debian, MIRROR};
use super::scratch::{failed, make_directory};
use super::shop::{Item, Shop};
use super::tool::{Failure, OUT, Tool};
use record::error::{Result, SetupError, Step};

mod status;
mod uris;

/// Where the packages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The release.
    pub(super) suite: String,
    /// The part of the address before `/debian`.
    pub(super) mirror: String,
}

impl Source {
    pub(super) fn new(suite: &str, mirror: Option<&str>) -> Self {
        let mirror = mirror.unwrap_or(MIRROR).trim_end_matches('/');
        Self {
            suite: suite.to_owned(),
            mirror: mirror.to_owned(),
        }
    }

    fn list(&self, keyring: &str) -> String {
        let Self { suite, mirror } = self;
        let architecture = architecture();
        let part = |archive: &str, suites: &str| {
            format!(
                "Types: deb\nURIs: {mirror}/{archive}\nSuites: {suites}\nComponents: main\n\
                 Architectures: {architecture}\nSigned-By: {keyring}\n"
            )
        };
        format!(
            "{}\n{}",
            part("debian", &format!("{suite} {suite}-updates")),
            part("debian-security", &format!("{suite}-security"))
        )
    }
}

/// Debian's name for this machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// # Errors
/// Names every tool that the host lacks.
pub(super) fn require_tools() -> Result<()> {
    let tools = [
        ("apt-get", "/usr/bin/apt-get"),
        ("apt-helper", APT_HELPER),
        ("dpkg-deb", "/usr/bin/dpkg-deb"),
    ];
    let missing = tools.iter().filter(|(_, path)| !Path::new(path).exists());
    let mut missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if keyring().is_none() {
        missing.push("debian-archive-keyring");
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(SetupError::new(
        Step::Store,
        format!("packages of Debian need {}, which this host lacks", missing.join(", ")),
    )
    .hint("install apt, dpkg and debian-archive-keyring; or take a tree built elsewhere: `cellblock rootfs import` needs none of them"))
}

fn keyring() -> Option<&'static str> {
    KEYRINGS.into_iter().find(|path| Path::new(path).exists())
}

/// The packages that `wanted` means and that `tree` lacks, by apt, against lists
/// whose signatures it checks.
///
/// # Errors
/// apt's own; the network's.
pub(super) fn resolve(
    shop: &mut Shop,
    tree: &Path,
    source: &Source,
    wanted: &Debian,
    recipe: &str,
) -> Result<Vec<Deb>> {
    require_tools()?;
    let installed = status::read(tree)?;
    let stub = status::stub(recipe, &wanted.without);
    let key = format!(
        "{}-{}-{}",
        source.suite,
        architecture(),
        short(&source.mirror)
    );
    let (lists, _lock) = shop.cache.lists(&key)?;
    prepare(shop, &lists, source, &format!("{installed}{stub}"))?;
    if !shop.updated.contains(&key) {
        shop.progress
            .stage(&format!("package lists of Debian {}", source.suite));
        let update = [
            "apt-get",
            "-q",
            "update",
            "-o",
            "APT::Update::Error-Mode=any",
        ];
        apt(&lists, "apt-get update", &update).online().run()?;
        shop.updated.insert(key);
        shop.check()?;
    }
    let mut words = vec![
        "apt-get",
        "install",
        "--yes",
        "--print-uris",
        "--no-install-recommends",
    ];
    words.extend(wanted.packages.iter().map(String::as_str));
    let printed = apt(&lists, "apt-get install", &words).run()?;
    shop.check()?;
    uris::parse(&printed, &source.mirror)
}

fn apt(lists: &Path, doing: &str, words: &[&str]) -> Tool {
    Tool::new(doing, words.iter().copied())
        .rw(lists, "/apt")
        .env("APT_CONFIG", "/apt/apt.conf")
}

/// Some digits that stand for an address.
fn short(text: &str) -> String {
    let digest = super::cache::digest_of(text.as_bytes());
    digest.chars().take(8).collect()
}

/// apt's own files: nothing of the host's configuration is used.
fn prepare(shop: &Shop, lists: &Path, source: &Source, status: &str) -> Result<()> {
    let keyring = keyring().unwrap_or(KEYRINGS[0]);
    let files = [
        (
            "apt.conf",
            include_str!("apt.conf").replace("@ARCHITECTURE@", architecture()),
        ),
        ("debian.sources", source.list(keyring)),
        ("status", status.to_owned()),
    ];
    for (name, content) in files {
        let path = lists.join(name);
        fs::write(&path, content).map_err(failed("write", &path))?;
    }
    for name in ["lists/partial", "cache/archives/partial"] {
        make_directory(&lists.join(name))?;
    }
    give_all(shop, lists)
}

/// Gives a directory and all in it to the cells.
pub(super) fn give_all(shop: &Shop, path: &Path) -> Result<()> {
    shop.writer.give(path)?;
    for entry in fs::read_dir(path).map_err(failed("readdir", path))? {
        let entry = entry.map_err(failed("readdir", path))?;
        let kind = entry.file_type().map_err(failed("stat", path))?;
        if kind.is_dir() {
            give_all(shop, &entry.path())?;
        } else if kind.is_file() {
            shop.writer.give(&entry.path())?;
        }
    }
    Ok(())
}

/// What has to be fetched for these packages.
pub(super) fn items(debs: &[Deb]) -> Vec<Item> {
    let item = |deb: &Deb| Item {
        name: format!("{} {}", deb.name, deb.version),
        sha256: deb.sha256.clone(),
        size: deb.size,
    };
    debs.iter().map(item).collect()
}

/// Fetches the packages that the cache lacks.
///
/// # Errors
/// The network's; or a mirror gives something else, or has the file no more.
pub(super) fn fetch(shop: &mut Shop, source: &Source, debs: &[Deb], locked: bool) -> Result<()> {
    for deb in debs {
        let url = format!("{}/{}", source.mirror, deb.path);
        let item = &items(std::slice::from_ref(deb))[0];
        fetch_file(shop, &url, item).map_err(|failure| {
            if failure.is_gone() && locked {
                return SetupError::new(Step::Store, "the mirror has this package no more")
                    .on(&item.name)
                    .hint("Debian keeps only current versions: build without --locked, and with --update-lock for a recipe of your own; or name a mirror that keeps old ones in the recipe");
            }
            failure.into()
        })?;
    }
    Ok(())
}

/// Fetches one file by apt-helper, in a cell of its own, unless it is here.
pub(super) fn fetch_file(shop: &mut Shop, url: &str, item: &Item) -> Result<(), Failure> {
    if shop.cache.find(&item.sha256).is_some() {
        return Ok(());
    }
    shop.progress.begin(item);
    let mut said = None;
    let fetched = shop
        .cache
        .fetch(&item.sha256, &item.name, shop.writer, |place| {
            let target = format!("{OUT}/file");
            let sum = format!("SHA256:{}", item.sha256);
            let words = [
                APT_HELPER,
                "-q",
                "-o",
                "APT::Sandbox::User=",
                "-o",
                "Acquire::Retries=3",
                "download-file",
                url,
                &target,
                &sum,
            ];
            let tool = Tool::new(&format!("fetch {}", item.name), words);
            match tool.out(place).online().run() {
                Ok(_) => Ok(()),
                Err(failure) => {
                    let error = failure.error.clone();
                    said = Some(failure);
                    Err(error)
                }
            }
        });
    match (fetched, said) {
        (Err(_), Some(failure)) => Err(failure),
        (other, _) => other.map_err(Failure::of),
    }?;
    shop.progress.done(item);
    shop.check().map_err(Failure::of)
}

/// Unpacks packages into the tree and notes them in its list of installed ones.
///
/// # Errors
/// A package that is broken, or that does not fit into the tree.
pub(super) fn unpack(
    shop: &mut Shop,
    tree: &Path,
    debs: &[Deb],
    wanted: &Debian,
    recipe: &str,
) -> Result<()> {
    // Not `dpkg-deb --extract`, which insists on set-user-ID bits: a cell's filter
    // refuses them, and the tree takes none.
    const SCRIPT: &str = r#"dpkg-deb --fsys-tarfile "$1" |
        tar --extract --file - --directory "$2" --no-same-permissions --warning=no-timestamp &&
        dpkg-deb --field "$1""#;
    let blobs = shop.cache.blobs();
    let mut stanzas = Vec::new();
    for deb in debs {
        shop.progress.unpacking(&deb.name);
        let out = shop.scratch.writable("out", shop.writer)?;
        let file = Path::new("/blobs").join(Cache::relative(&deb.sha256));
        let words = ["sh", "-c", SCRIPT, "sh", &file.display().to_string(), OUT];
        let tool = Tool::new(&format!("unpack {} {}", deb.name, deb.version), words);
        stanzas.push(tool.ro(&blobs, "/blobs").out(&out).run()?);
        adopt(&out, tree)?;
        shop.check()?;
    }
    status::add(
        shop.scratch.path(),
        tree,
        &stanzas,
        &status::stub(recipe, &wanted.without),
    )
}

/// Whether the tree has a list of installed packages.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_debian(tree: &Path) -> Result<bool> {
    status::read(tree).map(|text| !text.is_empty())
}
