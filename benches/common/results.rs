//! Results, as JSON in a file.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Result;

/// Writes them and prints the path.
pub(crate) fn write(path: &Path, results: &impl Serialize) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("\nwritten to {}", path.display());
    Ok(())
}
