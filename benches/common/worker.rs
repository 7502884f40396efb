//! Starting and timing a process, in a small process of its own.
//!
//! A worker has dropped to its user before it starts anything, and its spawns
//! are `posix_spawn`s of a prepared command, so that the harness adds little to
//! what it measures. Two workers are two launchers at once.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

use crate::Result;

/// In an argument: a number that no other launch of this worker gets.
pub(crate) const SERIAL: &str = "{serial}";

/// What to do with a process's standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Output {
    Null,
    /// Read to its end, which is part of the time.
    Read,
    /// Read to its end by large blocks and dropped.
    Count,
    /// Written to a file.
    File(PathBuf),
}

/// What to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) output: Output,
    /// How often, one after the other.
    pub(crate) count: usize,
    /// Whether to find out its most memory, which distorts the time.
    pub(crate) peak: bool,
}

/// The result of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    /// From before the spawn until it was reaped; of all launches together.
    pub(crate) nanos: u64,
    /// CPU time of all launches' processes together.
    pub(crate) cpu_micros: u64,
    /// The last one's output, when read.
    pub(crate) output: Vec<u8>,
    /// The most of its own memory that was resident, in bytes.
    pub(crate) peak: Option<u64>,
    /// The error.
    pub(crate) failure: Option<String>,
}

/// The coordinator's end of a worker.
pub(crate) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// A worker that runs as `uid`, if this process may choose. With `unified`
    /// it sees cgroup v2 alone at `/sys/fs/cgroup`.
    pub(crate) fn start(uid: u32, unified: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--worker")
            .arg(uid.to_string())
            .args(unified.then_some("--unified"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().ok_or("no pipe to the worker")?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Sends a job without waiting for it.
    pub(crate) fn begin(&mut self, job: &Job) -> Result<()> {
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        let requests = self.requests.as_mut().ok_or("the worker has ended")?;
        Ok(requests.write_all(&line)?)
    }

    /// Waits for what [`begin`](Self::begin) sent.
    pub(crate) fn end(&mut self) -> Result<Done> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let done: Done = serde_json::from_str(&line)?;
        match done.failure {
            Some(failure) => Err(failure.into()),
            None => Ok(done),
        }
    }

    /// Does a job.
    pub(crate) fn call(&mut self, job: &Job) -> Result<Done> {
        self.begin(job)?;
        self.end()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// The worker itself: a line in, a line out, until the input ends.
pub(crate) fn serve(uid: u32, unified: bool) -> Result<()> {
    if unified {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let nothing = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing)?;
        let (none, cgroup2) = (Some("none"), Some("cgroup2"));
        mount(none, "/sys/fs/cgroup", cgroup2, MsFlags::empty(), nothing)?;
    }
    if Uid::effective().is_root() && uid != 0 {
        setgroups(&[])?;
        setgid(Gid::from_raw(uid))?;
        setuid(Uid::from_raw(uid))?;
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut serial = u64::from(std::process::id()) * 1_000_000;
    for line in stdin().lines() {
        let job: Job = serde_json::from_str(&line?)?;
        let done = work(&job, &null, &mut serial).unwrap_or_else(|error| Done {
            failure: Some(format!("{}: {error}", job.argv.join(" "))),
            ..Done::default()
        });
        let mut answer = serde_json::to_vec(&done)?;
        answer.push(b'\n');
        stdout().write_all(&answer)?;
    }
    Ok(())
}

fn work(job: &Job, null: &File, serial: &mut u64) -> Result<Done> {
    let mut done = Done::default();
    let cpu_before = cpu_of_children()?;
    for _ in 0..job.count {
        *serial += 1;
        let mut command = prepared(job, null, *serial)?;
        done.output.clear();
        let began = Instant::now();
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdout.take() {
            match job.output {
                Output::Count => drop(io::copy(
                    &mut BufReader::with_capacity(64 << 10, pipe),
                    &mut io::sink(),
                )?),
                _ => drop(pipe.read_to_end(&mut done.output)?),
            }
        }
        if job.peak {
            done.peak = Some(watch_peak(&child)?);
        }
        let status: ExitStatus = child.wait()?;
        done.nanos += began.elapsed().as_nanos() as u64;
        if !status.success() {
            return Err(status.to_string().into());
        }
    }
    done.cpu_micros = cpu_of_children()? - cpu_before;
    Ok(done)
}

/// Microseconds of all processes that this one and its children have reaped.
fn cpu_of_children() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(u64::try_from(micros)?)
}

fn prepared(job: &Job, null: &File, serial: u64) -> Result<Command> {
    let (program, arguments) = job.argv.split_first().ok_or("nothing to start")?;
    let mut command = Command::new(program);
    for argument in arguments {
        command.arg(argument.replace(SERIAL, &serial.to_string()));
    }
    let output = match &job.output {
        Output::Null => null.try_clone()?.into(),
        Output::Read | Output::Count => Stdio::piped(),
        Output::File(path) => File::create(path)?.into(),
    };
    command
        .env_clear()
        .envs(job.env.iter().map(|(name, value)| (name, value)))
        .stdin(null.try_clone()?)
        .stdout(output);
    Ok(command)
}

/// Follows `child` to where it ends, and reads the high-water mark of its own
/// memory there. What `wait4` says would not do: it counts the memory of this
/// process, from before the `exec`, and of the processes that the child reaped.
fn watch_peak(child: &Child) -> Result<u64> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT)?;
    loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT) => break,
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::PtraceEvent(..) => ptrace::cont(pid, None)?,
            other => return Err(format!("ended unseen: {other:?}").into()),
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    ptrace::cont(pid, None)?;
    let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = mark.and_then(|rest| rest.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmHWM")?.trim().parse::<u64>()? * 1024)
}
