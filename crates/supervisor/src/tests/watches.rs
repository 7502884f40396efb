//! Changes of a workspace's files, as a watch reports them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Front, Tested, spawner};
use crate::Spawner;
use sys::alone::alone;

/// The number of the watch.
const WATCH: u64 = 5;

/// What a watch has seen, and what else was reported meanwhile.
#[derive(Default)]
struct Seen {
    /// By path, in order.
    changes: BTreeMap<String, Vec<String>>,
    overflow: bool,
    most: usize,
    ended: Option<String>,
    others: Vec<Value>,
}

impl Seen {
    /// Takes in reports until there is what is awaited.
    fn until(&mut self, front: &mut Front, done: impl Fn(&Self) -> bool) -> Tested {
        while !done(self) {
            let report = front.next()?.ok_or("the supervisor is gone")?;
            let of_watch = &report["file"]["answer"];
            if report["file"]["id"] == WATCH && of_watch["event"] == "files_changed" {
                let changes = of_watch["changes"].as_array().ok_or("no changes")?;
                self.most = self.most.max(changes.len());
                self.overflow |= of_watch["overflow"] == true;
                for change in changes {
                    let path = match &change["path"] {
                        Value::String(path) => path.clone(),
                        other => other.to_string(),
                    };
                    let change = change["change"].as_str().ok_or("no change")?;
                    self.changes.entry(path).or_default().push(change.into());
                }
            } else if report["watch_ended"]["id"] == WATCH {
                self.ended = report["watch_ended"]["why"].as_str().map(str::to_owned);
            } else {
                self.others.push(report);
            }
        }
        Ok(())
    }

    /// Until there is an answer to an execution; the answer.
    fn answer(&mut self, front: &mut Front) -> Tested<Value> {
        self.until(front, |seen| {
            seen.others
                .iter()
                .any(|other| other.get("answer").is_some())
        })?;
        let place = self
            .others
            .iter()
            .position(|other| other.get("answer").is_some());
        let place = place.ok_or("no answer")?;
        Ok(self.others.remove(place)["answer"].take())
    }

    fn has(&self, path: &str, change: &str) -> bool {
        let changes = self.changes.get(path);
        changes.is_some_and(|changes| changes.iter().any(|own| own == change))
    }
}

/// A context, after `code` was executed, whose directory `path` is watched.
fn watched(spawner: &Spawner, code: &str, path: &str) -> Tested<Front> {
    let mut front = Front::python(spawner)?;
    assert_eq!(front.run(1, code)?["state"], "kept");
    file(&mut front, WATCH, json!({"watch": {"path": path}}))?;
    let answer = front.report("file")?;
    assert_eq!(answer, json!({"id": WATCH, "answer": {"watching": {}}}));
    Ok(front)
}

fn file(front: &mut Front, id: u64, what: Value) -> Tested {
    front.order(json!({"file": {"id": id, "what": what}}))
}

