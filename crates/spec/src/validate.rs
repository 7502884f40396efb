//! What values are allowed, whichever layer they stand in.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use super::WORKSPACE;
use super::network::PartialNetwork;
use super::partial::{Partial, PartialBind, PartialFile, PartialOverlay, PartialPlace};
use super::places::{MOST_TMPFS, PlaceKind, own_path};
use super::ports::PartialPorts;
use super::read::quoted_key;
use super::units::Bytes;
use record::bytes::{RawText, decode_base64};

/// A value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its field, dotted.
    pub field: String,
    /// The value, and what is allowed.
    pub message: String,
}

/// Every value of a layer that is not allowed. Host paths are absolute by now
/// ([`Partial::root_at`]).
pub(super) fn faults(partial: &Partial) -> Vec<Fault> {
    let mut found = Found(Vec::new());
    found.command(partial);
    found.names(partial);
    found.0.extend(partial.limits.faults());
    found.network(partial);
    found.landlock(partial);
    found.env(partial);
    found.targets(partial);
    found.devices(partial);
    found.0
}

/// What several layers together put at the same path, and the like: each of them alone
/// is allowed.
pub(super) fn clashes(merged: &Partial) -> Vec<Fault> {
    let mut found = Found(Vec::new());
    found.targets(merged);
    found.0
}

struct Found(Vec<Fault>);

