//! The published schema of the manifest. `CELLBLOCK_BLESS=1` rewrites it.

use std::fs;
use std::path::Path;

use plan::rootfs::Manifest;
use serde_json::Value;

fn schema() -> Value {
    schemars::schema_for!(Manifest).to_value()
}

/// The errors of a manifest against the schema.
pub(crate) fn complaints(manifest: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let errors = validator.iter_errors(manifest);
    errors
        .map(|e| format!("{}: {e}", e.instance_path))
        .collect()
}

#[test]
fn the_published_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rootfs.schema.json");
    let wanted = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("CELLBLOCK_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "CELLBLOCK_BLESS=1 rewrites docs/rootfs.schema.json"
    );
}
