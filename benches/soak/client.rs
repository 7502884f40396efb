//! A client of a server's socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Client {
    socket: BufReader<UnixStream>,
    last: u64,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket: BufReader::new(socket),
            last: 0,
        })
    }

    /// Makes a call; returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.last += 1;
        let line = json!({"id": self.last, "method": method, "params": params});
        let socket = self.socket.get_mut();
        socket.write_all(format!("{line}\n").as_bytes())?;
        Ok(self.last)
    }

    pub(crate) fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        match self.socket.read_line(&mut line)? {
            0 => Err("the server has ended the connection".into()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// The result of a call, while other lines are dropped.
    pub(crate) fn result(&mut self, id: u64) -> Result<Value> {
        loop {
            let mut line = self.line()?;
            if line["id"] != id || line.get("event").is_some() {
                continue;
            }
            return match line.get_mut("result").map(Value::take) {
                Some(result) => Ok(result),
                None => Err(line["error"].to_string().into()),
            };
        }
    }

    /// Waits until the code of a call with events has written something.
    pub(crate) fn begun(&mut self, id: u64) -> Result<()> {
        loop {
            let line = self.line()?;
            if line["id"] != id {
                continue;
            }
            if line.get("event").is_none() {
                return Err(format!("it ended: {line}").into());
            }
            if line["event"]["event"] == "stdout" {
                return Ok(());
            }
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        let result = self.result(id);
        result.map_err(|error| format!("{method}: {error}").into())
    }

    /// Waits until nothing is going on, no client has bytes waiting but those of this call, and the
    /// server's pools are full.
    pub(crate) fn quiet(&mut self) -> Result<()> {
        const OF_THIS_CALL: u64 = 4096;
        let is_empty = |budget: &Value| {
            budget["used"]
                .as_u64()
                .is_some_and(|used| used < OF_THIS_CALL)
        };
        self.until(|status| {
            let budgets = [&status["waiting"], &status["unread"]];
            let cells = &status["cells"]["used"];
            *cells == 0 && status["contexts"] == 0 && budgets.into_iter().all(is_empty)
        })
    }

    /// Waits until the server's pools are full.
    pub(crate) fn full(&mut self) -> Result<()> {
        self.until(|_| true)
    }

    /// Uses what waits, which can be older than the newest template, and waits for more.
    pub(crate) fn renew_pools(&mut self) -> Result<()> {
        let requests = [
            json!({"language": "python", "code": "1"}),
            json!({"argv": ["true"]}),
        ];
        for _ in 0..5 {
            self.quiet()?;
            for request in requests.iter().cycle().take(4) {
                self.call("run", json!({"request": request}))?;
            }
        }
        self.quiet()
    }

    /// Waits for this, and for full pools.
    fn until(&mut self, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.call("status", json!({}))?;
            let pools = status["pools"].as_array().cloned().unwrap_or_default();
            let are_full = pools.iter().all(|pool| pool["ready"] == pool["wanted"]);
            if are_full && is_so(&status) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("the server does not come to rest: {status}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
