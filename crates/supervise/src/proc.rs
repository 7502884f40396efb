//! A cell's processes as `/proc` shows them. Nothing here waits for a lock that
//! the cell can hold.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use sys::process::{ChildUsage, CpuTime, ProcessCount};

/// USER_HZ is 100 wherever Linux runs (time(7)).
const TICK: Duration = Duration::from_millis(10);
/// How long [`used_so_far`] looks, however many processes there are.
const TIME: Duration = Duration::from_millis(5);

/// A process of the cell.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    /// Its threads, the leader among them, also when that has ended.
    pub(super) threads: Vec<Pid>,
}

/// Init and all that descends from it, parents before children. Orphans become
/// init's children, so no process of the cell is missing.
pub(super) fn descendants(init: Pid, files: &ProcFiles) -> impl Iterator<Item = Process> {
    let mut found = VecDeque::from([(init, init)]);
    std::iter::from_fn(move || {
        let (pid, parent) = found.pop_front()?;
        let process = Process::new(pid, parent);
        found.extend(
            process
                .children(files)
                .into_iter()
                .map(|child| (child, pid)),
        );
        Some(process)
    })
}

impl Process {
    fn new(pid: Pid, parent: Pid) -> Self {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        // A directory has two links besides those of the directories in it.
        let is_single = fs::metadata(&tasks).is_ok_and(|tasks| tasks.nlink() == 3);
        let threads = match is_single {
            true => vec![pid],
            false => (fs::read_dir(tasks).into_iter().flatten().flatten())
                .filter_map(|task| task.file_name().to_str()?.parse().ok())
                .map(Pid::from_raw)
                .collect(),
        };
        Self {
            pid,
            parent,
            threads,
        }
    }

    /// Children of all threads (proc_pid_task_children(5)).
    fn children(&self, files: &ProcFiles) -> Vec<Pid> {
        let list = |thread: &Pid| files.read(*thread, Entry::Children);
        let lists: Vec<String> = self.threads.iter().filter_map(list).collect();
        let pids = lists.iter().flat_map(|list| list.split_ascii_whitespace());
        pids.filter_map(|pid| pid.parse().ok())
            .map(Pid::from_raw)
            .collect()
    }
}

/// CPU time that a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When it started, which distinguishes two processes of one pid.
    pub(super) started: u64,
    pub(super) own: CpuTime,
    /// Of the children that it waited for, and theirs.
    pub(super) waited: CpuTime,
}

impl Times {
    /// From proc_pid_stat(5).
    pub(super) fn of(pid: Pid, files: &ProcFiles) -> Option<Self> {
        Self::parse(&files.read(pid, Entry::Stat)?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything.
        let (_, fields) = stat.rsplit_once(')')?;
        // Fields are counted from 1, and the first of these is the third.
        let mut fields = fields.split_ascii_whitespace().skip(14 - 3);
        let mut time = || {
            let ticks: u64 = fields.next()?.parse().ok()?;
            Some(TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)))
        };
        let mut times = || {
            Some(CpuTime {
                user: time()?,
                system: time()?,
            })
        };
        let (own, waited) = (times()?, times()?);
        Some(Self {
            started: fields.nth(22 - 18)?.parse().ok()?,
            own,
            waited,
        })
    }
}

/// A file that `/proc` has for each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Children,
    Stat,
    Status,
}

impl Entry {
    fn path(self, thread: Pid) -> String {
        match self {
            Self::Children => format!("/proc/{thread}/task/{thread}/children"),
            Self::Stat => format!("/proc/{thread}/stat"),
            Self::Status => format!("/proc/{thread}/status"),
        }
    }
}

/// Files of processes, of which a few stay open from one look to the next: to find one by its
/// path takes longer than to read it. An open file never becomes that of another process.
#[derive(Debug, Default)]
pub(super) struct ProcFiles(RefCell<BTreeMap<(Pid, Entry), File>>);

