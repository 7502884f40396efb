//! Packages of PyPI: resolved, fetched and installed by pip, which runs on the
//! new tree's Python.
//!
//! pip itself is Debian's `python3-pip-whl`, and does not get into the tree. Only
//! wheels are taken: nothing of a package's own is run.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::adopt::adopt;
use super::cache::Cache;
use super::debian;
use super::lock::{Deb, Wheel};
use super::recipe::Debian;
use super::scratch::failed;
use super::shop::{Item, Shop};
use super::tool::{OUT, Tool};
use record::error::{Result, SetupError, Step};

mod report;

/// Debian's package with pip as a wheel.
const PACKAGE: &str = "python3-pip-whl";
/// Where that is in it.
const FOLDER: &str = "usr/share/python-wheels";
/// Where programs of Debian look for public certificates; its pip too.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The caller's variables that say where pip finds packages.
const INDEX: [&str; 7] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_PROXY",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_RETRIES",
    "PIP_PRE",
];

/// pip, for one tree.
#[derive(Debug)]
pub(super) struct Pip<'a> {
    tree: &'a Path,
    /// The interpreter inside.
    python: &'a Path,
    /// The directory that has pip's wheel, and its name there.
    folder: PathBuf,
    wheel: String,
}

/// The package that has pip, as apt finds it.
///
/// # Errors
/// apt's; the network's.
pub(super) fn find_tool(shop: &mut Shop, tree: &Path, source: &debian::Source) -> Result<Deb> {
    let wanted = Debian {
        packages: vec![PACKAGE.to_owned()],
        ..Debian::default()
    };
    let found = debian::resolve(shop, tree, source, &wanted, "pip")?;
    let found = found.into_iter().find(|deb| deb.name == PACKAGE);
    found.ok_or_else(|| {
        SetupError::new(Step::Store, "apt does not find it").on(PACKAGE).hint(
            "pip's packages need a tree with Debian's ca-certificates and Python; see the recipe `python`",
        )
    })
}

impl<'a> Pip<'a> {
    /// Fetches and unpacks pip.
    pub(super) fn new(
        shop: &mut Shop,
        tree: &'a Path,
        python: &'a Path,
        source: &debian::Source,
        tool: &Deb,
        locked: bool,
    ) -> Result<Self> {
        debian::fetch(shop, source, std::slice::from_ref(tool), locked)?;
        let out = shop.scratch.writable("pip", shop.writer)?;
        let file = Path::new("/blobs").join(Cache::relative(&tool.sha256));
        let words = ["dpkg-deb", "--extract", &file.display().to_string(), OUT];
        let unpack = Tool::new(&format!("unpack {PACKAGE}"), words);
        unpack.ro(&shop.cache.blobs(), "/blobs").out(&out).run()?;
        let folder = out.join(FOLDER);
        let is_wheel = |name: &String| name.starts_with("pip-") && name.ends_with(".whl");
        let names = fs::read_dir(&folder).map_err(failed("readdir", &folder))?;
        let names = names
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        let wheel = names
            .into_iter()
            .find(is_wheel)
            .ok_or_else(|| SetupError::new(Step::Store, "has no wheel of pip").on(PACKAGE))?;
        Ok(Self {
            tree,
            python,
            folder,
            wheel,
        })
    }

