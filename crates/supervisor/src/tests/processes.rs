//! Processes beside the interpreter of a context.

use serde_json::{Value, json};

use super::{Front, Tested, spawner, text};
use crate::Spawner;
use sys::alone::alone;

/// A front end that gets reports in whatever order they come.
struct Processes {
    front: Front,
    /// Reports that the test has not asked for yet.
    seen: Vec<Value>,
    last: u64,
}

impl Processes {
    fn of(front: Front) -> Self {
        Self {
            front,
            seen: Vec::new(),
            last: 0,
        }
    }

    fn python() -> Tested<(Spawner, Self)> {
        let spawner = spawner()?;
        let front = Front::python(&spawner)?;
        Ok((spawner, Self::of(front)))
    }

    /// The next report that fits; others are kept. Output is acknowledged.
    fn find(&mut self, fits: impl Fn(&Value) -> bool) -> Tested<Value> {
        if let Some(index) = self.seen.iter().position(&fits) {
            return Ok(self.seen.remove(index));
        }
        loop {
            let report = self.front.next()?.ok_or("the supervisor is gone")?;
            if fits(&report) {
                return Ok(report);
            }
            self.seen.push(report);
        }
    }

    fn order(&mut self, what: Value) -> Tested<u64> {
        self.last += 1;
        let id = self.last;
        self.front
            .order(json!({"process": {"id": id, "what": what}}))?;
        Ok(id)
    }

    /// The answer to an order: its pid, or its error.
    fn answer(&mut self, id: u64) -> Tested<Result<Value, String>> {
        let fits = |report: &Value| {
            report["process_done"]["id"] == id
                || (report["failed"]["id"] == id && report["failed"]["order"] == "process")
        };
        let answer = self.find(fits)?;
        Ok(match answer.get("failed") {
            Some(failed) => Err(failed["error"].to_string()),
            None => Ok(answer["process_done"]["pid"].clone()),
        })
    }

    fn ask(&mut self, what: Value) -> Tested<Result<Value, String>> {
        let id = self.order(what)?;
        self.answer(id)
    }

    fn start(&mut self, process: u32, argv: &[&str], options: Value) -> Tested {
        let mut start = json!({"process": process, "argv": argv});
        if let (Some(to), Some(from)) = (start.as_object_mut(), options.as_object()) {
            to.extend(from.clone());
        }
        self.ask(json!({ "start": start }))??;
        Ok(())
    }

    fn sh(&mut self, process: u32, command: &str) -> Tested {
        self.start(process, &["sh", "-c", command], json!({}))
    }

    /// All output of a process, and its end.
    fn end(&mut self, process: u32) -> Tested<(String, Value)> {
        let is_end = |report: &Value| report["process_ended"]["process"] == process;
        let end = self.find(is_end)?["process_ended"].take();
        Ok((self.written(process), end))
    }

    /// The output of a process so far.
    fn written(&mut self, process: u32) -> String {
        let is_output = |report: &Value| report["process_output"]["process"] == process;
        let (output, rest): (Vec<_>, Vec<_>) = self.seen.drain(..).partition(is_output);
        self.seen = rest;
        let texts = output
            .iter()
            .map(|report| report["process_output"]["text"].as_str());
        texts.map(Option::unwrap_or_default).collect()
    }

    /// Reads until a process has written this.
    fn wait_for(&mut self, process: u32, wanted: &str) -> Tested<String> {
        let mut all = self.written(process);
        while !all.contains(wanted) {
            let is_output = |report: &Value| {
                report["process_output"]["process"] == process
                    || report["process_ended"]["process"] == process
            };
            let report = self.find(is_output)?;
            match report["process_output"]["text"].as_str() {
                Some(text) => all += text,
                None => return Err(format!("instead of {wanted:?}: {all:?}, {report}").into()),
            }
        }
        Ok(all)
    }
}

