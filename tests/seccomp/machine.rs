//! The kernel's side: what it checks when a program is loaded, what the program
//! answers for a call, and the walk over a call number before any call.

use plan::seccomp::Insn;

/// The data that a program checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Data {
    pub(crate) nr: u32,
    pub(crate) arch: u32,
    pub(crate) args: [u64; 6],
}

impl Data {
    /// The word at this offset of `struct seccomp_data`, on a little-endian machine.
    fn word(&self, offset: u32) -> u32 {
        assert_eq!(offset % 4, 0, "unaligned load");
        match offset {
            0 => self.nr,
            4 => self.arch,
            8 | 12 => 0x5a5a_5a5a,
            16..64 => {
                let argument = self.args[(offset as usize - 16) / 8];
                (if offset.is_multiple_of(8) {
                    argument
                } else {
                    argument >> 32
                }) as u32
            }
            _ => panic!("load from {offset}, behind seccomp_data"),
        }
    }
}

/// What `seccomp_check_filter` and `bpf_check_classic` demand, for the
/// instructions that are used here.
pub(crate) fn check(program: &[Insn]) {
    assert!((1..=4096).contains(&program.len()));
    for (index, insn) in program.iter().enumerate() {
        let farthest = match insn.code {
            0x20 => {
                assert!(
                    insn.k < 64 && insn.k.is_multiple_of(4),
                    "load from {}",
                    insn.k
                );
                0
            }
            0x54 | 0x06 => 0,
            0x05 => insn.k as usize,
            0x15 | 0x35 => usize::from(insn.jt.max(insn.jf)),
            code => panic!("instruction {index} has code {code:#x}"),
        };
        assert!(
            index + 1 + farthest < program.len() || insn.code == 0x06,
            "{index} leaves the program"
        );
    }
    assert_eq!(
        program[program.len() - 1].code,
        0x06,
        "the last instruction returns"
    );
}

/// What `program` returns for `data`.
pub(crate) fn run(program: &[Insn], data: &Data) -> u32 {
    step_through(program, |offset| Some(data.word(offset)))
        .0
        .unwrap()
}

/// The kernel's walk for one call number, before any call: the answer, if no
/// argument decides it, and the number of instructions that it took.
pub(crate) fn walk(program: &[Insn], arch: u32, nr: u32) -> (Option<u32>, usize) {
    step_through(program, |offset| match offset {
        0 => Some(nr),
        4 => Some(arch),
        _ => None,
    })
}

fn step_through(program: &[Insn], load: impl Fn(u32) -> Option<u32>) -> (Option<u32>, usize) {
    let (mut accumulator, mut next) = (0, 0);
    for steps in 1.. {
        let insn = program[next];
        next += 1;
        match insn.code {
            0x20 => match load(insn.k) {
                Some(word) => accumulator = word,
                None => return (None, steps),
            },
            0x54 => accumulator &= insn.k,
            0x05 => next += insn.k as usize,
            0x15 | 0x35 => {
                let holds = match insn.code {
                    0x15 => accumulator == insn.k,
                    _ => accumulator >= insn.k,
                };
                next += usize::from(if holds { insn.jt } else { insn.jf });
            }
            0x06 => return (Some(insn.k), steps),
            code => panic!("code {code:#x}"),
        }
    }
    unreachable!("jumps only go forward")
}
