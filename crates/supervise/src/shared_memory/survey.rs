//! Which objects of shared memory the processes of a cell map, at a moment.
//!
//! A list of processes, and the maps of one, are read piece by piece, and a program could hide an
//! object from that: by a fork and an exit, or by moving a mapping to where the reader has been.
//! So a survey holds only if no thread of the cell ran while it was made. The kernel counts how
//! often it has taken a thread off a CPU. A thread that is off at the end, with the count that it
//! had at the beginning, did not run in between. Then no process has been started, none has ended,
//! and no mapping has moved. Clocks would not do: that of a thread that runs stands still from one
//! tick to the next. A cell that is never quiet is stopped for that moment
//! ([`Question::is_long`]).
//!
//! An object that was counted and is in no maps is gone, unless its thread has not come to make it
//! yet. Such a thread is about to run, or waits for a lock of its process, within the same call.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::proc::{ProcFiles, Process, descendants};

/// The most processes of which one is made.
const MOST_PROCESSES: usize = 4096;
/// The most bytes of the maps of one process, and of all together, that are read. As many mappings as a
/// process may have take the first with usual names; what the code has named may be longer, as the kernel
/// shows paths of any length.
const MOST_OF_ONE: u64 = 8 << 20;
const MOST_MAPS: u64 = 64 << 20;
/// The time between two tries.
const REST: Duration = Duration::from_millis(1);
/// How long a cell may take to be quiet by itself.
const QUIET: Duration = Duration::from_millis(10);

/// What is to be found out.
#[derive(Debug)]
pub(crate) struct Question {
    pub(super) init: Pid,
    /// The numbers of grants, and the threads that may not be past them.
    pub(super) grants: Vec<(u64, Option<Pid>)>,
    pub(super) asked: Instant,
}

/// The answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// When it was asked for.
    pub(super) asked: Instant,
    /// The grants whose threads are past making their objects.
    pub(super) past: BTreeSet<u64>,
    /// How many objects are mapped.
    pub(super) objects: usize,
}

impl Question {
    /// Whether the cell has had time to be quiet by itself.
    pub(crate) fn is_long(since: Instant) -> bool {
        since.elapsed() > QUIET
    }

    /// Tries until the cell is quiet, for `most` at most.
    pub(crate) fn answer(&self, most: Duration) -> Option<Survey> {
        let until = Instant::now() + most;
        let device = shared_device()?;
        loop {
            if let Some(survey) = self.try_once(&device) {
                return Some(survey);
            }
            // Without init, the cell has ended.
            if Instant::now() > until
                || fs::metadata(format!("/proc/{}/status", self.init)).is_err()
            {
                return None;
            }
            std::thread::sleep(REST);
        }
    }

    fn try_once(&self, device: &str) -> Option<Survey> {
        let before = processes(self.init)?;
        let switched = switches(&before)?;
        let past = (self.grants.iter())
            .filter(|(_, thread)| thread.is_none_or(is_past))
            .map(|(number, _)| *number)
            .collect();
        // A process that has changed its parent while the first list was read is in this one.
        let listed = processes(self.init)?;
        let mut objects = BTreeSet::new();
        let mut left = MOST_MAPS;
        // The first is cellblock's own init.
        for process in listed.iter().skip(1) {
            let maps = maps(process, &mut left)?;
            objects.extend(maps.lines().filter_map(|line| object(line, device)));
        }
        let after = processes(self.init)?;
        let mut threads = listed.iter().skip(1).flat_map(threads);
        let is_quiet = is_same(&before, &listed)
            && is_same(&listed, &after)
            && threads.all(|(_, thread)| is_off_cpu(thread))
            && switches(&listed)? == switched;
        is_quiet.then_some(Survey {
            asked: self.asked,
            past,
            objects: objects.len(),
        })
    }
}

/// All processes of a cell; `None` where there are too many.
fn processes(init: Pid) -> Option<Vec<Process>> {
    let files = ProcFiles::default();
    let listed: Vec<Process> = descendants(init, &files).take(MOST_PROCESSES + 1).collect();
    (listed.len() <= MOST_PROCESSES).then_some(listed)
}

/// The threads of a process, each with the process.
fn threads(process: &Process) -> impl Iterator<Item = (Pid, Pid)> {
    let of = |thread: &Pid| (process.pid, *thread);
    process.threads.iter().map(of)
}

fn is_same(one: &[Process], other: &[Process]) -> bool {
    (one.iter().flat_map(threads)).eq(other.iter().flat_map(threads))
}

