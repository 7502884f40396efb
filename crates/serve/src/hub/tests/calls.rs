//! The queue of calls, and the life of a server.

use super::*;

#[test]
fn a_run_is_answered_with_its_record_and_its_cell_ends() {
    let mut world = World::with(2, 8);
    world.connect(1);
    world.run(1, 7);
    assert_eq!(world.code(1, 7), "none");
    world.finish_all();
    let result = &world.answer(1, 7).unwrap()["result"];
    assert_eq!(*result, json!({"start": "cold", "record": {"number": 1}}));
    assert!(world.alive.is_empty());
}

#[test]
fn an_id_has_one_unanswered_call() {
    let mut world = World::with(2, 8);
    world.connect(1);
    world.run(1, 7);
    world.run(1, 7);
    assert_eq!(world.code(1, 7), "duplicate_id");
    world.said.clear();
    world.finish_all();
    assert_eq!(world.code(1, 7), "ok");
    world.run(1, 7);
    world.finish_all();
    assert_eq!(world.said[&1].len(), 2);
}

#[test]
fn clients_take_turns() {
    let mut world = World::with(1, 100);
    world.connect(1);
    world.connect(2);
    for id in 0..6 {
        world.run(1, id);
    }
    world.run(2, 0);
    world.run(2, 1);
    let mut order = Vec::new();
    while let Some(link) = world.running.keys().next().copied() {
        let before: Vec<usize> = [1, 2]
            .map(|client| world.said.get(&client).map_or(0, Vec::len))
            .into();
        world.finish(link, State::Kept);
        let after: Vec<usize> = [1, 2]
            .map(|client| world.said.get(&client).map_or(0, Vec::len))
            .into();
        order.push(if after[0] > before[0] { 1 } else { 2 });
    }
    assert_eq!(order, [1, 1, 2, 1, 2, 1, 1, 1]);
}

#[test]
fn a_full_queue_is_busy_and_the_flood_pays() {
    let mut world = World::with(1, 3);
    world.connect(1);
    world.connect(2);
    for id in 0..5 {
        world.run(1, id);
    }
    // One runs, three wait.
    assert_eq!(world.code(1, 4), "busy");
    assert!(world.answer(1, 4).unwrap()["error"]["retry_after_ms"].as_u64() >= Some(50));
    world.run(2, 0);
    assert_eq!((world.code(2, 0), world.code(1, 3)), ("none", "busy"));
    world.finish_all();
    for (client, id) in [(1, 0), (1, 1), (1, 2), (2, 0)] {
        assert_eq!(world.code(client, id), "ok", "{client} {id}");
    }
}

#[test]
fn memory_is_a_limit_and_big_cells_are_not_overtaken() {
    let mut world = World::new(Settings {
        max_memory: Some(100 << 20),
        cell_memory: Some(80 << 20),
        ..Settings::default()
    });
    let run = |world: &mut World, id: u64, memory: &str| {
        let request = json!({"language": "python", "code": "1", "limits": {"memory": memory}});
        world.call(1, id, "run", json!({"request": request}));
    };
    world.connect(1);
    run(&mut world, 0, "60M");
    run(&mut world, 1, "60M");
    run(&mut world, 2, "10M");
    assert_eq!(world.running.len(), 1);
    world.finish_all();
    // A request cannot raise what the server's cells have.
    run(&mut world, 3, "1G");
    assert_eq!(world.running.len(), 1);
    let mut small = World::new(Settings {
        max_memory: Some(50 << 20),
        ..Settings::default()
    });
    small.connect(1);
    run(&mut small, 0, "60M");
    assert_eq!(small.code(1, 0), "bad_params");
}

#[test]
fn calls_do_not_wait_for_ever() {
    let mut world = World::with(1, 3);
    world.connect(1);
    world.run(1, 0);
    world.run(1, 1);
    world.pass(Duration::from_secs(61));
    assert_eq!((world.code(1, 0), world.code(1, 1)), ("none", "busy"));
}

