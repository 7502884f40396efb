//! Packages of npm's registry, installed by npm on the new tree's Node.js.
//!
//! They go to `/node_modules`, where `require` and `import` find them from any
//! directory. npm itself does not get into the tree; no package's scripts run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::adopt::adopt;
use super::cache::Cache;
use super::debian::{self, give_all};
use super::lock::Tarball;
use super::recipe::Npm;
use super::scratch::failed;
use super::shop::{Item, Shop};
use super::tool::{OUT, Tool};
use record::error::{Result, SetupError, Step};

/// npm itself: not Debian's, which is some four hundred packages.
const VERSION: &str = "11.19.1";
const SHA256: &str = "9f58bff01604cb1b14008fef14dceb14d836a49225e45c6c2e37de3be3e707f0";
const SIZE: u64 = 3_002_869;

/// Where Node.js is inside.
const NODES: [&str; 2] = ["usr/local/bin/node", "usr/bin/node"];

/// Where the registry is unless the caller says.
const REGISTRY: &str = "https://registry.npmjs.org";
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Installs packages into the tree: those that `locked` says, or what npm takes
/// `wanted` for now. Returns npm's own lock file.
///
/// # Errors
/// npm's; the network's; a tree without Node.js.
pub(super) fn install(
    shop: &mut Shop,
    tree: &Path,
    wanted: &Npm,
    locked: Option<&str>,
) -> Result<String> {
    let node = NODES.into_iter().find(|path| tree.join(path).is_file());
    let node = node.ok_or_else(|| {
        SetupError::new(Step::Store, "packages of npm need Node.js in the tree")
            .on(wanted.packages.join(", "))
            .hint("extend the recipe `node`, or derive from a rootfs that has it")
    })?;
    let npm = client(shop)?;
    shop.progress
        .stage(&format!("npm: {}", wanted.packages.join(", ")));
    let out = shop.scratch.writable("out", shop.writer)?;
    if let Some(locked) = locked {
        describe(shop, &out, locked)?;
    }
    let node = format!("/{node}");
    let mut words = vec![node.as_str(), "/npm/bin/npm-cli.js"];
    words.push(if locked.is_some() { "ci" } else { "install" });
    words.extend([
        "--prefix",
        OUT,
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--omit=dev",
        "--loglevel=error",
    ]);
    if locked.is_none() {
        words.extend(wanted.packages.iter().map(String::as_str));
    }
    let (cache, _lock) = shop.cache.lists("npm")?;
    give_all(shop, &cache)?;
    let mut tool = Tool::new("npm install", words)
        .tree(tree)
        .online()
        .ro(&npm, "/npm")
        .rw(&cache, "/npm-cache")
        .out(&out)
        .cwd(OUT)
        .env("npm_config_cache", "/npm-cache")
        .env("npm_config_omit_lockfile_registry_resolved", "true")
        .env("npm_config_userconfig", "/dev/null")
        .env("npm_config_globalconfig", "/dev/null/none");
    for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY"] {
        tool = tool.pass(name);
    }
    let given = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];
    let bundle = given.into_iter().find_map(std::env::var_os);
    let bundle = bundle.map_or_else(|| PathBuf::from(CERTIFICATES), PathBuf::from);
    if bundle.is_file() {
        tool = tool
            .ro(&bundle, "/certificates")
            .env("NODE_EXTRA_CA_CERTS", "/certificates");
    }
    tool.run()?;
    shop.check()?;
    let lock = read_lock(&out)?;
    for own in [
        "package.json",
        "package-lock.json",
        "node_modules/.package-lock.json",
    ] {
        let path = out.join(own);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(failed("unlink", &path))?;
        }
    }
    adopt(&out, tree)?;
    Ok(lock)
}

