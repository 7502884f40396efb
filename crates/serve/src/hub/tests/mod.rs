//! A hub with supervisors that do what a test says.

mod branches;
mod calls;
mod contexts;
mod guests;
mod model;
mod pool;
mod processes;
mod replay;
mod shares;
mod suspend;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use record::error::{SetupError, Step};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use supervisor::{Layout, Order, ProcessOrder, Report, State};

use super::contexts::ContextKey;
use super::{Action, ClientId, Hub, LinkId, Party};
use crate::{Settings, Warm};

/// A hub, its clients' lines, and what its supervisors were ordered to do.
pub(super) struct World {
    pub(super) hub: Hub,
    pub(super) now: Instant,
    /// Lines that each client got.
    pub(super) said: BTreeMap<ClientId, Vec<Value>>,
    pub(super) hung_up: BTreeSet<ClientId>,
    pub(super) alive: BTreeSet<LinkId>,
    /// Executions that have not been answered.
    pub(super) running: BTreeMap<LinkId, u64>,
    /// Orders that took effect, by name.
    pub(super) ordered: Vec<(LinkId, &'static str)>,
    /// Orders about processes.
    pub(super) processes: Vec<(LinkId, ProcessOrder)>,
    /// Checkpoints that have not been removed.
    pub(super) stored: BTreeSet<PathBuf>,
    /// The number of the newest template, and of that which each supervisor can fork.
    pub(super) template: u64,
    pub(super) templates: BTreeMap<LinkId, u64>,
    /// How the memory of each interpreter is laid out.
    pub(super) layouts: BTreeMap<LinkId, Layout>,
    /// Supervisors that note what is executed.
    pub(super) remembering: BTreeSet<LinkId>,
    /// What became of the state of each interpreter, unless it was kept.
    pub(super) states: BTreeMap<LinkId, State>,
    /// Whether replays end differently from the first time.
    pub(super) differs: bool,
    /// Whether replays go on until they are stopped, and the orders that carry them out.
    pub(super) replays_endlessly: bool,
    pub(super) replaying: BTreeMap<LinkId, u64>,
    /// Orders, by name, that supervisors cannot carry out.
    pub(super) refused: BTreeSet<&'static str>,
    /// Orders, by name, whose reports do not come.
    pub(super) unanswered: BTreeSet<&'static str>,
    pub(super) is_over: bool,
    /// Whether supervisors end at once when they are told to.
    pub(super) ends: bool,
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        let now = Instant::now();
        let settings = Settings {
            checkpoints: Some(PathBuf::from("/checkpoints")),
            ..settings
        };
        let mut world = Self {
            hub: Hub::new(settings, 1000, now),
            now,
            said: BTreeMap::new(),
            hung_up: BTreeSet::new(),
            alive: BTreeSet::new(),
            running: BTreeMap::new(),
            ordered: Vec::new(),
            processes: Vec::new(),
            stored: BTreeSet::new(),
            template: 1,
            templates: BTreeMap::new(),
            layouts: BTreeMap::new(),
            remembering: BTreeSet::new(),
            states: BTreeMap::new(),
            differs: false,
            replays_endlessly: false,
            replaying: BTreeMap::new(),
            refused: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            is_over: false,
            ends: true,
        };
        world.pass(Duration::ZERO);
        world
    }

    pub(super) fn with(max_cells: usize, max_queue: usize) -> Self {
        Self::new(Settings {
            max_cells,
            max_queue,
            ..Settings::default()
        })
    }

    /// With a pool of this many interpreters of Python.
    pub(super) fn with_pool(count: usize, forked: bool, settings: Settings) -> Self {
        let language = Some("python".to_owned());
        Self::new(Settings {
            warm: vec![Warm {
                language,
                count,
                forked,
            }],
            ..settings
        })
    }

    pub(super) fn connect(&mut self, client: ClientId) {
        self.hub.connect(client, Party::User(1000), false);
    }

    /// Sends a call and lets the supervisors do what does not take time.
    pub(super) fn call(&mut self, client: ClientId, id: u64, method: &str, params: Value) {
        let line = json!({"id": id, "method": method, "params": params}).to_string();
        self.hub.line(client, line.as_bytes());
        self.act();
    }

    pub(super) fn run(&mut self, client: ClientId, id: u64) {
        let request = json!({"language": "python", "code": "1"});
        self.call(client, id, "run", json!({"request": request}));
    }

