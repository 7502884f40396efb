//! Bytes, cells and checkpoints that parties share, and what each sees of them.

use serde_json::{Value, json};

use super::World;
use crate::{ONE_CALL, Party, Settings};

const MIB: usize = 1 << 20;
const ONE: Party = Party::Door(1);
const TWO: Party = Party::Door(2);

fn two(settings: Settings) -> World {
    let mut world = World::new(Settings {
        parties: 2,
        ..settings
    });
    world.hub.connect(1, ONE, false);
    world.hub.connect(2, TWO, false);
    world
}

fn run(world: &mut World, client: u64, id: u64, bytes: usize) {
    let request = json!({"language": "python", "code": "1".repeat(bytes)});
    world.call(client, id, "run", json!({"request": request}));
}

#[test]
fn calls_that_wait_are_bounded_in_bytes() {
    let mut world = two(Settings {
        max_cells: 2,
        max_waiting: 4 * ONE_CALL as u64,
        max_waiting_each: ONE_CALL as u64,
        ..Settings::default()
    });
    run(&mut world, 1, 0, 15 * MIB);
    // It has gone on to its supervisor.
    assert_eq!((world.running.len(), world.hub.budget().held(ONE)), (1, 0));
    for id in 1..=4 {
        run(&mut world, 1, id, 15 * MIB);
    }
    let codes: Vec<&str> = (1..=4).map(|id| world.code(1, id)).collect();
    assert_eq!(codes, ["none", "none", "none", "busy"]);
    assert!(world.answer(1, 4).unwrap()["error"]["retry_after_ms"].is_u64());
    // Another party has room, and the calls by which this one gives bytes back are taken.
    run(&mut world, 2, 0, 15 * MIB);
    assert_eq!(world.code(2, 0), "none");
    world.call(1, 5, "cancel", json!({"call": 3}));
    assert_eq!((world.code(1, 5), world.code(1, 3)), ("ok", "cancelled"));
    run(&mut world, 1, 6, 15 * MIB);
    assert_eq!(world.code(1, 6), "none");
    world.leave(1);
    assert_eq!(world.hub.budget().held(ONE), 0);
    world.leave(2);
    assert_eq!(world.hub.budget().all(), 0);
}

#[test]
fn files_that_wait_behind_an_execution_count() {
    let mut world = two(Settings {
        max_waiting_each: ONE_CALL as u64,
        ..Settings::default()
    });
    world.create(1, 0, "a");
    world.run_in(1, 1, "a");
    for id in 2..=6 {
        let content = "x".repeat(15 * MIB);
        let params = json!({"context": "a", "path": "f", "content": content});
        world.call(1, id, "file.write", params);
    }
    assert_eq!((world.code(1, 4), world.code(1, 5)), ("none", "busy"));
    world.finish_all();
    assert_eq!((world.code(1, 4), world.hub.budget().all()), ("ok", 0));
}

#[test]
fn a_line_without_room_is_answered_by_its_id() {
    let mut world = two(Settings::default());
    let failure = crate::protocol::Failure::new(crate::protocol::Code::Busy, "full");
    let beginning = br#"{"id":7,"method":"run","params":{"request":{"code":"xxx"#;
    world.hub.no_room(1, beginning, failure);
    world.act();
    assert_eq!(world.code(1, 7), "busy");
}

