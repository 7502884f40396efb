//! What this kernel and host can do, as far as a launch needs to know.
//!
//! Everything here costs microseconds. `doctor` tries the rest for real.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use serde::Serialize;

use record::error::{Result, SetupError, Step};

pub mod descriptors;
pub mod devices;
mod filters;
pub mod mounts;
mod names;
mod processor;
pub mod repositories;
mod user_limits;

pub use devices::HostDevice;
pub use filters::{DeniedCall, Filters};
pub use names::HostNames;
pub use user_limits::user_limits;

/// The oldest kernel that has everything a cell needs: mount_setattr(2) came with
/// 5.12, Landlock with 5.13, `cgroup.kill` with 5.14.
pub const MIN_KERNEL: (u32, u32) = (5, 14);

/// Facts about this host.
#[derive(Clone, Debug, Serialize)]
pub struct HostFacts {
    /// The kernel's release, such as `6.12.9-amd64`.
    pub release: String,
    /// Its version, such as `#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1`.
    pub version: String,
    /// Its first two numbers.
    pub kernel: (u32, u32),
    /// The caller's effective uid.
    pub uid: u32,
    /// The caller's effective gid.
    pub gid: u32,
    /// This process's id, unique among living supervisors.
    pub pid: u32,
    /// The number of CPUs that this process may use.
    pub cpus: usize,
    /// The host's memory, in bytes.
    pub memory: u64,
    /// What the kernel reports about the first processor, as lines of `/proc/cpuinfo`.
    pub processor: String,
    /// Whether something is mounted over a part of `/proc`, as container engines do it:
    /// then the kernel mounts no other `/proc` that would show that part.
    pub proc_covered: bool,
    /// The Landlock ABI; 0 without Landlock.
    pub landlock_abi: u32,
    /// For a caller with uid 0: ids of this user namespace that exist, as
    /// (first id here, the same id one level up, count).
    pub id_map: Vec<(u32, u32, u32)>,
    /// How it resolves names; read where a cell is to do the same.
    pub names: HostNames,
    /// Its devices that the spec names, in that order; read where there are any.
    pub devices: Vec<HostDevice>,
    /// Repositories of git in directories that it binds writable and that may have protected paths, by
    /// the directory; looked for where paths of repositories are protected.
    pub repositories: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl HostFacts {
    /// Looks at this host.
    ///
    /// # Errors
    /// When the kernel is too old, or `/proc` is missing.
    pub fn gather() -> Result<Self> {
        let names =
            nix::sys::utsname::uname().map_err(|e| SetupError::os(Step::Probe, "uname", e))?;
        let release = names.release().to_string_lossy().into_owned();
        let version = names.version().to_string_lossy().into_owned();
        let kernel = parse_release(&release);
        check_kernel(kernel, &release)?;
        let uid = nix::unistd::geteuid().as_raw();
        Ok(Self {
            cpus: sys::process::allowed_cpus().map_or(1, |cpus| cpus.len()),
            memory: nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total()),
            processor: processor::first(),
            proc_covered: proc_is_covered(),
            release,
            version,
            kernel,
            uid,
            gid: nix::unistd::getegid().as_raw(),
            pid: std::process::id(),
            landlock_abi: landlock_abi(),
            id_map: if uid == 0 { read_id_map()? } else { Vec::new() },
            names: HostNames::default(),
            devices: Vec::new(),
            repositories: BTreeMap::new(),
        })
    }
}

/// Whether systemd manages this host (sd_booted(3)).
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The Landlock ABI; 0 without Landlock. A filter that denies the call may kill this
/// process, so the call is not made then, and the result is 0.
pub fn landlock_abi() -> u32 {
    match Filters::current().denial("landlock_create_ruleset") {
        Some(_) => 0,
        None => sys::landlock::abi(),
    }
}

/// All of a file that states no size, as those of `/proc`: in few calls, without asking for the
/// size.
pub fn contents(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(8 * 1024);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// [`contents`] of the file at `path`.
pub fn read(path: &str) -> std::io::Result<Vec<u8>> {
    contents(open(path)?)
}

/// Opens a file for reading. musl's open(3) would set close-on-exec once more.
fn open(path: &str) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty()).map(File::from)
}

fn proc_is_covered() -> bool {
    let text = read(mounts::MOUNTINFO);
    text.is_ok_and(|text| {
        mounts::mounts(&text).any(|mount| {
            let point = mount.point();
            // This directory is empty by itself, so a mount there hides nothing.
            point.starts_with("/proc")
                && point != Path::new("/proc")
                && point != Path::new("/proc/sys/fs/binfmt_misc")
        })
    })
}

fn read_id_map() -> Result<Vec<(u32, u32, u32)>> {
    let path = "/proc/self/uid_map";
    let text = std::fs::read_to_string(path).map_err(|e| {
        SetupError::io(Step::Probe, "open", &e)
            .on(path)
            .hint("mount /proc")
    })?;
    Ok(parse_id_map(&text))
}

fn parse_id_map(text: &str) -> Vec<(u32, u32, u32)> {
    text.lines()
        .filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse);
            Some((
                numbers.next()?.ok()?,
                numbers.next()?.ok()?,
                numbers.next()?.ok()?,
            ))
        })
        .collect()
}

fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn check_kernel(kernel: (u32, u32), release: &str) -> Result<()> {
    if kernel >= MIN_KERNEL {
        return Ok(());
    }
    let (major, minor) = MIN_KERNEL;
    Err(SetupError {
        errno: Some(Errno::ENOSYS as i32),
        errno_name: Some("ENOSYS".to_owned()),
        ..SetupError::new(
            Step::Probe,
            format!("this kernel is {release}; cellblock needs Linux {major}.{minor} or later"),
        )
    }
    .hint("mount_setattr came with Linux 5.12, landlock with 5.13 and cgroup.kill with 5.14: boot a newer kernel"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        for (release, numbers) in [
            ("6.12.9-amd64", (6, 12)),
            ("7.3.4+deb13-cloud-amd64", (7, 3)),
            ("5.10", (5, 10)),
            ("6", (6, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(parse_release(release), numbers, "{release}");
        }
    }

    #[test]
    fn an_old_kernel_is_refused_by_name() {
        let error = check_kernel((5, 10), "5.10.0-35-cloud-amd64").unwrap_err();
        assert!(error.message.contains("5.10.0-35-cloud-amd64"), "{error}");
        assert!(error.message.contains("5.14"), "{error}");
        assert!(error.hint.is_some());
        assert!(check_kernel((5, 14), "5.14").is_ok());
        assert!(check_kernel((7, 0), "7.0").is_ok());
    }

    #[test]
    fn id_maps_are_read() {
        assert_eq!(
            parse_id_map("         0          0 4294967295\n"),
            [(0, 0, u32::MAX)]
        );
        assert_eq!(
            parse_id_map("0 1000 1\n1 100000 65536\n"),
            [(0, 1000, 1), (1, 100_000, 65536)]
        );
        assert_eq!(parse_id_map("nonsense\n"), []);
    }
}