/// How often each thread was taken off a CPU; `None` where one is gone.
fn switches(processes: &[Process]) -> Option<Vec<u64>> {
    let all = processes.iter().flat_map(threads);
    all.map(|(pid, thread)| {
        let status = fs::read(format!("/proc/{pid}/task/{thread}/status")).ok()?;
        // A newline in its name is not one here.
        let status = String::from_utf8_lossy(&status);
        let counts = status.lines().filter_map(|line| {
            let (_, count) = line.split_once("voluntary_ctxt_switches:")?;
            count.trim().parse::<u64>().ok()
        });
        Some(counts.sum())
    })
    .collect()
}

/// Whether a thread is off the CPUs at this moment. To tell its call, the kernel waits until one
/// that is about to sleep does (proc_pid_syscall(5)).
fn is_off_cpu(thread: Pid) -> bool {
    call_of(thread).is_ok_and(|call| call.is_some())
}

/// The number of the call in which a thread sleeps, and -1 outside of any. `None` where the thread
/// runs, or is about to.
fn call_of(thread: Pid) -> std::io::Result<Option<i64>> {
    let call = fs::read_to_string(format!("/proc/{thread}/task/{thread}/syscall"))?;
    let number = call.split_ascii_whitespace().next();
    Ok(number.and_then(|number| number.parse().ok()))
}

/// Whether a thread whose call was let through is past it: it has ended, or sleeps elsewhere.
fn is_past(thread: Pid) -> bool {
    match call_of(thread) {
        Ok(call) => call.is_some_and(|number| !COUNTED.contains(&number)),
        Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

/// The calls that are let through.
const COUNTED: [i64; 4] = [
    libc::SYS_mmap,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
];

/// The maps of a process: of a thread that has not ended. `None` where they cannot be read, or are too
/// long; they take from the bytes that are `left`.
fn maps(process: &Process, left: &mut u64) -> Option<String> {
    for thread in &process.threads {
        let path = format!("/proc/{}/task/{thread}/maps", process.pid);
        let mut maps = Vec::new();
        let most = MOST_OF_ONE.min(*left);
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut maps));
        match read {
            Ok(length) if length as u64 == most => return None,
            Ok(length) => *left -= length as u64,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                continue;
            }
            Err(_) => return None,
        }
        if !maps.is_empty() {
            return Some(String::from_utf8_lossy(&maps).into_owned());
        }
    }
    // It has ended, and no parent has waited for it.
    Some(String::new())
}

/// The inode of the shared memory that a line of maps shows, on this device. System V segments
/// are counted by themselves; no other memory can have such a name (prctl(2), `PR_SET_VMA`).
fn object(line: &str, device: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (mode, of, inode) = (fields.nth(1)?, fields.nth(1)?, fields.next()?);
    let name = fields.next().unwrap_or_default();
    let is_shared = mode.ends_with('s') && of == device && !name.starts_with("/SYSV");
    is_shared.then(|| inode.parse().ok()).flatten()
}

/// The device of all shared memory, by a mapping of this process's own: the page on which a cell's
/// set-up shows how far it is.
fn shared_device() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let is_shared = |line: &&str| line.ends_with(" /dev/zero (deleted)");
    let device = maps
        .lines()
        .find(is_shared)?
        .split_ascii_whitespace()
        .nth(3)?;
    Some(device.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that stands for init, and one below it that maps two objects of shared memory
    /// and one file, and shares them with a third. `then` is what the second does.
    fn start(then: &str) -> Child {
        let code = format!(
            "import mmap, os, sys\n\
             if os.fork(): os.wait(); sys.exit()\n\
             kept = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 1)\n\
             file = mmap.mmap(os.open(sys.executable, 0), 1, prot=mmap.PROT_READ)\n\
             if not os.fork(): sys.stdin.read(); os._exit(0)\n\
             print(flush=True)\n\
             {then}"
        );
        let mut init = Command::new("python3")
            .args(["-c", &code])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        let mut output = init.stdout.take().unwrap();
        std::io::Read::read_exact(&mut output, &mut line).unwrap();
        init
    }

    fn ask(init: &Child, grants: &[(u64, Option<Pid>)], most: Duration) -> Option<Survey> {
        let question = Question {
            init: Pid::from_raw(init.id() as i32),
            grants: grants.to_vec(),
            asked: Instant::now(),
        };
        question.answer(most)
    }

    fn end(mut init: Child) {
        let pid = Pid::from_raw(init.id() as i32);
        for process in descendants(pid, &ProcFiles::default()) {
            let _ = nix::sys::signal::kill(process.pid, nix::sys::signal::Signal::SIGKILL);
        }
        init.wait().unwrap();
    }

    #[test]
    fn objects_are_found_once_however_many_processes_have_them() {
        let _own = sys::shared::Progress::new().unwrap();
        let init = start("os.wait()");
        let survey = ask(&init, &[(1, None)], Duration::from_secs(30));
        end(init);
        let survey = survey.unwrap();
        assert_eq!((survey.objects, survey.past), (2, BTreeSet::from([1])));
    }

    #[test]
    fn a_cell_that_is_stopped_has_a_survey_though_it_never_rests() {
        let _own = sys::shared::Progress::new().unwrap();
        let init = start("while True: pass");
        let pid = Pid::from_raw(init.id() as i32);
        for process in descendants(pid, &ProcFiles::default()) {
            let _ = nix::sys::signal::kill(process.pid, nix::sys::signal::Signal::SIGSTOP);
        }
        let stopped = ask(&init, &[], Duration::from_secs(30));
        end(init);
        assert_eq!(stopped.map(|survey| survey.objects), Some(2));
    }

    /// Moves a mapping up and down between many others, for ever.
    const MOVE: &str = "
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
size = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_void_p, size] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, size, size, ctypes.c_int, ctypes.c_void_p]
libc.mprotect.argtypes = [ctypes.c_void_p, size, ctypes.c_int]
room = libc.mmap(None, 4000 * 4096, 0, 0x22, -1, 0)
for other in range(2000):
    libc.mprotect(room + other * 8192, 4096, 1)
