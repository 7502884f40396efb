//! Whether a process may leave its cgroup for a scope.
//!
//! What an administrator set on the unit that cellblock runs in would not apply to a
//! cell in a scope of its own: neither the unit's limits, nor the end with the unit.
//! No property of a scope ties it to another unit's limits.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::super::dir::Dir;
use super::super::location::Location;
use record::error::{Result, SetupError, Step};

/// Files with limits that are only there when they were asked for. `pids.max` is not
/// among them: systemd sets it for every unit.
const LIMITS: [&str; 4] = ["memory.max", "memory.high", "memory.swap.max", "cpu.max"];

const WAY_OUT: &str = "add `Delegate=yes` to the unit, so that cells are made inside of it";

/// Whether a process of `uid` in the cgroup `own` may be moved to where systemd
/// makes this user's scopes.
///
/// # Errors
/// Which property of the unit would be escaped, and the way out.
pub(super) fn may_leave(own: &Location, uid: Uid) -> Result<()> {
    let destination = destination(uid);
    let refuse = |message: &str, on: &Path| {
        Err(SetupError::new(Step::Cgroup, message)
            .on(on.display())
            .hint(WAY_OUT))
    };
    if !is_managed(&own.below) {
        return refuse("the cgroup's unit is not visible from here", &own.path());
    }
    let left: Vec<&Path> = (own.below.ancestors())
        .filter(|cgroup| !destination.starts_with(cgroup))
        .collect();
    if let Some(service) = left.iter().find(|cgroup| is_service(cgroup)) {
        return refuse(
            "cellblock runs in a service, and a cell in a scope would escape its limits and its end",
            &own.mount.join(service),
        );
    }
    for cgroup in left {
        let dir = Dir::open(own.mount.join(cgroup))?;
        if let Some(limit) = LIMITS.into_iter().find(|limit| is_set(&dir, limit)) {
            return refuse(
                "a cell in a scope would escape this limit of cellblock's own cgroup",
                &dir.path().join(limit),
            );
        }
    }
    Ok(())
}

/// Whether `below` is a path that systemd makes. In a service's cgroup namespace, the
/// service is the root and has no name.
fn is_managed(below: &Path) -> bool {
    let first = below.components().next();
    first.is_some_and(|name| {
        let name = name.as_os_str().as_encoded_bytes();
        name.ends_with(b".slice") || name == b"init.scope"
    })
}

/// Whether `cgroup` is a service's other than a user's manager.
fn is_service(cgroup: &Path) -> bool {
    let name = cgroup.file_name().map(std::ffi::OsStr::as_encoded_bytes);
    name.is_some_and(|name| name.ends_with(b".service") && !name.starts_with(b"user@"))
}

/// Where systemd makes scopes by default.
pub(super) fn destination(uid: Uid) -> PathBuf {
    if uid.is_root() {
        "system.slice".into()
    } else {
        format!("user.slice/user-{uid}.slice/user@{uid}.service/app.slice").into()
    }
}

fn is_set(dir: &Dir, limit: &str) -> bool {
    dir.read(limit).is_ok_and(|value| is_limit(&value))
}

/// Whether a file's content is a limit: neither `max` nor `max PERIOD`.
fn is_limit(value: &str) -> bool {
    let first = value.split_whitespace().next();
    first.is_some_and(|value| value != "max")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(below: &str, uid: u32) -> std::result::Result<(), String> {
        let place = tempfile::tempdir().unwrap();
        let location = Location {
            mount: place.path().to_owned(),
            below: below.into(),
        };
        // Not a cgroup: what passes the names fails at the directory.
        match may_leave(&location, Uid::from_raw(uid)) {
            Err(error) if error.hint.as_deref() == Some(WAY_OUT) => Err(error.message),
            _ => Ok(()),
        }
    }

    #[test]
    fn a_service_is_not_left() {
        let user = "user.slice/user-1000.slice/user@1000.service";
        for (below, uid) in [
            ("system.slice/a.service", 1000),
            ("system.slice/a.service", 0),
            ("system.slice/a.service/part", 0),
            ("system.slice/system-a.slice/a@1.service", 0),
            (&*format!("{user}/app.slice/a.service"), 1000),
            (&*format!("{user}/app.slice/a.service"), 0),
            // A container's, or a service's with a namespace.
            ("", 0),
            ("part", 1000),
        ] {
            assert!(verdict(below, uid).is_err(), "{below} {uid}");
        }
        for (below, uid) in [
            ("user.slice/user-1000.slice/session-2.scope", 1000),
            ("user.slice/user-1000.slice/session-2.scope", 0),
            (&*format!("{user}/app.slice/a.scope"), 1000),
            (&*format!("{user}/init.scope"), 1000),
            (&*format!("{user}/app.slice/a.scope"), 0),
            ("init.scope", 0),
        ] {
            assert_eq!(verdict(below, uid), Ok(()), "{below} {uid}");
        }
    }

    #[test]
    fn a_limit_is_what_is_not_max() {
        for (value, expected) in [
            ("max\n", false),
            ("max 100000\n", false),
            ("", false),
            ("0\n", true),
            ("1073741824\n", true),
            ("50000 100000\n", true),
        ] {
            assert_eq!(is_limit(value), expected, "{value:?}");
        }
    }
}
