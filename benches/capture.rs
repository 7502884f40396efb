//! How fast a flood of output is read, counted and cut: bytes per second
//! through a real pipe, by size of the pipe, of the writes and of the cap.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use cellblock::spec::Bytes;
use cellblock::supervise::capture::{Capture, ReadStatus};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe;

const FLOOD: u64 = 4 << 30;

fn main() -> io::Result<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    for pipe_size in [64 << 10, 256 << 10, 1 << 20] {
        for block in [4 << 10, 64 << 10] {
            for cap in [Bytes(10_000), Bytes::mib(1)] {
                let rate = flood(pipe_size, block, cap)? / 1e9;
                println!(
                    "pipe {:>4}K  writes {:>2}K  cap {:>5}  {rate:.2} GB/s",
                    pipe_size >> 10,
                    block >> 10,
                    cap.to_string(),
                );
            }
        }
    }
    Ok(())
}

/// Bytes per second of a capture that a thread floods.
fn flood(pipe_size: i32, block: usize, cap: Bytes) -> io::Result<f64> {
    let (read, write) = pipe()?;
    fcntl(&read, FcntlArg::F_SETPIPE_SZ(pipe_size))?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let start = Instant::now();
    let writer = std::thread::spawn(move || -> io::Result<()> {
        let mut write = File::from(write);
        let block = vec![b'x'; block];
        for _ in 0..FLOOD / block.len() as u64 {
            write.write_all(&block)?;
        }
        Ok(())
    });
    let mut capture = Capture::new(cap);
    while capture.read_from(read.as_fd())? != ReadStatus::Closed {
        let mut wait = [PollFd::new(read.as_fd(), PollFlags::POLLIN)];
        poll(&mut wait, PollTimeout::NONE)?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    writer
        .join()
        .map_err(|_| io::Error::other("the writer panicked"))??;
    assert_eq!(capture.total(), FLOOD);
    Ok(FLOOD as f64 / elapsed)
}
