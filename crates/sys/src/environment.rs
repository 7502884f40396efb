//! The environment that this process was given (environ(7)), read and wiped in place.

use std::ffi::{CStr, CString};

unsafe extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// Overwrites the environment that this process was given, and empties it.
///
/// # Safety
/// The process has one thread, and holds no reference into its environment.
pub unsafe fn wipe() {
    // SAFETY: `environ` is null or a list of C strings that ends with a null pointer. The
    // strings are on the stack that execve(2) made, or were put there by setenv(3); both
    // are writable. The caller vouches that nothing else uses them.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let text = *next;
            std::ptr::write_bytes(text, 0, libc::strlen(text));
            *next = std::ptr::null_mut();
            next = next.add(1);
        }
    }
}

/// Overwrites the value of a variable, and leaves it empty. An environment may have several
/// variables of one name, of which getenv(3) finds the first; all are wiped.
///
/// # Safety
/// The process has one thread, and holds no reference into its environment.
pub unsafe fn wipe_variable(name: &str) {
    // SAFETY: `environ` is null or a list of C strings that ends with a null pointer, which are
    // writable, as above. The caller vouches that nothing else uses them.
    unsafe { wipe_in(environ, name) };
}

/// [`wipe_variable`] in this environment.
///
/// # Safety
/// `next` is null, or a list of writable C strings that ends with a null pointer, which nothing
/// else uses.
unsafe fn wipe_in(mut next: *mut *mut libc::c_char, name: &str) {
    // SAFETY: as the caller vouches. What is written ends before the NUL.
    unsafe {
        while !next.is_null() && !(*next).is_null() {
            let whole = CStr::from_ptr(*next).to_bytes();
            let value = whole.strip_prefix(name.as_bytes());
            let value = value.and_then(|rest| rest.strip_prefix(b"="));
            if let Some(length) = value.map(<[u8]>::len) {
                let value = (*next).add(whole.len() - length);
                std::ptr::write_bytes(value, 0, length);
            }
            next = next.add(1);
        }
    }
}

/// Passes the value of a variable to `work` without copying it; `None` if it is not set.
pub fn with_variable<T>(name: &str, work: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let value = CString::new(name).ok().and_then(|name| {
        // SAFETY: `name` is a C string. The result is null or a C string in the
        // environment, which only unsafe functions change.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: likewise.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    });
    work(value.map(CStr::to_bytes))
}

/// Whether a variable is set. Its value is not copied.
pub fn has_variable(name: &str) -> bool {
    with_variable(name, |value| value.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_variables_of_a_name_are_wiped() {
        let mut own = ["KEY=one", "KEYS=two", "KEY=three", "KEY", "KEY="].map(|text| {
            let text = CString::new(text).unwrap();
            text.into_bytes_with_nul()
        });
        let mut list: Vec<_> = own
            .iter_mut()
            .map(|text| text.as_mut_ptr().cast())
            .collect();
        list.push(std::ptr::null_mut());
        // SAFETY: the list is of C strings that live as long as `own`, and ends with a null
        // pointer.
        unsafe { wipe_in(list.as_mut_ptr(), "KEY") };
        let wanted: [&[u8]; 5] = [
            b"KEY=\0\0\0\0",
            b"KEYS=two\0",
            b"KEY=\0\0\0\0\0\0",
            b"KEY\0",
            b"KEY=\0",
        ];
        assert_eq!(own, wanted);
    }
}
