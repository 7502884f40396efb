//! The state of a process, apart from it.
//!
//! A file: a page with the header, then the content of all pages one behind the other,
//! then everything else as JSON. All of it comes from a hostile process, and the file may
//! have been changed by anyone: [`Image::open`] checks what it reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::descriptors::{self, Descriptors, What};
use super::maps::{self, Mapping};
use super::refusal::Refusal;
use record::bytes::RawText;
use sys::memory::{PAGE, Span};
use sys::trace::Registers;

const MAGIC: [u8; 8] = *b"cbimage1";
/// The most bytes of everything but pages.
const LONGEST_REST: u64 = 32 << 20;
/// The highest signal number.
pub(super) const SIGNALS: u8 = 64;
/// The number of resources that have limits (getrlimit(2)).
pub(super) const RESOURCES: u32 = 16;
/// The number of timers of setitimer(2).
pub(super) const TIMERS: usize = 3;

/// The state of a process at one moment.
#[derive(Debug)]
pub struct Image {
    pub(super) file: File,
    pub(super) rest: Rest,
}

/// Everything but the content of pages.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rest {
    /// General registers, in the kernel's order.
    pub(super) registers: Vec<u64>,
    /// Vector registers, as the kernel keeps them, in base64.
    pub(super) extended: String,
    /// Signals that are blocked.
    pub(super) blocked: u64,
    #[serde(with = "super::stored")]
    pub(super) mappings: Vec<Mapping>,
    /// The end of the heap.
    pub(super) heap_end: u64,
    /// Pages whose content the file has, in its order.
    content: Vec<(u64, u64)>,
    /// Pages that are as in its template.
    inherited: Vec<(u64, u64)>,
    /// For signals that are caught or ignored: `struct sigaction` of the kernel.
    pub(super) actions: Vec<(u8, [u64; 4])>,
    /// `stack_t`.
    pub(super) signal_stack: [u64; 3],
    pub(super) umask: u32,
    pub(super) directory: RawText,
    /// `struct itimerval` of each.
    pub(super) timers: [[u64; 4]; TIMERS],
    /// Soft and hard limit of each resource.
    pub(super) limits: Vec<(u64, u64)>,
    pub(super) filters: u64,
    pub(super) descriptors: Descriptors,
}

impl Rest {
    /// Pages whose content the file has.
    pub(super) fn content(&self) -> impl Iterator<Item = Span> + '_ {
        self.content
            .iter()
            .map(|(start, end)| Span::new(*start, *end))
    }

    /// Pages that are as in its template.
    pub(super) fn inherited(&self) -> impl Iterator<Item = Span> + '_ {
        (self.inherited.iter()).map(|(start, end)| Span::new(*start, *end))
    }

    pub(super) fn set_pages(&mut self, content: &[Span], inherited: &[Span]) {
        let pairs = |spans: &[Span]| spans.iter().map(|span| (span.start, span.end)).collect();
        self.content = pairs(content);
        self.inherited = pairs(inherited);
    }

    /// With no pages yet.
    pub(super) fn empty(registers: &Registers) -> Self {
        Self {
            registers: registers.words().to_vec(),
            extended: String::new(),
            blocked: 0,
            mappings: Vec::new(),
            heap_end: 0,
            content: Vec::new(),
            inherited: Vec::new(),
            actions: Vec::new(),
            signal_stack: [0; 3],
            umask: 0,
            directory: "/".into(),
            timers: [[0; 4]; TIMERS],
            limits: Vec::new(),
            filters: 0,
            descriptors: Descriptors::new(),
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let damaged = |what| Err(Refusal::Damaged(what));
        maps::check(&self.mappings)?;
        descriptors::check(&self.descriptors)?;
        if !self
            .mappings
            .iter()
            .any(|one| one.source == maps::Source::Stack)
        {
            return damaged("it has no stack");
        }
        if Registers::from_words(&self.registers).is_none() {
            return Err(Refusal::Machine);
        }
        for spans in [&self.content, &self.inherited] {
            check_spans(spans, &self.mappings)?;
        }
        let is_action = |(signal, _): &(u8, _)| (1..=SIGNALS).contains(signal);
        if self.actions.len() > SIGNALS.into() || !self.actions.iter().all(is_action) {
            return damaged("its signals make no sense");
        }
        if self.limits.len() != RESOURCES as usize {
            return damaged("it has another number of limits");
        }
        if !descriptors::is_path(&self.directory) {
            return damaged("its directory has no path");
        }
        let files = self
            .mappings
            .iter()
            .filter_map(|mapping| match &mapping.source {
                maps::Source::File { path, .. } => Some(path),
                _ => None,
            });
        if files.into_iter().any(|path| path.as_bytes().contains(&0)) {
            return damaged("a file's name makes no sense");
        }
        Ok(())
    }
}

/// Whether pages are in order, and each in a mapping of the process's own.
fn check_spans(spans: &[(u64, u64)], mappings: &[Mapping]) -> Result<(), Refusal> {
    let damaged = Err(Refusal::Damaged("its pages make no sense"));
    let mut end = 0;
    let mut mappings = mappings.iter().filter(|one| !one.is_kernel()).peekable();
    for (start, stop) in spans {
        if *start < end || start >= stop || start % PAGE != 0 || stop % PAGE != 0 {
            return damaged;
        }
        // A span may go over mappings that touch each other.
        let mut covered = *start;
        while covered < *stop {
            match mappings.peek() {
                Some(mapping) if mapping.end <= covered => {
                    mappings.next();
                }
                Some(mapping) if mapping.start <= covered => covered = mapping.end,
                _ => return damaged,
            }
        }
        end = *stop;
    }
    Ok(())
}

