//! What the program of a blank cell, or a further process, is started with: one sealed file in
//! memory.
//!
//! Standard input comes beside it, as a descriptor. All else that differs from run to
//! run is in the file:
//!
//! ```text
//! the length of the header, 8 bytes
//! header: candidates, arguments, environment      lists: a count, then texts
//!         the working directory                   a text: its length, then its bytes
//!         what it may map beyond the memory       a count of 0 or 1, then bytes
//!         input files                             a count, then path, size and 1 of each that can be
//!                                                 executed, or 0
//! the content of the input files, one after the other
//! ```
//!
//! Numbers are unsigned, of 8 bytes, as the machine stores them.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use super::fail::{At, Call, Fail};
use super::mounts::create_beneath;
use super::program::{Begin, Image};
use super::report::Reporter;
use plan::{Plan, Program};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use spec::{Bytes, FileSource, InputFile, WORKSPACE};
use sys::memory_file;

/// A larger header is refused: arguments and environment together are bounded by the
/// kernel (execve(2)), and names of files by the workspace.
const LONGEST_HEADER: u64 = 16 << 20;
const NUMBER: usize = size_of::<u64>();

/// Packs what the program of `plan` is started with. `inputs` are its open input files,
/// in their order.
///
/// # Errors
/// When there is no memory for it, or an input cannot be read.
pub fn pack(plan: &Plan, inputs: &[Option<OwnedFd>]) -> Result<File> {
    pack_with(&plan.program, &plan.files, inputs)
}

/// A parcel of a program without input files.
///
/// # Errors
/// When there is no memory for it.
pub fn pack_program(program: &Program) -> Result<File> {
    pack_with(program, &[], &[])
}

