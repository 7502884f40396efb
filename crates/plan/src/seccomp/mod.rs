//! The system call filter: from a policy, a JSON file, to a BPF program.
//!
//! A policy names the calls that happen, the dangerous ones that are denied
//! (EPERM, counted and named in the record), and for a few which arguments
//! decide. Anything else is absent: ENOSYS, the kernel's own answer to a call
//! that it lacks, on which libraries fall back to an older one.
//!
//! `build.rs` compiles the built-in policies by the same modules as this one,
//! so that a launch only looks one up ([`precompiled`]). A policy of the
//! caller's is read by [`Policy::parse`] and compiled by [`compile`].
//!
//! This module makes no system call. The program is loaded last:
//! behind it, only what the policy allows is left. A supervisor that listens
//! (`notify`) answers every notification with the [`Denial::errno`] of
//! [`Compiled::denial`], or with the cell's own values. It lets a call happen
//! (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`) only to count memory whose size is in registers
//! ([`Denial::counted`]): what an argument points to may change after it was looked at.

use record::error::{Result, SetupError, Step};

mod bpf;
mod compile;
mod errno;
mod numbers;
mod policy;
mod texts;

/// What build.rs made of `policies/seccomp/`.
mod generated {
    use std::borrow::Cow;

    use super::{Compiled, Denial, Insn, Unheld};

    include!(concat!(env!("OUT_DIR"), "/seccomp_policies.rs"));
}

pub use bpf::Insn;
pub use compile::{Compiled, Denial};
pub use numbers::Arch;
pub use policy::{Alternative, Condition, Errno, Held, Policy, Rule, Unheld, Verdict, Width};

/// The built-in policies, each with its description.
pub const BUILTIN: &[(&str, &str)] = generated::DESCRIPTIONS;

/// The built-in policy of this name, compiled for the machine that cellblock
/// was built for, and for a cell of which no cgroup holds the limits `unheld`.
pub fn precompiled(name: &str, notify: bool, unheld: Unheld) -> Option<&'static Compiled> {
    generated::COMPILED.iter().find(|compiled| {
        compiled.name == name && compiled.notify == notify && compiled.unheld == unheld
    })
}

/// Compiles `policy` for `arch`. With `notify`, the program hands what is denied
/// to its listener instead of denying it by itself. `unheld` are the limits that
/// no cgroup holds: rules that stand in for them apply.
pub fn compile(policy: &Policy, arch: Arch, notify: bool, unheld: Unheld) -> Result<Compiled> {
    Ok(compile::compile(policy, arch, notify, unheld)?)
}

impl Arch {
    /// The machine that cellblock was built for.
    pub const NATIVE: Self = generated::NATIVE;
}

impl Policy {
    /// Reads a policy from its JSON text (`policies/README.md`).
    ///
    /// # Errors
    ///
    /// With [`Step::Spec`], when the text is not a policy: bad JSON, a call that
    /// no architecture has, two rules for one call, a rule without a reason, a
    /// condition that cannot hold, or no way to start the program.
    pub fn parse(json: &str) -> Result<Self> {
        Ok(policy::parse(json, &policy::BUILTIN)?)
    }

    /// The built-in policy of this name.
    ///
    /// # Errors
    ///
    /// With [`Step::Spec`], when no policy has this name.
    pub fn builtin(name: &str) -> Result<Self> {
        Ok(policy::builtin(name)?)
    }
}

impl From<policy::PolicyError> for SetupError {
    fn from(error: policy::PolicyError) -> Self {
        let mut setup = Self::new(Step::Spec, error.message).on(error.operand);
        setup.hint = error.hint;
        setup
    }
}
