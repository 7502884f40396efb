//! `cellblock context create`: starts the context's server, and has it make the context.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::place::Place;
use crate::cli::{Create, OF_CREATE};
use record::error::{Result, SetupError, Step};
use wire::client::Client;
use wire::{ContextCreate, Created, Request, Shutdown, method};

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server stays without its context.
const IDLE_EXIT: &str = "2s";
/// Letters of ids: none looks like another.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Creates a context. `words` are those of the command line.
///
/// # Errors
/// The server or the context cannot be made.
pub(super) fn create(place: &Place, create: &Create, words: &[OsString]) -> Result<Created> {
    let id = new_id(place);
    let socket = place.socket(&id);
    let mut server = start(&socket, words)?;
    let mut client = connect(&socket, &mut server)?;
    let request = Request {
        language: Some(&create.own.lang),
        ..Request::default()
    };
    let params = ContextCreate {
        context: Some(id),
        label: create.own.label.clone(),
        keep: true,
        suspend_after: create.own.suspend_after,
        branches: create.own.branches,
        replay: create.own.replay,
        ..ContextCreate::new(request.raw())
    };
    let created = client.ask::<method::ContextCreate>(&params);
    if created.is_err() {
        // It would end by itself, but a moment later.
        let _ = client.ask::<method::Shutdown>(&Shutdown::default());
    }
    created
}

fn new_id(place: &Place) -> String {
    let random = RandomState::new();
    let candidates = (0u64..).map(|salt| {
        let mut number = random.hash_one(salt);
        let letters = std::iter::repeat_with(|| {
            let letter = LETTERS[(number % 32) as usize];
            number /= 32;
            char::from(letter)
        });
        letters.take(8).collect::<String>()
    });
    let is_free = |id: &String| !place.socket(id).exists();
    candidates.into_iter().find(is_free).unwrap_or_default()
}

/// Starts the server of a context, with the options of the command line that are its
/// own.
fn start(socket: &Path, words: &[OsString]) -> Result<Child> {
    let failed = |call| move |error| SetupError::io(Step::Ask, call, &error);
    let own = std::env::current_exe().map_err(failed("readlink"))?;
    let mut listen = OsString::from("unix:");
    listen.push(socket);
    Command::new(own)
        .args(["serve", "--detach", "--idle-exit", IDLE_EXIT, "--listen"])
        .arg(listen)
        .args(for_server(words))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed("execve"))
}

/// The options behind `context create` that its server takes.
fn for_server(words: &[OsString]) -> Vec<&OsStr> {
    let mut kept: Vec<&OsStr> = Vec::new();
    // The program's name, `context` and `create`.
    let mut words = words.iter().skip(3);
    while let Some(word) = words.next() {
        let name = word.as_bytes().split(|byte| *byte == b'=').next();
        let own = OF_CREATE
            .iter()
            .find(|(own, _)| Some(own.as_bytes()) == name);
        match own {
            Some((own, true)) if word.len() == own.len() => drop(words.next()),
            Some(_) => {}
            None => kept.push(word),
        }
    }
    // A context that says nothing about its idle life has this command's default.
    if !kept
        .iter()
        .any(|word| word.as_bytes().starts_with(b"--idle"))
    {
        kept.extend([OsStr::new("--idle"), OsStr::new("30m")]);
    }
    kept
}

/// Waits until the server listens; reports what it says if it ends instead.
fn connect(socket: &Path, server: &mut Child) -> Result<Client> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Client::connect(socket) {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() >= end => {
                let _ = server.kill();
                let _ = server.wait();
                return Err(error);
            }
            Err(_) => {}
        }
        if let Ok(Some(_)) = server.try_wait() {
            let mut said = String::new();
            if let Some(stderr) = &mut server.stderr {
                let _ = stderr.take(4096).read_to_string(&mut said);
            }
            let said = said.trim().trim_start_matches("cellblock: ").to_owned();
            let message = format!("the context's server ended: {said}");
            return Err(SetupError::new(Step::Ask, message));
        }
        sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_the_options_of_its_cell() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(Into::into).collect() };
        let line = words(
            "cellblock context create --lang python --memory 64M --json --branches --suspend-after 5s --label=x --env A=b",
        );
        let kept = for_server(&line);
        assert_eq!(kept, ["--memory", "64M", "--env", "A=b", "--idle", "30m"]);
        let line = words("cellblock context create --idle=5m --lang=r --label x");
        assert_eq!(for_server(&line), ["--idle=5m"]);
    }
}
