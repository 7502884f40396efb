//! Whole records, one of a value and one of an error for each language, as they
//! are on the prepared root file systems. What differs from run to run, host to
//! host and build to build is blanked.
//!
//! `CELLBLOCK_BLESS=1` rewrites them; look at the difference before you commit it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

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
    pub(crate) fn check(&self, mut record: Value) -> Result<(), String> {
        blank(&mut record);
        let found = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())? + "\n";
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

/// Removes what is not the same in every run.
fn blank(record: &mut Value) {
    for field in ["id", "version"] {
        record[field] = json!("…");
    }
    record["execution_time"] = json!(0);
    for measured in ["usage", "timing"] {
        // Whether a value is there depends on what measures it.
        record[measured] = json!({});
    }
    // What holds depends on the host's cgroup.
    for limit in record["limits"].as_object_mut().into_iter().flatten() {
        for field in ["enforced", "by"] {
            limit.1[field] = json!("…");
        }
        // Whether it is known that one was not hit depends on that as well.
        if limit.1["hit"] != true {
            limit.1["hit"] = json!("…");
        }
    }
    // How often an interpreter tries what it is denied depends on the CPUs.
    let counts = record.get_mut("denied_to_interpreter");
    for denied in counts.and_then(Value::as_array_mut).into_iter().flatten() {
        denied["count"] = json!("…");
    }
    for field in ["uid", "gid", "landlock_abi", "landlock_scopes", "cgroup"] {
        record["isolation"][field] = json!("…");
    }
    for field in ["seccomp", "rootfs"] {
        let value = &mut record["isolation"][field];
        let name = value.as_str().and_then(|text| text.split('@').next());
        *value = json!(name);
    }
    if let Some(fields) = record.as_object_mut() {
        fields.remove("warnings");
    }
}