#[test]
fn a_process_has_its_own_streams_environment_and_directory() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let options = json!({"env": {"A": "of its own"}, "cwd": "/tmp", "input": true});
        let script = "pwd; echo $A >&2; read line; echo got $line; cat; exit 3";
        cell.start(1, &["sh", "-c", script], options)?;
        cell.ask(json!({"input": {"process": 1, "data": "one\ntwo\n"}}))??;
        cell.ask(json!({"close_input": {"process": 1}}))??;
        let (written, end) = cell.end(1)?;
        assert!(
            written.contains("/tmp\n") && written.contains("of its own\n"),
            "{written}"
        );
        assert!(
            written.contains("got one\n") && written.contains("two\n"),
            "{written}"
        );
        assert_eq!((&end["exit_code"], &end["why"]), (&json!(3), &Value::Null));
        cell.sh(2, "cat; echo ${A-unset}; kill -KILL $$")?;
        let (written, end) = cell.end(2)?;
        assert_eq!(
            (written.as_str(), &end["signal"]),
            ("unset\n", &json!("SIGKILL"))
        );
        assert_eq!(end["exit_code"], Value::Null);
        Ok(())
    });
}

#[test]
fn processes_and_executions_do_not_wait_for_each_other() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.front.begin(
            1,
            "import time\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)",
            json!({}),
        )?;
        cell.start(1, &["cat"], json!({"input": true}))?;
        cell.ask(json!({"input": {"process": 1, "data": "in between"}}))??;
        cell.wait_for(1, "in between")?;
        cell.sh(2, "touch go")?;
        let answer = cell.find(|report| report.get("answer").is_some())?;
        assert_eq!(text(&answer["answer"], "outcome"), "ok");
        assert_eq!(answer["answer"]["record"]["stdout"], "");
        // The end of an execution does not end a process.
        cell.ask(json!({"input": {"process": 1, "data": "afterwards"}}))??;
        cell.wait_for(1, "afterwards")?;
        cell.front.order(json!("describe"))?;
        let described = cell.find(|report| report.get("described").is_some())?;
        assert!(
            described["described"]["description"]["usage"]["processes"].as_u64() >= Some(2),
            "{described}"
        );
        Ok(())
    });
}

#[test]
fn a_process_is_confined_like_the_interpreter() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let shows = "exec 2>&1; for k in CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters Uid Gid Groups; do grep ^$k: /proc/self/status; done; for n in user pid mnt net ipc uts cgroup; do readlink /proc/self/ns/$n; done; cat /proc/self/limits /proc/self/oom_score_adj; ls /proc/self/fd | wc -l; ls -l /proc/1/fd 2>&1 | tail -1; unshare -U true 2>&1 || echo no unshare; echo x > /usr/x 2>&1 || echo read-only";
        cell.sh(1, shows)?;
        let (of_process, _) = cell.end(1)?;
        cell.front.begin(1, &format!("import subprocess; print(subprocess.run(['sh', '-c', {shows:?}], stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, text=True).stdout, end='')"), json!({}))?;
        let answer = cell.find(|report| report.get("answer").is_some())?["answer"].take();
        let of_interpreter = text(&answer, "stdout");
        let (data, all_else): (Vec<&str>, Vec<&str>) =
            (of_process.lines()).partition(|line| line.starts_with("Max data size"));
        let (own_data, rest): (Vec<&str>, Vec<&str>) =
            (of_interpreter.lines()).partition(|line| line.starts_with("Max data size"));
        assert_eq!(all_else, rest, "{answer}");
        // Either can be any program, and may reserve more than Python, where that counts.
        let by = answer["record"]["limits"]["memory"]["by"].as_str();
        let is_counted = by.is_some_and(|by| by.starts_with("rlimit"));
        let size = |lines: &[&str]| lines[0].split_whitespace().nth(3).map(str::to_owned);
        let sizes = (size(&own_data), size(&data));
        let expected = match is_counted {
            true => "5368709120",
            false => "unlimited",
        };
        let expected = Some(expected.to_owned());
        assert_eq!(sizes, (expected.clone(), expected), "{answer}");
        assert!(of_process.contains("Seccomp_filters:\t1\n"), "{of_process}");
        assert!(of_process.contains("NoNewPrivs:\t1\n"), "{of_process}");
        Ok(())
    });
}

