//! Siblings to carry between.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use super::skip::skip;
use carry::{Base, Extent, Failure, Image, Refusal, Subject, put, take};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use plan::seccomp::{Unheld, precompiled};
use sys::identity::Identity;
use sys::watched::Watched;
use tempfile::TempDir;

/// No answer takes longer, however busy the machine is.
const DEADLINE: u16 = 60_000;

/// More than any image here has.
pub(crate) const LIMIT: u64 = 1 << 30;

/// A template and its siblings, which end with it.
pub(crate) struct Siblings {
    template: Child,
    lines: BufReader<std::process::ChildStdout>,
    pipes: VecDeque<(File, File)>,
    /// Once it was taken, if the template is watched.
    base: Option<Rc<Base>>,
    /// With the pipes, and their working directory.
    _directory: TempDir,
}

/// One sibling.
pub(crate) struct Sibling {
    pub(crate) pid: Pid,
    to: File,
    from: File,
    own: [Identity; 2],
    watched: Option<Watched>,
}

/// Why a test cannot run here, if so.
fn obstacle(python: &Path) -> Option<&'static str> {
    if !python.exists() {
        return Some("there is no /usr/bin/python3");
    }
    if !cfg!(target_arch = "x86_64") {
        return Some("states are carried on x86_64 only");
    }
    None
}

/// A template that can have `count` siblings, with the filter and the Landlock rules of a
/// cell; `None`, and a word about it, where the test cannot run.
pub(crate) fn siblings(count: usize) -> Option<Siblings> {
    template(count, true)
}

/// The same without filter and rules, for what they would stop.
pub(crate) fn unconfined(count: usize) -> Option<Siblings> {
    template(count, false)
}

