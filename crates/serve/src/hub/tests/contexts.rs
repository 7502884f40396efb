//! Executions of contexts, and how contexts end.

use super::*;

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
    assert_eq!(world.answer(1, 5).unwrap()["result"]["interrupted"], true);
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
