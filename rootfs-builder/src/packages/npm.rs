//! Packages of npm's registry, installed by npm on the new tree's Node.js.
//!
//! They go to `/node_modules`, where `require` and `import` find them from any
//! directory. npm itself does not get into the tree; no package's scripts run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Download, certificates, fetch};
use crate::build::{BuildContext, adopt};
use crate::errors::{failed, store_error};
use crate::files::read_beneath;
use crate::recipe::Npm;
use crate::tool::{OUT, Tool};
use plan::rootfs::Package;
use record::error::Result;
use spec::mirrors;

/// npm itself, from its registry: Debian's has some four hundred packages.
const VERSION: &str = "11.19.1";
const SHA256: &str = "9f58bff01604cb1b14008fef14dceb14d836a49225e45c6c2e37de3be3e707f0";
const SIZE: u64 = 3_002_869;

/// Paths of Node.js inside.
const NODES: [&str; 2] = ["usr/local/bin/node", "usr/bin/node"];

/// npm installs what is asked for and does nothing else.
const OPTIONS: &str = "--ignore-scripts --no-audit --no-fund --no-update-notifier --omit=dev \
                       --loglevel=error";

const REGISTRY: &str = "https://registry.npmjs.org";

/// The caller's variables that name another registry.
const REGISTRY_VARIABLES: [&str; 2] = ["npm_config_registry", "NPM_CONFIG_REGISTRY"];

/// Installs packages into the tree: those of the lock file `locked`, or the newest
/// that `wanted` allows. Returns npm's own lock file.
///
/// # Errors
/// npm's; the network's; a tree without Node.js.
pub(crate) fn install(
    context: &BuildContext,
    tree: &Path,
    wanted: &Npm,
    locked: Option<&str>,
) -> Result<String> {
    let packages = wanted.packages.join(", ");
    let node = NODES.into_iter().find(|path| tree.join(path).is_file());
    let node = node.ok_or_else(|| {
        store_error("npm packages need Node.js in the tree")
            .on(&packages)
            .hint("extend the recipe `node`, or derive from a rootfs that has Node.js")
    })?;
    let npm = client(context)?;
    context.job.step(&format!("npm: {packages}"));
    let out = match locked {
        None => context.directory("out")?,
        Some(locked) => {
            let manifest = manifest(locked)?;
            let files = [
                ("package.json", manifest.as_bytes()),
                ("package-lock.json", locked.as_bytes()),
            ];
            context.directory_with("out", files)?
        }
    };
    let node = format!("/{node}");
    let mut words = vec![node.as_str(), "/npm/bin/npm-cli.js"];
    words.push(if locked.is_some() { "ci" } else { "install" });
    words.extend(["--prefix", OUT]);
    words.extend(OPTIONS.split(' '));
    if locked.is_none() {
        words.extend(wanted.packages.iter().map(String::as_str));
    }
    let (cache, _lock) = context.cache.tool_directory("npm")?;
    context.give_all(&cache)?;
    let mut tool = Tool::new("npm install", words)
        .tree(tree)
        .online([REGISTRY, registry().as_str()])
        .env("npm_config_registry", &registry())
        .ro(&npm, "/npm")
        .rw(&cache, "/npm-cache")
        .out(&out)
        .cwd(OUT)
        .env("npm_config_cache", "/npm-cache")
        .env("npm_config_omit_lockfile_registry_resolved", "true")
        .env("npm_config_userconfig", "/dev/null")
        .env("npm_config_globalconfig", "/dev/null/none");
    if let Some(bundle) = certificates(["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"]) {
        tool = tool
            .ro(&bundle, "/certificates")
            .env("NODE_EXTRA_CA_CERTS", "/certificates");
    }
    tool.run()?;
    context.job.check()?;
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

/// The caller's, by a variable or an npmrc, or the usual one.
fn registry() -> String {
    let mut given = (REGISTRY_VARIABLES.into_iter()).filter_map(|name| std::env::var(name).ok());
    let given = given.next().or_else(|| mirrors::setting("npm", "registry"));
    given.unwrap_or_else(|| REGISTRY.to_owned())
}

/// Fetches and unpacks npm.
fn client(context: &BuildContext) -> Result<PathBuf> {
    let download = Download::new("npm", VERSION, SHA256, SIZE);
    let registry = registry();
    let registry = registry.trim_end_matches('/');
    fetch(
        context,
        &format!("{registry}/npm/-/npm-{VERSION}.tgz"),
        &download,
    )?;
    let out = context.directory("npm")?;
    let words =
        "tar --extract --gzip --strip-components=1 --no-same-owner --file=/npm.tgz --directory";
    Tool::new("unpack npm", words.split(' ').chain([OUT]))
        .ro(&context.cache.require(SHA256)?, "/npm.tgz")
        .out(&out)
        .run()?;
    Ok(out)
}

/// The `package.json` that `npm ci` needs beside the lock file.
fn manifest(locked: &str) -> Result<String> {
    let lock = parse(locked)?;
    let wanted = lock["packages"][""]["dependencies"].clone();
    Ok(json!({"name": "out", "dependencies": wanted}).to_string())
}

fn read_lock(out: &Path) -> Result<String> {
    let text = read_beneath(out, "package-lock.json")?;
    let text = text.ok_or_else(|| store_error("npm wrote no lock file"))?;
    let lock = parse(&text)?;
    packages(&lock).map(drop)?;
    // One line, in one order.
    serde_json::to_string(&lock).map_err(|e| store_error(e.to_string()))
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|e| store_error(format!("cannot be parsed: {e}")).on("package-lock.json"))
}

fn packages(lock: &Value) -> Result<Vec<Package>> {
    let none = Map::new();
    let all = lock["packages"].as_object().unwrap_or(&none);
    let installed = all.iter().filter(|(path, _)| !path.is_empty());
    installed
        .map(|(path, package)| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            let name = path.rsplit("node_modules/").next().unwrap_or(path);
            match (text("version"), text("integrity")) {
                (Some(version), digest @ Some(_)) => Ok(Package {
                    name: name.to_owned(),
                    version,
                    source: "npm".to_owned(),
                    digest,
                }),
                _ => Err(store_error("has no version or digest in npm's lock file")
                    .on(name)
                    .hint("only packages of a registry can be installed")),
            }
        })
        .collect()
}

/// The packages in npm's lock file.
///
/// # Errors
/// It is not a lock file of npm.
pub(crate) fn installed(lock: &str) -> Result<Vec<Package>> {
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
    fn a_recorded_lock_file_is_parsed() {
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
