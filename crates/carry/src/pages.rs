//! The content of a process's memory: found, read, written.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::base::Base;
use super::image::{Content, Image, system};
use super::maps::{Mapping, READ, WRITE};
use super::refusal::Refusal;
use super::{BUFFER, Extent};
use sys::memory::{PAGE, Pagemap, Span, push_span, without};
use sys::trace::{Tracee, spans_at_once};

/// Finds the pages of these mappings that have content of the process.
pub(super) fn find<'m>(
    pid: Pid,
    mappings: impl Iterator<Item = &'m Mapping>,
) -> Result<Vec<Span>, Refusal> {
    let failed = |errno| match errno {
        Errno::EACCES | Errno::EPERM => Refusal::Tracing(errno),
        errno => Refusal::System("pagemap", errno),
    };
    let pagemap = Pagemap::open(pid, true).map_err(failed)?;
    let mut all = Vec::new();
    let mut own = Vec::new();
    mappings.for_each(|mapping| push_span(&mut own, mapping.span()));
    if size(&own) > pagemap.searches() {
        return Err(Refusal::TooMuch {
            what: "bytes of address space, which this kernel cannot search",
            most: pagemap.searches(),
        });
    }
    for span in own {
        let found = pagemap.pages(span).map_err(failed)?;
        found.into_iter().for_each(|span| push_span(&mut all, span));
    }
    Ok(all)
}

/// Copies the pages of an image into its file, behind its header: at most `limit` bytes.
/// Returns which these are, and which are as in the base.
pub(super) fn take(
    tracee: &Tracee,
    mappings: &[Mapping],
    extent: Extent<'_>,
    limit: u64,
    into: &File,
) -> Result<(Vec<Span>, Vec<Span>), Refusal> {
    let found = find(
        tracee.pid(),
        mappings.iter().filter(|one| one.has_content()),
    )?;
    let too_much = Refusal::TooMuch {
        what: "bytes of memory",
        most: limit,
    };
    let base = match extent {
        Extent::Since(base) => base,
        Extent::Whole if size(&found) > limit => return Err(too_much),
        Extent::Whole => {
            copy_out(tracee, mappings, &found, into)?;
            return Ok((found, Vec::new()));
        }
    };
    let doubtful = without(&found, &base.shared_with(tracee.pid(), mappings)?);
    let mut changed = Vec::new();
    let mut at = PAGE;
    compare(tracee, mappings, &doubtful, base, |pages| {
        let (spans, bytes) = pages.keep_differing();
        if at - PAGE + bytes as u64 > limit {
            return Err(too_much.clone());
        }
        let written = into.write_all_at(&pages.ours[..bytes], at);
        written.map_err(|error| system("write", &error))?;
        at += bytes as u64;
        spans
            .into_iter()
            .for_each(|span| push_span(&mut changed, span));
        Ok(())
    })?;
    let inherited = without(&found, &changed);
    Ok((changed, inherited))
}

/// The bytes of all of them.
pub(super) fn size(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.len()).sum()
}

/// A batch of a process's pages, and those of its base.
struct Compared<'b> {
    batch: &'b Batch,
    ours: &'b mut [u8],
    theirs: &'b mut [u8],
}

impl Compared<'_> {
    /// Moves the pages that differ to the start of both buffers; returns which they are,
    /// and how many bytes.
    fn keep_differing(&mut self) -> (Vec<Span>, usize) {
        const SIZE: usize = PAGE as usize;
        let (mut spans, mut kept) = (Vec::new(), 0);
        let addresses = self.batch.spans.iter();
        let addresses = addresses.flat_map(|span| (span.start..span.end).step_by(SIZE));
        for (start, at) in addresses.zip((0..).step_by(SIZE)) {
            let page = at..at + SIZE;
            if is_same(&self.ours[page.clone()], &self.theirs[page.clone()]) {
                continue;
            }
            if kept != at {
                self.ours.copy_within(page.clone(), kept);
                self.theirs.copy_within(page, kept);
            }
            kept += SIZE;
            push_span(&mut spans, Span::new(start, start + PAGE));
        }
        (spans, kept)
    }
}

/// Compares the process's pages with those of `base`.
fn compare(
    tracee: &Tracee,
    mappings: &[Mapping],
    spans: &[Span],
    base: &Base,
    mut each: impl FnMut(&mut Compared<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let content = Content::of(&base.image);
    let (mut ours, mut theirs) = (vec![0; BUFFER], vec![0; BUFFER]);
    for batch in &batches(spans, mappings) {
        let (ours, theirs) = (&mut ours[..batch.bytes], &mut theirs[..batch.bytes]);
        read(tracee, batch, ours)?;
        let mut from = 0;
        for span in &batch.spans {
            let to = from + span.len() as usize;
            content.read(*span, &mut theirs[from..to])?;
            from = to;
        }
        each(&mut Compared {
            batch,
            ours,
            theirs,
        })?;
    }
    Ok(())
}

/// Whether two pages are alike. The comparison of slices is the C library's, which musl
/// does byte by byte.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (one, rest) = one.as_chunks::<16>();
    let (other, others) = other.as_chunks::<16>();
    let mut words = one.iter().zip(other);
    rest == others
        && one.len() == other.len()
        && words.all(|(one, other)| u128::from_ne_bytes(*one) == u128::from_ne_bytes(*other))
}

