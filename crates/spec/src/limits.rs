//! The limits on resources. One table gives each limit its field in profiles, spec
//! files and requests, the values that it allows, its option on the command line,
//! and its name and unit in the record.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::partial::is_default;
use super::quantity::{AutoBound, Bound, Setting};
use super::resolve::need;
use super::validate::Fault;
use super::{Bytes, OnOutput, Scratch};
use record::error::Result;

/// One limit.
pub struct Limit {
    /// Which.
    pub name: Name,
    /// Its field below `limits` in files, such as `tmp.size`.
    pub field: &'static str,
    /// Its option on the command line, then other names of that; empty when it has
    /// none.
    pub flags: &'static [&'static str],
    /// What the option's value is called in help texts.
    pub value_name: &'static str,
    /// Its unit in the record.
    pub unit: &'static str,
    /// What it bounds.
    about: &'static str,
    /// The values that it allows, in its unit, and in words.
    allowed: RangeInclusive<f64>,
    wanted: &'static str,
    /// Whether it can be `none`, and whether `auto`.
    is_liftable: bool,
    has_auto: bool,
    read: fn(&mut PartialLimits, &str) -> Result<(), String>,
    given: fn(&PartialLimits) -> Option<Given>,
    amount: fn(&Limits) -> Option<f64>,
}

/// The name of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `wall`
    Wall,
    /// `grace`
    Grace,
    /// `cpu_time`
    CpuTime,
    /// `cpus`
    Cpus,
    /// `memory`
    Memory,
    /// `processes`
    Processes,
    /// `open_files`
    OpenFiles,
    /// `data`
    Data,
    /// `file_size`
    FileSize,
    /// `address_space`
    AddressSpace,
    /// `stack`
    Stack,
    /// `output`
    Output,
    /// `results`
    Results,
    /// `net_sent`
    NetSent,
    /// `net_received`
    NetReceived,
    /// `connections`
    Connections,
    /// `connections_total`
    ConnectionsTotal,
    /// `connection_rate`
    ConnectionRate,
    /// `dns_queries`
    DnsQueries,
    /// `tmp.size` and its like
    Size(Scratch),
    /// `tmp.inodes` and its like
    Inodes(Scratch),
}

/// A limit's value as a file or an option gives it.
pub struct Given {
    /// As it is written.
    pub text: String,
    /// In the limit's unit; `None` when it is lifted.
    pub amount: Option<f64>,
}

impl Limit {
    /// Its name in the record.
    pub fn record_name(&self) -> String {
        self.field.replace('.', "_")
    }

    /// Its help text, and its documentation in files.
    pub fn help(&self) -> String {
        format!("{} ({})", self.about, self.wanted())
    }

    /// The value in `limits`, if it has one.
    pub fn given(&self, limits: &PartialLimits) -> Option<Given> {
        (self.given)(limits)
    }

    /// Sets the value in `limits`.
    ///
    /// # Errors
    /// Says what the text should look like.
    pub fn read(&self, text: &str, limits: &mut PartialLimits) -> Result<(), String> {
        (self.read)(limits, text)
    }

    /// The value in its unit; `None` when there is no limit.
    pub fn amount(&self, limits: &Limits) -> Option<f64> {
        (self.amount)(limits)
    }

    /// A value as a bound. A grace that is not given is no time at all; another limit
    /// that is not given does not bound anything.
    fn bound(&self, given: Option<&Given>) -> f64 {
        let absent = match self.name {
            Name::Grace => 0.0,
            _ => f64::INFINITY,
        };
        given.and_then(|given| given.amount).unwrap_or(absent)
    }

    fn wanted(&self) -> String {
        let words = match (self.is_liftable, self.has_auto) {
            (_, true) => ", none or auto",
            (true, false) => ", or none",
            (false, false) => "",
        };
        format!("{}{words}", self.wanted)
    }

    fn fault(&self, message: String) -> Fault {
        Fault {
            field: format!("limits.{}", self.field),
            message,
        }
    }
}

impl PartialLimits {
    /// Values that are not allowed.
    pub(super) fn faults(&self) -> impl Iterator<Item = Fault> {
        table().filter_map(|limit| {
            let given = limit.given(self)?;
            (!limit.allowed.contains(&given.amount?))
                .then(|| limit.fault(format!("is {}, but wants {}", given.text, limit.wanted())))
        })
    }

