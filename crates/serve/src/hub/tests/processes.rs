//! Processes in contexts' cells.

use std::time::Duration;

use record::error::{SetupError, Step};
use serde_json::{Value, json};
use supervisor::{OrderName, ProcessOrder, Report};

use super::World;
use crate::Settings;

impl World {
    fn start(&mut self, client: u64, id: u64, context: &str) {
        let params = json!({"context": context, "command": "x", "events": true});
        self.call(client, id, "process.start", params);
    }

    fn output(&mut self, process: u32, bytes: u64) {
        let report = Report::ProcessOutput {
            process,
            stream: "stdout".to_owned(),
            text: "text".to_owned(),
            base64: None,
            bytes,
        };
        self.hub.report(1, report);
        self.act();
    }

    fn end(&mut self, process: u32) {
        let report = Report::ProcessEnded {
            process,
            exit_code: Some(0),
            signal: None,
            why: None,
        };
        self.hub.report(1, report);
        self.act();
    }

    /// Events of a call.
    fn events(&self, client: u64, id: u64) -> Vec<&Value> {
        let lines = self.said.get(&client).into_iter().flatten();
        let own = lines.filter(|line| line["id"] == id);
        own.filter_map(|line| line.get("event")).collect()
    }

    /// Bytes that supervisors were told are taken.
    fn taken(&self) -> u64 {
        self.processes
            .iter()
            .map(|(_, order)| match order {
                ProcessOrder::Taken { bytes, .. } => *bytes,
                _ => 0,
            })
            .sum()
    }
}

/// With a context `a` of client 1, on the supervisor 1.
fn world() -> World {
    let mut world = World::with(4, 10);
    world.connect(1);
    world.connect(2);
    world.create(1, 1, "a");
    world
}

#[test]
fn a_process_is_started_while_code_runs_and_heard_by_its_call() {
    let mut world = world();
    world.run_in(1, 2, "a");
    world.start(1, 3, "a");
    let result = &world.answer(1, 3).unwrap()["result"];
    assert_eq!(
        (&result["process"], &result["context"]),
        (&json!(1), &json!("a"))
    );
    world.output(1, 5);
    world.end(1);
    let events = world.events(1, 3);
    assert_eq!(events[0]["event"], "process_output");
    assert_eq!(events[1]["event"], "process_ended");
    assert_eq!(world.code(1, 2), "none");
    world.call(1, 4, "process.list", json!({"context": "a"}));
    assert_eq!(
        world.answer(1, 4).unwrap()["result"]["processes"],
        json!([])
    );
    world.call(
        1,
        5,
        "process.input",
        json!({"context": "a", "process": 1, "data": "x"}),
    );
    assert_eq!(world.code(1, 5), "not_found");
}

#[test]
fn others_of_the_party_listen_and_strangers_do_not() {
    let mut world = world();
    world.hub.connect(3, super::Party::Door(7), false);
    world.start(1, 2, "a");
    let process = json!({"context": "a", "process": 1});
    world.call(2, 1, "process.connect", process.clone());
    world.call(3, 1, "process.connect", process.clone());
    world.call(3, 2, "process.list", json!({"context": "a"}));
    world.call(
        3,
        3,
        "process.start",
        json!({"context": "a", "command": "x"}),
    );
    assert_eq!(world.code(2, 1), "ok");
    for id in 1..=3 {
        assert_eq!(world.code(3, id), "not_found");
    }
    world.output(1, 5);
    assert_eq!((world.events(1, 2).len(), world.events(2, 1).len()), (1, 1));
    world.leave(2);
    world.output(1, 5);
    assert_eq!(world.events(1, 2).len(), 2);
}

