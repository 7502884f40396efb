//! Files that are replaced as a whole.

use std::fs::File;
use std::io::{Result, Write as _};
use std::path::Path;

/// Replaces a file. Other users may be able to write to its directory, so what is written is a new
/// file of this process beside it, and never one that a link leads to.
///
/// # Errors
/// It cannot be written; the file stays as it was.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One of a server that was killed, or a link.
    let _ = std::fs::remove_file(&beside);
    let mut file = File::create_new(&beside)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use std::fs::{read_to_string, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_beside_the_file_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        write(at("other"), "other").unwrap();
        symlink(at("other"), at("counters.new")).unwrap();
        // The file itself may be a link, too: it is replaced.
        symlink(at("other"), at("counters")).unwrap();
        for text in ["one", "two"] {
            replace(&at("counters"), text).unwrap();
            assert_eq!(read_to_string(at("counters")).unwrap(), text);
        }
        assert_eq!(read_to_string(at("other")).unwrap(), "other");
        assert_eq!(directory.path().read_dir().unwrap().count(), 2);
    }
}
