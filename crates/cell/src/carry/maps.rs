//! The mappings of a process (proc_pid_maps(5)).

use std::fs::File;
use std::io::Read as _;

use nix::errno::Errno;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use record::bytes::RawText;
use sys::memory::{PAGE, Span};

/// The most mappings that are carried: each may take a system call in the other cell.
pub(super) const MOST: usize = 16 * 1024;

/// The longest text that is read: the kernel's usual 65530 mappings fit.
const LONGEST_TEXT: u64 = 16 << 20;

pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const EXECUTE: u8 = 4;

/// Where user space ends, on every machine and with every paging depth.
const USER_END: u64 = 1 << 56;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// [`READ`], [`WRITE`] and [`EXECUTE`], the bits of mmap(2).
    pub(super) protection: u8,
    pub(super) shared: bool,
    pub(super) source: Source,
}

/// Where a mapping's content comes from at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    Anonymous,
    /// The main thread's stack, which grows.
    Stack,
    /// The kernel's own, such as `[vdso]`.
    Kernel(RawText),
    File {
        path: RawText,
        /// Device and inode.
        identity: (u64, u64),
        /// In the file, of the mapping's start.
        offset: u64,
    },
}

impl Mapping {
    pub(super) fn span(&self) -> Span {
        Span::new(self.start, self.end)
    }

    pub(super) fn allows(&self, protection: u8) -> bool {
        self.protection & protection == protection
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(self.source, Source::Kernel(_))
    }

    /// The source of the part from `at` on.
    pub(super) fn source_at(&self, at: u64) -> Source {
        let mut source = self.source.clone();
        if let Source::File { offset, .. } = &mut source {
            *offset = offset.saturating_add(at.saturating_sub(self.start));
        }
        source
    }
}

/// Reads the mappings of `pid`.
pub(super) fn of(pid: Pid) -> Result<Vec<Mapping>, Refusal> {
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        match errno {
            Errno::EACCES | Errno::EPERM => Refusal::Tracing(errno),
            Errno::ENOENT | Errno::ESRCH => Refusal::Gone,
            _ => Refusal::System("read", errno),
        }
    };
    let file = File::open(format!("/proc/{pid}/maps")).map_err(failed)?;
    let mut text = Vec::new();
    (file.take(LONGEST_TEXT).read_to_end(&mut text)).map_err(failed)?;
    let mappings: Option<Vec<Mapping>> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(parse)
        .collect();
    let mappings = mappings.ok_or(Refusal::Damaged("a mapping cannot be read"))?;
    check(&mappings)?;
    Ok(mappings)
}

/// Whether the mappings can be those of a process.
pub(super) fn check(mappings: &[Mapping]) -> Result<(), Refusal> {
    if mappings.len() > MOST {
        return Err(Refusal::TooMuch {
            what: "mappings",
            most: MOST as u64,
        });
    }
    let mut end = 0;
    for mapping in mappings {
        let is_aligned = mapping.start % PAGE == 0 && mapping.end % PAGE == 0;
        // The kernel's own may be above, such as [vsyscall].
        let is_low = mapping.end < USER_END || mapping.is_kernel();
        if mapping.start < end || mapping.span().is_empty() || !is_aligned || !is_low {
            return Err(Refusal::Damaged("its mappings are out of order"));
        }
        end = mapping.end;
    }
    Ok(())
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let field = &rest[start..];
        let length = (field.iter().position(|byte| *byte == b' ')).unwrap_or(field.len());
        rest = &field[length..];
        std::str::from_utf8(&field[..length]).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let flags = field()?.as_bytes();
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode: u64 = field()?.parse().ok()?;
    let name = rest.trim_ascii_start();
    let bit = |index: usize, letter: u8, bit: u8| match flags.get(index) {
        Some(found) if *found == letter => bit,
        _ => 0,
    };
    let source = match (inode, name) {
        (0, b"[stack]") => Source::Stack,
        (0, b"" | b"[heap]") => Source::Anonymous,
        (0, name) if name.starts_with(b"[anon") => Source::Anonymous,
        (0, name) => Source::Kernel(name.to_vec().into()),
        (inode, path) => Source::File {
            path: path.to_vec().into(),
            identity: (hex(major)? << 32 | hex(minor)?, inode),
            offset,
        },
    };
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        protection: bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE),
        shared: flags.get(3) == Some(&b's'),
        source,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let file = parse(b"7f00-8f00 r-xs 00001000 fe:01 42   /a b/c (deleted)").unwrap();
        assert_eq!((file.start, file.end), (0x7f00, 0x8f00));
        assert!(file.allows(READ | EXECUTE) && !file.allows(WRITE) && file.shared);
        let Source::File { path, offset, .. } = file.source_at(0x8000) else {
            panic!("{file:?}");
        };
        assert_eq!(
            (path.as_bytes(), offset),
            (&b"/a b/c (deleted)"[..], 0x1100)
        );
        let source = |line: &[u8]| parse(line).unwrap().source;
        assert_eq!(source(b"1000-2000 rw-p 0 00:00 0"), Source::Anonymous);
        assert_eq!(
            source(b"1000-2000 rw-p 0 00:00 0    [anon:name]"),
            Source::Anonymous
        );
        assert!(matches!(
            source(b"1000-2000 r-xp 0 00:00 0  [vdso]"),
            Source::Kernel(_)
        ));
        for bad in ["", "1-", "1000-2000 rw-p", "x-y rw-p 0 0:0 0"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn own_mappings_are_in_order() {
        let mappings = of(Pid::this()).unwrap();
        assert!(mappings.iter().any(|one| one.source == Source::Stack));
        let mut turned = mappings.clone();
        turned.reverse();
        assert!(check(&turned).is_err());
    }
}