#[test]
fn signals_go_to_the_group_of_the_process() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.sh(
            1,
            "trap 'echo heard; exit 7' TERM; echo ready; sleep 1000 & wait",
        )?;
        cell.start(2, &["sleep", "1000"], json!({}))?;
        cell.wait_for(1, "ready")?;
        cell.ask(json!({"signal": {"process": 1, "signal": libc::SIGTERM}}))??;
        let (written, end) = cell.end(1)?;
        assert_eq!(
            (written.as_str(), &end["exit_code"]),
            ("heard\n", &json!(7))
        );
        for signal in [0, 9999, -1] {
            let refused = cell.ask(json!({"signal": {"process": 2, "signal": signal}}))?;
            assert!(refused.is_err(), "{signal}");
        }
        let gone = cell.ask(json!({"signal": {"process": 1, "signal": libc::SIGTERM}}))?;
        assert!(gone.is_err_and(|why| why.contains("no process with this number")));
        cell.ask(json!({"signal": {"process": 2, "signal": libc::SIGKILL}}))??;
        assert_eq!(cell.end(2)?.1["signal"], "SIGKILL");
        Ok(())
    });
}

#[test]
fn a_terminal_is_the_processes_own() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let terminal = json!({"terminal": {"rows": 33, "columns": 99}});
        let script = "trap 'stty size' WINCH; tty; stty size; until [ \"$line\" = word ]; do read line; done; echo [$line]; cat; echo over";
        cell.start(1, &["sh", "-c", script], terminal)?;
        let shown = cell.wait_for(1, "33 99")?;
        assert!(shown.contains("/dev/pts/"), "{shown}");
        cell.ask(json!({"resize": {"process": 1, "terminal": {"rows": 12, "columns": 34}}}))??;
        cell.ask(json!({"input": {"process": 1, "data": "word\n"}}))??;
        let shown = cell.wait_for(1, "[word]")?;
        assert!(shown.contains("12 34"), "{shown}");
        let refused = cell.ask(json!({"close_input": {"process": 1}}))?;
        assert!(refused.is_err_and(|why| why.contains("Ctrl-D")));
        cell.ask(json!({"input": {"process": 1, "data": "\u{4}"}}))??;
        let (shown, end) = cell.end(1)?;
        assert!(shown.contains("over\r\n"), "{shown:?}");
        assert_eq!(end["exit_code"], 0);
        cell.start(2, &["sleep", "1000"], json!({}))?;
        let refused =
            cell.ask(json!({"resize": {"process": 2, "terminal": {"rows": 1, "columns": 1}}}))?;
        assert!(refused.is_err_and(|why| why.contains("no terminal")));
        // The terminal makes a signal of Ctrl-C.
        cell.start(
            3,
            &["sleep", "1000"],
            json!({"terminal": {"rows": 1, "columns": 1}}),
        )?;
        cell.ask(json!({"input": {"process": 3, "data": "\u{3}"}}))??;
        assert_eq!(cell.end(3)?.1["signal"], "SIGINT");
        Ok(())
    });
}

#[test]
fn what_cannot_be_started_is_named() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let start =
            |argv: Value, cwd: Value| json!({"start": {"process": 1, "argv": argv, "cwd": cwd}});
        for (argv, cwd, named) in [
            (json!(["no-such-program"]), Value::Null, "no-such-program"),
            (json!(["/etc/passwd"]), Value::Null, "/etc/passwd"),
            (json!(["true"]), json!("/no/such/place"), "/no/such/place"),
            (json!(["true"]), json!("/proc/self/fd/5"), "/proc/self/fd/5"),
            (json!([]), Value::Null, "exec"),
        ] {
            let refused = cell.ask(start(argv, cwd))?;
            // As a whole: a path that was tried instead of a name is not shown to clients.
            let named = format!("{named:?}");
            assert!(
                refused.as_ref().is_err_and(|why| why.contains(&named)),
                "{refused:?}"
            );
        }
        // The cell is as it was.
        cell.sh(1, "echo fine")?;
        assert_eq!(cell.end(1)?.0, "fine\n");
        Ok(())
    });
}

