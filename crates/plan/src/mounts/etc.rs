//! Files of `/etc`, and certificates: the cell's own, in place of those of a tree.

use std::path::Path;

use super::{List, Mount, MountKind};
use crate::names::NameFiles;
use crate::rootfs::{Entry, Tree};
use crate::trust;
use languages::DIRECTORY;
use spec::Spec;

impl List {
    /// The little of `/etc` that programs expect and that no host's own should
    /// stand for.
    pub(super) fn etc(&mut self, spec: &Spec, names: &NameFiles) {
        let (hostname, uid) = (&spec.hostname, spec.uid);
        let own = |line: String| if uid == 0 { String::new() } else { line };
        let user = own(format!("cell:x:{uid}:{uid}:cell:/tmp:/bin/sh\n"));
        let group = own(format!("cell:x:{uid}:\n"));
        let known = names.hosts.as_deref().unwrap_or_default();
        let files = [
            (
                "passwd",
                format!(
                    "root:x:0:0:root:/:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n"
                ),
            ),
            ("group", format!("root:x:0:\n{group}nogroup:x:65534:\n")),
            (
                "hosts",
                format!("127.0.0.1 localhost {hostname}\n::1 localhost\n{known}"),
            ),
            ("hostname", format!("{hostname}\n")),
            (
                "nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
            ),
        ];
        for (name, content) in files {
            self.own(
                Path::new("/etc").join(name),
                MountKind::File {
                    content: content.into(),
                    executable: false,
                },
            );
        }
    }

    /// The files by which names are resolved. In a rootfs with an `/etc` of its own, a
    /// file can only be covered ([`Tree::open_etc`]).
    pub(super) fn names(&mut self, tree: &Tree, names: &NameFiles) {
        let is_whole = |entry: &Entry| entry.path == Path::new("etc");
        let is_covered = tree.entries.iter().any(is_whole);
        for (name, content) in names.files() {
            if name == "hosts" && tree.needs_etc {
                continue;
            }
            let target = Path::new("/etc").join(name);
            let kind = MountKind::File {
                content: content.into(),
                executable: false,
            };
            if !is_covered {
                self.own(target, kind);
                continue;
            }
            let from = Path::new(DIRECTORY).join("etc").join(name);
            self.own(from.clone(), kind);
            self.0.push(Mount {
                target,
                kind: MountKind::Cover {
                    from,
                    executable: false,
                },
                create: false,
            });
        }
    }

    /// The bundle of certificates, in the place of each that the tree has.
    pub(super) fn certificates(&mut self, tree: &Tree) {
        self.own(trust::BUNDLE, MountKind::Certificates);
        for target in trust::bundles(tree) {
            self.cover(target, trust::BUNDLE);
        }
        let mut stores = trust::java_stores(tree).peekable();
        if stores.peek().is_some() {
            self.own(trust::JAVA_STORE, MountKind::JavaCertificates);
        }
        for target in stores {
            self.cover(target, trust::JAVA_STORE);
        }
    }

    /// Mounts a file of the cell's own over one of the tree.
    fn cover(&mut self, target: &Path, from: &str) {
        self.0.push(Mount {
            target: target.to_owned(),
            kind: MountKind::Cover {
                from: from.into(),
                executable: false,
            },
            create: false,
        });
    }
}
