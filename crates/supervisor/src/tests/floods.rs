//! A front end that sends too much: what it costs is bounded, and ends cleanly.

use nix::unistd::Pid;
use serde_json::json;

use super::{Front, Tested, below, spawner, until_gone};
use sys::alone::alone;

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
pub(super) fn peak(pid: Pid) -> u64 {
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
        front.await_output()?;
        let (supervisor, processes) = (front.supervisor, below(front.supervisor));
        let before = peak(supervisor);
        flood(&mut front, b"\"describe\"\n", 10_000);
        let after = peak(supervisor);
        assert_eq!(ended(&mut front)?, "too many orders");
        assert!(after < before + (16 << 10), "{before} {after} KiB");
        until_gone(supervisor, &processes)
    });
}

/// Results are in memory once as what is kept, and once each as the event and the report that wait
/// for their reader.
#[test]
fn results_are_reported_without_a_further_copy() {
    const KEPT: u64 = 4 << 10;
    const FORMS: [&str; 3] = [
        r#"{"application/json": ["x" * 999] * 3900, "text/plain": "x"}"#,
        r#"{"application/json": ["x" * 9] * 280000, "text/plain": "x"}"#,
        r#"{"text/html": "x" * 3900000, "text/plain": "x"}"#,
    ];
    alone(|| {
        let spawner = spawner()?;
        for form in FORMS {
            let mut front = Front::python(&spawner)?;
            front.run(1, "1")?;
            let before = peak(front.supervisor);
            let shown = format!("return {form}");
            let code = format!("class R:\n  def _repr_mimebundle_(self, *a, **k): {shown}\nR()");
            front.begin(2, &code, json!({"events": true}))?;
            let record = &front.report("answer")?["record"];
            assert!(record["results"][0].to_string().len() > 3 << 20);
            let more = peak(front.supervisor) - before;
            assert!(more < KEPT + (14 << 10), "{form}: {more} KiB");
        }
        Ok(())
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
        until_gone(supervisor, &processes)
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
            until_gone(supervisor, &processes)?;
        }
        Ok(())
    });
}
