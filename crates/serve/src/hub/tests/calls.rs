use super::*;
use cell::server::TemplateInUse;

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
fn a_late_cancel_does_not_reach_the_next_execution() {
    let mut world = World::with(1, 8);
    world.connect(1);
    world.create(1, 0, "a");
    for id in 1..=3 {
        world.run_in(1, id, "a");
    }
    let link = *world.running.keys().next().unwrap();
    let cancel = |world: &mut World, id: u64, call: u64| {
        world.call(1, id, "cancel", json!({"call": call, "grace": "1s"}));
    };
    world.finish(link, State::Kept);
    cancel(&mut world, 10, 1);
    assert_eq!(world.code(1, 10), "not_found");
    // An interrupt that does not name an execution would end this one.
    assert_eq!(world.running[&link], 2);
    cancel(&mut world, 11, 2);
    assert_eq!(world.answer(1, 2).unwrap()["result"]["state"], "kept");
    assert_eq!(world.running[&link], 3);
    world.call(1, 12, "cancel", json!({"call": 3, "grace": "61s"}));
    assert_eq!(world.code(1, 12), "bad_params");
    world.call(1, 13, "cancel", json!({"call": 3}));
    assert_eq!(world.answer(1, 3).unwrap()["result"]["state"], "lost");
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
fn executions_of_a_context_are_ordered_and_those_of_two_are_not() {
    let mut world = World::with(4, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.create(1, 1, "b");
    for id in 2..5 {
        world.run_in(1, id, "a");
    }
    world.run_in(1, 5, "b");
    assert_eq!(world.running.len(), 2);
    let links: Vec<_> = world.running.keys().copied().collect();
    world.finish(links[0], State::Kept);
    assert_eq!((world.code(1, 2), world.code(1, 3)), ("ok", "none"));
    world.finish(links[1], State::Lost);
    let result = &world.answer(1, 5).unwrap()["result"];
    assert_eq!(
        (&result["state"], &result["why"]),
        (&json!("lost"), &json!("test"))
    );
    world.finish_all();
    let numbers = [2, 3, 4].map(|id| world.answer(1, id).unwrap()["result"]["execution"].clone());
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn interrupt_and_cancel_reach_what_goes_on() {
    let mut world = World::with(4, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.call(1, 1, "context.interrupt", json!({"context": "a"}));
    assert_eq!(world.answer(1, 1).unwrap()["result"]["interrupted"], false);
    world.run_in(1, 2, "a");
    world.run_in(1, 3, "a");
    world.call(
        1,
        4,
        "context.interrupt",
        json!({"context": "a", "execution": 9}),
    );
    assert_eq!(world.answer(1, 4).unwrap()["result"]["interrupted"], false);
    world.call(1, 5, "context.interrupt", json!({"context": "a"}));
    assert_eq!(world.answer(1, 2).unwrap()["result"]["state"], "kept");
    world.call(1, 6, "cancel", json!({"call": 3}));
    assert_eq!(world.answer(1, 3).unwrap()["result"]["state"], "lost");
    world.run_in(1, 7, "a");
    world.call(1, 8, "context.restart", json!({"context": "a"}));
    assert_eq!(world.answer(1, 7).unwrap()["result"]["state"], "lost");
    assert_eq!(world.answer(1, 8).unwrap()["result"]["state"], "lost");
}

#[test]
fn a_context_can_be_kept_later() {
    let mut world = World::with(4, 8);
    world.connect(1);
    world.create(1, 0, "kept");
    world.create(1, 1, "own");
    for (name, keep) in [("kept", true), ("kept", false), ("own", false)] {
        let params = json!({"context": name, "label": "x", "keep": keep});
        world.call(1, 2, "context.label", params);
        assert_eq!(world.code(1, 2), "ok");
    }
    world.leave(1);
    world.connect(2);
    world.call(2, 0, "context.list", json!({"label": "x"}));
    let listed = &world.answer(2, 0).unwrap()["result"]["contexts"];
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["context"]),
        (1, &json!("kept"))
    );
}

#[test]
fn a_client_that_vanishes_leaves_what_it_wants_to_keep() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.connect(2);
    world.create(1, 0, "a");
    let request = json!({"language": "python"});
    let params = json!({"request": request, "context": "kept", "keep": true, "label": "x"});
    world.call(1, 1, "context.create", params);
    world.run_in(1, 2, "a");
    world.run_in(1, 3, "kept");
    world.run(1, 4);
    assert_eq!(world.alive.len(), 3);
    world.leave(1);
    assert_eq!(world.alive.len(), 1);
    assert!(world.running.is_empty());
    world.call(2, 0, "context.list", json!({"label": "x"}));
    let contexts = &world.answer(2, 0).unwrap()["result"]["contexts"];
    assert_eq!(
        (contexts.as_array().unwrap().len(), &contexts[0]["context"]),
        (1, &json!("kept"))
    );
    world.run_in(2, 1, "kept");
    world.finish_all();
    assert_eq!(world.code(2, 1), "ok");
    world.run_in(2, 2, "a");
    assert_eq!(world.code(2, 2), "not_found");
}

#[test]
fn contexts_of_other_users_do_not_exist() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.hub.connect(2, Party::User(1001), false);
    world.create(1, 0, "a");
    world.run_in(2, 0, "a");
    assert_eq!(world.code(2, 0), "not_found");
    world.call(2, 1, "shutdown", json!({}));
    assert_eq!(world.code(2, 1), "not_allowed");
}

