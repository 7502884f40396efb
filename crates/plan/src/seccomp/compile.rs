//! From a policy to a program.
//!
//! When a filter is loaded, the kernel (since 5.11) walks it once for every
//! call number to learn which are always allowed. The numbers are therefore
//! looked up in a tree over merged ranges, and arguments are checked only at
//! its leaves, by code from seccompiler. All of it is *one* program: two
//! stacked ones cost a second load, and only one filter of a process may have a
//! listener, so that either numbers or arguments could be reported, not both.

use std::borrow::Cow;
use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::bpf::{Assembler, Insn, MAX_INSNS, Target};
use super::numbers::{Arch, TABLE_END};
use super::policy::{
    Alternative, Condition, Errno, OWN_ID, Policy, PolicyError, Unheld, Verdict, Width, owner_of,
};

const KILL_PROCESS: u32 = 0x8000_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

/// What unnamed calls get: the kernel's own answer to a call that it lacks, so
/// that libraries fall back.
const ABSENT: Target = Target::Return(ERRNO | Errno::ENOSYS as u32);

/// Stands for what a call with an id that is not the cell's returns, until it is known where that is in
/// the program.
const FOREIGN: u32 = ERRNO | 4095;
/// The id of most cells.
const USUAL_ID: u32 = 1000;
/// Leaves an id as it is (chown(2)).
const UNCHANGED: u32 = u32::MAX;

/// Offsets into `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The numbers of x32: those of x86-64 with one bit more, under the same
/// `AUDIT_ARCH`. Nothing that belongs in a cell uses them.
const X32: std::ops::Range<u32> = 0x4000_0000..0x8000_0000;

/// The most single numbers that are tested one by one in a range: one test each, where splits on either side would take two. With more of them, the
/// longer way to the others costs more than it saves.
const MAX_EXCEPTIONS: usize = 3;

/// Call numbers, and what they lead to.
#[derive(Clone, Copy)]
struct Range {
    first: u32,
    last: u32,
    target: Target,
}

/// A policy, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compiled {
    /// The policy's name.
    pub name: Cow<'static, str>,
    /// SHA-256 over the policy's texts and the program, in hexadecimal.
    pub digest: Cow<'static, str>,
    /// Whether the program must be loaded with a listener (seccomp(2),
    /// `SECCOMP_FILTER_FLAG_NEW_LISTENER`), which answers what is denied.
    pub notify: bool,
    /// The limits that the program stands in for.
    pub unheld: Unheld,
    /// For `struct sock_fprog`, in a cell whose uid and gid are 1000.
    pub program: Cow<'static, [Insn]>,
    /// Where the program compares with that id.
    pub own_ids: Cow<'static, [usize]>,
    /// Where it answers a call that would set another owner.
    pub foreign: Cow<'static, [usize]>,
    /// Every call that the policy can deny, by rising number.
    pub denials: Cow<'static, [Denial]>,
}

/// A call that is denied, always or for some arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The error number that its caller gets.
    pub errno: i32,
    /// Whether it is denied only where the supervisor cannot answer it with the cell's
    /// own values.
    pub answered: bool,
    /// Whether it is denied only where the limit on memory has no room for what it makes.
    pub counted: bool,
    /// Why the policy denies it.
    pub reason: Cow<'static, str>,
}

impl Compiled {
    /// The denial of the call with this number, as `seccomp_data` has it.
    pub fn denial(&self, number: i32) -> Option<&Denial> {
        let number = u32::try_from(number).ok()?;
        let index = self
            .denials
            .binary_search_by_key(&number, |denial| denial.number);
        self.denials.get(index.ok()?)
    }

    /// The program for a cell whose uid and gid are `id`.
    pub fn program_for(&self, id: u32) -> Cow<'_, [Insn]> {
        if id == USUAL_ID {
            return Cow::Borrowed(&self.program);
        }
        let mut program = self.program.to_vec();
        let mut set = |places: &[usize], value: u32| {
            for place in places {
                if let Some(insn) = program.get_mut(*place) {
                    insn.k = value;
                }
            }
        };
        set(&self.own_ids, id);
        if id == 0 {
            // Success: what builds images as root expects it, and no file changes.
            set(&self.foreign, ERRNO);
        }
        Cow::Owned(program)
    }

    /// `name@sha256:…`, as the record has it.
    pub fn identity(&self) -> String {
        format!("{}@sha256:{}", self.name, self.digest)
    }
}