#[test]
fn output_that_is_not_taken_stops_its_process_and_nothing_else() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.sh(
            1,
            "yes 0123456789abcde | head -c 1000000; echo; echo through",
        )?;
        let mut bytes = 0;
        // One read may go beyond the window.
        while bytes < 256 << 10 {
            let output = cell.find(|report| report["process_output"]["process"] == 1)?;
            bytes += output["process_output"]["bytes"].as_u64().unwrap_or(0);
        }
        assert!(bytes < (256 + 64) << 10, "{bytes}");
        cell.sh(2, "echo meanwhile")?;
        assert_eq!(cell.end(2)?.0, "meanwhile\n");
        assert!(
            cell.seen
                .iter()
                .all(|report| report.get("process_output").is_none())
        );
        cell.order(json!({"taken": {"process": 1, "bytes": 10_000_000}}))?;
        let (mut rest, mut end) = (0, None);
        while end.is_none() {
            let fits = |report: &Value| {
                report["process_output"]["process"] == 1 || report["process_ended"]["process"] == 1
            };
            let report = cell.find(fits)?;
            match report.get("process_ended") {
                Some(ended) => end = Some(ended.clone()),
                None => {
                    let more = report["process_output"]["bytes"].as_u64().unwrap_or(0);
                    rest += more;
                    cell.order(json!({"taken": {"process": 1, "bytes": more}}))?;
                }
            }
        }
        assert_eq!(bytes + rest, 1_000_009);
        assert_eq!(end.map(|end| end["exit_code"].clone()), Some(json!(0)));
        Ok(())
    });
}

#[test]
fn a_terminal_is_read_to_its_end_by_those_who_read_slowly() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        // More than the window: the terminal holds the rest at the end.
        let script = "head -c 266500 /dev/zero | tr '\\0' x; echo over";
        let terminal = json!({"terminal": {"rows": 1, "columns": 1}});
        cell.start(1, &["sh", "-c", script], terminal)?;
        // The test sleeps, since another process in the cell would get half of the window.
        std::thread::sleep(std::time::Duration::from_secs(2));
        cell.order(json!({"taken": {"process": 1, "bytes": 10_000_000}}))?;
        let (written, end) = cell.end(1)?;
        assert_eq!(end["exit_code"], 0);
        assert_eq!(written.len(), 266_500 + "over\r\n".len());
        assert!(written.ends_with("xover\r\n"));
        Ok(())
    });
}

#[test]
fn orders_that_wait_when_the_supervisor_ends_are_answered() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.sh(1, "true")?;
        cell.end(1)?;
        let start = json!({"start": {"process": 2, "argv": ["true"]}});
        let order = json!({"process": {"id": 99, "what": start}});
        // Both orders have arrived when the first would be carried out.
        cell.front.send(format!("{order}\n\"end\"\n").as_bytes())?;
        let refused = cell.answer(99)?;
        assert!(refused.is_err_and(|why| why.contains("the cell has ended")));
        cell.find(|report| report.get("ended").is_some())?;
        Ok(())
    });
}

#[test]
fn input_that_is_not_read_waits_and_ends_with_its_process() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.start(1, &["sleep", "1000"], json!({"input": true}))?;
        let data = "x".repeat(1 << 20);
        let waits = cell.order(json!({"input": {"process": 1, "data": data}}))?;
        cell.sh(2, "echo meanwhile")?;
        assert_eq!(cell.end(2)?.0, "meanwhile\n");
        cell.ask(json!({"signal": {"process": 1, "signal": libc::SIGKILL}}))??;
        assert!(cell.answer(waits)?.is_err());
        cell.end(1)?;
        // A process that closes its input goes on.
        cell.start(
            3,
            &["sh", "-c", "exec <&-; echo closed; sleep 1000"],
            json!({"input": true}),
        )?;
        cell.wait_for(3, "closed")?;
        assert!(
            cell.ask(json!({"input": {"process": 3, "data": "x"}}))?
                .is_err()
        );
        assert!(
            cell.ask(json!({"input": {"process": 3, "data": "x"}}))?
                .is_err()
        );
        Ok(())
    });
}

