//! The system call policy of a run.

use std::borrow::Cow;

use nix::errno::Errno;

use plan::seccomp::{self, Arch, Compiled, Unheld};
use record::Denied;
use record::error::{Result, SetupError, Step};
use spec::Bytes;
use supervise::{Counted, Denials, SharedMemory, System};
use sys::seccomp::Instruction;

/// A compiled policy: built in, or read from a file.
#[derive(Clone, Debug)]
pub struct Policy {
    compiled: Cow<'static, Compiled>,
    /// The policy of a file; a built-in one is compiled already.
    read: Option<seccomp::Policy>,
}

impl Policy {
    /// The policy that `name` names, a built-in one or a file, for a cell whose
    /// cgroup holds every limit.
    ///
    /// # Errors
    /// When it does not exist, or is not a policy.
    pub fn find(name: &str) -> Result<Self> {
        if let Some(compiled) = seccomp::precompiled(name, true, Unheld::default()) {
            return Ok(Self {
                compiled: Cow::Borrowed(compiled),
                read: None,
            });
        }
        if !name.contains('/') {
            return Err(unknown(name));
        }
        let text = std::fs::read_to_string(name).map_err(|e| {
            SetupError::io(Step::Spec, "open", &e)
                .on(name)
                .hint("name a policy file that you may read")
        })?;
        let policy = seccomp::Policy::parse(&text).map_err(|e| match e.operand.clone() {
            Some(operand) => e.on(format!("{name}: {operand}")),
            None => e.on(name),
        })?;
        Ok(Self {
            compiled: Cow::Owned(compile(&policy, Unheld::default())?),
            read: Some(policy),
        })
    }

    /// The same policy for a cell of which no cgroup holds the limits `unheld`.
    ///
    /// # Errors
    /// When the policy's rules for that case make too long a program.
    pub fn without(self, unheld: Unheld) -> Result<Self> {
        let compiled = match &self.read {
            Some(policy) => Cow::Owned(compile(policy, unheld)?),
            None => seccomp::precompiled(&self.compiled.name, true, unheld)
                .map(Cow::Borrowed)
                .ok_or_else(|| unknown(&self.compiled.name))?,
        };
        Ok(Self { compiled, ..self })
    }

    /// The compiled policy.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Answers what the policy denies with the error number that it names, and counts `probes`
    /// apart while they are the interpreter's. Calls that the policy lets the supervisor answer get
    /// the values of a machine with this `memory`, or without a limit with the host's. What it has
    /// counted counts against `memory` where no cgroup holds that, with what so many `threads` add; in a cell of another supervisor
    /// (`is_guest`), which cannot know what that one has counted, there is room for none.
    pub(crate) fn denials(
        &self,
        probes: &[&str],
        memory: Option<Bytes>,
        threads: Option<u64>,
        is_guest: bool,
    ) -> Denials {
        let denials = self.compiled.denials.iter();
        let probes = denials
            .clone()
            .filter(|denial| probes.contains(&denial.name));
        let system = denials.clone().find(|denial| denial.answered);
        let of_host = || nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total());
        let system = system.map(|denial| System {
            number: i64::from(denial.number),
            memory: memory.unwrap_or_else(|| Bytes(of_host())),
        });
        let uncounted = memory.filter(|_| self.compiled.unheld.memory);
        let room = uncounted.map(|memory| if is_guest { Bytes(0) } else { memory });
        let counted = Counted {
            numbers: (denials.clone().filter(|denial| denial.counted))
                .map(|denial| i64::from(denial.number))
                .collect(),
            memory: room.map(|room| SharedMemory::within(room, threads)),
        };
        Denials::answering(
            denials.map(|denial| (i64::from(denial.number), Errno::from_raw(denial.errno))),
            probes.map(|denial| i64::from(denial.number)),
            system,
            Some(counted),
        )
    }
}

fn compile(policy: &seccomp::Policy, unheld: Unheld) -> Result<Compiled> {
    seccomp::compile(policy, Arch::NATIVE, true, unheld)
}

/// A compiled policy's program as the kernel takes it, for a cell whose uid is `uid`.
pub fn instructions(compiled: &Compiled, uid: u32) -> Vec<Instruction> {
    let insn = |i: &seccomp::Insn| Instruction {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: i.k,
    };
    compiled.program_for(uid).iter().map(insn).collect()
}

/// A denied system call as it stands in the record.
pub(super) fn denied(filter: Option<&Policy>, number: i64, count: u64) -> Denied {
    let known = filter.and_then(|f| f.compiled().denial(i32::try_from(number).ok()?));
    Denied {
        kind: "syscall".to_owned(),
        name: known.map_or_else(|| number.to_string(), |denial| denial.name.to_owned()),
        count,
        action: known.map_or_else(
            || "EPERM".to_owned(),
            |denial| format!("{:?}", Errno::from_raw(denial.errno)),
        ),
        reason: known.map(|denial| denial.reason.clone().into_owned()),
    }
}

fn unknown(name: &str) -> SetupError {
    let known: Vec<&str> = seccomp::BUILTIN.iter().map(|(name, _)| *name).collect();
    SetupError::new(Step::Spec, format!("unknown seccomp policy `{name}`"))
        .on("seccomp")
        .hint(format!(
            "built in: {}; a policy file is named by a path with a `/` in it",
            known.join(", ")
        ))
}
