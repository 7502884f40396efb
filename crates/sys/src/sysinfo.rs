//! What sysinfo(2) fills in.

use std::time::Duration;

/// The bytes of a `struct sysinfo` for a machine with `memory` bytes, all of them free, on
/// which one process runs.
pub fn of_machine(memory: u64, uptime: Duration) -> [u8; size_of::<libc::sysinfo>()] {
    // SAFETY: sysinfo is plain data for which all zeroes is valid.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    info.uptime = uptime.as_secs() as libc::c_long;
    info.totalram = memory;
    info.freeram = memory;
    info.procs = 1;
    info.mem_unit = 1;
    // SAFETY: both types have the same size, and the structure consists of integers whose
    // padding was zeroed.
    unsafe { std::mem::transmute(info) }
}
