//! Checks of names in an archive, by their text alone.

/// The kernel takes no longer path (PATH_MAX without the final NUL).
pub(super) const LONGEST_PATH: usize = 4095;

/// Nor a longer name (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Why a directory stays that something else would replace.
pub const NOT_EMPTY: &str = "would replace a directory that is not empty";

/// The path of an entry relative to the destination, without `.`, doubled or leading
/// slashes; empty for the destination itself.
///
/// # Errors
/// Why no such path can be below it.
pub fn clean(path: &[u8], max_depth: usize) -> Result<Vec<u8>, String> {
    if path.contains(&0) {
        return Err("has a NUL byte in its name".to_owned());
    }
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err("leads upward by `..`".to_owned()),
            name if name.len() > LONGEST_NAME => {
                return Err(format!("has a name of more than {LONGEST_NAME} bytes"));
            }
            name => names.push(name),
        }
    }
    let clean = names.join(&b'/');
    if clean.len() > LONGEST_PATH {
        return Err(format!("has a path of more than {LONGEST_PATH} bytes"));
    }
    if names.len() > max_depth {
        return Err(format!("is in more than {max_depth} directories"));
    }
    Ok(clean)
}

/// Checks that the kernel takes the text of a symbolic link.
///
/// # Errors
/// Why it does not.
pub(super) fn check_target(text: &[u8]) -> Result<(), String> {
    match text.is_empty() || text.contains(&0) || text.len() > LONGEST_PATH {
        true => Err("is a link without a usable target".to_owned()),
        false => Ok(()),
    }
}

/// Checks the text of a symbolic link at the clean `path`. An absolute one starts at the
/// root of the cell.
///
/// # Errors
/// Why it is refused.
pub fn check_link(path: &[u8], text: &[u8]) -> Result<(), String> {
    check_target(text)?;
    if text.starts_with(b"/") {
        return Ok(());
    }
    let mut depth = path.split(|byte| *byte == b'/').count() - 1;
    for name in text.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| "is a link that leads outside".to_owned())?;
            }
            _ => depth += 1,
        }
    }
    Ok(())
}

/// A clean path's directory, empty for the destination itself, and its name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// What an entry of a layer removes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whiteout<'a> {
    /// Everything of lower layers in its directory.
    Directory,
    /// What has this name in its directory.
    Name(&'a [u8]),
    /// Nothing: it is a storage driver's own note.
    Note,
    /// Nothing: it is a trick.
    Nothing,
}

/// What an entry of this name removes, if it is a whiteout.
pub(super) fn whiteout(name: &[u8]) -> Option<Whiteout<'_>> {
    match name.strip_prefix(b".wh.")? {
        b".wh..opq" => Some(Whiteout::Directory),
        b"" | b"." | b".." => Some(Whiteout::Nothing),
        name if name.starts_with(b".wh.") => Some(Whiteout::Note),
        name => Some(Whiteout::Name(name)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_become_relative() {
        for (path, wanted) in [
            ("a/b", "a/b"),
            ("/a//b/", "a/b"),
            ("./a/./b", "a/b"),
            ("///", ""),
            (".", ""),
            ("...", "..."),
            ("a/..b", "a/..b"),
        ] {
            assert_eq!(clean(path.as_bytes(), 9).unwrap(), wanted.as_bytes());
        }
        for path in [
            "..",
            "a/../b",
            "/..",
            "a/..",
            "a\0b",
            &"x".repeat(256),
            "1/2/3/4",
        ] {
            assert!(clean(path.as_bytes(), 3).is_err(), "{path}");
        }
        assert!(clean("a/".repeat(2049).as_bytes(), 9999).is_err());
    }

    #[test]
    fn links_stay_inside_or_are_the_cells_own() {
        for (path, text) in [("a", "/etc"), ("a/b", "../c"), ("a", "b/../c"), ("a", ".")] {
            check_link(path.as_bytes(), text.as_bytes()).unwrap();
        }
        for (path, text) in [
            ("a", ".."),
            ("a/b", "../../c"),
            ("a", "b/../../c"),
            ("a", ""),
        ] {
            assert!(
                check_link(path.as_bytes(), text.as_bytes()).is_err(),
                "{path} {text}"
            );
        }
    }

    #[test]
    fn whiteouts_never_name_a_directory_above() {
        assert_eq!(whiteout(b"a.wh.b"), None);
        assert_eq!(whiteout(b".wh.x"), Some(Whiteout::Name(b"x")));
        assert_eq!(whiteout(b".wh..x"), Some(Whiteout::Name(b".x")));
        assert_eq!(whiteout(b".wh..wh..opq"), Some(Whiteout::Directory));
        for name in [".wh.", ".wh..", ".wh..."] {
            assert_eq!(whiteout(name.as_bytes()), Some(Whiteout::Nothing), "{name}");
        }
        for name in [".wh..wh.plnk", ".wh..wh."] {
            assert_eq!(whiteout(name.as_bytes()), Some(Whiteout::Note), "{name}");
        }
    }

    /// Pieces that paths are made of, tricky ones often.
    fn path() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"..".to_vec()),
            Just(b".".to_vec()),
            Just(b"/".to_vec()),
            Just(b"a".to_vec()),
            Just(b"\0".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// What comes out is a path that cannot lead upward, and stays the same.
        #[test]
        fn clean_paths_are_clean(path in path()) {
            if let Ok(found) = clean(&path, 4) {
                let mut names = found.split(|b| *b == b'/');
                let is_plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
                let is_clean = names.all(|name| is_plain(name) && !name.contains(&0));
                prop_assert!(found.is_empty() || is_clean);
                prop_assert_eq!(clean(&found, 4), Ok(found.clone()));
                // It leads where the original leads, from the root.
                let root = std::path::Path::new("/");
                let joined = |path: &[u8]| {
                    use std::os::unix::ffi::OsStrExt as _;
                    let text = std::ffi::OsStr::from_bytes(path).to_owned();
                    let path = std::path::PathBuf::from(text);
                    root.join(path).components().collect::<std::path::PathBuf>()
                };
                prop_assert_eq!(joined(&found), joined(&path));
            }
        }
    }
}