#[test]
fn a_client_that_does_not_read_holds_up_its_process_alone() {
    let mut world = world();
    world.start(1, 2, "a");
    world.start(1, 3, "a");
    world.call(
        2,
        1,
        "process.connect",
        json!({"context": "a", "process": 1}),
    );
    world.output(1, 64 << 10);
    assert_eq!(world.taken(), 64 << 10);
    world.hub.note_full(2, true);
    world.output(1, 100 << 10);
    world.output(1, 100 << 10);
    assert_eq!(world.taken(), 64 << 10);
    world.output(2, 70 << 10);
    assert_eq!(world.taken(), (64 + 70) << 10);
    // Output is held for the others as well, once.
    assert_eq!((world.events(1, 2).len(), world.events(2, 1).len()), (1, 1));
    world.hub.note_full(2, false);
    world.act();
    assert_eq!(world.taken(), (64 + 70 + 200) << 10);
    assert_eq!((world.events(1, 2).len(), world.events(2, 1).len()), (3, 3));
    world.hub.note_full(2, true);
    world.output(1, 100 << 10);
    // Without that client, the others have room.
    world.leave(2);
    assert_eq!(world.taken(), (64 + 70 + 300) << 10);
    // Output that no client listens to is taken, and dropped.
    world.create(2, 9, "unused");
    world.output(9, 1 << 20);
    assert_eq!(world.taken(), (64 + 70 + 300) << 10);
}

#[test]
fn an_end_comes_behind_the_output_that_is_held() {
    let mut world = world();
    world.start(1, 2, "a");
    world.start(2, 1, "a");
    world.hub.note_full(1, true);
    world.output(1, 5);
    world.output(1, 5);
    world.end(1);
    world.output(1, 5);
    world.end(2);
    assert_eq!((world.events(1, 2).len(), world.events(2, 1).len()), (0, 1));
    let signal = json!({"context": "a", "process": 1, "signal": "SIGKILL"});
    world.call(2, 2, "process.signal", signal);
    assert_eq!(world.code(2, 2), "not_found");
    world.call(2, 3, "process.list", json!({"context": "a"}));
    let list = &world.answer(2, 3).unwrap()["result"]["processes"];
    assert_eq!(list, &json!([]));
    world.hub.note_full(1, false);
    world.act();
    let names: Vec<&Value> = world
        .events(1, 2)
        .iter()
        .map(|event| &event["event"])
        .collect();
    assert_eq!(names, ["process_output", "process_output", "process_ended"]);
}

#[test]
fn a_cell_that_is_gone_gives_a_full_client_ends_only() {
    let mut world = world();
    world.start(1, 2, "a");
    let process = json!({"context": "a", "process": 1});
    world.call(2, 1, "process.connect", process);
    world.hub.note_full(1, true);
    world.output(1, 5);
    world.kill(1);
    let counts = (world.events(1, 2).len(), world.events(2, 1).len());
    assert_eq!(counts, (1, 2));
    assert_eq!(world.events(1, 2)[0]["event"], "process_ended");
    assert_eq!(world.events(2, 1)[1]["event"], "process_ended");
}

#[test]
fn a_client_listens_to_a_process_with_one_call() {
    let mut world = world();
    world.start(1, 2, "a");
    for id in 10..40 {
        let process = json!({"context": "a", "process": 1});
        world.call(1, id, "process.connect", process);
        assert_eq!(world.code(1, id), "ok");
    }
    world.output(1, 5);
    let said = &world.said[&1];
    let events: Vec<&Value> = said
        .iter()
        .filter(|line| line.get("event").is_some())
        .collect();
    assert_eq!((events.len(), &events[0]["id"]), (1, &json!(39)));
}

#[test]
fn a_kept_contexts_process_outlives_its_client() {
    let mut world = world();
    world.call(
        1,
        2,
        "context.label",
        json!({"context": "a", "label": null, "keep": true}),
    );
    world.start(1, 3, "a");
    world.leave(1);
    world.output(1, 200 << 10);
    assert_eq!(world.taken(), 200 << 10);
    world.call(2, 1, "process.list", json!({"context": "a"}));
    let list = &world.answer(2, 1).unwrap()["result"]["processes"];
    assert_eq!(
        (&list[0]["process"], &list[0]["argv"]),
        (&json!(1), &json!(["sh", "-c", "x"]))
    );
    world.call(
        2,
        2,
        "process.connect",
        json!({"context": "a", "process": 1}),
    );
    world.output(1, 5);
    assert_eq!(world.events(2, 2).len(), 1);
}

#[test]
fn the_end_of_a_cell_answers_and_ends_all() {
    let mut world = world();
    world.start(1, 2, "a");
    world.unanswered.insert("process");
    world.call(
        1,
        3,
        "process.input",
        json!({"context": "a", "process": 1, "data": "x"}),
    );
    world.start(1, 4, "a");
    world.kill(1);
    assert_eq!((world.code(1, 3), world.code(1, 4)), ("lost", "lost"));
    assert_eq!(world.events(1, 2)[0]["event"], "process_ended");
    assert_eq!(world.events(1, 2)[0]["why"], "killed");
}

