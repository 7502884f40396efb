//! Classic BPF: one instruction, and an assembler for decision trees.

use serde::Serialize;

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct Insn {
    /// What it does (linux/bpf_common.h).
    pub code: u16,
    /// Instructions to skip when its test is true.
    pub jt: u8,
    /// Instructions to skip when its test is false.
    pub jf: u8,
    /// Its operand.
    pub k: u32,
}

impl Insn {
    const fn new(code: u16, jt: u8, jf: u8, k: u32) -> Self {
        Self { code, jt, jf, k }
    }

    /// Whether its operand is a mask and not something compared with, or returned.
    pub(super) const fn is_calculation(&self) -> bool {
        self.code & CLASS == ALU
    }
}

impl From<seccompiler::sock_filter> for Insn {
    fn from(insn: seccompiler::sock_filter) -> Self {
        Self::new(insn.code, insn.jt, insn.jf, insn.k)
    }
}

/// The longest program that the kernel takes (`BPF_MAXINSNS`).
pub(super) const MAX_INSNS: usize = 4096;

const LOAD_WORD: u16 = 0x20;
const CLASS: u16 = 0x07;
const ALU: u16 = 0x04;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The longest way that a conditional jump can go.
const REACH: usize = u8::MAX as usize;

/// Where a jump goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To an instruction that returns this value.
    Return(u32),
    /// To code that is there already: the program's length when its first
    /// instruction had been added.
    Code(usize),
}

/// A program that grows from its end. BPF only jumps forward, so what a jump
/// goes to is always there first, at a known distance.
#[derive(Default)]
pub(super) struct Assembler {
    reversed: Vec<Insn>,
}

impl Assembler {
    /// Adds seccompiler's code for one rule. That code is meant to be followed by
    /// one instruction for a match, and then one for a mismatch; here the first
    /// means `matched`, and whatever is behind it `otherwise`.
    ///
    /// Its unconditional jumps, two or more for each rule, vanish: what would go
    /// to one goes where it leads.
    pub(super) fn splice(&mut self, rule: &[Insn], matched: Target, otherwise: Target) -> Target {
        let mut behind = vec![otherwise, matched];
        for insn in rule.iter().rev() {
            let skipping = |count: u32| {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                behind[(behind.len() - 1).saturating_sub(count)]
            };
            let place = match insn.code {
                JUMP => skipping(insn.k),
                code if code & CLASS == JUMP => {
                    let (yes, no) = (skipping(insn.jt.into()), skipping(insn.jf.into()));
                    self.branch(code, insn.k, yes, no)
                }
                _ => self.then(*insn, skipping(0)),
            };
            behind.push(place);
        }
        behind[behind.len() - 1]
    }

    /// Loads the word at `offset` of `seccomp_data`, then goes to `next`.
    pub(super) fn load(&mut self, offset: u32, next: Target) -> Target {
        self.then(Insn::new(LOAD_WORD, 0, 0, offset), next)
    }

    /// Goes to `yes` when the loaded word is `k`.
    pub(super) fn if_equal(&mut self, k: u32, yes: Target, no: Target) -> Target {
        self.branch(JUMP_IF_EQUAL, k, yes, no)
    }

    /// Goes to `yes` when the loaded word is `k` or more.
    pub(super) fn if_at_least(&mut self, k: u32, yes: Target, no: Target) -> Target {
        self.branch(JUMP_IF_AT_LEAST, k, yes, no)
    }

    /// The program, from its first instruction to its last.
    pub(super) fn finish(mut self) -> Vec<Insn> {
        self.reversed.reverse();
        self.reversed
    }

    fn then(&mut self, insn: Insn, next: Target) -> Target {
        self.near(next, 0);
        self.push(insn)
    }

    fn branch(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Target {
        // Bringing `no` near can move `yes` away by one instruction.
        let yes = self.near(yes, REACH - 1);
        let no = self.near(no, REACH);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        self.push(Insn::new(code, jt as u8, jf as u8, k))
    }

    /// A place within `reach` that leads to `target`.
    fn near(&mut self, target: Target, reach: usize) -> usize {
        let place = match target {
            Target::Code(place) => Some(place),
            Target::Return(k) => self
                .reversed
                .iter()
                .rposition(|insn| insn.code == RETURN && insn.k == k)
                .map(|index| index + 1),
        };
        match (place, target) {
            (Some(place), _) if self.distance(place) <= reach => return place,
            (_, Target::Return(k)) => self.push(Insn::new(RETURN, 0, 0, k)),
            (_, Target::Code(place)) => {
                let skip = self.distance(place) as u32;
                self.push(Insn::new(JUMP, 0, 0, skip))
            }
        };
        self.reversed.len()
    }

    /// How many instructions lie between the next one to be added and `place`.
    fn distance(&self, place: usize) -> usize {
        self.reversed.len() - place
    }

    fn push(&mut self, insn: Insn) -> Target {
        self.reversed.push(insn);
        self.here()
    }

    fn here(&self) -> Target {
        Target::Code(self.reversed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: u32 = 1;
    const NEW: u32 = 2;

    /// The value that the instruction at `index` leads to by jumps alone.
    fn leads_to(program: &[Insn], index: usize) -> u32 {
        match program[index] {
            Insn {
                code: RETURN, k, ..
            } => k,
            Insn { code: JUMP, k, .. } => leads_to(program, index + 1 + k as usize),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_test_reaches_both_its_targets_over_any_distance() {
        for distance in 0..600 {
            let mut asm = Assembler::default();
            let far = asm.push(Insn::new(RETURN, 0, 0, FAR));
            for _ in 0..distance {
                asm.push(Insn::new(LOAD_WORD, 0, 0, 0));
            }
            // The second target needs an instruction of its own, right between.
            asm.if_equal(7, far, Target::Return(NEW));
            let program = asm.finish();
            let test = program[0];
            let reached = [test.jt, test.jf].map(|skip| leads_to(&program, 1 + usize::from(skip)));
            assert_eq!(reached, [FAR, NEW], "over {distance}");
        }
    }
}
