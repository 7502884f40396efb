//! The pages of this program itself.

use std::ffi::c_void;

use nix::unistd::{SysconfVar, sysconf};

/// Drops the program's code and constants from memory: what is still needed comes
/// back, page by page, from the page cache, where it stays for every process.
///
/// The kernel maps code 64 KiB at a time where the page cache has it, so that
/// starting alone maps two megabytes of what runs once.
pub fn drop_text_pages() {
    // SAFETY: `advise` has the type of such a callback, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(advise), std::ptr::null_mut()) };
}

/// Called for the program itself, which comes first, and for nothing else.
///
/// # Safety
/// `info` describes an object that is loaded, as dl_iterate_phdr(3) gives it.
unsafe extern "C" fn advise(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> libc::c_int {
    const LAST: libc::c_int = 1;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let Some(page) = page.and_then(|page| usize::try_from(page).ok()) else {
        return LAST;
    };
    // SAFETY: the caller of this function vouches for `info`.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return LAST;
    }
    // SAFETY: the object has this many headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let is_constant = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0
    };
    for header in headers.iter().filter(is_constant) {
        // Whole pages of this segment only: the next one may begin in its last.
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        let end = (start + header.p_memsz as usize) / page * page;
        let start = start.next_multiple_of(page);
        // SAFETY: pages of the program's file that nobody can write to, and that
        // hold no relocations, which linkers refuse there (DT_TEXTREL). They are
        // read again from the file, so no byte that anything refers to changes.
        unsafe {
            libc::madvise(
                start as *mut c_void,
                end.saturating_sub(start),
                libc::MADV_DONTNEED,
            )
        };
    }
    LAST
}
