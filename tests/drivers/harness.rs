//! Runs a driver as a cell would, without the cell.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;

pub(crate) use super::run::{Run, finish, parsed};
use crate::skip::skip;
use languages::frames::{Code, Frame, FrameReader, Request, Work};
use languages::{CHANNEL_FD, DIRECTORY, Driver, find};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use record::bytes::RawText;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A place for the files of one or more runs.
pub(crate) struct Bench {
    driver: &'static Driver,
    interpreter: PathBuf,
    /// The compiled shim, where the driver takes one.
    compiled: Option<&'static Path>,
    directory: TempDir,
}

/// What one of several executions did.
struct Execution {
    frames: Vec<Frame>,
    stdout: String,
    stderr: String,
}

/// A bench for Python; `None`, and a word about it, where there is no Python.
/// `CELLBLOCK_TEST_PYTHON` names another interpreter.
pub(crate) fn python() -> Option<Bench> {
    let driver = find("python").unwrap();
    let named = std::env::var_os("CELLBLOCK_TEST_PYTHON").map(PathBuf::from);
    bench(driver, named)
}

/// A bench for a Python that has these packages; `None`, and a word about it,
/// where there is none. `CELLBLOCK_TEST_PYTHON_DATA` names its interpreter.
pub(crate) fn python_with(packages: &[&str]) -> Option<Bench> {
    let named = std::env::var_os("CELLBLOCK_TEST_PYTHON_DATA").map(PathBuf::from);
    let bench = named.map_or_else(python, |named| bench(find("python").unwrap(), Some(named)))?;
    let has = |package: &&&str| bench.plain(&format!("import {package}")).status.success();
    let missing: Vec<_> = packages.iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return Some(bench);
    }
    let interpreter = bench.interpreter.display();
    skip(format_args!(
        "{interpreter} has no {missing:?}; CELLBLOCK_TEST_PYTHON_DATA may name one that has"
    ));
    None
}

/// A bench for Bash. `CELLBLOCK_TEST_BASH` names another one.
pub(crate) fn bash() -> Option<Bench> {
    let named = std::env::var_os("CELLBLOCK_TEST_BASH").map(PathBuf::from);
    bench(find("bash").unwrap(), named)
}

/// As [`bash`], for the shell that serves several executions.
pub(crate) fn lasting_bash() -> Option<Bench> {
    let bash = bash()?;
    Some(Bench {
        driver: bash.driver.lasting(),
        ..bash
    })
}

/// As [`python`] for another language; `CELLBLOCK_TEST_NODE`,
/// `CELLBLOCK_TEST_RSCRIPT` and `CELLBLOCK_TEST_JAVA` name other interpreters.
pub(crate) fn other(language: &str) -> Option<Bench> {
    let variable = match language {
        "javascript" | "typescript" => "CELLBLOCK_TEST_NODE",
        "r" => "CELLBLOCK_TEST_RSCRIPT",
        _ => "CELLBLOCK_TEST_JAVA",
    };
    let named = std::env::var_os(variable).map(PathBuf::from);
    bench(find(language).unwrap(), named)
}

fn bench(driver: &'static Driver, named: Option<PathBuf>) -> Option<Bench> {
    let usual = || {
        driver
            .interpreters
            .iter()
            .map(PathBuf::from)
            .find(|p| p.exists())
    };
    let Some(interpreter) = named.or_else(usual) else {
        let looked = driver.interpreters.join(", ");
        skip(format_args!(
            "no {} on this host (looked for {looked})",
            driver.name
        ));
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("workspace")).unwrap();
    let compiled = match driver.name {
        "java" => compiled_for_java(driver, &interpreter),
        _ => None,
    };
    Some(Bench {
        driver,
        interpreter,
        compiled,
        directory,
    })
}

/// Where a rootfs has Java's shim compiled.
const COMPILED: &str = "/usr/lib/cellblock/java";

