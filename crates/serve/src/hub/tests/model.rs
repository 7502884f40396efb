//! Random interleavings against a model. `PROPTEST_CASES` sets how many.

use std::collections::BTreeMap;

use wire::{Budget, Shares};

use proptest::prelude::*;

use super::*;
use crate::hub::client::SMALL;

/// One thing that happens. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Connect,
    Run(u8, u8),
    Create(u8, u8, bool, bool),
    RunIn(u8, u8, u8),
    Interrupt(u8, u8),
    Restart(u8, u8),
    Describe(u8, u8),
    Fork(u8, u8, u8),
    Checkpoint(u8, u8),
    Rewind(u8, u8),
    Suspend(u8, u8),
    Resume(u8, u8),
    Delete(u8, u8),
    Cancel(u8, u8),
    Finish(u8, bool),
    Start(u8, u8, bool),
    /// Connects to a process, gives it input or a signal.
    Process(u8, u8, u8, u8),
    Output(u8, u8, u16),
    End(u8, u8),
    /// Whether a client has no room.
    Full(u8, bool),
    /// Whether replays fail from now on.
    Differ(bool),
    Kill(u8),
    Vanish(u8),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let byte = any::<u8>;
    prop_oneof![
        2 => Just(Step::Connect),
        6 => (byte(), byte()).prop_map(|(a, b)| Step::Run(a, b)),
        5 => (byte(), byte(), any::<bool>(), any::<bool>())
            .prop_map(|(a, b, c, d)| Step::Create(a, b, c, d)),
        8 => (byte(), byte(), byte()).prop_map(|(a, b, c)| Step::RunIn(a, b, c)),
        3 => (byte(), byte()).prop_map(|(a, b)| Step::Interrupt(a, b)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::Restart(a, b)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::Describe(a, b)),
        2 => (byte(), byte(), byte()).prop_map(|(a, b, c)| Step::Fork(a, b, c)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::Checkpoint(a, b)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::Rewind(a, b)),
        3 => (byte(), byte()).prop_map(|(a, b)| Step::Suspend(a, b)),
        1 => (byte(), byte()).prop_map(|(a, b)| Step::Resume(a, b)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::Delete(a, b)),
        3 => (byte(), byte()).prop_map(|(a, b)| Step::Cancel(a, b)),
        8 => (byte(), any::<bool>()).prop_map(|(a, b)| Step::Finish(a, b)),
        4 => (byte(), byte(), any::<bool>()).prop_map(|(a, b, c)| Step::Start(a, b, c)),
        4 => (byte(), byte(), byte(), 1..5_u8).prop_map(|(a, b, c, d)| Step::Process(a, b, c, d)),
        8 => (byte(), byte(), any::<u16>()).prop_map(|(a, b, c)| Step::Output(a, b, c)),
        2 => (byte(), byte()).prop_map(|(a, b)| Step::End(a, b)),
        3 => (byte(), any::<bool>()).prop_map(|(a, b)| Step::Full(a, b)),
        1 => any::<bool>().prop_map(Step::Differ),
        2 => byte().prop_map(Step::Kill),
        1 => byte().prop_map(Step::Vanish),
        2 => any::<u16>().prop_map(Step::Wait),
    ]
}