impl Found {
    fn push(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault {
            field: field.into(),
            message: message.into(),
        });
    }

    fn command(&mut self, partial: &Partial) {
        if let Some(argv) = &partial.argv {
            if argv
                .first()
                .is_none_or(|program| program.as_bytes().is_empty())
            {
                self.push("argv", "is empty, but wants the program's name first");
            }
            self.no_nul("argv", argv);
        }
        if let Some(args) = &partial.args {
            self.no_nul("args", args);
        }
        if partial.code.is_some() && partial.code_file.is_some() {
            self.push("code_file", "is given next to `code`, but only one can run");
        }
        if partial.argv.is_some() && (partial.code.is_some() || partial.code_file.is_some()) {
            self.push("argv", "is given next to code, but only one can run");
        }
        for (field, path) in [
            ("out", &partial.out),
            ("files_from", &partial.files_from),
            ("workspace", &partial.workspace),
            ("keep_tmp", &partial.keep_tmp),
        ] {
            if let Some(path) = path {
                self.host_path(field, path);
            }
        }
        let most = Bytes(Bytes::GIB);
        if let Some(size) = partial.inline_files.filter(|size| *size > most) {
            self.push(
                "inline_files",
                format!("is {size}, but wants at most {most}"),
            );
        }
    }

    fn no_nul(&mut self, field: &str, words: &[RawText]) {
        for (index, word) in words.iter().enumerate() {
            if word.as_bytes().contains(&0) {
                let field = format!("{field}[{index}]");
                self.push(field, "holds a NUL byte, which no argument can");
            }
        }
    }

    fn names(&mut self, partial: &Partial) {
        if let Some(name) = &partial.hostname
            && !is_hostname(name)
        {
            self.push(
                "hostname",
                format!(
                    "is {name:?}, but wants 1 to 64 letters, digits, `-` or `.`, and neither \
                     of the last two first"
                ),
            );
        }
        if let Some(cwd) = &partial.cwd {
            self.inner_path("cwd", cwd);
        }
        for (field, name) in [("rootfs", &partial.rootfs), ("seccomp", &partial.seccomp)] {
            if name
                .as_ref()
                .is_some_and(|n| n.is_empty() || n.contains('\0'))
            {
                self.push(
                    field,
                    "is empty or holds a NUL byte, but wants a name or a path",
                );
            }
        }
        if let Some(cgroup) = &partial.cgroup
            && !matches!(cgroup.as_str(), "auto" | "none")
            && (!cgroup.contains('/') || cgroup.contains('\0'))
        {
            self.push(
                "cgroup",
                format!("is {cgroup:?}, but wants auto, none, or a path with a `/`"),
            );
        }
        // The one above is that of ids which are not mapped.
        // What has no owner in the cell is shown as this user's.
        if partial
            .uid
            .is_some_and(|uid| [65534, u32::MAX].contains(&uid))
        {
            self.push(
                "uid",
                "wants a uid from 0 to 4294967294 other than 65534, which is nobody's",
            );
        }
        if partial.outer_uid == Some(0) || partial.outer_uid == Some(u32::MAX) {
            self.push(
                "outer_uid",
                "wants an unprivileged uid from 1 to 4294967294",
            );
        }
    }

    fn network(&mut self, partial: &Partial) {
        if let Some(PartialNetwork::Hosts(egress)) = &partial.network
            && let Some((field, message)) = egress.fault()
        {
            self.push(format!("network.{field}"), message);
        }
    }

    fn landlock(&mut self, partial: &Partial) {
        let landlock = &partial.landlock;
        if let Some(abi) = landlock.min_abi.filter(|abi| !(1..=1000).contains(abi)) {
            self.push("landlock.min_abi", format!("is {abi}, but wants 1 to 1000"));
        }
        for (protocol, ports) in [("tcp", &landlock.tcp), ("udp", &landlock.udp)] {
            let Some(PartialPorts::Ports(ports)) = ports else {
                continue;
            };
            for (field, ports) in [("connect", &ports.connect), ("bind", &ports.bind)] {
                if ports.as_ref().is_some_and(|ports| ports.contains(&0)) {
                    self.push(
                        format!("landlock.{protocol}.{field}"),
                        "holds port 0, but wants ports from 1 to 65535",
                    );
                }
            }
        }
    }

    fn env(&mut self, partial: &Partial) {
        for name in &partial.env_unset {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.push(
                    "env_unset",
                    format!("holds {name:?}, which no variable is called"),
                );
            }
        }
        for (name, value) in &partial.env {
            let field = format!("env.{}", quoted_key(name));
            if name.is_empty() || name.contains(['=', '\0']) {
                self.push(
                    field,
                    "has a name that is empty or holds `=` or NUL, which no environment can",
                );
            } else if value.as_bytes().contains(&0) {
                self.push(field, "holds a NUL byte, which no environment can");
            }
        }
    }

    fn targets(&mut self, partial: &Partial) {
        let mut targets = BTreeSet::new();
        self.binds(&partial.binds, &mut targets);
        self.overlays(&partial.overlays, &mut targets);
        self.places(&partial.places, &mut targets);
        self.files(&partial.files, &mut targets);
        self.tmpfs(partial);
        for (field, paths) in [
            ("protect", &partial.protect),
            ("unprotect", &partial.unprotect),
        ] {
            for (index, path) in paths.iter().enumerate() {
                let ascends = path.components().any(|c| c == Component::ParentDir);
                if path.file_name().is_none() || ascends || has_nul(path.as_os_str()) {
                    let shown = path.display();
                    self.push(
                        format!("{field}[{index}]"),
                        format!("is `{shown}`, but wants a path without `..` or NUL"),
                    );
                }
            }
        }
    }

    fn binds<'p>(&mut self, binds: &'p [PartialBind], targets: &mut BTreeSet<&'p Path>) {
        for (index, bind) in binds.iter().enumerate() {
            self.host_path(&format!("binds[{index}].source"), &bind.source);
            let Some(target) = &bind.target else { continue };
            let field = format!("binds[{index}].target");
            self.target(&field, target);
            if !targets.insert(target) {
                let shown = target.display();
                self.push(&field, format!("is `{shown}`, which an earlier bind has"));
            }
        }
    }

    fn overlays<'p>(&mut self, overlays: &'p [PartialOverlay], targets: &mut BTreeSet<&'p Path>) {
        for (index, overlay) in overlays.iter().enumerate() {
            self.host_path(&format!("overlays[{index}].source"), &overlay.source);
            let Some(target) = &overlay.target else {
                continue;
            };
            let field = format!("overlays[{index}].target");
            self.target(&field, target);
            if !targets.insert(target) {
                let shown = target.display();
                self.push(field, format!("is `{shown}`, where something else goes"));
            }
        }
    }

    /// A path inside where something of the caller's goes.
    fn target(&mut self, field: &str, target: &Path) {
        self.inner_path(field, target);
        let shown = target.display();
        if target == Path::new("/") {
            let message = "is `/`, but wants a place below it; --rootfs chooses the root";
            self.push(field, message);
        } else if let Some(own) = own_path(target) {
            self.push(field, format!("is `{shown}`, but {own} is the cell's own"));
        }
    }

    fn places<'p>(&mut self, places: &'p [PartialPlace], targets: &mut BTreeSet<&'p Path>) {
        for (index, place) in places.iter().enumerate() {
            let field = format!("places[{index}].path");
            self.target(&field, &place.path);
            if let Some((part, message)) = place.fault() {
                self.push(format!("places[{index}].{part}"), message);
            }
            if place.to.as_ref().is_some_and(|to| has_nul(to.as_os_str())) {
                self.push(format!("places[{index}].to"), "holds a NUL byte");
            }
            if !targets.insert(&place.path) {
                let shown = place.path.display();
                self.push(field, format!("is `{shown}`, where something else goes"));
            }
        }
    }

    /// An overlay has a tmpfs for what is changed in it.
    fn tmpfs(&mut self, partial: &Partial) {
        let is_tmpfs = |place: &&PartialPlace| place.kind == PlaceKind::Tmpfs;
        let count = partial.places.iter().filter(is_tmpfs).count();
        let overlays = partial.overlays.len();
        if count + overlays > MOST_TMPFS {
            let field = if overlays > count {
                "overlays"
            } else {
                "places"
            };
            let with = match overlays {
                0 => String::new(),
                overlays => format!(" and {overlays} overlays"),
            };
            self.push(
                field,
                format!("has {count} tmpfs{with}, but wants at most {MOST_TMPFS} together"),
            );
        }
    }

    fn devices(&mut self, partial: &Partial) {
        for (index, device) in partial.devices.iter().enumerate() {
            if let Some(message) = device.fault() {
                self.push(format!("devices[{index}].name"), message);
            }
            let mut earlier = partial.devices[..index].iter();
            if earlier.any(|earlier| earlier.name == device.name) {
                let shown = device.name.display();
                let message = format!("is `{shown}`, which an earlier device is");
                self.push(format!("devices[{index}].name"), message);
            }
        }
    }

    fn files<'p>(&mut self, files: &'p [PartialFile], targets: &mut BTreeSet<&'p Path>) {
        let mut paths = BTreeSet::new();
        for (index, file) in files.iter().enumerate() {
            let field = format!("files[{index}].path");
            let shown = file.path.display();
            let normal = |c: Component<'_>| matches!(c, Component::Normal(_));
            if file.path.is_absolute() {
                self.target(&field, &file.path);
                if !targets.insert(&file.path) {
                    self.push(&field, format!("is `{shown}`, where something else goes"));
                }
            } else if has_nul(file.path.as_os_str())
                || file.path.file_name().is_none()
                || !file.path.components().all(normal)
            {
                self.push(
                    &field,
                    format!(
                        "is `{shown}`, but wants a path relative to {WORKSPACE} without `..` or NUL"
                    ),
                );
            }
            if !paths.insert(&file.path) {
                self.push(&field, format!("is `{shown}`, which an earlier file has"));
            }
            let contents = [
                file.text.is_some(),
                file.base64.is_some(),
                file.source.is_some(),
                file.given.is_some(),
            ];
            if contents.iter().filter(|given| **given).count() != 1 {
                self.push(
                    format!("files[{index}]"),
                    "wants exactly one of text, base64 and source",
                );
            }
            if let Some(Err(message)) = file.base64.as_deref().map(decode_base64) {
                self.push(format!("files[{index}].base64"), message);
            }
            if let Some(source) = &file.source {
                self.host_path(&format!("files[{index}].source"), source);
            }
        }
    }

    fn host_path(&mut self, field: &str, path: &Path) {
        if path.as_os_str().is_empty() || has_nul(path.as_os_str()) {
            self.push(field, "is empty or holds a NUL byte, but wants a path");
        }
    }

    fn inner_path(&mut self, field: &str, path: &Path) {
        let ascends = path.components().any(|c| c == Component::ParentDir);
        if !path.is_absolute() || ascends || has_nul(path.as_os_str()) {
            self.push(
                field,
                format!(
                    "is `{}`, but wants an absolute path without `..` or NUL",
                    path.display()
                ),
            );
        }
    }
}

fn is_hostname(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=64).contains(&name.len())
        && name.bytes().all(allowed)
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
}

pub(super) fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}
