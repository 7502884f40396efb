//! Random mixes of three tenants at once: a hostile client, hostile programs, and an honest client,
//! who must see what a model of its own contexts says and nothing of the others.
//! `SERVE_RANDOM=N` runs N mixes, not one, or two with `CELLS_LONG=1`; the seed of one that fails is shown.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::{Server, descendants, until};
use crate::http_client::{Answer, Http};
use crate::long::is_long;
use crate::random::Random;

/// Steps of the honest client: every day, and with `CELLS_LONG`.
const STEPS: [usize; 2] = [12, 30];
const MOST_CONTEXTS: usize = 3;
/// Tenants are the users of the socket and three tokens, so each has four of these alone.
const CELLS: &str = "32";

/// A mark of the honest tenant's state, which no answer to another tenant may contain.
const SECRET: &str = "honest-7c1f";

/// The state that a context of the honest tenant must have.
#[derive(Clone, Debug)]
struct Model {
    x: u64,
    file: String,
    checkpoints: BTreeMap<u64, (u64, String)>,
}

struct Honest<'a> {
    http: &'a Http,
    random: Random,
    contexts: BTreeMap<String, Model>,
    made: usize,
    /// Whether this host can take the state of a context.
    carries: bool,
}

impl Honest<'_> {
    fn run(&self, name: &str, code: &str) -> String {
        let path = format!("/v1/contexts/{name}/run");
        let done = self.http.ask("POST", &path, &json!({"code": code}));
        let record = &done["record"];
        assert_eq!(record["outcome"], "ok", "{name}: {code}: {record}");
        record["stdout"].as_str().unwrap().to_owned()
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("h{}", self.made);
        let body =
            json!({"request": {"language": "python"}, "context": name, "branches": self.carries});
        self.http.ask("POST", "/v1/contexts", &body);
        let file = format!("{SECRET}-{name}");
        self.http
            .ask("PUT", &format!("/v1/contexts/{name}/files/f"), &json!(file));
        let model = Model {
            x: 0,
            file: json!(file).to_string(),
            checkpoints: BTreeMap::new(),
        };
        self.contexts.insert(name, model);
    }

    fn step(&mut self, name: &str) {
        let path = format!("/v1/contexts/{name}");
        let mut model = self.contexts[name].clone();
        match self.random.below(if self.carries { 8 } else { 5 }) {
            0..2 => {
                model.x += 1;
                let code = "x = globals().get('x', 0) + 1; print(x)";
                assert_eq!(self.run(name, code), format!("{}\n", model.x));
            }
            2 => {
                model.file = json!(format!("{SECRET}-{}", self.random.below(1000))).to_string();
                let file = format!("{path}/files/f");
                let put = self.http.request("PUT", &file, model.file.as_bytes());
                assert!(put.status < 300, "{put:?}");
            }
            3 => {
                // More than a pipe holds, whole and in order.
                let out = self.run(name, "print('y' * 300_000)");
                assert_eq!(out.len(), 300_001);
            }
            4 => {
                self.http.request("DELETE", &path, b"");
                self.contexts.remove(name);
                return;
            }
            5 => {
                let made = self
                    .http
                    .ask("POST", &format!("{path}/checkpoints"), &json!({}));
                let number = made["checkpoint"].as_u64().unwrap();
                model
                    .checkpoints
                    .insert(number, (model.x, model.file.clone()));
            }
            6 => {
                let numbers: Vec<u64> = model.checkpoints.keys().copied().collect();
                if !numbers.is_empty() {
                    let number = numbers[self.random.below(numbers.len())];
                    let body = json!({"checkpoint": number});
                    self.http.ask("POST", &format!("{path}/rewind"), &body);
                    (model.x, model.file) = model.checkpoints[&number].clone();
                }
            }
            _ if self.contexts.len() < MOST_CONTEXTS => {
                let forked = self
                    .http
                    .ask("POST", &format!("{path}/fork"), &json!({"n": 1}));
                let branch = forked["branches"][0]["context"].as_str();
                let branch = branch.unwrap_or_else(|| panic!("{name}: {forked}"));
                let copy = Model {
                    checkpoints: BTreeMap::new(),
                    ..model.clone()
                };
                self.contexts.insert(branch.to_owned(), copy);
            }
            _ => {}
        }
        self.contexts.insert(name.to_owned(), model);
    }

    /// Everything that the honest tenant can see is its own.
    fn look_at_all(&self) {
        for (name, model) in &self.contexts {
            let out = self.run(name, "print(globals().get('x', 0), open('f').read())");
            assert_eq!(out, format!("{} {}\n", model.x, model.file), "{name}");
            let file = self.http.get(&format!("/v1/contexts/{name}/files/f"));
            assert_eq!(file.text(), model.file, "{name}");
        }
        let list = self.http.get("/v1/contexts").json();
        let names = list["contexts"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|one| one["context"].as_str().unwrap()).collect();
        assert_eq!(names.len(), self.contexts.len(), "{list}");
        assert!(
            names.iter().all(|name| self.contexts.contains_key(*name)),
            "{list}"
        );
    }
}

