//! The mappings of a process (proc_pid_maps(5), proc_pid_smaps(5)).

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use record::bytes::RawText;
use sys::memory::{PAGE, Span};

/// The most mappings that are carried: each may take a system call in the other cell.
pub(super) const MOST: usize = 16 * 1024;

/// The most bytes of all names that mappings have.
const MOST_NAMES: usize = 2 << 20;

/// The longest line that is read: a newline in a name has four characters there.
const LONGEST_LINE: u64 = 4 * libc::PATH_MAX as u64 + 256;

pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const EXECUTE: u8 = 4;

/// Where user space ends, on every machine and with every paging depth.
const USER_END: u64 = 1 << 56;

/// The name of a file; all mappings of the file share it.
pub(super) type Name = Arc<RawText>;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapping<N = Name> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// [`READ`], [`WRITE`] and [`EXECUTE`], the bits of mmap(2).
    pub(super) protection: u8,
    pub(super) shared: bool,
    pub(super) on_fork: OnFork,
    pub(super) source: Source<N>,
}

/// How a child of fork(2) gets a mapping (madvise(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFork {
    Copied,
    /// Without content: MADV_WIPEONFORK.
    Wiped,
    /// Without content, and the kernel may drop pages of it at any time: MAP_DROPPABLE.
    Droppable,
    /// Not at all: MADV_DONTFORK.
    Absent,
}

/// Where a mapping's content comes from at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source<N = Name> {
    Anonymous,
    /// The main thread's stack, which grows.
    Stack,
    /// The kernel's own, such as `[vdso]`.
    Kernel(N),
    File {
        path: N,
        /// Device and inode.
        identity: (u64, u64),
        /// In the file, of the mapping's start.
        offset: u64,
    },
}

impl<N: Clone> Mapping<N> {
    pub(super) fn span(&self) -> Span {
        Span::new(self.start, self.end)
    }

    pub(super) fn allows(&self, protection: u8) -> bool {
        self.protection & protection == protection
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(self.source, Source::Kernel(_))
    }

    /// Whether it can have pages of the process's own.
    pub(super) fn is_private(&self) -> bool {
        !self.is_kernel() && !self.shared
    }

    /// Whether the content of its pages is carried, as fork(2) copies it.
    pub(super) fn has_content(&self) -> bool {
        self.is_private() && self.on_fork == OnFork::Copied
    }

    /// The source of the part from `at` on.
    pub(super) fn source_at(&self, at: u64) -> Source<N> {
        let mut source = self.source.clone();
        if let Source::File { offset, .. } = &mut source {
            *offset = offset.saturating_add(at.saturating_sub(self.start));
        }
        source
    }

    /// The same with its name in another form.
    pub(super) fn rename<M, E>(
        &self,
        name: impl FnOnce(&N) -> Result<M, E>,
    ) -> Result<Mapping<M>, E> {
        Ok(Mapping {
            start: self.start,
            end: self.end,
            protection: self.protection,
            shared: self.shared,
            on_fork: self.on_fork,
            source: match &self.source {
                Source::Anonymous => Source::Anonymous,
                Source::Stack => Source::Stack,
                Source::Kernel(old) => Source::Kernel(name(old)?),
                Source::File {
                    path,
                    identity,
                    offset,
                } => Source::File {
                    path: name(path)?,
                    identity: *identity,
                    offset: *offset,
                },
            },
        })
    }
}

/// The names of a process's mappings.
#[derive(Default)]
struct Names {
    all: HashSet<Name>,
    bytes: usize,
}

impl Names {
    fn of(&mut self, name: &[u8]) -> Result<Name, Refusal> {
        let name = RawText::from(name.to_vec());
        if let Some(known) = self.all.get(&name) {
            return Ok(Arc::clone(known));
        }
        self.bytes += name.as_bytes().len();
        if self.bytes > MOST_NAMES {
            return Err(Refusal::TooMuch {
                what: "bytes in the names of mapped files",
                most: MOST_NAMES as u64,
            });
        }
        let name = Arc::new(name);
        self.all.insert(Arc::clone(&name));
        Ok(name)
    }
}

/// Reads the mappings of `pid`. Only smaps has their flags; for it, the kernel looks at every page.
pub(super) fn of(pid: Pid) -> Result<Vec<Mapping>, Refusal> {
    read_file(pid, "smaps")
}

/// The same as if a fork copied all of them: in a tenth of the time.
pub(super) fn without_flags(pid: Pid) -> Result<Vec<Mapping>, Refusal> {
    read_file(pid, "maps")
}

fn read_file(pid: Pid, name: &str) -> Result<Vec<Mapping>, Refusal> {
    let file = File::open(format!("/proc/{pid}/{name}")).map_err(failed)?;
    read(BufReader::with_capacity(64 << 10, file))
}

