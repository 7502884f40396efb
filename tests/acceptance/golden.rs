//! What the records of a value and of an error hold, for each language, on the
//! prepared root file systems.
//!
//! `CELLBLOCK_BLESS=1` rewrites them; look at the difference before you commit it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Each language and the ending of its files.
const LANGUAGES: [(&str, &str); 6] = [
    ("python", "py"),
    ("javascript", "js"),
    ("typescript", "ts"),
    ("r", "R"),
    ("java", "java"),
    ("bash", "sh"),
];

/// A code beside this file, and the record that it must have.
pub(crate) struct Golden {
    pub(crate) id: String,
    pub(crate) language: &'static str,
    code: PathBuf,
    record: PathBuf,
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acceptance/golden");
    LANGUAGES.into_iter().flat_map(move |(language, ending)| {
        let folder = folder.clone();
        ["value", "error"].map(|what| Golden {
            id: format!("golden-{language}-{what}"),
            language,
            code: folder.join(format!("{what}.{ending}")),
            record: folder.join(format!("{what}.{ending}.json")),
        })
    })
}

impl Golden {
    pub(crate) fn code(&self) -> Result<String, String> {
        std::fs::read_to_string(&self.code).map_err(|e| e.to_string())
    }

    /// Compares; with `CELLBLOCK_BLESS`, writes.
    pub(crate) fn check(&self, record: &Value) -> Result<(), String> {
        let found =
            serde_json::to_string_pretty(&compared(record)).map_err(|e| e.to_string())? + "\n";
        if std::env::var_os("CELLBLOCK_BLESS").is_some() {
            return std::fs::write(&self.record, found).map_err(|e| e.to_string());
        }
        let wanted = std::fs::read_to_string(&self.record).map_err(|e| e.to_string())?;
        let at = wanted
            .lines()
            .zip(found.lines())
            .position(|(wanted, found)| wanted != found);
        match at {
            None if wanted.len() == found.len() => Ok(()),
            at => {
                let at = at.unwrap_or_default();
                let line = |text: &str| text.lines().nth(at).unwrap_or_default().to_owned();
                Err(format!(
                    "line {}: wanted {:?}, found {:?}; CELLBLOCK_BLESS=1 rewrites it:\n{found}",
                    at + 1,
                    line(&wanted),
                    line(&found)
                ))
            }
        }
    }
}

/// The fields that the code and its language decide, and nothing of the host.
const COMPARED: [&str; 14] = [
    "context",
    "denied",
    "error",
    "error_category",
    "exit_code",
    "files",
    "is_error",
    "is_retryable",
    "language",
    "outcome",
    "results",
    "stderr",
    "stdout",
    "truncated",
];

fn compared(record: &Value) -> Value {
    let fields = COMPARED.map(|name| (name.to_owned(), record[name].clone()));
    Value::Object(fields.into_iter().collect())
}
