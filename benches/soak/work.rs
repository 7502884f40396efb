//! Executions of all kinds, by several clients at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::Client;
use crate::footprint::Footprint;
use crate::server::Server;
use crate::stats::Summary;
use crate::{Args, Result};

/// Executions before the first snapshot.
const WARM_UP: usize = 200;
/// Executions in one context.
const LIFE: usize = 25;
const ENDLESS: &str = "print('begun', flush=True)\nwhile True: pass";

/// What a client does, and how often of a hundred times.
type Deed = (&'static str, u64, fn(&mut Worker) -> Result<()>);

const DEEDS: &[Deed] = &[
    ("execution in a context", 34, Worker::execute),
    ("run from the pool", 16, Worker::run_pooled),
    ("run in a blank cell", 10, Worker::run_blank),
    ("cold run", 4, Worker::run_cold),
    ("exception", 5, Worker::raise),
    ("files", 4, Worker::files),
    ("timeout", 5, Worker::time_out),
    ("interrupt", 5, Worker::interrupt),
    ("cancel of an execution", 3, Worker::cancel),
    ("cancel of a run", 2, Worker::cancel_run),
    ("killed interpreter", 4, Worker::kill),
    ("client that vanishes", 4, Worker::vanish),
    ("fork and rewind", 4, Worker::branch),
];

/// Times of each deed with the number of its execution.
type Times = BTreeMap<&'static str, Vec<(usize, f64)>>;

struct Shared {
    socket: PathBuf,
    done: AtomicUsize,
    times: Mutex<Times>,
}

pub(crate) fn measure(args: &Args) -> Result<()> {
    let mut options: Vec<String> = [
        "--warm",
        "blank:2",
        "--warm",
        "python:2",
        "--max-cells",
        "32",
    ]
    .map(str::to_owned)
    .to_vec();
    if !args.preload.is_empty() {
        options.extend(["--preload".to_owned(), args.preload.clone()]);
    }
    let server = Server::start(args, &options)?;
    let mut watcher = Client::connect(&server.socket())?;
    soak(&server, args.clients, WARM_UP)?;
    watcher.renew_pools()?;
    let before = Footprint::of(&server);
    println!("before: {before}");
    let began = Instant::now();
    let times = soak(&server, args.clients, args.executions)?;
    let took = began.elapsed().as_secs_f64();
    println!(
        "{} executions in {took:.0} s, {:.1} a second",
        args.executions,
        args.executions as f64 / took
    );
    watcher.renew_pools()?;
    let after = Footprint::settled(&server, &before);
    println!("after: {after}");
    show(&times, args.executions);
    let mut left = after.left(&before);
    left.extend(after.grown(&before));
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("left: {}", left.join("; ")).into()),
    }
}

fn soak(server: &Server, clients: usize, executions: usize) -> Result<Times> {
    let shared = Arc::new(Shared {
        socket: server.socket(),
        done: AtomicUsize::new(0),
        times: Mutex::default(),
    });
    let workers: Vec<_> = (0..clients)
        .map(|index| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || Worker::new(shared, index)?.work(executions))
        })
        .collect();
    for worker in workers {
        worker.join().map_err(|_| "a client panicked")??;
    }
    let mut times = shared.times.lock().map_err(|_| "a client panicked")?;
    Ok(std::mem::take(&mut *times))
}