/// npm, unpacked.
fn client(shop: &mut Shop) -> Result<PathBuf> {
    let item = Item {
        name: format!("npm {VERSION}"),
        sha256: SHA256.to_owned(),
        size: SIZE,
    };
    let registry = ["npm_config_registry", "NPM_CONFIG_REGISTRY"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let registry = registry
        .as_deref()
        .unwrap_or(REGISTRY)
        .trim_end_matches('/');
    let url = format!("{registry}/npm/-/npm-{VERSION}.tgz");
    debian::fetch_file(shop, &url, &item)?;
    let out = shop.scratch.writable("npm", shop.writer)?;
    let file = Path::new("/blobs").join(Cache::relative(SHA256));
    let file = file.display().to_string();
    let words = [
        "tar",
        "--extract",
        "--gzip",
        "--strip-components=1",
        "--no-same-owner",
        "--file",
        &file,
        "--directory",
        OUT,
    ];
    let unpack = Tool::new("unpack npm", words);
    unpack.ro(&shop.cache.blobs(), "/blobs").out(&out).run()?;
    Ok(out)
}

/// The two files that `npm ci` goes by.
fn describe(shop: &Shop, out: &Path, locked: &str) -> Result<()> {
    let lock = parse(locked)?;
    let wanted = lock["packages"][""]["dependencies"].clone();
    let manifest = json!({"name": "out", "dependencies": wanted});
    for (name, text) in [
        ("package.json", manifest.to_string()),
        ("package-lock.json", locked.to_owned()),
    ] {
        let path = out.join(name);
        fs::write(&path, text).map_err(failed("write", &path))?;
        shop.writer.give(&path)?;
    }
    Ok(())
}

fn read_lock(out: &Path) -> Result<String> {
    let text = super::adopt::read_beneath(out, "package-lock.json")?;
    let text = text.ok_or_else(|| SetupError::new(Step::Store, "npm left no lock file"))?;
    let lock = parse(&text)?;
    packages(&lock).map(drop)?;
    // Short, and in one order.
    serde_json::to_string(&lock).map_err(|e| SetupError::new(Step::Store, e.to_string()))
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| {
        SetupError::new(Step::Store, format!("not understood: {e}")).on("package-lock.json")
    })
}

fn packages(lock: &Value) -> Result<Vec<Tarball>> {
    let none = Map::new();
    let all = lock["packages"].as_object().unwrap_or(&none);
    let installed = all.iter().filter(|(place, _)| !place.is_empty());
    installed
        .map(|(place, package)| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            let name = place.rsplit("node_modules/").next().unwrap_or(place);
            let read = || {
                Some(Tarball {
                    name: name.to_owned(),
                    version: text("version")?,
                    integrity: text("integrity")?,
                })
            };
            read().ok_or_else(|| {
                SetupError::new(
                    Step::Store,
                    "has no version or no digest in npm's lock file",
                )
                .on(name)
                .hint("only packages of a registry can be installed")
            })
        })
        .collect()
}

/// What is installed, by npm's lock file.
///
/// # Errors
/// The file is not npm's.
pub(super) fn installed(lock: &str) -> Result<Vec<Tarball>> {
    packages(&parse(lock)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"name":"out","lockfileVersion":3,"requires":true,"packages":{
        "":{"dependencies":{"is-odd":"^3.0.1"}},
        "node_modules/is-number":{"version":"6.0.0","integrity":"sha512-Wu1Vg=="},
        "node_modules/is-odd":{"version":"3.0.1","integrity":"sha512-CQpnW=="},
        "node_modules/is-odd/node_modules/@a/b":{"version":"1.0.0","integrity":"sha512-x"}}}"#;

    #[test]
    fn what_npm_locked_is_understood() {
        let names = |lock: &str| {
            let found = installed(lock).unwrap();
            found
                .into_iter()
                .map(|t| (t.name, t.version))
                .collect::<Vec<_>>()
        };
        let own = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(
            names(RECORDED),
            [
                own("is-number", "6.0.0"),
                own("is-odd", "3.0.1"),
                own("@a/b", "1.0.0")
            ]
        );
        assert!(installed(&RECORDED.replace("integrity", "resolved")).is_err());
    }
}
