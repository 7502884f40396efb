//! Paths as clients name them, and as the protocol has them.

use std::path::{Component, Path, PathBuf};

use crate::e2b::connect::{Code, Error};
use crate::e2b::{HOME, WORKSPACE};

/// A path relative to the workspace, empty for the workspace itself.
///
/// # Errors
/// It is not below the user's directory.
pub(in crate::e2b) fn inside(given: &str) -> Result<PathBuf, Error> {
    let refused = || {
        let shown: String = given.chars().take(256).collect();
        let message = format!("path {shown:?} is not below {HOME}");
        Error::new(Code::InvalidArgument, message)
    };
    if given.contains('\0') {
        return Err(refused());
    }
    let given = given.strip_prefix("~/").unwrap_or(given);
    let whole = Path::new(HOME).join(given);
    let mut tops = [HOME, WORKSPACE].iter();
    let below = tops.find_map(|top| whole.strip_prefix(top).ok());
    let mut path = PathBuf::new();
    for part in below.ok_or_else(refused)?.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            // Unlike in the kernel, `..` is resolved without following links.
            Component::ParentDir if path.pop() => {}
            _ => return Err(refused()),
        }
    }
    Ok(path)
}

/// The path that clients see.
pub(super) fn shown(inside: &str) -> String {
    match inside.is_empty() {
        true => HOME.to_owned(),
        false => format!("{HOME}/{inside}"),
    }
}

/// The last part of a path that clients see.
pub(super) fn name(shown: &str) -> &str {
    shown.rsplit('/').next().unwrap_or(shown)
}

/// A path of a client, for fuzzing.
#[cfg(any(test, fuzzing))]
pub fn sandbox_path(bytes: &[u8]) {
    let Ok(given) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(path) = inside(given) else {
        return;
    };
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    assert!(path.components().all(is_name), "{path:?}");
    // What clients see leads to the same file.
    let seen = shown(path.to_str().unwrap_or_default());
    assert_eq!(inside(&seen).ok(), Some(path), "{seen:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_workspace() {
        for (given, found) in [
            ("a.txt", "a.txt"),
            ("/home/user/a/b", "a/b"),
            ("/home/user", ""),
            ("", ""),
            (".", ""),
            ("~/a", "a"),
            ("/workspace/a", "a"),
            ("a/../b/./c", "b/c"),
            ("/home/user/", ""),
        ] {
            assert_eq!(inside(given).unwrap(), Path::new(found), "{given}");
        }
        for given in [
            "/",
            "/etc/passwd",
            "..",
            "a/../../b",
            "/home/users/a",
            "/home/user/../x",
            "a\0b",
        ] {
            assert!(inside(given).is_err(), "{given}");
        }
        assert_eq!(shown("a/b"), "/home/user/a/b");
        assert_eq!((shown("").as_str(), name("/home/user/a")), (HOME, "a"));
    }
}
