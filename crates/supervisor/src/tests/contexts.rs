//! What a context keeps and loses, and its orders.

use serde_json::{Value, json};

use super::{Front, Tested, comparable, spawner, text};
use crate::{Base, Spawner};
use spec::Partial;
use sys::alone::alone;

#[test]
fn state_is_kept_after_errors_timeouts_and_interrupts() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = front.run(1, "kept = 'still here'; print('one')")?;
        assert_eq!(
            (&first["state"], text(&first, "stdout")),
            (&json!("kept"), "one\n")
        );
        let raised = front.run(2, "1 / 0")?;
        assert_eq!(
            (&raised["state"], text(&raised, "outcome")),
            (&json!("kept"), "error")
        );
        front.begin(
            3,
            "while True: pass",
            json!({"wall_ms": 300, "grace_ms": 20000}),
        )?;
        let late = front.report("answer")?;
        assert_eq!(
            (&late["state"], text(&late, "outcome")),
            (&json!("kept"), "timeout"),
            "{late}"
        );
        let record = &late["record"];
        assert_eq!(
            (&record["exit_code"], &record["is_retryable"]),
            (&json!(124), &json!(true))
        );
        assert_eq!(record["error_category"], "timeout");
        front.begin(
            4,
            "print('x', flush=True)\nwhile True: pass",
            json!({"events": true}),
        )?;
        front.await_output()?;
        front.order(json!({"interrupt": {"execution": 4, "grace_ms": 20000}}))?;
        let interrupted = front.report("answer")?;
        assert_eq!(
            (&interrupted["state"], text(&interrupted, "outcome")),
            (&json!("kept"), "cancelled")
        );
        let value = front.run(5, "kept")?;
        assert_eq!(value["record"]["results"][0]["text"], "'still here'");
        Ok(())
    });
}

#[test]
fn a_lost_interpreter_is_started_again_with_its_workspace() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let made = "x = 1; import os; os.makedirs('d'); open('d/file', 'w').write('kept')";
        assert_eq!(front.run(1, made)?["record"]["files"][0]["path"], "d/file");
        let deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)";
        assert_eq!(front.run(2, deaf)?["state"], "kept");
        let killed = front.killed_by_its_wall(3..104, "while True: time.sleep(1)")?;
        assert!(
            killed["why"]
                .as_str()
                .is_some_and(|why| why.contains("grace")),
            "{killed}"
        );
        let next = front.run(104, "print('x' in globals(), open('d/file').read())")?;
        assert_eq!(
            (&next["state"], text(&next, "stdout")),
            (&json!("kept"), "False kept\n")
        );
        // Nothing of what was carried over is new.
        assert_eq!(next["record"]["files"], json!([]));
        let ended = front.run(105, "import os; os._exit(3)")?;
        assert_eq!(
            (&ended["state"], &ended["record"]["exit_code"]),
            (&json!("lost"), &json!(3))
        );
        let left = front.run(106, "import sys; sys.exit(4)")?;
        assert_eq!(
            (&left["state"], &left["record"]["exit_code"]),
            (&json!("lost"), &json!(4)),
            "{left}"
        );
        let after = front.run(107, "open('d/file', 'a').write('!'); open('d/file').read()")?;
        assert_eq!(after["state"], "kept");
        let changed = &after["record"]["files"][0];
        assert_eq!(
            (&changed["path"], &changed["change"]),
            (&json!("d/file"), &json!("modified"))
        );
        Ok(())
    });
}

#[test]
fn the_limit_on_memory_ends_the_cell_and_says_so() {
    alone(|| {
        let spawner = spawner()?;
        let request = json!({"language": "python", "limits": {"memory": "200M"}});
        let mut front = Front::open(&spawner, request, true)?;
        front.run(1, "open('file', 'w').write('kept')")?;
        let eats = "import os\nfor _ in range(8):\n  if os.fork() == 0:\n    a = bytearray(b'x') * (60 << 20)\n    import time; time.sleep(100)\nos.wait()";
        let answer = front.run(2, eats)?;
        assert_eq!(
            (&answer["state"], text(&answer, "outcome")),
            (&json!("lost"), "memory"),
            "{answer}"
        );
        let next = front.run(3, "open('file').read()")?;
        assert_eq!(next["record"]["results"][0]["text"], "'kept'");
        Ok(())
    });
}

