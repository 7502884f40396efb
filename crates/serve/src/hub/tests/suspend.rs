use super::*;

fn suspendable(world: &mut World, client: ClientId, id: u64, name: &str, after: Value) {
    let request = json!({"language": "python"});
    let params = json!({
        "request": request, "context": name, "branches": true, "keep": true,
        "suspend_after": after,
    });
    world.call(client, id, "context.create", params);
    assert_eq!(world.code(client, id), "ok");
}

fn doing(world: &mut World, id: u64) -> Value {
    world.call(1, id, "context.list", json!({}));
    world.answer(1, id).unwrap()["result"]["contexts"][0]["doing"].clone()
}

#[test]
fn a_suspended_context_has_no_cell_and_goes_on_when_it_is_used() {
    let mut world = World::with(1, 8);
    world.connect(1);
    suspendable(&mut world, 1, 0, "a", json!(null));
    world.call(1, 1, "context.checkpoint", json!({"context": "a"}));
    for id in [2, 3] {
        world.call(1, id, "context.suspend", json!({"context": "a"}));
        let result = &world.answer(1, id).unwrap()["result"];
        assert_eq!(result["bytes"], 100, "{result}");
    }
    assert!(world.alive.is_empty());
    assert_eq!(world.stored.len(), 2);
    assert_eq!(doing(&mut world, 4), "suspended");
    world.call(1, 5, "status", json!({}));
    let status = &world.answer(1, 5).unwrap()["result"];
    assert_eq!(
        (&status["suspended"], &status["cells"]["used"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        (
            &status["checkpoints"]["used"],
            &status["checkpoint_bytes"]["used"]
        ),
        (&json!(1), &json!(200))
    );
    // Its cell is another's until that ends.
    world.run(1, 6);
    world.run_in(1, 7, "a");
    world.call(1, 8, "context.resume", json!({"context": "a"}));
    assert_eq!(doing(&mut world, 9), "starting");
    assert_eq!(
        (world.code(1, 7), world.running.len()),
        ("none", 1),
        "it waits"
    );
    world.finish_all();
    assert_eq!((world.code(1, 6), world.code(1, 7)), ("ok", "ok"));
    // The execution before it has reported the state.
    let resumed = &world.answer(1, 8).unwrap()["result"];
    assert_eq!(resumed["state"], "kept", "{resumed}");
    assert_eq!((world.alive.len(), world.stored.len()), (1, 1));
    // The checkpoint that was its own before is still there.
    world.call(1, 10, "context.rewind", json!({"context": "a"}));
    assert_eq!(world.code(1, 10), "ok");
    world.call(1, 11, "context.suspend", json!({"context": "a"}));
    world.call(1, 12, "context.delete", json!({"context": "a"}));
    assert_eq!(world.code(1, 12), "ok");
    assert!(world.stored.is_empty() && world.alive.is_empty());
}

#[test]
fn a_cell_that_ends_while_it_is_suspended_leaves_nothing() {
    let mut world = World::with(8, 8);
    world.connect(1);
    suspendable(&mut world, 1, 0, "a", json!(null));
    world.unanswered.insert("checkpoint");
    world.call(1, 1, "context.suspend", json!({"context": "a"}));
    assert_eq!(world.stored.len(), 1);
    let link = *world.alive.first().unwrap();
    world.kill(link);
    assert!(world.stored.is_empty(), "{:?}", world.stored);
}

#[test]
fn a_context_is_suspended_after_the_time_that_its_client_said() {
    let mut world = World::with(8, 8);
    world.connect(1);
    suspendable(&mut world, 1, 0, "a", json!("10s"));
    world.run_in(1, 1, "a");
    world.pass(Duration::from_secs(20));
    assert_eq!(doing(&mut world, 2), "busy");
    world.finish_all();
    world.pass(Duration::from_secs(9));
    assert_eq!(doing(&mut world, 3), "idle");
    world.pass(Duration::from_secs(2));
    assert_eq!(doing(&mut world, 4), "suspended");
    // Its idle limit counts on, and is exceeded.
    world.pass(Duration::from_secs(700));
    assert!(world.hub.contexts.is_empty() && world.stored.is_empty());
    // What cannot be carried stays, and is not tried for ever.
    suspendable(&mut world, 1, 5, "a", json!("10s"));
    world.refused.insert("checkpoint");
    world.run_in(1, 6, "a");
    world.finish_all();
    for _ in 0..5 {
        world.pass(Duration::from_secs(30));
    }
    let tried = world
        .ordered
        .iter()
        .filter(|(_, name)| *name == "checkpoint");
    assert_eq!(tried.count(), 2);
    assert_eq!(doing(&mut world, 7), "idle");
    world.pass(Duration::from_secs(500));
    assert!(world.hub.contexts.is_empty() && world.alive.is_empty());
}

#[test]
fn a_state_that_cannot_be_put_back_is_not_lost() {
    let mut world = World::with(8, 8);
    world.connect(1);
    suspendable(&mut world, 1, 0, "a", json!(null));
    world.call(1, 1, "context.suspend", json!({"context": "a"}));
    for (id, order) in [(2, "restore"), (4, "open")] {
        world.refused.insert(order);
        world.run_in(1, id, "a");
        let error = &world.answer(1, id).unwrap()["error"];
        assert_eq!(error["hint"], "end them", "{error}");
        assert_eq!(doing(&mut world, id + 1), "suspended");
        assert_eq!((world.alive.len(), world.stored.len()), (0, 1));
        world.refused.clear();
    }
    world.run_in(1, 6, "a");
    world.finish_all();
    assert_eq!(world.code(1, 6), "ok");
    assert!(world.stored.is_empty());
}

#[test]
fn a_client_that_goes_takes_no_other_clients_turn() {
    let mut world = World::with(1, 8);
    world.connect(1);
    world.connect(2);
    suspendable(&mut world, 1, 0, "a", json!(null));
    world.call(1, 1, "context.suspend", json!({"context": "a"}));
    world.run(2, 2);
    world.run_in(1, 3, "a");
    world.run_in(2, 4, "a");
    world.leave(1);
    world.finish_all();
    assert_eq!(world.code(2, 4), "ok");
    // Without anyone that waits for it, it stays as it is.
    world.call(2, 5, "context.suspend", json!({"context": "a"}));
    world.run(2, 6);
    world.run_in(2, 7, "a");
    world.call(2, 8, "cancel", json!({"call": 7}));
    assert_eq!(world.code(2, 7), "cancelled");
    world.finish_all();
    assert!(world.alive.is_empty());
    assert_eq!(world.stored.len(), 1);
}

#[test]
fn a_context_that_fits_no_other_cell_is_not_suspended() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.call(1, 1, "context.suspend", json!({"context": "a"}));
    let error = &world.answer(1, 1).unwrap()["error"];
    assert!(
        error["hint"].as_str().unwrap().contains("branches"),
        "{error}"
    );
    assert_eq!(world.alive.len(), 1);
}

#[test]
fn a_suspended_context_goes_on_in_a_cell_that_waits() {
    let mut world = World::with_pool(1, true, Settings::default());
    world.connect(1);
    world.create(1, 0, "a");
    let first = world.link("a");
    world.call(1, 1, "context.suspend", json!({"context": "a"}));
    assert_eq!(world.code(1, 1), "ok");
    world.pass(Duration::from_secs(60));
    let waiting = *world.alive.iter().next_back().unwrap();
    assert!(world.alive.len() == 1 && waiting != first);
    let opened = |world: &World| world.ordered.iter().filter(|one| one.1 == "open").count();
    let before = opened(&world);
    world.run_in(1, 2, "a");
    // Nothing was opened for it, and its call is where it went.
    assert_eq!(world.link("a"), waiting);
    assert!(world.running.contains_key(&waiting));
    world.call(1, 3, "cancel", json!({"call": 2}));
    assert_eq!(world.answer(1, 3).unwrap()["result"]["done"], true);
    assert!(world.stored.is_empty());
    // The pool is filled again, and no session of the cell that was taken is left.
    world.pass(Duration::from_secs(60));
    assert_eq!(opened(&world), before + 1);
    assert_eq!(world.alive.len(), 2);

    // A cell that cannot take the state leaves the context suspended.
    world.call(1, 4, "context.suspend", json!({"context": "a"}));
    assert_eq!(world.code(1, 4), "ok");
    world.pass(Duration::from_secs(60));
    world.refused.insert("restore");
    world.run_in(1, 5, "a");
    assert_eq!(world.code(1, 5), "failed");
    assert_eq!(world.answer(1, 5).unwrap()["error"]["state"], "kept");
    world.refused.remove("restore");
    world.pass(Duration::from_secs(60));
    assert_eq!((world.stored.len(), world.alive.len()), (1, 1));
    world.run_in(1, 6, "a");
    world.finish_all();
    assert_eq!(world.code(1, 6), "ok");

    // One of another template is not taken.
    world.call(1, 7, "context.suspend", json!({"context": "a"}));
    world.template = 2;
    let all: Vec<_> = world.alive.iter().copied().collect();
    all.into_iter().for_each(|link| world.kill(link));
    world.pass(Duration::from_secs(60));
    world.run_in(1, 8, "a");
    world.finish_all();
    assert_eq!(world.code(1, 8), "ok");
    let link = world.link("a");
    assert_eq!(world.templates[&link], 1);
    assert_eq!(world.alive.len(), 2);
    world.leave(1);
    assert_eq!(world.alive.len(), 1);
    assert!(world.stored.is_empty() && !world.hub.uses_template(1));
}