#[test]
fn changes_are_reported_while_code_runs_and_between_executions() {
    alone(|| {
        let spawner = spawner()?;
        let before = "import os, threading\nos.makedirs('old/deep')\nopen('old/deep/file', 'w').close()\nopen('gone', 'w').close()\ngo = threading.Event()";
        let mut front = watched(&spawner, before, "")?;
        let mut seen = Seen::default();
        // The code goes on until it is interrupted.
        let code = "os.makedirs('new/sub')\nopen('new/sub/file', 'w').write('x')\nopen('old/deep/file', 'a').write('x')\nos.remove('gone')\nos.rename('old', 'moved')\nopen(b'\\xff', 'w').close()\nopen('moved/deep/file', 'a').write('x')\nwhile True: pass";
        front.begin(2, code, json!({}))?;
        seen.until(&mut front, |seen| {
            seen.has("new/sub/file", "created")
                && seen.has("gone", "deleted")
                && seen.has("old", "deleted")
                && seen.has("moved", "created")
                && seen.has("moved/deep/file", "created")
                && seen.changes.keys().any(|path| path.contains("base64"))
        })?;
        assert!(seen.others.is_empty(), "{:?}", seen.others);
        front.order(json!({"interrupt": {"execution": 2, "grace_ms": 20000}}))?;
        assert_eq!(seen.answer(&mut front)?["state"], "kept");
        // The marks are those of the directory's new name.
        front.begin(3, "open('moved/deep/more', 'w').close()", json!({}))?;
        seen.until(&mut front, |seen| seen.has("moved/deep/more", "created"))?;
        // A thread goes on while nothing executes.
        let thread = "def later():\n  go.wait()\n  open('late', 'w').close()\n  while True:\n    open('late', 'a').write('x'); go.wait(0.05)\nthreading.Thread(target=later, daemon=True).start()";
        front.begin(4, thread, json!({}))?;
        seen.answer(&mut front)?;
        front.begin(5, "threading.Timer(0.2, go.set).start()", json!({}))?;
        seen.until(&mut front, |seen| seen.has("late", "modified"))?;
        // The front end's own changes are changes as well.
        file(
            &mut front,
            6,
            json!({"write": {"path": "mine", "content": "x"}}),
        )?;
        seen.until(&mut front, |seen| seen.has("mine", "created"))?;
        assert!(!seen.overflow);
        assert_eq!(seen.ended, None);
        // Nothing is reported after the end of the watch.
        seen.others.clear();
        file(&mut front, 8, json!({"unwatch": {"watch": WATCH}}))?;
        seen.until(&mut front, |seen| {
            seen.others.iter().any(|other| other["file"]["id"] == 8)
        })?;
        let last = seen.others.pop();
        assert_eq!(
            last,
            Some(json!({"file": {"id": 8, "answer": {"unwatched": {"path": ""}}}}))
        );
        front.run(6, "open('unseen', 'w').close()")?;
        file(&mut front, 9, json!({"unwatch": {"watch": WATCH}}))?;
        let again = front.report("file")?;
        assert_eq!(again["answer"]["unwatched"]["path"], Value::Null);
        Ok(())
    });
}

#[test]
fn a_watch_sees_its_directory_and_follows_no_link() {
    alone(|| {
        let spawner = spawner()?;
        let before = "import os\nos.makedirs('a/b'); os.makedirs('c'); os.symlink('/tmp', 'a/tmp'); os.symlink('../c', 'a/link')";
        let mut front = watched(&spawner, before, "a/b")?;
        for path in ["a/link", "a/tmp", "..", "/", "missing"] {
            file(&mut front, 7, json!({"watch": {"path": path}}))?;
            assert_eq!(front.report("failed")?["id"], 7, "{path}");
        }
        let mut seen = Seen::default();
        let code = "open('c/other', 'w').close(); open('beside', 'w').close()\nos.symlink('/tmp', 'a/b/tmp'); open('/tmp/outside', 'w').close(); os.makedirs('a/b/d'); open('a/b/d/in', 'w').close()";
        front.begin(2, code, json!({}))?;
        seen.until(&mut front, |seen| seen.has("a/b/d/in", "created"))?;
        let paths: Vec<_> = seen.changes.keys().map(String::as_str).collect();
        assert_eq!(paths, ["a/b/d", "a/b/d/in", "a/b/tmp"]);
        // It ends with its directory, after what was seen until then.
        front.begin(3, "import shutil; shutil.rmtree('a/b')", json!({}))?;
        seen.until(&mut front, |seen| seen.ended.is_some())?;
        assert!(seen.has("a/b/d/in", "deleted"), "{:?}", seen.changes);
        assert_eq!(seen.ended.as_deref(), Some("the directory is gone"));
        Ok(())
    });
}

#[test]
fn names_of_files_that_are_written_hide_nothing_of_the_program() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = watched(&spawner, "import os", "")?;
        let code = "for name in ('.cellblock-writing', '.cellblock-replacing'):\n  \
            os.mkdir(name); open(name + '/inner', 'w').close()\n  \
            open(name + '-', 'w').close()\n\
            os.rename('.cellblock-replacing-', 'renamed')";
        let mut seen = Seen::default();
        front.begin(2, code, json!({}))?;
        assert_eq!(seen.answer(&mut front)?["state"], "kept");
        file(
            &mut front,
            1,
            json!({"write": {"path": "new", "content": "1"}}),
        )?;
        seen.until(&mut front, |seen| {
            seen.has("new", "created")
                && seen.has("renamed", "created")
                && [".cellblock-writing", ".cellblock-replacing"]
                    .iter()
                    .all(|name| seen.has(&format!("{name}/inner"), "created"))
                && seen.has(".cellblock-writing-", "created")
                && seen.others.iter().any(|other| other["file"]["id"] == 1)
        })?;
        let written = json!({"id": 1, "answer": {"written": {"size": 1}}});
        assert_eq!(seen.others, [json!({"file": written})]);
        Ok(())
    });
}

