//! What the caller puts into the cell's file system besides the host's files: file
//! systems in memory, directories, symbolic links, and other paths of the workspace.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bytes, Scratch, TmpfsLimit, WORKSPACE};
use languages::DIRECTORY;

/// The most tmpfs of a cell besides the usual ones: the supervisor measures each.
pub(super) const MOST_TMPFS: usize = 8;
/// The smallest tmpfs. The kernel reads zero as "no limit".
pub(super) const SMALLEST: Bytes = Bytes(64 << 10);
/// The largest tmpfs, as for the usual ones.
const LARGEST: Bytes = Bytes(1 << 60);
/// Files outside of `/workspace`, and files from descriptors, are read before the start.
pub(super) const LARGEST_FILE: Bytes = Bytes::mib(16);

/// Something that the cell gets at a path of its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialPlace {
    /// Its absolute path inside.
    pub path: PathBuf,
    /// `tmpfs` for a writable file system in memory, `directory`, `symlink`, or
    /// `workspace` for `/workspace` under another path, such as `/mnt/data`.
    pub kind: PlaceKind,
    /// The size of a tmpfs, at least 64K and at most 1048576T; without it, that of the one on `/tmp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// What a symbolic link says: any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<PathBuf>,
}

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// A tmpfs of the cell's own, writable and empty.
    Tmpfs,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// `/workspace` once more.
    Workspace,
}

/// A place of a complete spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its absolute path inside.
    pub path: PathBuf,
    /// What it is.
    #[serde(flatten)]
    pub what: Placed,
}

/// What a place of a complete spec is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Placed {
    /// A tmpfs of the cell's own, writable and empty.
    Tmpfs {
        /// Its bounds.
        #[serde(flatten)]
        limit: TmpfsLimit,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// What it says.
        to: PathBuf,
    },
    /// `/workspace` once more: a symbolic link, or a bind where the rootfs has a
    /// directory.
    Workspace,
}

impl PartialPlace {
    /// With `usual` bounds where it names none.
    pub(super) fn complete(self, usual: TmpfsLimit) -> Place {
        let what = match self.kind {
            PlaceKind::Tmpfs => Placed::Tmpfs {
                limit: TmpfsLimit {
                    size: self.size.unwrap_or(usual.size),
                    ..usual
                },
            },
            PlaceKind::Directory => Placed::Directory,
            PlaceKind::Symlink => Placed::Symlink {
                to: self.to.unwrap_or_default(),
            },
            PlaceKind::Workspace => Placed::Workspace,
        };
        Place {
            path: self.path,
            what,
        }
    }

    /// A value that is not allowed, whatever the others are: its field and why.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let shown = self.path.display();
        let own = Scratch::ALL.map(Scratch::path);
        let (size, to) = (self.size, &self.to);
        match self.kind {
            PlaceKind::Tmpfs if own.iter().any(|own| self.path == Path::new(own)) => Some((
                "path",
                format!("is `{shown}`, which is a tmpfs anyway; limits bound its size"),
            )),
            PlaceKind::Tmpfs if size.is_some_and(|size| size < SMALLEST || size > LARGEST) => {
                Some(("size", format!("wants {SMALLEST} to {LARGEST}")))
            }
            PlaceKind::Workspace
                if self.path.starts_with(WORKSPACE)
                    || Path::new(WORKSPACE).starts_with(&self.path) =>
            {
                Some((
                    "path",
                    format!("is `{shown}`, but wants another place than {WORKSPACE} itself"),
                ))
            }
            PlaceKind::Directory | PlaceKind::Symlink if self.path.starts_with(WORKSPACE) => {
                Some((
                    "path",
                    format!(
                        "is `{shown}`, but what {WORKSPACE} begins with comes from files and \
                         files_from"
                    ),
                ))
            }
            PlaceKind::Directory | PlaceKind::Symlink | PlaceKind::Workspace if size.is_some() => {
                Some(("size", "is for a tmpfs only".to_owned()))
            }
            PlaceKind::Symlink if to.as_ref().is_none_or(|to| to.as_os_str().is_empty()) => Some((
                "to",
                "is missing or empty, but wants the link's text".to_owned(),
            )),
            PlaceKind::Tmpfs | PlaceKind::Directory | PlaceKind::Workspace if to.is_some() => {
                Some(("to", "is for a symbolic link only".to_owned()))
            }
            _ => None,
        }
    }
}

/// The path of the cell's own that `target` is, lies beneath or would cover.
pub(super) fn own_path(target: &Path) -> Option<&'static str> {
    let beneath = ["/proc", "/sys", "/dev", DIRECTORY];
    let found = beneath.into_iter().find(|own| target.starts_with(own));
    found.or_else(|| {
        Path::new(DIRECTORY)
            .starts_with(target)
            .then_some(DIRECTORY)
    })
}