/// Latencies of the last tenth, and their ratios to those of the first.
fn show(times: &Times, executions: usize) {
    println!(
        "{:<26}{:>8}{:>14}{:>8}{:>12}{:>8}",
        "", "times", "median ms", "ratio", "p90 ms", "ratio"
    );
    for (name, times) in times {
        let tenth = (executions / 10).max(1);
        let of = |is_in: &dyn Fn(usize) -> bool| {
            let part = times.iter().filter(|(number, _)| is_in(*number));
            Summary::of(part.map(|(_, time)| *time).collect::<Vec<f64>>())
        };
        if times.is_empty() {
            continue;
        }
        let (first, last) = (
            times.iter().any(|(number, _)| *number < tenth),
            times
                .iter()
                .any(|(number, _)| *number >= executions - tenth),
        );
        if !first || !last {
            println!("{name:<26}{:>8}", times.len());
            continue;
        }
        let (first, last) = (
            of(&|number| number < tenth),
            of(&|number| number >= executions - tenth),
        );
        println!(
            "{name:<26}{:>8}{:>14.2}{:>8.2}{:>12.2}{:>8.2}",
            times.len(),
            last.median / 1e3,
            last.median / first.median,
            last.p90 / 1e3,
            last.p90 / first.p90
        );
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: Client,
    random: u64,
    /// Its context's name, executions, and what `n` is there, if it is anything.
    context: Option<(String, usize, Option<u64>)>,
    index: usize,
    created: usize,
}

impl Worker {
    fn new(shared: Arc<Shared>, index: usize) -> Result<Self> {
        Ok(Self {
            client: Client::connect(&shared.socket)?,
            shared,
            random: 0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1) << 17,
            context: None,
            index,
            created: 0,
        })
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn work(mut self, executions: usize) -> Result<()> {
        let all = DEEDS.iter().map(|(_, share, _)| share).sum();
        loop {
            let number = self.shared.done.fetch_add(1, Ordering::Relaxed);
            if number >= executions {
                break;
            }
            let mut drawn = self.draw(all);
            let mut deeds = DEEDS.iter();
            let deed = deeds.find(|(_, share, _)| {
                let is_it = drawn < *share;
                drawn = drawn.saturating_sub(*share);
                is_it
            });
            let Some((name, _, act)) = deed else { continue };
            self.renew_context()?;
            let began = Instant::now();
            act(&mut self).map_err(|error| format!("{name}, execution {number}: {error}"))?;
            let took = began.elapsed().as_secs_f64() * 1e6;
            if let Ok(mut times) = self.shared.times.lock() {
                times.entry(name).or_default().push((number, took));
            }
        }
        self.delete()
    }

    fn delete(&mut self) -> Result<()> {
        let Some((name, ..)) = self.context.take() else {
            return Ok(());
        };
        self.client
            .call("context.delete", json!({"context": name}))?;
        Ok(())
    }

    /// Has a context that was not used too often.
    fn renew_context(&mut self) -> Result<()> {
        if self
            .context
            .as_ref()
            .is_some_and(|(_, used, _)| *used >= LIFE)
        {
            self.delete()?;
        }
        if self.context.is_none() {
            let name = self.create(json!({}))?;
            self.context = Some((name, 0, None));
        }
        Ok(())
    }

    fn create(&mut self, more: Value) -> Result<String> {
        self.created += 1;
        let name = format!("w{}-{}", self.index, self.created);
        let mut params = json!({"request": {"language": "python"}, "context": name});
        if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
            params.extend(more.clone());
        }
        self.client.call("context.create", params)?;
        Ok(name)
    }

    /// Has code executed in its context; `state` is what the answer must say.
    fn in_context(&mut self, code: &str, more: Value, state: &str) -> Result<Value> {
        let id = self.begin(code, more)?;
        let answer = self.client.result(id)?;
        self.expect_state(answer, state)
    }

    fn begin(&mut self, code: &str, more: Value) -> Result<u64> {
        let (name, used, _) = self.context.as_mut().ok_or("no context")?;
        *used += 1;
        let mut params = json!({"context": name, "code": code});
        if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
            params.extend(more.clone());
        }
        self.client.send("context.run", params)
    }

    fn expect_state(&mut self, answer: Value, state: &str) -> Result<Value> {
        if answer["state"] != state {
            return Err(format!("not {state}: {answer}").into());
        }
        if let Some((_, _, n)) = self.context.as_mut().filter(|_| state == "lost") {
            *n = None;
        }
        Ok(answer)
    }

    fn execute(&mut self) -> Result<()> {
        let next = self
            .context
            .as_ref()
            .and_then(|(_, _, n)| *n)
            .map_or(0, |n| n + 1);
        let code = match next {
            0 => "assert 'n' not in globals(); n = 0; n",
            _ => "n += 1; n",
        };
        let answer = self.in_context(code, json!({}), "kept")?;
        if answer["record"]["results"][0]["text"] != json!(next.to_string()) {
            return Err(format!("not {next}: {answer}").into());
        }
        if let Some((_, _, n)) = &mut self.context {
            *n = Some(next);
        }
        Ok(())
    }

    fn run(&mut self, request: Value, stdout: &str) -> Result<()> {
        let answer = self.client.call("run", json!({"request": request}))?;
        match answer["record"]["stdout"] == stdout {
            true => Ok(()),
            false => Err(format!("not {stdout:?}: {answer}").into()),
        }
    }

    fn run_pooled(&mut self) -> Result<()> {
        let token = self.draw(u64::MAX);
        let request = json!({"language": "python", "code": format!("print({token})")});
        self.run(request, &format!("{token}\n"))
    }

    fn run_blank(&mut self) -> Result<()> {
        let token = self.draw(u64::MAX).to_string();
        self.run(json!({"argv": ["echo", token]}), &format!("{token}\n"))
    }

    fn run_cold(&mut self) -> Result<()> {
        let token = self.draw(u64::MAX).to_string();
        let code = "import os; print(os.environ['TOKEN'])";
        let limits = json!({"memory": "200M"});
        let request =
            json!({"language": "python", "code": code, "env": {"TOKEN": token}, "limits": limits});
        self.run(request, &format!("{token}\n"))
    }

    fn raise(&mut self) -> Result<()> {
        let answer = self.in_context("1 / 0", json!({}), "kept")?;
        match answer["record"]["outcome"] == "error" {
            true => Ok(()),
            false => Err(answer.to_string().into()),
        }
    }

    fn files(&mut self) -> Result<()> {
        let (name, ..) = self.context.as_ref().ok_or("no context")?;
        let name = name.clone();
        let write = json!({"context": name, "path": "d/in", "content": "x".repeat(5000)});
        self.client.call("file.write", write)?;
        self.in_context(
            "open('d/out', 'w').write(open('d/in').read()); None",
            json!({}),
            "kept",
        )?;
        let read = self
            .client
            .call("file.read", json!({"context": name, "path": "d/out"}))?;
        self.client
            .call("file.remove", json!({"context": name, "path": "d"}))?;
        match read.to_string().contains("xxxxx") {
            true => Ok(()),
            false => Err(read.to_string().into()),
        }
    }

    fn time_out(&mut self) -> Result<()> {
        let answer = self.in_context(ENDLESS, json!({"wall": "50ms", "grace": "60s"}), "kept")?;
        match answer["record"]["outcome"] == "timeout" {
            true => Ok(()),
            false => Err(answer.to_string().into()),
        }
    }

    fn interrupt(&mut self) -> Result<()> {
        let id = self.begin(ENDLESS, json!({"events": true}))?;
        self.client.begun(id)?;
        let context = self.context.as_ref().map(|(name, ..)| name.clone());
        self.client.send(
            "context.interrupt",
            json!({"context": context, "grace": "60s"}),
        )?;
        let answer = self.client.result(id)?;
        self.expect_state(answer, "kept").map(drop)
    }

    fn cancel(&mut self) -> Result<()> {
        let id = self.begin(ENDLESS, json!({"events": true}))?;
        self.client.begun(id)?;
        self.client.send("cancel", json!({"call": id}))?;
        let answer = self.client.result(id)?;
        self.expect_state(answer, "lost").map(drop)
    }

    fn cancel_run(&mut self) -> Result<()> {
        let request = json!({"language": "python", "code": ENDLESS});
        let id = self
            .client
            .send("run", json!({"request": request, "events": true}))?;
        self.client.begun(id)?;
        self.client.send("cancel", json!({"call": id}))?;
        let answer = self.client.result(id)?;
        match answer["record"]["outcome"] == "cancelled" {
            true => Ok(()),
            false => Err(answer.to_string().into()),
        }
    }

    fn kill(&mut self) -> Result<()> {
        let code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
        self.in_context(code, json!({}), "lost").map(drop)
    }

    fn vanish(&mut self) -> Result<()> {
        let mut other = Client::connect(&self.shared.socket)?;
        let drawn = self.draw(u64::MAX);
        let context = format!("v{}-{drawn}", self.index);
        let request = json!({"language": "python"});
        other.call(
            "context.create",
            json!({"request": request, "context": context}),
        )?;
        let id = other.send(
            "context.run",
            json!({"context": context, "code": ENDLESS, "events": true}),
        )?;
        if self.draw(2) == 0 {
            other.begun(id)?;
        }
        let request = json!({"language": "python", "code": "import time; time.sleep(1000)"});
        other.send("run", json!({"request": request}))?;
        Ok(())
    }

    fn branch(&mut self) -> Result<()> {
        let name = self.create(json!({"branches": true}))?;
        let run = |client: &mut Client, context: &Value, code: &str| {
            let answer = client.call("context.run", json!({"context": context, "code": code}))?;
            Result::Ok(answer["record"]["results"][0]["text"].clone())
        };
        let own = json!(name);
        run(&mut self.client, &own, "x = 1")?;
        let point = self
            .client
            .call("context.checkpoint", json!({"context": name}))?;
        run(&mut self.client, &own, "x = 2")?;
        let forked = self
            .client
            .call("context.fork", json!({"context": name, "n": 2}))?;
        for branch in forked["branches"].as_array().into_iter().flatten() {
            let context = &branch["context"];
            if run(&mut self.client, context, "x += 1; x")? != "3" {
                return Err(format!("a branch has another state: {forked}").into());
            }
            self.client
                .call("context.delete", json!({"context": context}))?;
        }
        let back = json!({"context": name, "checkpoint": point["checkpoint"]});
        self.client.call("context.rewind", back)?;
        if run(&mut self.client, &own, "x")? != "1" {
            return Err("rewound to another state".into());
        }
        self.client
            .call("context.delete", json!({"context": name}))?;
        Ok(())
    }
}
