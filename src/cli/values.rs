//! Values of flags that are more than text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use spec::{Bytes, Device, PassedFd};

/// `SRC[:DST]`. The last colon counts, so a source with a colon in its name
/// needs its destination spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPair {
    /// The host's path.
    pub source: PathBuf,
    /// The path inside, if given.
    pub target: Option<PathBuf>,
}

/// Reads [`PathPair`]; any bytes may be in it.
pub(super) fn path_pair(text: OsString) -> Result<PathPair, String> {
    let bytes = text.as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (source, target) = match bytes.iter().rposition(|b| *b == b':') {
        Some(colon) => (&bytes[..colon], Some(&bytes[colon + 1..])),
        None => (bytes, None),
    };
    if source.is_empty() || target.is_some_and(<[u8]>::is_empty) {
        return Err("wants SRC, or SRC:DST with something on both sides".to_owned());
    }
    Ok(PathPair {
        source: path(source),
        target: target.map(path),
    })
}

/// The content and the path of a file that is put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFrom {
    /// A file of the host's.
    Host(PathPair),
    /// What can be read from a descriptor that the caller has opened.
    Descriptor(i32, PathBuf),
}

/// Reads [`FileFrom`]: `SRC[:DST]` or `fd:N:DST` (`./fd:3` for an odd name).
pub(super) fn file_from(text: OsString) -> Result<FileFrom, String> {
    let Some(rest) = text.as_bytes().strip_prefix(b"fd:") else {
        return path_pair(text).map(FileFrom::Host);
    };
    let wanted = "wants the number of an open descriptor, 3 or higher, and a path: fd:N:DST";
    let colon = rest.iter().position(|byte| *byte == b':');
    let (number, path) = rest.split_at(colon.ok_or(wanted)?);
    let number = std::str::from_utf8(number)
        .ok()
        .and_then(|n| n.parse().ok());
    match (number, &path[1..]) {
        (Some(number @ 3..), path) if !path.is_empty() => {
            Ok(FileFrom::Descriptor(number, OsStr::from_bytes(path).into()))
        }
        _ => Err(wanted.to_owned()),
    }
}

/// `DST[:SIZE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmpfsAt {
    /// The path inside.
    pub path: PathBuf,
    /// The size, if given.
    pub size: Option<Bytes>,
}

/// Reads [`TmpfsAt`].
pub(super) fn tmpfs_at(text: OsString) -> Result<TmpfsAt, String> {
    let bytes = text.as_bytes();
    let (path, size) = match bytes.iter().rposition(|byte| *byte == b':') {
        None => (bytes, None),
        Some(colon) => {
            let size = String::from_utf8_lossy(&bytes[colon + 1..]);
            (&bytes[..colon], Some(size.parse()?))
        }
    };
    Ok(TmpfsAt {
        path: OsStr::from_bytes(path).into(),
        size,
    })
}

/// Reads `TARGET:DST`.
pub(super) fn link_at(text: OsString) -> Result<(PathBuf, PathBuf), String> {
    match path_pair(text)? {
        PathPair {
            source,
            target: Some(path),
        } => Ok((source, path)),
        _ => Err("wants TARGET:DST: what the link says, and where it is".to_owned()),
    }
}

/// Reads `NAME[:ro]`, a device below `/dev`.
pub(super) fn device(text: OsString) -> Result<Device, String> {
    let (name, read_only) = match text.as_bytes().strip_suffix(b":ro") {
        Some(name) => (OsStr::from_bytes(name), true),
        None => (text.as_os_str(), false),
    };
    match name.is_empty() {
        true => Err("wants NAME or NAME:ro".to_owned()),
        false => Ok(Device {
            name: name.into(),
            read_only,
        }),
    }
}

/// `NAME[=VALUE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The value; without it, the caller's own is passed.
    pub value: Option<OsString>,
}

impl Variable {
    /// Its value; if that is the caller's, it is looked up with `environment`.
    ///
    /// # Errors
    /// The caller has no variable of this name.
    pub fn value(&self, environment: impl Fn(&str) -> Option<OsString>) -> Result<RawText> {
        let value = self.value.clone().or_else(|| environment(&self.name));
        let value = value.ok_or_else(|| {
            let name = &self.name;
            SetupError::new(Step::Spec, "is not in the caller's environment")
                .on(format!("--env {name}"))
                .hint(format!("export it, or give a value: --env {name}=…"))
        })?;
        Ok(value.into())
    }
}