/// Java's shim as classes, which start in half the time; `None` where there is no compiler beside
/// `java`. In cells of the host's files, the tests run it as source.
fn compiled_for_java(driver: &Driver, java: &Path) -> Option<&'static Path> {
    static CLASSES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let (path, text) = driver.files_for(&RawText::default()).swap_remove(0);
        let compiler = std::fs::canonicalize(java).ok()?.with_file_name("javac");
        // Compiled once for each source and compiler, since that takes seconds.
        let of = Sha256::new()
            .chain_update(text.as_bytes())
            .chain_update(compiler.as_os_str().as_bytes())
            .finalize();
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let classes = place.join(format!(
            "java-{:016x}",
            u64::from_be_bytes(of[..8].try_into().ok()?)
        ));
        if classes.exists() {
            return Some(classes);
        }
        let draft = tempfile::tempdir_in(place).unwrap();
        let source = draft.path().join(path.file_name()?);
        std::fs::write(&source, text.as_bytes()).unwrap();
        let mut compiler = Command::new(compiler);
        compiler.arg("-d").args([draft.path(), &source]);
        if !compiler.status().ok()?.success() {
            return None;
        }
        // Another process of tests may have been first.
        let _ = std::fs::rename(draft.path(), &classes);
        classes.exists().then_some(classes)
    };
    CLASSES.get_or_init(compile).as_deref()
}

