//! The content of a process's memory: found, read, written.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::image::{Content, Image, system};
use super::maps::{Mapping, READ, WRITE};
use super::refusal::Refusal;
use super::{BUFFER, Extent};
use sys::memory::{PAGE, Pagemap, Span, push_span};
use sys::trace::{Tracee, spans_at_once};

/// Finds the pages that have content of the process.
pub(super) fn find(pid: Pid, mappings: &[Mapping]) -> Result<Vec<Span>, Refusal> {
    let failed = |errno| match errno {
        Errno::EACCES | Errno::EPERM => Refusal::Tracing(errno),
        errno => Refusal::System("pagemap", errno),
    };
    let pagemap = Pagemap::open(pid, true).map_err(failed)?;
    let mut all = Vec::new();
    let mut searched: u64 = 0;
    for mapping in mappings
        .iter()
        .filter(|one| !one.is_kernel() && !one.shared)
    {
        searched = searched.saturating_add(mapping.span().len());
        if searched > pagemap.searches() {
            return Err(Refusal::TooMuch {
                what: "bytes of address space, which this kernel cannot search",
                most: pagemap.searches(),
            });
        }
        let found = pagemap.pages(mapping.span()).map_err(failed)?;
        found.into_iter().for_each(|span| push_span(&mut all, span));
    }
    Ok(all)
}

/// Pages whose content is taken, and those that are as in the template.
///
/// Which pages a process still shares with its template says too little: the template goes
/// on as well, and copies write to pages ahead of need. So the content decides.
pub(super) fn to_take(
    tracee: &Tracee,
    mappings: &[Mapping],
    extent: Extent<'_>,
) -> Result<(Vec<Span>, Vec<Span>), Refusal> {
    let found = find(tracee.pid(), mappings)?;
    let base = match extent {
        Extent::Whole => return Ok((found, Vec::new())),
        Extent::Since(base) => Content::of(base),
    };
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    compare(tracee, mappings, &found, &base, |span, is_same, _| {
        push_span(if is_same { &mut same } else { &mut changed }, span);
        Ok(())
    })?;
    Ok((changed, same))
}

/// Compares the process's pages with those of `base`, and gives each with the base's.
fn compare(
    tracee: &Tracee,
    mappings: &[Mapping],
    spans: &[Span],
    base: &Content<'_>,
    mut each: impl FnMut(Span, bool, &[u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (mut ours, mut theirs) = (vec![0; BUFFER], vec![0; BUFFER]);
    for batch in batches(spans, mappings) {
        read(tracee, &batch, &mut ours[..batch.bytes])?;
        let mut from = 0;
        for span in &batch.spans {
            let to = from + span.len() as usize;
            base.read(*span, &mut theirs[from..to])?;
            let pages = ours[from..to].chunks(PAGE as usize);
            let pages = pages.zip(theirs[from..to].chunks(PAGE as usize));
            for (at, (our, their)) in (span.start..).step_by(PAGE as usize).zip(pages) {
                each(Span::new(at, at + PAGE), is_same(our, their), their)?;
            }
            from = to;
        }
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

/// Gives the process the template's content wherever the image had it and it has not.
pub(super) fn copy_base(tracee: &Tracee, image: &Image, base: &Image) -> Result<(), Refusal> {
    let spans: Vec<Span> = image.rest.inherited().collect();
    let mappings = &image.rest.mappings;
    compare(
        tracee,
        mappings,
        &spans,
        &Content::of(base),
        |span, is_same, content| {
            if is_same {
                return Ok(());
            }
            let written = tracee.write_forced(span.start, content);
            written.map_err(|errno| Refusal::System("write", errno))
        },
    )
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
    /// Whether the process may read and write all of them itself.
    is_plain: bool,
}

/// Cuts `spans` into batches that fit the buffer, and at the borders of mappings that
/// differ in what the process may do there.
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
            let is_plain = mapping.allows(READ | WRITE);
            let fits = |last: &&mut Batch| {
                last.is_plain == is_plain
                    && last.bytes < BUFFER
                    && last.spans.len() < spans_at_once()
            };
            let Some(batch) = batches.last_mut().filter(fits) else {
                batches.push(Batch {
                    spans: Vec::new(),
                    bytes: 0,
                    is_plain,
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
    if batch.is_plain && tracee.read(&batch.spans, bytes) == Ok(bytes.len()) {
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
    if batch.is_plain && tracee.write(&batch.spans, bytes) == Ok(bytes.len()) {
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
