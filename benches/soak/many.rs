//! Many contexts at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::footprint::Footprint;
use crate::server::Server;
use crate::stats::{Summary, median};
use crate::{Args, Result};

/// Calls that wait for their answers at the same time.
const WINDOW: usize = 8;
/// Interpreters that wait.
const POOL: usize = 4;

pub(crate) fn measure(args: &Args, count: usize) -> Result<()> {
    let mut options: Vec<String> = ["--max-cells", &count.to_string(), "--idle", "1h"]
        .map(str::to_owned)
        .to_vec();
    if !args.preload.is_empty() {
        let pool = [
            "--warm",
            &format!("python:{POOL}"),
            "--preload",
            &args.preload,
            // One for all: another one that is ready would count as left.
            "--template-copies",
            &(2 * count).to_string(),
        ];
        options.extend(pool.map(str::to_owned));
    }
    let server = Server::start(args, &options)?;
    let mut client = Client::connect(&server.socket())?;
    // What the server opens at its first calls counts as there before.
    client.renew_pools()?;
    let before = Footprint::of(&server);
    println!("before: {before}");

    let create = |index: usize| {
        let request = json!({"language": "python"});
        (
            "context.create",
            json!({"request": request, "context": format!("c{index}")}),
        )
    };
    each(&mut client, 0..1, create)?;
    each(&mut client, 0..1, |index| code(index, "own"))?;
    client.full()?;
    let one = Footprint::of(&server);
    let began = Instant::now();
    let (mut times, mut starts) = (Vec::new(), BTreeMap::new());
    let mut next = 1;
    while next < count {
        // As many as wait for it: a context that finds the pool empty has loaded nothing.
        let end = count.min(next + if args.burst { count } else { POOL });
        let (took, answers) = each(&mut client, next..end, create)?;
        times.extend(took);
        for answer in answers {
            *starts.entry(answer["start"].to_string()).or_insert(0) += 1;
        }
        next = end;
        if !args.burst {
            client.full()?;
        }
    }
    show("created", &times, began.elapsed());
    println!("starts: {starts:?}");

    for (round, what) in ["own", "x"].into_iter().enumerate() {
        let began = Instant::now();
        let (times, answers) = each(&mut client, 0..count, |index| code(index, what))?;
        for (index, answer) in answers.iter().enumerate() {
            let text = &answer["record"]["results"][0]["text"];
            if answer["state"] != "kept" || *text != json!(index.to_string()) {
                return Err(format!("context {index}: {answer}").into());
            }
        }
        show(
            ["answered", "answered again"][round],
            &times,
            began.elapsed(),
        );
    }
    let all = Footprint::of(&server);
    println!("all: {all}");
    let each_one = (all.memory as f64 - one.memory as f64) / (count.max(2) - 1) as f64 / 1024.0;
    println!("memory of each context beyond the first: {each_one:.2} MiB (at most 4)");

    let began = Instant::now();
    let (times, _) = each(&mut client, 0..count, |index| {
        ("context.delete", json!({"context": format!("c{index}")}))
    })?;
    show("deleted", &times, began.elapsed());
    client.renew_pools()?;
    let after = Footprint::settled(&server, &before);
    println!("after: {after}");
    let left = after.left(&before);
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("left: {}", left.join("; ")).into()),
    }
}

/// Each context has a value of its own.
fn code(index: usize, what: &str) -> (&'static str, Value) {
    let code = match what {
        "own" => format!("x = {index}; x"),
        _ => what.to_owned(),
    };
    (
        "context.run",
        json!({"context": format!("c{index}"), "code": code}),
    )
}

/// Makes the calls, some at a time; their times and results in sequence.
fn each(
    client: &mut Client,
    all: std::ops::Range<usize>,
    call: impl Fn(usize) -> (&'static str, Value),
) -> Result<(Vec<f64>, Vec<Value>)> {
    let (mut times, mut results) = (Vec::new(), Vec::new());
    let mut waiting: BTreeMap<u64, (usize, Instant)> = BTreeMap::new();
    let mut next = all.clone();
    while results.len() < all.len() {
        while waiting.len() < WINDOW
            && let Some(index) = next.next()
        {
            let (method, params) = call(index);
            waiting.insert(client.send(method, params)?, (index, Instant::now()));
        }
        let mut line = client.line()?;
        let Some((index, began)) = line["id"].as_u64().and_then(|id| waiting.remove(&id)) else {
            return Err(format!("an unexpected line: {line}").into());
        };
        let Some(result) = line.get_mut("result") else {
            return Err(format!("context {index}: {line}").into());
        };
        times.push(began.elapsed().as_secs_f64() * 1e6);
        results.push((index, result.take()));
    }
    results.sort_by_key(|(index, _)| *index);
    Ok((
        times,
        results.into_iter().map(|(_, result)| result).collect(),
    ))
}

fn show(what: &str, times: &[f64], took: Duration) {
    if times.is_empty() {
        return;
    }
    let summary = Summary::of(times.to_vec());
    println!(
        "{what}: {} in {:.1} s; median {:.1} ms, p99 {:.1} ms with {WINDOW} at a time",
        summary.runs,
        took.as_secs_f64(),
        median(times.to_vec()) / 1e3,
        summary.p99 / 1e3
    );
}
