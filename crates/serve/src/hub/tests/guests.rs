//! Contexts in the cells of others.

use std::time::Duration;

use serde_json::json;
use supervisor::State;

use super::World;
use crate::Settings;

impl World {
    /// Creates a context in the cell of another one.
    fn join(&mut self, client: u64, id: u64, name: &str, cell_of: &str) {
        let params = json!({"request": {"language": "bash"}, "context": name, "cell_of": cell_of});
        self.call(client, id, "context.create", params);
    }

    fn message(&self, client: u64, id: u64) -> String {
        self.answer(client, id).unwrap()["error"]["message"].to_string()
    }
}

/// With a context `a` of client 1, and `b` in its cell.
fn world(settings: Settings) -> World {
    let mut world = World::new(Settings {
        max_cells: 1,
        ..settings
    });
    world.connect(1);
    world.create(1, 1, "a");
    world.join(1, 2, "b", "a");
    world
}

#[test]
fn a_guest_needs_no_cell_and_works_beside_the_first() {
    let mut world = world(Settings::default());
    assert_eq!(world.answer(1, 2).unwrap()["result"]["start"], "shared");
    assert_eq!(world.hub.used(None).0, 1);
    world.run_in(1, 3, "a");
    world.run_in(1, 4, "b");
    assert_eq!(world.running.len(), 2);
    // The cell of a guest is that of another session.
    world.join(1, 5, "c", "b");
    world.call(1, 6, "context.list", json!({}));
    let listed = &world.answer(1, 6).unwrap()["result"]["contexts"];
    let cells: Vec<_> = (0..3).map(|index| &listed[index]["cell_of"]).collect();
    assert_eq!(cells, [&json!(null), &json!("a"), &json!("a")]);
    world.call(1, 7, "context.delete", json!({"context": "b"}));
    world.join(1, 8, "b", "a");
    assert_eq!(world.code(1, 8), "ok");
}

#[test]
fn guests_end_with_their_cell() {
    for ends in ["delete", "restart", "lost", "gone"] {
        let mut world = world(Settings::default());
        let guest = world.link("b");
        match ends {
            "delete" => world.call(1, 3, "context.delete", json!({"context": "a"})),
            "restart" => world.call(1, 3, "context.restart", json!({"context": "a"})),
            "lost" => {
                world.run_in(1, 3, "a");
                world.finish(world.link("a"), State::Lost);
            }
            _ => world.kill(world.link("a")),
        }
        assert!(!world.alive.contains(&guest), "{ends}");
        let ended = world.said[&1].iter().any(|line| {
            line["event"]["event"] == "context_ended" && line["event"]["context"] == "b"
        });
        assert!(ended, "{ends}");
    }
}

#[test]
fn what_a_shared_cell_cannot_have_is_refused_by_name() {
    let mut world = world(Settings::default());
    for (id, method) in [
        (10, "context.fork"),
        (11, "context.checkpoint"),
        (12, "context.rewind"),
        (13, "context.suspend"),
    ] {
        for (more, name) in [(0, "a"), (10, "b")] {
            let mut params = json!({"context": name});
            if method == "context.fork" {
                params["n"] = json!(1);
            }
            world.call(1, id + more, method, params);
            let message = world.message(1, id + more);
            assert!(
                message.contains("several interpreters"),
                "{method} {message}"
            );
        }
    }
    for (id, request, options, part) in [
        (
            30,
            json!({"language": "bash", "limits": {"memory": "1M"}}),
            json!({}),
            "limits",
        ),
        (
            31,
            json!({"language": "bash", "files": [{"path": "a", "text": ""}]}),
            json!({}),
            "files",
        ),
        (32, json!({}), json!({}), "language"),
        (
            33,
            json!({"language": "bash"}),
            json!({"replay": true}),
            "replay",
        ),
        (
            34,
            json!({"language": "python"}),
            json!({"branches": true}),
            "branches",
        ),
        (
            35,
            json!({"language": "bash"}),
            json!({"cell_of": "none"}),
            "none",
        ),
    ] {
        let mut params = json!({"request": request, "cell_of": "a"});
        for (name, value) in options.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        world.call(1, id, "context.create", params);
        let message = world.message(1, id);
        assert!(message.contains(part), "{message}");
    }
    for id in 0..15 {
        world.join(1, 100 + id, &format!("g{id}"), "a");
        assert_eq!(world.code(1, 100 + id), "ok");
    }
    world.join(1, 200, "more", "a");
    assert!(world.message(1, 200).contains("16 other"));
    // Another party cannot join a cell that it cannot see.
    world.hub.connect(2, crate::Party::User(7), false);
    world.join(2, 1, "x", "a");
    assert_eq!(world.code(2, 1), "not_found");
}

#[test]
fn no_guest_joins_a_cell_whose_state_is_saved() {
    for (id, method) in [(10, "context.suspend"), (11, "context.checkpoint")] {
        let mut world = World::new(Settings::default());
        world.connect(1);
        let params = json!({"request": {"language": "python"}, "context": "a", "branches": true});
        world.call(1, 1, "context.create", params);
        world.run_in(1, 2, "a");
        world.call(1, id, method, json!({"context": "a"}));
        assert!(world.answer(1, id).is_none(), "{method} waits");
        world.join(1, 3, "b", "a");
        let message = world.message(1, 3);
        assert!(message.contains("saves or restores"), "{message}");
        world.finish(world.link("a"), State::Kept);
        assert_eq!(world.code(1, id), "ok", "{method}");
    }
}

#[test]
fn a_server_has_room_for_so_many_guests() {
    let mut world = world(Settings::default());
    world.hub.settings.max_cells = 5;
    for (id, cell_of) in [(10, "c"), (11, "d")] {
        world.create(1, id, cell_of);
    }
    let cells = ["a", "c"].into_iter().flat_map(|cell_of| [cell_of; 10]);
    for (id, cell_of) in cells.enumerate().skip(1) {
        world.join(1, 100 + id as u64, &format!("g{id}"), cell_of);
        assert_eq!(world.code(1, 100 + id as u64), "ok");
    }
    world.join(1, 200, "more", "d");
    assert_eq!(world.code(1, 200), "busy");
    world.call(1, 201, "context.delete", json!({"context": "g1"}));
    world.join(1, 202, "more", "d");
    assert_eq!(world.code(1, 202), "ok");
}

#[test]
fn a_cell_is_in_use_while_one_of_its_interpreters_is() {
    let idle = Duration::from_secs(10);
    let mut world = world(Settings {
        idle,
        ..Settings::default()
    });
    world.run_in(1, 3, "b");
    world.pass(idle * 2);
    assert!(world.hub.contexts.len() == 2);
    world.finish(world.link("b"), State::Kept);
    world.pass(idle / 2);
    assert!(world.hub.contexts.len() == 2);
    world.pass(idle);
    assert!(world.hub.contexts.is_empty());
}
