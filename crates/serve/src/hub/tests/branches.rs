use super::*;

fn forkable(world: &mut World, client: ClientId, id: u64, name: &str) {
    let request = json!({"language": "python", "files": [{"path": "f", "text": "x"}]});
    let params = json!({"request": request, "context": name, "branches": true});
    world.call(client, id, "context.create", params);
    assert_eq!(world.code(client, id), "ok");
}

fn branches(world: &World, client: ClientId, id: u64) -> Vec<Value> {
    let answer = world.answer(client, id).unwrap();
    answer["result"]["branches"].as_array().unwrap().clone()
}

#[test]
fn a_fork_answers_when_all_its_branches_have_begun() {
    let mut world = World::with(8, 8);
    world.connect(1);
    forkable(&mut world, 1, 0, "a");
    world.call(1, 1, "context.fork", json!({"context": "a", "n": 3}));
    let branches = branches(&world, 1, 1);
    assert_eq!(branches.len(), 3);
    for (id, branch) in (2..).zip(&branches) {
        assert_eq!(branch["state"], "restored", "{branch}");
        assert_eq!(branch["why"], "test", "as its supervisor says");
        world.run_in(1, id, branch["context"].as_str().unwrap());
        // It can be forked itself.
        assert_eq!(world.code(1, id), "none");
    }
    assert_eq!(world.running.len(), 3);
    assert!(world.stored.is_empty());
    world.leave(1);
    assert!(world.alive.is_empty());
}

#[test]
fn only_contexts_that_were_created_for_it_are_forked() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.call(1, 1, "context.fork", json!({"context": "a", "n": 1}));
    let error = &world.answer(1, 1).unwrap()["error"];
    assert_eq!(error["code"], "failed");
    assert!(
        error["hint"].as_str().unwrap().contains("branches"),
        "{error}"
    );
    forkable(&mut world, 1, 2, "b");
    for (id, n) in [(3, 0), (4, 33)] {
        world.call(1, id, "context.fork", json!({"context": "b", "n": n}));
        assert_eq!(world.code(1, id), "bad_params");
    }
    let params = json!({"request": {"language": "bash"}, "branches": true});
    world.call(1, 5, "context.create", params);
    assert_eq!(world.code(1, 5), "bad_params");
}

#[test]
fn a_branch_without_a_cell_has_its_own_error() {
    let mut world = World::with(3, 8);
    world.connect(1);
    forkable(&mut world, 1, 0, "a");
    world.call(1, 1, "context.fork", json!({"context": "a", "n": 3}));
    assert_eq!(world.code(1, 1), "none");
    assert_eq!(world.stored.len(), 1);
    world.pass(Duration::from_secs(61));
    let branches = branches(&world, 1, 1);
    let codes = branches
        .iter()
        .map(|branch| branch["error"]["code"].as_str());
    assert_eq!(codes.collect::<Vec<_>>(), [None, None, Some("busy")]);
    assert!(world.stored.is_empty());
}

#[test]
fn what_the_engine_refuses_harms_nothing() {
    let mut world = World::with(8, 8);
    world.connect(1);
    forkable(&mut world, 1, 0, "a");
    world.refused.insert("checkpoint");
    world.call(1, 1, "context.fork", json!({"context": "a", "n": 2}));
    world.call(1, 2, "context.checkpoint", json!({"context": "a"}));
    for id in [1, 2] {
        let error = &world.answer(1, id).unwrap()["error"];
        assert_eq!(
            (&error["code"], &error["hint"]),
            (&json!("failed"), &json!("end them"))
        );
    }
    world.refused.clear();
    // A branch that cannot begin ends; the others, and the context, do not notice.
    world.refused.insert("restore");
    world.call(1, 3, "context.fork", json!({"context": "a", "n": 2}));
    for branch in branches(&world, 1, 3) {
        let error = &branch["error"];
        assert_eq!(
            (&error["hint"], &error["state"]),
            (&json!("end them"), &json!("lost")),
            "{branch}"
        );
    }
    assert_eq!((world.alive.len(), world.stored.len()), (1, 0));
    world.run_in(1, 4, "a");
    world.finish_all();
    assert_eq!(world.code(1, 4), "ok");
    // A rewind that fails says what the context has now.
    world.call(1, 5, "context.checkpoint", json!({"context": "a"}));
    world.call(1, 6, "context.rewind", json!({"context": "a"}));
    assert_eq!(world.answer(1, 6).unwrap()["error"]["state"], "kept");
}

