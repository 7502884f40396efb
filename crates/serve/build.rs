//! Embeds the forms of what MCP's tools take and give.

use std::env;
use std::path::Path;

const FORMS: &str = "../../docs/mcp-tools.schema.json";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed={FORMS}");
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    packed::pack(Path::new(FORMS), &Path::new(&out).join("tools.deflate"))
}