/// What must be so: each call is answered once, nothing runs for clients that are gone,
/// and limits hold.
struct Model {
    world: World,
    clients: Vec<ClientId>,
    next_client: ClientId,
    next_id: u64,
    /// Ids of each client's calls, and the method.
    calls: BTreeMap<ClientId, Vec<(u64, &'static str)>>,
    /// How often each process wrote, and how many bytes, as long as it has not ended.
    processes: BTreeMap<(LinkId, u32), (u64, u64)>,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const PARTIES: [Party; 2] = [Party::User(1000), Party::Door(1)];
/// The bytes of a party that may wait, besides small calls.
const WAITING: usize = 6000;
const CELLS: usize = 3;
const QUEUE: usize = 4;

impl Model {
    fn call(&mut self, client: u8, method: &'static str, params: Value) {
        let Some(client) = choose(&self.clients, client) else {
            return;
        };
        self.next_id += 1;
        self.calls
            .entry(client)
            .or_default()
            .push((self.next_id, method));
        self.world.call(client, self.next_id, method, params);
    }

    fn step(&mut self, step: Step) {
        let name = |number: u8| NAMES[usize::from(number) % NAMES.len()];
        match step {
            Step::Connect if self.clients.len() < 4 => {
                self.next_client += 1;
                self.clients.push(self.next_client);
                let party = PARTIES[self.next_client as usize % PARTIES.len()];
                self.world.hub.connect(self.next_client, party, false);
            }
            Step::Connect => {}
            Step::Run(client, size) => {
                let code = "1".repeat(usize::from(size) * 16);
                let request = json!({"language": "python", "code": code});
                self.call(client, "run", json!({"request": request}));
            }
            Step::Create(client, context, keep, replay) => {
                let request = json!({"language": "python"});
                let params = json!({
                    "request": request, "context": name(context), "keep": keep,
                    "branches": !replay, "replay": replay,
                });
                self.call(client, "context.create", params);
            }
            Step::RunIn(client, context, size) => {
                let code = "1".repeat(usize::from(size) * 16);
                let params = json!({"context": name(context), "code": code});
                self.call(client, "context.run", params);
            }
            Step::Interrupt(client, context) => {
                self.call(
                    client,
                    "context.interrupt",
                    json!({"context": name(context)}),
                );
            }
            Step::Restart(client, context) => {
                self.call(client, "context.restart", json!({"context": name(context)}));
            }
            Step::Describe(client, context) => {
                self.call(
                    client,
                    "context.describe",
                    json!({"context": name(context)}),
                );
            }
            Step::Fork(client, context, n) => {
                let params = json!({"context": name(context), "n": n % 4});
                self.call(client, "context.fork", params);
            }
            Step::Checkpoint(client, context) => {
                let params = json!({"context": name(context)});
                self.call(client, "context.checkpoint", params);
            }
            Step::Rewind(client, context) => {
                self.call(client, "context.rewind", json!({"context": name(context)}));
            }
            Step::Suspend(client, context) => {
                self.call(client, "context.suspend", json!({"context": name(context)}));
            }
            Step::Resume(client, context) => {
                self.call(client, "context.resume", json!({"context": name(context)}));
            }
            Step::Delete(client, context) => {
                self.call(client, "context.delete", json!({"context": name(context)}));
            }
            Step::Cancel(client, which) => {
                let own = choose(&self.clients, client).and_then(|client| self.calls.get(&client));
                if let Some((id, _)) = own.and_then(|own| choose(own, which)) {
                    let params = match which % 2 {
                        0 => json!({"call": id}),
                        _ => json!({"call": id, "grace": "1s"}),
                    };
                    self.call(client, "cancel", params);
                }
            }
            Step::Finish(which, kept) => {
                let running: Vec<_> = self.world.running.keys().copied().collect();
                if let Some(link) = choose(&running, which) {
                    let state = if kept { State::Kept } else { State::Lost };
                    self.world.finish(link, state);
                }
            }
            Step::Start(client, context, events) => {
                let params = json!({"context": name(context), "command": "x", "events": events});
                self.call(client, "process.start", params);
            }
            Step::Process(client, context, which, process) => {
                let methods = ["process.connect", "process.input", "process.signal"];
                let method = methods[usize::from(which) % methods.len()];
                let mut params = json!({"context": name(context), "process": process});
                match method {
                    "process.input" => params["data"] = json!("x"),
                    "process.signal" => params["signal"] = json!("SIGTERM"),
                    _ => {}
                }
                self.call(client, method, params);
            }
            Step::Output(which, stream, bytes) => {
                let Some((link, process)) = self.process(which) else {
                    return;
                };
                let Some((writes, sum)) = self.processes.get_mut(&(link, process)) else {
                    return;
                };
                *writes += 1;
                *sum += u64::from(bytes);
                let report = Report::ProcessOutput {
                    process,
                    stream: ["stdout", "stderr"][usize::from(stream) % 2].to_owned(),
                    text: writes.to_string(),
                    base64: None,
                    bytes: bytes.into(),
                };
                self.world.hub.report(link, report);
                self.world.act();
            }
            Step::End(which, status) => {
                let Some((link, process)) = self.process(which) else {
                    return;
                };
                self.processes.remove(&(link, process));
                let report = Report::ProcessEnded {
                    process,
                    exit_code: Some(status.into()),
                    signal: None,
                    why: None,
                };
                self.world.hub.report(link, report);
                self.world.act();
            }
            Step::Full(client, is_full) => {
                if let Some(client) = choose(&self.clients, client) {
                    self.world.hub.note_full(client, is_full);
                    self.world.act();
                }
            }
            Step::Differ(differs) => self.world.differs = differs,
            Step::Kill(which) => {
                let alive: Vec<_> = self.world.alive.iter().copied().collect();
                if let Some(link) = choose(&alive, which) {
                    self.world.kill(link);
                }
            }
            Step::Vanish(which) => {
                if let Some(client) = choose(&self.clients, which) {
                    self.clients.retain(|other| *other != client);
                    self.world.leave(client);
                }
            }
            Step::Wait(millis) => self.world.pass(Duration::from_millis(millis.into())),
        }
    }

    /// One of the processes that run.
    fn process(&mut self, which: u8) -> Option<(LinkId, u32)> {
        let running: Vec<_> = self.processes.keys().copied().collect();
        choose(&running, which)
    }

    /// Notes the processes that were started, and those that have ended with their cells.
    fn note_processes(&mut self) {
        for (link, order) in &self.world.processes {
            match order {
                ProcessOrder::Start(start) => {
                    let known = self.processes.insert((*link, start.process), (0, 0));
                    assert!(known.is_none(), "two processes have one number");
                }
                ProcessOrder::Taken { process, bytes } => {
                    if let Some((_, sum)) = self.processes.get_mut(&(*link, *process)) {
                        *sum = sum
                            .checked_sub(*bytes)
                            .expect("more was taken than written");
                    }
                }
                _ => {}
            }
        }
        self.world.processes.clear();
        let alive = &self.world.alive;
        self.processes.retain(|(link, _), _| alive.contains(link));
    }

    /// Each call that listens gets all output of a process in order, until its end.
    fn check_events(events: &[&Value]) {
        let mut last: Option<u64> = None;
        for (index, event) in events.iter().enumerate() {
            match event["event"].as_str() {
                Some("process_output") => {
                    let number = event["text"].as_str().unwrap().parse().unwrap();
                    assert!(last.is_none_or(|last| last + 1 == number), "{events:?}");
                    last = Some(number);
                }
                Some("process_ended") => assert_eq!(index + 1, events.len(), "{events:?}"),
                _ => {}
            }
        }
    }

    fn check(&mut self) {
        self.note_processes();
        assert!(self.world.alive.len() <= CELLS, "too many cells");
        let mut unanswered = 0;
        for (client, calls) in &self.calls {
            let lines = self.world.said.get(client).map_or(&[][..], Vec::as_slice);
            for (id, method) in calls {
                let own = lines.iter().filter(|line| line["id"] == *id);
                let (events, own): (Vec<_>, Vec<_>) =
                    own.partition(|line| line.get("event").is_some());
                let events: Vec<_> = events.iter().map(|line| &line["event"]).collect();
                Self::check_events(&events);
                let answers = own.len();
                assert!(answers <= 1, "{method} {id} was answered {answers} times");
                if answers == 0 && self.clients.contains(client) {
                    assert!(
                        matches!(
                            *method,
                            "run"
                                | "context.create"
                                | "context.run"
                                | "context.restart"
                                | "context.describe"
                                | "context.fork"
                                | "context.checkpoint"
                                | "context.rewind"
                                | "context.suspend"
                                | "context.resume"
                                | "process.start"
                        ),
                        "{method} {id} has no answer"
                    );
                    unanswered += 1;
                }
            }
            for line in lines
                .iter()
                .filter(|line| line["result"].get("execution").is_some())
            {
                let result = &line["result"];
                let is_interrupt = result.get("interrupted").is_some();
                assert!(is_interrupt || result["state"].is_string(), "{line}");
            }
        }
        // Whatever waits does so for something. One cell is the other party's alone.
        let busy = !self.world.running.is_empty();
        assert!(unanswered == 0 || busy || self.world.alive.len() >= CELLS - 1);
        for party in PARTIES {
            let held = self.world.hub.budget().held(party);
            assert!(held <= WAITING + SMALL * unanswered, "{held} bytes wait");
        }
        assert!(
            self.world
                .running
                .keys()
                .all(|link| self.world.alive.contains(link))
        );
    }
}

fn choose<T: Copy>(from: &[T], which: u8) -> Option<T> {
    let index = usize::from(which).checked_rem(from.len())?;
    from.get(index).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_answers_every_call_once(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new(Settings {
            max_cells: CELLS,
            max_queue: QUEUE,
            parties: PARTIES.len(),
            ..Settings::default()
        });
        world.hub.budget = Budget::of(Shares::within(2 * WAITING, PARTIES.len(), WAITING, 0));
        let mut model = Model {
            world,
            clients: Vec::new(),
            next_client: 0,
            next_id: 0,
            calls: BTreeMap::new(),
            processes: BTreeMap::new(),
        };
        for step in steps {
            model.step(step);
            model.check();
        }
        // With room, all is taken but less than one order says was taken.
        for client in model.clients.clone() {
            model.world.hub.note_full(client, false);
        }
        model.world.act();
        model.note_processes();
        let left = model.processes.values().map(|(_, bytes)| *bytes).max();
        prop_assert!(left.unwrap_or_default() < 8 << 10, "{left:?}");
        // In the end nothing is left.
        for client in std::mem::take(&mut model.clients) {
            model.world.leave(client);
        }
        model.world.finish_all();
        model.world.pass(Duration::from_secs(3600));
        prop_assert!(model.world.alive.is_empty() && model.world.running.is_empty());
        prop_assert!(model.world.stored.is_empty(), "{:?}", model.world.stored);
        prop_assert_eq!(model.world.hub.budget().all(), 0);
    }
}