fn failed(error: std::io::Error) -> Refusal {
    match error.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
        errno @ (Errno::EACCES | Errno::EPERM) => Refusal::Tracing(errno),
        Errno::ENOENT | Errno::ESRCH => Refusal::Gone,
        errno => Refusal::System("read", errno),
    }
}

/// Reads line by line: the whole text can be as long as the names of 65530 files.
fn read(mut text: impl BufRead) -> Result<Vec<Mapping>, Refusal> {
    let mut names = Names::default();
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (text.by_ref().take(LONGEST_LINE)).read_until(b'\n', &mut line);
        if length.map_err(failed)? == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(Refusal::TooMuch {
                what: "bytes in the name of a mapped file",
                most: libc::PATH_MAX as u64,
            });
        }
        // A mapping begins with a number in lower case, and its fields with their names.
        if !line.first().is_some_and(u8::is_ascii_uppercase) {
            let mapping = parse(&line).ok_or(Refusal::Damaged("a mapping cannot be read"))?;
            mappings.push(mapping.rename(|name| names.of(name))?);
            refuse_too_many(&mappings)?;
        } else if let (Some(flags), Some(last)) =
            (line.strip_prefix(b"VmFlags:"), mappings.last_mut())
        {
            last.on_fork = on_fork(flags);
        }
    }
    check(&mappings)?;
    Ok(mappings)
}

fn on_fork(flags: &[u8]) -> OnFork {
    let has = |flag: &[u8]| flags.split(|byte| *byte == b' ').any(|one| one == flag);
    match () {
        () if has(b"dc") => OnFork::Absent,
        () if has(b"dp") => OnFork::Droppable,
        () if has(b"wf") => OnFork::Wiped,
        () => OnFork::Copied,
    }
}

fn refuse_too_many(mappings: &[Mapping]) -> Result<(), Refusal> {
    match mappings.len() > MOST {
        true => Err(Refusal::TooMuch {
            what: "mappings",
            most: MOST as u64,
        }),
        false => Ok(()),
    }
}

/// Whether the mappings can be those of a process.
pub(super) fn check(mappings: &[Mapping]) -> Result<(), Refusal> {
    refuse_too_many(mappings)?;
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

fn parse(line: &[u8]) -> Option<Mapping<&[u8]>> {
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
        (0, name) => Source::Kernel(name),
        (inode, path) => Source::File {
            path,
            identity: (hex(major)? << 32 | hex(minor)?, inode),
            offset,
        },
    };
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        protection: bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE),
        shared: flags.get(3) == Some(&b's'),
        on_fork: OnFork::Copied,
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
        assert_eq!((path, offset), (&b"/a b/c (deleted)"[..], 0x1100));
        let source = |line| parse(line).unwrap().source;
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

    /// A mapping of smaps, with the kernel's usual fields and these flags.
    fn field(number: u64, name: &str, flags: &str) -> String {
        let (start, end) = (number * PAGE, number * PAGE + PAGE);
        format!(
            "{start:x}-{end:x} rw-p 00000000 00:00 {} {name}\nRss:  4 kB\nVmFlags: rd wr {flags}\n",
            u8::from(name.starts_with('/')),
        )
    }

    #[test]
    fn flags_say_what_a_fork_has() {
        for (flags, wanted) in [
            ("mr mw me ac", OnFork::Copied),
            ("mr mw me ac wf", OnFork::Wiped),
            ("nr wf dd dp", OnFork::Droppable),
            ("dc mr", OnFork::Absent),
            // Others, whose names begin or end alike.
            ("wfx dcc", OnFork::Copied),
        ] {
            let text = field(1, "", "mr") + &field(2, "", flags);
            let found = read(text.as_bytes()).unwrap();
            let found: Vec<OnFork> = found.iter().map(|one| one.on_fork).collect();
            assert_eq!(found, [OnFork::Copied, wanted], "{flags}");
        }
    }

    #[test]
    fn no_list_is_read_in_part() {
        let of_files = |count: u64, name: &dyn Fn(u64) -> String| {
            let text: String = (1..=count).map(|n| field(n, &name(n), "mr")).collect();
            read(text.as_bytes())
        };
        let long = "/d".repeat(2000);
        // One name takes its room once.
        let many = of_files(15_000, &|_| long.clone()).unwrap();
        assert_eq!(many.len(), 15_000);
        let (Source::File { path: one, .. }, Source::File { path: last, .. }) =
            (&many[0].source, &many[14_999].source)
        else {
            panic!("{:?}", many[0]);
        };
        assert!(Arc::ptr_eq(one, last));
        for (refused, what) in [
            (of_files(MOST as u64 + 1, &|_| String::new()), "mappings"),
            (
                of_files(600, &|n| format!("{long}{n}")),
                "the names of mapped files",
            ),
            (
                of_files(1, &|_| "/d".repeat(9000)),
                "the name of a mapped file",
            ),
        ] {
            let refusal = refused.unwrap_err();
            assert!(refusal.to_string().contains(what), "{refusal}");
            assert_eq!(refusal.name(), "too_much");
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
