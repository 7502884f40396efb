//! `lock.toml`: the packages that a build had, so that another has the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cell::spec::read::read_toml;
use record::error::{Result, SetupError, Step};

/// The file's name in a recipe's folder.
pub(super) const FILE: &str = "lock.toml";

const FORMAT: &str = "cellblock.lock.v1";

/// All packages of a rootfs, layer by layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// `cellblock.lock.v1`.
    pub format: String,
    /// The layers, in the order in which they are built.
    pub layer: Vec<Locked>,
}

/// The packages of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The name of its recipe.
    pub recipe: String,
    /// Packages of Debian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub debian: Vec<Deb>,
    /// Packages of PyPI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pip: Vec<Wheel>,
    /// The package of Debian that brought the pip which installed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pip_tool: Option<Deb>,
    /// Packages of npm's registry: npm's own lock file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
}

/// A package of Debian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deb {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its path on a mirror, such as `debian/pool/main/d/dash/dash_1_amd64.deb`.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A package of PyPI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The name of its file.
    pub file: String,
    /// Its size in bytes; 0 when the index did not say.
    #[serde(default)]
    pub size: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A package of npm's registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tarball {
    /// Its name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// Its digest as npm writes it: `sha512-` and base64.
    pub(super) integrity: String,
}

impl Lock {
    pub(super) fn new(layer: Vec<Locked>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            layer,
        }
    }

    /// Reads a lock file's text.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with its field.
    pub fn parse(text: &str) -> Result<Self> {
        let lock: Self = read_toml(text)?;
        if lock.format != FORMAT {
            return Err(wrong("format", &format!("this version reads `{FORMAT}`")));
        }
        for layer in &lock.layer {
            for (field, name, digest) in layer
                .debian
                .iter()
                .chain(&layer.pip_tool)
                .map(|deb| ("debian", &deb.path, &deb.sha256))
                .chain(layer.pip.iter().map(|w| ("pip", &w.file, &w.sha256)))
            {
                if !is_sha256(digest) {
                    let field = format!("{field}: {name}: sha256");
                    return Err(wrong(&field, "64 hexadecimal digits are wanted"));
                }
                let parts = name.split('/');
                if parts
                    .clone()
                    .any(|part| part.is_empty() || part.starts_with('.'))
                {
                    return Err(wrong(&format!("{field}: {name}"), "is no path of a mirror"));
                }
            }
        }
        Ok(lock)
    }

    /// The file's text.
    ///
    /// # Errors
    /// It has no form in TOML.
    pub fn to_text(&self) -> Result<String> {
        let text = toml::to_string(self)
            .map_err(|e| SetupError::new(Step::Store, format!("no lock file: {e}")))?;
        Ok(format!(
            "# Written by `cellblock rootfs build --update-lock`.\n{text}"
        ))
    }
}

/// Whether this is a SHA-256 in hexadecimal.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn wrong(field: &str, message: &str) -> SetupError {
    SetupError::new(Step::Spec, message)
        .on(field)
        .hint("write the file again with `cellblock rootfs build --update-lock`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deb(path: &str, sha256: &str) -> Lock {
        Lock::new(vec![Locked {
            recipe: "base".to_owned(),
            debian: vec![Deb {
                name: "dash".to_owned(),
                version: "0.5-1".to_owned(),
                path: path.to_owned(),
                size: 7,
                sha256: sha256.to_owned(),
            }],
            ..Locked::default()
        }])
    }

    #[test]
    fn a_lock_survives_its_text() {
        let lock = deb("debian/pool/dash.deb", &"a".repeat(64));
        assert_eq!(Lock::parse(&lock.to_text().unwrap()).unwrap(), lock);
    }

    #[test]
    fn a_wrong_lock_is_refused() {
        for lock in [
            deb("debian/../../etc/x", &"a".repeat(64)),
            deb("/etc/x", &"a".repeat(64)),
            deb("debian/x", "abc"),
        ] {
            let error = Lock::parse(&lock.to_text().unwrap()).unwrap_err();
            assert!(error.operand.unwrap().contains("debian"));
        }
    }
}
