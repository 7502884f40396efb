//! The kernel's text formats (proc(5), cgroups(7)).

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// The path that `/proc/self/cgroup` gives for cgroup v2, seen from the root of
/// the reader's cgroup namespace. `None` without v2, and for a cgroup that has
/// been removed.
pub(super) fn membership(proc_self_cgroup: &[u8]) -> Option<&Path> {
    let line = proc_self_cgroup
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    (!line.ends_with(b" (deleted)")).then(|| Path::new(OsStr::from_bytes(line)))
}

/// One mount of the cgroup v2 hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Which cgroup is at the mount point, seen as in [`membership`].
    pub(super) root: PathBuf,
    /// Where it is mounted.
    pub(super) point: PathBuf,
}

impl Mount {
    /// Where `cgroup` is below the mount point, when it can be seen there.
    pub(super) fn below<'a>(&self, cgroup: &'a Path) -> Option<&'a Path> {
        let below = cgroup.strip_prefix(&self.root).ok()?;
        // `/..` is how a cgroup outside of the namespace's root looks: its name
        // is not to be had from here.
        let outside = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        (!outside(cgroup) && !outside(&self.root)).then_some(below)
    }
}

/// The cgroup v2 mounts in `/proc/self/mountinfo`.
pub(super) fn mounts(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let root = fields.nth(3)?;
            let point = fields.next()?;
            // Any number of optional fields, a hyphen, the type.
            fields.find(|field| *field == b"-")?;
            (fields.next()? == b"cgroup2").then(|| Mount {
                root: unescape(root),
                point: unescape(point),
            })
        })
        .collect()
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
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The value of `key` in a file of `KEY VALUE` lines, such as `cpu.stat`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
}

/// The value of a file that holds a number, or `max` for no limit.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Quota and period of `cpu.max`, in µs; `None` for no limit.
pub(super) fn cpu_max(text: &str) -> Option<(u64, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_is_the_line_of_hierarchy_zero() {
        let hybrid = b"9:name=systemd:/\n4:memory:/process\n0::/user.slice/a b\n";
        assert_eq!(membership(hybrid), Some(Path::new("/user.slice/a b")));
        assert_eq!(membership(b"0::/\n"), Some(Path::new("/")));
        assert_eq!(membership(b"4:memory:/process\n"), None);
        assert_eq!(membership(b"0::/gone (deleted)\n"), None);
        assert_eq!(membership(b""), None);
    }

    #[test]
    fn mounts_are_those_of_type_cgroup2() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:1 master:2 - cgroup2 cgroup2 rw\n\
            99 1 0:38 /system.slice/a\\134b /mnt/with\\040space rw - cgroup2 none rw\n\
            truncated line\n";
        assert_eq!(
            mounts(text),
            [
                Mount {
                    root: "/".into(),
                    point: "/sys/fs/cgroup/unified".into()
                },
                Mount {
                    root: "/system.slice/a\\b".into(),
                    point: "/mnt/with space".into()
                },
            ]
        );
    }

    #[test]
    fn a_cgroup_is_found_below_a_mount() {
        for (root, cgroup, below) in [
            ("/", "/", Some("")),
            ("/", "/user.slice/x", Some("user.slice/x")),
            ("/docker/abc", "/docker/abc", Some("")),
            ("/docker/abc", "/docker/abc/leaf", Some("leaf")),
            ("/docker/abc", "/docker/abcd", None),
            ("/docker/abc", "/", None),
            // The host's hierarchy mounted in a container with its own namespace.
            ("/../..", "/", None),
            ("/../..", "/../../x", None),
            // A process outside of its namespace's root.
            ("/", "/../other", None),
        ] {
            let mount = Mount {
                root: root.into(),
                point: "/sys/fs/cgroup".into(),
            };
            assert_eq!(
                mount.below(Path::new(cgroup)),
                below.map(Path::new),
                "{root} {cgroup}"
            );
        }
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
        assert_eq!(unescape(b"a\\999b"), Path::new("a\\999b"));
        assert_eq!(unescape(b"\\011"), Path::new("\t"));
    }

    #[test]
    fn values_are_read() {
        let stat = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_throttled 3\n";
        assert_eq!(keyed(stat, "user_usec"), Some(1000));
        assert_eq!(keyed(stat, "usec"), None);
        assert_eq!(keyed("oom_kill x\n", "oom_kill"), None);
        assert_eq!(number("max\n"), None);
        assert_eq!(number("65536\n"), Some(65536));
        assert_eq!(cpu_max("150000 100000\n"), Some((150_000, 100_000)));
        assert_eq!(cpu_max("max 100000\n"), None);
    }
}