fn not_of_the_honest(answer: &Answer) {
    assert!(!answer.text().contains(SECRET), "{answer:?}");
}

/// One thing that a hostile client does. Its answer does not matter, except that it has nothing of
/// the honest tenant.
fn attack_by_client(http: &Http, random: &mut Random) {
    let guess = format!("h{}", 1 + random.below(9));
    let context = format!("/v1/contexts/{guess}");
    let run = json!({"request": {"language": "python", "code": "1"}});
    match random.below(11) {
        0 => not_of_the_honest(&http.get(&format!("{context}/files/f"))),
        1 => not_of_the_honest(&http.post(
            &format!("{context}/run"),
            &json!({"code": "print(open('f').read())"}),
        )),
        2 => not_of_the_honest(&http.request("DELETE", &context, b"")),
        3 => not_of_the_honest(&http.post(&format!("{context}/rewind"), &json!({"checkpoint": 1}))),
        4 => not_of_the_honest(&http.get("/v1/contexts")),
        5 => {
            // A body that is small as text and large when it is parsed.
            let body = format!(
                r#"{{"request":{{"language":"python","code":"1"}},"x":[{}0]}}"#,
                r#"{"":0},"#.repeat(200_000)
            );
            not_of_the_honest(&http.request("POST", "/v1/runs", body.as_bytes()));
        }
        6 => {
            let env: BTreeMap<String, &str> = (0..20_000).map(|n| (format!("V{n}"), "")).collect();
            let mut run = run;
            run["request"]["env"] = json!(env);
            not_of_the_honest(&http.post("/v1/runs", &run));
        }
        7 => {
            // A request that ends in the middle of its body.
            let mut socket = http.connect();
            let _ = socket.write_all(b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 11111111111111111111\r\ncontent-length: 10000000\r\n\r\n");
            let _ = socket.write_all(&vec![b'x'; 1 << 20]);
        }
        8 => {
            // Answers that nobody reads.
            drop(http.send("POST", "/v1/runs", run.to_string().as_bytes()));
        }
        9 => {
            let name = format!("a{}", random.below(3));
            let body = json!({"request": {"language": "python"}, "context": name});
            not_of_the_honest(&http.post("/v1/contexts", &body));
        }
        _ => {
            let mut socket = http.connect();
            let _ = socket.write_all(b"\0\r\n\r\n{}GET / HTTP/9.9\r\n\r\n");
            let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = socket.read(&mut [0; 512]);
        }
    }
}

/// Programs that attack the server by what they do and by what comes out of them.
const PROGRAMS: [&str; 9] = [
    "import os\nwhile True: os.write(1, b'z' * 65536)",
    "import os\nfor fd in range(3, 1024):\n  try: os.write(fd, b'{\"done\":1}\\n' * 1000)\n  except OSError: pass",
    "class R:\n  def _repr_mimebundle_(self, *a, **k): return {'application/json': [{'': 0}] * 100_000, 'text/plain': 'x'}\nR()",
    "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "import ctypes\nlibc = ctypes.CDLL(None)\nprint([libc.inotify_init() for _ in range(200)][-1])",
    "b = []\nwhile True: b.append(bytearray(1 << 20))",
    "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "import os\nos._exit(0)",
    "import glob\nprint([open(p).read() for p in glob.glob('/workspace/../*/f') + glob.glob('/proc/[0-9]*/environ')])",
];

fn attack_by_program(http: &Http, random: &mut Random) {
    let code = PROGRAMS[random.below(PROGRAMS.len())];
    let request = json!({"language": "python", "code": code, "limits": {"wall": "2s"}});
    if random.below(2) == 0 {
        return not_of_the_honest(&http.post("/v1/runs", &json!({"request": request})));
    }
    let name = format!("p{}", random.below(3));
    let body = json!({"request": {"language": "python"}, "context": name});
    not_of_the_honest(&http.post("/v1/contexts", &body));
    let body = json!({"code": code, "wall": "2s"});
    not_of_the_honest(&http.post(&format!("/v1/contexts/{name}/run"), &body));
    if random.below(2) == 0 {
        http.request("DELETE", &format!("/v1/contexts/{name}"), b"");
    }
}

/// The honest tenant's part, with the other two beside it.
fn play(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let tokens = ["1", "2", "3"].map(|digit| digit.repeat(20));
    std::fs::write(&file, tokens.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let options = [
        "--http-token",
        file,
        "--max-cells",
        CELLS,
        "--memory",
        "128M",
    ];
    let server = Server::start_http(&options);
    let of = |token: &String| {
        server
            .http()
            .with(&format!("authorization: Bearer {token}"))
    };
    let [client, programs, honest] = tokens.each_ref().map(of);
    let is_over = AtomicBool::new(false);
    let attack = |http: &Http, seed, one: fn(&Http, &mut Random)| {
        let mut random = Random(seed);
        let mut done = 0;
        while !is_over.load(Ordering::Relaxed) || done == 0 {
            one(http, &mut random);
            done += 1;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| attack(&client, seed, attack_by_client));
        scope.spawn(|| attack(&programs, !seed, attack_by_program));
        // Also when this thread panics, the others end.
        let end = Ended(&is_over);
        play_honest(&honest, seed);
        drop(end);
    });
    let own = honest.get("/v1/contexts").json();
    assert_eq!(own, json!({"contexts": []}));
    for (http, names) in [(&client, "a"), (&programs, "p")] {
        for number in 0..3 {
            http.request("DELETE", &format!("/v1/contexts/{names}{number}"), b"");
        }
    }
    // No bytes of theirs are counted any more, but those of this call.
    until("the end of all that waits", || {
        let status = server.connect().status();
        let used = |budget: &str| status[budget]["used"].as_u64().unwrap();
        used("waiting") < 4096 && used("unread") < 4096
    });
    // What stays is the server's spawner.
    until("the end of all cells", || {
        descendants(server.child.id()).len() <= 1
    });
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn play_honest(http: &Http, seed: u64) {
    let mut honest = Honest {
        http,
        random: Random(seed ^ 0xffff),
        contexts: BTreeMap::new(),
        made: 0,
        carries: true,
    };
    honest.create();
    let taken = http.post("/v1/contexts/h1/checkpoints", &json!({}));
    honest.carries = taken.status < 300;
    for step in 0..STEPS[usize::from(is_long())] {
        let names: Vec<String> = honest.contexts.keys().cloned().collect();
        if names.is_empty() || (names.len() < MOST_CONTEXTS && honest.random.below(6) == 0) {
            honest.create();
        } else {
            let name = &names[honest.random.below(names.len())];
            eprintln!("{seed}: {step}: {name}");
            honest.step(name);
        }
        honest.look_at_all();
    }
    for name in honest.contexts.keys() {
        let answer = http.request("DELETE", &format!("/v1/contexts/{name}"), b"");
        assert!(answer.status < 300, "{answer:?}");
    }
}

#[test]
fn an_honest_tenant_notices_nothing_of_hostile_ones() {
    let asked = std::env::var("SERVE_RANDOM").ok();
    let usual = if is_long() { 2 } else { 1 };
    let mixes = asked.map_or(usual, |mixes| {
        mixes.parse().expect("SERVE_RANDOM is a number")
    });
    for seed in 0..mixes {
        play(seed);
    }
}
