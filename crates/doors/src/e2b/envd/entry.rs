//! What is in a workspace, as envd shows it.

use record::bytes::RawText;
use record::json::Object;
use record::object;
use serde::Deserialize;

use super::path;
use crate::e2b::wire;
use crate::files;

/// An entry of `file.list` and `file.stat`.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    path: RawText,
    kind: String,
    size: u64,
    mtime: i64,
    mode: u32,
    #[serde(default)]
    target: Option<RawText>,
}

impl Entry {
    pub(super) fn is_directory(&self) -> bool {
        self.kind == "directory"
    }

    /// As `EntryInfo`. Names that are not UTF-8 have U+FFFD.
    pub(super) fn info(&self) -> Object<'static> {
        let (kind, letter) = match self.kind.as_str() {
            "file" => ("FILE_TYPE_FILE", '-'),
            "directory" => ("FILE_TYPE_DIRECTORY", 'd'),
            "link" => ("FILE_TYPE_SYMLINK", 'L'),
            _ => ("FILE_TYPE_UNSPECIFIED", '?'),
        };
        let shown = path::shown(&String::from_utf8_lossy(self.path.as_bytes()));
        let mut info = object! {
            "name": path::name(&shown),
            "type": kind,
            "path": shown,
            "size": self.size.to_string(),
            "mode": self.mode,
            "permissions": permissions(letter, self.mode),
            "owner": "user",
            "group": "user",
            "modifiedTime": wire::time(files::time(self.mtime)),
        };
        if let Some(target) = &self.target {
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
        let entry: Entry = serde_json::from_value(json!({
            "path": "d/l", "kind": "link", "size": 0, "mtime": 1, "mode": 0o777, "target": "x",
        }))
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
            let odd: Entry = serde_json::from_value(odd).unwrap();
            assert!(odd.info().get("modifiedTime").is_some(), "{mtime}");
        }
    }
}
