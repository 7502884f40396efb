//! Init's numbers in words.

use nix::errno::Errno;

use crate::child::MISSING_INTERPRETER;
use crate::child::report::FailedStep;
use plan::{MountKind, Plan, Source};
use record::error::{SetupError, Step};

/// The failure of a system call of init's.
pub fn os(step: Step, syscall: &str, errno: Errno) -> SetupError {
    match syscall == MISSING_INTERPRETER {
        true => SetupError::no_interpreter(step, errno),
        false => SetupError::os(step, syscall, errno),
    }
}

/// A failure message of init's as an error. `item` is an index into the plan.
pub fn in_words(plan: &Plan, failed: FailedStep) -> SetupError {
    let FailedStep {
        step,
        syscall,
        errno,
        item,
    } = failed;
    let error = os(step, syscall, errno);
    match item.and_then(|item| operand(plan, step, syscall, errno, item)) {
        Some(operand) => error.on(operand),
        None => error,
    }
}

fn operand(plan: &Plan, step: Step, syscall: &str, errno: Errno, item: usize) -> Option<String> {
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
        Step::Exec => {
            // A program that is in none of several places is named as the caller wrote it.
            let name = plan.program.argv.first().filter(|_| errno == Errno::ENOENT);
            let named = name.or_else(|| plan.program.candidates.get(item));
            named.map(ToString::to_string)
        }
        Step::Chdir => Some(plan.program.cwd.display().to_string()),
        Step::Hostname => Some(plan.hostname.clone()),
        _ => None,
    }
}
