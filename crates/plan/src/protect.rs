//! Paths in writable binds that the program can neither change nor make.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::mounts::{Mount, MountKind};
use crate::probe::HostFacts;
use record::error::{Result, SetupError, Step};
use spec::{Bind, Scratch, Spec, WORKSPACE};

/// Where a repository keeps what belongs to git.
const GIT: &str = ".git";

/// Missing files for which a file stands, and not a directory: git ends where `commondir` is a
/// directory, and reads `.` as if the file were missing.
pub const PLACEHOLDERS: [(&str, &str); 1] = [("commondir", ".\n")];

/// The protected paths of one writable bind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// Where the bind is inside.
    pub target: PathBuf,
    /// The directory that it shows.
    pub source: PathBuf,
    /// The paths below it, outer ones first.
    pub paths: Vec<PathBuf>,
}

impl Protected {
    fn mounts(&self) -> impl Iterator<Item = Mount> {
        self.paths.iter().map(|path| Mount {
            target: self.target.join(path),
            kind: MountKind::Protected {
                bind: self.target.clone(),
            },
            create: false,
        })
    }
}

/// The writable binds that have protected paths. A path in what is not the host's, or
/// cannot be written, needs no protection.
///
/// # Errors
/// A path is a bind itself, or in a directory that is written back when the cell ends.
pub(super) fn choose(spec: &Spec, host: &HostFacts) -> Result<Vec<Protected>> {
    for path in &spec.protect {
        refuse_kept(spec, &Path::new(WORKSPACE).join(path))?;
    }
    let writable = || spec.binds.iter().filter(|bind| bind.writable);
    // On the host, since another bind may show the same files.
    let mut protected = BTreeSet::new();
    for bind in writable() {
        let mut paths = named(spec, host, bind)?;
        let repositories = host.repositories.get(&bind.source);
        let repositories = repositories.map_or(&[][..], Vec::as_slice);
        paths.extend(of_repositories(&paths, repositories));
        protected.extend(paths.iter().map(|path| bind.source.join(path)));
    }
    let all = writable().map(|bind| {
        let below = protected
            .iter()
            .filter_map(|path| path.strip_prefix(&bind.source).ok());
        let below = below.filter(|path| !path.as_os_str().is_empty());
        let mut paths: Vec<PathBuf> = below.map(Path::to_owned).collect();
        paths.sort_by_key(|path| path.components().count());
        Protected {
            target: bind.target.clone(),
            source: bind.source.clone(),
            paths,
        }
    });
    Ok(all
        .filter(|protected| !protected.paths.is_empty())
        .collect())
}

/// Mounts each path right after its bind: what shows the bind again shows these mounts, too.
pub(super) fn add(protected: &[Protected], mounts: &mut Vec<Mount>) {
    for protected in protected {
        let is_bind = |mount: &Mount| {
            let is_writable = matches!(mount.kind, MountKind::Bind { writable: true, .. });
            is_writable && mount.target == protected.target
        };
        let after = mounts
            .iter()
            .position(is_bind)
            .map_or(mounts.len(), |bind| bind + 1);
        mounts.splice(after..after, protected.mounts());
    }
}

/// The protected paths that the spec names in a bind, relative to it.
fn named(spec: &Spec, host: &HostFacts, bind: &Bind) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    // A file has no paths below it.
    let is_directory = host.repositories.contains_key(&bind.source);
    for path in &spec.protect {
        if path.is_relative() && (is_home(spec, bind) || !is_directory) {
            continue;
        }
        let path = &bind.target.join(path);
        match path.strip_prefix(&bind.target) {
            Ok(below) if below.as_os_str().is_empty() => {
                let message = "is what a writable bind shows, and not a path in it";
                return Err(SetupError::new(Step::Spec, message)
                    .on(format!("--protect {}", path.display()))
                    .hint("show it with --ro, or protect what is in it"));
            }
            Ok(below) if innermost(spec, path) == bind.target => {
                paths.insert(below.to_owned());
            }
            _ => {}
        }
    }
    Ok(paths)
}

/// Whether a bind is the program's home, whose start files and settings it may need to write.
fn is_home(spec: &Spec, bind: &Bind) -> bool {
    let home = spec.env.get("HOME").map(|home| home.as_path());
    home == Some(&bind.target) && bind.target != Path::new(WORKSPACE)
}

/// The writable binds that may have protected paths, and whether such are of repositories.
pub fn with_protection(spec: &Spec) -> impl Iterator<Item = (&Bind, bool)> {
    let writable = spec.binds.iter().filter(|bind| bind.writable);
    writable.filter_map(|bind| {
        let git = bind.target.join(GIT);
        let mut below = (spec.protect.iter().map(|path| bind.target.join(path)))
            .filter(|path| path.starts_with(&bind.target))
            .peekable();
        below.peek()?;
        let has_git = below.any(|path| path.starts_with(&git));
        Some((bind, has_git))
    })
}

/// What `paths` protect of the repository of the bind, protected in the others that are there:
/// directories of git's own, and files that lead to such directories.
fn of_repositories(paths: &BTreeSet<PathBuf>, repositories: &[PathBuf]) -> BTreeSet<PathBuf> {
    let own = paths.iter().filter_map(|path| path.strip_prefix(GIT).ok());
    let own: Vec<&Path> = own.filter(|below| !below.as_os_str().is_empty()).collect();
    let others = repositories
        .iter()
        .filter(|path| path.as_path() != Path::new(GIT));
    others
        .flat_map(|path| own.iter().map(|below| path.join(below)))
        .collect()
}

/// The innermost of what is put into the cell that holds `path`.
fn innermost<'s>(spec: &'s Spec, path: &Path) -> &'s Path {
    let scratch = Scratch::ALL.iter().map(|scratch| Path::new(scratch.path()));
    let all = spec.mount_points().chain(scratch);
    let holding = all.filter(|place| path.starts_with(place));
    holding
        .max_by_key(|place| place.components().count())
        .unwrap_or(Path::new("/"))
}

/// Refuses a path in a kept directory: at the cell's end all of it is written back.
fn refuse_kept(spec: &Spec, path: &Path) -> Result<()> {
    let kept = [
        (Scratch::Workspace, &spec.workspace, "--workspace"),
        (Scratch::Tmp, &spec.keep_tmp, "--keep-tmp"),
    ];
    for (scratch, directory, option) in kept {
        if let Some(directory) = directory
            && innermost(spec, path) == Path::new(scratch.path())
        {
            let shown = directory.display();
            let message = format!("is in a directory that {option} writes back as a whole");
            return Err(SetupError::new(Step::Spec, message)
                .on(format!("--protect {}", path.display()))
                .hint(format!(
                    "show the directory with --rw {shown}:{} instead of {option}",
                    scratch.path()
                )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_protected_of_a_repository_is_protected_of_all() {
        let set = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let paths = set(&[".git/hooks", ".git/config", ".envrc"]);
        let others = [".git", "sub/.git", ".git/modules/x"].map(PathBuf::from);
        assert_eq!(
            of_repositories(&paths, &others),
            set(&[
                "sub/.git/hooks",
                "sub/.git/config",
                ".git/modules/x/hooks",
                ".git/modules/x/config"
            ])
        );
        assert_eq!(
            of_repositories(&set(&[".git", ".envrc"]), &others),
            set(&[])
        );
    }
}
