//! Packages of PyPI: resolved, fetched and installed by pip, which runs on the
//! new tree's Python.
//!
//! pip itself is Debian's `python3-pip-whl`, and does not get into the tree. Only
//! wheels are installed, so no code of a package runs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::debian::{self, Repository};
use super::{CERTIFICATES, Download, certificates};
use crate::build::BuildContext;
use crate::errors::{failed, store_error};
use crate::recipe::{Deb, Debian, Wheel};
use crate::tool::{OUT, Tool};
use record::error::Result;
use spec::mirrors;

mod report;

/// Debian's package with pip as a wheel.
const PACKAGE: &str = "python3-pip-whl";
/// The directory of the wheel in it.
const FOLDER: &str = "usr/share/python-wheels";

/// The usual index and the host of its files.
const USUAL: [&str; 2] = ["https://pypi.org", "https://files.pythonhosted.org"];

/// What tells pip where packages are: the caller's variables, and their names in pip.conf.
const INDEXES: [(&str, &str); 3] = [
    ("PIP_INDEX_URL", "index-url"),
    ("PIP_EXTRA_INDEX_URL", "extra-index-url"),
    ("PIP_TRUSTED_HOST", "trusted-host"),
];

/// Other variables of the caller's that pip gets.
const VARIABLES: [&str; 4] = ["PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_PRE"];

/// pip, for one tree.
#[derive(Debug)]
pub(crate) struct Pip<'a> {
    tree: &'a Path,
    /// The path of Python inside.
    python: &'a Path,
    /// The directory with pip's wheel, and the wheel's name.
    folder: PathBuf,
    wheel: String,
}

/// The package that has pip, as apt finds it.
///
/// # Errors
/// apt's; the network's.
pub(crate) fn find_pip(
    context: &mut BuildContext,
    tree: &Path,
    repository: &Repository,
) -> Result<Deb> {
    let wanted = Debian {
        packages: vec![PACKAGE.to_owned()],
        ..Debian::default()
    };
    let found = debian::resolve(context, tree, repository, &wanted, "pip")?;
    let found = found.into_iter().find(|deb| deb.name == PACKAGE);
    found.ok_or_else(|| {
        store_error("apt does not find it").on(PACKAGE).hint(
            "packages of PyPI need a tree with Debian's ca-certificates and Python; see the recipe `python`",
        )
    })
}

impl<'a> Pip<'a> {
    /// Fetches and unpacks pip.
    pub(crate) fn new(
        context: &BuildContext,
        tree: &'a Path,
        python: &'a Path,
        repository: &Repository,
        package: &Deb,
        locked: bool,
    ) -> Result<Self> {
        debian::fetch_all(context, repository, std::slice::from_ref(package), locked)?;
        let out = context.directory("pip")?;
        Tool::new(
            &format!("unpack {PACKAGE}"),
            ["dpkg-deb", "--extract", "/package", OUT],
        )
        .ro(&context.cache.require(&package.sha256)?, "/package")
        .out(&out)
        .run()?;
        let folder = out.join(FOLDER);
        let is_wheel = |name: &String| name.starts_with("pip-") && name.ends_with(".whl");
        let wheel = fs::read_dir(&folder)
            .map_err(failed("readdir", &folder))?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .find(is_wheel)
            .ok_or_else(|| store_error("has no wheel of pip").on(PACKAGE))?;
        Ok(Self {
            tree,
            python,
            folder,
            wheel,
        })
    }

    /// A call of pip with the options in `words` and then `more`.
    fn tool(&self, name: &str, words: &str, more: &[impl AsRef<str>]) -> Tool {
        let python = self.python.display().to_string();
        let argv = [python.as_str(), "-m", "pip"].into_iter();
        let argv = argv.chain(words.split(' '));
        Tool::new(name, argv.chain(more.iter().map(AsRef::as_ref)))
            .tree(self.tree)
            .ro(&self.folder, "/pip")
            .env("PYTHONPATH", &format!("/pip/{}", self.wheel))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PIP_CONFIG_FILE", "/dev/null")
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .env("PIP_NO_CACHE_DIR", "1")
            .env("PIP_NO_INPUT", "1")
            .env("PIP_BREAK_SYSTEM_PACKAGES", "1")
            .env("PIP_ROOT_USER_ACTION", "ignore")
    }

    /// Gives pip the caller's index, or the usual one, and the host's certificates: the
    /// tree's lack that of a local proxy.
    fn online(&self, name: &str, words: &str, more: &[impl AsRef<str>]) -> Tool {
        // A mirror's index may lead to the files of the usual one.
        let given = INDEXES.map(|(variable, key)| {
            let value = std::env::var(variable).ok();
            let value = value.or_else(|| mirrors::setting("pip", key));
            (variable, value.unwrap_or_default())
        });
        let links = std::env::var("PIP_FIND_LINKS").unwrap_or_default();
        let registries = given.iter().map(|(_, value)| value.as_str());
        let registries = registries.chain([links.as_str()]).chain(USUAL);
        let mut tool = self
            .tool(name, words, more)
            .online(registries)
            .pass(&VARIABLES);
        for (variable, value) in given.iter().filter(|(_, value)| !value.is_empty()) {
            tool = tool.env(variable, value);
        }
        // Values that are not URLs are paths of the host.
        if links.contains("://") {
            tool = tool.env("PIP_FIND_LINKS", &links);
        }
        let Some(bundle) = certificates(["PIP_CERT", "SSL_CERT_FILE"]) else {
            return tool;
        };
        // Debian's pip reads this path too.
        if self.tree.join(&CERTIFICATES[1..]).is_file() {
            tool = tool.ro(&bundle, CERTIFICATES);
        }
        tool.ro(&bundle, "/certificates")
            .env("PIP_CERT", "/certificates")
    }

