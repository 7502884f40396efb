//! A server, and clients that do not wait for ever.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, write};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::{Value, json};

use crate::http_client::Http;

/// How long anything may take on a busy machine.
pub(crate) fn patience() -> Duration {
    // An emulated machine is slow.
    let factor = std::env::var("CELLS_PATIENCE").ok();
    let factor = factor.and_then(|factor| factor.parse().ok()).unwrap_or(1);
    Duration::from_secs(300) * factor
}

/// The time of an execution for `--wall`: longer than the default one, which is too short for Java on
/// a busy or an emulated machine.
pub(crate) fn wall() -> String {
    format!("{}s", patience().as_secs() / 2)
}

/// An empty directory with this mode.
pub(crate) fn directory(mode: u32) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    directory
}

/// A directory of this process that cells may read, in which a file is a sign for their code.
pub(crate) struct Signs(tempfile::TempDir);

impl Signs {
    pub(crate) fn new() -> Self {
        Self(directory(0o755))
    }

    /// What `--ro` takes.
    pub(crate) fn bind(&self) -> String {
        format!("{}:/signs", self.0.path().display())
    }

    /// Code that waits for a sign.
    pub(crate) fn wait_for(name: &str) -> String {
        format!("import os, time\nwhile not os.path.exists('/signs/{name}'): time.sleep(0.01)\n")
    }

    pub(crate) fn give(&self, name: &str) {
        std::fs::write(self.0.path().join(name), "").unwrap();
    }
}

/// The executable under test: in a virtual machine it is not where it was built.
pub(crate) fn executable() -> OsString {
    let given = std::env::var_os("CELLBLOCK_BIN");
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_cellblock").into())
}

pub(crate) fn cellblock() -> Command {
    crate::dispositions::restore();
    Command::new(executable())
}