    /// The first value that is above the one in `ceiling`.
    pub(super) fn exceeding(&self, ceiling: &Self) -> Option<Fault> {
        table().find_map(|limit| {
            let given = limit.given(self)?;
            let most = match limit.name {
                Name::Data | Name::OpenFiles if is_auto(limit, ceiling) => {
                    chosen_at_least(limit.name, ceiling).filter(|_| !is_auto(limit, self))
                }
                _ => limit.given(ceiling),
            };
            (limit.bound(Some(&given)) > limit.bound(most.as_ref())).then(|| {
                let most = most.map_or_else(|| "none".to_owned(), |most| most.text);
                let given = given.text;
                limit.fault(format!("is {given}, but the caller allows at most {most}"))
            })
        })
    }
}

fn is_auto(limit: &Limit, limits: &PartialLimits) -> bool {
    match limit.name {
        Name::Data => limits.data == Some(AutoBound::Auto),
        Name::OpenFiles => limits.open_files == Some(AutoBound::Auto),
        _ => false,
    }
}

/// What `auto` is on every host and for every program, if it is a limit at all.
fn chosen_at_least(name: Name, limits: &PartialLimits) -> Option<Given> {
    match name {
        Name::OpenFiles => Some(Given {
            text: OPEN_FILES.to_string(),
            amount: Some(OPEN_FILES as f64),
        }),
        _ => limits.memory.map(|memory| Given {
            text: memory.show(),
            amount: memory.amount(),
        }),
    }
}

const YEAR_MS: f64 = 365.0 * 24.0 * 60.0 * 60.0 * 1000.0;
const GIB: f64 = Bytes::GIB as f64;
const EXBIBYTE: f64 = GIB * GIB;

macro_rules! limit {
    (
        $name:expr, $field:expr, $flags:expr, $($part:ident).+: $given:ty,
        $unit:literal, $allowed:expr, $wanted:literal, $about:expr
    ) => {
        Limit {
            name: $name,
            field: $field,
            flags: &$flags,
            value_name: <$given as Setting>::VALUE_NAME,
            unit: $unit,
            about: $about,
            allowed: $allowed,
            wanted: $wanted,
            is_liftable: <$given as Setting>::IS_LIFTABLE,
            has_auto: <$given as Setting>::HAS_AUTO,
            read: |limits, text| {
                limits.$($part).+ = Some(Setting::from_text(text)?);
                Ok(())
            },
            given: |limits| limits.$($part).+.map(|value| Given {
                text: Setting::show(&value),
                amount: Setting::amount(&value),
            }),
            amount: |limits| <$given>::from(limits.$($part).+).amount(),
        }
    };
}

/// Declares the limits that are fields of `limits` themselves.
macro_rules! limits {
    ($(
        $name:ident, $field:ident, $flags:expr, $given:ty => $held:ty,
        $unit:literal, $allowed:expr, $wanted:literal, $about:literal;
    )*) => {
        /// Bounds on resources. `"none"` lifts one.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct PartialLimits {
            $(
                #[doc = concat!($about, " (", $wanted, ").")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$given>,
            )*
            /// What happens beyond `output`: `truncate` keeps head and tail and counts
            /// the rest, `kill` ends the cell.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub on_output: Option<OnOutput>,
            /// The tmpfs on `/tmp`.
            #[serde(skip_serializing_if = "is_default")]
            pub tmp: PartialTmpfs,
            /// The tmpfs on `/workspace`.
            #[serde(skip_serializing_if = "is_default")]
            pub workspace: PartialTmpfs,
            /// The tmpfs on `/dev/shm`.
            #[serde(skip_serializing_if = "is_default")]
            pub shm: PartialTmpfs,
        }

        /// Bounds on resources. `None` means no bound.
        #[derive(Clone, Debug, Serialize)]
        pub struct Limits {
            $(
                #[doc = concat!($about, ".")]
                pub $field: $held,
            )*
            /// What happens when a stream exceeds `output`.
            pub on_output: OnOutput,
            /// The tmpfs on `/tmp`.
            pub tmp: TmpfsLimit,
            /// The tmpfs on `/workspace`.
            pub workspace: TmpfsLimit,
            /// The tmpfs on `/dev/shm`.
            pub shm: TmpfsLimit,
        }

        impl PartialLimits {
            /// These limits with later ones on top.
            pub(super) fn merge(self, later: Self) -> Self {
                Self {
                    $( $field: later.$field.or(self.$field), )*
                    on_output: later.on_output.or(self.on_output),
                    tmp: self.tmp.merge(later.tmp),
                    workspace: self.workspace.merge(later.workspace),
                    shm: self.shm.merge(later.shm),
                }
            }

            /// # Errors
            /// A limit that no layer sets.
            pub(super) fn complete(self) -> Result<Limits> {
                Ok(Limits {
                    $( $field: need(self.$field, concat!("limits.", stringify!($field)))?.into(), )*
                    on_output: need(self.on_output, "limits.on_output")?,
                    tmp: self.tmp.complete("limits.tmp.size", "limits.tmp.inodes")?,
                    workspace: self.workspace.complete("limits.workspace.size", "limits.workspace.inodes")?,
                    shm: self.shm.complete("limits.shm.size", "limits.shm.inodes")?,
                })
            }
        }

        static FIELDS: &[Limit] = &[
            $( limit!(
                Name::$name, stringify!($field), $flags, $field: $given, $unit, $allowed, $wanted, $about
            ), )*
        ];
    };
}

