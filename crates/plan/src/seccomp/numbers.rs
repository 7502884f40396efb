//! System call numbers and names, for each architecture that a filter can be
//! compiled for.

use serde::Serialize;
use syscalls::{aarch64, x86_64};

/// An architecture that a filter can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// x86-64, without x32 and without 32-bit compatibility.
    X86_64,
    /// 64-bit ARM, without 32-bit compatibility.
    Aarch64,
}

/// More than the highest number of either table, and than the kernels' own.
pub(super) const TABLE_END: u32 = 512;

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The architecture that Rust calls by this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// `AUDIT_ARCH_…` of linux/audit.h: what the kernel says in `seccomp_data`.
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of the call with this name, if the architecture has it.
    pub fn number(self, name: &str) -> Option<u32> {
        let id = match (self, name) {
            (Self::X86_64, _) => name.parse::<x86_64::Sysno>().ok()?.id(),
            (Self::Aarch64, "newfstatat") => aarch64::Sysno::fstatat.id(),
            (Self::Aarch64, _) => name.parse::<aarch64::Sysno>().ok()?.id(),
        };
        u32::try_from(id).ok()
    }

    /// The name of the call with this number.
    pub fn name(self, number: u32) -> Option<&'static str> {
        let id = usize::try_from(number).ok()?;
        match self {
            Self::X86_64 => x86_64::Sysno::new(id).map(|call| call.name()),
            // The C library and the other architecture call it `newfstatat`; a
            // policy should not have to know both names.
            Self::Aarch64 => aarch64::Sysno::new(id).map(|call| match call {
                aarch64::Sysno::fstatat => "newfstatat",
                other => other.name(),
            }),
        }
    }

    /// Every call that the architecture has, by rising number.
    pub fn calls(self) -> impl Iterator<Item = (u32, &'static str)> {
        (0..TABLE_END).filter_map(move |number| Some((number, self.name(number)?)))
    }
}

/// The name as a constant, if any architecture has such a call.
pub(super) fn known(name: &str) -> Option<&'static str> {
    Arch::ALL
        .into_iter()
        .find_map(|arch| arch.name(arch.number(name)?))
}

/// The call whose name is most like this one, unless none is like it.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    Arch::ALL
        .into_iter()
        .flat_map(Arch::calls)
        .map(|(_, candidate)| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
