//! Packages of Debian: resolved by apt against signed lists, fetched one by one,
//! and unpacked without running their scripts.

use std::fs;
use std::path::Path;

use super::{APT_HELPER, Download, digest_of, fetch};
use crate::build::BuildContext;
use crate::errors::{failed, store_error};
use crate::files::make_directory;
use crate::recipe::{Deb, Debian, MIRROR};
use crate::tool::Tool;
use record::error::Result;

mod status;
mod uris;

/// A release of Debian and the mirror that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    suite: String,
    /// The part of the address before `/debian`.
    mirror: String,
}

impl Repository {
    pub(crate) fn new(suite: &str, mirror: Option<&str>) -> Self {
        let mirror = mirror.unwrap_or(MIRROR).trim_end_matches('/');
        Self {
            suite: suite.to_owned(),
            mirror: mirror.to_owned(),
        }
    }

    /// apt's list of sources.
    fn sources(&self, keyring: &str) -> String {
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

/// This machine's architecture, as Debian and container images name it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Checks for the host's tools, and returns its keyring of Debian's archive.
///
/// # Errors
/// Names every tool that the host lacks.
pub(crate) fn require_tools() -> Result<&'static str> {
    let find = |paths: &[&'static str]| paths.iter().copied().find(|path| Path::new(path).exists());
    let tools: [(&str, &[&str]); 4] = [
        ("apt-get", &["/usr/bin/apt-get"]),
        ("apt-helper", &[APT_HELPER]),
        ("dpkg-deb", &["/usr/bin/dpkg-deb"]),
        ("debian-archive-keyring", &KEYRINGS),
    ];
    let missing = tools.iter().filter(|(_, paths)| find(paths).is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    let keyring = find(&KEYRINGS).filter(|_| missing.is_empty());
    keyring.ok_or_else(|| {
        store_error(format!(
            "Debian packages need {}, which this host lacks",
            missing.join(", ")
        ))
        .hint(
            "install apt, dpkg and debian-archive-keyring; or import a tree that was built \
             elsewhere with `cellblock rootfs import`, which needs none of them",
        )
    })
}

/// The packages that `wanted` stands for and `tree` lacks. apt resolves them
/// against lists whose signatures it checks.
///
/// # Errors
/// apt's; the network's.
pub(crate) fn resolve(
    context: &mut BuildContext,
    tree: &Path,
    repository: &Repository,
    wanted: &Debian,
    recipe: &str,
) -> Result<Vec<Deb>> {
    let keyring = require_tools()?;
    let Repository { suite, mirror } = repository;
    let mirror_id = &digest_of(mirror.as_bytes())[..8];
    let name = format!("{suite}-{}-{mirror_id}", architecture());
    let (directory, _lock) = context.cache.tool_directory(&name)?;
    let status = status::read(tree)? + &status::stub(recipe, &wanted.without);
    write_configuration(context, &directory, &repository.sources(keyring), &status)?;
    let apt = |name: &str, words: &str, packages: &[String]| {
        let packages = packages.iter().map(String::as_str);
        Tool::new(name, words.split(' ').chain(packages))
            .rw(&directory, "/apt")
            .env("APT_CONFIG", "/apt/apt.conf")
    };
    if context.updated_lists.insert(name) {
        context
            .job
            .step(&format!("package lists of Debian {suite}"));
        let words = "apt-get update -q -o APT::Update::Error-Mode=any";
        apt("apt-get update", words, &[])
            .online([mirror.as_str()])
            .run()?;
        context.job.check()?;
    }
    let words = "apt-get install --yes --print-uris --no-install-recommends";
    let printed = apt("apt-get install", words, &wanted.packages).run()?;
    context.job.check()?;
    uris::parse(&printed, mirror)
}

/// Writes apt's own files; it uses no configuration of the host's.
fn write_configuration(
    context: &BuildContext,
    directory: &Path,
    sources: &str,
    status: &str,
) -> Result<()> {
    let configuration = include_str!("apt.conf").replace("@ARCHITECTURE@", architecture());
    for (name, content) in [
        ("apt.conf", configuration.as_str()),
        ("debian.sources", sources),
        ("status", status),
    ] {
        let path = directory.join(name);
        fs::write(&path, content).map_err(failed("write", &path))?;
    }
    for name in ["lists/partial", "cache/archives/partial"] {
        make_directory(&directory.join(name))?;
    }
    context.give_all(directory)
}

/// Fetches the packages that the cache lacks.
///
/// # Errors
/// The network's; the mirror sends another file, or no longer has the package.
pub(crate) fn fetch_all(
    context: &BuildContext,
    repository: &Repository,
    debs: &[Deb],
    locked: bool,
) -> Result<()> {
    for deb in debs {
        let url = format!("{}/{}", repository.mirror, deb.path);
        let download = Download::from(deb);
        fetch(context, &url, &download).map_err(|failure| {
            if failure.is_gone() && locked {
                return store_error("the mirror no longer has this package")
                    .on(&download.name)
                    .hint(
                        "Debian keeps only current versions: build without --locked, and with \
                         --update-lock for a recipe of your own; or set `debian.mirror` in the \
                         recipe to a mirror that keeps old versions",
                    );
            }
            failure.into()
        })?;
    }
    Ok(())
}

/// Unpacks packages into the tree and adds them to its list of installed ones.
///
/// # Errors
/// A package is damaged or does not fit into the tree.
pub(crate) fn unpack(
    context: &BuildContext,
    tree: &Path,
    debs: &[Deb],
    wanted: &Debian,
    recipe: &str,
) -> Result<()> {
    // `dpkg-deb --extract` would set set-user-ID bits, which a cell's system call
    // policy refuses.
    const SCRIPT: &str = r#"dpkg-deb --fsys-tarfile /package |
        tar --extract --file - --directory /out --no-same-permissions --warning=no-timestamp &&
        dpkg-deb --field /package"#;
    let mut stanzas = Vec::new();
    for deb in debs {
        context.job.detail(&format!("unpacking {}", deb.name));
        let tool = Tool::new(
            &format!("unpack {} {}", deb.name, deb.version),
            ["sh", "-c", SCRIPT],
        );
        let tool = tool.ro(&context.cache.require(&deb.sha256)?, "/package");
        stanzas.push(context.install(tree, tool)?);
    }
    let stub = status::stub(recipe, &wanted.without);
    context.put(
        tree,
        status::PATH,
        &status::merge(&status::read(tree)?, &stanzas, &stub),
    )
}

/// Whether the tree has a list of installed packages.
///
/// # Errors
/// It cannot be read.
pub(crate) fn has_packages(tree: &Path) -> Result<bool> {
    status::read(tree).map(|text| !text.is_empty())
}
