//! E2B's wire, as hostile and hurried clients use it. tests/doors has the SDKs themselves.

mod access;
mod code;
mod files;
mod life;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Server, until};
use crate::http_client::{Answer, Http, chunk, read};

const ONE: &str = "0123456789abcdef";
const OTHER: &str = "fedcba9876543210";

/// A server with two tokens.
fn guarded() -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, format!("{ONE}\n{OTHER}\n")).unwrap();
    let server = Server::start_http(&["--http-token", file.to_str().unwrap()]);
    (server, directory)
}

fn with_key(http: &Http, key: &str) -> Http {
    http.with(&format!("x-api-key: {key}"))
}

fn create(http: &Http) -> Value {
    let body = json!({"templateID": "code-interpreter-v1", "timeout": 300});
    http.ask("POST", "/v2/sandboxes", &body)
}

/// Requests to a port of a sandbox, with these additional fields.
fn at(http: &Http, sandbox: &Value, port: u16, fields: &[&str]) -> Http {
    let id = sandbox["sandboxID"].as_str().unwrap();
    let http = http.with(&format!("e2b-sandbox-id: {id}"));
    let http = http.with(&format!("e2b-sandbox-port: {port}"));
    fields.iter().fold(http, |http, field| http.with(field))
}

fn token(sandbox: &Value, name: &str) -> String {
    sandbox[name].as_str().unwrap().to_owned()
}

fn lines(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Reads chunks until this text has come; returns all of it.
fn wait_for(socket: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        seen += &String::from_utf8_lossy(&chunk(socket).expect(wanted));
    }
    seen
}

/// Reads the head of an answer whose body is read in chunks.
fn skip_head(socket: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).unwrap();
    }
}