#[test]
fn idle_contexts_end_and_their_client_is_told() {
    let mut world = World::with(8, 8);
    world.connect(1);
    let request = json!({"language": "python"});
    let params = json!({"request": request, "context": "a", "idle": "30s"});
    world.call(1, 0, "context.create", params);
    world.pass(Duration::from_secs(20));
    world.run_in(1, 1, "a");
    world.pass(Duration::from_secs(60));
    world.finish_all();
    world.pass(Duration::from_secs(20));
    assert_eq!(world.alive.len(), 1);
    world.pass(Duration::from_secs(11));
    assert!(world.alive.is_empty());
    let news = world.said[&1].last().unwrap();
    assert_eq!(
        (&news["id"], &news["event"]["event"]),
        (&Value::Null, &json!("context_ended"))
    );
    let params = json!({"request": {"language": "python"}, "idle": "2h"});
    world.call(1, 2, "context.create", params);
    assert_eq!(world.code(1, 2), "bad_params");
}

#[test]
fn a_killed_supervisor_is_reported_to_all_who_wait() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.run_in(1, 1, "a");
    world.run_in(1, 2, "a");
    let link = *world.alive.first().unwrap();
    world.kill(link);
    for id in [1, 2] {
        let error = &world.answer(1, id).unwrap()["error"];
        assert_eq!(
            (&error["code"], &error["state"]),
            (&json!("lost"), &json!("lost"))
        );
    }
    world.run_in(1, 3, "a");
    assert_eq!(world.code(1, 3), "not_found");
}

#[test]
fn deleting_is_answered_when_all_is_gone() {
    let mut world = World::with(8, 8);
    world.ends = false;
    world.connect(1);
    world.create(1, 0, "a");
    world.run_in(1, 1, "a");
    world.call(1, 2, "context.delete", json!({"context": "a"}));
    assert_eq!((world.code(1, 1), world.code(1, 2)), ("lost", "none"));
    let link = *world.alive.first().unwrap();
    world.kill(link);
    assert_eq!(world.code(1, 2), "ok");
    // A supervisor that does not end is forgotten.
    world.create(1, 3, "a");
    world.call(1, 4, "context.delete", json!({"context": "a"}));
    world.pass(Duration::from_secs(16));
    assert_eq!((world.code(1, 4), world.alive.len()), ("ok", 0));
}

#[test]
fn a_pool_serves_what_matches_and_is_refilled() {
    let mut world = World::with_pool(2, false, Settings::default());
    world.pass(Duration::ZERO);
    world.connect(1);
    assert_eq!(world.alive.len(), 2);
    let run = |world: &mut World, id: u64, request: Value| {
        world.call(1, id, "run", json!({"request": request}));
        world.finish_all();
        world.pass(Duration::ZERO);
        world.answer(1, id).unwrap()["result"]["start"].clone()
    };
    let files = json!([{"path": "f", "text": "x"}]);
    let request = json!({"language": "py", "code": "1", "args": ["a"], "files": files, "limits": {"wall": "1s"}});
    assert_eq!(run(&mut world, 0, request), "ready");
    assert!(world.ordered.iter().any(|(_, name)| *name == "file"));
    assert_eq!(world.alive.len(), 2);
    for (id, request) in [
        (
            1,
            json!({"language": "python", "code": "1", "env": {"A": "b"}}),
        ),
        (
            2,
            json!({"language": "python", "code": "1", "limits": {"memory": "64M"}}),
        ),
        (3, json!({"language": "python", "code": "1", "stdin": "x"})),
        (4, json!({"language": "bash", "code": "1"})),
        (5, json!({"argv": ["true"]})),
    ] {
        assert_eq!(run(&mut world, id, request), "cold", "{id}");
    }
    world.create(1, 6, "a");
    assert_eq!(world.answer(1, 6).unwrap()["result"]["start"], "ready");
    world.pass(Duration::ZERO);
    world.call(1, 7, "status", json!({}));
    let pool = &world.answer(1, 7).unwrap()["result"]["pools"][0];
    assert_eq!(
        (&pool["hits"], &pool["misses"], &pool["ready"]),
        (&json!(2), &json!(0), &json!(2))
    );
    world.call(1, 8, "metrics", json!({}));
    let text = world.answer(1, 8).unwrap()["result"]["text"]
        .as_str()
        .unwrap();
    assert!(
        text.contains("cellblock_pool_hits_total{pool=\"python\"} 2\n"),
        "{text}"
    );
    assert!(
        text.contains("cellblock_calls_total{method=\"run\",outcome=\"ok\"} 6\n"),
        "{text}"
    );
}

