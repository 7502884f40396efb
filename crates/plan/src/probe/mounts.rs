//! The mounts that this process sees (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Where the kernel lists them.
pub const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Copy, Debug)]
pub struct Mount<'a> {
    id: &'a [u8],
    root: &'a [u8],
    point: &'a [u8],
    options: &'a [u8],
    kind: &'a [u8],
}

/// The mounts that the text of mountinfo lists, the latest last.
pub fn mounts(mountinfo: &[u8]) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = fields.next()?;
        let root = fields.nth(2)?;
        let point = fields.next()?;
        let options = fields.next()?;
        // Any number of optional fields, a hyphen, the type.
        fields.find(|field| *field == b"-")?;
        Some(Mount {
            id,
            root,
            point,
            options,
            kind: fields.next()?,
        })
    })
}

impl Mount<'_> {
    /// Its id is `id`.
    pub fn has_id(&self, id: impl ToString) -> bool {
        self.id == id.to_string().as_bytes()
    }

    /// Its file system's type.
    pub fn is_of(&self, kind: &str) -> bool {
        self.kind == kind.as_bytes()
    }

    /// The directory of its file system that is at the mount point.
    pub fn root(&self) -> PathBuf {
        unescape(self.root)
    }

    /// Where it is mounted.
    pub fn point(&self) -> PathBuf {
        unescape(self.point)
    }

    /// Whether it is mounted read-only here, whatever its file system is.
    pub fn is_read_only(&self) -> bool {
        let mut options = self.options.split(|byte| *byte == b',');
        options.any(|option| option == b"ro")
    }
}

/// Undoes mountinfo's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| tail.first_chunk::<3>())
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn mounts_are_read() {
        let text = b"31 23 0:28 / /sys/fs/cgroup ro,relatime - tmpfs tmpfs rw,mode=755\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:1 master:2 - cgroup2 cgroup2 rw\n\
            99 1 0:38 /system.slice/a\\134b /mnt/with\\040space rw - cgroup2 none ro\n\
            truncated line\n";
        let found: Vec<_> = mounts(text).collect();
        let [tmpfs, unified, odd] = found[..] else {
            panic!("{found:?}");
        };
        assert!(tmpfs.is_read_only() && tmpfs.is_of("tmpfs") && tmpfs.has_id(31));
        assert!(!unified.is_read_only() && unified.is_of("cgroup2"));
        assert_eq!(unified.point(), Path::new("/sys/fs/cgroup/unified"));
        assert!(!odd.is_read_only() && !odd.has_id(9));
        assert_eq!(odd.root(), Path::new("/system.slice/a\\b"));
        assert_eq!(odd.point(), Path::new("/mnt/with space"));
    }

    #[test]
    fn malformed_escapes_are_kept() {
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
        assert_eq!(unescape(b"a\\999b"), Path::new("a\\999b"));
        assert_eq!(unescape(b"\\011"), Path::new("\t"));
    }
}