fn pack_with(program: &Program, files: &[InputFile], inputs: &[Option<OwnedFd>]) -> Result<File> {
    let failed = |call: &'static str| move |e: io::Error| SetupError::io(Step::Inputs, call, &e);
    let sizes = input_sizes(files, inputs)?;
    let executable = executables(files, inputs)?;
    let header = header(program, files, &sizes, &executable);
    let mut file = memory_file(c"cellblock-parcel")?;
    let mut start = (header.len() as u64).to_ne_bytes().to_vec();
    start.extend(header);
    file.write_all(&start).map_err(failed("write"))?;
    for (index, (input, size)) in files.iter().zip(&sizes).enumerate() {
        let on_input = |e: io::Error| failed("read")(e).on(input.target.display());
        match (&input.source, inputs.get(index).and_then(Option::as_ref)) {
            (FileSource::Inline(content), _) => {
                file.write_all(content.as_bytes()).map_err(on_input)?;
            }
            (FileSource::Host(_), Some(fd)) => {
                let mut source = File::from(fd.try_clone().map_err(on_input)?).take(*size);
                if io::copy(&mut source, &mut file).map_err(on_input)? < *size {
                    return Err(on_input(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            (FileSource::Host(_), None) => return Err(on_input(Errno::EBADF.into())),
        }
    }
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))
        .map_err(|e| SetupError::os(Step::Inputs, "fcntl", e))?;
    Ok(file)
}

/// The sizes of the input files, by which they are told apart in the parcel.
fn input_sizes(files: &[InputFile], inputs: &[Option<OwnedFd>]) -> Result<Vec<u64>> {
    let size = |(index, input): (usize, &InputFile)| match &input.source {
        FileSource::Inline(content) => Ok(content.as_bytes().len() as u64),
        FileSource::Host(_) => {
            let fd = inputs.get(index).and_then(Option::as_ref);
            let stat = fd.map_or(Err(Errno::EBADF), nix::sys::stat::fstat);
            stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
                .map_err(|e| SetupError::os(Step::Inputs, "fstat", e).on(input.target.display()))
        }
    };
    files.iter().enumerate().map(size).collect()
}

fn executables(files: &[InputFile], inputs: &[Option<OwnedFd>]) -> Result<Vec<bool>> {
    let of = |(index, input): (usize, &InputFile)| {
        let fd = inputs.get(index).and_then(Option::as_ref);
        super::files::is_executable(input, fd)
            .map_err(|e| SetupError::os(Step::Inputs, "fstat", e).on(input.target.display()))
    };
    files.iter().enumerate().map(of).collect()
}

fn header(program: &Program, files: &[InputFile], sizes: &[u64], executable: &[bool]) -> Vec<u8> {
    let mut header = Vec::new();
    let number = |header: &mut Vec<u8>, value: u64| header.extend(value.to_ne_bytes());
    let text = |header: &mut Vec<u8>, bytes: &[u8]| {
        number(header, bytes.len() as u64);
        header.extend(bytes);
    };
    let env: Vec<RawText> = program.variables().collect();
    for list in [&program.candidates, &program.argv, &env] {
        number(&mut header, list.len() as u64);
        list.iter()
            .for_each(|item| text(&mut header, item.as_bytes()));
    }
    text(&mut header, program.cwd.as_os_str().as_bytes());
    number(&mut header, u64::from(program.reserve.is_some()));
    program
        .reserve
        .iter()
        .for_each(|bytes| number(&mut header, bytes.0));
    number(&mut header, files.len() as u64);
    for ((input, size), executable) in files.iter().zip(sizes).zip(executable) {
        text(&mut header, input.target.as_os_str().as_bytes());
        number(&mut header, *size);
        number(&mut header, u64::from(*executable));
    }
    header
}

/// An input file in a parcel.
#[derive(Debug, PartialEq)]
struct Packed {
    path: PathBuf,
    size: u64,
    executable: bool,
}

/// What came in a parcel.
pub(super) struct Parcel {
    program: Begin,
    files: Vec<Packed>,
    /// Its content begins where the first file's does.
    content: File,
}

impl Parcel {
    /// # Errors
    /// EBADMSG for anything that [`pack`] does not make; the error number of read(2).
    pub(super) fn unpack(parcel: OwnedFd) -> std::result::Result<Self, Errno> {
        let mut content = File::from(parcel);
        let errno = |e: io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let size = content.metadata().map_err(errno)?.len();
        let mut length = [0; NUMBER];
        content.read_exact_at(&mut length, 0).map_err(errno)?;
        let length = u64::from_ne_bytes(length);
        let start = length.saturating_add(NUMBER as u64);
        if length > LONGEST_HEADER || start > size {
            return Err(Errno::EBADMSG);
        }
        let mut header = vec![0; length as usize];
        content
            .read_exact_at(&mut header, NUMBER as u64)
            .map_err(errno)?;
        let (program, files) = read_header(&header).ok_or(Errno::EBADMSG)?;
        let files_end = (files.iter()).try_fold(start, |end, file| end.checked_add(file.size));
        if files_end != Some(size) {
            return Err(Errno::EBADMSG);
        }
        content.seek(io::SeekFrom::Start(start)).map_err(errno)?;
        Ok(Self {
            program,
            files,
            content,
        })
    }

    /// Copies the input files into the workspace, with the program's own rights, and
    /// returns how the program begins.
    pub(super) fn deliver(self, report: &Reporter<'_>) -> std::result::Result<Begin, Fail> {
        if self.files.is_empty() {
            return Ok(self.program);
        }
        let site = report.enter(Step::CopyIn);
        let top = super::landlock::place(Path::new(WORKSPACE)).at(site, Call::Openat2)?;
        for (index, file) in self.files.iter().enumerate() {
            let site = site.on(index);
            let to = create_beneath(&top, site, &file.path, file.executable)?;
            super::files::send(&to, &self.content, file.size).at(site, Call::Sendfile)?;
        }
        Ok(self.program)
    }
}

fn read_header(header: &[u8]) -> Option<(Begin, Vec<Packed>)> {
    let mut rest = Rest(header);
    let image = Image {
        paths: rest.list()?,
        argv: rest.list()?,
        env: rest.list()?,
    };
    let cwd = rest.path()?;
    let reserve = match rest.number()? {
        0 => None,
        1 => Some(Bytes(rest.number()?)),
        _ => return None,
    };
    let mut files = Vec::new();
    for _ in 0..rest.number()? {
        files.push(Packed {
            path: rest.path()?,
            size: rest.number()?,
            executable: match rest.number()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        });
    }
    let begin = Begin {
        image,
        cwd,
        fixed_layout: false,
        reserve,
    };
    rest.0.is_empty().then_some((begin, files))
}

/// What is left of a header.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*number))
    }

    fn text(&mut self) -> Option<&[u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn path(&mut self) -> Option<PathBuf> {
        self.text()
            .map(|text| OsString::from_vec(text.to_vec()).into())
    }

    fn list(&mut self) -> Option<Vec<CString>> {
        // No capacity by the count: it may be anything.
        (0..self.number()?)
            .map(|_| CString::new(self.text()?).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(value: usize) -> [u8; NUMBER] {
        (value as u64).to_ne_bytes()
    }

    fn text(bytes: &[u8]) -> Vec<u8> {
        [&number(bytes.len())[..], bytes].concat()
    }

    fn parcel(header: &[u8], content: &[u8]) -> OwnedFd {
        let mut file = memory_file(c"test").unwrap();
        file.write_all(&[&number(header.len())[..], header, content].concat())
            .unwrap();
        file.into()
    }

    fn example() -> Vec<u8> {
        [
            number(1).to_vec(),
            text(b"/bin/true"),
            number(2).to_vec(),
            text(b"true"),
            text(b"\xff"),
            number(0).to_vec(),
            text(b"/workspace"),
            number(1).to_vec(),
            number(5).to_vec(),
            number(2).to_vec(),
            text(b"a/b"),
            number(3).to_vec(),
            number(1).to_vec(),
            text(b"c"),
            number(0).to_vec(),
            number(0).to_vec(),
        ]
        .concat()
    }

    #[test]
    fn a_parcel_is_unpacked() {
        let parcel = Parcel::unpack(parcel(&example(), b"abc")).unwrap();
        assert_eq!(
            parcel.program.image.argv,
            [c"true".into(), CString::new(b"\xff").unwrap()]
        );
        assert_eq!(parcel.program.cwd, Path::new("/workspace"));
        assert_eq!(parcel.program.reserve, Some(Bytes(5)));
        let file = |path: &str, size, executable| Packed {
            path: path.into(),
            size,
            executable,
        };
        assert_eq!(parcel.files, [file("a/b", 3, true), file("c", 0, false)]);
        let mut content = String::new();
        (&parcel.content).read_to_string(&mut content).unwrap();
        assert_eq!(content, "abc");
    }

    #[test]
    fn content_is_neither_missing_nor_left_over() {
        for content in [&b"ab"[..], b"abcd", b""] {
            let unpacked = Parcel::unpack(parcel(&example(), content));
            assert_eq!(unpacked.err(), Some(Errno::EBADMSG));
        }
    }

    proptest! {
        #[test]
        fn a_header_is_read_whole_or_not_at_all(at in 0..200_usize, byte: u8, more in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut header = example();
            header.extend(&more);
            prop_assert_eq!(read_header(&header).is_some(), more.is_empty());
            let whole = example();
            prop_assert!(read_header(&whole[..at % whole.len()]).is_none());
            let at = at % header.len();
            header[at] = byte;
            // Whatever it says, it is read without a panic and within bounds.
            let _ = read_header(&header);
        }
    }
}
