//! Sockets that clients connect to.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::sockopt::{AcceptConn, PeerCredentials};
use nix::sys::socket::{AddressFamily, SockaddrLike as _, UnixAddr, getsockname, getsockopt};
use nix::sys::stat::{Mode, umask};
use record::error::{Result, SetupError, Step};

/// A socket that clients connect to, with the file to remove in the end.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: UnixListener,
    file: Option<SocketFile>,
}

/// A file that this process made.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `path`, for this process's user only. A socket file that nobody
    /// listens at is replaced.
    ///
    /// # Errors
    /// Something else is there, or somebody listens; or the kernel refuses.
    pub fn bind(path: &Path) -> Result<Self> {
        remove_stale(path)?;
        // One thread, so nobody else makes a file meanwhile.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let socket = bound.map_err(failed("bind", path))?;
        let made = fs::symlink_metadata(path).map_err(failed("stat", path))?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: (made.dev(), made.ino()),
        };
        Self::new(socket, Some(file))
    }

    /// Takes over a socket that a service manager listens at.
    ///
    /// # Errors
    /// It is not a Unix stream socket that listens.
    pub fn inherited(socket: OwnedFd) -> Result<Self> {
        let wrong = || {
            SetupError::new(Step::Inputs, "is not a Unix stream socket that listens")
                .on("LISTEN_FDS")
                .hint("in the socket unit, use ListenStream=/a/path and Accept=no")
        };
        let listens = getsockopt(&socket, AcceptConn).is_ok_and(|listens| listens);
        let address = getsockname::<UnixAddr>(std::os::fd::AsRawFd::as_raw_fd(&socket));
        let is_unix = address.is_ok_and(|address| address.family() == Some(AddressFamily::Unix));
        if !listens || !is_unix {
            return Err(wrong());
        }
        Self::new(UnixListener::from(socket), None)
    }

    fn new(socket: UnixListener, file: Option<SocketFile>) -> Result<Self> {
        socket
            .set_nonblocking(true)
            .map_err(|error| SetupError::io(Step::Inputs, "fcntl", &error))?;
        Ok(Self { socket, file })
    }

    /// The next client and its uid, if one waits.
    pub(super) fn accept(&self) -> std::io::Result<Option<(UnixStream, u32)>> {
        match self.socket.accept() {
            Ok((client, _)) => {
                let uid = getsockopt(&client, PeerCredentials)?.uid();
                Ok(Some((client, uid)))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(SocketFile { path, identity }) = &self.file else {
            return;
        };
        let found = fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
        if found.is_ok_and(|found| found == *identity) {
            let _ = fs::remove_file(path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed("stat", path))?,
    };
    if !found.file_type().is_socket() {
        return Err(SetupError::new(Step::Inputs, "exists and is not a socket")
            .on(path.display())
            .hint("name another path"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("unlink", path))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("connect", path)(error)),
        Ok(_) => Err(
            SetupError::new(Step::Inputs, "a server listens there already")
                .on(path.display())
                .hint("name another path, or end that server first"),
        ),
    }
}

fn failed(call: &'static str, path: &Path) -> impl Fn(std::io::Error) -> SetupError {
    let path = path.display().to_string();
    move |error| SetupError::io(Step::Inputs, call, &error).on(&path)
}