#[test]
fn two_contexts_share_nothing() {
    alone(|| {
        let spawner = spawner()?;
        let (mut one, mut other) = (Front::python(&spawner)?, Front::python(&spawner)?);
        one.run(1, "token = 'd'; open('f', 'w').write('d')")?;
        let apart = other.run(
            1,
            "import os; print('token' in globals(), os.path.exists('f'))",
        )?;
        assert_eq!(text(&apart, "stdout"), "False False\n");
        // They run at the same time.
        let endless = "import time; print('on', flush=True); time.sleep(1000)";
        one.begin(2, endless, json!({"events": true}))?;
        one.await_output()?;
        assert_eq!(text(&other.run(2, "print(2)")?, "stdout"), "2\n");
        one.order(json!({"cancel": {"execution": 2}}))?;
        assert_eq!(one.report("answer")?["state"], "lost");
        Ok(())
    });
}

#[test]
fn orders_are_carried_out_in_their_sequence_and_queued_ones_can_be_cancelled() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = "import time
try:
  print('on', flush=True); time.sleep(1000)
except KeyboardInterrupt: order = [1]";
        front.begin(1, first, json!({"events": true}))?;
        front.await_output()?;
        front.begin(2, "order.append(2)", json!({}))?;
        front.begin(3, "order.append(3)", json!({}))?;
        front.order(json!("describe"))?;
        front.begin(4, "order", json!({}))?;
        front.order(json!({"cancel": {"execution": 2}}))?;
        front.order(json!({"interrupt": {"execution": 1, "grace_ms": 50_000}}))?;
        let first = front.report("answer")?;
        assert_eq!(
            (&first["execution"], &first["state"]),
            (&json!(1), &json!("kept")),
            "{first}"
        );
        let cancelled = front.report("answer")?;
        assert_eq!(
            (&cancelled["execution"], text(&cancelled, "outcome")),
            (&json!(2), "cancelled")
        );
        assert_eq!(cancelled["state"], "kept");
        assert_eq!(front.report("answer")?["execution"], 3);
        let described = &front.report("described")?["description"];
        assert_eq!(
            (&described["language"], &described["is_alive"]),
            (&json!("python"), &json!(true))
        );
        let variables = described["variables"].as_array().ok_or("no variables")?;
        let order = variables.iter().find(|found| found["name"] == "order");
        assert_eq!(order.map(|found| &found["type"]), Some(&json!("list")));
        assert!(
            described["usage"]["memory_bytes"].as_u64() > Some(1 << 20),
            "{described}"
        );
        assert_eq!(
            front.report("answer")?["record"]["results"][0]["text"],
            "[1, 3]"
        );
        front.begin(4, "again", json!({}))?;
        assert_eq!(front.report("failed")?["id"], 4);
        Ok(())
    });
}

#[test]
fn code_that_catches_an_interrupt_gets_the_next_one() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let code = "import time
caught = []
for number in range(3):
  try:
    print(number, flush=True); time.sleep(1000)
  except KeyboardInterrupt: caught.append(number)
caught";
        front.begin(1, code, json!({"events": true}))?;
        for _ in 0..3 {
            front.await_output()?;
            front.order(json!({"interrupt": {"execution": 1, "grace_ms": 50_000}}))?;
            assert_eq!(front.report("interrupted")?["sent"], true);
        }
        let answer = front.report("answer")?;
        assert_eq!(answer["state"], "kept", "{answer}");
        assert_eq!(answer["record"]["results"][0]["text"], "[0, 1, 2]");
        // One that is over, and one that never was.
        for execution in [1, 9] {
            front.order(json!({"interrupt": {"execution": execution, "grace_ms": 50_000}}))?;
            assert_eq!(front.report("interrupted")?["sent"], false);
        }
        Ok(())
    });
}

#[test]
fn a_restart_keeps_the_workspace_alone() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = front.run(1, "x = 1; open('file', 'w').write('kept')")?;
        front.order(json!("restart"))?;
        let cell = front.report("restarted")?["id"].clone();
        let id = json!(format!("{}-2", cell.as_str().unwrap_or_default()));
        let next = front.run(2, "print('x' in globals(), open('file').read())")?;
        assert_eq!(text(&next, "stdout"), "False kept\n");
        assert_eq!(
            (&next["state"], &next["record"]["id"]),
            (&json!("kept"), &id)
        );
        assert_ne!(first["record"]["id"], id);
        Ok(())
    });
}

