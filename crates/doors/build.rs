//! Packs the description of the interface and the page, which are in the executable.

use std::env;
use std::path::Path;

const FILES: [(&str, &str); 2] = [
    ("../../docs/openapi.json", "openapi.deflate"),
    ("src/page/page.html", "page.deflate"),
];

fn main() -> Result<(), String> {
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    for (file, packed) in FILES {
        println!("cargo::rerun-if-changed={file}");
        packed::pack(Path::new(file), &Path::new(&out).join(packed))?;
    }
    Ok(())
}