/// Compiles `policy` for `arch`. With `notify`, the program hands what is denied
/// to its listener instead of denying it by itself. `unheld` are the limits that
/// no cgroup holds.
pub(super) fn compile(
    policy: &Policy,
    arch: Arch,
    notify: bool,
    unheld: Unheld,
) -> Result<Compiled, PolicyError> {
    let mut program = program(policy, arch, notify, unheld)?;
    let own_ids = replace(&mut program, OWN_ID, USUAL_ID);
    let foreign = replace(&mut program, FOREIGN, ERRNO | Errno::EPERM as u32);
    Ok(Compiled {
        name: policy.name.clone().into(),
        digest: digest(policy, &program).into(),
        notify,
        unheld,
        program: program.into(),
        own_ids: own_ids.into(),
        foreign: foreign.into(),
        denials: denials(policy, arch, unheld).into(),
    })
}

/// Writes `value` where `placeholder` stands, and says where that was.
fn replace(program: &mut [Insn], placeholder: u32, value: u32) -> Vec<usize> {
    let found = |(_, insn): &(usize, &mut Insn)| insn.k == placeholder && !insn.is_calculation();
    let places = program.iter_mut().enumerate().filter(found);
    let set = |(place, insn): (usize, &mut Insn)| {
        insn.k = value;
        place
    };
    places.map(set).collect()
}

fn denials(policy: &Policy, arch: Arch, unheld: Unheld) -> Vec<Denial> {
    let denial = |(number, name)| {
        let rule = policy.rule_for(name, unheld)?;
        let errno = rule.verdict.denies_with()?;
        Some(Denial {
            number,
            name,
            errno: errno as i32,
            answered: rule.verdict == Verdict::Answer,
            counted: matches!(rule.verdict, Verdict::Count { .. }),
            reason: rule.reason.clone().into(),
        })
    };
    arch.calls().filter_map(denial).collect()
}

fn program(
    policy: &Policy,
    arch: Arch,
    notify: bool,
    unheld: Unheld,
) -> Result<Vec<Insn>, PolicyError> {
    let mut asm = Assembler::default();
    let ranges = ranges(&mut asm, policy, arch, notify, unheld)?;
    let root = tree(&mut asm, &ranges);
    let native = asm.load(NUMBER, root);
    let start = asm.if_equal(arch.audit(), native, Target::Return(KILL_PROCESS));
    asm.load(ARCHITECTURE, start);
    let program = asm.finish();
    if program.len() > MAX_INSNS {
        let message = format!(
            "the filter has {} instructions, and the kernel takes {MAX_INSNS}",
            program.len()
        );
        return Err(PolicyError::new(&policy.name, message).hint("check fewer arguments"));
    }
    Ok(program)
}

