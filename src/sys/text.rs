//! The pages of this program itself.

use std::ffi::c_void;

/// Lets go of the program's code and constants: what is still needed comes back,
/// page by page, from the page cache, where it stays for every process.
///
/// The kernel maps code 64 KiB at a time where the page cache has it, so that
/// starting alone maps two megabytes of what runs once.
pub fn let_go() {
    // SAFETY: `advise` matches the type, and keeps none of its arguments.
    unsafe { libc::dl_iterate_phdr(Some(advise), std::ptr::null_mut()) };
}

/// A segment that is not writable is its file's pages, unchanged: there are no
/// relocations in it (DT_TEXTREL), since the linker refuses those.
unsafe extern "C" fn advise(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> libc::c_int {
    // SAFETY: dl_iterate_phdr hands over a valid object for the call's length.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object vouches for so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let page = 4096;
        let start = (info.dlpi_addr + header.p_vaddr) as usize & !(page - 1);
        let length = header.p_memsz as usize;
        // SAFETY: private pages of a file that were never written to are read
        // again from the file, so no byte that anything refers to changes.
        unsafe { libc::madvise(start as *mut c_void, length, libc::MADV_DONTNEED) };
    }
    1
}
