//! The output of `apt-get install --print-uris`.

use crate::errors::store_error;
use crate::recipe::{Deb, is_sha256};
use record::error::Result;

/// The packages in apt's order.
///
/// # Errors
/// A line that cannot be parsed; none is skipped.
pub(super) fn parse(printed: &str, mirror: &str) -> Result<Vec<Deb>> {
    let lines = printed.lines().filter(|line| line.starts_with('\''));
    lines
        .map(|line| {
            package(line, mirror).ok_or_else(|| {
                store_error("cannot be parsed").on(format!("apt-get install --print-uris: {line}"))
            })
        })
        .collect()
}

/// `'URL' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:DIGITS`
fn package(line: &str, mirror: &str) -> Option<Deb> {
    let mut words = line.split(' ');
    let url = words.next()?.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut parts = words.next()?.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    let size = words.next()?.parse().ok()?;
    let sha256 = words.next()?.strip_prefix("SHA256:")?;
    let path = url.strip_prefix(mirror)?.strip_prefix('/')?;
    is_sha256(sha256).then(|| Deb {
        name: name.to_owned(),
        version: version.replace("%3a", ":"),
        path: path.to_owned(),
        size,
        sha256: sha256.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("print-uris.txt");

    #[test]
    fn recorded_output_is_parsed() {
        let debs = parse(RECORDED, "http://deb.debian.org").unwrap();
        assert_eq!(debs.len(), 5);
        let zlib = debs.iter().find(|deb| deb.name == "zlib1g").unwrap();
        assert_eq!(zlib.version, "1:1.3.dfsg+really1.3.1-1+deb13u1");
        assert_eq!(zlib.size, 88720);
        assert!(
            zlib.path
                .starts_with("debian-security/pool/updates/main/z/zlib/")
        );
        assert!(zlib.sha256.starts_with("8c27c342230503b7"));
    }

    #[test]
    fn a_line_without_a_digest_or_from_another_mirror_is_refused() {
        let line = RECORDED
            .lines()
            .find(|line| line.starts_with('\''))
            .unwrap();
        let weak = line.replace("SHA256:", "MD5Sum:");
        assert!(parse(&weak, "http://deb.debian.org").is_err());
        assert!(parse(line, "http://mirror.example").is_err());
    }
}
