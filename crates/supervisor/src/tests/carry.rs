//! Checkpoints of real contexts: taken, gone back to, and gone on from.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::floods::peak;
use super::{Front, Tested, spawner, text};
use crate::Spawner;
use crate::skip::skip;
use sys::alone::alone;

/// State of many kinds, and files.
const STATE: &str = "
import os, sqlite3, random
class K:
    def __init__(self, v): self.v = v
x = K(41)
def numbers():
    i = 0
    while True:
        i += 1
        yield i
g = numbers(); next(g); next(g)
f = lambda y: y + x.v
big = bytearray(b'ab' * 2_000_000)
db = sqlite3.connect(':memory:')
db.execute('create table t(a)'); db.execute('insert into t values (7)')
log = open('log', 'w+'); _ = log.write('one two three'); log.flush(); _ = log.seek(4)
os.makedirs('sub', exist_ok=True)
_ = open('sub/kept', 'w').write('kept')
";

const LOOK: &str = "print(x.v, f(1), next(g), sum(big), db.execute('select a from t').fetchall(), os.getpid(), log.read(3), open('sub/kept').read(), sep='|')";

const SEEN: &str = "41|42|3|390000000|[(7,)]|2|two|kept\n";

/// A context whose memory is laid out alike each time.
fn open(spawner: &Spawner) -> Tested<Front> {
    let mut front = Front::new(spawner)?;
    front.order(json!({"open": {
        "request": {"language": "python"}, "lasting": true, "ready": true, "fixed_layout": true,
    }}))?;
    front.report("opened")?;
    Ok(front)
}

fn stdout(answer: &Value) -> &str {
    text(answer, "stdout")
}

/// What became of the state.
fn state(answer: &Value) -> &str {
    answer["state"].as_str().unwrap_or_default()
}

struct Place(TempDir);

impl Place {
    fn new() -> Tested<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn checkpoint(front: &mut Front, to: &Path) -> Tested<Value> {
    front.order(json!({"checkpoint": {"id": 1, "to": to}}))?;
    front.report("checkpointed")
}

fn restore(front: &mut Front, from: &Path) -> Tested {
    front.order(json!({"restore": {"id": 2, "from": from, "layout": "fixed"}}))?;
    front.report("restored").map(drop)
}

/// What the host cannot do is no failure.
fn is_skipped(error: &dyn std::error::Error) -> bool {
    let text = error.to_string();
    let skips = text.contains("does not allow the process to be traced")
        || text.contains("whose registers are known");
    if skips {
        skip(text);
    }
    skips
}

fn skipping(test: impl FnOnce() -> Tested) -> Tested {
    match test() {
        Err(error) if is_skipped(error.as_ref()) => Ok(()),
        done => done,
    }
}

#[test]
fn a_context_goes_back_any_number_of_times() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            // Its layout is random: a checkpoint fits the interpreter that it was taken of.
            let mut front = Front::python(&spawner)?;
            front.run(1, STATE)?;
            let made = checkpoint(&mut front, &place.at("one"))?;
            assert!(made["bytes"].as_u64() > Some(4_000_000), "{made}");
            assert_eq!(made["left_out"], json!({}));
            let mut number = 1;
            for _ in 0..3 {
                number += 2;
                front.run(
                number - 1,
                "x.v = 0; big.clear(); del f; os.remove('sub/kept'); open('new', 'w'); import html",
            )?;
                restore(&mut front, &place.at("one"))?;
                let answer = front.run(number, LOOK)?;
                assert_eq!(stdout(&answer), SEEN, "{answer}");
                assert_eq!(state(&answer), "restored");
                let why = answer["why"].as_str().unwrap_or_default();
                assert!(
                    why.contains("of a checkpoint") && why.contains("random"),
                    "{why}"
                );
                assert_eq!(answer["record"]["files"], json!([]), "{answer}");
            }
            let answer = front.run(100, "print(sorted(os.listdir()), next(g))")?;
            assert_eq!(stdout(&answer), "['log', 'sub'] 4\n");
            assert_eq!(state(&answer), "kept");
            Ok(())
        })
    });
}

