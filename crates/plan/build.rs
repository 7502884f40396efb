//! Compiles the built-in system call policies, so that a launch need not.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "src/seccomp/bpf.rs"]
pub mod bpf;
#[path = "src/seccomp/compile.rs"]
pub mod compile;
#[path = "src/seccomp/errno.rs"]
pub mod errno;
#[path = "src/seccomp/numbers.rs"]
pub mod numbers;
#[path = "src/seccomp/policy.rs"]
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
    println!("cargo::rerun-if-changed=src/seccomp");
    let target = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    let arch = Arch::named(&target)
        .ok_or_else(|| format!("cellblock has no system call filter for {target}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    write_to(&out.join("seccomp_policies.rs"), &source(arch)?)?;
    write_to(&out.join("policy_texts.rs"), &policy_texts()?)
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

fn write_to(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Rust source of the `generated` module in src/seccomp/mod.rs.
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
        counted,
        reason,
    } in filter.denials.iter()
    {
        writeln!(
            out,
            "        Denial {{ number: {number}, name: {name:?}, errno: {errno}, \
             answered: {answered}, counted: {counted}, reason: Cow::Borrowed({reason:?}) }},"
        )?;
    }
    writeln!(out, "    ]),\n}},")
}