    pub(super) fn create(&mut self, client: ClientId, id: u64, name: &str) {
        let request = json!({"language": "python"});
        let params = json!({"request": request, "context": name});
        self.call(client, id, "context.create", params);
    }

    pub(super) fn run_in(&mut self, client: ClientId, id: u64, name: &str) {
        self.call(
            client,
            id,
            "context.run",
            json!({"context": name, "code": "1"}),
        );
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.hub.tick(self.now);
        self.act();
    }

    /// The supervisor of a context of the usual party.
    pub(super) fn link(&self, name: &str) -> LinkId {
        let key = ContextKey {
            party: Party::User(1000),
            name: name.to_owned(),
        };
        self.hub.contexts[&key].link
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        self.hub.gone(client);
        self.act();
    }

    /// The answer to a call, if there is one.
    pub(super) fn answer(&self, client: ClientId, id: u64) -> Option<&Value> {
        let lines = self.said.get(&client)?;
        let is_answer = |line: &&Value| line["id"] == id && line.get("event").is_none();
        lines.iter().find(is_answer)
    }

    pub(super) fn code(&self, client: ClientId, id: u64) -> &str {
        match self.answer(client, id) {
            None => "none",
            Some(line) => line["error"]["code"].as_str().unwrap_or("ok"),
        }
    }

    /// Ends an execution with an answer.
    pub(super) fn finish(&mut self, link: LinkId, state: State) {
        let Some(execution) = self.running.remove(&link) else {
            return;
        };
        let record = to_raw_value(&json!({"number": execution})).unwrap();
        let report = Report::Answer {
            execution,
            state,
            why: (state != State::Kept).then(|| "test".to_owned()),
            start: None,
            is_alive: state != State::Lost,
            record,
        };
        self.hub.report(link, report);
        self.act();
    }

    pub(super) fn finish_all(&mut self) {
        while let Some(link) = self.running.keys().next().copied() {
            self.finish(link, State::Kept);
        }
    }

    /// The supervisor of a cell is killed.
    pub(super) fn kill(&mut self, link: LinkId) {
        if self.alive.remove(&link) {
            self.running.remove(&link);
            self.hub.link_gone(link, "killed");
            self.act();
        }
    }

    pub(super) fn act(&mut self) {
        loop {
            self.act_once();
            if !self.hub.pass_on() {
                return;
            }
        }
    }

    fn act_once(&mut self) {
        while let Some(action) = self.hub.next_action() {
            match action {
                Action::Say(client, line) => {
                    assert!(!line.contains('\n'));
                    let line = serde_json::from_str(&line).unwrap();
                    self.said.entry(client).or_default().push(line);
                }
                Action::HangUp(client) => drop(self.hung_up.insert(client)),
                Action::Spawn(link) => assert!(self.alive.insert(link)),
                Action::Admit(link, cell_of) => {
                    assert!(self.alive.contains(&cell_of) && self.alive.insert(link));
                }
                Action::SpawnForking(link, template) => {
                    assert!(self.alive.insert(link));
                    let template = template.unwrap_or(self.template);
                    self.templates.insert(link, template);
                    self.hub.can_fork(link, template);
                }
                Action::Order(link, order) if self.alive.contains(&link) => {
                    self.obey(link, serde_json::from_str(&order).unwrap());
                }
                Action::Order(..) => {}
                // Orders are written at once.
                Action::Hold(_, share) => drop(share),
                Action::End(link) if self.ends => self.kill(link),
                Action::End(_) => {}
                Action::Forget(link) => drop(self.alive.remove(&link)),
                Action::Remove(directory) => drop(self.stored.remove(&directory)),
                Action::Exit => self.is_over = true,
            }
        }
    }

    /// The report about the state of an interpreter.
    fn restored(&self, link: LinkId, id: u64) -> Report {
        let state = self.states.get(&link).copied().unwrap_or(State::Kept);
        let why = (state != State::Kept).then(|| "test".to_owned());
        Report::Restored { id, state, why }
    }

