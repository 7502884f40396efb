//! What the host has and the cell lacks, where a program's last words name it.
//!
//! This is for the operator alone: what the code reads says nothing about the host. Only what
//! everybody on the host may read is looked for, and few paths of few lines.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use plan::Plan;
use record::Record;

/// Last lines of stderr that are read, and paths in them that are looked for.
const MOST: usize = 8;
/// The end of stderr that is looked at.
const LAST_BYTES: usize = 4096;
/// The longest path that a hint repeats.
const LONGEST: usize = 200;
/// Directories whose entries belong together: what a hint shows is the entry.
const SHELVES: [&str; 5] = ["/etc", "/opt", "/srv", "/usr/local", "/var/lib"];
/// Places of the cell's own, and those that no bind would help with.
const OWN: [&str; 7] = [
    "/dev",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/var/tmp",
    "/workspace",
];

/// The operator's hint for a failed run.
pub(super) fn hint(record: &Record, plan: &Plan) -> Option<String> {
    if !record.is_error || record.operator_hint.is_some() || record.setup_error.is_some() {
        return None;
    }
    let stderr = record.stderr.as_ref()?.end(LAST_BYTES);
    let is_shown = |path: &Path| is_in_cell(plan, path);
    let path = missing(&stderr, Path::new("/"), is_shown)?;
    let path = path.display();
    Some(format!(
        "the host has {path}, and this cell does not: `--ro {path}` shows it"
    ))
}

/// The first path in the last words that is on the host below `base`, and not in the cell.
fn missing(stderr: &str, base: &Path, is_in_cell: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let lines = stderr.lines().rev().filter(|line| !line.trim().is_empty());
    let named: BTreeSet<PathBuf> = lines.take(MOST).flat_map(paths_in).collect();
    named.into_iter().take(MOST).find_map(|path| {
        // A link in `/usr` may lead to what is missing.
        let found = fs::canonicalize(base.join(path.strip_prefix("/").ok()?)).ok()?;
        let found = Path::new("/").join(found.strip_prefix(base).ok()?);
        let shown = entry_of(&found);
        let text = shown.to_str()?;
        let is_plain = text.len() <= LONGEST && text.chars().all(is_of_path);
        let is_own = OWN.iter().any(|own| shown.starts_with(own));
        let is_missing = is_plain && !is_own && !is_in_cell(&found);
        (is_missing && is_public(base, &shown)).then_some(shown)
    })
}

/// Absolute paths in a line, without what follows a `*` or ends a sentence.
fn paths_in(line: &str) -> impl Iterator<Item = PathBuf> {
    let words = line.split(|c: char| !is_of_path(c));
    words.filter_map(|word| {
        let word = &word[word.find('/')?..];
        let path = Path::new(word.trim_end_matches(['.', '-', '/']));
        let is_straight = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        (is_straight && path.components().count() > 2).then(|| path.to_owned())
    })
}

const fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '+' | '-' | '@')
}

/// The entry of a directory of packages that `path` belongs to, or `path` itself.
fn entry_of(path: &Path) -> PathBuf {
    let shelf = SHELVES.iter().find_map(|shelf| {
        let name = path.strip_prefix(shelf).ok()?.components().next()?;
        Some(Path::new(shelf).join(name))
    });
    shelf.unwrap_or_else(|| path.to_owned())
}

/// Whether everybody on the host may read it.
fn is_public(base: &Path, path: &Path) -> bool {
    let mode = |path: &Path| {
        let status = fs::metadata(base.join(path.strip_prefix("/").ok()?)).ok()?;
        Some((status.mode(), status.is_dir()))
    };
    let may_pass = |way: &Path| mode(way).is_some_and(|(mode, _)| mode & 0o001 != 0);
    let may_read = mode(path)
        .is_some_and(|(mode, is_dir)| mode & 0o004 != 0 && (!is_dir || mode & 0o001 != 0));
    may_read && path.ancestors().skip(1).all(may_pass)
}

/// Whether the cell has something of the plan's at `path`, above it or, for a directory, below it.
fn is_in_cell(plan: &Plan, path: &Path) -> bool {
    plan.mounts.iter().any(|mount| {
        let is_root = mount.target.parent().is_none();
        !is_root && (path.starts_with(&mount.target) || mount.target.starts_with(path))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn paths_are_found_in_the_words_of_programs() {
        for (line, paths) in [
            (
                "/usr/bin/chromium: 77: .: cannot open /etc/chromium.d/*: No such file",
                &["/usr/bin/chromium", "/etc/chromium.d"][..],
            ),
            (
                "ghc: can't find a package database at /usr/lib/ghc/package.conf.d",
                &["/usr/lib/ghc/package.conf.d"],
            ),
            (
                "open(\"/var/lib/chicken/9/types.db\") failed.",
                &["/var/lib/chicken/9/types.db"],
            ),
            ("at file:///etc/a.xml.", &["/etc/a.xml"]),
            ("'/opt/x y'", &["/opt/x"]),
            ("/etc/../root and / and // and a/b and /x", &[]),
            ("", &[]),
        ] {
            let found: Vec<PathBuf> = paths_in(line).collect();
            assert_eq!(
                found,
                paths.iter().map(PathBuf::from).collect::<Vec<_>>(),
                "{line}"
            );
        }
    }

    #[test]
    fn only_what_the_host_has_everybody_may_read_and_the_cell_lacks_is_named() {
        let host = tempfile::tempdir().unwrap();
        let at = |path: &str| host.path().join(path);
        for directory in [
            "etc/chromium.d",
            "etc/secret",
            "var/lib/ghc/package.conf.d",
            "usr/lib/ghc",
            "home/me",
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for way in [
            "",
            "etc",
            "etc/chromium.d",
            "var",
            "var/lib",
            "var/lib/ghc",
            "usr",
            "usr/lib",
            "usr/lib/ghc",
        ] {
            fs::set_permissions(at(way), Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(at("etc/secret"), Permissions::from_mode(0o750)).unwrap();
        fs::set_permissions(at("home"), Permissions::from_mode(0o700)).unwrap();
        symlink(
            at("var/lib/ghc/package.conf.d"),
            at("usr/lib/ghc/package.conf.d"),
        )
        .unwrap();
        let base = host.path().canonicalize().unwrap();
        let in_cell = |path: &Path| path.starts_with("/usr");
        let of =
            |stderr: &str| missing(stderr, &base, in_cell).map(|path| path.display().to_string());
        assert_eq!(
            of("x\n.: cannot open /etc/chromium.d/*\n").as_deref(),
            Some("/etc/chromium.d")
        );
        let ghc = "can't find a package database at /usr/lib/ghc/package.conf.d";
        assert_eq!(of(ghc).as_deref(), Some("/var/lib/ghc"));
        for nothing in [
            "/etc/missing",
            "/etc/secret",
            "/home/me",
            "/usr/lib/ghc",
            "/etc",
            "",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
        let early = format!("/etc/chromium.d\n{}", "later\n".repeat(MOST));
        assert_eq!(of(&early), None);
    }
}
