//! The ways to the server.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

use crate::Result;
use crate::outside::{FOR_PASTA, Outside, SERVER};
use crate::relay;

/// What the client asks for.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// One gigabyte.
    Big,
    /// So many small answers, each by a connection of its own.
    Apart(usize),
    /// The same by one connection.
    Together(usize),
}

/// One way.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Words before the client's.
    prefix: Vec<String>,
    /// Words of the client.
    options: Vec<String>,
    host: &'static str,
    daemon: Option<Daemon>,
}

/// A proxy that runs as long as this.
struct Daemon(Child);

/// What one request took, in microseconds.
pub(crate) struct Time {
    pub(crate) connect: f64,
    pub(crate) rest: f64,
}

/// What a gigabyte took.
pub(crate) struct Fetched {
    pub(crate) seconds: f64,
    pub(crate) cpu_ms: f64,
}

impl Peer {
    /// All that this host has; the first one is direct.
    pub(crate) fn all(outside: &Outside) -> Vec<Self> {
        let named = |name, prefix: Vec<String>| Self {
            name,
            prefix,
            options: Vec::new(),
            host: "bench.example",
            daemon: None,
        };
        let mut all = vec![
            named("direct", Vec::new()),
            named("cell, --net host", outside.cell("host")),
            named("cell, --net allow", outside.cell("allow=bench.example")),
        ];
        relay::start();
        all.push(Self {
            host: relay::ADDRESS,
            ..named("bare relay", Vec::new())
        });
        for peer in [Self::tinyproxy(outside), Self::pasta(outside)] {
            match peer.and_then(|peer| peer.fetch(Request::Apart(1)).map(|_| peer)) {
                Ok(peer) => all.push(peer),
                Err(error) => println!("skipped: {error}"),
            }
        }
        all
    }

    /// A proxy that the client's environment names.
    fn tinyproxy(outside: &Outside) -> Result<Self> {
        let path = outside.directory.path().join("tinyproxy.conf");
        let settings =
            "Port 8888\nListen 127.0.0.1\nMaxClients 100\nLogLevel Critical\nTimeout 600\n";
        fs::write(&path, settings)?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&path).stdout(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| format!("tinyproxy: {error}"))?;
        // It says nowhere when it listens.
        std::thread::sleep(Duration::from_secs(1));
        Ok(Self {
            name: "tinyproxy, http_proxy",
            prefix: ["env", "http_proxy=http://127.0.0.1:8888"]
                .map(str::to_owned)
                .to_vec(),
            options: Vec::new(),
            host: SERVER,
            daemon: Some(Daemon(child)),
        })
    }

    /// A user-mode network stack behind a TAP device.
    fn pasta(outside: &Outside) -> Result<Self> {
        if let Some(why) = &outside.no_interface {
            return Err(format!("pasta: no interface: {why}").into());
        }
        // As root it becomes another user, and then may not do what it needs.
        let words = [
            "timeout",
            "-s",
            "KILL",
            "120",
            "unshare",
            "-Ur",
            "pasta",
            "-f",
            "--config-net",
            "--",
        ];
        Ok(Self {
            name: "pasta",
            prefix: words.map(str::to_owned).to_vec(),
            options: Vec::new(),
            host: FOR_PASTA,
            daemon: None,
        })
    }

    fn curl(&self, request: Request, format: &str) -> Command {
        let url = |path: String| format!("http://{}/{path}", self.host);
        let (url, extra) = match request {
            Request::Big => (url("big".to_owned()), None),
            Request::Apart(count) => (url(format!("[1-{count}]")), Some("Connection: close")),
            Request::Together(count) => (url(format!("[1-{count}]")), None),
        };
        let curl = [
            "curl",
            "-sS",
            "-m",
            "100",
            "-o",
            "/dev/null",
            "-w",
            format,
            &url,
        ];
        let mut words: Vec<String> = self.prefix.clone();
        words.extend(curl.map(str::to_owned));
        words.extend(self.options.iter().cloned());
        if let Some(field) = extra {
            words.extend(["-H", field].map(str::to_owned));
        }
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn output(&self, mut command: Command) -> Result<String> {
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => {
                let told = String::from_utf8_lossy(&output.stderr);
                Err(format!("{}: {}: {}", self.name, output.status, told.trim()).into())
            }
        }
    }

    /// Fetches something, and sums up what it took.
    pub(crate) fn fetch(&self, request: Request) -> Result<Fetched> {
        let before = self.cpu_ms()?;
        let text = self.output(self.curl(request, "%{time_total}\n"))?;
        let last = text.lines().last().unwrap_or_default();
        Ok(Fetched {
            seconds: last.trim().parse()?,
            cpu_ms: self.cpu_ms()? - before,
        })
    }

    /// What each of several requests took.
    pub(crate) fn times(&self, request: Request) -> Result<Vec<Time>> {
        let format = "%{time_namelookup} %{time_connect} %{time_total}\n";
        let text = self.output(self.curl(request, format))?;
        let lines = text.lines().map(|line| {
            let fields: std::result::Result<Vec<f64>, _> =
                line.split(' ').map(str::parse::<f64>).collect();
            match fields?[..] {
                [named, connected, total] => Ok(Time {
                    connect: (connected - named) * 1e6,
                    rest: (total - connected) * 1e6,
                }),
                _ => Err(format!("{}: {line}", self.name).into()),
            }
        });
        lines.collect()
    }

    /// The processor time so far of this process, which is the server, of its children and
    /// theirs, and of the proxy.
    fn cpu_ms(&self) -> Result<f64> {
        let mut sum = 0.0;
        for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
            let usage = getrusage(who)?;
            for time in [usage.user_time(), usage.system_time()] {
                sum += time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
            }
        }
        if let Some(Daemon(child)) = &self.daemon {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
            let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            let ticks = fields.skip(11).take(2).flat_map(str::parse::<f64>);
            // A tick is 10 ms (proc_pid_stat(5)).
            sum += ticks.sum::<f64>() * 10.0;
        }
        Ok(sum)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