    fn obey(&mut self, link: LinkId, order: Order) {
        let (name, report) = match order {
            Order::Open(open) => {
                let layout = match (open.forked, open.fixed_layout) {
                    (true, _) => Layout::Template,
                    (false, true) => Layout::Fixed,
                    (false, false) => Layout::Own,
                };
                self.layouts.insert(link, layout);
                let report = Report::Opened {
                    id: link.to_string(),
                    language: Some("python".to_owned()),
                    rootfs: "test".to_owned(),
                    forked: open.forked,
                    template: open.forked.then(|| record::Template {
                        generation: self.templates[&link],
                        age_ms: 5,
                        copies: 1,
                    }),
                };
                ("open", Some(report))
            }
            Order::Execute(execute) => {
                assert!(self.running.insert(link, execute.execution).is_none());
                self.states.remove(&link);
                ("execute", None)
            }
            Order::Interrupt { execution, .. } => {
                let sent = self.running.get(&link) == Some(&execution);
                (self.hub).report(link, Report::Interrupted { execution, sent });
                if self.running.get(&link) == Some(&execution) {
                    self.finish(link, State::Kept);
                }
                ("interrupt", None)
            }
            Order::Cancel { execution } => {
                if self.running.get(&link) == Some(&execution) {
                    self.finish(link, State::Lost);
                }
                ("cancel", None)
            }
            Order::Stop { id, .. } => {
                if self.replaying.remove(&link) == Some(id) {
                    self.states.insert(link, State::Lost);
                    let report = self.restored(link, id);
                    self.hub.report(link, report);
                }
                ("stop", None)
            }
            Order::Restart => {
                let id = link.to_string();
                ("restart", Some(Report::Restarted { id }))
            }
            Order::Describe => {
                let description = to_raw_value(&json!({"variables": []})).unwrap();
                ("describe", Some(Report::Described { description }))
            }
            Order::File { id, .. } => {
                let answer = to_raw_value(&json!({"file": id})).unwrap();
                ("file", Some(Report::File { id, answer }))
            }
            Order::Process { id, what } => {
                let report = match &what {
                    ProcessOrder::Taken { .. } => None,
                    ProcessOrder::Start(start) => {
                        let pid = i32::try_from(start.process).ok().map(|number| number + 100);
                        Some(Report::ProcessDone { id, pid })
                    }
                    _ => Some(Report::ProcessDone { id, pid: None }),
                };
                self.processes.push((link, what));
                ("process", report)
            }
            Order::Admit | Order::End => ("end", None),
            Order::Checkpoint { id, to, .. } => {
                let left_out = BTreeMap::new();
                if !self.refused.contains("checkpoint") {
                    assert!(self.stored.insert(to));
                }
                let layout = match self.remembering.contains(&link) {
                    true => Layout::Replay,
                    false => self.layouts[&link],
                };
                let report = Report::Checkpointed {
                    id,
                    bytes: 100,
                    layout,
                    left_out,
                };
                ("checkpoint", Some(report))
            }
            Order::Restore {
                id, from, layout, ..
            } => {
                match layout {
                    Layout::Replay => drop(self.remembering.insert(link)),
                    _ => assert_eq!(layout, self.layouts[&link]),
                }
                assert!(self.stored.contains(&from), "{from:?}");
                let state = match self.differs {
                    true => State::Lost,
                    false => State::Restored,
                };
                self.states.insert(link, state);
                if layout == Layout::Replay && self.replays_endlessly {
                    self.replaying.insert(link, id);
                    return self.ordered.push((link, "restore"));
                }
                ("restore", Some(self.restored(link, id)))
            }
            Order::Remember => {
                self.remembering.insert(link);
                ("remember", None)
            }
            Order::Resume { id } => ("resume", Some(self.restored(link, id))),
            Order::Compare { id, with } => {
                assert!(self.stored.contains(&with), "{with:?}");
                let files = to_raw_value(&json!([])).unwrap();
                ("compare", Some(Report::Compared { id, files }))
            }
        };
        let report = match self.refused.contains(name) {
            _ if self.unanswered.contains(name) => None,
            true => Some(Report::Failed {
                order: serde_json::from_value(json!(name)).unwrap(),
                // Those about checkpoints have numbers of their own.
                id: report.and_then(|report| match report {
                    Report::Checkpointed { id, .. } | Report::Restored { id, .. } => Some(id),
                    _ => None,
                }),
                error: SetupError::new(Step::Supervise, "there are threads").hint("end them"),
                state: Some(State::Kept),
                why: None,
            }),
            false => report,
        };
        self.ordered.push((link, name));
        if let Some(report) = report {
            self.hub.report(link, report);
        }
    }
}
