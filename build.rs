//! Compiles the built-in system call policies, so that a launch need not, and
//! takes in the built-in recipes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "src/plan/seccomp/bpf.rs"]
pub mod bpf;
#[path = "src/plan/seccomp/compile.rs"]
pub mod compile;
#[path = "src/plan/seccomp/numbers.rs"]
pub mod numbers;
#[path = "src/plan/seccomp/policy.rs"]
pub mod policy;

use compile::{Compiled, Denial};
use numbers::Arch;

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=policies/seccomp");
    println!("cargo::rerun-if-changed=src/plan/seccomp");
    let target = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    let arch = Arch::named(&target)
        .ok_or_else(|| format!("cellblock has no system call filter for {target}"))?;
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    write_to(&Path::new(&out).join("seccomp_policies.rs"), &source(arch)?)?;
    println!("cargo::rerun-if-changed={RECIPES}");
    write_to(&Path::new(&out).join("recipes.rs"), &recipes()?)
}

fn write_to(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

const RECIPES: &str = "rootfs-builder/recipes";

/// The Rust source of the recipes in src/builder/catalogue.rs: every folder with
/// all its files.
fn recipes() -> Result<String, String> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let root = Path::new(&root).join(RECIPES);
    let mut text = "&[\n".to_owned();
    for folder in entries(&root)? {
        let mut files = Vec::new();
        files_below(&folder, &folder, &mut files)?;
        let name = folder.file_name().unwrap_or_default();
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

/// The Rust source of the `generated` module in src/plan/seccomp/mod.rs.
fn source(arch: Arch) -> Result<String, String> {
    let mut descriptions = String::new();
    let mut compiled = String::new();
    for (name, _) in policy::BUILTIN {
        let policy = policy::builtin(name).map_err(|error| format!("{name}: {error:?}"))?;
        descriptions += &format!("    ({:?}, {:?}),\n", policy.name, policy.description);
        for notify in [false, true] {
            for unheld in policy::Unheld::ALL {
                let filter = compile::compile(&policy, arch, notify, unheld);
                let filter = filter.map_err(|error| format!("{name}: {error:?}"))?;
                write(&mut compiled, &filter).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(format!(
        "pub(super) const NATIVE: super::Arch = super::Arch::{arch:?};\n\
         pub(super) const DESCRIPTIONS: &[(&str, &str)] = &[\n{descriptions}];\n\
         pub(super) static COMPILED: &[Compiled] = &[\n{compiled}];\n"
    ))
}

fn write(out: &mut String, filter: &Compiled) -> std::fmt::Result {
    writeln!(out, "Compiled {{")?;
    writeln!(out, "    name: Cow::Borrowed({:?}),", filter.name)?;
    writeln!(out, "    digest: Cow::Borrowed({:?}),", filter.digest)?;
    writeln!(out, "    notify: {},", filter.notify)?;
    writeln!(out, "    unheld: {:?},", filter.unheld)?;
    writeln!(out, "    program: Cow::Borrowed(&{:?}),", filter.program)?;
    writeln!(out, "    denials: Cow::Borrowed(&[")?;
    for Denial {
        number,
        name,
        errno,
        reason,
    } in filter.denials.iter()
    {
        writeln!(
            out,
            "        Denial {{ number: {number}, name: {name:?}, errno: {errno}, \
             reason: Cow::Borrowed({reason:?}) }},"
        )?;
    }
    writeln!(out, "    ]),\n}},")
}