/// Waits until `done`, or fails.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + patience();
    while !done() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server on a socket; it is killed in the end.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_on("host", options)
    }

    /// A server whose cells have this rootfs.
    pub(crate) fn start_on(rootfs: &str, options: &[&str]) -> Self {
        Self::start_with(rootfs, options, &[])
    }

    /// Starts such a server with these environment variables.
    pub(crate) fn start_with(rootfs: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = cellblock();
        command.envs(variables.iter().copied());
        Self::start_by(command, rootfs, options)
    }

    /// A server whose processes may not trace each other, as where kernel.yama.ptrace_scope is 3: a
    /// filter denies the same calls.
    pub(crate) fn start_untraced(options: &[&str]) -> Self {
        let calls = [
            libc::SYS_ptrace,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
        ];
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let eperm = SeccompAction::Errno(libc::EPERM as u32);
        let rules = calls.map(|call| (call, Vec::new())).into();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        let mut command = cellblock();
        // SAFETY: the child makes system calls on memory that was prepared before.
        unsafe {
            command.pre_exec(move || {
                apply_filter(&program).map_err(|_| std::io::Error::last_os_error())
            });
        }
        Self::start_by(command, "host", options)
    }

    /// A server of a user who may have so many inotify instances and queued signals, and 300
    /// descriptors unless it asks for more: in a user namespace in which it is not root.
    pub(crate) fn start_with_user_limits(instances: u64, signals: u64, options: &[&str]) -> Self {
        let (uid, gid) = (Uid::effective(), Gid::effective());
        let settings = [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("1000 {uid} 1")),
            ("/proc/self/gid_map", format!("1000 {gid} 1")),
            (
                "/proc/sys/user/max_inotify_instances",
                instances.to_string(),
            ),
        ];
        let mut command = cellblock();
        // SAFETY: the child makes system calls on memory that was prepared before.
        unsafe {
            command.pre_exec(move || {
                unshare(CloneFlags::CLONE_NEWUSER)?;
                for (path, content) in &settings {
                    let file = open(*path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
                    write(&file, content.as_bytes())?;
                }
                setrlimit(Resource::RLIMIT_SIGPENDING, signals, signals)?;
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                setrlimit(Resource::RLIMIT_NOFILE, hard.min(300), hard)?;
                Ok(())
            });
        }
        Self::start_by(command, "host", options)
    }

    fn start_by(mut command: Command, rootfs: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("s").display());
        let child = command
            .args(["serve", "--rootfs", rootfs, "--listen", &listen])
            .args(options)
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let server = Self { child, directory };
        until("listening", || UnixStream::connect(server.socket()).is_ok());
        server
    }

    /// A server with an HTTP port that the kernel chooses.
    pub(crate) fn start_http(options: &[&str]) -> Self {
        let http = ["--http", "127.0.0.1:0"];
        Self::start(&[&http, options].concat())
    }

    /// Where it serves HTTP.
    pub(crate) fn http(&self) -> Http {
        let mut said = String::new();
        until("its address", || {
            said = std::fs::read_to_string(self.directory.path().join("stderr")).unwrap();
            said.ends_with('\n')
        });
        let address = said.lines().find_map(|line| line.split_once("http://"));
        Http::new(address.expect("no HTTP").1)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// The directory of its checkpoints, if there is one.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        let is_store = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("cellblock-checkpoints-")
        };
        let inside = std::fs::read_dir(self.directory.path()).unwrap();
        let mut inside = inside.map(|entry| entry.unwrap().path());
        inside.find(is_store)
    }

    /// Checkpoints on the disk.
    pub(crate) fn checkpoints(&self) -> usize {
        let is_checkpoint = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.unwrap().file_name();
            name.to_str()
                .is_some_and(|name| name.parse::<u64>().is_ok())
        };
        let store = self.store().map(|store| std::fs::read_dir(store).unwrap());
        store.map_or(0, |inside| {
            inside
                .filter_map(|entry| is_checkpoint(entry).then_some(()))
                .count()
        })
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the server's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of a server's socket.
pub(crate) struct Client {
    pub(crate) socket: BufReader<UnixStream>,
    next: u64,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        socket.set_write_timeout(Some(patience())).unwrap();
        Self {
            socket: BufReader::new(socket),
            next: 1000,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, id: u64, method: &str, params: Value) {
        let line = json!({"id": id, "method": method, "params": params});
        self.write(format!("{line}\n").as_bytes());
    }

    /// The next line; null at the connection's end.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        match self.socket.read_line(&mut line) {
            Ok(0) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")),
            Err(error) if error.raw_os_error() == Some(nix::libc::ECONNRESET) => Value::Null,
            Err(error) => panic!("no line: {error}"),
        }
    }

    /// The next line with this id that is not an event.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.line();
            assert!(!line.is_null(), "no answer to {id}");
            if line["id"] == id && line.get("event").is_none() {
                return line;
            }
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(id, method, params);
        self.answer(id)
    }

    /// The result of a call that has one.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let line = self.call(method, params);
        assert!(line.get("result").is_some(), "{method}: {line}");
        line["result"].clone()
    }

    pub(crate) fn status(&mut self) -> Value {
        self.ask("status", json!({}))
    }

    pub(crate) fn create(&mut self, name: &str) -> Value {
        let request = json!({"language": "python"});
        self.ask(
            "context.create",
            json!({"request": request, "context": name}),
        )
    }

    pub(crate) fn run_in(&mut self, name: &str, code: &str) -> Value {
        self.ask("context.run", json!({"context": name, "code": code}))
    }
}

/// Processes whose parent chain starts at `pid`.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut todo = vec![pid];
    while let Some(parent) = todo.pop() {
        for child in children(parent) {
            found.push(child);
            todo.push(child);
        }
    }
    found
}

/// Processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    drop(read);
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = text
        .rsplit(')')
        .next()
        .unwrap_or("")
        .trim_start()
        .to_owned();
    !state.is_empty() && !state.starts_with('Z')
}
