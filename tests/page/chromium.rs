//! A process of Chromium without a screen, driven by its own protocol on a pair of pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a loaded machine may take for one step.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Chromium {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
    _profile: tempfile::TempDir,
}

/// A page that is open.
pub(crate) struct Page {
    target: Value,
    session: Value,
}

impl Chromium {
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The browser reads from descriptor 3 and writes to 4. It ends with its input.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--hide-scrollbars"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
            last: 0,
            _profile: profile,
        }
    }

    /// Calls a method of the page, or of the browser, and returns its result.
    pub(crate) fn call(&mut self, page: Option<&Page>, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut call = json!({"id": self.last, "method": method, "params": params});
        if let Some(page) = page {
            call["sessionId"] = page.session.clone();
        }
        write!(self.input, "{call}\0").unwrap();
        loop {
            let mut message = Vec::new();
            self.output.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.last {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
        }
    }

    /// Opens an address, and waits until the page is complete.
    pub(crate) fn open(&mut self, url: &str) -> Page {
        let page = self.open_blank();
        self.go(&page, url);
        page
    }

    pub(crate) fn open_blank(&mut self) -> Page {
        let made = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = made["targetId"].clone();
        let to = json!({"targetId": target, "flatten": true});
        let session = self.call(None, "Target.attachToTarget", to)["sessionId"].clone();
        Page { target, session }
    }

    pub(crate) fn go(&mut self, page: &Page, url: &str) {
        self.call(Some(page), "Page.navigate", json!({"url": url}));
        let is_there = "document.readyState === 'complete'";
        self.until(
            page,
            &format!("{is_there} && location.href.startsWith({url:?})"),
        );
    }

    pub(crate) fn close(&mut self, page: &Page) {
        let target = json!({"targetId": page.target});
        self.call(None, "Target.closeTarget", target);
    }

    /// The value of an expression in a page.
    pub(crate) fn value(&mut self, page: &Page, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let found = self.call(Some(page), "Runtime.evaluate", asked);
        assert_eq!(found["exceptionDetails"], Value::Null, "{expression}");
        found["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, page: &Page, expression: &str) {
        let began = Instant::now();
        while self.value(page, expression) != true {
            let text = self.value(page, "document.body?.innerText");
            assert!(
                began.elapsed() < PATIENCE,
                "{expression} is not true of: {text}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its other processes end with it, and then write nothing more to the profile.
        let close = json!({"id": 0, "method": "Browser.close"});
        let _ = write!(self.input, "{close}\0");
        let began = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
