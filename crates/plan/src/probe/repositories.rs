//! Repositories of git in a directory of the caller's.

use std::fs::{self, ReadDir};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use record::error::{Result, SetupError, Step};

/// The most directory entries that are looked at: several large projects with all that they
/// have installed.
const MOST_ENTRIES: usize = 2_000_000;
/// The most repositories: each of their protected paths becomes a mount.
const MOST_REPOSITORIES: usize = 256;
/// Directories within directories.
const DEEPEST: usize = 64;

/// Paths below `base` that git takes for a repository's own directory, whatever their names
/// (`.git`, a bare repository, `.git/modules/NAME`), and files named `.git`, which lead to
/// one. No link is followed. Another user's directory that cannot be read is left out, since the
/// program cannot change that.
///
/// # Errors
/// There is too much to look at, or a directory of the caller's own cannot be read.
pub fn beneath(base: &Path) -> Result<Vec<PathBuf>> {
    let mut search = Search {
        base,
        entries: 0,
        found: Vec::new(),
    };
    let mut stack = vec![PathBuf::new()];
    while let Some(path) = stack.pop() {
        let at = base.join(&path);
        match fs::read_dir(&at) {
            Ok(listed) => search.directory(&path, listed, &mut stack)?,
            Err(error) if error.kind() == ErrorKind::PermissionDenied && is_own(&at) => {
                return Err(SetupError::io(Step::Probe, "open", &error).on(at.display()).hint(
                    "repositories of git in it cannot be found and protected, and its owner can make it readable: do so (chmod u+rx), or move it elsewhere",
                ));
            }
            Err(_) => {}
        }
    }
    search.found.sort_unstable();
    Ok(search.found)
}

fn is_own(directory: &Path) -> bool {
    let owner = fs::symlink_metadata(directory).map(|directory| directory.uid());
    owner.is_ok_and(|owner| owner == nix::unistd::geteuid().as_raw())
}

struct Search<'a> {
    base: &'a Path,
    entries: usize,
    found: Vec<PathBuf>,
}

impl Search<'_> {
    fn directory(&mut self, path: &Path, listed: ReadDir, stack: &mut Vec<PathBuf>) -> Result<()> {
        let is_deepest = path.components().count() >= DEEPEST;
        let (mut directories, mut has_head, mut has_rest) = (Vec::new(), false, false);
        for entry in listed.flatten() {
            self.entries += 1;
            let (name, kind) = (entry.file_name(), entry.file_type());
            let is_directory = kind.is_ok_and(|kind| kind.is_dir());
            has_head |= name == "HEAD";
            has_rest |= name == "objects" || name == "commondir";
            if is_directory {
                directories.push(name);
            } else if name.eq_ignore_ascii_case(".git") {
                self.found.push(path.join(name));
            }
        }
        let is_repository = has_head && has_rest;
        if is_repository {
            self.found.push(path.to_owned());
        }
        if self.entries > MOST_ENTRIES || self.found.len() > MOST_REPOSITORIES {
            return Err(self.too_much());
        }
        if !is_deepest {
            stack.extend(directories.iter().map(|name| path.join(name)));
        }
        Ok(())
    }

    fn too_much(&self) -> SetupError {
        let message = format!(
            "has more than {MOST_REPOSITORIES} repositories of git or {MOST_ENTRIES} files, and \
             not all of its repositories can be found and protected"
        );
        SetupError::new(Step::Probe, message)
            .on(self.base.display())
            .hint("show a smaller directory with --rw, or give this up: --unprotect each path that begins with .git/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_found_under_any_name() {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().join(path);
        for git in [".git", "deep/er/.git", ".git/modules/sub", "bare"] {
            fs::create_dir_all(at(git).join("objects")).unwrap();
            fs::write(at(git).join("HEAD"), "ref: refs/heads/main\n").unwrap();
        }
        fs::create_dir_all(at(".git/worktrees/other")).unwrap();
        for file in ["HEAD", "commondir"] {
            fs::write(at(".git/worktrees/other").join(file), "").unwrap();
        }
        fs::create_dir_all(at("sub")).unwrap();
        fs::write(at("sub/.git"), "gitdir: ../.git/modules/sub\n").unwrap();
        // Neither of these is one.
        fs::create_dir_all(at("objects")).unwrap();
        std::os::unix::fs::symlink("bare", at("link")).unwrap();
        let expected = [
            ".git",
            ".git/modules/sub",
            ".git/worktrees/other",
            "bare",
            "deep/er/.git",
            "sub/.git",
        ];
        assert_eq!(beneath(base.path()).unwrap(), expected.map(PathBuf::from));
    }
}