#[test]
fn a_checkpoint_stays_within_its_room() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            let mut front = Front::python(&spawner)?;
            front.run(1, STATE)?;
            let bytes = checkpoint(&mut front, &place.at("all"))?["bytes"].as_u64();
            let bytes = bytes.ok_or("no bytes")?;
            let mut limited = |number: u64, name: &str, most: u64| {
                let to = place.at(name);
                front.order(json!({"checkpoint": {"id": number, "to": to, "most": most}}))?;
                front.report("checkpointed")
            };
            // Memory alone is too much; then only the workspace is.
            limited(2, "small", bytes / 2).expect_err("a checkpoint");
            assert!(!place.at("small").exists());
            limited(3, "large", 2 * bytes)?;
            assert!(place.at("large").exists());
            front.run(2, "open('zeroes', 'wb').truncate(64 << 20)")?;
            let to = place.at("files");
            let most = 2 * bytes;
            front.order(json!({"checkpoint": {"id": 4, "to": to, "most": most}}))?;
            let error = front.report("checkpointed").expect_err("a checkpoint");
            assert!(error.to_string().contains("bytes that are left"), "{error}");
            assert!(!place.at("files").exists());
            let answer = front.run(3, LOOK)?;
            assert_eq!(stdout(&answer), SEEN, "{answer}");
            Ok(())
        })
    });
}

#[test]
fn contexts_branch_from_one_and_stay_apart() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            let mut a = open(&spawner)?;
            a.run(1, STATE)?;
            checkpoint(&mut a, &place.at("one"))?;
            let mut branches = Vec::new();
            for number in 0..2 {
                let mut b = open(&spawner)?;
                restore(&mut b, &place.at("one"))?;
                let answer = b.run(1, LOOK)?;
                assert_eq!(stdout(&answer), SEEN, "{answer}");
                assert_eq!(state(&answer), "restored");
                b.run(
                    2,
                    &format!(
                        "x.v = {number}; open('sub/kept', 'w').write('{number}'); open('new', 'w')"
                    ),
                )?;
                branches.push(b);
            }
            let answer = a.run(2, LOOK)?;
            assert_eq!(stdout(&answer), SEEN, "{answer}");
            for (number, b) in branches.iter_mut().enumerate() {
                let answer = b.run(3, "print(x.v, open('sub/kept').read())")?;
                assert_eq!(stdout(&answer), format!("{number} {number}\n"));
                b.order(json!({"compare": {"id": 3, "with": place.at("one")}}))?;
                let compared = b.report("compared")?;
                let files: Vec<&str> = (compared["files"].as_array().into_iter().flatten())
                    .filter_map(|file| file["path"].as_str())
                    .collect();
                assert_eq!(files, ["new", "sub/kept"], "{compared}");
            }
            Ok(())
        })
    });
}

#[test]
fn a_context_outlives_its_processes() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            let mut a = open(&spawner)?;
            a.run(1, STATE)?;
            checkpoint(&mut a, &place.at("one"))?;
            a.order(json!("end"))?;
            a.report("ended")?;
            drop(a);
            let mut b = open(&spawner)?;
            restore(&mut b, &place.at("one"))?;
            let answer = b.run(1, LOOK)?;
            assert_eq!(stdout(&answer), SEEN, "{answer}");
            // Code that ends the interpreter, or stands in the way, does not keep it from
            // going back.
            let mut number = 1;
            for code in [
                "os._exit(3)",
                "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
            ] {
                number += 2;
                b.run(number, code)?;
                restore(&mut b, &place.at("one"))?;
                let answer = b.run(number + 1, LOOK)?;
                assert_eq!(stdout(&answer), SEEN, "{answer}");
                assert_eq!(state(&answer), "restored");
            }
            Ok(())
        })
    });
}

