//! Embeds the built-in recipes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed={RECIPES}");
    for (_, _, path) in SHARED {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    let path = Path::new(&out).join("recipes.rs");
    fs::write(&path, recipes()?).map_err(|error| format!("{}: {error}", path.display()))
}

const RECIPES: &str = "recipes";

/// Files of recipes that stand elsewhere: the recipe, the file's name in it, and its
/// path from here.
const SHARED: &[(&str, &str, &str)] = &[(
    "java",
    "Shim.java",
    "../crates/languages/src/java/Shim.java",
)];

/// The Rust source of the recipes in src/recipe/catalogue.rs: every folder with
/// all its files.
fn recipes() -> Result<String, String> {
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let root = Path::new(&manifest).join(RECIPES);
    let mut text = "&[\n".to_owned();
    for folder in entries(&root)? {
        let mut files = Vec::new();
        files_below(&folder, &folder, &mut files)?;
        let name = folder.file_name().unwrap_or_default();
        for (_, file, path) in SHARED.iter().filter(|(recipe, ..)| name == *recipe) {
            files.push((PathBuf::from(file), Path::new(&manifest).join(path)));
        }
        files.sort();
        let _ = writeln!(text, "    ({name:?}, &[");
        for (name, path) in files {
            let _ = writeln!(text, "        ({name:?}, include_bytes!({path:?})),");
        }
        text += "    ]),\n";
    }
    text += "]\n";
    Ok(text)
}

/// What is in a directory, by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        found.push(entry.map_err(failed)?.path());
    }
    found.sort();
    Ok(found)
}

fn files_below(
    top: &Path,
    directory: &Path,
    found: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<(), String> {
    for path in entries(directory)? {
        if path.is_dir() {
            files_below(top, &path, found)?;
        } else {
            let name = path.strip_prefix(top).map_err(|error| error.to_string())?;
            found.push((name.to_owned(), path.clone()));
        }
    }
    Ok(())
}