#[test]
fn calls_that_are_not_answered_have_a_bound() {
    let mut world = world();
    world.start(1, 2, "a");
    world.unanswered.insert("process");
    let mib = "x".repeat(1 << 20);
    let input = |data: &str| json!({"context": "a", "process": 1, "data": data});
    for id in 10..14 {
        world.call(1, id, "process.input", input(&mib));
        assert_eq!(world.code(1, id), "none");
    }
    world.call(1, 20, "process.input", input("x"));
    assert_eq!(world.code(1, 20), "busy");
    world.call(1, 21, "process.input", input(&(mib + "x")));
    assert_eq!(world.code(1, 21), "bad_params");
    for id in 30..95 {
        world.start(1, id, "a");
    }
    assert_eq!((world.code(1, 30), world.code(1, 94)), ("none", "busy"));
}

#[test]
fn a_process_that_does_not_read_its_input_can_be_killed() {
    let mut world = world();
    world.start(1, 2, "a");
    world.unanswered.insert("process");
    let input = json!({"context": "a", "process": 1, "data": "x"});
    for id in 10..75 {
        world.call(1, id, "process.input", input.clone());
    }
    assert_eq!((world.code(1, 73), world.code(1, 74)), ("none", "busy"));
    let signal = json!({"context": "a", "process": 1, "signal": "SIGKILL"});
    for id in 100..165 {
        world.call(1, id, "process.signal", signal.clone());
    }
    assert_eq!((world.code(1, 163), world.code(1, 164)), ("none", "busy"));
    let is_signal = |order: &&(u64, ProcessOrder)| matches!(order.1, ProcessOrder::Signal { .. });
    assert_eq!(world.processes.iter().filter(is_signal).count(), 64);
}

#[test]
fn what_processes_are_started_with_has_a_bound() {
    let mut world = world();
    let start = |bytes: usize| json!({"context": "a", "argv": ["x", "y".repeat(bytes)]});
    world.call(1, 2, "process.start", start(2 << 20));
    let error = &world.answer(1, 2).unwrap()["error"];
    assert_eq!(error["code"], "bad_params");
    assert!(
        error["message"].as_str().unwrap().contains("2097152"),
        "{error}"
    );
    let env = json!({"context": "a", "command": "x", "env": {"A": "y".repeat(2 << 20)}});
    world.call(1, 3, "process.start", env);
    assert_eq!(world.code(1, 3), "bad_params");
    // Running processes and ordered ones count.
    for id in 10..13 {
        world.call(1, id, "process.start", start(2_000_000));
    }
    world.unanswered.insert("process");
    world.call(1, 13, "process.start", start(2_000_000));
    world.call(1, 14, "process.start", start(2_000_000));
    let codes = [12, 13, 14].map(|id| world.code(1, id));
    assert_eq!(codes, ["ok", "none", "busy"]);
    world.end(1);
    world.call(1, 15, "process.start", start(2_000_000));
    assert_eq!(world.code(1, 15), "none");
}

#[test]
fn an_error_of_the_cell_is_the_calls() {
    let mut world = world();
    world.unanswered.insert("process");
    world.start(1, 2, "a");
    let error = SetupError::new(Step::Exec, "there is nothing").on("x");
    let failed = |id| Report::Failed {
        order: OrderName::Process,
        id,
        error: error.clone(),
        state: None,
        why: None,
    };
    for id in [None, Some(77), Some(1), Some(1)] {
        world.hub.report(1, failed(id));
        world.act();
    }
    assert_eq!(world.code(1, 2), "failed");
    assert_eq!(
        world.said[&1].iter().filter(|line| line["id"] == 2).count(),
        1
    );
}