impl Image {
    /// Completes the file, in which the content of the pages already is.
    pub(super) fn complete(file: File, rest: Rest) -> Result<Self, Refusal> {
        let failed = |error: std::io::Error| system("write", &error);
        let place = PAGE + rest.content().map(Span::len).sum::<u64>();
        let mut json = BufWriter::new(&file);
        json.seek(SeekFrom::Start(place)).map_err(failed)?;
        serde_json::to_writer(&mut json, &rest).map_err(|error| system("write", &error.into()))?;
        let length = json.stream_position().map_err(failed)? - place;
        json.flush().map_err(failed)?;
        drop(json);
        if length > LONGEST_REST {
            return Err(Refusal::TooMuch {
                what: "bytes beside pages",
                most: LONGEST_REST,
            });
        }
        let header = [&MAGIC[..], &length.to_le_bytes()].concat();
        file.write_all_at(&header, 0).map_err(failed)?;
        Ok(Self { file, rest })
    }

    /// Reads an image from a file that nobody can vouch for.
    ///
    /// # Errors
    /// [`Refusal::Damaged`] if it is not one.
    pub fn open(file: File) -> Result<Self, Refusal> {
        let failed = |error: std::io::Error| system("read", &error);
        let damaged = Refusal::Damaged;
        let mut header = [0; 16];
        (file.read_exact_at(&mut header, 0)).map_err(|_| damaged("it is too short"))?;
        let (magic, length) = header.split_at(8);
        if magic != MAGIC {
            return Err(damaged("it is not an image of this version"));
        }
        let length = length
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or(u64::MAX);
        let total = file.metadata().map_err(failed)?.len();
        let pages = (total
            .checked_sub(PAGE)
            .and_then(|left| left.checked_sub(length)))
        .filter(|_| length <= LONGEST_REST)
        .ok_or(damaged("it is too short"))?;
        let mut json = vec![0; length as usize];
        (file.read_exact_at(&mut json, PAGE + pages)).map_err(failed)?;
        let rest: Rest =
            record::json::from_slice(&json).map_err(|_| damaged("it cannot be parsed"))?;
        rest.check()?;
        let content = rest.content().map(Span::len);
        let content = content.fold(0_u64, u64::saturating_add);
        if content != pages {
            return Err(damaged("it has another number of pages"));
        }
        Ok(Self { file, rest })
    }

    /// Writes a copy to `to`, which is empty.
    ///
    /// # Errors
    /// That of reading and writing.
    pub fn write_to(&self, to: &mut File) -> Result<(), Refusal> {
        let mut buffer = vec![0; 256 << 10];
        let mut at = 0;
        loop {
            match self.file.read_at(&mut buffer, at) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    (to.write_all(&buffer[..length])).map_err(|error| system("write", &error))?;
                    at += length as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(system("read", &error)),
            }
        }
    }

    /// Bytes of pages in it.
    pub fn size(&self) -> u64 {
        self.rest.content().map(Span::len).sum()
    }

    /// The paths of the working directory, and of files and directories that are open or mapped.
    pub fn paths(&self) -> impl Iterator<Item = &RawText> {
        let rest = &self.rest;
        let mapped = rest.mappings.iter().filter_map(|one| match &one.source {
            maps::Source::File { path, .. } => Some(&**path),
            _ => None,
        });
        let open = rest.descriptors.values().filter_map(|one| match &one.what {
            What::File { path, .. } | What::Directory { path, .. } => Some(path),
            _ => None,
        });
        [&rest.directory].into_iter().chain(open).chain(mapped)
    }

    /// All pages by address, each of 4096 bytes.
    ///
    /// # Errors
    /// That of reading.
    pub fn memory(&self) -> Result<BTreeMap<u64, Vec<u8>>, Refusal> {
        let content = Content::of(self);
        let mut pages = BTreeMap::new();
        for span in self.rest.content() {
            for start in (span.start..span.end).step_by(PAGE as usize) {
                let mut page = vec![0; PAGE as usize];
                content.read(Span::new(start, start + PAGE), &mut page)?;
                pages.insert(start, page);
            }
        }
        Ok(pages)
    }

    /// The file with its content, for another process.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// The pages of an image by address.
pub(super) struct Content<'i> {
    file: &'i File,
    /// Each with its place in the file.
    index: Vec<(Span, u64)>,
}

impl<'i> Content<'i> {
    pub(super) fn of(image: &'i Image) -> Self {
        let mut place = PAGE;
        let index = image.rest.content().map(|span| {
            let start = place;
            place += span.len();
            (span, start)
        });
        Self {
            file: &image.file,
            index: index.collect(),
        }
    }

    /// Reads what the image has of `span`, and zeroes where it has nothing.
    pub(super) fn read(&self, span: Span, buffer: &mut [u8]) -> Result<(), Refusal> {
        // What the image has is read over it, and need not be filled before.
        let mut filled = 0;
        let first = self.index.partition_point(|(one, _)| one.end <= span.start);
        for (one, place) in &self.index[first..] {
            let both = one.overlap(span);
            if both.is_empty() {
                break;
            }
            let to = (both.start - span.start) as usize;
            let end = to + both.len() as usize;
            buffer[filled..to].fill(0);
            filled = end;
            let bytes = &mut buffer[to..end];
            (self
                .file
                .read_exact_at(bytes, place + (both.start - one.start)))
            .map_err(|error| system("read", &error))?;
        }
        buffer[filled..].fill(0);
        Ok(())
    }
}

pub(super) fn system(call: &'static str, error: &std::io::Error) -> Refusal {
    system_of(
        call,
        error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    )
}

fn system_of(call: &'static str, errno: Errno) -> Refusal {
    Refusal::System(call, errno)
}