#[test]
fn what_cannot_be_carried_is_refused_and_nothing_is_lost() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            let mut a = Front::python(&spawner)?;
            a.order(json!({"checkpoint": {"id": 1, "to": place.at("none")}}))?;
            let failed = a.report("failed")?;
            assert_eq!(
                failed["error"]["hint"], "execute something first",
                "{failed}"
            );
            let mut number = 0;
            for (begin, end, name) in [
                (
                    "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
                    "e.set(); t.join()",
                    "threads",
                ),
                (
                    "import subprocess; p = subprocess.Popen(['sleep', '1000'])",
                    "p.kill(); p.wait()",
                    "processes",
                ),
                (
                    "import socket; s = socket.socket()",
                    "s.close()",
                    "descriptor",
                ),
            ] {
                number += 2;
                a.run(number, begin)?;
                a.order(json!({"checkpoint": {"id": number, "to": place.at("refused")}}))?;
                let failed = a.report("failed")?;
                if failed["error"]["operand"] == "tracing"
                    || failed["error"]["operand"] == "machine"
                {
                    return Err(failed["error"]["message"]
                        .as_str()
                        .unwrap_or_default()
                        .into());
                }
                assert_eq!(failed["error"]["operand"], name, "{failed}");
                assert_eq!(failed["id"], number);
                assert!(!place.at("refused").exists());
                let answer = a.run(number + 1, end)?;
                assert_eq!(state(&answer), "kept", "{answer}");
            }
            checkpoint(&mut a, &place.at("one"))?;
            // Another context's memory is laid out otherwise.
            let mut b = Front::python(&spawner)?;
            b.run(1, "x = 5")?;
            b.order(json!({"restore": {"id": 2, "from": place.at("one")}}))?;
            let failed = b.report("failed")?;
            assert_eq!(failed["error"]["operand"], "unlike", "{failed}");
            let answer = b.run(2, "print(x)")?;
            assert_eq!((stdout(&answer), state(&answer)), ("5\n", "kept"));
            Ok(())
        })
    });
}

/// Files with long names, mapped more often than mappings are carried, and others.
const MAPPINGS: &str = "
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def mapped(name, count):
    f = os.open(name, os.O_RDWR | os.O_CREAT)
    os.truncate(f, 16384)
    long = ctypes.c_long
    for i in range(count): assert libc.mmap(None, long(4096), 1, 2, f, long(i % 2 * 8192)) > 0
    os.close(f)
def deeper(name, count):
    for _ in range(count): os.mkdir(name); os.chdir(name)
deeper('d' * 200, 4)
mapped('f', 15000)
os.chdir('/workspace')
";

#[test]
fn many_mappings_take_little_memory_and_no_limit_costs_the_interpreter() {
    alone(|| {
        skipping(|| {
            let (spawner, place) = (spawner()?, Place::new()?);
            let mut front = open(&spawner)?;
            let before = peak(front.supervisor);
            front.run(1, MAPPINGS)?;
            checkpoint(&mut front, &place.at("one"))?;
            restore(&mut front, &place.at("one"))?;
            let after = peak(front.supervisor);
            assert!(after < before + (16 << 10), "{before} {after} KiB");
            let count = "print(sum(l.endswith('/f\\n') for l in open('/proc/self/maps')))";
            assert_eq!(stdout(&front.run(2, count)?), "15000\n");
            for (number, code, why) in [
                (3, "mapped('g', 2000)", "more than 16384 mappings"),
                (
                    5,
                    "deeper('e' * 200, 18); mapped('g', 1)",
                    "cannot be carried",
                ),
            ] {
                front.run(number, code)?;
                let refused = checkpoint(&mut front, &place.at("refused")).expect_err(why);
                assert!(refused.to_string().contains(why), "{refused}");
                // The interpreter goes on.
                let answer = front.run(number + 1, "print(1)")?;
                assert_eq!(state(&answer), "kept", "{answer}");
                // It still goes back to the earlier one.
                if number == 3 {
                    restore(&mut front, &place.at("one"))?;
                }
            }
            Ok(())
        })
    });
}
