//! The plan of a template from that of the cells that it is for.

use super::program::THREADS;
use super::{Fallback, MountKind, Plan};
use languages::template::TEMPLATE;
use record::bytes::RawText;
use spec::{Stdin, Stdio};

/// Settings of glibc (ld.so(8)), separated by colons. Copies remove it from their environment.
const TUNABLES: &str = "GLIBC_TUNABLES";
const WITHOUT_RSEQ: &str = "glibc.pthread.rseq=0";

impl Plan {
    /// The plan of a template that loads `modules`. It has the same file system, without
    /// anything of the caller's that can be written; and neither limits nor filters of
    /// its own, since its copies would inherit them. It never runs code of a caller's.
    #[must_use]
    pub fn for_template(&self, modules: &[String]) -> Self {
        let mut plan = self.clone();
        plan.id.push_str("-template");
        plan.mounts.retain(|mount| {
            !matches!(
                mount.kind,
                MountKind::Overlay { .. }
                    | MountKind::Protected { .. }
                    | MountKind::Bind {
                        writable: true,
                        device: false,
                        ..
                    }
            )
        });
        plan.scratch.retain(super::ScratchDir::is_own);
        plan.overlays = Vec::new();
        plan.protected = Vec::new();
        plan.files = Vec::new();
        plan.files_from = None;
        plan.egress = None;
        plan.rlimits = Vec::new();
        plan.counted_rlimits = Vec::new();
        plan.fallback = Fallback::default();
        plan.userns_limits = None;
        plan.landlock = None;
        plan.seccomp = None;
        plan.watch.stdio = Stdio::Capture;
        plan.watch.out = None;
        let program = &mut plan.program;
        program.stdin = Stdin::Null;
        program.cwd = "/".into();
        program.argv.push(TEMPLATE.into());
        (program.argv).extend(modules.iter().map(|name| RawText::from(name.as_str())));
        for name in THREADS {
            // No thread is copied by fork(2).
            program.env.insert(name.to_owned(), "1".into());
        }
        // A copy has no restartable sequences (`sys::double_fork`), and glibc would not notice.
        let tunables = program.env.entry(TUNABLES.to_owned()).or_default();
        let given = tunables.to_lossy().into_owned();
        let given = given.split(':').filter(|setting| !setting.is_empty());
        *tunables = given
            .chain([WITHOUT_RSEQ])
            .collect::<Vec<_>>()
            .join(":")
            .into();
        plan
    }
}
