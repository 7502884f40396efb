//! Embeds the description of the interface.

use std::env;
use std::path::Path;

const DOCUMENT: &str = "../../docs/openapi.json";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed={DOCUMENT}");
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    packed::pack(
        Path::new(DOCUMENT),
        &Path::new(&out).join("openapi.deflate"),
    )
}
