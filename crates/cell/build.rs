//! Compiles the built-in system call policies, so that a launch need not.

use std::fmt::Write as _;
use std::path::Path;
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
    println!("cargo::rerun-if-changed=../../policies/seccomp");
    println!("cargo::rerun-if-changed=src/plan/seccomp");
    let target = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    let arch = Arch::named(&target)
        .ok_or_else(|| format!("cellblock has no system call filter for {target}"))?;
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    write_to(&Path::new(&out).join("seccomp_policies.rs"), &source(arch)?)
}

fn write_to(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
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
