//! Random sequences of what can happen to contexts of a real server, against a model of
//! their state. `SERVE_RANDOM=N` runs N of them, not two; the number of one that fails is shown.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Client, Server, children, descendants, until};
use crate::skip::skip;

const STEPS: usize = 40;
const MOST_CONTEXTS: usize = 4;

/// Numbers that depend on the seed only (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

/// What a context must be like.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Its variable, and the content of its file.
    x: u64,
    file: u64,
    /// What the answer to its next execution says of the state.
    restored: bool,
    /// Whether it goes on from checkpoints by replay.
    replays: bool,
    /// By number: the variable and the file.
    checkpoints: BTreeMap<u64, (u64, u64)>,
}

struct World {
    server: Server,
    client: Client,
    random: Random,
    contexts: BTreeMap<String, Model>,
    made: usize,
}

const CHANGE: &str =
    "x = globals().get('x', 0) + 1; _ = open('f', 'w').write(str(x)); print(x, flush=True)";
const LOOK: &str = "print(globals().get('x', 0), open('f').read())";

impl World {
    /// Executes code that the interpreter survives; checks what it says of the state.
    fn run(&mut self, name: &str, code: &str) -> String {
        let executed = self.client.run_in(name, code);
        self.check_state(name, &executed);
        executed["record"]["stdout"].as_str().unwrap().to_owned()
    }

    fn check_state(&mut self, name: &str, executed: &Value) {
        let model = self.contexts.get_mut(name).unwrap();
        let wanted = match std::mem::take(&mut model.restored) {
            true => "restored",
            false => "kept",
        };
        assert_eq!(executed["state"], wanted, "{name}: {executed}");
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("c{}", self.made);
        let request = json!({"language": "python", "files": [{"path": "f", "text": "0"}]});
        let replays = self.random.below(3) == 0;
        let way = if replays { "replay" } else { "branches" };
        let params = json!({"request": request, "context": name, way: true});
        self.client.ask("context.create", params);
        let model = Model {
            replays,
            ..Model::default()
        };
        self.contexts.insert(name, model);
    }

    /// Does something to a context that exists.
    fn step(&mut self, name: &str) -> &'static str {
        let params = json!({"context": name});
        let mut model = self.contexts[name].clone();
        match self.random.below(13) {
            0..4 => {
                let out = self.run(name, CHANGE);
                model.x += 1;
                (model.file, model.restored) = (model.x, false);
                assert_eq!(out, format!("{}\n", model.x), "{name}");
                self.contexts.insert(name.to_owned(), model);
                "change"
            }
            4 => {
                let made = self.client.ask("context.checkpoint", params);
                let number = made["checkpoint"].as_u64().unwrap();
                model.checkpoints.insert(number, (model.x, model.file));
                self.contexts.insert(name.to_owned(), model);
                "checkpoint"
            }
            5 | 6 => {
                let numbers: Vec<u64> = model.checkpoints.keys().copied().collect();
                if numbers.is_empty() {
                    return "nothing";
                }
                let number = numbers[self.random.below(numbers.len())];
                let params = json!({"context": name, "checkpoint": number});
                let back = self.client.ask("context.rewind", params);
                assert_eq!(back["state"], "restored");
                (model.x, model.file) = model.checkpoints[&number];
                model.restored = true;
                self.contexts.insert(name.to_owned(), model);
                "rewind"
            }
            7 if self.contexts.len() < MOST_CONTEXTS => {
                let params = json!({"context": name, "n": 1});
                let forked = self.client.ask("context.fork", params);
                let branch = forked["branches"][0]["context"].as_str();
                let branch = branch.unwrap_or_else(|| panic!("{name}: {forked}"));
                (model.restored, model.checkpoints) = (true, BTreeMap::new());
                self.contexts.insert(branch.to_owned(), model);
                "fork"
            }
            7..10 => {
                self.client.ask("context.suspend", params);
                model.restored = true;
                self.contexts.insert(name.to_owned(), model);
                "suspend"
            }
            10 => {
                let endless = json!({"context": name, "code": "while True: pass"});
                self.client.send(1, "context.run", endless);
                let params = json!({"context": name, "grace": "60s"});
                let client = &mut self.client;
                let mut answer = Value::Null;
                until("an interrupt", || {
                    client.send(2, "context.interrupt", params.clone());
                    let mut interrupted = Value::Null;
                    while interrupted.is_null() {
                        let line = client.line();
                        match line["id"].as_u64() {
                            Some(1) => answer = line,
                            _ => interrupted = line["result"]["interrupted"].clone(),
                        }
                    }
                    interrupted == true
                });
                if answer.is_null() {
                    answer = self.client.answer(1);
                }
                if model.replays && model.restored && answer["error"].is_object() {
                    // It has stopped the replay, and the context stays suspended.
                    return "interrupted replay";
                }
                self.check_state(name, &answer["result"]);
                let words = answer["result"]["record"]["context"].as_str();
                if words.is_some_and(|words| words.contains("before it began")) {
                    // The next answer says so, too.
                    self.contexts.insert(name.to_owned(), model);
                }
                "interrupt"
            }
            11 => {
                let ended = self.client.run_in(name, "import os; os._exit(7)");
                assert_eq!(ended["state"], "lost", "{name}: {ended}");
                if model.replays && self.random.below(2) == 0 {
                    // The state is made again if anything was executed since its interpreter began.
                    let resumed = self.client.ask("context.resume", params);
                    model.restored = resumed["state"] == "restored";
                    assert!(model.restored || model.x == 0, "{name}: {resumed}");
                    self.contexts.insert(name.to_owned(), model);
                    self.run(name, LOOK);
                    return "end and resume";
                }
                (model.x, model.restored) = (0, false);
                self.contexts.insert(name.to_owned(), model);
                // Without an interpreter there is no state to take.
                let refused = self.client.call("context.checkpoint", params);
                assert_eq!(refused["error"]["code"], "failed", "{refused}");
                self.run(name, LOOK);
                "end"
            }
            _ => {
                self.client.ask("context.delete", params);
                self.contexts.remove(name);
                "delete"
            }
        }
    }

    /// A client that goes takes its context with it.
    fn vanish(&mut self) {
        let mut other = self.server.connect();
        other.create("gone");
        other.run_in("gone", "x = 1");
        drop(other);
        let wanted = self.contexts.len();
        let client = &mut self.client;
        until("the context's end", || {
            client.status()["contexts"] == wanted
        });
    }

    /// A supervisor that is killed takes its context with it, and no other.
    fn kill(&mut self) {
        let spawner = descendants(self.server.child.id()).first().copied();
        let supervisors = spawner.map(children).unwrap_or_default();
        if supervisors.is_empty() {
            return;
        }
        let pid = supervisors[self.random.below(supervisors.len())];
        let pid = nix::unistd::Pid::from_raw(pid as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        let mut left = Vec::new();
        let (client, before) = (&mut self.client, self.contexts.len());
        until("the end of the context", || {
            let list = client.ask("context.list", json!({}));
            let names = list["contexts"].as_array().unwrap().iter();
            left = names
                .map(|one| one["context"].as_str().unwrap().to_owned())
                .collect();
            left.len() < before
        });
        assert_eq!(left.len(), before - 1);
        self.contexts.retain(|name, _| left.contains(name));
        assert_eq!(left.len(), self.contexts.len());
    }

    fn look_at_all(&mut self) {
        for name in self.contexts.keys().cloned().collect::<Vec<_>>() {
            let model = self.contexts[&name].clone();
            let out = self.run(&name, LOOK);
            assert_eq!(out, format!("{} {}\n", model.x, model.file), "{name}");
        }
    }
}

