use super::*;

fn create(world: &mut World, id: u64, name: &str, language: &str) {
    let files = json!([{"path": "f", "text": "1"}]);
    let request = json!({"language": language, "files": files});
    let params = json!({"request": request, "context": name, "replay": true});
    world.call(1, id, "context.create", params);
    assert_eq!(world.code(1, id), "ok", "{:?}", world.answer(1, id));
}

fn result(world: &World, id: u64) -> &Value {
    let answer = world.answer(1, id).unwrap();
    assert!(answer.get("result").is_some(), "{answer}");
    &answer["result"]
}

fn orders(world: &World) -> Vec<&'static str> {
    world.ordered.iter().map(|(_, name)| *name).collect()
}

#[test]
fn any_language_is_forked_and_suspended_by_replay() {
    let mut world = World::with(8, 8);
    world.connect(1);
    create(&mut world, 0, "a", "r");
    // Its files are part of what is executed again.
    assert_eq!(orders(&world), ["open", "remember", "file"]);
    world.run_in(1, 1, "a");
    world.finish_all();
    world.call(1, 2, "context.fork", json!({"context": "a", "n": 2}));
    for branch in result(&world, 2)["branches"].as_array().unwrap() {
        let state = (&branch["state"], &branch["why"]);
        assert_eq!(state, (&json!("restored"), &json!("test")), "{branch}");
    }
    assert_eq!(world.remembering.len(), 3);
    assert_eq!(
        orders(&world)[4..],
        [
            "checkpoint",
            "open",
            "open",
            "remember",
            "restore",
            "remember",
            "restore"
        ]
    );
    world.call(1, 3, "context.checkpoint", json!({"context": "a"}));
    world.call(1, 4, "context.rewind", json!({"context": "a"}));
    assert_eq!(result(&world, 4)["state"], "restored");
    world.call(1, 5, "context.suspend", json!({"context": "a"}));
    assert_eq!(world.alive.len(), 2);
    world.call(1, 6, "context.resume", json!({"context": "a"}));
    assert_eq!(result(&world, 6)["state"], "restored");
    world.run_in(1, 7, "a");
    world.finish_all();
    world.call(1, 8, "context.resume", json!({"context": "a"}));
    assert_eq!(result(&world, 8)["state"], "kept");
    world.leave(1);
    assert!(world.stored.is_empty() && world.alive.is_empty());
}

#[test]
fn a_replay_that_fails_is_lost() {
    let mut world = World::with(8, 8);
    world.connect(1);
    create(&mut world, 0, "a", "bash");
    world.call(1, 1, "context.checkpoint", json!({"context": "a"}));
    world.differs = true;
    world.call(1, 2, "context.rewind", json!({"context": "a"}));
    let lost = (&json!("lost"), &json!("test"));
    let back = result(&world, 2);
    assert_eq!((&back["state"], &back["why"]), lost);
    // A branch without its state is not kept.
    world.call(1, 3, "context.fork", json!({"context": "a", "n": 1}));
    let branch = &result(&world, 3)["branches"][0];
    assert_eq!(
        (&branch["error"]["state"], &branch["error"]["why"]),
        lost,
        "{branch}"
    );
    assert!(branch.get("context").is_none() && world.alive.len() == 1);
    // A suspended context goes on without its state; otherwise it never would.
    world.call(1, 4, "context.suspend", json!({"context": "a"}));
    world.call(1, 5, "context.resume", json!({"context": "a"}));
    let resumed = result(&world, 5);
    assert_eq!((&resumed["state"], &resumed["why"]), lost);
    world.run_in(1, 6, "a");
    world.finish_all();
    assert_eq!(world.code(1, 6), "ok");
    assert_eq!(world.stored.len(), 1);
    // The history may no longer be complete.
    world.refused.insert("resume");
    world.call(1, 7, "context.resume", json!({"context": "a"}));
    assert_eq!(world.code(1, 7), "failed");
}

#[test]
fn a_replay_takes_longer_than_other_orders_but_not_for_ever() {
    let mut world = World::with(8, 8);
    world.connect(1);
    create(&mut world, 0, "a", "python");
    world.call(1, 1, "context.checkpoint", json!({"context": "a"}));
    world.unanswered.insert("restore");
    world.call(1, 2, "context.rewind", json!({"context": "a"}));
    world.pass(Duration::from_secs(800));
    assert_eq!(world.code(1, 2), "none");
    world.pass(Duration::from_secs(200));
    assert_eq!(world.code(1, 2), "lost");
    assert!(world.stored.is_empty());
}