#[test]
fn a_cell_that_waits_and_ends_is_replaced_after_a_while() {
    let mut world = World::with_pool(1, false, Settings::default());
    let link = *world.alive.first().unwrap();
    world.kill(link);
    assert!(world.alive.is_empty());
    world.pass(Duration::from_millis(1001));
    assert_eq!(world.alive.len(), 1);
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
fn a_watch_of_a_context_that_another_client_deletes_ends_with_news() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.connect(2);
    let request = json!({"language": "python"});
    let params = json!({"request": request, "context": "a", "keep": true});
    world.call(1, 0, "context.create", params);
    for client in [1, 2] {
        world.call(client, 1, "file.watch", json!({"context": "a"}));
    }
    world.call(1, 2, "context.delete", json!({"context": "a"}));
    let ended = |world: &World, client| {
        let lines = world.said[&client].iter();
        let events = lines.filter(|line| line["event"]["event"] == "watch_ended");
        events.map(|line| line["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(world.code(1, 2), "ok");
    assert_eq!(ended(&world, 2), [1]);
    assert!(ended(&world, 1).is_empty());
}

#[test]
fn templates_count_for_what_waits() {
    let mut world = World::with_pool(
        4,
        true,
        Settings {
            cell_memory: Some(100),
            warm_memory: Some(450),
            ..Settings::default()
        },
    );
    let template = |generation, memory| TemplateInUse {
        generation,
        since: world.now,
        copies: 3,
        memory,
    };
    let (first, second) = (template(1, 150), template(2, 150));
    world.connect(1);
    let look = |world: &mut World, id| {
        world.pass(Duration::from_secs(60));
        world.call(1, id, "status", json!({}));
        let status = &world.answer(1, id).unwrap()["result"];
        let generations = status["templates"].as_array().unwrap();
        (
            status["pools"][0]["ready"].as_u64().unwrap(),
            status["warm_memory"]["used"].as_u64().unwrap(),
            generations.len(),
        )
    };
    assert_eq!(look(&mut world, 1), (4, 400, 0));
    // Cells that wait end where a template takes their memory, and there is never more.
    world.hub.set_templates(vec![first]);
    assert_eq!(look(&mut world, 2), (3, 450, 1));
    world.hub.set_templates(vec![first, second]);
    assert_eq!(look(&mut world, 3), (1, 400, 2));
    world.hub.set_templates(vec![second]);
    assert_eq!(look(&mut world, 4), (3, 450, 1));
    let status = &world.answer(1, 4).unwrap()["result"];
    assert_eq!(status["templates"][0]["generation"], 2);
    assert_eq!(status["templates"][0]["memory"], 150);
    assert_eq!(status["warm_memory"]["limit"], 450);
    // A template that takes all of it leaves no cell, and calls are still served.
    world.hub.set_templates(vec![TemplateInUse {
        memory: 1000,
        ..second
    }]);
    assert_eq!(look(&mut world, 5), (0, 1000, 1));
    world.create(1, 6, "a");
    let created = &world.answer(1, 6).unwrap()["result"];
    assert_eq!(created["start"], "forked", "{created}");
    assert_eq!(created["template"]["generation"], 1, "{created}");
    let text = world.hub.metrics_text();
    assert!(
        text.contains("cellblock_warm_memory_bytes 1000\n"),
        "{text}"
    );
    assert!(text.contains("cellblock_templates 1\n"), "{text}");
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

#[test]
fn a_context_whose_creation_was_not_answered_goes_with_its_client() {
    let mut world = World::with(4, 10);
    world.connect(1);
    world.connect(2);
    world.unanswered.insert("open");
    let create = |name| json!({"request": {"language": "python"}, "context": name, "keep": true});
    world.call(1, 1, "context.create", create("a"));
    assert_eq!((world.code(1, 1), world.alive.len()), ("none", 1));
    world.leave(1);
    assert!(world.alive.is_empty());
    world.unanswered.clear();
    world.call(2, 1, "context.create", create("a"));
    world.leave(2);
    assert_eq!(world.alive.len(), 1);
}
