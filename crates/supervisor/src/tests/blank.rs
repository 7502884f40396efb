//! Blank cells, and what begins in them.

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::{Front, Tested, below, comparable, exists, spawner, text, until};
use crate::Spawner;
use sys::alone::alone;

/// A front end whose supervisor has a blank cell for requests like `plain`.
/// A cell that lasts has files for other interpreters, so the blank one is made to last, too.
fn with_blank(spawner: &Spawner, plain: Value, lasting: bool) -> Tested<Front> {
    let mut front = Front::new(spawner)?;
    let open = json!({"request": plain, "lasting": lasting, "ready": false, "blank": true});
    front.order(json!({ "open": open }))?;
    front.report("opened")?;
    Ok(front)
}

/// Has a program run, in the cell that there is or in a new one.
fn exec(front: &mut Front, request: Value) -> Tested<Value> {
    let open = json!({"request": request, "lasting": false, "ready": false});
    front.order(json!({ "open": open }))?;
    front.order(json!({"execute": {"execution": 1}}))?;
    front.report("opened")?;
    front.report("answer")
}

#[test]
fn any_program_of_the_plan_begins_in_a_blank_cell() {
    alone(|| {
        let spawner = spawner()?;
        let script = r#"cat; echo " $GREETING"; cat in; id -u; echo out > out"#;
        let request = json!({
            "argv": ["/bin/sh", "-c", script],
            "stdin": "input",
            "env": {"GREETING": "hello"},
            "files": [{"path": "in", "text": "file\n"}],
            "limits": {"wall": "20s"},
        });
        let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        let blank = exec(&mut front, request.clone())?;
        assert_eq!(blank["record"]["start"], "blank", "{blank}");
        assert_eq!(text(&blank, "stdout"), "input hello\nfile\n1000\n");
        let cold = exec(&mut Front::new(&spawner)?, request)?;
        assert_eq!(cold["record"]["start"], "cold");
        let [blank, cold] = [blank, cold].map(|mut answer| {
            answer["record"]["start"].take();
            comparable(answer["record"].take())
        });
        assert_eq!(blank, cold);
        Ok(())
    });
}

#[test]
fn code_and_contexts_begin_in_blank_cells() {
    alone(|| {
        let spawner = spawner()?;
        for lasting in [false, true] {
            let mut front = with_blank(&spawner, json!({"language": "python"}), lasting)?;
            let open = json!({"language": "python"});
            let open = json!({"request": open, "lasting": lasting, "ready": false});
            front.order(json!({ "open": open }))?;
            front.report("opened")?;
            let answer = front.run(1, "print(6 * 7)")?;
            assert_eq!(text(&answer, "stdout"), "42\n");
            assert_eq!(answer["record"]["start"], "blank", "{answer}");
            assert_eq!(answer["state"] == "kept", lasting);
        }
        Ok(())
    });
}

#[test]
fn a_request_of_another_plan_gets_a_cell_of_its_own() {
    alone(|| {
        let spawner = spawner()?;
        for request in [
            json!({"argv": ["/bin/echo", "x"], "limits": {"memory": "64M"}}),
            json!({"argv": ["/bin/echo", "x"], "limits": {"tmp": {"size": "1M"}}}),
        ] {
            let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
            let answer = exec(&mut front, request)?;
            assert_eq!(text(&answer, "stdout"), "x\n", "{answer}");
            assert_eq!(answer["record"]["start"], "cold");
        }
        Ok(())
    });
}

#[test]
fn a_blank_cell_goes_with_its_front_end_and_may_be_lost() {
    alone(|| {
        let spawner = spawner()?;
        let front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        let supervisor = front.supervisor;
        let cell = below(supervisor);
        assert!(!cell.is_empty());
        drop(front);
        until("the blank cell is gone", || {
            !exists(supervisor) && !cell.iter().any(|pid| exists(*pid))
        })?;
        // One that was killed before there was a program is replaced.
        let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        for pid in below(front.supervisor) {
            // The end of one may be that of the others.
            let _ = kill(pid, Signal::SIGKILL);
            until("the kill took effect", || !exists(pid))?;
        }
        let answer = exec(&mut front, json!({"argv": ["/bin/echo", "x"]}))?;
        assert_eq!(text(&answer, "stdout"), "x\n", "{answer}");
        assert_eq!(answer["record"]["start"], "cold");
        Ok(())
    });
}
