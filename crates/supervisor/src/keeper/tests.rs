//! Templates that are renewed, refused or gone.

use nix::sys::socket::SockType;
use serde_json::{Value, json};

use super::super::tests::{Front, Tested, below, exists, until};
use super::*;
use jail::launch::process::receive_descriptor;
use sys::alone::alone;

/// What all copies of one template have in common: a seed of hashes and a layout.
const SHARED: &str = "import decimal, sys; (hash('text'), id(sys), id(decimal))";

/// A context in a new copy, the number of its template, and what it shares with others.
fn copy(templates: &Templates<'_>) -> Tested<(Front, u64, String)> {
    let (socket, number) = templates.supervisor()?;
    let number = number.ok_or("there is no template")?;
    let mut front = Front::at(socket);
    let request = json!({"language": "python"});
    let open = json!({"request": request, "lasting": true, "ready": true, "forked": true});
    front.order(json!({ "open": open }))?;
    assert_eq!(front.report("opened")?["forked"], true);
    let answer = front.run(1, SHARED)?;
    let told = &answer["record"]["template"];
    assert_eq!(told["generation"], number, "{answer}");
    let in_use = templates.in_use();
    let own = in_use.iter().find(|one| one.generation == number);
    let own = own.ok_or("the template is not listed")?;
    assert_eq!(told["copies"], own.copies, "{answer}");
    assert!(own.memory > 4 << 20, "{own:?}");
    let shared = answer["record"]["results"][0]["text"].as_str();
    let shared = shared.ok_or_else(|| answer.to_string())?.to_owned();
    Ok((front, number, shared))
}

/// A server's templates, of which this is the only one.
fn with_current(spawner: &Spawner, current: Generation) -> Templates<'_> {
    Templates {
        spawner,
        renewal: Renewal::default(),
        now: RefCell::new(Now {
            current: Some(current),
            ..Now::default()
        }),
    }
}

/// It comes once there were `least` copies.
fn renewal_by(renewal: Renewal, least: usize) -> Tested {
    let spawner = Spawner::fork(Base {
        cwd: "/".into(),
        preload: vec!["decimal".to_owned()],
        ..Base::default()
    })?;
    let templates = Templates::make(&spawner, renewal)?;
    let (mut first, _, old) = copy(&templates)?;
    let keeper = below(nix::unistd::getpid());
    // Copies of the old one go on to be made until the new one is there.
    let (mut others, mut copies) = (Vec::new(), 1);
    let end = Instant::now() + Duration::from_secs(50);
    let new = loop {
        let (front, number, shared) = copy(&templates)?;
        if number > 1 {
            others.push(front);
            break shared;
        }
        assert_eq!(shared, old);
        copies += 1;
        assert!(
            Instant::now() < end,
            "no other template after {copies} copies"
        );
    };
    assert!(copies >= least, "{copies}");
    let (mine, theirs) = (old.split(", "), new.split(", "));
    assert!(mine.zip(theirs).all(|(old, new)| old != new), "{old} {new}");
    // The old one stays as long as its copies do.
    let kept = first.run(2, SHARED)?;
    assert_eq!(kept["record"]["results"][0]["text"], Value::String(old));
    drop(first);
    templates.keep(|number| number != 1);
    until("the old template's end", || {
        keeper.iter().any(|pid| !exists(*pid))
    })?;
    let mut newest = others.pop().ok_or("no copy")?;
    assert_eq!(newest.run(2, "6 * 7")?["state"], "kept");
    Ok(())
}