/// Why this host cannot carry state at all, if it cannot.
fn refusal(server: &Server) -> Option<String> {
    let mut client = server.connect();
    client.create("probe");
    let made = client.call("context.checkpoint", json!({"context": "probe"}));
    client.ask("context.delete", json!({"context": "probe"}));
    made["error"]["message"].as_str().map(str::to_owned)
}

fn play(seed: u64, options: &[&str]) {
    let server = Server::start(options);
    if let Some(why) = refusal(&server) {
        let skips = why.contains("to be traced") || why.contains("whose registers are known");
        assert!(skips, "{why}");
        return skip(why);
    }
    let client = server.connect();
    let mut world = World {
        server,
        client,
        random: Random(seed),
        contexts: BTreeMap::new(),
        made: 0,
    };
    for _ in 0..STEPS {
        let names: Vec<String> = world.contexts.keys().cloned().collect();
        let is_full = names.len() >= MOST_CONTEXTS;
        if names.is_empty() || (!is_full && world.random.below(8) == 0) {
            world.create();
            eprintln!("{seed}: create c{}", world.made);
        } else if world.random.below(20) == 0 {
            world.vanish();
            eprintln!("{seed}: vanish");
        } else if options.is_empty() && world.random.below(20) == 0 {
            // Only without templates: contexts that were forked from one end with its keeper.
            world.kill();
            eprintln!("{seed}: kill");
        } else {
            let name = &names[world.random.below(names.len())];
            eprintln!("{seed}: {name} ...");
            let what = world.step(name);
            eprintln!("{seed}: {name} {what}");
        }
    }
    world.look_at_all();
    for name in world.contexts.keys() {
        let params = json!({"context": name});
        world.client.ask("context.delete", params);
    }
    let World { server, client, .. } = &mut world;
    until("the end of all cells", || {
        client.status()["cells"]["used"] == 0 && server.checkpoints() == 0
    });
    if options.is_empty() {
        // What stays is the server's spawner.
        until("the end of all processes", || {
            descendants(server.child.id()).len() <= 1
        });
    }
}

#[test]
fn contexts_are_as_a_model_says() {
    let asked = std::env::var("SERVE_RANDOM").ok();
    let cases = asked.map_or(2, |cases| cases.parse().expect("SERVE_RANDOM is a number"));
    let template = ["--warm", "python:1", "--preload", "json.tool"];
    for seed in 0..cases {
        let options = if seed % 2 == 0 {
            &template[..0]
        } else {
            &template[..]
        };
        play(seed, options);
    }
}
