//! How fast a flood of output is read, counted and cut: bytes per second
//! through a real pipe, by size of the pipe, of the writes and of the cap. For
//! comparison, a reader that keeps nothing.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe;
use spec::Bytes;
use supervise::capture::{Capture, ReadStatus};

const FLOOD: u64 = 4 << 30;

fn main() -> io::Result<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    for pipe_size in [64 << 10, 256 << 10, 1 << 20] {
        for block in [4 << 10, 64 << 10] {
            print!("pipe {:>4}K  writes {:>2}K ", pipe_size >> 10, block >> 10);
            let mut buffer = vec![0; 64 << 10];
            let discarded = flood(pipe_size, block, |fd| {
                match nix::unistd::read(fd, &mut buffer) {
                    Ok(0) => Ok(ReadStatus::Closed),
                    Ok(_) => Ok(ReadStatus::More),
                    Err(Errno::EAGAIN) => Ok(ReadStatus::Drained),
                    Err(errno) => Err(errno.into()),
                }
            })?;
            print!("  discarded {discarded:.2}");
            for cap in [Bytes(10_000), Bytes::mib(1)] {
                let mut capture = Capture::new(cap);
                let rate = flood(pipe_size, block, |fd| capture.read_from(fd))?;
                assert_eq!(capture.total(), FLOOD);
                print!("  cap {cap} {rate:.2}");
            }
            println!("  GB/s");
        }
    }
    Ok(())
}

/// How fast `read` takes what a thread writes, in GB/s.
fn flood(
    pipe_size: i32,
    block: usize,
    mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<ReadStatus>,
) -> io::Result<f64> {
    let (end, write) = pipe()?;
    fcntl(&end, FcntlArg::F_SETPIPE_SZ(pipe_size))?;
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let start = Instant::now();
    let writer = std::thread::spawn(move || -> io::Result<()> {
        let mut write = File::from(write);
        let block = vec![b'x'; block];
        for _ in 0..FLOOD / block.len() as u64 {
            write.write_all(&block)?;
        }
        Ok(())
    });
    loop {
        match read(end.as_fd())? {
            ReadStatus::Closed => break,
            ReadStatus::More => {}
            ReadStatus::Drained => {
                poll(
                    &mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)],
                    PollTimeout::NONE,
                )?;
            }
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    writer
        .join()
        .map_err(|_| io::Error::other("the writer panicked"))??;
    Ok(FLOOD as f64 / elapsed / 1e9)
}
