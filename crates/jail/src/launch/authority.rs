//! The certificate authority of one cell. Its keys are never in this process's memory, of
//! which init is a copy.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use broker::{Certificate, MOST_SECRET};
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::waitpid;
use nix::unistd::pipe2;
use zeroize::Zeroizing;

use super::process::fork_with;
use crate::child::Certificates;
use plan::Trust;
use record::error::{Result, SetupError, Step};

/// Larger bundles are refused: the cell's root has room for this.
const MOST_BUNDLE: u64 = 1 << 20;

/// What the cell's authority has signed, for the broker.
#[derive(Debug)]
pub struct Signed {
    /// The certificate, as DER.
    certificate: Vec<u8>,
    /// Where its key can be read, once.
    key: OwnedFd,
}

impl Signed {
    /// It without its key.
    pub fn open(&self) -> Certificate {
        Certificate {
            signed: self.certificate.clone(),
            key: Zeroizing::default(),
        }
    }

    /// Its key.
    pub(super) fn key(&self) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let mut key = Zeroizing::new(vec![0; MOST_SECRET as usize]);
        let length = nix::unistd::read(&self.key, &mut key)?;
        key.truncate(length);
        Ok(key)
    }
}

/// Makes an authority, in a process of its own. Returns what it signed, and the certificates that
/// the cell is to trust.
pub(super) fn make(trust: &Trust, for_java: bool) -> Result<(Signed, Certificates)> {
    let failed = |call: &'static str| move |errno| SetupError::os(Step::Egress, call, errno);
    let io = |what: &'static str| move |e: std::io::Error| SetupError::io(Step::Egress, what, &e);
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
        .map_err(failed("socketpair"))?;
    let (key, to) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    // SAFETY: the closure below owns it, and is dropped or called after `fork_with` has
    // used this.
    let kept = [unsafe { BorrowedFd::borrow_raw(to.as_raw_fd()) }];
    let hosts = trust.hosts.clone();
    let pid = fork_with(theirs, &kept, move |socket| {
        let made = broker::authority::make(&hosts).and_then(|made| {
            let (mut out, mut key) = (File::from(socket), File::from(to));
            out.write_all(&(made.signed.len() as u64).to_ne_bytes())?;
            out.write_all(&made.signed)?;
            out.write_all(made.certificate.as_bytes())?;
            key.write_all(&made.key)
        });
        i32::from(made.is_err())
    })?;
    let mut made = Vec::new();
    let read = File::from(ours).take(1 << 16).read_to_end(&mut made);
    let _ = waitpid(pid, None);
    read.map_err(io("read"))?;
    let parts = made.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u64::from_ne_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    });
    let (certificate, authority) = parts
        .filter(|(_, authority)| !authority.is_empty())
        .ok_or_else(|| SetupError::new(Step::Egress, "no certificate could be made"))?;
    let place = trust.bundle.display();
    let mut bundle = Vec::new();
    File::open(&trust.bundle)
        .and_then(|file| file.take(MOST_BUNDLE + 1).read_to_end(&mut bundle))
        .map_err(|e| SetupError::io(Step::Egress, "open", &e).on(&place))?;
    if bundle.len() as u64 > MOST_BUNDLE {
        return Err(
            SetupError::new(Step::Egress, "has more than 1 MiB of certificates").on(&place),
        );
    }
    bundle.push(b'\n');
    bundle.extend_from_slice(authority);
    let signed = Signed {
        certificate: certificate.to_vec(),
        key,
    };
    let java = match for_java {
        true => broker::authority::java_store(&bundle),
        false => Vec::new(),
    };
    Ok((signed, Certificates { bundle, java }))
}
