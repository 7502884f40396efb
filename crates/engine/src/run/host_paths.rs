//! What the host has and the cell lacks, where a program's last words name it.
//!
//! This is for the operator alone: what the code reads says nothing about the host. The code chooses
//! the words, so few paths of few lines are looked for, in places of packages on the root's own file
//! system, and only what everybody on the host may read. A lookup must neither wait for a file system
//! that does not answer nor have a name resolved elsewhere, as automounts do.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::readlinkat;
use nix::sys::stat::{Mode, SFlag, fstat};

use plan::Plan;
use record::Record;
use sys::beneath::Beneath;

/// Last lines of stderr that are read, and paths in them that are looked for.
const MOST: usize = 8;
/// The end of stderr that is looked at.
const LAST_BYTES: usize = 4096;
/// The longest path that a hint repeats.
const LONGEST: usize = 200;
/// Links that are followed on a way.
const MOST_LINKS: usize = 8;
/// Directories whose entries belong together: what a hint shows is the entry.
const SHELVES: [&str; 4] = ["/etc", "/opt", "/srv", "/var/lib"];
/// Where links of programs lead to a shelf. Cells see all of it.
const PROGRAMS: &str = "/usr";

/// The operator's hint for a failed run.
pub(super) fn hint(record: &Record, plan: &Plan) -> Option<String> {
    if !record.is_error || record.operator_hint.is_some() || record.setup_error.is_some() {
        return None;
    }
    let stderr = record.stderr.as_ref()?.end(LAST_BYTES);
    let is_shown = |path: &Path| is_in_cell(plan, path);
    let root = File::open("/").ok()?.into();
    let path = missing(&stderr, &root, is_shown)?;
    let path = path.display();
    Some(format!(
        "the host has {path}, and this cell does not: `--ro {path}` shows it"
    ))
}

/// The first path in the last words that is on the host below `root`, and not in the cell.
fn missing(stderr: &str, root: &OwnedFd, is_in_cell: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let lines = stderr.lines().rev().filter(|line| !line.trim().is_empty());
    let named: BTreeSet<PathBuf> = lines.take(MOST).flat_map(paths_in).collect();
    let named = named.into_iter().filter(|path| {
        let is_below = |top: &&str| path.starts_with(top);
        SHELVES.iter().any(is_below) || is_below(&PROGRAMS)
    });
    named.take(MOST).find_map(|path| {
        // A link in `/usr` may lead to what is missing.
        let way = follow(root, &path)?;
        let found = way.path();
        let shown = entry_of(&found)?;
        let text = shown.to_str()?;
        let is_plain = text.len() <= LONGEST && text.chars().all(is_of_path);
        let is_missing = is_plain && !is_in_cell(&found);
        (is_missing && way.is_public(&shown)).then_some(shown)
    })
}

/// What a path has led through, from the root on, without links.
#[derive(Default)]
struct Way(Vec<(OsString, OwnedFd, Mode)>);

impl Way {
    fn path(&self) -> PathBuf {
        let names = self.0.iter().map(|(name, ..)| Path::new(name));
        [Path::new("/")].into_iter().chain(names).collect()
    }

    /// Whether everybody may read what is on the way at `path`.
    fn is_public(&self, path: &Path) -> bool {
        let length = path.components().skip(1).count();
        let way = self.0.get(..length).unwrap_or_default();
        way.split_last().is_some_and(|((_, _, last), before)| {
            last.contains(Mode::S_IROTH)
                && before
                    .iter()
                    .all(|(_, _, mode)| mode.contains(Mode::S_IXOTH))
        })
    }
}

/// Follows a path and the links on it, below `root` and on its mount. Each name is looked up alone: before
/// Linux 6.18, a lookup of several starts automounts on the way, even if it must not cross to them.
fn follow(root: &OwnedFd, path: &Path) -> Option<Way> {
    let mut way = Way::default();
    let mut todo = reversed(path);
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            way.0.pop();
            continue;
        }
        let parent = way.0.last().map_or(root, |(_, directory, _)| directory);
        let found = Beneath::new(parent).on_one_mount().find_link(&*name).ok()?;
        let mode = fstat(&found).ok()?.st_mode;
        if SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) != SFlag::S_IFLNK {
            way.0.push((name, found, Mode::from_bits_truncate(mode)));
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        let target = PathBuf::from(readlinkat(&found, "").ok()?);
        if target.is_absolute() {
            way.0.clear();
        }
        todo.extend(reversed(&target));
    }
    Some(way)
}

/// The names in a path, and its `..`, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let parts = path.components().rev().filter(is_name);
    parts.map(|part| part.as_os_str().to_owned()).collect()
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

/// The entry of a directory of packages that `path` belongs to.
fn entry_of(path: &Path) -> Option<PathBuf> {
    SHELVES.iter().find_map(|shelf| {
        let name = path.strip_prefix(shelf).ok()?.components().next()?;
        Some(Path::new(shelf).join(name))
    })
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
    use std::fs::{self, Permissions};
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
        for (link, target) in [
            ("usr/lib/ghc/package.conf.d", "/var/lib/ghc/package.conf.d"),
            ("usr/lib/ghc/relative", "../../../var/lib/ghc"),
            ("usr/lib/ghc/endless", "endless"),
            ("usr/lib/ghc/home", "/home/me"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let root = File::open(host.path()).unwrap().into();
        let in_cell = |path: &Path| path.starts_with("/usr");
        let of =
            |stderr: &str| missing(stderr, &root, in_cell).map(|path| path.display().to_string());
        assert_eq!(
            of("x\n.: cannot open /etc/chromium.d/*\n").as_deref(),
            Some("/etc/chromium.d")
        );
        let ghc = "can't find a package database at /usr/lib/ghc/package.conf.d";
        assert_eq!(of(ghc).as_deref(), Some("/var/lib/ghc"));
        let relative = of("no /usr/lib/ghc/relative/package.conf.d");
        assert_eq!(relative.as_deref(), Some("/var/lib/ghc"));
        for nothing in [
            "/usr/lib/ghc/endless",
            "/usr/lib/ghc/home",
            "/etc/missing",
            "/etc/secret",
            "/home/me",
            "/usr/lib/ghc",
            "/etc",
            "",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
        // What is on another mount is not looked at: its file system might not answer.
        let real = File::open("/").unwrap().into();
        assert!(follow(&real, Path::new("/proc/version")).is_none());
        assert!(follow(&real, Path::new("/dev/null")).is_none());
        assert!(follow(&real, Path::new("/usr/bin")).is_some());
        let early = format!("/etc/chromium.d\n{}", "later\n".repeat(MOST));
        assert_eq!(of(&early), None);
    }
}
