//! Where cgroups are mounted, and which one this process is in (proc(5), cgroups(7)).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use plan::probe;
use plan::probe::mounts::{MOUNTINFO, mounts};
use record::error::{Result, SetupError, Step};

const MEMBERSHIP: &str = "/proc/self/cgroup";

/// A cgroup's place: mount point, and path below it.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) mount: PathBuf,
    pub(super) below: PathBuf,
}

impl Location {
    /// The cgroup that cellblock runs in.
    pub(super) fn own() -> Result<Self> {
        let cgroup = read(MEMBERSHIP)?;
        let cgroup = membership(&cgroup).ok_or_else(|| {
            SetupError::new(Step::Cgroup, "this process is in no cgroup of version 2")
                .on(MEMBERSHIP)
                .hint("boot with systemd.unified_cgroup_hierarchy=1")
        })?;
        let mountinfo = read(MOUNTINFO)?;
        let mut mounts = mounts(&mountinfo)
            .filter(|mount| mount.is_of("cgroup2"))
            .peekable();
        let any = mounts.peek().is_some();
        mounts
            .find_map(|mount| {
                let below = below(&mount.root(), cgroup)?;
                Some(Self {
                    mount: mount.point(),
                    below: below.to_owned(),
                })
            })
            .ok_or_else(|| {
                let message = if any {
                    "no mounted cgroup v2 file system shows the cgroup that cellblock runs in"
                } else {
                    "no cgroup v2 file system is mounted"
                };
                SetupError::new(Step::Cgroup, message)
                    .on(cgroup.display())
                    .hint(
                        "in a container, give it a cgroup namespace and a cgroup2 mount of its own",
                    )
            })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.mount.join(&self.below)
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.below.file_name()?.to_str()
    }

    /// Whether it is below a user's systemd.
    pub(super) fn of_user_manager(&self) -> bool {
        self.below.components().any(|part| {
            let name = part.as_os_str().as_encoded_bytes();
            name.starts_with(b"user@") && name.ends_with(b".service")
        })
    }

    /// The cgroup above; `None` at the mount point.
    pub(super) fn parent(&self) -> Option<Self> {
        Some(Self {
            mount: self.mount.clone(),
            below: self.below.parent()?.to_owned(),
        })
    }
}

/// The path that `/proc/self/cgroup` gives for cgroup v2, seen from the root of
/// the reader's cgroup namespace. `None` without v2, and for a cgroup that has
/// been removed.
fn membership(proc_self_cgroup: &[u8]) -> Option<&Path> {
    let line = proc_self_cgroup
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    (!line.ends_with(b" (deleted)")).then(|| Path::new(OsStr::from_bytes(line)))
}

/// The path of `cgroup` below the mount point of a cgroup v2 file system with `root`,
/// if it can be seen there.
fn below<'a>(root: &Path, cgroup: &'a Path) -> Option<&'a Path> {
    let below = cgroup.strip_prefix(root).ok()?;
    // The kernel shows a cgroup outside of the namespace's root as `/..`, without
    // its name.
    let outside = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    (!outside(cgroup) && !outside(root)).then_some(below)
}

/// The mount point of the cgroup v2 file system that shows `path`.
pub(super) fn mount_point(path: &Path) -> Result<PathBuf> {
    let mountinfo = read(MOUNTINFO)?;
    let cgroups = mounts(&mountinfo).filter(|mount| mount.is_of("cgroup2"));
    Ok(cgroups
        .map(|mount| mount.point())
        .filter(|point| path.starts_with(point))
        .max_by_key(|point| point.as_os_str().len())
        .unwrap_or_else(|| PathBuf::from("/")))
}

fn read(path: &str) -> Result<Vec<u8>> {
    probe::read(path).map_err(|error| SetupError::io(Step::Cgroup, "read", &error).on(path))
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
            assert_eq!(
                super::below(Path::new(root), Path::new(cgroup)),
                below.map(Path::new),
                "{root} {cgroup}"
            );
        }
    }

    fn location(below: &str) -> Location {
        Location {
            mount: "/sys/fs/cgroup".into(),
            below: below.into(),
        }
    }

    #[test]
    fn a_location_knows_its_name_and_what_is_above() {
        let leaf = location("a.slice/b.scope/cellblock-supervisors");
        assert_eq!(leaf.name(), Some("cellblock-supervisors"));
        let above = leaf.parent().unwrap();
        assert_eq!(above.path(), Path::new("/sys/fs/cgroup/a.slice/b.scope"));
        let top = location("a.slice").parent().unwrap();
        assert_eq!(top.path(), Path::new("/sys/fs/cgroup"));
        assert!(location("").parent().is_none());
        assert_eq!(location("").name(), None);
    }

    #[test]
    fn a_path_shows_what_a_users_systemd_manages() {
        for (below, expected) in [
            (
                "user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
                true,
            ),
            ("user.slice/user-1000.slice/user@1000.service", true),
            ("user.slice/user-1000.slice/session-2.scope", false),
            ("system.slice/platform.service/main", false),
            ("", false),
        ] {
            assert_eq!(location(below).of_user_manager(), expected, "{below}");
        }
    }
}