    /// The wheels that `packages` stand for and the tree lacks.
    pub(crate) fn resolve(
        &self,
        context: &BuildContext,
        packages: &[String],
    ) -> Result<Vec<Wheel>> {
        context.job.step(&format!("pip: {}", packages.join(", ")));
        let words = "install --dry-run --quiet --only-binary=:all: --report=- --";
        let printed = self.online("pip install", words, packages).run()?;
        context.job.check()?;
        let mut wheels = report::parse(&printed)?;
        for wheel in &mut wheels {
            wheel.size = context.known_sizes.get(&wheel.sha256).copied().unwrap_or(0);
        }
        Ok(wheels)
    }

    /// Fetches the wheels that the cache lacks, a few at a time, and sets their
    /// sizes.
    pub(crate) fn fetch(&self, context: &BuildContext, wheels: &mut [Wheel]) -> Result<()> {
        let is_missing = |wheel: &&Wheel| context.cache.find(&wheel.sha256).is_none();
        let missing: Vec<Wheel> = wheels.iter().filter(is_missing).cloned().collect();
        let mut waiting = missing.as_slice();
        while !waiting.is_empty() {
            let (batch, rest) = waiting.split_at(batch_length(waiting));
            waiting = rest;
            self.fetch_batch(context, batch)?;
        }
        for wheel in wheels {
            let path = context.cache.require(&wheel.sha256)?;
            wheel.size = fs::metadata(&path).map_err(failed("stat", &path))?.len();
        }
        Ok(())
    }

    fn fetch_batch(&self, context: &BuildContext, wheels: &[Wheel]) -> Result<()> {
        let names: Vec<&str> = wheels.iter().map(|wheel| wheel.name.as_str()).collect();
        let names = names.join(", ");
        context.job.begin_download(&names);
        let out = context.directory("out")?;
        let words = "download --quiet --no-deps --require-hashes --only-binary=:all: \
                     --progress-bar=off --requirement=/requirements/list --dest";
        self.online(&format!("fetch {names}"), words, &[OUT])
            .ro(&requirements(context, wheels)?, "/requirements")
            .out(&out)
            .run()?;
        for wheel in wheels {
            let download = Download::from(wheel);
            context.cache.keep(&out.join(&wheel.file), &download)?;
            context.job.end_download(&download.name, download.size);
        }
        context.job.check()
    }

    /// Installs wheels from the cache into the tree.
    pub(crate) fn install(&self, context: &BuildContext, wheels: &[Wheel]) -> Result<()> {
        let count = wheels.len();
        context
            .job
            .step(&format!("installing {count} Python packages"));
        let words = "install --quiet --no-index --find-links=/wheels --no-deps --no-compile \
                     --require-hashes --ignore-installed --no-warn-script-location \
                     --requirement=/requirements/list --root";
        let mut tool = self
            .tool("pip install", words, &[OUT])
            .ro(&requirements(context, wheels)?, "/requirements");
        for wheel in wheels {
            let path = context.cache.require(&wheel.sha256)?;
            tool = tool.ro(&path, &format!("/wheels/{}", wheel.file));
        }
        context.install(self.tree, tool).map(drop)
    }
}

/// A directory with a list of exactly these wheels.
fn requirements(context: &BuildContext, wheels: &[Wheel]) -> Result<PathBuf> {
    let mut text = String::new();
    for wheel in wheels {
        let Wheel {
            name,
            version,
            sha256,
            ..
        } = wheel;
        let _ = writeln!(text, "{name}=={version} --hash=sha256:{sha256}");
    }
    context.directory_with("requirements", [("list", text.as_bytes())])
}

/// How many of the waiting wheels one call of pip fetches: each call costs a
/// second, and an interrupt loses the files of the current one.
fn batch_length(waiting: &[Wheel]) -> usize {
    const MAX_FILES: usize = 6;
    const MAX_BYTES: u64 = 16 << 20;
    let mut bytes = 0;
    let fits = waiting.iter().take(MAX_FILES).take_while(|wheel| {
        let fits = bytes < MAX_BYTES;
        bytes += wheel.size;
        fits
    });
    fits.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_small_and_never_empty() {
        let wheel = |size| Wheel {
            name: "x".to_owned(),
            version: "1".to_owned(),
            file: "x-1-py3-none-any.whl".to_owned(),
            size,
            sha256: "a".repeat(64),
        };
        assert_eq!(batch_length(&[wheel(1 << 30), wheel(1)]), 1);
        assert_eq!(batch_length(&[wheel(1), wheel(1 << 30), wheel(1)]), 2);
        assert_eq!(batch_length(&vec![wheel(0); 20]), 6);
    }
}
