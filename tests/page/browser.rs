//! Chromium without a screen.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, iter, thread};

/// A browser that is installed.
pub(crate) struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Looks for one; without one, reports on stderr which test is skipped.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .flat_map(|dir| {
                ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name))
            })
            .find(|program| program.exists());
        if found.is_none() {
            // The macros write to what the harness keeps back.
            let _ = writeln!(io::stderr(), "{test}: skipped, there is no chromium here");
        }
        found.map(|program| Self { program })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn open(&self, page: &str, words: &[&OsStr]) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.html");
        fs::write(&file, page).unwrap();
        // coreutils' timeout, so that a browser that hangs is a failure.
        let output = Command::new("timeout")
            .args(["--kill-after=5", "120"])
            .arg(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .args(words)
            .arg(format!("file://{}", file.display()))
            .env("HOME", dir.path())
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {complaints}", output.status);
        output
    }

    /// The document once it is loaded.
    pub(crate) fn dom(&self, page: &str) -> String {
        let output = self.open(page, &["--dump-dom".as_ref()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The connections that `page`, made for an address, opens to that address: what
    /// each asks for, empty when it asks for nothing.
    pub(crate) fn connections(&self, page: impl FnOnce(&str) -> String) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let page = page(&format!("http://{address}"));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let server = scope.spawn(|| refuse(&listener, &is_over));
            // Its drop ends the server also when this thread panics; else the scope
            // would wait for ever.
            let end = EndOfServer(&is_over, address);
            self.open(
                &page,
                &["--virtual-time-budget=3000".as_ref(), "--dump-dom".as_ref()],
            );
            drop(end);
            server.join().unwrap()
        })
    }

    /// A screenshot of a page.
    pub(crate) fn screenshot(&self, page: &str, width: u32) -> Picture {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.png");
        let target = format!("--screenshot={}", file.display());
        let size = format!("--window-size={width},2400");
        self.open(page, &[target.as_ref(), size.as_ref()]);
        Picture::read(&file)
    }
}

/// Ends [`refuse`] when it is dropped.
struct EndOfServer<'a>(&'a AtomicBool, SocketAddr);

impl Drop for EndOfServer<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        // Wakes the server.
        drop(TcpStream::connect(self.1));
    }
}

/// Answers that there is nothing; returns what was asked for.
fn refuse(listener: &TcpListener, is_over: &AtomicBool) -> Vec<String> {
    let mut asked = Vec::new();
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        if is_over.load(Ordering::Relaxed) {
            // One of the waiting connections is the one that woke this thread.
            listener.set_nonblocking(true).unwrap();
            asked.extend(iter::from_fn(|| listener.accept().ok()).map(|_| String::new()));
            return asked;
        }
        // One that is opened in advance asks for nothing.
        let _ = connection.set_read_timeout(Some(Duration::from_millis(100)));
        let mut request = [0; 4096];
        let length = connection.read(&mut request).unwrap_or(0);
        let request = String::from_utf8_lossy(&request[..length]);
        let path = request.split(' ').nth(1).unwrap_or_default();
        asked.push(path.to_owned());
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = connection.write_all(answer.as_bytes());
    }
}

/// A screenshot.
pub(crate) struct Picture {
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let file = io::BufReader::new(fs::File::open(path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let width = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()].chunks_exact(width);
        Self {
            pixels: pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        }
    }

    /// How many pixels have a colour.
    pub(crate) fn pixels(&self, colour: [u8; 3]) -> usize {
        self.pixels.iter().filter(|pixel| **pixel == colour).count()
    }

    /// How many colours there are.
    pub(crate) fn colours(&self) -> usize {
        let mut colours = self.pixels.clone();
        colours.sort_unstable();
        colours.dedup();
        colours.len()
    }
}