at = libc.mmap(None, 4096, 3, 0x21, -1, 0)
while True:
    for to in room + 4096, room + 3999 * 4096:
        at = libc.mremap(at, 4096, 4096, 3, to)
";

    #[test]
    fn a_mapping_that_moves_is_hidden_from_a_reader_and_not_from_a_survey() {
        let _own = sys::shared::Progress::new().unwrap();
        let device = shared_device().unwrap();
        let init = start(MOVE);
        let pid = Pid::from_raw(init.id() as i32);
        let listed = descendants(pid, &ProcFiles::default()).collect::<Vec<_>>();
        let read = || {
            let mut left = MOST_MAPS;
            let maps = maps(&listed[1], &mut left).unwrap();
            maps.lines()
                .filter_map(|line| object(line, &device))
                .count()
        };
        let until = Instant::now() + Duration::from_secs(60);
        while read() < 3 && Instant::now() < until {}
        let (mut is_missed, mut wrong) = (false, None);
        while !is_missed && wrong.is_none() && Instant::now() < until {
            is_missed = read() < 3;
            let survey = ask(&init, &[], Duration::ZERO);
            wrong = survey.filter(|survey| survey.objects != 3);
        }
        end(init);
        assert!(is_missed, "the attack does not work");
        assert_eq!(wrong, None);
    }

    #[test]
    fn a_thread_is_past_its_call_in_another_one_and_when_it_has_ended() {
        let init = start("while True: pass");
        let pid = Pid::from_raw(init.id() as i32);
        let processes: Vec<Pid> = descendants(pid, &ProcFiles::default())
            .map(|process| process.pid)
            .collect();
        let [waits, runs, reads] = processes[..] else {
            panic!("{processes:?}");
        };
        // They come to rest, or to their end, when they have got a CPU.
        let until = Instant::now() + Duration::from_secs(60);
        let is_soon = |is: &dyn Fn() -> bool| {
            while !is() && Instant::now() < until {}
            is()
        };
        let sleep = is_soon(&|| is_past(waits) && is_past(reads));
        // It may be about to begin with what it was let through with.
        let runs_on = is_soon(&|| !is_past(runs));
        end(init);
        assert!(sleep && runs_on);
        assert!(is_soon(&|| is_past(runs)));
    }

    #[test]
    fn objects_are_those_of_the_device_whatever_they_are_called() {
        let lines = [
            (
                "7f00-8f00 rw-s 00000000 00:01 42                   /dev/zero (deleted)",
                Some(42),
            ),
            (
                "7f00-8f00 r--s 00000000 00:01 43        [anon_shmem:/SYSV0 (deleted)]",
                Some(43),
            ),
            (
                "7f00-8f00 rw-s 00000000 00:01 44            /SYSV00000000 (deleted)",
                None,
            ),
            (
                "7f00-8f00 rw-s 00000000 fe:01 45            /dev/zero (deleted)",
                None,
            ),
            (
                "7f00-8f00 rw-p 00000000 00:00 0                     [heap]",
                None,
            ),
            ("7f00-8f00 rw-p 00000000 00:00 0", None),
        ];
        for (line, inode) in lines {
            assert_eq!(object(line, "00:01"), inode, "{line}");
        }
    }
}
