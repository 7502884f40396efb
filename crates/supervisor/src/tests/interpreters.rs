//! Interpreters that end, are interrupted, break their channel, or run hostile code.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::{Front, PATIENCE, below, exists, spawner, text, until};
use sys::alone::alone;

#[test]
fn an_interpreter_that_ends_between_executions_is_reported() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let thread = "import os, threading, time
def end():
  while not os.path.exists('go'): time.sleep(0.01)
  os._exit(5)
threading.Thread(target=end).start()";
        assert_eq!(front.run(1, thread)?["state"], "kept");
        let go = json!({"write": {"path": "go", "content": ""}});
        front.order(json!({"file": {"id": 7, "what": go}}))?;
        front.report("file")?;
        let until = Instant::now() + PATIENCE;
        while front.describe()?["is_alive"] == true {
            assert!(Instant::now() < until, "the end is not seen");
        }
        let next = front.run(2, "print('new')")?;
        assert_eq!(text(&next, "stdout"), "new\n");
        assert_eq!(next["state"], "lost");
        assert!(
            next["why"]
                .as_str()
                .is_some_and(|why| why.contains("status 5")),
            "{next}"
        );
        assert_eq!(front.run(3, "1")?["state"], "kept");
        Ok(())
    });
}

/// Writes frames of the driver's.
const FORGED: &str = r#"
import os, time
def field(key, value):
    return b"t" + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
def frame(kind, execution):
    fields = [(b"kind", kind), (b"execution", b"%d" % execution), (b"status", b"7")]
    fields = b"".join(field(*each) for each in fields)
    return len(fields).to_bytes(4, "big") + fields
def forge(kind, execution):
    os.write(4, frame(kind, execution))
"#;

#[test]
fn an_interpreter_that_ends_right_after_its_code_is_reported() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        // It says that the code has ended, and takes no more. The kernel closes the descriptors of a
        // process before its parent is told of its end, here long before.
        let ends = format!("{FORGED}os.close(3); forge(b'done', 1); time.sleep(0.3); os._exit(5)");
        let ended = front.run(1, &ends)?;
        assert_eq!(
            (&ended["state"], &ended["record"]["exit_code"]),
            (&json!("lost"), &json!(5)),
            "{ended}"
        );
        assert_eq!(front.run(2, "1")?["state"], "kept");
        // One that does not end is ended.
        let ends = format!("{FORGED}os.close(3); forge(b'done', 3); time.sleep(1000)");
        let ended = front.run(3, &ends)?;
        assert_eq!(
            (&ended["state"], &ended["record"]["signal"]),
            (&json!("lost"), &json!("SIGKILL")),
            "{ended}"
        );
        let why = text(&ended, "context");
        assert!(why.contains("closed or damaged"), "{ended}");
        Ok(())
    });
}

#[test]
fn hostile_threads_and_children_harm_no_other_execution() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let flood = r"
import os, threading, struct
def flood(fd, bytes):
    while True: os.write(fd, bytes)
def field(key, value): return b't' + struct.pack('>BI', len(key), len(value)) + key + value
def frame(kind, number):
    body = field(b'kind', kind) + field(b'execution', number)
    return struct.pack('>I', len(body)) + body
forged = frame(b'done', b'1') + frame(b'done', b'99') + frame(b'error', b'7')
for fd, bytes in (1, b'x' * 5000), (2, b'y' * 5000), (4, forged):
    threading.Thread(target=flood, args=(fd, bytes), daemon=True).start()
";
        assert_eq!(front.run(1, flood)?["state"], "kept");
        let supervisor = front.supervisor;
        let resident = || {
            let status = std::fs::read_to_string(format!("/proc/{supervisor}/status")).ok()?;
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let cpu = || {
            let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
        };
        let (before, began) = (resident().ok_or("no status")?, cpu().ok_or("no stat")?);
        std::thread::sleep(Duration::from_millis(500));
        let (after, ended) = (resident().ok_or("no status")?, cpu().ok_or("no stat")?);
        assert!(after < before + 4096, "{before} {after} KiB");
        // Of the fifty ticks, a supervisor that reads nothing needs next to none.
        assert!(ended - began < 25, "{began} {ended}");
        let next = front.run(2, "x = 7; x")?;
        assert_eq!(next["record"]["results"][0]["text"], "7");
        let warnings = next["record"]["warnings"].to_string();
        assert!(
            warnings.contains("bytes are left out that were written to stdout"),
            "{warnings}"
        );
        assert!(
            warnings.contains("an earlier execution's threads"),
            "{warnings}"
        );
        assert_eq!(next["record"]["error"], Value::Null);
        Ok(())
    });
}