limits! {
    Wall, wall, ["wall", "timeout"], Bound<Duration> => Option<Duration>,
        "ms", 1.0..=YEAR_MS, "1ms to 365d",
        "Real time from the program's start to its end, such as 500ms, 2s or 1m 30s; a bare number is seconds";
    Grace, grace, ["grace"], Bound<Duration> => Option<Duration>,
        "ms", 1.0..=YEAR_MS, "1ms to 365d",
        "Real time on top of `wall` in which the program can end by itself: its process group first gets SIGTERM, or the signal that cancels the run, and is killed afterwards";
    CpuTime, cpu_time, ["cpu-time"], Bound<Duration> => Option<Duration>,
        "ms", 1.0..=YEAR_MS, "1ms to 365d",
        "CPU time of all processes together, user and system";
    Cpus, cpus, ["cpus"], Bound<f64> => Option<f64>,
        "cpus", 0.01..=4096.0, "0.01 to 4096",
        "CPUs that may be busy at once, such as 1 or 0.5";
    Memory, memory, ["memory"], Bound<Bytes> => Option<Bytes>,
        "bytes", 4.0 * Bytes::MIB as f64..=EXBIBYTE, "4M or more",
        "Memory of all processes together, swap excluded, in bytes or with K, M, G or T for powers of 1024";
    Processes, processes, ["processes"], Bound<u64> => Option<u64>,
        "count", 1.0..=4_194_304.0, "1 to 4194304",
        "Processes and threads alive at the same time";
    OpenFiles, open_files, ["open-files"], AutoBound<u64> => AutoBound<u64>,
        "count", 8.0..=1_048_576.0, "8 to 1048576",
        "Open descriptors of each process; auto is 1024 where a memory cgroup counts what they hold, and 256 without one";
    Data, data, ["data"], AutoBound<Bytes> => AutoBound<Bytes>,
        "bytes", 4.0 * Bytes::MIB as f64..=EXBIBYTE, "4M or more",
        "Private writable memory that each process maps, used or not; auto is no limit where a cgroup bounds memory, and else `memory` plus 4G, since programs reserve more than they use, and `memory` alone for Python itself; sanitizers need none";
    FileSize, file_size, ["file-size"], Bound<Bytes> => Option<Bytes>,
        "bytes", 0.0..=EXBIBYTE, "at most 1048576T",
        "Size of each file that is written; not of a file of the caller's that standard output or standard error goes to";
    AddressSpace, address_space, ["address-space"], Bound<Bytes> => Option<Bytes>,
        "bytes", 16.0 * Bytes::MIB as f64..=EXBIBYTE, "16M or more",
        "Address space of each process, which programs reserve much more of than they use";
    Stack, stack, ["stack"], Bound<Bytes> => Option<Bytes>,
        "bytes", 65536.0..=EXBIBYTE, "64K or more",
        "Stack of each process's first thread; with none it is 8M, and a program can raise it up to its memory";
    Output, output, ["output"], Bytes => Bytes,
        "bytes", 0.0..=GIB, "at most 1G",
        "Bytes kept of each of stdout and stderr";
    Results, results, ["results"], Bytes => Bytes,
        "bytes", 0.0..=GIB, "at most 1G",
        "Bytes kept of all results together, as they stand in the record; the rest is counted";
    NetSent, net_sent, ["net-sent"], Bound<Bytes> => Option<Bytes>,
        "bytes", 0.0..=EXBIBYTE, "at most 1048576T",
        "Bytes sent to allowed hosts, over all connections";
    NetReceived, net_received, ["net-received"], Bound<Bytes> => Option<Bytes>,
        "bytes", 0.0..=EXBIBYTE, "at most 1048576T",
        "Bytes received from allowed hosts, over all connections";
    Connections, connections, ["connections"], u64 => u64,
        "count", 1.0..=10_000.0, "1 to 10000",
        "Connections to allowed hosts at once";
    ConnectionsTotal, connections_total, ["connections-total"], Bound<u64> => Option<u64>,
        "count", 1.0..=1e12, "1 to 1000000000000",
        "Connections to allowed hosts in all";
    ConnectionRate, connection_rate, ["connection-rate"], Bound<u64> => Option<u64>,
        "count/s", 1.0..=100_000.0, "1 to 100000",
        "New connections to allowed hosts per second; twice as many can come at once";
    DnsQueries, dns_queries, ["dns-queries"], Bound<u64> => Option<u64>,
        "count", 0.0..=1e12, "at most 1000000000000",
        "DNS queries in all";
}

