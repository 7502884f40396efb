//! Compiles the built-in system call policies and policy profiles, so that a launch
//! need not.

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest as _, Sha256};

#[path = "src/plan/seccomp/bpf.rs"]
pub mod bpf;
#[path = "src/plan/seccomp/compile.rs"]
pub mod compile;
#[path = "src/plan/seccomp/errno.rs"]
pub mod errno;
#[path = "src/plan/seccomp/numbers.rs"]
pub mod numbers;
#[path = "src/plan/seccomp/policy.rs"]
pub mod policy;

/// The built-in policies, from their files.
pub mod texts {
    use std::path::PathBuf;

    pub(super) fn path(name: &str) -> PathBuf {
        PathBuf::from("../../policies/seccomp")
            .join(name)
            .with_extension("json")
    }

    pub(super) fn of(name: &str) -> Result<String, String> {
        let path = path(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

use compile::{Compiled, Denial};
use numbers::Arch;

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=../../policies/seccomp");
    println!("cargo::rerun-if-changed=src/plan/seccomp");
    let target = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    let arch = Arch::named(&target)
        .ok_or_else(|| format!("cellblock has no system call filter for {target}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    write_to(&out.join("seccomp_policies.rs"), &source(arch)?)?;
    write_to(&out.join("policy_texts.rs"), &policy_texts()?)?;
    write_to(&out.join("driver.cjs"), &node_driver()?)?;
    let digest = digest(&files("python/cellblock_driver", "py")?)?;
    write_to(&out.join("python.digest"), &digest)?;
    compile_profiles(&out.join("profiles"))
}

/// The driver for Node in one file: the modules, and then what starts the one with the file's name.
fn node_driver() -> Result<String, String> {
    let folder = Path::new("src/drivers/javascript");
    let fail = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| fail(path, error));
    let entries = fs::read_dir(folder).map_err(|error| fail(folder, error))?;
    let mut modules = (entries.map(|entry| Ok(entry.map_err(|e| fail(folder, e))?.path())))
        .collect::<Result<Vec<PathBuf>, String>>()?;
    let load = folder.join("load.cjs");
    modules.retain(|path| path.extension().is_some_and(|it| it == "cjs") && *path != load);
    modules.sort();
    let mut driver = read(&load)? + "const sources = {\n";
    for path in &modules {
        let name = path.file_name().unwrap_or_default().display();
        driver += &format!("'./{name}'(require, module) {{\n{}}},\n", read(path)?);
    }
    Ok(driver + "};\nload(`./${require('path').basename(__filename)}`);\n")
}

/// A digest of files, in hexadecimal digits.
fn digest(paths: &[PathBuf]) -> Result<String, String> {
    let mut digest = Sha256::new();
    for path in paths {
        let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        digest.update(content.len().to_le_bytes());
        digest.update(content);
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// A language's files with this extension, in the order of their names.
fn files(folder: &str, extension: &str) -> Result<Vec<PathBuf>, String> {
    let folder = Path::new("src/drivers").join(folder);
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let paths = fs::read_dir(&folder).map_err(fail)?;
    let mut paths = (paths.map(|entry| Ok(entry.map_err(fail)?.path())))
        .collect::<Result<Vec<PathBuf>, String>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

/// The Rust source of `texts::TEXTS`.
fn policy_texts() -> Result<String, String> {
    let mut source = "&[\n".to_owned();
    for name in policy::BUILTIN {
        let path = texts::path(name);
        let path =
            fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        source += &format!("    ({name:?}, include_str!({path:?})),\n");
    }
    Ok(source + "]\n")
}

/// Writes each profile as JSON, with the name of the profile: of a language, that is
/// the name of its folder.
fn compile_profiles(out: &Path) -> Result<(), String> {
    let fail = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    fs::create_dir_all(out).map_err(|error| fail(out, &error))?;
    for directory in ["../../policies/profiles", "src/drivers"] {
        println!("cargo::rerun-if-changed={directory}");
        let directory = Path::new(directory);
        let entries = fs::read_dir(directory).map_err(|error| fail(directory, &error))?;
        for entry in entries {
            let mut path = entry.map_err(|error| fail(directory, &error))?.path();
            let name = path.file_stem().unwrap_or_default().to_owned();
            if path.is_dir() {
                path.push("profile.toml");
            }
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
                && path.exists()
            {
                let text = fs::read_to_string(&path).map_err(|error| fail(&path, &error))?;
                let profile: toml::Table = text.parse().map_err(|error| fail(&path, &error))?;
                let json = serde_json::to_string(&profile).map_err(|error| fail(&path, &error))?;
                write_to(&out.join(name).with_extension("json"), &json)?;
            }
        }
    }
    Ok(())
}

fn write_to(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Rust source of the `generated` module in src/plan/seccomp/mod.rs.
fn source(arch: Arch) -> Result<String, String> {
    let mut descriptions = String::new();
    let mut compiled = String::new();
    for name in policy::BUILTIN {
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
    writeln!(out, "    own_ids: Cow::Borrowed(&{:?}),", filter.own_ids)?;
    writeln!(out, "    foreign: Cow::Borrowed(&{:?}),", filter.foreign)?;
    writeln!(out, "    denials: Cow::Borrowed(&[")?;
    for Denial {
        number,
        name,
        errno,
        answered,
        reason,
    } in filter.denials.iter()
    {
        writeln!(
            out,
            "        Denial {{ number: {number}, name: {name:?}, errno: {errno}, \
             answered: {answered}, reason: Cow::Borrowed({reason:?}) }},"
        )?;
    }
    writeln!(out, "    ]),\n}},")
}
