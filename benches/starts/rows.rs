//! What is timed: one [`Row`] each.

use std::time::Duration;

use serde_json::{Value, json};

use crate::front::Front;
use crate::record::every_layer;
use crate::rounds::Ready;
use crate::scene::Scene;
use crate::server::Server;
use crate::worker::Worker;
use crate::{Result, bare, worker};

/// A way to have work done.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What others are compared with, if this is that.
    pub(crate) measures: Option<Base>,
    /// What this is compared with.
    pub(crate) against: Option<Base>,
    /// The largest ratios that are meant to be reached: of the median, and of the 99th
    /// percentile to the base's median.
    pub(crate) goal: Option<(f64, Option<f64>)>,
    prepare: fn(&Scene) -> Result<Ready>,
}

/// What others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// `bwrap … /bin/true`.
    Bwrap,
    /// `python3 -I -c 1`.
    Python,
}

impl Base {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bwrap => "B",
            Self::Python => "P",
        }
    }
}

impl Row {
    /// Whether others are compared with it.
    pub(crate) fn is_base(&self) -> bool {
        self.measures.is_some()
    }

    pub(crate) fn prepare(&self, scene: &Scene) -> Result<Ready> {
        (self.prepare)(scene)
    }
}

/// The options of a server whose copies have loaded the data stack.
pub(crate) const PANDAS: [&str; 4] = [
    "--rootfs",
    "python-data",
    "--preload",
    "numpy,pandas,matplotlib.pyplot",
];
pub(crate) const DESCRIBE: &str = "import pandas as pd\n\
    pd.DataFrame({'a': range(1000), 'b': [x * x for x in range(1000)]}).describe()";

/// All of them. A row whose server cannot be started is skipped.
pub(crate) const ALL: &[Row] = &[
    Row {
        name: "bwrap",
        about: "B: `bwrap --unshare-all --ro-bind / / /bin/true`",
        measures: Some(Base::Bwrap),
        against: None,
        goal: None,
        prepare: |scene| {
            command(
                scene,
                &["bwrap", "--unshare-all", "--ro-bind", "/", "/", "/bin/true"],
            )
        },
    },
    Row {
        name: "python",
        about: "P: `python3 -I -c 1`",
        measures: Some(Base::Python),
        against: None,
        goal: None,
        prepare: |scene| command(scene, &bare::PYTHON),
    },
    Row {
        name: "cold",
        about: "`/bin/true` in a new cell, `cellblock exec`",
        measures: None,
        against: Some(Base::Bwrap),
        goal: None,
        prepare: |scene| {
            let own = scene.cellblock.to_string_lossy();
            command(
                scene,
                &[&own, "exec", "--record", "/dev/null", "--", "/bin/true"],
            )
        },
    },
    Row {
        name: "cold-supervised",
        about: "`/bin/true` in a new cell, by a server's supervisor",
        measures: None,
        against: Some(Base::Bwrap),
        goal: None,
        prepare: |scene| supervised(scene, false),
    },
    Row {
        name: "blank-supervised",
        about: "`/bin/true` in a blank cell, by a server's supervisor",
        measures: None,
        against: Some(Base::Bwrap),
        goal: None,
        prepare: |scene| supervised(scene, true),
    },
    Row {
        name: "cold-served",
        about: "`/bin/true` in a new cell, through `serve`",
        measures: None,
        against: Some(Base::Bwrap),
        goal: None,
        prepare: |scene| run(scene, &[], "cold", json!({"argv": ["/bin/true"]})),
    },
    Row {
        name: "blank",
        about: "`/bin/true` in a blank cell, through `serve`",
        measures: None,
        against: Some(Base::Bwrap),
        goal: Some((0.35, None)),
        prepare: |scene| {
            run(
                scene,
                &["--warm", "blank:4"],
                "blank",
                json!({"argv": ["/bin/true"]}),
            )
        },
    },
    Row {
        name: "python-ready",
        about: "plain Python, from the pool",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.25, None)),
        prepare: |scene| {
            run(
                scene,
                &["--warm", "python:4"],
                "ready",
                code("print(6 * 7)"),
            )
        },
    },
    Row {
        name: "python-forked",
        about: "plain Python, forked from a template",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.25, None)),
        prepare: |scene| {
            let options = ["--warm", "python:4", "--preload", "json"];
            run(scene, &options, "forked", code("print(6 * 7)"))
        },
    },
    Row {
        name: "pandas",
        about: "`df.describe()` with numpy, pandas and pyplot loaded",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.5, Some(1.5))),
        prepare: |scene| {
            let options = [&PANDAS[..], &["--warm", "python:4"]].concat();
            run(scene, &options, "forked", code(DESCRIBE))
        },
    },
    Row {
        name: "pandas-miss",
        about: "the same when none waits",
        measures: None,
        against: Some(Base::Python),
        goal: Some((1.5, None)),
        prepare: |scene| {
            // Cells that wait may have no memory, so there are none.
            let options = [&PANDAS[..], &["--warm", "python:1", "--warm-memory", "1"]].concat();
            let server = Server::start_empty(scene, &options)?;
            Ok(run_by(server, "forked", code(DESCRIBE)))
        },
    },
    Row {
        name: "context-run",
        about: "an execution in a live context",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.1, None)),
        prepare: |scene| {
            let (mut server, context) = with_context(scene)?;
            Ok(Box::new(move || {
                let params = json!({"context": context, "code": "n = globals().get('n', 0) + 1"});
                let (took, result) = server.timed("context.run", params)?;
                kept(&result)?;
                Ok(took)
            }))
        },
    },
    Row {
        name: "context-create",
        about: "a context is created",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.4, None)),
        prepare: |scene| {
            let options = ["--warm", "python:4", "--preload", "json"];
            let mut server = Server::start(scene, &options)?;
            Ok(Box::new(move || {
                let (took, context) = create(&mut server)?;
                server.call("context.delete", json!({"context": context}))?;
                Ok(took)
            }))
        },
    },
    Row {
        name: "context-fork",
        about: "a context with 10 MB of its own is forked",
        measures: None,
        against: Some(Base::Python),
        goal: Some((2.0, None)),
        prepare: |scene| fork(scene, &["--preload", "json"]),
    },
    Row {
        name: "context-fork-pandas",
        about: "the same with numpy, pandas and pyplot loaded",
        measures: None,
        against: Some(Base::Python),
        goal: Some((2.0, None)),
        prepare: |scene| fork(scene, &PANDAS),
    },
    Row {
        name: "context-rewind",
        about: "the same context goes back to a checkpoint",
        measures: None,
        against: Some(Base::Python),
        goal: Some((2.0, None)),
        prepare: |scene| rewind(scene, &["--preload", "json"]),
    },
    Row {
        name: "context-rewind-pandas",
        about: "the same with numpy, pandas and pyplot loaded",
        measures: None,
        against: Some(Base::Python),
        goal: Some((2.0, None)),
        prepare: |scene| rewind(scene, &PANDAS),
    },
];