/// Copies the pages into an image's file, behind its header.
pub(super) fn copy_out(
    tracee: &Tracee,
    mappings: &[Mapping],
    spans: &[Span],
    into: &File,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; BUFFER];
    let mut at = PAGE;
    for batch in batches(spans, mappings) {
        let bytes = &mut buffer[..batch.bytes];
        read(tracee, &batch, bytes)?;
        (into.write_all_at(bytes, at)).map_err(|error| system("write", &error))?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Copies the pages of an image into the process.
pub(super) fn copy_in(tracee: &Tracee, image: &Image) -> Result<(), Refusal> {
    let mut buffer = vec![0; BUFFER];
    let mut at = PAGE;
    let spans: Vec<Span> = image.rest.content().collect();
    for batch in batches(&spans, &image.rest.mappings) {
        let bytes = &mut buffer[..batch.bytes];
        (image.file.read_exact_at(bytes, at)).map_err(|error| system("read", &error))?;
        write(tracee, &batch, bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Writes the template's content to pages that had it in the image and do not have it in the
/// process. The process must have the image's mappings already.
pub(super) fn copy_base(tracee: &Tracee, image: &Image, base: &Base) -> Result<(), Refusal> {
    let inherited: Vec<Span> = image.rest.inherited().collect();
    let mappings = &image.rest.mappings;
    let doubtful = without(&inherited, &base.shared_with(tracee.pid(), mappings)?);
    compare(tracee, mappings, &doubtful, base, |pages| {
        let (spans, bytes) = pages.keep_differing();
        let batch = Batch {
            spans,
            bytes,
            ..*pages.batch
        };
        write(tracee, &batch, &pages.theirs[..bytes])
    })
}

/// Fills pages with zeroes.
pub(super) fn clear(tracee: &Tracee, mappings: &[Mapping], spans: &[Span]) -> Result<(), Refusal> {
    let zeroes = vec![0; BUFFER];
    for batch in batches(spans, mappings) {
        write(tracee, &batch, &zeroes[..batch.bytes])?;
    }
    Ok(())
}

/// Spans that are transferred at once.
struct Batch {
    spans: Vec<Span>,
    bytes: usize,
    /// Whether the process may read all of them itself.
    is_readable: bool,
    /// Whether the process may write to all of them.
    is_writable: bool,
}

/// Cuts `spans` into batches that fit the buffer, and at the borders of mappings that
/// differ in whether the process may read and write there.
fn batches(spans: &[Span], mappings: &[Mapping]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut mappings = mappings.iter().peekable();
    for span in spans {
        let mut left = *span;
        while !left.is_empty() {
            while mappings.next_if(|one| one.end <= left.start).is_some() {}
            let Some(mapping) = mappings.peek() else {
                break;
            };
            let (is_readable, is_writable) = (mapping.allows(READ), mapping.allows(WRITE));
            let fits = |last: &&mut Batch| {
                (last.is_readable, last.is_writable) == (is_readable, is_writable)
                    && last.bytes < BUFFER
                    && last.spans.len() < spans_at_once()
            };
            let Some(batch) = batches.last_mut().filter(fits) else {
                batches.push(Batch {
                    spans: Vec::new(),
                    bytes: 0,
                    is_readable,
                    is_writable,
                });
                continue;
            };
            let room = (BUFFER - batch.bytes) as u64;
            let part = Span::new(left.start, left.end.min(mapping.end).min(left.start + room));
            batch.bytes += part.len() as usize;
            push_span(&mut batch.spans, part);
            left.start = part.end;
        }
    }
    batches
}

fn read(tracee: &Tracee, batch: &Batch, bytes: &mut [u8]) -> Result<(), Refusal> {
    if batch.is_readable && tracee.read(&batch.spans, bytes) == Ok(bytes.len()) {
        return Ok(());
    }
    // What the process may not read itself is read span by span.
    let mut from = 0;
    for span in &batch.spans {
        let to = from + span.len() as usize;
        (tracee.read_forced(span.start, &mut bytes[from..to]))
            .map_err(|_| Refusal::Unreadable(span.start))?;
        from = to;
    }
    Ok(())
}

fn write(tracee: &Tracee, batch: &Batch, bytes: &[u8]) -> Result<(), Refusal> {
    if batch.is_writable && tracee.write(&batch.spans, bytes) == Ok(bytes.len()) {
        return Ok(());
    }
    let mut from = 0;
    for span in &batch.spans {
        let to = from + span.len() as usize;
        (tracee.write_forced(span.start, &bytes[from..to]))
            .map_err(|errno| Refusal::System("write", errno))?;
        from = to;
    }
    Ok(())
}
