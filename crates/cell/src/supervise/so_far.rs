//! What a cell has used so far, where init may come to report it too late.
//!
//! Init's report is exact: it counts what it has reaped. But it reaps a process
//! only when the kernel has freed its memory, which takes seconds for gigabytes.
//! This is a look from outside before that, through `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use sys::process::{ChildUsage, ProcessCount};

/// The look takes no longer, however many processes there are.
const TIME: Duration = Duration::from_millis(5);

/// The use of init's descendants, dead or alive; `None` where `/proc` is silent.
pub(super) fn used_so_far(init: Pid) -> Option<ChildUsage> {
    let until = Instant::now() + TIME;
    // Init's own time is the set-up's; that of what it reaped is the program's.
    let [_, _, user, system] = times(init)?;
    let mut used = ChildUsage {
        user,
        system,
        max_rss: 0,
        count: ProcessCount::default(),
    };
    let mut processes = children(init);
    while let (Some(pid), true) = (processes.pop(), Instant::now() < until) {
        let Some([user, system, of_children, in_kernel]) = times(pid) else {
            continue;
        };
        used.user += user + of_children;
        used.system += system + in_kernel;
        used.max_rss = used.max_rss.max(peak(pid).unwrap_or(0));
        processes.extend(children(pid));
    }
    Some(used)
}

/// User and system time, and the same of children waited for: fields 14 to 17 of
/// proc_pid_stat(5).
fn times(pid: Pid) -> Option<[Duration; 4]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(|field| {
        // USER_HZ is 100 wherever Linux runs (time(7)).
        let ticks = field.parse::<u64>().ok()?;
        Some(Duration::from_millis(ticks.saturating_mul(10)))
    });
    let mut next = || ticks.next().flatten();
    Some([next()?, next()?, next()?, next()?])
}

/// The most memory that a process had resident (`VmHWM`); `None` once it has
/// freed all.
fn peak(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Children of all threads of `pid` (proc_pid_task_children(5)).
fn children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| {
        let pids = list.split_ascii_whitespace().map(str::parse);
        pids.flatten().map(Pid::from_raw).collect::<Vec<_>>()
    };
    lists.flat_map(pids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_works_is_counted_before_it_has_ended() {
        let script = "i=0; while :; do i=$((i+1)); done";
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
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
