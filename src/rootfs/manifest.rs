//! `manifest.json`: what a prepared rootfs says of itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, SetupError, Step};

/// The file's name, at the top of a prepared rootfs.
pub(super) const FILE: &str = "manifest.json";

/// The format that this version reads.
pub(super) const FORMAT: &str = "cellblock.rootfs.v1";

/// Larger manifests are refused.
const LARGEST: u64 = 16 << 20;

/// What a prepared rootfs says of itself. Fields that this version does not know
/// are left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// `cellblock.rootfs.v1`.
    pub format: String,
    /// The rootfs's name, such as `python`.
    pub name: String,
    /// SHA-256 over the tree's content, modes and links, in hexadecimal.
    pub digest: String,
    /// The interpreter of each language, by the language's name.
    pub interpreters: BTreeMap<String, Interpreter>,
}

/// An interpreter in a prepared rootfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interpreter {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its version, such as `3.13.1`.
    pub version: String,
}

impl Manifest {
    /// Reads the manifest of the rootfs in `directory`; `None` when it has none.
    ///
    /// # Errors
    /// The file is there and is not a manifest that this version reads.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        let failed = |call: &str, e: &io::Error| {
            SetupError::io(Step::Rootfs, call, e)
                .on(path.display())
                .hint("a manifest is a plain file that you may read")
        };
        let size = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| failed("stat", &e))?,
        };
        if !size.is_file() || size.len() > LARGEST {
            return Err(SetupError::new(
                Step::Rootfs,
                format!("a manifest is a plain file of at most {LARGEST} bytes"),
            )
            .on(path.display()));
        }
        let text = fs::read(&path).map_err(|e| failed("open", &e))?;
        Self::parse(&text)
            .map(Some)
            .map_err(|e| e.on(path.display()))
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let wrong = |message: String| {
            SetupError::new(Step::Rootfs, message)
                .hint("remove the file to use the directory as it is, or build the rootfs again")
        };
        let manifest: Self =
            serde_json::from_slice(text).map_err(|e| wrong(format!("not a manifest: {e}")))?;
        if manifest.format != FORMAT {
            return Err(wrong(format!(
                "format `{}`; this version reads `{FORMAT}`",
                manifest.format
            )));
        }
        if manifest.digest.len() != 64 || !manifest.digest.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong(
                "field digest: 64 hexadecimal digits are wanted".to_owned(),
            ));
        }
        let relative = manifest
            .interpreters
            .iter()
            .find(|(_, interpreter)| !interpreter.path.is_absolute());
        match relative {
            Some((language, _)) => Err(wrong(format!(
                "field interpreters.{language}.path: an absolute path is wanted"
            ))),
            None => Ok(manifest),
        }
    }

    /// For the record: `name@sha256:…`.
    pub fn label(&self) -> String {
        format!("{}@sha256:{}", self.name, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, digest: &str, path: &str) -> String {
        format!(
            r#"{{"format":"{format}","name":"python","digest":"{digest}","built":"later",
                "interpreters":{{"python":{{"path":"{path}","version":"3.13.1"}}}}}}"#
        )
    }

    #[test]
    fn a_manifest_names_its_tree_and_its_interpreters() {
        let manifest =
            Manifest::parse(text(FORMAT, &"a".repeat(64), "/usr/bin/python3").as_bytes()).unwrap();
        assert_eq!(
            manifest.label(),
            format!("python@sha256:{}", "a".repeat(64))
        );
        assert_eq!(
            manifest.interpreters["python"].path,
            Path::new("/usr/bin/python3")
        );
    }

    #[test]
    fn a_bad_manifest_says_what_is_wrong() {
        let digest = "a".repeat(64);
        for (text, wanted) in [
            ("{}".to_owned(), "missing field"),
            (
                text("cellblock.rootfs.v9", &digest, "/p"),
                "cellblock.rootfs.v9",
            ),
            (text(FORMAT, "abc", "/p"), "digest"),
            (text(FORMAT, &digest, "bin/p"), "interpreters.python.path"),
        ] {
            let error = Manifest::parse(text.as_bytes()).unwrap_err();
            assert!(error.message.contains(wanted), "{error}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn a_directory_without_one_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), None);
        fs::create_dir(directory.path().join(FILE)).unwrap();
        assert!(Manifest::read(directory.path()).is_err());
    }
}
