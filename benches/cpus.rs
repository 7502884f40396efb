//! How well cells without a cgroup share the CPUs: so many busy programs at once,
//! bare and each in a cell of one CPU (bare ones in a session of their own as well,
//! since the kernel shares CPUs among sessions first, autogroups in sched(7)); and how many short Python cells several
//! launchers start in a second, beside bubblewrap's.
//!
//! The first argument that is a number says how often each is repeated.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bubblewrap with the mounts that Python needs.
const BWRAP: &[&str] = &[
    "bwrap",
    "--unshare-all",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--",
];
const PYTHON: &[&str] = &["/usr/bin/python3", "-I", "-c", "print(1)"];
/// About a second of CPU time.
const BUSY: &[&str] = &[
    "/bin/sh",
    "-c",
    "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done",
];
/// Gives a bare program a session of its own.
const SESSION: &[&str] = &["setsid", "--wait"];
const CROWDS: [usize; 4] = [1, 2, 4, 8];
const LAUNCHERS: [usize; 3] = [1, 2, 4];
const LAUNCHING: Duration = Duration::from_secs(4);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let rounds = arguments.iter().find_map(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(5);
    let cellblock =
        std::env::var("CELLBLOCK").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cellblock").to_owned());
    let cell = [
        &cellblock, "exec", "--json", "--cgroup", "none", "--cpus", "1", "--",
    ];
    println!("busy at once     bare   in cells   ratio   (medians of {rounds}, seconds)");
    for count in CROWDS {
        let (mut bare, mut cells) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(together(count, &[SESSION, BUSY].concat())?);
            cells.push(together(count, &[&cell[..], BUSY].concat())?);
        }
        let (bare, cells) = (median(bare), median(cells));
        println!(
            "{count:>12} {bare:>8.2} {cells:>10.2} {:>7.2}",
            cells / bare
        );
    }
    println!("\nlaunchers    bare   cellblock exec   bwrap   (Python, a second)");
    for launchers in LAUNCHERS {
        let mut rates = vec![
            launches(launchers, PYTHON)?,
            launches(launchers, &[&cell[..], PYTHON].concat())?,
        ];
        if Path::new("/usr/bin/bwrap").exists() {
            rates.push(launches(launchers, &[BWRAP, PYTHON].concat())?);
        }
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:>10.0}")).collect();
        println!("{launchers:>9} {}", rates.join(" "));
    }
    Ok(())
}

fn command(argv: &[&str]) -> Command {
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// How long this many programs take when they start at once.
fn together(count: usize, argv: &[&str]) -> Result<f64> {
    let start = Instant::now();
    let started: std::io::Result<Vec<_>> = (0..count).map(|_| command(argv).spawn()).collect();
    for mut child in started? {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("{argv:?}: {status}").into());
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Launches per second by this many launchers, each starting one after the other.
fn launches(launchers: usize, argv: &[&str]) -> Result<f64> {
    let start = Instant::now();
    let launch = || -> std::io::Result<usize> {
        let mut count = 0;
        while start.elapsed() < LAUNCHING {
            if !command(argv).status()?.success() {
                return Err(std::io::Error::other(format!("{argv:?} failed")));
            }
            count += 1;
        }
        Ok(count)
    };
    let count = std::thread::scope(|scope| {
        let all: Vec<_> = (0..launchers).map(|_| scope.spawn(launch)).collect();
        all.into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a launcher failed")))
            })
            .sum::<std::io::Result<usize>>()
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