impl ProcFiles {
    /// The most that stay open: those of init, of an interpreter and of two processes more.
    const MOST: usize = 12;

    fn read(&self, thread: Pid, entry: Entry) -> Option<String> {
        let mut open = self.0.borrow_mut();
        // That of a process that is gone, whose number another may have, shows an error or, if it
        // is the list of children, nothing.
        let is_certain = |text: &String| entry != Entry::Children || !text.is_empty();
        if let Some(file) = open.get(&(thread, entry)) {
            if let Some(text) = read(file).filter(is_certain) {
                return Some(text);
            }
            open.remove(&(thread, entry));
        }
        let file = File::open(entry.path(thread)).ok()?;
        let text = read(&file)?;
        if is_certain(&text) && open.len() < Self::MOST {
            open.insert((thread, entry), file);
        }
        Some(text)
    }

    /// Closes those of all other processes.
    pub(super) fn keep(&self, processes: &[Process]) {
        let is_listed = |pid| processes.iter().any(|process| process.pid == pid);
        (self.0.borrow_mut()).retain(|(thread, _), _| is_listed(*thread));
    }
}

/// A file of `/proc`, in as few calls as possible. A process's name is whatever bytes the
/// process has chosen, and those that are not UTF-8 must not hide the rest of the file.
fn read(file: &File) -> Option<String> {
    const PAGE: usize = 4096;
    let mut text = Vec::new();
    loop {
        let mut page = [0; PAGE];
        let count = match file.read_at(&mut page, text.len() as u64) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.ok()?,
        };
        text.extend_from_slice(&page[..count]);
        // A read also ends before an entry that no longer fits. No entry of a list is that long.
        if count < PAGE / 2 {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

/// A file of lines that give KiB.
pub(super) struct Lines(String);

impl Lines {
    pub(super) fn read(path: impl AsRef<Path>) -> Option<Self> {
        read(&File::open(path).ok()?).map(Self)
    }

    /// The status of a thread (proc_pid_status(5)).
    pub(super) fn of(thread: Pid, files: &ProcFiles) -> Option<Self> {
        files.read(thread, Entry::Status).map(Self)
    }

    pub(super) fn bytes(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        kib.checked_mul(1024)
    }
}

/// The use of init's descendants, dead or alive, for when init may report it too
/// late: init's figures are exact, but it reaps a process only after the kernel has
/// freed its memory, which takes seconds for gigabytes.
pub(super) fn used_so_far(init: Pid) -> Option<ChildUsage> {
    let until = Instant::now() + TIME;
    let files = &ProcFiles::default();
    // Init's own time is the set-up's; that of what it reaped is the program's.
    let mut cpu = Times::of(init, files)?.waited;
    let mut max_rss = 0;
    let others = descendants(init, files).skip(1);
    for process in others.take_while(|_| Instant::now() < until) {
        if let Some(times) = Times::of(process.pid, files) {
            cpu = cpu + times.own + times.waited;
        }
        // Absent once a process has freed its memory.
        let peak = Lines::of(process.pid, files).and_then(|status| status.bytes("VmHWM:"));
        max_rss = max_rss.max(peak.unwrap_or(0));
    }
    Some(ChildUsage {
        user: cpu.user,
        system: cpu.system,
        max_rss,
        count: ProcessCount::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_name() {
        let stat = "7 (a) b 1 2 (x)) S 1 7 7 0 -1 0 0 0 0 0 11 12 13 14 20 0 1 0 99 4096";
        let times = Times::parse(stat).unwrap();
        let cpu = |user, system| CpuTime {
            user: TICK * user,
            system: TICK * system,
        };
        assert_eq!((times.own, times.waited), (cpu(11, 12), cpu(13, 14)));
        assert_eq!(times.started, 99);
        assert_eq!(Times::parse("7 (a) S 1"), None);
        assert!(Times::of(Pid::this(), &ProcFiles::default()).is_some());
    }

    #[test]
    fn a_process_is_measured_whatever_its_name() {
        let script = "import sys,time; open('/proc/self/comm','wb').write(b'\\xff) \\xfe'); \
             print(flush=True); time.sleep(60)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut line).unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        let status = Lines::read(format!("/proc/{pid}/status")).and_then(|s| s.bytes("RssAnon:"));
        let times = Times::of(pid, &ProcFiles::default());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(status > Some(0) && times.is_some(), "{status:?} {times:?}");
    }

    #[test]
    fn files_stay_open_while_their_process_is_there() {
        let files = ProcFiles::default();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        for _ in 0..2 {
            assert!(Times::of(pid, &files).is_some() && Lines::of(pid, &files).is_some());
            let processes: Vec<Process> = descendants(pid, &files).collect();
            assert_eq!(processes.len(), 1);
            files.keep(&processes);
            // It has no children.
            assert_eq!(files.0.borrow().len(), 2);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Times::of(pid, &files).is_none());
        files.keep(&[]);
        assert!(files.0.borrow().is_empty());
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        for pid in all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let _ = Times::of(Pid::from_raw(pid), &files);
        }
        assert!(files.0.borrow().len() <= ProcFiles::MOST);
    }

    #[test]
    fn children_are_found_though_another_process_had_the_number_of_their_parent() {
        let start = || {
            std::process::Command::new("/bin/sh")
                .args(["-c", "sleep 60 & wait"])
                .spawn()
                .unwrap()
        };
        let (mut before, mut now) = (start(), start());
        let [gone, pid] = [&before, &now].map(|child| Pid::from_raw(child.id() as i32));
        let old = File::open(Entry::Children.path(gone)).unwrap();
        let of_before = Process::new(gone, gone).children(&ProcFiles::default());
        before.kill().unwrap();
        before.wait().unwrap();
        assert_eq!(read(&old).as_deref(), Some(""));

        // As if the second process had the number of the first one.
        let files = ProcFiles::default();
        files.0.borrow_mut().insert((pid, Entry::Children), old);
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while found.len() < 2 && Instant::now() < deadline {
            found = descendants(pid, &files)
                .map(|process| process.pid)
                .collect();
        }
        now.kill().unwrap();
        now.wait().unwrap();
        for child in found.iter().skip(1).chain(&of_before) {
            let _ = nix::sys::signal::kill(*child, nix::sys::signal::Signal::SIGKILL);
        }
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let whole = std::fs::read("/proc/self/smaps").unwrap();
        assert!(whole.len() > 4096);
        let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
        let read = read(&File::open("/proc/self/smaps").unwrap()).unwrap();
        // The reads themselves may map more.
        assert!(lines(read.as_bytes()) >= lines(&whole), "{read}");
        assert_eq!(read.as_bytes().last(), Some(&b'\n'));
    }

    #[test]
    fn threads_are_listed_however_many_there_are() {
        let of = |pid: Pid| Process::new(pid, pid).threads;
        let script = "read line";
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        assert_eq!(of(pid), [pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of(pid), []);
        let (wait, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = nix::unistd::gettid();
            let _ = waits.recv();
            own
        });
        let found = of(nix::unistd::getpid());
        drop(wait);
        let own = thread.join().unwrap();
        assert!(found.contains(&own) && found.contains(&nix::unistd::getpid()));
    }

    #[test]
    fn a_child_that_works_is_counted_before_it_has_ended() {
        let script = "i=0; while :; do i=$((i+1)); done";
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(100);
        let used = loop {
            let used = used_so_far(nix::unistd::getpid()).unwrap();
            if used.user >= Duration::from_millis(50) || Instant::now() > deadline {
                break used;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(used.user >= Duration::from_millis(50), "{used:?}");
        assert!(used.max_rss > 0, "{used:?}");
    }
}