#[test]
fn replays_are_stopped() {
    let mut world = World::with(8, 8);
    for client in 1..=3 {
        world.connect(client);
    }
    create(&mut world, 0, "a", "python");
    world.call(1, 1, "context.checkpoint", json!({"context": "a"}));
    world.replays_endlessly = true;
    let rewind = |world: &mut World, client, id| {
        world.call(client, id, "context.rewind", json!({"context": "a"}));
        assert_eq!(world.code(client, id), "none");
    };
    // By an interrupt, by the cancellation of its call, by a restart, by the end of its client.
    rewind(&mut world, 1, 2);
    world.call(
        2,
        3,
        "context.interrupt",
        json!({"context": "a", "execution": 1}),
    );
    assert_eq!(world.answer(2, 3).unwrap()["result"]["interrupted"], false);
    world.call(2, 4, "context.interrupt", json!({"context": "a"}));
    assert_eq!(world.answer(2, 4).unwrap()["result"]["interrupted"], true);
    assert_eq!(result(&world, 2)["state"], "lost");
    rewind(&mut world, 1, 5);
    world.call(1, 6, "cancel", json!({"call": 5}));
    assert_eq!(result(&world, 5)["state"], "lost");
    rewind(&mut world, 1, 7);
    world.call(1, 8, "context.restart", json!({"context": "a"}));
    assert_eq!(result(&world, 7)["state"], "lost");
    assert_eq!(result(&world, 8)["state"], "lost");
    rewind(&mut world, 3, 9);
    world.leave(3);
    assert!(world.replaying.is_empty());
    // One that is over is not.
    world.replays_endlessly = false;
    world.call(1, 10, "context.rewind", json!({"context": "a"}));
    world.call(1, 11, "context.interrupt", json!({"context": "a"}));
    assert_eq!(result(&world, 11)["interrupted"], false);
    assert_eq!(result(&world, 10)["state"], "restored");
}

#[test]
fn a_context_whose_replay_is_stopped_stays_suspended() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.connect(2);
    create(&mut world, 0, "a", "python");
    let suspended = |world: &mut World, id| {
        world.call(1, id, "context.suspend", json!({"context": "a"}));
        assert_eq!((world.code(1, id), world.alive.len()), ("ok", 0));
    };
    suspended(&mut world, 1);
    world.replays_endlessly = true;
    world.run_in(1, 2, "a");
    world.call(2, 3, "context.interrupt", json!({"context": "a"}));
    let error = &world.answer(1, 2).unwrap()["error"];
    assert_eq!(
        (&error["code"], &error["state"]),
        (&json!("cancelled"), &json!("kept")),
        "{error}"
    );
    assert_eq!((world.alive.len(), world.stored.len()), (0, 1));
    // A replay goes on as long as any call waits for it.
    world.run_in(1, 4, "a");
    world.run_in(2, 5, "a");
    world.call(1, 6, "cancel", json!({"call": 4}));
    assert_eq!((world.code(1, 4), world.alive.len()), ("cancelled", 1));
    world.leave(2);
    assert_eq!((world.alive.len(), world.stored.len()), (0, 1));
    world.replays_endlessly = false;
    world.run_in(1, 7, "a");
    world.finish_all();
    assert_eq!(world.code(1, 7), "ok");
}

#[test]
fn waiting_interpreters_serve_replays() {
    let mut world = World::with_pool(1, false, Settings::default());
    world.connect(1);
    create(&mut world, 0, "a", "python");
    assert_eq!(result(&world, 0)["start"], "ready");
    world.pass(Duration::from_secs(60));
    let waiting = *world.alive.iter().next_back().unwrap();
    world.call(1, 1, "context.fork", json!({"context": "a", "n": 1}));
    let branch = result(&world, 1)["branches"][0]["context"]
        .as_str()
        .unwrap();
    assert_eq!(world.link(branch), waiting);
    world.pass(Duration::from_secs(60));
    let waiting = *world.alive.iter().next_back().unwrap();
    world.call(1, 2, "context.suspend", json!({"context": "a"}));
    world.run_in(1, 3, "a");
    assert_eq!(world.link("a"), waiting);
}

#[test]
fn memory_of_what_is_executed_counts() {
    let mut world = World::new(Settings {
        max_memory: Some(100 << 20),
        cell_memory: Some(64 << 20),
        ..Settings::default()
    });
    world.connect(1);
    create(&mut world, 0, "a", "python");
    world.call(1, 1, "status", json!({}));
    assert_eq!(result(&world, 1)["memory"]["used"], 96 << 20);
}

#[test]
fn replay_and_branches_exclude_each_other_and_one_names_the_other() {
    let mut world = World::with(8, 8);
    world.connect(1);
    let params = |language: &str, replay: bool| json!({"request": {"language": language}, "branches": true, "replay": replay});
    world.call(1, 0, "context.create", params("python", true));
    assert_eq!(world.code(1, 0), "bad_params");
    world.call(1, 1, "context.create", params("r", false));
    let hint = world.answer(1, 1).unwrap()["error"]["hint"].clone();
    assert!(hint.as_str().unwrap().contains("--replay"), "{hint}");
    world.create(1, 2, "a");
    for (id, method) in [(3, "context.fork"), (4, "context.suspend")] {
        let params = match method {
            "context.fork" => json!({"context": "a", "n": 1}),
            _ => json!({"context": "a"}),
        };
        world.call(1, id, method, params);
        let hint = world.answer(1, id).unwrap()["error"]["hint"].clone();
        assert!(hint.as_str().unwrap().contains("--replay"), "{hint}");
    }
}
