//! Where the servers of contexts listen.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use record::error::{Result, SetupError, Step};
use wire::client::Client;

/// The directory of the sockets of this user's contexts.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
}

impl Place {
    /// Finds it, and makes it if it is missing.
    ///
    /// # Errors
    /// It belongs to somebody else, or cannot be made.
    pub(super) fn find(environment: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let uid = Uid::effective().as_raw();
        let named = environment("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = PathBuf::from(format!("/run/user/{uid}"));
        let is_own = |path: &PathBuf| path.is_absolute() && check(path, uid).is_ok();
        let top = match named.into_iter().chain([usual]).find(is_own) {
            Some(runtime) => runtime.join("cellblock"),
            None => PathBuf::from(format!("/tmp/cellblock-{uid}")),
        };
        make(&top, uid)?;
        let directory = top.join("contexts");
        make(&directory, uid)?;
        Ok(Self { directory })
    }

    /// The socket of a context.
    pub(super) fn socket(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.sock"))
    }

    /// Notes that the server of one context has another one, too.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(super) fn share(&self, id: &str, other: &str) -> Result<()> {
        let path = self.socket(other);
        fs::hard_link(self.socket(id), &path).map_err(failed("link", &path))
    }

    /// Forgets a context that was deleted. Its server may have others.
    pub(super) fn forget(&self, id: &str) {
        // One that ends with its context removes its socket too.
        let _ = fs::remove_file(self.socket(id));
    }

    /// A connection to the server of a context.
    ///
    /// # Errors
    /// There is no such context.
    pub(super) fn connect(&self, id: &str) -> Result<Client> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let gone = || {
            let message = "there is no such context: it never existed, was deleted, or exceeded its idle limit";
            SetupError::new(Step::Inputs, message)
                .on(id)
                .hint("cellblock context list shows those that exist")
        };
        if id.is_empty() || !id.bytes().all(is_plain) {
            return Err(gone());
        }
        let path = self.socket(id);
        match UnixStream::connect(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(gone()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
                Err(gone())
            }
            _ => Client::connect(&path),
        }
    }

    /// The ids of all contexts whose server listens. What a killed server left is
    /// removed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn ids(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.directory).map_err(failed("open", &self.directory))?;
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".sock").map(str::to_owned)
        };
        let mut ids: Vec<String> = entries.filter_map(name).collect();
        ids.retain(|id| self.connect(id).is_ok());
        ids.sort_unstable();
        Ok(ids)
    }
}

/// Makes a directory that only this user can use, or finds it.
fn make(path: &Path, uid: u32) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("mkdir", path)(error)),
        _ => check(path, uid),
    }
}

fn check(path: &Path, uid: u32) -> Result<()> {
    let found = fs::symlink_metadata(path).map_err(failed("stat", path))?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let message = "is not a directory of this user's alone";
    Err(SetupError::new(Step::Inputs, message)
        .on(path.display())
        .hint("remove it, or set XDG_RUNTIME_DIR to a directory of mode 0700"))
}

fn failed(call: &'static str, path: &Path) -> impl Fn(std::io::Error) -> SetupError {
    let path = path.display().to_string();
    move |error| SetupError::io(Step::Inputs, call, &error).on(&path)
}
