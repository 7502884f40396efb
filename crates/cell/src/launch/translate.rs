//! Init's numbers in words.

use nix::errno::Errno;

use crate::plan::{MountKind, Plan, Source};
use record::error::{SetupError, Step};

/// A failure message of init's as an error. `item` is an index into the plan.
pub(crate) fn in_words(
    plan: &Plan,
    step: Step,
    syscall: &str,
    errno: Errno,
    item: Option<usize>,
) -> SetupError {
    let error = SetupError::os(step, syscall, errno);
    match item.and_then(|item| operand(plan, step, syscall, item)) {
        Some(operand) => error.on(operand),
        None => error,
    }
}

fn operand(plan: &Plan, step: Step, syscall: &str, item: usize) -> Option<String> {
    match step {
        Step::Mount => {
            let mount = plan.mounts.get(item)?;
            Some(match (&mount.kind, syscall) {
                (
                    MountKind::Bind {
                        source: Source::Host(path),
                        ..
                    },
                    "open_tree",
                ) => path.display().to_string(),
                (
                    MountKind::Bind {
                        source: Source::Beneath { base, path },
                        ..
                    },
                    "open_tree" | "mount_setattr",
                ) => base.join(path).display().to_string(),
                _ => mount.target.display().to_string(),
            })
        }
        Step::Stdio => super::stdio::name(item).map(str::to_owned),
        Step::CopyIn => plan
            .files
            .get(item)
            .map(|file| file.target.display().to_string()),
        Step::Landlock => plan
            .landlock
            .as_ref()?
            .rules
            .get(item)
            .map(|rule| rule.path.display().to_string()),
        Step::Rlimits => plan
            .rlimits
            .get(item)
            .map(|limit| format!("{:?}", limit.resource)),
        Step::Exec => plan.program.candidates.get(item).map(ToString::to_string),
        Step::Chdir => Some(plan.program.cwd.display().to_string()),
        Step::Hostname => Some(plan.hostname.clone()),
        _ => None,
    }
}