/// Names of a request's list or table with too many entries, and the parameters that have it.
#[test]
fn entries_are_counted_while_they_are_read() {
    let mut world = two(Settings::default());
    world.create(1, 0, "a");
    let table =
        |count: usize| -> Value { (0..count).map(|n| (n.to_string(), json!(""))).collect() };
    let calls = [
        (
            "run",
            json!({"request": {"env": table(5000)}}),
            "env: has more than 4096",
        ),
        (
            "run",
            json!({"request": {"args": vec![""; 70_000]}}),
            "args: has more than 65536",
        ),
        (
            "run",
            json!({"request": {"argv": vec![""; 70_000]}}),
            "argv: has more than 65536",
        ),
        (
            "run",
            json!({"request": {"network": {"allow": vec!["a"; 501]}}}),
            "allow: has more than 500",
        ),
        (
            "context.run",
            json!({"context": "a", "code": "", "args": vec![""; 70_000]}),
            "args: has more than 65536",
        ),
        (
            "process.start",
            json!({"context": "a", "argv": vec![""; 70_000]}),
            "argv: has more than 65536",
        ),
        (
            "process.start",
            json!({"context": "a", "command": "", "env": table(5000)}),
            "env: has more than 4096",
        ),
        (
            "context.create",
            json!({"request": {"language": "python", "env": {"A": "x".repeat(3 * MIB)}}}),
            "env: has 3145729 bytes, but wants at most 2097152",
        ),
    ];
    for (id, (method, params, why)) in (1..).zip(calls) {
        world.call(1, id, method, params);
        let error = &world.answer(1, id).unwrap()["error"];
        assert_eq!(error["code"], "bad_params", "{method}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(why), "{method}: {message}");
    }
}

#[test]
fn a_party_leaves_cells_to_others() {
    let mut world = two(Settings {
        max_cells: 4,
        ..Settings::default()
    });
    for id in 0..4 {
        world.run(1, id);
    }
    assert_eq!((world.running.len(), world.code(1, 3)), (3, "none"));
    // The other one does not wait behind it.
    world.run(2, 0);
    world.run(2, 1);
    assert_eq!(world.running.len(), 4);
    // The next free cell is not one of those that are the first party's alone.
    let first = *world.running.keys().next().unwrap();
    world.finish(first, supervisor::State::Kept);
    assert_eq!(world.running.len(), 4);
    world.finish_all();
    assert_eq!((world.code(1, 3), world.code(2, 1)), ("ok", "ok"));
}

#[test]
fn a_party_leaves_checkpoints_and_their_bytes_to_others() {
    for settings in [
        Settings {
            max_checkpoints: 4,
            ..Settings::default()
        },
        Settings {
            // Of 100 bytes each.
            checkpoint_bytes: 400,
            ..Settings::default()
        },
    ] {
        let mut world = two(settings);
        for client in [1, 2] {
            let request = json!({"language": "python"});
            let params = json!({"request": request, "context": "a", "branches": true});
            world.call(client, 0, "context.create", params);
        }
        for id in 1..=4 {
            world.call(1, id, "context.checkpoint", json!({"context": "a"}));
        }
        assert_eq!((world.code(1, 3), world.code(1, 4)), ("ok", "failed"));
        world.call(2, 1, "context.checkpoint", json!({"context": "a"}));
        assert_eq!(world.code(2, 1), "ok");
    }
}

#[test]
fn a_party_sees_only_its_own_use_of_the_server() {
    let mut world = two(Settings {
        max_cells: 8,
        max_checkpoints: 8,
        ..Settings::default()
    });
    world.create(1, 0, "a");
    world.run_in(1, 1, "a");
    for id in 2..12 {
        world.run(1, id);
    }
    // A party whose clients belong to the server's user.
    world.connect(3);
    let mut seen = |client: u64| {
        world.call(client, 100, "status", json!({}));
        world.call(client, 101, "metrics", json!({}));
        let status = world.answer(client, 100).unwrap()["result"].clone();
        let text = world.answer(client, 101).unwrap()["result"]["text"].clone();
        (status, text.as_str().unwrap().to_owned())
    };
    let (other, text) = seen(2);
    for field in ["contexts", "suspended"] {
        assert_eq!(other[field], 0, "{field}");
    }
    for field in [
        "cells",
        "memory",
        "queue",
        "checkpoints",
        "checkpoint_bytes",
    ] {
        assert_eq!(other[field]["used"], 0, "{field}");
    }
    assert_eq!(
        (&other["clients"], &other["cells"]["limit"]),
        (&json!(1), &json!(6))
    );
    assert!(
        !text.contains("context.create") && text.contains("cellblock_cells 0\n"),
        "{text}"
    );
    for client in [1, 3] {
        let (status, text) = seen(client);
        assert_eq!(
            (&status["contexts"], &status["cells"]["used"]),
            (&json!(1), &json!(6))
        );
        assert_eq!(status["queue"]["used"], 5);
        assert!(text.contains("method=\"context.create\"") && text.contains("cellblock_cells 6\n"));
    }
    assert_eq!(seen(3).0["clients"], 3);
}

#[test]
fn a_party_that_waits_for_memory_keeps_none_from_its_own() {
    // 25 MiB are for each party alone, and 50 for both.
    let mut world = two(Settings {
        max_memory: Some(100 << 20),
        ..Settings::default()
    });
    let run = |world: &mut World, client: u64, id: u64, memory: &str| {
        let request = json!({"language": "python", "code": "1", "limits": {"memory": memory}});
        world.call(client, id, "run", json!({"request": request}));
    };
    run(&mut world, 1, 0, "70M");
    run(&mut world, 1, 1, "70M");
    run(&mut world, 2, 0, "20M");
    assert_eq!(world.running.len(), 2);
    // This would take of what the other one waits for.
    run(&mut world, 2, 1, "20M");
    assert_eq!(world.running.len(), 2);
    world.finish_all();
    for (client, id) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        assert_eq!(world.code(client, id), "ok", "{client} {id}");
    }
    run(&mut world, 1, 2, "80M");
    assert_eq!(world.code(1, 2), "bad_params");
}