/// What stands before the first `=`, and what stands behind it.
pub(super) fn split_value(text: &OsStr) -> (&[u8], Option<&OsStr>) {
    let bytes = text.as_bytes();
    match bytes.iter().position(|b| *b == b'=') {
        Some(equals) => (
            &bytes[..equals],
            Some(OsStr::from_bytes(&bytes[equals + 1..])),
        ),
        None => (bytes, None),
    }
}

/// Reads [`Variable`]; any bytes may be in its value.
pub(super) fn variable(text: OsString) -> Result<Variable, String> {
    let (name, value) = split_value(&text);
    match std::str::from_utf8(name) {
        Ok(name) if !name.is_empty() => Ok(Variable {
            name: name.to_owned(),
            value: value.map(OsStr::to_owned),
        }),
        _ => Err("wants NAME or NAME=VALUE, the name in UTF-8".to_owned()),
    }
}

/// `PORT,…`, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortList(pub Vec<u16>);

impl FromStr for PortList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let ports = text.split(',').map(|port| match port.parse() {
            Ok(0) | Err(_) => Err(format!(
                "`{port}` is not a port from 1 to 65535; write several with commas, or none"
            )),
            Ok(port) => Ok(port),
        });
        ports.collect::<Result<_, _>>().map(Self)
    }
}

/// One `--net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkChoice {
    /// Loopback only.
    None,
    /// The host's own network.
    Host,
    /// `allow=`, a preset or a mirror, as spec files write it.
    Allow(String),
    /// `deny=`.
    Deny(String),
}

impl FromStr for NetworkChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("none", _) => Ok(Self::None),
            ("host", _) => Ok(Self::Host),
            (_, Some(("allow", host))) => Ok(Self::Allow(host.to_owned())),
            (_, Some(("deny", host))) => Ok(Self::Deny(host.to_owned())),
            _ if text.starts_with("preset:") || text.starts_with("mirror:") => {
                Ok(Self::Allow(text.to_owned()))
            }
            _ => Err(
                "wants none, allow=HOST[:PORT], deny=HOST[:PORT], preset:NAME, mirror:NAME or host"
                    .to_owned(),
            ),
        }
    }
}

/// Where a record or events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTo {
    /// Standard output.
    Stdout,
    /// A descriptor that the caller has opened; not one of the standard streams.
    Descriptor(i32),
    /// A file, created or replaced.
    File(PathBuf),
}

impl OutputTo {
    /// The number of the caller's descriptor.
    pub(super) fn descriptor(&self) -> Option<i32> {
        match self {
            Self::Descriptor(number) => Some(*number),
            _ => None,
        }
    }
}

/// Reads [`OutputTo`]: `-`, `fd:N`, or a path (`./fd:3` for an odd name).
pub(super) fn output_to(text: OsString) -> Result<OutputTo, String> {
    let bytes = text.as_bytes();
    if bytes == b"-" {
        return Ok(OutputTo::Stdout);
    }
    let Some(number) = bytes.strip_prefix(b"fd:") else {
        return Ok(OutputTo::File(text.into()));
    };
    let number = std::str::from_utf8(number).ok();
    match number.and_then(|number| number.parse().ok()) {
        Some(1) => Ok(OutputTo::Stdout),
        Some(number @ 3..) => Ok(OutputTo::Descriptor(number)),
        _ => Err(
            "wants the number of an open descriptor behind `fd:`, 3 or higher; `-` is standard \
             output"
                .to_owned(),
        ),
    }
}

/// Reads `N[=M]`.
pub(super) fn pass_fd(text: &str) -> Result<PassedFd, String> {
    let (from, to) = match text.split_once('=') {
        Some((from, to)) => (from, Some(to)),
        None => (text, None),
    };
    match (from.parse(), to.map(str::parse).transpose()) {
        (Ok(from @ 3..), Ok(to)) => Ok(PassedFd { from, to }),
        _ => Err(
            "wants the number of an open descriptor, 3 or higher: N, or N=M with its number inside"
                .to_owned(),
        ),
    }
}

/// Reads a number of a descriptor, or a path (`./3` for an odd name).
pub(super) fn info_to(text: OsString) -> Result<OutputTo, String> {
    let number = text.to_str().and_then(|text| text.parse::<i32>().ok());
    match number {
        Some(3..) => Ok(OutputTo::Descriptor(number.unwrap_or_default())),
        None if !text.is_empty() && text != "-" => Ok(OutputTo::File(text.into())),
        _ => Err("wants the number of an open descriptor, 3 or higher, or a file".to_owned()),
    }
}

/// Reads a name as files write it.
pub(super) fn named<T: DeserializeOwned>(name: String) -> Result<T, ValueError> {
    T::deserialize(name.into_deserializer())
}