/// A cell that ends before it has executed anything has no record to warn in.
#[test]
fn what_was_left_out_of_a_cell_that_did_nothing_is_said_by_the_next() {
    alone(|| {
        let top = tempfile::tempdir()?;
        std::os::unix::fs::symlink("/etc/passwd", top.path().join("passwd"))?;
        let spawner = Spawner::fork(Base {
            cwd: "/".into(),
            flags: Partial {
                files_from: Some(top.path().to_owned()),
                ..Partial::default()
            },
            ..Base::default()
        })?;
        let mut front = Front::python(&spawner)?;
        for _ in 0..2 {
            front.order(json!("restart"))?;
            front.report("restarted")?;
        }
        let warned = |answer: &Value| {
            answer["record"]["warnings"]
                .to_string()
                .contains("passwd is left out")
        };
        assert!(warned(&front.run(1, "1")?));
        assert!(!warned(&front.run(2, "1")?));
        Ok(())
    });
}

#[test]
fn files_go_in_and_come_out() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let file = |front: &mut Front, what: Value| -> Tested<Value> {
            front.order(json!({"file": {"id": 7, "what": what}}))?;
            Ok(front.next()?.ok_or("the supervisor is gone")?)
        };
        let write = json!({"write": {"path": "in/data.csv", "content": "a,b\n1,2\n"}});
        let written = file(&mut front, write)?;
        assert_eq!(written["file"]["answer"]["written"]["size"], 8, "{written}");
        let answer = front.run(1, "print(open('in/data.csv').read(), end=''); open('in/data.csv', 'a').write('3,4\\n'); import os; os.symlink('/etc', 'link')")?;
        assert_eq!(text(&answer, "stdout"), "a,b\n1,2\n", "{answer}");
        let read = json!({"read": {"path": "in/data.csv", "offset": 8, "limit": 100}});
        assert_eq!(
            file(&mut front, read)?["file"]["answer"]["content"]["content"],
            "3,4\n"
        );
        let list = file(&mut front, json!({"list": {"path": "", "depth": 9}}))?;
        let entries = &list["file"]["answer"]["entries"]["entries"];
        let paths: Vec<&str> = (entries.as_array().into_iter().flatten())
            .filter_map(|entry| entry["path"].as_str())
            .collect();
        assert_eq!(paths, ["in", "in/data.csv", "link"]);
        for path in [
            "link/passwd",
            "/etc/passwd",
            "../etc/passwd",
            "in/../link/passwd",
            "",
        ] {
            let read = json!({"read": {"path": path, "offset": 0, "limit": 10}});
            assert_eq!(file(&mut front, read)?["failed"]["id"], 7, "{path}");
            let write = json!({"write": {"path": path, "content": "x"}});
            assert_eq!(file(&mut front, write)?["failed"]["id"], 7, "{path}");
        }
        let removed = file(&mut front, json!({"remove": {"path": "in"}}))?;
        assert!(
            removed["file"]["answer"]["removed"].is_object(),
            "{removed}"
        );
        let gone = front.run(2, "import os; print(os.listdir())")?;
        assert_eq!(text(&gone, "stdout"), "['link']\n");
        Ok(())
    });
}

#[test]
fn one_execution_has_the_same_record_in_a_context_and_by_itself() {
    alone(|| {
        let spawner = spawner()?;
        let request = json!({"language": "python", "files": [{"path": "in", "text": "x"}]});
        for code in [
            "print('out'); import sys; print('err', file=sys.stderr); open('new', 'w').write('1'); 6 * 7",
            "open('in', 'a').write('y'); {}['missing']",
            "def f(:",
            "import ctypes; libc = ctypes.CDLL(None); libc.ptrace(0, 0, 0, 0)",
            "print('x' * 3_000_000)",
        ] {
            let mut lasting = Front::open(&spawner, request.clone(), true)?;
            let mut alone = Front::open(&spawner, request.clone(), false)?;
            let (in_context, by_itself) = (lasting.run(1, code)?, alone.run(1, code)?);
            assert_eq!(
                (&in_context["state"], &by_itself["state"]),
                (&json!("kept"), &json!("lost"))
            );
            let [one, other] =
                [in_context, by_itself].map(|answer| comparable(answer["record"].clone()));
            assert_eq!(one, other, "{code}");
        }
        Ok(())
    });
}
