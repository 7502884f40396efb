//! A front end that sends too much: what it costs is bounded, and ends cleanly.

use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Front, Tested, below, exists, spawner, text, until};
use crate::launch::tests::alone;

/// Writes until the supervisor takes no more, or `count` times.
fn flood(front: &mut Front, bytes: &[u8], count: usize) -> usize {
    (0..count).take_while(|_| front.send(bytes).is_ok()).count()
}

/// The report that it has ended, whatever comes before, and why.
fn ended(front: &mut Front) -> Tested<String> {
    while let Some(report) = front.next()? {
        if let Some(ended) = report.get("ended") {
            return Ok(ended["why"].as_str().unwrap_or_default().to_owned());
        }
    }
    Err("it ended without a report".into())
}

/// The most memory that a process had, in KiB.
fn peak(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}

#[test]
fn a_flood_of_orders_is_refused_and_then_ends_the_cell() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        // While an execution goes on, all others wait.
        let busy = "print('on', flush=True)\nwhile True: pass";
        front.begin(1, busy, json!({"events": true}))?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        let (supervisor, processes) = (front.supervisor, below(front.supervisor));
        let before = peak(supervisor);
        flood(&mut front, b"\"describe\"\n", 10_000);
        let after = peak(supervisor);
        assert_eq!(ended(&mut front)?, "too many orders");
        assert!(after < before + (16 << 10), "{before} {after} KiB");
        for pid in processes {
            until("the cell ends", || !exists(pid))?;
        }
        until("the supervisor ends", || !exists(supervisor))
    });
}

#[test]
fn orders_within_the_bound_are_answered_each() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        front.begin(1, "import time; time.sleep(0.5)", json!({}))?;
        let count = 1500;
        assert_eq!(flood(&mut front, b"\"describe\"\n", count), count);
        assert_eq!(front.report("answer")?["state"], "kept");
        let (mut described, mut refused) = (0, 0);
        while described + refused < count {
            let report = front.next()?.ok_or("the supervisor is gone")?;
            match report.get("failed") {
                None => described += usize::from(report.get("described").is_some()),
                Some(failed) => {
                    let message = failed["error"].to_string();
                    assert!(message.contains("too many orders"), "{message}");
                    refused += 1;
                }
            }
        }
        // The execution waits as well, until it is begun.
        assert!(described >= 1023, "{described}");
        assert_eq!(front.run(2, "6 * 7")?["record"]["results"][0]["text"], "42");
        Ok(())
    });
}

#[test]
fn a_line_without_end_ends_the_cell() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        front.run(1, "x = 1")?;
        let (supervisor, processes) = (front.supervisor, below(front.supervisor));
        let piece = vec![b'x'; 1 << 20];
        let sent = flood(&mut front, &piece, 1000);
        assert!(sent < 300, "{sent} MiB");
        let why = ended(&mut front)?;
        assert!(why.starts_with("a line of more than"), "{why}");
        for pid in processes {
            until("the cell ends", || !exists(pid))?;
        }
        until("the supervisor ends", || !exists(supervisor))
    });
}

#[test]
fn half_an_order_and_an_end_leave_nothing() {
    alone(|| {
        let spawner = spawner()?;
        for half in [
            &b"{\"execute\":{\"execution\":1,\"code\":\"x"[..],
            b"",
            b"\n\n",
        ] {
            let mut front = Front::python(&spawner)?;
            front.send(half)?;
            let (supervisor, processes) = (front.supervisor, below(front.supervisor));
            drop(front);
            until("the supervisor ends", || !exists(supervisor))?;
            for pid in processes {
                until("the cell ends", || !exists(pid))?;
            }
        }
        Ok(())
    });
}

/// An interrupt that comes while Bash starts a command, or waits for one that ends well, is neither
/// lost nor taken by a copy of the shell, nor does it make Bash signal itself without end.
#[test]
fn an_interrupt_ends_a_loop_of_short_commands() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::open(&spawner, json!({"language": "bash"}), true)?;
        assert_eq!(front.run(1, "x=7")?["state"], "kept");
        for number in 2..22 {
            let handler = ["", "trap - INT; "][number as usize % 2];
            // Each of them may be where the signal meets it.
            let code = format!("{handler}echo on; while :; do /bin/true; (exit 0); done");
            front.begin(number, &code, json!({"events": true}))?;
            while front.report("event")?["event"]["event"] != "stdout" {}
            let interrupt = json!({"execution": number, "grace_ms": 50_000});
            front.order(json!({ "interrupt": interrupt }))?;
            let answer = front.report("answer")?;
            assert_eq!(answer["state"], "kept", "{answer}");
        }
        let kept = front.run(22, "echo $x")?;
        assert_eq!(text(&kept, "stdout"), "7\n", "{kept}");
        Ok(())
    });
}

/// At the end of the grace, what the shell waits for is killed, and background jobs go on.
#[test]
fn a_shell_outlasts_a_command_that_does_not_heed_interrupts() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::open(&spawner, json!({"language": "bash"}), true)?;
        assert_eq!(front.run(1, "x=7; sleep 1000 &")?["state"], "kept");
        let code = "bash -c 'trap : INT; echo on; while :; do sleep 1; done'; x=8";
        front.begin(2, code, json!({"events": true}))?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        front.order(json!({ "interrupt": {"execution": 2, "grace_ms": 100} }))?;
        let answer = front.report("answer")?;
        assert_eq!(answer["state"], "kept", "{answer}");
        let kept = front.run(3, "echo $x; kill $!; echo $?")?;
        assert_eq!(text(&kept, "stdout"), "7\n0\n", "{kept}");
        Ok(())
    });
}

/// The next answer reports an interpreter that ended while nothing ran.
#[test]
fn an_interpreter_that_is_killed_while_it_rests_is_reported() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        front.run(1, "x = 1; open('file', 'w').write('kept')")?;
        for victim in ["program", "init"] {
            let cell = below(front.supervisor);
            // The only process of the supervisor's that has a child.
            let init = cell.iter().find(|pid| !below(**pid).is_empty());
            let init = *init.ok_or("no init")?;
            let program = *below(init).first().ok_or("no program")?;
            let pid = if victim == "program" { program } else { init };
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
            until("the kill took effect", || !exists(pid))?;
            let number = if victim == "program" { 2 } else { 4 };
            // If the order comes before the supervisor has seen the end, its code never runs.
            let next = front.run(number, "1")?;
            assert_eq!(next["state"], "lost", "{victim}: {next}");
            assert_ne!(next["why"], Value::Null, "{victim}");
            let look = "assert 'x' not in globals(); x = 1; open('file').read()";
            let again = front.run(number + 1, look)?;
            assert_eq!(again["state"], "kept", "{victim}: {again}");
            if victim == "program" {
                assert_eq!(again["record"]["results"][0]["text"], "'kept'");
            }
        }
        Ok(())
    });
}