#[test]
fn checkpoints_go_with_their_context() {
    let mut world = World::with(8, 8);
    world.connect(1);
    world.create(1, 0, "a");
    world.create(1, 1, "b");
    world.call(1, 2, "context.rewind", json!({"context": "a"}));
    assert_eq!(world.code(1, 2), "not_found");
    world.call(1, 3, "context.checkpoint", json!({"context": "a"}));
    world.call(1, 4, "context.checkpoint", json!({"context": "a"}));
    let number = |world: &World, id| world.answer(1, id).unwrap()["result"]["checkpoint"].clone();
    let (first, second) = (number(&world, 3), number(&world, 4));
    world.call(1, 5, "context.rewind", json!({"context": "a"}));
    assert_eq!(number(&world, 5), second);
    let params = json!({"context": "a", "checkpoint": first});
    world.call(1, 6, "context.rewind", params.clone());
    assert_eq!(number(&world, 6), first);
    assert_eq!(world.answer(1, 6).unwrap()["result"]["state"], "restored");
    world.call(1, 7, "context.diff", json!({"context": "a", "with": first}));
    assert_eq!(world.code(1, 7), "ok");
    // Those of one context are nothing to another.
    let other = json!({"context": "b", "checkpoint": first});
    world.call(1, 8, "context.rewind", other);
    assert_eq!(world.code(1, 8), "not_found");
    world.call(1, 9, "context.forget", params.clone());
    assert_eq!((world.code(1, 9), world.stored.len()), ("ok", 1));
    world.call(1, 10, "context.rewind", params);
    assert_eq!(world.code(1, 10), "not_found");
    world.call(1, 11, "context.delete", json!({"context": "a"}));
    assert!(world.stored.is_empty());
}

#[test]
fn checkpoints_are_limited_by_number_and_by_bytes() {
    for settings in [
        Settings {
            max_checkpoints: 2,
            ..Settings::default()
        },
        Settings {
            checkpoint_bytes: 250,
            ..Settings::default()
        },
    ] {
        let mut world = World::new(settings);
        world.connect(1);
        forkable(&mut world, 1, 0, "a");
        for id in 1..4 {
            world.call(1, id, "context.checkpoint", json!({"context": "a"}));
        }
        assert_eq!((world.code(1, 2), world.code(1, 3)), ("ok", "failed"));
        world.call(1, 4, "context.fork", json!({"context": "a", "n": 1}));
        assert_eq!((world.code(1, 4), world.stored.len()), ("failed", 2));
        let number = &world.answer(1, 1).unwrap()["result"]["checkpoint"];
        let params = json!({"context": "a", "checkpoint": number});
        world.call(1, 5, "context.forget", params);
        world.call(1, 6, "context.fork", json!({"context": "a", "n": 1}));
        assert_eq!((world.code(1, 6), world.stored.len()), ("ok", 1));
    }
}

#[test]
fn a_client_that_goes_leaves_no_branch_and_no_checkpoint() {
    let mut world = World::with(3, 8);
    world.connect(1);
    forkable(&mut world, 1, 0, "a");
    world.call(1, 1, "context.checkpoint", json!({"context": "a"}));
    world.call(1, 2, "context.fork", json!({"context": "a", "n": 5}));
    assert_eq!((world.alive.len(), world.stored.len()), (3, 2));
    world.leave(1);
    assert!(world.alive.is_empty() && world.stored.is_empty());
}

#[test]
fn contexts_of_a_template_are_forked_from_the_same_one() {
    let mut world = World::with_pool(1, true, Settings::default());
    world.connect(1);
    world.create(1, 0, "a");
    let created = &world.answer(1, 0).unwrap()["result"];
    assert_eq!(created["start"], "forked", "{created}");
    // From here on, cells that wait are those of another template.
    world.template = 2;
    let waiting: Vec<_> = world.alive.iter().copied().skip(1).collect();
    waiting.into_iter().for_each(|link| world.kill(link));
    world.pass(Duration::from_secs(60));
    assert!(world.hub.uses_template(1) && world.hub.uses_template(2));
    for (id, n) in [(1, 2), (2, 1)] {
        world.call(1, id, "context.fork", json!({"context": "a", "n": n}));
    }
    // That of the pool is not one of them, and serves another context.
    world.create(1, 3, "b");
    world.call(1, 4, "context.fork", json!({"context": "b", "n": 1}));
    let of = |world: &World, name: &str| world.templates[&world.link(name)];
    let mut names = vec!["a".to_owned()];
    for id in [1, 2] {
        let forked = branches(&world, 1, id);
        names.extend(
            forked
                .iter()
                .map(|branch| branch["context"].as_str().unwrap().to_owned()),
        );
    }
    assert_eq!(names.len(), 4);
    assert!(names.iter().all(|name| of(&world, name) == 1));
    let other = branches(&world, 1, 4)[0]["context"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!((of(&world, "b"), of(&world, &other)), (2, 2));
    // A template is needed as long as a context has its layout.
    for (id, name) in (10..).zip(&names) {
        assert!(world.hub.uses_template(1));
        world.call(1, id, "context.delete", json!({"context": name}));
    }
    assert!(!world.hub.uses_template(1));
    assert!(world.stored.is_empty());
}