/// What runtimes may map beyond the memory, where each mapping counts: Node reserves half a
/// gigabyte for the code of each thread, Lisps and Bun reserve their heaps.
pub const RESERVE: Bytes = Bytes(4 * Bytes::GIB);
/// Descriptors of each process where nothing counts the buffers of its sockets: a quarter of the
/// usual soft limit, which few programs reach.
pub const OPEN_FILES: u64 = 256;
/// Descriptors of each process where a cgroup does: the usual soft limit.
pub const OPEN_FILES_COUNTED: u64 = 1024;

/// Bounds of a tmpfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PartialTmpfs {
    /// Bytes of content: at least 64K.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Files and directories: at least 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

/// Bounds of a tmpfs; both always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TmpfsLimit {
    /// Bytes of content (`size=`).
    pub size: Bytes,
    /// Files and directories (`nr_inodes=`).
    pub inodes: u64,
}

impl PartialTmpfs {
    fn merge(self, later: Self) -> Self {
        Self {
            size: later.size.or(self.size),
            inodes: later.inodes.or(self.inodes),
        }
    }

    fn complete(self, size: &str, inodes: &str) -> Result<TmpfsLimit> {
        Ok(TmpfsLimit {
            size: need(self.size, size)?,
            inodes: need(self.inodes, inodes)?,
        })
    }
}

macro_rules! tmpfs {
    ($scratch:ident, $part:ident, $path:literal, $flag:literal) => {
        [
            // The kernel reads a zero of either as "no limit".
            limit!(
                Name::Size(Scratch::$scratch), concat!(stringify!($part), ".size"), [$flag], $part.size: Bytes,
                "bytes", 65536.0..=EXBIBYTE, "64K or more",
                concat!("Size of the tmpfs on ", $path)
            ),
            limit!(
                Name::Inodes(Scratch::$scratch), concat!(stringify!($part), ".inodes"), [], $part.inodes: u64,
                "count", 16.0..=4_294_967_296.0, "16 to 4294967296",
                concat!("Files and directories in the tmpfs on ", $path)
            ),
        ]
    };
}

static TMPFS: [[Limit; 2]; 3] = [
    tmpfs!(Tmp, tmp, "/tmp", "tmp-size"),
    tmpfs!(Workspace, workspace, "/workspace", "workspace-size"),
    tmpfs!(Shm, shm, "/dev/shm", "shm-size"),
];

/// Every limit.
pub fn table() -> impl Iterator<Item = &'static Limit> {
    FIELDS.iter().chain(TMPFS.as_flattened())
}

impl Limits {
    /// The bounds of this tmpfs.
    pub const fn of(&self, scratch: Scratch) -> TmpfsLimit {
        match scratch {
            Scratch::Workspace => self.workspace,
            Scratch::Tmp => self.tmp,
            Scratch::Shm => self.shm,
        }
    }
}