#[test]
fn the_number_of_processes_has_a_bound() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        for number in 1..=32 {
            cell.start(number, &["cat"], json!({"input": true}))?;
        }
        let refused = cell.ask(json!({"start": {"process": 33, "argv": ["true"]}}))?;
        assert!(refused.is_err_and(|why| why.contains("32 processes")));
        for number in 1..=32 {
            cell.ask(json!({"input": {"process": number, "data": format!("<{number}>")}}))??;
            cell.ask(json!({"close_input": {"process": number}}))??;
        }
        for number in 1..=32 {
            assert_eq!(cell.end(number)?.0, format!("<{number}>"));
        }
        cell.sh(33, "echo room")?;
        assert_eq!(cell.end(33)?.0, "room\n");
        Ok(())
    });
}

#[test]
fn the_end_of_a_cell_is_that_of_its_processes() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        cell.start(1, &["sleep", "1000"], json!({"input": true}))?;
        let data = "x".repeat(1 << 20);
        let waits = cell.order(json!({"input": {"process": 1, "data": data}}))?;
        cell.front.order(json!("restart"))?;
        cell.find(|report| report.get("restarted").is_some())?;
        let (_, end) = cell.end(1)?;
        assert_eq!(
            (&end["signal"], &end["why"]),
            (&json!("SIGKILL"), &json!("the cell has ended"))
        );
        assert!(cell.answer(waits)?.is_err());
        cell.start(2, &["sleep", "1000"], json!({}))?;
        cell.front.begin(1, "import os; os._exit(0)", json!({}))?;
        cell.end(2)?;
        // Init may report that before the cell is over. The next process makes the next cell.
        let answer = cell.find(|report| report.get("answer").is_some())?;
        assert_eq!(answer["answer"]["state"], "lost");
        cell.sh(3, "echo again")?;
        assert_eq!(cell.end(3)?.0, "again\n");
        Ok(())
    });
}

#[test]
fn a_wall_time_ends_a_process_and_its_group() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let argv = ["sh", "-c", "trap '' TERM INT HUP; sleep 1000 & wait"];
        cell.start(1, &argv, json!({"wall_ms": 200}))?;
        let (_, end) = cell.end(1)?;
        assert_eq!(end["signal"], "SIGKILL");
        assert!(
            end["why"].as_str().is_some_and(|why| why.contains("200ms")),
            "{end}"
        );
        Ok(())
    });
}

#[test]
fn what_children_write_after_the_end_is_left_out() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let child = "trap '' PIPE; until [ -e go ]; do sleep 0.05; done; echo late; touch written";
        cell.sh(1, &format!("({child}) & echo early"))?;
        let (written, end) = cell.end(1)?;
        assert_eq!(
            (written.as_str(), &end["exit_code"]),
            ("early\n", &json!(0))
        );
        // The child goes on.
        cell.sh(
            2,
            "touch go; until [ -e written ]; do sleep 0.05; done; echo seen",
        )?;
        assert_eq!(cell.end(2)?.0, "seen\n");
        assert_eq!(cell.written(1), "");
        Ok(())
    });
}

/// A process opens a pipe by its name, and takes what the supervisor was to read.
#[test]
fn output_that_a_child_takes_is_not_waited_for() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let child =
            "exec 9</proc/self/fd/1; until [ -e go ]; do sleep 0.05; done; cat <&9 >/dev/null";
        // More than the window; the pipe holds the rest at the end.
        let script = format!("({child}) & head -c 270000 /dev/zero");
        cell.sh(1, &script)?;
        let mut bytes = 0;
        while bytes < 256 << 10 {
            let output = cell.find(|report| report["process_output"]["process"] == 1)?;
            bytes += output["process_output"]["bytes"].as_u64().unwrap_or(0);
        }
        // Nothing of it was taken, so the supervisor reads no more of it. By then it has seen
        // the end.
        let is_there = "grep -qsx head /proc/[0-9]*/comm";
        let go = format!("while {is_there}; do sleep 0.05; done; sleep 0.5; touch go");
        cell.sh(2, &go)?;
        let (_, end) = cell.end(1)?;
        assert_eq!(end["exit_code"], 0, "{end}");
        Ok(())
    });
}