    fn tool(&self, doing: &str, words: &[&str]) -> Tool {
        let python = self.python.display().to_string();
        let mut argv = vec![python.as_str(), "-m", "pip"];
        argv.extend(words);
        Tool::new(doing, argv)
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

    /// With the network, the caller's index and the host's certificates: behind a
    /// proxy of one's own, the tree's would not do.
    fn online(&self, doing: &str, words: &[&str]) -> Tool {
        let mut tool = self.tool(doing, words).online();
        for name in INDEX {
            tool = tool.pass(name);
        }
        // Anything but a URL is a path of the host's.
        match std::env::var("PIP_FIND_LINKS") {
            Ok(links) if links.contains("://") => tool = tool.env("PIP_FIND_LINKS", &links),
            _ => {}
        }
        let given = ["PIP_CERT", "SSL_CERT_FILE"]
            .into_iter()
            .find_map(std::env::var_os);
        let bundle = given.map_or_else(|| PathBuf::from(CERTIFICATES), PathBuf::from);
        if !bundle.is_file() {
            return tool;
        }
        if self.tree.join(&CERTIFICATES[1..]).is_file() {
            tool = tool.ro(&bundle, CERTIFICATES);
        }
        tool.ro(&bundle, "/certificates")
            .env("PIP_CERT", "/certificates")
    }

    /// The wheels that `packages` mean and that the tree lacks.
    pub(super) fn resolve(&self, shop: &mut Shop, packages: &[String]) -> Result<Vec<Wheel>> {
        shop.progress
            .stage(&format!("pip: {}", packages.join(", ")));
        let mut words = vec![
            "install",
            "--dry-run",
            "--quiet",
            "--only-binary=:all:",
            "--report=-",
            "--",
        ];
        words.extend(packages.iter().map(String::as_str));
        let printed = self.online("pip install", &words).run()?;
        shop.check()?;
        let mut wheels = report::parse(&printed)?;
        for wheel in &mut wheels {
            wheel.size = shop.sizes.get(&wheel.sha256).copied().unwrap_or(0);
        }
        Ok(wheels)
    }

    /// Fetches the wheels that the cache lacks, a few at a time, and notes their
    /// sizes.
    pub(super) fn fetch(&self, shop: &mut Shop, wheels: &mut [Wheel]) -> Result<()> {
        let missing = |wheel: &Wheel, shop: &Shop| shop.cache.find(&wheel.sha256).is_none();
        let mut waiting: Vec<Wheel> = wheels
            .iter()
            .filter(|wheel| missing(wheel, shop))
            .cloned()
            .collect();
        while !waiting.is_empty() {
            let batch: Vec<Wheel> = waiting.drain(..batch(&waiting)).collect();
            let listed: Vec<&str> = batch.iter().map(|wheel| wheel.name.as_str()).collect();
            let named = item(&batch[0]);
            shop.progress.begin(&Item {
                name: listed.join(", "),
                ..named
            });
            let out = shop.scratch.writable("out", shop.writer)?;
            let requirements = self.requirements(shop, &batch)?;
            let words = [
                "download",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--progress-bar=off",
                "--requirement=/requirements/list",
                "--dest",
                OUT,
            ];
            let tool = self.online(&format!("fetch {}", listed.join(", ")), &words);
            tool.ro(&requirements, "/requirements").out(&out).run()?;
            for wheel in &batch {
                let item = item(wheel);
                shop.cache
                    .keep(&out.join(&wheel.file), &wheel.sha256, &item.name)?;
                shop.progress.done(&item);
            }
            shop.check()?;
        }
        for wheel in wheels {
            if let Some(path) = shop.cache.find(&wheel.sha256) {
                wheel.size = fs::metadata(&path).map_err(failed("stat", &path))?.len();
            }
        }
        Ok(())
    }

    /// Installs wheels from the cache into the tree.
    pub(super) fn install(&self, shop: &mut Shop, wheels: &[Wheel]) -> Result<()> {
        shop.progress
            .stage(&format!("installing {} Python packages", wheels.len()));
        let out = shop.scratch.writable("out", shop.writer)?;
        let requirements = self.requirements(shop, wheels)?;
        let words = [
            "install",
            "--quiet",
            "--no-index",
            "--find-links=/wheels",
            "--no-deps",
            "--no-compile",
            "--require-hashes",
            "--ignore-installed",
            "--no-warn-script-location",
            "--requirement=/requirements/list",
            "--root",
            OUT,
        ];
        let mut tool = self.tool("pip install", &words);
        for wheel in wheels {
            let path = shop.cache.blobs().join(Cache::relative(&wheel.sha256));
            tool = tool.ro(&path, &format!("/wheels/{}", wheel.file));
        }
        tool.ro(&requirements, "/requirements").out(&out).run()?;
        adopt(&out, self.tree)?;
        shop.check()
    }

    /// A directory with a list of exactly these wheels.
    fn requirements(&self, shop: &Shop, wheels: &[Wheel]) -> Result<PathBuf> {
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
        let place = shop.scratch.writable("requirements", shop.writer)?;
        let path = place.join("list");
        fs::write(&path, text).map_err(failed("write", &path))?;
        shop.writer.give(&path)?;
        Ok(place)
    }
}

fn item(wheel: &Wheel) -> Item {
    Item {
        name: format!("{} {}", wheel.name, wheel.version),
        sha256: wheel.sha256.clone(),
        size: wheel.size,
    }
}

/// What has to be fetched for these packages.
pub(super) fn items(wheels: &[Wheel]) -> Vec<Item> {
    wheels.iter().map(item).collect()
}

/// How many of the wheels that wait are fetched by one call of pip: each call
/// costs a second, and an interrupt loses what the current one has fetched.
fn batch(waiting: &[Wheel]) -> usize {
    const MOST: usize = 6;
    const ENOUGH: u64 = 16 << 20;
    let mut bytes = 0;
    let fits = waiting.iter().take(MOST).take_while(|wheel| {
        let fits = bytes < ENOUGH;
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
        assert_eq!(batch(&[wheel(1 << 30), wheel(1)]), 1);
        assert_eq!(batch(&[wheel(1), wheel(1 << 30), wheel(1)]), 2);
        assert_eq!(batch(&vec![wheel(0); 20]), 6);
    }
}
