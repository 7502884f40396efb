//! What a browser makes of a page.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fs, iter, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::chromium::{Chromium, Page};

/// The process of all tests that have a browser at the moment. It takes long to start.
static SHARED: Mutex<Weak<Mutex<Chromium>>> = Mutex::new(Weak::new());

/// What a page asks for by itself, it asks for within this time after it is complete, or it is
/// opened once more.
const SETTLED: Duration = Duration::from_secs(1);

/// A browser that is installed.
pub(crate) struct Browser {
    program: PathBuf,
    process: Arc<Mutex<Chromium>>,
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
        let Some(program) = found else {
            // The macros write to what the harness keeps back.
            let _ = writeln!(io::stderr(), "{test}: skipped, there is no chromium here");
            return None;
        };
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // One that a test has failed with may be in any state.
        let usable = shared.upgrade().filter(|process| !process.is_poisoned());
        let process = usable.unwrap_or_else(|| Arc::new(Mutex::new(Chromium::start(&program))));
        *shared = Arc::downgrade(&process);
        Some(Self { program, process })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Does something with a page that is complete, and closes it.
    fn with<T>(&self, page: &str, width: u32, then: impl FnOnce(&mut Chromium, &Page) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.html");
        fs::write(&file, page).unwrap();
        let mut chromium: MutexGuard<'_, Chromium> = self.process.lock().unwrap();
        let page = chromium.open_blank();
        let size = json!({"width": width, "height": 2400, "deviceScaleFactor": 1, "mobile": false});
        chromium.call(Some(&page), "Emulation.setDeviceMetricsOverride", size);
        chromium.go(&page, &format!("file://{}", file.display()));
        let done = then(&mut chromium, &page);
        chromium.close(&page);
        done
    }

    /// The document once it is loaded.
    pub(crate) fn dom(&self, page: &str) -> String {
        self.with(page, 800, |chromium, page| {
            let text = chromium.value(page, "document.documentElement.outerHTML");
            text.as_str().unwrap().to_owned()
        })
    }

    /// A screenshot of a page.
    pub(crate) fn screenshot(&self, page: &str, width: u32) -> Picture {
        let shot = self.with(page, width, |chromium, page| {
            chromium.call(
                Some(page),
                "Page.captureScreenshot",
                json!({"format": "png"}),
            )
        });
        Picture::read(&BASE64.decode(shot["data"].as_str().unwrap()).unwrap())
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
            self.with(&page, 800, |_, _| thread::sleep(SETTLED));
            drop(end);
            server.join().unwrap()
        })
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
    fn read(png: &[u8]) -> Self {
        let mut reader = png::Decoder::new(io::Cursor::new(png)).read_info().unwrap();
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