#[test]
fn calls_are_cancelled_in_the_queue_and_running() {
    let mut world = World::with(1, 8);
    world.connect(1);
    world.run(1, 0);
    world.run(1, 1);
    world.call(1, 10, "cancel", json!({"call": 1}));
    assert_eq!(world.code(1, 1), "cancelled");
    world.call(1, 11, "cancel", json!({"call": 0}));
    assert_eq!(world.answer(1, 11).unwrap()["result"]["done"], true);
    // The record says that it was cancelled.
    assert_eq!(world.code(1, 0), "ok");
    world.call(1, 12, "cancel", json!({"call": 0}));
    assert_eq!(world.code(1, 12), "not_found");
    world.call(1, 13, "cancel", json!({"call": 13}));
    assert_eq!(world.answer(1, 13).unwrap()["result"]["done"], false);
    assert!(world.alive.is_empty());
}

#[test]
fn parties_have_shares_of_the_clients() {
    let mut world = World::new(Settings {
        max_clients: 8,
        parties: 2,
        ..Settings::default()
    });
    let (many, one) = (Party::Door(1), Party::Door(2));
    let mut client = 0;
    while world.hub.has_room_for_client(many) {
        client += 1;
        world.hub.connect(client, many, false);
    }
    assert_eq!(client, 6);
    assert!(world.hub.has_room_for_client(one));
    world.leave(1);
    assert!(world.hub.has_room_for_client(many));
}

#[test]
fn a_server_drains() {
    let mut world = World::with(2, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.create(1, 1, "idle");
    world.run_in(1, 2, "a");
    world.run(1, 3);
    world.call(1, 4, "shutdown", json!({}));
    assert_eq!(
        (world.code(1, 3), world.code(1, 2)),
        ("shutting_down", "none")
    );
    assert_eq!(world.alive.len(), 1);
    world.run(1, 5);
    assert_eq!(world.code(1, 5), "shutting_down");
    assert!(!world.is_over);
    world.finish_all();
    assert!(world.is_over && world.alive.is_empty());
    assert_eq!(world.code(1, 2), "ok");
}

#[test]
fn draining_has_a_deadline() {
    let mut world = World::with(2, 8);
    world.connect(1);
    world.run(1, 0);
    world.hub.drain(Duration::from_secs(5));
    world.act();
    world.pass(Duration::from_secs(4));
    assert!(!world.is_over);
    world.pass(Duration::from_secs(2));
    assert!(world.is_over);
    assert_eq!(world.code(1, 0), "shutting_down");
}

#[test]
fn a_client_that_closes_its_side_still_gets_its_answers() {
    let mut world = World::with(2, 8);
    world.connect(1);
    world.run(1, 0);
    world.hub.input_over(1);
    world.act();
    assert!(world.hung_up.is_empty());
    world.finish_all();
    assert_eq!((world.code(1, 0), world.hung_up.len()), ("ok", 1));
}

#[test]
fn a_server_without_use_ends_if_it_was_told_to() {
    let mut world = World::new(Settings {
        idle_exit: Some(Duration::from_secs(3)),
        ..Settings::default()
    });
    world.connect(1);
    world.pass(Duration::from_secs(10));
    world.leave(1);
    world.pass(Duration::from_secs(2));
    assert!(!world.is_over);
    world.pass(Duration::from_secs(2));
    assert!(world.is_over);
}

#[test]
fn parties_have_names_and_turns_of_their_own() {
    let mut world = World::with(1, 4);
    for client in 1..=4 {
        world.hub.connect(client, super::Party::Door(1), false);
    }
    world.hub.connect(9, super::Party::Door(2), false);
    world.create(1, 1, "same");
    // One party has many clients, like HTTP requests, and the other has one.
    world.run(2, 1);
    world.run(3, 1);
    world.run(4, 1);
    world.create(9, 1, "same");
    world.run(9, 2);
    // The party with the most waiting calls loses one, although each of its clients has fewer.
    assert_eq!((world.code(4, 1), world.code(9, 2)), ("busy", "none"));
    world.call(1, 2, "context.delete", json!({"context": "same"}));
    assert_eq!((world.code(2, 1), world.code(9, 1)), ("none", "none"));
    world.finish_all();
    assert_eq!((world.code(2, 1), world.code(9, 1)), ("ok", "ok"));
    assert_eq!(world.code(3, 1), "none");
    world.call(
        1,
        3,
        "context.label",
        json!({"context": "same", "label": "x"}),
    );
    assert_eq!(world.code(1, 3), "not_found");
    world.call(9, 3, "context.delete", json!({"context": "same"}));
    assert_eq!(world.code(9, 3), "ok");
}