#[test]
fn wrong_parameters_are_named() {
    let mut world = world();
    world.start(1, 2, "a");
    let cases = [
        ("process.start", json!({}), "exactly one of"),
        ("process.start", json!({"argv": []}), "exactly one of"),
        (
            "process.start",
            json!({"argv": ["a"], "command": "b"}),
            "exactly one of",
        ),
        ("process.start", json!({"argv": ["a\u{0}b"]}), "byte 0"),
        (
            "process.start",
            json!({"command": "x", "env": {"A=B": "c"}}),
            "A=B",
        ),
        (
            "process.start",
            json!({"command": "x", "cwd": "relative"}),
            "absolute",
        ),
        (
            "process.start",
            json!({"command": "x", "terminal": {"rows": 0, "columns": 1}}),
            "at least 1",
        ),
        (
            "process.start",
            json!({"command": "x", "tag": "t".repeat(200)}),
            "tag: wants",
        ),
        (
            "process.signal",
            json!({"process": 1, "signal": "KILL"}),
            "SIGTERM",
        ),
        (
            "process.signal",
            json!({"process": 9, "signal": "SIGKILL"}),
            "no process 9",
        ),
        (
            "process.connect",
            json!({"process": u64::MAX}),
            "no process",
        ),
    ];
    for (id, (method, mut params, named)) in (10..).zip(cases) {
        params["context"] = json!("a");
        world.call(1, id, method, params);
        let error = &world.answer(1, id).unwrap()["error"]["message"];
        assert!(
            error.as_str().is_some_and(|why| why.contains(named)),
            "{error}"
        );
    }
}

#[test]
fn a_context_that_is_listened_to_is_in_use() {
    let mut world = World::new(Settings {
        idle: Duration::from_secs(60),
        ..Settings::default()
    });
    world.connect(1);
    world.create(1, 1, "a");
    world.start(1, 2, "a");
    world.pass(Duration::from_secs(600));
    assert_eq!(world.alive.len(), 1);
    world.end(1);
    world.pass(Duration::from_secs(59));
    assert_eq!(world.alive.len(), 1);
    // A process without a client does not keep its context.
    world.call(
        1,
        3,
        "process.start",
        json!({"context": "a", "command": "x"}),
    );
    world.pass(Duration::from_secs(61));
    assert_eq!(world.alive.len(), 0);
}

#[test]
fn a_process_waits_for_the_cell_of_a_suspended_context() {
    let mut world = World::with(4, 10);
    world.connect(1);
    let request = json!({"language": "python"});
    world.call(
        1,
        1,
        "context.create",
        json!({"request": request, "context": "a", "branches": true}),
    );
    world.call(1, 2, "context.suspend", json!({"context": "a"}));
    assert_eq!(world.code(1, 2), "ok");
    world.ordered.clear();
    world.start(1, 3, "a");
    assert_eq!(world.code(1, 3), "ok");
    let names: Vec<&str> = world.ordered.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, ["open", "restore", "process"]);
}

#[test]
fn a_start_that_was_cancelled_before_its_cell_is_forgotten() {
    let mut world = World::with(4, 10);
    world.connect(1);
    world.unanswered.insert("open");
    world.create(1, 1, "a");
    world.start(1, 2, "a");
    world.call(1, 3, "cancel", json!({"call": 2}));
    assert_eq!((world.code(1, 2), world.code(1, 3)), ("cancelled", "ok"));
    assert!(world.processes.is_empty());
}

#[test]
fn starts_of_a_client_that_left_before_the_cell_was_made_are_forgotten() {
    let mut world = World::with(4, 10);
    world.connect(1);
    world.connect(2);
    world.unanswered.insert("open");
    world.create(1, 1, "a");
    for id in 1..=65 {
        world.start(2, id, "a");
    }
    assert_eq!((world.code(2, 64), world.code(2, 65)), ("none", "busy"));
    world.leave(2);
    world.start(1, 2, "a");
    assert_eq!(world.code(1, 2), "none");
}

#[test]
fn a_list_of_processes_counts_as_unread_before_it_is_made() {
    let mut world = world();
    let start = json!({"context": "a", "argv": ["x", "y".repeat(1 << 20)]});
    world.call(1, 2, "process.start", start);
    let list = json!({"context": "a"});
    world.call(1, 3, "process.list", list.clone());
    assert_eq!(world.code(1, 3), "ok");
    let party = world.hub.party_of(1);
    let mut unread = world.hub.unread().share(party);
    unread.set(64 << 20);
    world.call(1, 4, "process.list", list.clone());
    assert_eq!(world.code(1, 4), "busy");
    drop(unread);
    world.call(1, 5, "process.list", list);
    assert_eq!(world.code(1, 5), "ok");
}
