//! Landlock rules (landlock(7)) from the mounts that a cell has.

use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::Serialize;
use sys::landlock::{LOG_SAME_EXEC_OFF, LOG_SUBDOMAINS_OFF, NEWEST_ABI, RestrictFlag, TSYNC};

use super::Plan;
use crate::probe::HostFacts;
use crate::rootfs::Tree;
use record::error::{Result, SetupError, Step};
use spec::{Layer, PortRule, Spec, WORKSPACE};

/// The first ABI with rights for TCP ports (Linux 6.7).
pub const TCP_ABI: u32 = 4;
/// The first ABI with rights for UDP ports (Linux 7.2).
pub const UDP_ABI: u32 = 10;

/// What Landlock enforces on init and program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandlockPlan {
    /// The ABI: the newest that kernel and cellblock share.
    pub abi: u32,
    /// What may be done beneath which path; all else is denied.
    pub rules: Vec<LandlockRule>,
    /// TCP ports, where the spec bounds them.
    pub tcp: Option<PortRule>,
    /// UDP ports, where the spec bounds them.
    pub udp: Option<PortRule>,
    /// Whether abstract Unix sockets and signals stop at the cell (ABI 6).
    pub scoped: bool,
}

/// Something that a domain denies although the rest of the cell allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Absolute path inside.
    pub path: &'static str,
    /// The flags with which opening it is denied.
    pub flags: OFlag,
}

impl LandlockPlan {
    /// The flags with which each process restricts itself, as far as the ABI has them: a program
    /// could fill the host's audit log with what it is denied.
    pub fn flags(&self) -> impl Iterator<Item = RestrictFlag> {
        let all = [LOG_SAME_EXEC_OFF, LOG_SUBDOMAINS_OFF, TSYNC];
        let abi = self.abi;
        all.into_iter().filter(move |flag| flag.since <= abi)
    }

    /// Something that only these rules deny in a cell of this plan, which shows that they are in
    /// force.
    pub fn denied(&self, plan: &Plan) -> Option<Denied> {
        const ZERO: &str = "/dev/zero";
        let is_root = |rule: &LandlockRule| rule.path.parent().is_none();
        if !self.rules.iter().any(is_root) {
            let (path, flags) = ("/", OFlag::O_RDONLY);
            return Some(Denied { path, flags });
        }
        // Its mode and its mount let every user write to it.
        let allows = |rule: &LandlockRule| {
            let is_read = matches!(
                rule.access,
                Access::Read | Access::ReadExecute | Access::DevicesRead
            );
            !is_read && Path::new(ZERO).starts_with(&rule.path)
        };
        let has_zero = plan
            .mounts
            .iter()
            .any(|mount| mount.target == Path::new(ZERO));
        let (path, flags) = (ZERO, OFlag::O_WRONLY);
        (has_zero && !self.rules.iter().any(allows)).then_some(Denied { path, flags })
    }
}

/// What may be done beneath a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandlockRule {
    /// Absolute path inside.
    pub path: PathBuf,
    /// What may be done there.
    pub access: Access,
    /// Whether it is known to be a device node, which has no rights of a directory.
    #[serde(skip)]
    pub is_node: bool,
}

/// Sets of access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// The same, and execute.
    ReadExecute,
    /// Everything but making device nodes, device ioctls and executing.
    Write,
    /// The same, and execute.
    WriteExecute,
    /// Read and write device nodes, and their ioctls.
    Devices,
    /// Read device nodes; their ioctls are denied from ABI 5 on.
    DevicesRead,
}