#[test]
fn a_watch_ends_with_its_cell() {
    alone(|| {
        let spawner = spawner()?;
        for ending in ["execution", "idle", "restart"] {
            let mut front = watched(&spawner, "import os, threading", "")?;
            let mut seen = Seen::default();
            match ending {
                "execution" => {
                    front.begin(2, "open('last', 'w').close(); os._exit(3)", json!({}))?;
                }
                "idle" => {
                    let code = "def end():\n  open('last', 'w').close(); os._exit(3)\nthreading.Timer(0.5, end).start()";
                    front.begin(2, code, json!({}))?;
                }
                _ => {
                    front.begin(2, "open('last', 'w').close()", json!({}))?;
                    front.order(json!("restart"))?;
                }
            }
            seen.until(&mut front, |seen| seen.ended.is_some())?;
            assert!(seen.has("last", "created"), "{ending}: {:?}", seen.changes);
            assert_eq!(seen.ended.as_deref(), Some("the cell has ended"));
            if ending == "restart" {
                seen.until(&mut front, |seen| {
                    seen.others
                        .iter()
                        .any(|other| other.get("restarted").is_some())
                })?;
            }
            // The next cell is watched when that is asked for.
            seen = Seen::default();
            file(&mut front, WATCH, json!({"watch": {"path": ""}}))?;
            front.begin(3, "open('next', 'w').close()", json!({}))?;
            seen.until(&mut front, |seen| seen.has("next", "created"))?;
        }
        Ok(())
    });
}

/// Kilobytes of a process's own memory.
fn memory(pid: nix::unistd::Pid) -> Tested<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no RssAnon")?.parse()?)
}

#[test]
fn floods_of_changes_overflow() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = watched(&spawner, "import os", "")?;
        let before = memory(front.supervisor)?;
        let mut seen = Seen::default();
        // More directories than are watched, in each other and beside each other.
        let many = "for a in range(60):\n  for b in range(60): os.makedirs(f'{a}/{b}/' + 'x' * 200)\n'made'";
        front.begin(2, many, json!({}))?;
        assert_eq!(
            seen.answer(&mut front)?["record"]["results"][0]["text"],
            "'made'"
        );
        seen.until(&mut front, |seen| seen.overflow)?;
        // Renames without end; an interrupt still arrives.
        let endless =
            "os.mkdir('r0')\nn = 0\nwhile True:\n  os.rename(f'r{n}', f'r{n + 1}'); n += 1";
        seen.overflow = false;
        front.begin(3, endless, json!({}))?;
        seen.until(&mut front, |seen| seen.overflow)?;
        front.order(json!({"interrupt": {"execution": 3, "grace_ms": 20000}}))?;
        assert_eq!(seen.answer(&mut front)?["state"], "kept");
        assert!(seen.most <= 1000, "{}", seen.most);
        let after = memory(front.supervisor)?;
        assert!(after < before + (32 << 10), "{before} {after}");
        // With fewer directories, all of them are watched again.
        let fewer =
            "import shutil\nfor name in os.listdir(): shutil.rmtree(name)\nos.makedirs('one/two')";
        front.begin(4, fewer, json!({}))?;
        seen.answer(&mut front)?;
        for number in 0..100 {
            let name = format!("one/two/{number}");
            // The report comes within the pause, or not at all.
            let code = format!("open('{name}', 'w').close()\nimport time; time.sleep(0.3)");
            front.begin(5 + number, &code, json!({}))?;
            seen.answer(&mut front)?;
            if seen.has(&name, "created") {
                return Ok(());
            }
        }
        Err("nothing is seen any more".into())
    });
}
