//! What the kernel reports about a processor.

use std::io::Read as _;

/// Lines that a program can find out by itself, by CPUID or from its auxiliary vector.
/// Not what differs from moment to moment, nor microcode and faults.
const SHOWN: &[&str] = &[
    // x86
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "cache size",
    "fpu",
    "fpu_exception",
    "cpuid level",
    "flags",
    "clflush size",
    "cache_alignment",
    "address sizes",
    // aarch64
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    // riscv64
    "isa",
    "mmu",
    "uarch",
];

/// No processor's entry is longer.
const LONGEST: usize = 16 * 1024;

/// The entry of the first processor, without its number.
pub(super) fn first() -> String {
    select(&read().unwrap_or_default())
}

/// Reads up to the first empty line only: on a large host the file has thousands.
fn read() -> Option<String> {
    let mut file = super::open("/proc/cpuinfo").ok()?;
    let mut text = Vec::new();
    let mut piece = [0; 2048];
    while text.len() < LONGEST && !text.windows(2).any(|two| two == b"\n\n") {
        match file.read(&mut piece).ok()? {
            0 => break,
            count => text.extend_from_slice(&piece[..count]),
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn select(cpuinfo: &str) -> String {
    let entry = cpuinfo.split("\n\n").next().unwrap_or_default();
    let shown = entry.lines().filter(|line| {
        let key = line.split(':').next().unwrap_or_default();
        SHOWN.contains(&key.trim())
    });
    shown.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_program_can_find_out_is_shown() {
        let text = "processor\t: 0\nmodel name\t: A\nmicrocode\t: 0x1\nflags\t\t: fpu\n\
                    bugs\t\t: meltdown\n\nprocessor\t: 1\nmodel name\t: A\n";
        assert_eq!(select(text), "model name\t: A\nflags\t\t: fpu\n");
        assert_eq!(select(""), "");
    }
}
