//! Shared anonymous memory: taken in ways that hide it from who looks, given back, and asked for in
//! vain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::unistd::Pid;

use super::{Family, READ_WRITE, WANTED, fill, forget};
use crate::cells::prelude::*;
use crate::cells::raw;

pub(super) fn map_shared(length: usize) -> nix::Result<i64> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    call!(SYS_mmap, 0, length, READ_WRITE, flags, -1, 0)
}

pub(super) fn unmapped() -> Attempt {
    fill(map_shared(WANTED)?, WANTED, forget)
}

/// More than half of the limit.
const PART: usize = 40 << 20;

/// Piece by piece, of which each keeps one page mapped.
pub(super) fn pieces() -> Attempt {
    const PIECE: usize = 4 << 20;
    for _ in 0..WANTED / PIECE {
        let start = map_shared(PIECE)?;
        fill(start, PIECE, forget)?;
        call!(SYS_munmap, start as usize + PAGE, PIECE - PAGE)?;
    }
    Ok(())
}

pub(super) const PAGE: usize = 4096;

/// A process that moves its mapping past the reader of its maps, up and down between many others,
/// while another one asks for more.
pub(super) fn moved() -> Attempt {
    const OTHERS: usize = 2000;
    let family = Family::new()?;
    raw::fork(|| {
        let _ = hold_and_move(&family, OTHERS);
        1
    })?;
    family.wait(1)?;
    ask_often()
}

/// Keeps a part in a mapping of one page, and moves that for as long as its parent lives.
fn hold_and_move(family: &Family, others: usize) -> Attempt {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let length = others * 2 * PAGE;
    let room = call!(SYS_mmap, 0, length, libc::PROT_NONE, flags, -1, 0)? as usize;
    for page in (0..others).map(|index| room + index * 2 * PAGE) {
        call!(SYS_mprotect, page, PAGE, libc::PROT_READ)?;
    }
    let start = map_shared(PART)?;
    fill(start, PART, forget)?;
    call!(SYS_munmap, start as usize + PAGE, PART - PAGE)?;
    nix::unistd::write(&family.told, b"x")?;
    let [low, high] = [room + PAGE, room + length - PAGE];
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let mut at = start as usize;
    while Pid::parent() == family.parent {
        for to in [low, high] {
            call!(SYS_mremap, at, PAGE, PAGE, flags, to)?;
            at = to;
        }
    }
    Ok(())
}

/// Processes that each leave the mapping to a child and end, so that a reader may come too late to
/// the one and too early to the other, while another process asks for more.
pub(super) fn inherited() -> Attempt {
    let family = Family::new()?;
    raw::fork(|| {
        let Ok(start) = map_shared(PART) else {
            return 1;
        };
        if fill(start, PART, forget).is_err() {
            return 1;
        }
        let _ = nix::unistd::write(&family.told, b"x");
        pass_on(2000)
    })?;
    family.wait(1)?;
    ask_often()
}

/// Leaves what it has to a child, so many times.
fn pass_on(generations: u32) -> i32 {
    if generations == 0 {
        std::thread::sleep(Duration::from_secs(60));
        return 0;
    }
    i32::from(raw::fork(|| pass_on(generations - 1)).is_err())
}

/// Asks for a part again and again, and holds it.
fn ask_often() -> Attempt {
    let mut refused = Err(Errno::EINVAL);
    for _ in 0..6 {
        refused = map_shared(PART).and_then(|start| fill(start, PART, forget));
        if refused.is_ok() {
            break;
        }
    }
    refused
}

/// Twenty times more than half of the limit, one after the other.
pub(super) fn given_back() -> Attempt {
    for _ in 0..20 {
        let start = map_shared(PART)?;
        fill(start, PART, |_, _| Ok(()))?;
        call!(SYS_munmap, start, PART)?;
    }
    Ok(())
}

/// The same while another thread uses a CPU and never rests, so that the cell has to be stopped
/// to find out what it has.
pub(super) fn given_back_busily() -> Attempt {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let busy = std::thread::spawn(|| {
        while !IS_OVER.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let done = given_back();
    IS_OVER.store(true, Ordering::Relaxed);
    let _ = busy.join();
    done
}

/// What is never made does not count: calls for more than the limit, and for no memory.
pub(super) fn asked_in_vain() -> Attempt {
    for _ in 0..2000 {
        for length in [usize::MAX, 1 << 40, 0] {
            if map_shared(length).is_ok() {
                return Err(Errno::EEXIST);
            }
        }
    }
    let start = map_shared(PART)?;
    call!(SYS_munmap, start, PART).map(drop)
}

/// A key is opened as often as wanted; what a System V call may have made is not given back.
pub(super) fn segments_opened_again() -> Attempt {
    const KEY: i32 = 0x5eb7;
    let id = call!(SYS_shmget, KEY, PART, libc::IPC_CREAT | 0o600)?;
    for _ in 0..100 {
        if call!(SYS_shmget, KEY, PART, 0)? != id {
            return Err(Errno::EEXIST);
        }
    }
    call!(SYS_shmctl, id, libc::IPC_RMID, 0)?;
    match call!(SYS_shmget, KEY, PART, libc::IPC_CREAT | 0o600) {
        Err(Errno::ENOMEM) => Ok(()),
        other => other.and(Err(Errno::EEXIST)),
    }
}
