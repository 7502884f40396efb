//! What is in a directory, in as few calls as possible.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;

/// What kind of file has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another kind, or one that the file system does not say.
    Other,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// What has it.
    pub kind: Kind,
}

/// Lists the rest of a directory that was opened for reading, without `.` and `..`
/// (getdents64(2)).
///
/// # Errors
/// The call's error number.
pub fn read(directory: BorrowedFd<'_>) -> Result<Vec<Listed>, Errno> {
    let mut all = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let place = buffer.as_mut_ptr() as usize;
        let args = [directory.as_raw_fd() as usize, place, buffer.len()];
        // SAFETY: address and length are those of the buffer, which outlives the call.
        let length = unsafe { super::syscall(libc::SYS_getdents64, args) }?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Ok(all);
        }
        while let Some((listed, next)) = first(rest) {
            if !matches!(listed.name.as_slice(), b"." | b"..") {
                all.push(listed);
            }
            rest = next;
        }
    }
}

/// The first `struct linux_dirent64`, and what follows it.
fn first(records: &[u8]) -> Option<(Listed, &[u8])> {
    /// Where the record has its length, and behind that its kind and the name.
    const LENGTH: usize = 16;
    let length = records.get(LENGTH..LENGTH + 2)?.try_into().ok()?;
    let record = records.get(..u16::from_ne_bytes(length).into())?;
    let (kind, name) = record.get(LENGTH + 2..)?.split_first()?;
    let kind = match *kind {
        libc::DT_DIR => Kind::Directory,
        libc::DT_LNK => Kind::Symlink,
        _ => Kind::Other,
    };
    let name = name.split(|byte| *byte == 0).next()?.to_vec();
    Some((Listed { name, kind }, records.get(record.len()..)?))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_names_are_listed_with_their_kinds() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        symlink("directory", at("link")).unwrap();
        // More than one call gives.
        let many: Vec<String> = (0..40).map(|n| format!("{n:0>200}")).collect();
        many.iter()
            .for_each(|name| drop(File::create(at(name)).unwrap()));
        let directory = File::open(place.path()).unwrap();
        let mut found = read(directory.as_fd()).unwrap();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let listed = |name: &str, kind| Listed {
            name: name.into(),
            kind,
        };
        let mut expected: Vec<_> = many.iter().map(|name| listed(name, Kind::Other)).collect();
        expected.push(listed("directory", Kind::Directory));
        expected.push(listed("link", Kind::Symlink));
        assert_eq!(found, expected);
        assert!(read(directory.as_fd()).unwrap().is_empty());
    }

    #[test]
    fn no_record_is_read_beyond_the_end() {
        for records in [&[][..], &[0; 17], &[0; 24], &[0xff; 32]] {
            assert!(first(records).is_none(), "{records:?}");
        }
    }
}
