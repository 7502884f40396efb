//! The values of secret fields, on their way to the broker.
//!
//! The environment is in the memory of each process that is a copy of this one, and would be
//! in a core dump. So the values of variables that only the broker needs are moved to files in
//! memory, which no process maps, before anything is cloned.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use broker::{MOST_SECRET, send_secret};
use nix::sys::sendfile::sendfile64;
use zeroize::Zeroizing;

use super::require_one_thread;
use record::error::{Result, SetupError, Step};
use spec::{Network, SecretSource};
use sys::memory_file;

/// A variable, and the file that has its value in the broker's form. The file stays open until this
/// process ends.
type Hidden = (String, &'static File);

static HIDDEN: Mutex<Vec<Hidden>> = Mutex::new(Vec::new());

fn hidden() -> MutexGuard<'static, Vec<Hidden>> {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves the values of variables that are secret fields of `network` out of the environment. The
/// variables are empty afterwards.
///
/// # Errors
/// This process has several threads; a variable is not set, or its value is not allowed in a field.
pub fn hide(network: &Network) -> Result<()> {
    let Network::Hosts(egress) = network else {
        return Ok(());
    };
    for secret in &egress.secrets {
        let SecretSource::Env(name) = &secret.source else {
            continue;
        };
        if hidden().iter().any(|(known, _)| known == name) {
            continue;
        }
        require_one_thread()?;
        let file = memory_file(c"cellblock-secret")?;
        let failed = |error: io::Error| {
            SetupError::io(Step::Egress, "write", &error).on(format!("the source env:{name}"))
        };
        sys::environment::with_variable(name, |value| match value {
            Some(value) => send_secret(&file, checked(value)?),
            None => Err(io::ErrorKind::NotFound.into()),
        })
        .map_err(failed)?;
        // SAFETY: this process has one thread, and no reference into the environment.
        unsafe { sys::environment::wipe_variable(name) };
        hidden().push((name.clone(), Box::leak(Box::new(file))));
    }
    Ok(())
}

/// The descriptors that a process must keep open to start brokers.
pub fn descriptors() -> Vec<BorrowedFd<'static>> {
    let file = |(_, file): &Hidden| -> &'static File { file };
    hidden().iter().map(file).map(File::as_fd).collect()
}

/// Sends a value to the broker. A variable's value is not copied into this process's memory; the
/// copy of a file's value is wiped.
pub(super) fn send(socket: &File, source: &SecretSource) -> io::Result<()> {
    match source {
        SecretSource::Env(name) => {
            let hidden = hidden();
            let found = hidden.iter().find(|(known, _)| known == name);
            let (_, file) = found.ok_or(io::ErrorKind::NotFound)?;
            let (mut sent, length) = (0, file.metadata()?.len());
            while let Some(left @ 1..) = length.checked_sub(sent as u64) {
                let count = usize::try_from(left).map_err(io::Error::other)?;
                sendfile64(socket, file, Some(&mut sent), count)?;
            }
            Ok(())
        }
        SecretSource::File(path) => send_secret(socket, checked(read(path)?.trim_ascii_end())?),
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut value = Zeroizing::new(vec![0; MOST_SECRET as usize + 1]);
    let (mut file, mut length) = (File::open(path)?, 0);
    while let count @ 1.. = file.read(&mut value[length..])? {
        length += count;
    }
    value.truncate(length);
    Ok(value)
}

/// Refuses what HTTP does not allow as the value of a field, such as a line break.
fn checked(value: &[u8]) -> io::Result<&[u8]> {
    let is_good = |byte: &u8| (0x20..0x7f).contains(byte) || *byte == b'\t';
    match !value.is_empty() && value.iter().all(is_good) {
        true => Ok(value),
        false => Err(io::Error::other(
            "the value is empty, or has bytes that no header field has",
        )),
    }
}