#[test]
fn a_keeper_that_says_nothing_is_not_waited_for_without_end() -> Tested {
    let (ours, theirs) = spawner::pair(SockType::SeqPacket)?;
    let error = hear_within(&ours, Duration::from_millis(20)).expect_err("a template");
    assert!(error.to_string().contains("no template after"), "{error}");
    // What it says in time counts, and so does its end.
    let (said, none) = (MsgFlags::empty(), Duration::from_secs(20));
    send(theirs.as_raw_fd(), br#"{"Ok":4096}"#, said)?;
    assert_eq!(hear_within(&ours, none)?, 4096);
    drop(theirs);
    let error = hear_within(&ours, none).expect_err("a template");
    assert!(error.to_string().contains("is gone"), "{error}");
    Ok(())
}

#[test]
fn a_template_that_ends_at_once_is_not_made_again_at_once() {
    alone(|| {
        let spawner = Spawner::fork(Base::default())?;
        for (age, is_made) in [(Duration::ZERO, false), (BACK_OFF, true)] {
            let (keeper_that_is_gone, _) = spawner::pair(SockType::SeqPacket)?;
            let mut ended = Generation::of(keeper_that_is_gone, 1, 0);
            ended.since = Instant::now()
                .checked_sub(age)
                .ok_or("the host is too new")?;
            let templates = with_current(&spawner, ended);
            let (_, number) = templates.supervisor()?;
            assert_eq!(number, None);
            assert_eq!(templates.now.borrow().next.is_some(), is_made);
        }
        Ok(())
    });
}

#[test]
fn a_template_that_the_kernel_does_not_let_fork_is_kept() {
    alone(|| {
        let spawner = Spawner::fork(Base::default())?;
        let (ours, theirs) = spawner::pair(SockType::SeqPacket)?;
        let templates = with_current(&spawner, Generation::of(ours, 1, 0));
        std::thread::scope(|scope| {
            let refuses = || {
                let asked = receive_descriptor(theirs.as_fd());
                assert!(asked.is_ok_and(|asked| asked.is_some()));
                let errno = -(Errno::EAGAIN as i32);
                send(theirs.as_raw_fd(), &errno.to_ne_bytes(), MsgFlags::empty())
            };
            let refused = scope.spawn(refuses);
            assert_eq!(templates.supervisor()?.1, None);
            assert!(refused.join().is_ok_and(|sent| sent.is_ok()));
            assert_eq!(templates.in_use().len(), 1);
            let refused = scope.spawn(refuses);
            let error = templates.supervisor_of(1).expect_err("a supervisor");
            assert!(refused.join().is_ok_and(|sent| sent.is_ok()));
            assert_eq!(error.errno, Some(Errno::EAGAIN as i32), "{error}");
            Ok(())
        })
    });
}

#[test]
fn another_template_follows_after_some_copies() {
    alone(|| {
        let renewal = Renewal {
            copies: 3,
            ..Renewal::default()
        };
        renewal_by(renewal, 3)
    });
}

#[test]
fn another_template_follows_after_some_time() {
    alone(|| {
        let renewal = Renewal {
            life: Duration::from_millis(1),
            ..Renewal::default()
        };
        renewal_by(renewal, 1)
    });
}

#[test]
fn another_template_follows_when_the_host_has_changed() {
    alone(|| {
        let directory = tempfile::tempdir()?;
        let late = directory.path().join("late");
        // Shown in cells from when it exists, like what a package brings.
        let bind = spec::partial::PartialBind {
            source: late.clone(),
            target: Some("/late".into()),
            writable: false,
            optional: true,
        };
        let flags = spec::Partial {
            binds: vec![bind],
            ..spec::Partial::default()
        };
        let spawner = Spawner::fork(Base {
            cwd: "/".into(),
            flags,
            ..Base::default()
        })?;
        let templates = Templates::make(&spawner, Renewal::default())?;
        let (mut old, number, _) = copy(&templates)?;
        assert_eq!(number, 1);
        std::fs::write(&late, "")?;
        until("another template", || {
            templates
                .supervisor()
                .is_ok_and(|(_, number)| number == Some(2))
        })?;
        let (mut new, _, _) = copy(&templates)?;
        let seen = "__import__('os').path.exists('/late')";
        for (front, sees) in [(&mut old, "False"), (&mut new, "True")] {
            let answer = front.run(2, seen)?;
            assert_eq!(answer["record"]["results"][0]["text"], sees, "{answer}");
        }
        Ok(())
    });
}
