//! What sysinfo(2) fills in.

use std::time::Duration;

/// The kernel's `struct sysinfo` of 64-bit machines, as words of eight bytes. A C library's
/// own may be longer: musl's has room for more behind it, which the kernel never writes.
#[derive(Clone, Copy)]
enum Word {
    Uptime = 0,
    TotalRam = 4,
    FreeRam = 5,
    /// 16 bits, and padding.
    Processes = 10,
    /// 32 bits, and padding.
    MemoryUnit = 13,
}

const WORDS: usize = 14;

/// The bytes of a `struct sysinfo` for a machine with `memory` bytes, all of them free, on
/// which one process runs.
pub fn of_machine(memory: u64, uptime: Duration) -> [u8; WORDS * 8] {
    let mut info = [0; WORDS * 8];
    for (word, value) in [
        (Word::Uptime, uptime.as_secs()),
        (Word::TotalRam, memory),
        (Word::FreeRam, memory),
    ] {
        info[word as usize * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    info[Word::Processes as usize * 8..][..2].copy_from_slice(&1_u16.to_ne_bytes());
    info[Word::MemoryUnit as usize * 8..][..4].copy_from_slice(&1_u32.to_ne_bytes());
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_what_the_c_library_reads() {
        let bytes = of_machine(300 << 20, Duration::from_secs(7));
        assert!(size_of::<libc::sysinfo>() >= bytes.len());
        // SAFETY: sysinfo is plain data for which all zeroes is valid.
        let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
        // SAFETY: both are plain data, and `info` is at least as long, as asserted above.
        unsafe {
            let to = (&raw mut info).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        assert_eq!((info.uptime, info.procs, info.mem_unit), (7, 1, 1));
        assert_eq!((info.totalram, info.freeram), (300 << 20, 300 << 20));
        assert_eq!((info.totalswap, info.totalhigh, info.bufferram), (0, 0, 0));
    }
}
