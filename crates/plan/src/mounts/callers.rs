//! What the caller adds to the cell's file system, and whether it can be made where it is asked for.

use std::path::{Path, PathBuf};

use super::{List, Mount, MountKind, Seal, Source, VAR_TMP};
use languages::DIRECTORY;
use record::error::{Result, SetupError, Step};
use spec::{Bind, Overlay, Place, Placed, ReadOnlyFile, Spec, WORKSPACE};

/// Something of the caller's.
enum Callers<'s> {
    Bind(&'s Bind),
    Overlay(&'s Overlay),
    Place(&'s Place),
    File(&'s ReadOnlyFile),
}

impl Callers<'_> {
    fn target(&self) -> &Path {
        match self {
            Self::Bind(bind) => &bind.target,
            Self::Overlay(overlay) => &overlay.target,
            Self::Place(place) => &place.path,
            Self::File(file) => &file.path,
        }
    }
}

impl List {
    /// What the caller adds comes last and may cover anything before it; what lies
    /// beneath another comes after that, in whatever order they were given. Places are
    /// made only in cellblock's own tmpfs: never in a rootfs or in a bind.
    pub(super) fn callers(&mut self, spec: &Spec) -> Result<()> {
        let binds = spec.binds.iter().map(Callers::Bind);
        let places = spec.places.iter().map(Callers::Place);
        let files = spec.read_only_files.iter().map(Callers::File);
        let overlays = spec.overlays.iter().map(Callers::Overlay);
        let all = binds.chain(overlays).chain(places).chain(files);
        let mut all: Vec<Callers<'_>> = all.collect();
        all.sort_by_key(|callers| callers.target().components().count());
        for (index, callers) in all.into_iter().enumerate() {
            let target = callers.target().to_owned();
            if target.starts_with(VAR_TMP) {
                self.0.retain(|mount| {
                    mount.target != Path::new(VAR_TMP)
                        || !matches!(mount.kind, MountKind::Symlink { .. })
                });
            }
            let create = self.is_own(&target);
            let kind = match callers {
                Callers::Bind(bind) => MountKind::Bind {
                    source: Source::Host(bind.source.clone()),
                    writable: bind.writable,
                    device: false,
                    is_directory: None,
                },
                Callers::Overlay(overlay) => MountKind::Overlay {
                    source: overlay.source.clone(),
                    size: overlay.limit.size,
                    inodes: overlay.limit.inodes,
                },
                Callers::Place(place) => match &place.what {
                    Placed::Tmpfs { limit } => MountKind::Tmpfs {
                        size: limit.size,
                        inodes: limit.inodes,
                        mode: 0o755,
                        seal: Seal::Writable,
                    },
                    Placed::Directory => MountKind::Directory { mode: 0o755 },
                    Placed::Symlink { to } => {
                        self.link(target, to)?;
                        continue;
                    }
                    // A link where it can be one: a bind would be another mount, across
                    // which nothing can be renamed. It is mounted where the program
                    // works, because getcwd(2) shows what a link leads to.
                    Placed::Workspace
                        if self.can_make(&target) && !spec.cwd.starts_with(&target) =>
                    {
                        MountKind::Symlink {
                            to: WORKSPACE.into(),
                        }
                    }
                    Placed::Workspace => MountKind::Workspace,
                },
                Callers::File(file) => {
                    self.file(target, file, index);
                    continue;
                }
            };
            self.0.push(Mount {
                target,
                kind,
                create,
            });
        }
        Ok(())
    }

    /// A link of the caller's, in place of one of the rootfs.
    fn link(&mut self, target: PathBuf, to: &Path) -> Result<()> {
        if !self.can_make(&target) {
            let message = "is in a rootfs or a bind, and no link can be made there";
            return Err(SetupError::new(Step::Spec, message)
                .on(format!("--symlink {}:{}", to.display(), target.display()))
                .hint("bind what it is to lead to at this path, with --ro SRC:DST"));
        }
        self.own(target, MountKind::Symlink { to: to.to_owned() });
        Ok(())
    }

    /// A file of the caller's. In a rootfs or a bind, one that is there is covered.
    fn file(&mut self, target: PathBuf, file: &ReadOnlyFile, index: usize) {
        let executable = file.executable;
        let kind = MountKind::File {
            content: file.content.clone(),
            executable,
        };
        if self.can_make(&target) {
            self.own(target, kind);
            return;
        }
        let from = Path::new(DIRECTORY).join("files").join(index.to_string());
        self.own(from.clone(), kind);
        self.0.push(Mount {
            target,
            kind: MountKind::Cover { from, executable },
            create: false,
        });
    }

    /// Whether a file or link of the caller's can be made at `target`, once a file or
    /// link that cellblock would make there is left out.
    fn can_make(&mut self, target: &Path) -> bool {
        self.0.retain(|mount| {
            let is_made = matches!(
                mount.kind,
                MountKind::File { .. } | MountKind::Symlink { .. }
            );
            !(is_made && mount.target == target)
        });
        self.is_own(target) && self.0.iter().all(|mount| mount.target != target)
    }

    /// Whether the innermost mount that holds `target` is a tmpfs of the cell's.
    fn is_own(&self, target: &Path) -> bool {
        self.0
            .iter()
            .rev()
            .filter(|mount| {
                !matches!(
                    mount.kind,
                    MountKind::Directory { .. }
                        | MountKind::File { .. }
                        | MountKind::Certificates
                        | MountKind::JavaCertificates
                        | MountKind::Symlink { .. }
                )
            })
            .filter(|mount| target.starts_with(&mount.target) && target != mount.target)
            .max_by_key(|mount| mount.target.components().count())
            .is_some_and(|mount| matches!(mount.kind, MountKind::Tmpfs { .. }))
    }
}
