//! What is in a workspace, as envd shows it.

use record::json::Object;
use record::object;
use wire::FileEntry;

use super::path;
use crate::e2b::answers;
use crate::files;

/// An entry of `file.list` and `file.stat`.
#[derive(Debug)]
pub(super) struct Entry(pub(super) FileEntry);

impl Entry {
    pub(super) fn is_directory(&self) -> bool {
        self.0.kind == "directory"
    }

    /// As `EntryInfo`. Names that are not UTF-8 have U+FFFD.
    pub(super) fn info(&self) -> Object<'static> {
        let (kind, letter) = match self.0.kind.as_str() {
            "file" => ("FILE_TYPE_FILE", '-'),
            "directory" => ("FILE_TYPE_DIRECTORY", 'd'),
            "link" => ("FILE_TYPE_SYMLINK", 'L'),
            _ => ("FILE_TYPE_UNSPECIFIED", '?'),
        };
        let shown = path::shown(&String::from_utf8_lossy(self.0.path.as_bytes()));
        let mut info = object! {
            "name": path::name(&shown),
            "type": kind,
            "path": shown,
            "size": self.0.size.to_string(),
            "mode": self.0.mode,
            "permissions": permissions(letter, self.0.mode),
            "owner": "user",
            "group": "user",
            "modifiedTime": answers::time(files::time(self.0.mtime)),
        };
        if let Some(target) = &self.0.target {
            info.set("symlinkTarget", &String::from_utf8_lossy(target.as_bytes()));
        }
        info
    }
}

/// `-rw-r--r--`
fn permissions(letter: char, mode: u32) -> String {
    let bits = (0..9).rev().zip("rwx".chars().cycle());
    let bits = bits.map(|(bit, name)| if mode >> bit & 1 == 1 { name } else { '-' });
    std::iter::once(letter).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn entries_are_shown_as_envd_does() {
        let entry = serde_json::from_value(json!({
            "path": "d/l", "kind": "link", "size": 0, "mtime": 1, "mode": 0o777, "target": "x",
        }))
        .map(Entry)
        .unwrap();
        let info: Value = serde_json::to_value(entry.info()).unwrap();
        assert_eq!(info["path"], "/home/user/d/l");
        assert_eq!((&info["name"], &info["size"]), (&json!("l"), &json!("0")));
        assert_eq!(info["type"], "FILE_TYPE_SYMLINK");
        assert_eq!(info["symlinkTarget"], "x");
        assert_eq!(info["modifiedTime"], "1970-01-01T00:00:01.000Z");
        assert_eq!(permissions('-', 0o640), "-rw-r-----");
        for mtime in [i64::MIN, -1, i64::MAX] {
            let odd = json!({"path": "a", "kind": "file", "size": 1, "mtime": mtime, "mode": 0});
            let odd = Entry(serde_json::from_value(odd).unwrap());
            assert!(odd.info().get("modifiedTime").is_some(), "{mtime}");
        }
    }
}
