//! `lock.toml`: the packages of a build, so that another build takes the same.

use crate::errors::store_error;
use serde::{Deserialize, Serialize};

use record::error::{Result, SetupError, Step};
use spec::read::{Format, parse};

/// The file's name in a recipe's folder.
pub(crate) const LOCK_FILE: &str = "lock.toml";

const FORMAT: &str = "cellblock.lock.v1";

/// All packages of a rootfs, layer by layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    /// `cellblock.lock.v1`.
    pub(crate) format: String,
    /// The layers, in the order in which they are built.
    pub(crate) layer: Vec<Locked>,
}

/// The packages of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Locked {
    /// The name of its recipe.
    pub(crate) recipe: String,
    /// Packages of Debian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) debian: Vec<Deb>,
    /// Packages of PyPI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pip: Vec<Wheel>,
    /// The package of Debian with the pip that installed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pip_tool: Option<Deb>,
    /// Packages of npm's registry: npm's own lock file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) npm: Option<String>,
}

/// A package of Debian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deb {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its path on a mirror, such as `debian/pool/main/d/dash/dash_1_amd64.deb`.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Its SHA-256, in hexadecimal.
    pub(crate) sha256: String,
}

/// A package of PyPI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wheel {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// The name of its file.
    pub(crate) file: String,
    /// Its size in bytes; 0 when it is unknown.
    #[serde(default)]
    pub(crate) size: u64,
    /// Its SHA-256, in hexadecimal.
    pub(crate) sha256: String,
}

impl Lock {
    pub(crate) fn new(layer: Vec<Locked>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            layer,
        }
    }

    /// Reads a lock file's text.
    ///
    /// # Errors
    /// The first invalid field.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let lock: Self = parse(text, Format::Toml)?;
        if lock.format != FORMAT {
            return Err(wrong("format", &format!("this version reads `{FORMAT}`")));
        }
        for layer in &lock.layer {
            let debs = layer.debian.iter().chain(&layer.pip_tool);
            let debs = debs.map(|deb| ("debian", &deb.path, &deb.sha256));
            let wheels = layer.pip.iter().map(|w| ("pip", &w.file, &w.sha256));
            for (field, path, digest) in debs.chain(wheels) {
                let field = format!("{field}: {path}");
                if !is_sha256(digest) {
                    return Err(wrong(
                        &format!("{field}: sha256"),
                        "must be 64 hexadecimal digits",
                    ));
                }
                if path
                    .split('/')
                    .any(|part| part.is_empty() || part.starts_with('.'))
                {
                    return Err(wrong(&field, "is not a path of a mirror"));
                }
            }
        }
        Ok(lock)
    }

    /// The file's text.
    ///
    /// # Errors
    /// TOML cannot express it.
    pub(crate) fn to_text(&self) -> Result<String> {
        let text = toml::to_string(self)
            .map_err(|e| store_error(format!("cannot write the lock file: {e}")))?;
        Ok(format!(
            "# Written by `cellblock rootfs build --update-lock`.\n{text}"
        ))
    }
}

/// Whether this is a SHA-256 in hexadecimal.
pub(crate) fn is_sha256(text: &str) -> bool {
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
