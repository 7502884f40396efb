//! An OCI bundle with the mounts of cellblock's plan, for crun and runc.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::Result;
use crate::mounts::{Mount, What, mounts};
use crate::scene::Scene;

/// Makes a bundle that runs `work`; returns its path. The filter allows the calls
/// that cellblock's policy allows, without its conditions. There are no masked
/// paths and there is no cgroup, which would cost the peers more.
pub(crate) fn bundle(scene: &Scene, work: &str) -> Result<PathBuf> {
    let bundle = scene.path("bundle");
    let rootfs = bundle.join("rootfs");
    fs::create_dir_all(&rootfs)?;
    let mut list = Vec::new();
    for mount in mounts(scene)? {
        list.extend(entry(&mount, &rootfs)?);
    }
    let only = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let namespaces = ["user", "pid", "mount", "network", "ipc", "uts", "cgroup"];
    let namespaces: Vec<Value> = namespaces
        .iter()
        .map(|kind| json!({"type": kind}))
        .collect();
    let config = json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [work],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/workspace",
            "capabilities": {},
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "cell",
        "mounts": list,
        "linux": {
            "uidMappings": only(scene.uid),
            "gidMappings": only(scene.uid),
            "namespaces": namespaces,
            "seccomp": filter(scene)?,
        },
    });
    fs::write(bundle.join("config.json"), serde_json::to_vec(&config)?)?;
    Ok(bundle)
}

/// The calls that the default policy allows at least in part; else ENOSYS.
fn filter(scene: &Scene) -> Result<Value> {
    let shown = Command::new(&scene.cellblock)
        .args(["policy", "show", "--seccomp", "default"])
        .output()?;
    let policy: Value = serde_json::from_slice(&shown.stdout)
        .map_err(|error| format!("cellblock policy show: {error}"))?;
    let rules = policy["rules"]
        .as_object()
        .ok_or("a policy without rules")?;
    let allowed = |rule: &Value| {
        let action = rule["action"].as_str().unwrap_or_default();
        ["allow", "allow_if", "deny_if"].contains(&action)
    };
    let names = rules.iter().filter(|(_, rule)| allowed(rule));
    let names: Vec<&String> = names.map(|(name, _)| name).collect();
    Ok(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::ENOSYS,
        "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}],
    }))
}

/// A mount in the bundle's terms; symlinks and directories are put into the
/// rootfs instead, and the devices are those that every runtime makes itself.
fn entry(mount: &Mount, rootfs: &Path) -> Result<Option<Value>> {
    let target = mount.target.as_str();
    let inside = rootfs.join(target.trim_start_matches('/'));
    let mounted = |kind: &str, source: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": source, "options": options});
    let value = match &mount.what {
        _ if target == "/" => return Ok(None),
        What::Tmpfs { size } => {
            let size = format!("size={size}");
            fs::create_dir_all(inside)?;
            mounted("tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777", &size])
        }
        What::Devpts => mounted("devpts", "devpts", &["nosuid", "noexec", "newinstance"]),
        _ if target.starts_with("/dev/") => return Ok(None),
        What::Bind { source } => {
            place(&inside, Path::new(source).is_dir())?;
            mounted("none", source, &["rbind", "ro", "nosuid", "nodev"])
        }
        What::Symlink { to } => {
            place(&inside, false)?;
            fs::remove_file(&inside)?;
            symlink(to, inside)?;
            return Ok(None);
        }
        What::Proc => {
            fs::create_dir_all(inside)?;
            mounted("proc", "proc", &[])
        }
        // Where the runtimes make their devices.
        What::Directory if target == "/dev" => {
            fs::create_dir_all(inside)?;
            mounted("tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"])
        }
        What::Directory => {
            fs::create_dir_all(inside)?;
            return Ok(None);
        }
    };
    Ok(Some(value))
}

/// Makes the place for a mount.
fn place(path: &Path, directory: bool) -> Result<()> {
    if directory {
        return Ok(fs::create_dir_all(path)?);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, "")?)
}