pub(super) fn plan(spec: &Spec, host: &HostFacts, tree: &Tree) -> Result<Option<LandlockPlan>> {
    if spec.without.contains(&Layer::Landlock) {
        return Ok(None);
    }
    let settings = &spec.landlock;
    let abi = host
        .landlock_abi
        .min(settings.max_abi.unwrap_or(NEWEST_ABI))
        .min(NEWEST_ABI);
    check_abi(abi, host, settings.min_abi)?;
    // A rule that the kernel cannot apply must stop the run.
    let ports = |rule: &PortRule, since: u32, field: &str| match rule {
        PortRule::Any => Ok(None),
        PortRule::Ports { .. } if abi < since => Err(too_old(abi, host, since).on(field)),
        PortRule::Ports { .. } => Ok(Some(rule.clone())),
    };
    Ok(Some(LandlockPlan {
        abi,
        rules: rules(spec, tree),
        tcp: ports(&settings.tcp, TCP_ABI, "landlock.tcp")?,
        udp: ports(&settings.udp, UDP_ABI, "landlock.udp")?,
        scoped: abi >= 6,
    }))
}

fn check_abi(abi: u32, host: &HostFacts, min_abi: u32) -> Result<()> {
    if abi == 0 {
        return Err(SetupError::new(Step::Landlock, format!("landlock is missing or switched off on {}", host.release))
            .hint("boot with landlock in `lsm=` (see /sys/kernel/security/lsm), or give the layer up by name with --without landlock"));
    }
    if abi < min_abi {
        return Err(too_old(abi, host, min_abi).on("landlock.min_abi"));
    }
    Ok(())
}

fn too_old(abi: u32, host: &HostFacts, wanted: u32) -> SetupError {
    SetupError::new(
        Step::Landlock,
        format!("landlock ABI {wanted} is asked for, and {} has ABI {abi}", host.release),
    )
    .hint("ABI 2 came with Linux 5.19, 3 with 6.2, 4 (TCP) with 6.7, 5 with 6.10, 6 (scopes) with 6.12, 10 (UDP) with 7.2: boot a newer kernel, or leave out --udp-connect and --udp-bind, --tcp-connect and --tcp-bind, or landlock.min_abi")
}

fn rules(spec: &Spec, tree: &Tree) -> Vec<LandlockRule> {
    let exec = spec.landlock.exec_writable;
    let writable = if exec {
        Access::WriteExecute
    } else {
        Access::Write
    };
    let rule = |path: PathBuf, access| LandlockRule {
        path,
        access,
        is_node: false,
    };
    let node = |path: PathBuf, access| LandlockRule {
        path,
        access,
        is_node: true,
    };
    let mut rules = vec![rule(
        "/".into(),
        if exec {
            Access::ReadExecute
        } else {
            Access::Read
        },
    )];
    if !exec {
        let directories = tree
            .entries
            .iter()
            .filter(|e| e.kind == crate::rootfs::EntryKind::Directory);
        rules.extend(
            directories.map(|e| rule(PathBuf::from("/").join(&e.path), Access::ReadExecute)),
        );
        let read_only = spec.binds.iter().filter(|bind| !bind.writable);
        rules.extend(read_only.map(|bind| rule(bind.target.clone(), Access::ReadExecute)));
    }
    // Not /dev/zero: what maps it shared and writable gets shared anonymous memory,
    // which only a cgroup counts once it is unmapped. Reading it stays.
    let devices = ["null", "full", "random", "urandom", "tty"];
    rules.extend(devices.map(|name| node(PathBuf::from("/dev").join(name), Access::Devices)));
    rules.push(rule("/dev/pts".into(), Access::Devices));
    rules.extend(spec.devices.iter().map(|device| {
        let access = match device.read_only {
            true => Access::DevicesRead,
            false => Access::Devices,
        };
        node(device.path(), access)
    }));
    rules.extend(["/tmp", "/dev/shm", WORKSPACE].map(|path| rule(path.into(), writable)));
    // Of the merged tree: rules for its layers do not apply to it.
    let overlays = spec.overlays.iter().map(|overlay| &overlay.target);
    rules.extend(overlays.map(|path| rule(path.clone(), writable)));
    let read_write = spec.binds.iter().filter(|bind| bind.writable);
    rules.extend(read_write.map(|bind| rule(bind.target.clone(), writable)));
    rules.extend(
        spec.tmpfs()
            .map(|(path, _)| rule(path.to_owned(), writable)),
    );
    rules
}
