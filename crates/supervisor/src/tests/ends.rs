//! Ends: of a front end, of the spawner, of orders, of an idle limit.

use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Front, below, exists, spawner, text, until, until_gone};
use sys::alone::alone;

#[test]
fn a_front_end_that_is_gone_leaves_nothing() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let busy = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint('on', flush=True)\nwhile True: pass";
        front.begin(1, busy, json!({"events": true}))?;
        front.await_output()?;
        let (supervisor, processes) = (front.supervisor, below(front.supervisor));
        assert!(processes.len() >= 3, "{processes:?}");
        drop(front);
        until_gone(supervisor, &processes)
    });
}

#[test]
fn the_spawner_ends_with_its_front_end_and_supervisors_hold_nothing_else() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let supervisor = front.supervisor;
        front.run(1, "1")?;
        let fds = std::fs::read_dir(format!("/proc/{supervisor}/fd"))?;
        let open: Vec<String> = fds
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .map(|path| path.display().to_string())
            .collect();
        let sockets = open
            .iter()
            .filter(|path| path.starts_with("socket:"))
            .count();
        // Its own, a copy of it for writing, and init's; standard error may be another.
        assert!(sockets <= 4, "{open:?}");
        let parent = std::fs::read_to_string(format!("/proc/{supervisor}/stat"))?;
        let parent = parent
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1));
        let parent: i32 = parent.ok_or("no parent")?.parse()?;
        drop(spawner);
        until("the spawner ends", || {
            !Path::new(&format!("/proc/{parent}")).exists() || !exists(Pid::from_raw(parent))
        })?;
        // A supervisor goes on until its own front end is gone.
        assert_eq!(text(&front.run(2, "print(2)")?, "stdout"), "2\n");
        drop(front);
        until("the supervisor ends", || !exists(supervisor))
    });
}

#[test]
fn what_is_no_order_ends_the_cell_with_a_reason() {
    alone(|| {
        let spawner = spawner()?;
        for garbage in [
            &b"hello\n"[..],
            b"{}\n",
            b"{\"execute\":{}}\n",
            b"\xff\xfe\n",
            b"[[[[\n",
        ] {
            let mut front = Front::python(&spawner)?;
            front.send(garbage)?;
            let why = front.report("ended")?["why"].clone();
            assert!(
                why.as_str().is_some_and(|why| why.starts_with("no order")),
                "{why}"
            );
            assert_eq!(front.next()?, None);
        }
        // A line may come in parts.
        let mut front = Front::python(&spawner)?;
        let order = json!({"execute": {"execution": 1, "code": "print(1)"}}).to_string() + "\n";
        for part in order.as_bytes().chunks(7) {
            front.send(part)?;
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(text(&front.report("answer")?, "stdout"), "1\n");
        front.order(json!("end"))?;
        assert_eq!(front.report("ended")?["why"], Value::Null);
        let mut early = Front::new(&spawner)?;
        early.begin(1, "1", json!({}))?;
        assert_eq!(early.report("failed")?["order"], "execute");
        early.order(
            json!({"open": {"request": {"rootfs": "/"}, "lasting": true, "ready": false}}),
        )?;
        assert_eq!(early.report("failed")?["order"], "open");
        Ok(())
    });
}

#[test]
fn an_idle_life_ends() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::new(&spawner)?;
        front.order(json!({"open": {"request": {"language": "python"}, "lasting": true, "ready": true, "idle_ms": 300}}))?;
        front.report("opened")?;
        let why = front.report("ended")?["why"].clone();
        assert!(
            why.as_str().is_some_and(|why| why.contains("idle")),
            "{why}"
        );
        Ok(())
    });
}
