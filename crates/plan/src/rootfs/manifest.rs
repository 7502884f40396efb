//! `manifest.json`: the description of a prepared rootfs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use record::error::{Result, SetupError, Step};

/// The file's name, at the top of a prepared rootfs.
pub const MANIFEST: &str = "manifest.json";

/// The format that this version reads.
pub const FORMAT: &str = "cellblock.rootfs.v1";

/// Maximum size of a manifest.
const MAX_BYTES: u64 = 16 << 20;

/// The description of a prepared rootfs. Readers ignore fields that they do not
/// know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// `cellblock.rootfs.v1`.
    pub format: String,
    /// The rootfs's name, such as `python`.
    pub name: String,
    /// SHA-256 of the tree's listing, in hexadecimal: content, modes and links.
    pub digest: String,
    /// The recipe that it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// The rootfs that it was derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The interpreter of each language, by the language's name.
    pub interpreters: BTreeMap<String, Interpreter>,
    /// The packages in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
    /// Bytes of content of all files.
    #[serde(default)]
    pub size_bytes: u64,
    /// Number of files.
    #[serde(default)]
    pub files: u64,
    /// When it was built, in UTC (RFC 3339); SOURCE_DATE_EPOCH replaces the time.
    #[serde(default)]
    pub built: String,
}

/// An interpreter in a prepared rootfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interpreter {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its version, such as `3.13.1`.
    pub version: String,
}

/// The recipe of a rootfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// SHA-256 over all files of the recipe, in hexadecimal.
    pub digest: String,
}

/// The rootfs that another one was derived from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// Its name.
    pub name: String,
    /// Its digest at that time.
    pub digest: String,
}

/// A package in a prepared rootfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Package {
    /// Its name at its source.
    pub name: String,
    /// Its version there.
    pub version: String,
    /// Its source: `debian`, `pypi`, `npm`, or `import` for an archive or directory
    /// of the user's.
    pub source: String,
    /// The digest of its file: `sha256:` and 64 hexadecimal digits, or npm's
    /// `sha512-` and base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The part of a manifest that a launch needs: without the list of packages, which
/// is most of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Head {
    format: String,
    name: String,
    digest: String,
    pub(super) interpreters: BTreeMap<String, Interpreter>,
}

impl Head {
    /// Reads the head of the manifest in `directory`; `None` without one.
    ///
    /// # Errors
    /// This version does not read the file.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>> {
        read(directory, Self::parse)
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let head: Self =
            record::json::from_slice(text).map_err(|e| wrong(format!("not a manifest: {e}")))?;
        if head.format != FORMAT {
            return Err(wrong(format!(
                "format `{}`; this version reads `{FORMAT}`",
                head.format
            )));
        }
        if head.digest.len() != 64 || !head.digest.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong("field digest: must be 64 hexadecimal digits"));
        }
        let relative = head
            .interpreters
            .iter()
            .find(|(_, interpreter)| !interpreter.path.is_absolute());
        match relative {
            Some((language, _)) => Err(wrong(format!(
                "field interpreters.{language}.path: must be an absolute path"
            ))),
            None => Ok(head),
        }
    }

    /// For the record: `name@sha256:…`.
    pub(super) fn label(&self) -> String {
        format!("{}@sha256:{}", self.name, self.digest)
    }
}

impl Manifest {
    /// Reads the manifest in `directory`; `None` without one.
    ///
    /// # Errors
    /// This version does not read the file.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        read(directory, Self::parse)
    }

    fn parse(text: &[u8]) -> Result<Self> {
        Head::parse(text)?;
        record::json::from_slice(text).map_err(|e| wrong(format!("not a manifest: {e}")))
    }

    /// The text of the file.
    ///
    /// # Errors
    /// JSON cannot express it.
    pub fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| {
            SetupError::new(
                Step::Store,
                format!("cannot write the manifest as JSON: {e}"),
            )
            .on(&self.name)
            .hint("JSON holds UTF-8 only; check the interpreters' paths")
        })?;
        Ok(text + "\n")
    }

    /// For the record: `name@sha256:…`.
    pub fn label(&self) -> String {
        format!("{}@sha256:{}", self.name, self.digest)
    }
}

fn wrong(message: impl Into<String>) -> SetupError {
    SetupError::new(Step::Rootfs, message)
        .hint("remove the file to use the directory as it is, or build the rootfs again")
}

fn read<T>(directory: &Path, parse: fn(&[u8]) -> Result<T>) -> Result<Option<T>> {
    let path = directory.join(MANIFEST);
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Rootfs, call, e)
            .on(path.display())
            .hint("a manifest is a regular file that you may read")
    };
    let size = match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| failed("stat", &e))?,
    };
    if !size.is_file() || size.len() > MAX_BYTES {
        return Err(SetupError::new(
            Step::Rootfs,
            format!("a manifest is a regular file of at most {MAX_BYTES} bytes"),
        )
        .on(path.display()));
    }
    let text = fs::read(&path).map_err(|e| failed("open", &e))?;
    parse(&text).map(Some).map_err(|e| e.on(path.display()))
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
        fs::create_dir(directory.path().join(MANIFEST)).unwrap();
        assert!(Manifest::read(directory.path()).is_err());
    }
}
