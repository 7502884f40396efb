//! `cellblock serve --http`, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::Result;
use crate::pools::wait_until_full;
use crate::scene::Scene;

/// A server, which ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// The token of requests to it.
    token: Option<&'static str>,
}

impl Server {
    /// Starts it with these options, and waits until its pools are full.
    pub(crate) fn start(scene: &Scene, options: &[&str]) -> Result<Self> {
        Self::start_for(scene, options, None)
    }

    /// The same for requests with this token.
    pub(crate) fn start_for(
        scene: &Scene,
        options: &[&str],
        token: Option<&'static str>,
    ) -> Result<Self> {
        let mut child = scene
            .command()
            .args(["serve", "--rootfs", "host", "--http", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut messages = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let mut line = String::new();
        messages.read_line(&mut line)?;
        let address = line.trim().split_once("http://");
        let address = address
            .ok_or_else(|| format!("the server says {line:?}"))?
            .1
            .to_owned();
        std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::stderr()));
        let server = Self {
            child,
            address,
            token,
        };
        wait_until_full(|| server.request("GET /v1/status", &[], ""))?;
        Ok(server)
    }

    /// The front end's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has code executed by a new connection, as SandboxFusion's clients do; checks its output.
    pub(crate) fn run_code(&self, code: &str, output: &str) -> Result<()> {
        let body = json!({"code": code, "language": "python", "run_timeout": 30});
        let answer = self.request("POST /run_code", &[], &body.to_string())?;
        match answer["run_result"]["stdout"] == output {
            true => Ok(()),
            false => Err(answer.to_string().into()),
        }
    }

    /// Makes a request by a connection of its own; the JSON of the answer, which must be a good
    /// one.
    pub(crate) fn request(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.text(line, fields, body)?)?)
    }

    /// The same for an answer that is not one JSON value.
    pub(crate) fn text(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Result<String> {
        let mut socket = TcpStream::connect(&self.address)?;
        let mut request = format!(
            "{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        if let Some(token) = self.token {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in fields {
            request += &format!("{name}: {value}\r\n");
        }
        request = request + "\r\n" + body;
        socket.write_all(request.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        match head.starts_with("HTTP/1.1 2") {
            true => Ok(body.to_owned()),
            false => Err(format!("{line}: {answer}").into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
