//! What is timed: one [`Row`] each.

use std::time::Duration;

use serde_json::{Value, json};

use crate::front::Front;
use crate::record::every_layer;
use crate::scene::Scene;
use crate::server::Server;
use crate::worker::{Job, Output, Worker};
use crate::{Result, worker};

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

/// Does the work once more and says how long it took.
pub(crate) type Ready = Box<dyn FnMut() -> Result<Duration>>;

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

const PRELOAD: &str = "numpy,pandas,matplotlib.pyplot";
const DESCRIBE: &str = "import pandas as pd\n\
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
        prepare: |scene| command(scene, &["/usr/bin/python3", "-I", "-c", "1"]),
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
        prepare: |scene| run(scene, &["--warm", "python:4"], "", code("print(6 * 7)")),
    },
    Row {
        name: "pandas-ready",
        about: "`df.describe()` with numpy, pandas and pyplot loaded",
        measures: None,
        against: Some(Base::Python),
        goal: Some((0.5, Some(1.5))),
        prepare: |scene| {
            let options = [
                "--rootfs",
                "python-data",
                "--warm",
                "python:4",
                "--preload",
                PRELOAD,
            ];
            run(scene, &options, "", code(DESCRIBE))
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
            let mut server = Server::start(scene, &["--warm", "python:4"])?;
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
        prepare: |scene| {
            let (mut server, context) = with_context(scene)?;
            let code = "import os\ndata = bytearray(os.urandom(10 << 20))";
            let params = json!({"context": context, "code": code});
            kept(&server.call("context.run", params)?)?;
            Ok(Box::new(move || {
                let params = json!({"context": context});
                let (took, result) = server.timed("context.fork", params)?;
                for fork in result["contexts"].as_array().into_iter().flatten() {
                    server.call("context.delete", json!({"context": fork["context"]}))?;
                }
                Ok(took)
            }))
        },
    },
];

/// A command that a worker starts and waits for.
fn command(scene: &Scene, argv: &[&str]) -> Result<Ready> {
    let mut worker = Worker::start(scene.uid, false)?;
    let job = Job {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        output: Output::Null,
        count: 1,
        peak: false,
    };
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
    let mut server = Server::start(scene, options)?;
    Ok(Box::new(move || {
        let (took, result) = server.timed("run", json!({"request": request}))?;
        let record = every_layer(result["record"].to_string().as_bytes())?;
        let was = record.start.map(|start| json!(start));
        if !start.is_empty() && was != Some(json!(start)) {
            return Err(format!("the cell's start was {was:?}").into());
        }
        Ok(took)
    }))
}

fn code(code: &str) -> Value {
    json!({"language": "python", "code": code})
}

fn create(server: &mut Server) -> Result<(Duration, Value)> {
    let params = json!({"request": {"language": "python"}});
    let (took, mut result) = server.timed("context.create", params)?;
    Ok((took, result["context"].take()))
}

fn with_context(scene: &Scene) -> Result<(Server, Value)> {
    let mut server = Server::start(scene, &["--warm", "python:2"])?;
    let (_, context) = create(&mut server)?;
    Ok((server, context))
}

fn kept(result: &Value) -> Result<()> {
    match result["state"] == "kept" {
        true => Ok(()),
        false => Err(format!("the state is not kept: {result}").into()),
    }
}