fn template(count: usize, is_confined: bool) -> Option<Siblings> {
    let python = std::env::var_os("CELLBLOCK_TEST_PYTHON_DATA")
        .map_or_else(|| PathBuf::from("/usr/bin/python3"), PathBuf::from);
    if let Some(reason) = obstacle(&python) {
        skip(reason);
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut filter = String::new();
    if is_confined {
        let program = precompiled("default", false, Unheld::default()).unwrap();
        let bytes = program.program.iter().flat_map(|one| {
            let mut bytes = one.code.to_ne_bytes().to_vec();
            bytes.extend([one.jt, one.jf]);
            bytes.extend(one.k.to_ne_bytes());
            bytes
        });
        let file = directory.path().join("filter");
        std::fs::write(&file, bytes.collect::<Vec<u8>>()).unwrap();
        filter = file.to_str().unwrap().to_owned();
    }
    let pipes = (0..count).map(|index| {
        // Open for both, neither side waits for the other.
        let fifo = |name: String| {
            let path = directory.path().join(name);
            mkfifo(&path, Mode::S_IRWXU).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        (fifo(format!("to{index}")), fifo(format!("from{index}")))
    });
    let pipes = pipes.collect();
    let mut template = Command::new(python)
        .args(["-I", "-c", include_str!("template.py"), &filter])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(template.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(Siblings {
        template,
        lines,
        pipes,
        base: None,
        _directory: directory,
    })
}

impl Siblings {
    /// Forks one more.
    pub(crate) fn fork(&mut self) -> Sibling {
        let input = self.template.stdin.as_mut().unwrap();
        input.write_all(b"fork\n").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap();
        let (to, from) = self.pipes.pop_front().unwrap();
        let own = [&to, &from].map(|file| Identity::of(file).unwrap());
        let mut sibling = Sibling {
            pid: Pid::from_raw(pid),
            to,
            from,
            own,
            watched: None,
        };
        // It is past its start when it answers.
        let close =
            "(__import__('os').path.exists('/proc/self/fd/5') and __import__('os').close(5), 1)[1]";
        if let Some(base) = &self.base {
            sibling.watched = Some(sibling.watch(base));
        }
        assert_eq!(sibling.eval(close), "1");
        sibling
    }

    /// Executes a line in the template.
    pub(crate) fn exec(&mut self, line: &str) {
        let input = self.template.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.lines.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }

    /// The template's base. The memory of siblings that are forked from now on is watched
    /// where the kernel can.
    pub(crate) fn base(&mut self) -> Rc<Base> {
        let pid = Pid::from_raw(self.template.id().cast_signed());
        let base = Rc::new(Base::of(pid, memory()).unwrap());
        self.base = (!base.watched().is_empty()).then(|| Rc::clone(&base));
        base
    }

    /// Two.
    pub(crate) fn pair(&mut self) -> (Sibling, Sibling) {
        (self.fork(), self.fork())
    }
}

impl Drop for Siblings {
    fn drop(&mut self) {
        let _ = self.template.kill();
        let _ = self.template.wait();
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        // Its parent reaps it, or init does.
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

impl Sibling {
    fn watch(&mut self, base: &Base) -> Watched {
        assert_eq!(self.eval("1"), "1");
        let pidfd = sys::process::pidfd_open(self.pid).unwrap();
        let taken = sys::other::copy_descriptor(pidfd.as_fd(), 5).unwrap();
        let watched = Watched::of(taken).unwrap();
        let all = base.watched().iter();
        all.for_each(|span| watched.add(*span).unwrap());
        watched
    }

    /// The value of an expression.
    pub(crate) fn eval(&mut self, expression: &str) -> String {
        self.ask(&format!("={expression}"))
    }

    /// Executes statements, which must not fail.
    pub(crate) fn exec(&mut self, code: &str) {
        assert_eq!(self.ask(&format!("!{code}")), "done", "{code}");
    }

    fn ask(&mut self, request: &str) -> String {
        self.to.write_all(request.as_bytes()).unwrap();
        self.answer()
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn begin(&mut self, code: &str) {
        self.to.write_all(format!("!{code}").as_bytes()).unwrap();
    }

    /// Whether it takes no request any more, or does not answer.
    pub(crate) fn begin_fails_or_is_silent(&mut self) -> bool {
        let _ = self.to.write_all(b"=1");
        let mut answered = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
        poll(&mut answered, PollTimeout::from(100_u16)) == Ok(0)
    }

    /// Waits for an answer.
    pub(crate) fn answer(&mut self) -> String {
        let mut answered = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
        let count = poll(&mut answered, PollTimeout::from(DEADLINE)).unwrap();
        assert_eq!(count, 1, "no answer from {}", self.pid);
        let mut buffer = vec![0; 64 << 10];
        let length = self.from.read(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            pid: self.pid,
            init: None,
            own: &self.own,
        }
    }

    /// Waits until it waits for a request: an answer comes a little earlier.
    fn settle(&self) {
        let start = std::time::Instant::now();
        while start.elapsed().as_secs() < 60 {
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid));
            if call.is_ok_and(|call| call.starts_with("0 0x3 ")) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    pub(crate) fn take(&self, extent: Extent<'_>) -> Result<Image, Refusal> {
        self.take_within(extent, LIMIT)
    }

    pub(crate) fn take_within(&self, extent: Extent<'_>, limit: u64) -> Result<Image, Refusal> {
        self.settle();
        take(self.subject(), extent, limit, memory())
    }

    /// A whole image, which must succeed.
    pub(crate) fn image(&self) -> Image {
        self.take(Extent::Whole).unwrap()
    }

    pub(crate) fn put(&self, image: &Image, base: Option<&Base>) -> Result<(), Failure> {
        self.settle();
        put(image, self.subject(), base)
    }

    /// Takes the state of `from`, which must succeed.
    pub(crate) fn become_like(&self, from: &Sibling) {
        self.put(&from.image(), None).unwrap();
    }

    /// The refusal of a take; the process must be unharmed.
    pub(crate) fn refusal(&mut self) -> Refusal {
        let refusal = self.take(Extent::Whole).unwrap_err();
        assert_eq!(self.eval("6 * 7"), "42", "after {refusal}");
        assert!(!refusal.hint().is_empty() && !refusal.name().is_empty());
        refusal
    }
}

/// An empty file in memory.
pub(crate) fn memory() -> File {
    memfd_create(c"image", MFdFlags::MFD_CLOEXEC)
        .unwrap()
        .into()
}
