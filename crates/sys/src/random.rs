//! Random bytes from the kernel.

use nix::errno::Errno;

/// Random bytes that nobody can guess (getrandom(2)).
///
/// # Errors
/// The call's error number; it cannot fail once the kernel has gathered entropy at boot.
pub fn random<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: pointer and length describe `rest`.
        let result = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match Errno::result(result) {
            Ok(count) => filled += count as usize,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