#[test]
fn a_state_with_a_process_beside_it_is_not_carried() {
    alone(|| {
        let (_spawner, mut cell) = Processes::python()?;
        let answer = cell.front.run(1, "x = 1")?;
        assert_eq!(answer["state"], "kept");
        cell.start(1, &["sleep", "1000"], json!({}))?;
        let to = std::env::temp_dir().join(format!("cellblock-process-{}", std::process::id()));
        cell.front
            .order(json!({"checkpoint": {"id": 1, "to": to}}))?;
        let failed = cell.find(|report| report["failed"]["order"] == "checkpoint")?;
        assert_eq!(
            failed["failed"]["error"]["operand"], "processes",
            "{failed}"
        );
        cell.ask(json!({"signal": {"process": 1, "signal": libc::SIGKILL}}))??;
        cell.end(1)?;
        cell.front
            .order(json!({"checkpoint": {"id": 2, "to": to}}))?;
        cell.find(|report| report.get("checkpointed").is_some())?;
        std::fs::remove_dir_all(to)?;
        Ok(())
    });
}

#[test]
fn a_cell_can_have_processes_only() {
    alone(|| {
        let spawner = spawner()?;
        let files = json!([{"path": "given", "text": "content"}]);
        let mut cell = Processes::of(Front::open(&spawner, json!({"files": files}), true)?);
        cell.sh(
            1,
            "cat given; echo $$; readlink /proc/self/ns/pid; echo made > made",
        )?;
        let (written, end) = cell.end(1)?;
        assert!(written.starts_with("content"), "{written}");
        assert_eq!(end["exit_code"], 0);
        // The end of the last process does not end the cell.
        cell.sh(
            2,
            "cat made; ls /proc | grep -c '^[0-9]'; readlink /proc/self/ns/pid",
        )?;
        let (second, _) = cell.end(2)?;
        assert!(second.starts_with("made\n"), "{second}");
        assert_eq!(second.lines().last(), written.lines().last());
        cell.front.begin(1, "1", json!({}))?;
        let refused = cell.find(|report| report["failed"]["order"] == "execute")?;
        assert!(
            refused["failed"]["error"]
                .to_string()
                .contains("no interpreter"),
            "{refused}"
        );
        cell.front.order(json!("describe"))?;
        let described = cell.find(|report| report.get("described").is_some())?;
        assert_eq!(
            described["described"]["description"]["language"],
            Value::Null
        );
        cell.front
            .order(json!({"checkpoint": {"id": 1, "to": "/tmp/never-made"}}))?;
        cell.find(|report| report["failed"]["order"] == "checkpoint")?;
        cell.start(3, &["sleep", "1000"], json!({}))?;
        cell.front.order(json!("restart"))?;
        cell.find(|report| report.get("restarted").is_some())?;
        cell.end(3)?;
        cell.sh(4, "cat made given")?;
        assert_eq!(cell.end(4)?.0, "made\ncontent");
        Ok(())
    });
}

#[test]
fn the_memory_of_processes_counts_for_their_cell() {
    alone(|| {
        let spawner = spawner()?;
        let request = json!({"limits": {"memory": "100M"}});
        let mut cell = Processes::of(Front::open(&spawner, request, true)?);
        cell.start(1, &["sleep", "1000"], json!({}))?;
        // Each process by itself is within the limit, and keeps what it has.
        cell.sh(2, "for i in 1 2 3 4; do head -c 60000000 /dev/zero | tail -c 60000000 | sleep 1000 & done; wait")?;
        let (_, end) = cell.end(1)?;
        assert_eq!(end["signal"], "SIGKILL", "{end}");
        Ok(())
    });
}
