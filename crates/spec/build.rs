//! Compiles the built-in policy profiles, so that a launch need not.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The profiles that are not a language's.
const PROFILES: &str = "../../policies/profiles";

/// Writes each as JSON, with its name.
fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed={PROFILES}");
    let fail = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("profiles");
    fs::create_dir_all(&out).map_err(|error| fail(&out, &error))?;
    let directory = Path::new(PROFILES);
    let entries = fs::read_dir(directory).map_err(|error| fail(directory, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| fail(directory, &error))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = fs::read_to_string(&path).map_err(|error| fail(&path, &error))?;
            let profile: toml::Table = text.parse().map_err(|error| fail(&path, &error))?;
            let json = serde_json::to_string(&profile).map_err(|error| fail(&path, &error))?;
            let name = path.file_stem().unwrap_or_default();
            let to = out.join(name).with_extension("json");
            fs::write(&to, json).map_err(|error| fail(&to, &error))?;
        }
    }
    Ok(())
}