impl Bench {
    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.workspace().join(name), content).unwrap();
    }

    pub(crate) fn interpreter(&self) -> &Path {
        &self.interpreter
    }

    pub(crate) fn is_shell(&self) -> bool {
        self.driver.name == "bash"
    }

    pub(crate) fn run(&self, code: impl AsRef<[u8]>) -> Run {
        self.run_with(code.as_ref(), &[])
    }

    /// Runs code that is to succeed.
    pub(crate) fn ok(&self, code: &str) -> Run {
        let run = self.run(code);
        assert!(
            run.error.is_none() && run.status.success(),
            "{code}\n{run:#?}"
        );
        assert!(run.started && run.done, "{run:#?}");
        run
    }

    /// Runs code that is to succeed without a word on stderr.
    pub(crate) fn quiet(&self, code: &str) -> Run {
        let run = self.ok(code);
        assert_eq!(run.stderr, "", "{code}");
        run
    }

    pub(crate) fn run_with(&self, code: &[u8], args: &[RawText]) -> Run {
        let (child, channel) = self.start(code, args);
        finish(child, channel)
    }

    /// Runs the code by the interpreter alone, with the driver's flags.
    pub(crate) fn plain(&self, code: &str) -> Output {
        let script = self.directory.path().join("plain.py");
        std::fs::write(&script, code).unwrap();
        Command::new(&self.interpreter)
            .args(["-B", "-X", "utf8"])
            .arg(script)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.workspace())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Starts a run; its request is already on its way.
    pub(crate) fn start(&self, code: &[u8], args: &[RawText]) -> (Child, File) {
        let code = RawText::from(code.to_vec());
        let (mut child, frames) = self.launch(&code, args);
        let mut requests = child.stdin.take().unwrap();
        let request = match self.driver.has_channel() {
            true => self.request(1, false, true, &code, args),
            false => Vec::new(),
        };
        // A program that never reads it ends this thread with EPIPE.
        thread::spawn(move || requests.write_all(&request));
        (child, frames)
    }

    /// Executes pieces of code one after the other in one process: the frames of
    /// each, and how the process ended.
    pub(crate) fn executions(&self, codes: &[&str]) -> (Vec<Vec<Frame>>, ExitStatus) {
        let (executions, status) = self.execute_each(codes, &[]);
        let frames = executions.into_iter().map(|execution| execution.frames);
        (frames.collect(), status)
    }

    /// Runs pieces of code as [`Self::executions`] does, for an interpreter that starts slowly. A
    /// run has the output that was written before its piece ended.
    pub(crate) fn run_each(&self, codes: &[&str], args: &[RawText]) -> Vec<Run> {
        let (executions, status) = self.execute_each(codes, args);
        assert_eq!(executions.len(), codes.len());
        let run = |of: Execution| Run::new(status, of.stdout, of.stderr, of.frames);
        executions.into_iter().map(run).collect()
    }

    fn execute_each(&self, codes: &[&str], args: &[RawText]) -> (Vec<Execution>, ExitStatus) {
        let (mut child, mut channel) = self.launch(&RawText::default(), &[]);
        let mut requests = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut reader = FrameReader::new();
        let mut executions = Vec::new();
        for (number, code) in (1..).zip(codes) {
            let request = self.request(number, false, false, &RawText::from(*code), args);
            requests.write_all(&request).unwrap();
            let mut frames = Vec::new();
            let mut chunk = [0; 4096];
            while !matches!(frames.last(), Some(Frame::Done { .. })) {
                let count = channel.read(&mut chunk).unwrap();
                if count == 0 {
                    break;
                }
                let take = |execution, frame| {
                    assert_eq!(execution, number, "{code}: {frame:?}");
                    frames.push(frame);
                };
                reader.feed(&chunk[..count], take).unwrap();
            }
            executions.push(Execution {
                frames,
                stdout: written(&mut stdout),
                stderr: written(&mut stderr),
            });
        }
        drop(requests);
        (executions, child.wait().unwrap())
    }

    pub(crate) fn request(
        &self,
        execution: u64,
        follows_interrupt: bool,
        is_last: bool,
        code: &RawText,
        args: &[RawText],
    ) -> Vec<u8> {
        let request = Request {
            execution,
            follows_interrupt,
            is_restored: false,
            work: Work::Execute(Code {
                code,
                name: &format!("main.{}", self.driver.extensions[0]),
                directory: &self.workspace(),
                has_file: true,
                args,
                memory: None,
                is_last,
            }),
        };
        request.encode().unwrap()
    }

    /// Starts the interpreter, which then waits for its first request.
    pub(crate) fn launch(&self, code: &RawText, args: &[RawText]) -> (Child, File) {
        for (path, content) in self.driver.files_for(code) {
            let path = self.outside(&path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content.as_bytes()).unwrap();
        }
        let frames = self.directory.path().join("frames");
        let _ = std::fs::remove_file(&frames);
        nix::unistd::mkfifo(&frames, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let child = self.spawn(args, &frames);
        // Opening one end waits for the other.
        (child, File::open(frames).unwrap())
    }

    fn spawn(&self, args: &[RawText], frames: &Path) -> Child {
        crate::dispositions::restore();
        let is_compiled = self.compiled.is_some();
        let argv = self.driver.argv(&self.interpreter, args, None, is_compiled);
        let argv = argv.iter().map(|arg| {
            let path = Path::new(arg.as_os_str());
            match self.compiled {
                _ if path.starts_with(DIRECTORY) => self.outside(path).into_os_string(),
                Some(compiled) if path.starts_with(COMPILED) => compiled.into(),
                _ => arg.as_os_str().to_owned(),
            }
        });
        // The shell puts the channel where a cell would have it.
        let (requests, results) = (CHANNEL_FD, CHANNEL_FD + 1);
        let frames = frames.display();
        let redirect = format!("{requests}<&0 0</dev/null {results}>'{frames}'");
        Command::new("/bin/sh")
            .args(["-c", &format!("exec \"$@\" {redirect}"), "sh"])
            .args(argv)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", self.directory.path())
            .current_dir(self.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn outside(&self, inside: &Path) -> PathBuf {
        let name = inside.strip_prefix(DIRECTORY).unwrap();
        self.directory.path().join("driver").join(name)
    }
}

/// What is in the pipe, which is never full in tests that use this.
fn written(stream: &mut (impl std::io::Read + AsFd)) -> String {
    fcntl(&*stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
