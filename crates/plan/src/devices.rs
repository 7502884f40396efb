//! Whether the program can use the devices that the caller lets it have.

use crate::probe::{HostDevice, HostFacts};
use record::error::{Result, SetupError, Step};
use spec::{Device, Layer, Spec};

/// # Errors
/// Nothing would keep the program from writing to a device that it may only read from, or
/// the host's permissions keep it from a device altogether.
pub(super) fn check(spec: &Spec, host: &HostFacts) -> Result<()> {
    for (device, found) in spec.devices.iter().zip(&host.devices) {
        let failed = |message: &str| {
            let operand = format!("--dev {}", device.name.display());
            SetupError::new(Step::Mount, message).on(operand)
        };
        if device.read_only && spec.without.contains(&Layer::Landlock) {
            return Err(failed(
                "is for reading only, which Landlock enforces and --without landlock gives up",
            )
            .hint("keep that layer: a read-only mount does not stop writing to a device"));
        }
        if !is_open(device, found, spec, host) {
            return Err(failed("the permissions of the node do not let the program open it")
                .hint("root's cells have an unprivileged uid and no groups: change the node's mode, or its owner and give --outer-uid; other callers need permissions of their own"));
        }
    }
    Ok(())
}

/// Whether the program's ids may open it.
fn is_open(device: &Device, found: &HostDevice, spec: &Spec, host: &HostFacts) -> bool {
    if host.uid != 0 {
        return found.is_open_to_caller;
    }
    let wanted = if device.read_only { 0o4 } else { 0o6 };
    let granted = match spec.outer_uid == Some(found.owner) {
        true => found.mode >> 6,
        false => found.mode,
    };
    granted & wanted == wanted
}