/// Identifies what is loaded: the policy's texts and the program.
fn digest(policy: &Policy, program: &[Insn]) -> String {
    let mut hash = Sha256::new();
    for text in &policy.texts {
        hash.update(text);
    }
    for insn in program {
        hash.update(insn.code.to_le_bytes());
        hash.update([insn.jt, insn.jf]);
        hash.update(insn.k.to_le_bytes());
    }
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All 32-bit numbers in rising order, neighbours with the same target merged.
/// Code for argument checks is added on the way.
fn ranges(
    asm: &mut Assembler,
    policy: &Policy,
    arch: Arch,
    notify: bool,
    unheld: Unheld,
) -> Result<Vec<Range>, PolicyError> {
    let mut edges = BTreeMap::from([(0, ABSENT)]);
    if arch == Arch::X86_64 {
        edges.insert(X32.start, Target::Return(KILL_PROCESS));
        edges.insert(X32.end, ABSENT);
    }
    for (number, name) in arch.calls() {
        if let Some(rule) = policy.rule_for(name, unheld) {
            edges.insert(number, target(asm, name, &rule.verdict, notify)?);
            edges.entry(number + 1).or_insert(ABSENT);
        }
    }
    let mut edges: Vec<(u32, Target)> = edges.into_iter().collect();
    edges.dedup_by_key(|(_, target)| *target);
    let lasts = edges
        .iter()
        .skip(1)
        .map(|(next, _)| next - 1)
        .chain([u32::MAX]);
    let range = |(&(first, target), last)| Range {
        first,
        last,
        target,
    };
    Ok(edges.iter().zip(lasts).map(range).collect())
}

/// What a call with this verdict leads to.
fn target(
    asm: &mut Assembler,
    call: &str,
    verdict: &Verdict,
    notify: bool,
) -> Result<Target, PolicyError> {
    let allowed = Target::Return(ALLOW);
    let denied = |errno: Errno| match notify {
        true => Target::Return(USER_NOTIF),
        false => Target::Return(ERRNO | errno as u32),
    };
    Ok(match verdict {
        Verdict::Allow => allowed,
        Verdict::Absent => ABSENT,
        Verdict::Kill => Target::Return(KILL_PROCESS),
        Verdict::Deny { errno } => denied(*errno),
        Verdict::Answer => denied(Errno::ENOSYS),
        Verdict::Count { when } if when.is_empty() => denied(Errno::ENOMEM),
        Verdict::Count { when } => check(asm, when, denied(Errno::ENOMEM), allowed)?,
        Verdict::OwnIds => {
            let own = own_ids(owner_of(call).unwrap_or_default());
            check(asm, &own, allowed, Target::Return(FOREIGN))?
        }
        Verdict::AllowIf { when, errno } => check(asm, when, allowed, denied(*errno))?,
        Verdict::DenyIf { when, errno } => check(asm, when, denied(*errno), allowed)?,
    })
}

/// Uid and gid are each the cell's own or left as they are.
fn own_ids(uid: u8) -> Vec<Alternative> {
    let is = |arg: u8, id: u32, means: &str| Condition {
        arg,
        bits: Width::Bits32,
        mask: None,
        value: id.into(),
        means: means.to_owned(),
    };
    let ids = |arg| {
        [
            is(arg, OWN_ID, "the cell's own"),
            is(arg, UNCHANGED, "unchanged"),
        ]
    };
    let both = |uid: Condition| ids(uid.arg + 1).map(|gid| vec![uid.clone(), gid]);
    ids(uid).into_iter().flat_map(both).collect()
}

/// Code that goes to `matched` when any alternative matches the arguments.
fn check(
    asm: &mut Assembler,
    when: &[Alternative],
    matched: Target,
    otherwise: Target,
) -> Result<Target, PolicyError> {
    when.iter()
        .rev()
        .try_fold(otherwise, |otherwise, alternative| {
            let conditions = alternative.iter().map(condition).collect::<Result<_, _>>();
            let rule = conditions
                .and_then(SeccompRule::new)
                .map_err(|error| PolicyError::new("when", error.to_string()))?;
            let code: Vec<Insn> = BpfProgram::from(rule).into_iter().map(Insn::from).collect();
            Ok(asm.splice(&code, matched, otherwise))
        })
}

fn condition(condition: &Condition) -> Result<SeccompCondition, seccompiler::BackendError> {
    let width = match condition.bits {
        Width::Bits32 => SeccompCmpArgLen::Dword,
        Width::Bits64 => SeccompCmpArgLen::Qword,
    };
    let operator = match condition.mask {
        Some(mask) => SeccompCmpOp::MaskedEq(mask),
        None => SeccompCmpOp::Eq,
    };
    SeccompCondition::new(condition.arg, width, operator, condition.value)
}

/// Code that finds the range of the loaded number.
///
/// The kernel's walk takes every number of its table once, so the best split is
/// in the middle of the numbers, not of the ranges: wide ranges are found soon.
fn tree(asm: &mut Assembler, ranges: &[Range]) -> Target {
    let (usual, exceptions) = exceptions(ranges);
    let apart = |range: &&Range| range.first == range.last;
    if exceptions.len() <= MAX_EXCEPTIONS && exceptions.iter().all(apart) {
        return exceptions.iter().rfold(usual, |otherwise, exception| {
            asm.if_equal(exception.first, exception.target, otherwise)
        });
    }
    let clip = |number: u32| number.min(TABLE_END);
    let middle = clip(ranges[0].first).midpoint(clip(ranges[ranges.len() - 1].last));
    let distance = |index: &usize| clip(ranges[*index].first).abs_diff(middle);
    let split = (1..ranges.len()).min_by_key(distance).unwrap_or(1);
    let (below, above) = ranges.split_at(split);
    let yes = tree(asm, above);
    let no = tree(asm, below);
    asm.if_at_least(above[0].first, yes, no)
}

/// What the widest of these ranges leads to, and those that lead elsewhere.
fn exceptions(ranges: &[Range]) -> (Target, Vec<&Range>) {
    let widest = ranges.iter().max_by_key(|range| range.last - range.first);
    let usual = widest.map_or(ABSENT, |range| range.target);
    let elsewhere = ranges.iter().filter(|range| range.target != usual);
    (usual, elsewhere.collect())
}