#[test]
fn calls_that_are_denied_between_executions_are_named_in_the_next_record() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let thread = "import threading, os
go = threading.Event()
def later():
  while True:
    go.wait(0.01)
    try: os.chroot('/')
    except OSError: pass
threading.Thread(target=later, daemon=True).start()";
        front.run(1, thread)?;
        let mut number = 1;
        let until = Instant::now() + PATIENCE;
        loop {
            number += 1;
            let answer = front.run(number, "x = 7")?;
            let warnings = answer["record"]["warnings"].to_string();
            if warnings
                .contains("system calls were denied after the execution before had ended: chroot (")
            {
                return Ok(());
            }
            assert!(Instant::now() < until, "{answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn a_channel_that_the_code_breaks_ends_the_interpreter() {
    alone(|| {
        let spawner = spawner()?;
        for damage in ["os.close(4)", "os.write(4, b'\\xff' * 100)", "os.close(3)"] {
            let mut front = Front::python(&spawner)?;
            let code = format!("x = 1; import os; {damage}; import time; time.sleep(0.1)");
            let answer = front.run(1, &code)?;
            assert_eq!(answer["state"], "lost", "{damage}: {answer}");
            let next = front.run(2, "print('x' in globals())")?;
            assert_eq!(
                (&next["state"], text(&next, "stdout")),
                (&json!("kept"), "False\n")
            );
        }
        Ok(())
    });
}

#[test]
fn an_interpreter_that_goes_on_does_not_wait_to_be_ended() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let exit = format!("{FORGED}x = 1; forge(b'exit', 1); time.sleep(0.1); print('went on')");
        let helped = format!(
            "{FORGED}if os.fork() == 0: time.sleep(1000)\nforge(b'done', 2); forge(b'exit', 2)"
        );
        let answer = front.run(1, &exit)?;
        assert_eq!(
            (&answer["state"], text(&answer, "stdout")),
            (&json!("kept"), "went on\n"),
            "{answer}"
        );
        front.run(2, &helped)?;
        let next = front.run(3, "print(x)")?;
        assert_eq!(
            (&next["state"], text(&next, "stdout")),
            (&json!("kept"), "1\n"),
            "{next}"
        );
        Ok(())
    });
}

#[test]
fn a_channel_that_ends_with_an_execution_is_noted() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let code = format!(
            "{FORGED}print('on', flush=True); time.sleep(0.3)\n\
             forge(b'done', 1); os.close(4); time.sleep(1000)"
        );
        front.begin(1, &code, json!({"events": true}))?;
        front.await_output()?;
        // Frame and end are there when the supervisor looks.
        kill(front.supervisor, Signal::SIGSTOP)?;
        std::thread::sleep(Duration::from_millis(600));
        kill(front.supervisor, Signal::SIGCONT)?;
        front.report("answer")?;
        front.begin(2, "print(2)", json!({"wall_ms": 20000}))?;
        let next = front.report("answer")?;
        assert_ne!(text(&next, "outcome"), "timeout", "{next}");
        Ok(())
    });
}

#[test]
fn stopped_and_deaf_processes_hold_nothing_up() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let child = "import os, signal, time
child = os.fork()
if child == 0:
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  os.kill(os.getpid(), signal.SIGSTOP)
  time.sleep(1000)
os.waitpid(child, os.WUNTRACED)";
        assert_eq!(front.run(1, child)?["state"], "kept");
        front.begin(
            2,
            "while True: pass",
            json!({"wall_ms": 200, "grace_ms": 20000}),
        )?;
        assert_eq!(front.report("answer")?["state"], "kept");
        // The whole interpreter stops itself: only the kill ends that.
        let stop =
            "signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGSTOP)";
        front.killed_by_its_wall(3..104, stop)?;
        assert_eq!(front.run(104, "1")?["state"], "kept");
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
            front.await_output()?;
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
        front.await_output()?;
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
            kill(pid, Signal::SIGKILL)?;
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