/// A command that a worker starts and waits for.
fn command(scene: &Scene, argv: &[&str]) -> Result<Ready> {
    let mut worker = Worker::start(scene.uid, false)?;
    let job = bare::job(argv, 1);
    Ok(Box::new(move || {
        let worker::Done { nanos, .. } = worker.call(&job)?;
        Ok(Duration::from_nanos(nanos))
    }))
}

/// A program that the supervisor of one cell runs, without a front end's protocol.
fn supervised(scene: &Scene, blank: bool) -> Result<Ready> {
    let mut front = Front::start(scene, blank)?;
    Ok(Box::new(move || front.time()))
}

/// A request that a server runs in a cell of its own, started as the record has it.
fn run(scene: &Scene, options: &[&str], start: &'static str, request: Value) -> Result<Ready> {
    let server = Server::start(scene, options)?;
    Ok(run_by(server, start, request))
}

fn run_by(mut server: Server, start: &'static str, request: Value) -> Ready {
    Box::new(move || {
        let (took, result) = server.timed("run", json!({"request": request}))?;
        started(&result, start)?;
        Ok(took)
    })
}

/// Checks how a run's cell was started, and that it succeeded in a cell with every layer.
pub(crate) fn started(result: &Value, start: &str) -> Result<()> {
    let record = every_layer(result["record"].to_string().as_bytes())?;
    match json!(record.start) == start && result["record"]["outcome"] == "ok" {
        true => Ok(()),
        false => Err(format!("not a good run from a {start} cell: {}", result["record"]).into()),
    }
}

pub(crate) fn code(code: &str) -> Value {
    json!({"language": "python", "code": code})
}

pub(crate) fn create(server: &mut Server) -> Result<(Duration, Value)> {
    let params = json!({"request": {"language": "python"}});
    let (took, mut result) = server.timed("context.create", params)?;
    Ok((took, result["context"].take()))
}

fn with_context(scene: &Scene) -> Result<(Server, Value)> {
    let mut server = Server::start(scene, &["--warm", "python:2"])?;
    let (_, context) = create(&mut server)?;
    Ok((server, context))
}

fn fork(scene: &Scene, options: &[&str]) -> Result<Ready> {
    let (mut server, context) = with_state(scene, options)?;
    Ok(Box::new(move || {
        let params = json!({"context": context, "n": 1});
        let (took, result) = server.timed("context.fork", params)?;
        let forks = result["branches"]
            .as_array()
            .filter(|forks| !forks.is_empty());
        for fork in forks.ok_or_else(|| format!("no fork: {result}"))? {
            let params = json!({"context": fork["context"]});
            server.call("context.delete", params)?;
        }
        Ok(took)
    }))
}

fn rewind(scene: &Scene, options: &[&str]) -> Result<Ready> {
    let (mut server, context) = with_state(scene, options)?;
    let made = server.call("context.checkpoint", json!({"context": context}))?;
    let checkpoint = made["checkpoint"].clone();
    Ok(Box::new(move || {
        let params = json!({"context": context, "checkpoint": checkpoint});
        Ok(server.timed("context.rewind", params)?.0)
    }))
}

/// A context that can be forked, with 10 MB of its own.
fn with_state(scene: &Scene, options: &[&str]) -> Result<(Server, Value)> {
    let options = [options, &["--warm", "python:3"]].concat();
    let mut server = Server::start(scene, &options)?;
    let params = json!({"request": {"language": "python"}});
    let context = server.call("context.create", params)?["context"].take();
    let code = "import os\ndata = bytearray(os.urandom(10 << 20))";
    let params = json!({"context": context, "code": code});
    kept(&server.call("context.run", params)?)?;
    Ok((server, context))
}

pub(crate) fn kept(result: &Value) -> Result<()> {
    match result["state"] == "kept" {
        true => Ok(()),
        false => Err(format!("the state is not kept: {result}").into()),
    }
}
