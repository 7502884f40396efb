//! Init's numbers in words.

use crate::child::report::FailedStep;
use plan::{MountKind, Plan, Source};
use record::error::{SetupError, Step};

/// A failure message of init's as an error. `item` is an index into the plan.
pub fn in_words(plan: &Plan, failed: FailedStep) -> SetupError {
    let FailedStep {
        step,
        syscall,
        errno,
        item,
    } = failed;
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
            let source = match &mount.kind {
                MountKind::Bind { source, .. } => Some(source),
                MountKind::Overlay { source, .. } | MountKind::Device { source, .. } => {
                    Some(&Source::Host(source.clone()))
                }
                _ => None,
            };
            let path = match (source, syscall) {
                (Some(Source::Host(path)), "open_tree") => path,
                (Some(Source::Beneath { base, path }), "open_tree" | "mount_setattr") => {
                    &base.join(path)
                }
                _ => &mount.target,
            };
            Some(path.display().to_string())
        }
        Step::Stdio => super::stdio::name(item).map(str::to_owned),
        Step::CopyIn => Some(plan.files.get(item)?.target.display().to_string()),
        Step::Landlock => {
            let rule = plan.landlock.as_ref()?.rules.get(item)?;
            Some(rule.path.display().to_string())
        }
        Step::Rlimits => Some(format!("{:?}", plan.rlimits.get(item)?.resource)),
        Step::Exec => plan.program.candidates.get(item).map(ToString::to_string),
        Step::Chdir => Some(plan.program.cwd.display().to_string()),
        Step::Hostname => Some(plan.hostname.clone()),
        _ => None,
    }
}
