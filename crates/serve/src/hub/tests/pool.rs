//! Pools and templates.

use super::*;
use supervisor::TemplateInUse;

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
    let text = world.hub.metrics_text(None);
    assert!(
        text.contains("cellblock_warm_memory_bytes 1000\n"),
        "{text}"
    );
    assert!(text.contains("cellblock_templates 1\n"), "{text}");
}
