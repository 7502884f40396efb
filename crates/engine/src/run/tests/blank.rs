//! Blank cells: one program each, and what is looked at before it.

use std::error::Error;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;

use crate::run::resolve_on;
use jail::child::{Content, LEFT_OUT};
use jail::launch::Launch;
use plan::probe::HostFacts;
use plan::{Fallback, MountKind, Namespace, Plan, Seal};
use record::error::Step;
use record::{DescriptorRecord, Start};
use spec::{self, Ask, Descriptor, FileSource, InputFile, Mode, Partial, Stdin, Stdio};
use supervise::{Blank, Cancel, Denials, Program, Request};
use sys::alone::alone;

type Done<T = ()> = Result<T, Box<dyn Error>>;

fn plan(script: &str) -> Done<Plan> {
    let ask = Ask {
        mode: Mode::Exec,
        cwd: Path::new("/"),
        stdio: Stdio::Capture,
        lends: false,
    };
    let argv = ["/bin/sh", "-c", script].map(Into::into);
    let partial = Partial {
        argv: Some(argv.into()),
        ..Partial::default()
    };
    let mut spec = spec::load(&ask, None, None, partial)?;
    spec.stdin = Stdin::Null;
    Ok(resolve_on(&spec, HostFacts::gather()?)?.plan)
}

fn launch(plan: &Plan) -> Launch<'static> {
    Launch {
        role: jail::launch::Role::Program,
        plan: Rc::new(plan.clone()),
        filter: None,
        content: Content::default(),
        cgroup: None,
        fallback: Fallback::default(),
        until: Step::Exec,
        holds: true,
    }
}

fn program(plan: &Plan) -> Program<'static, 'static> {
    Program {
        plan: Rc::new(plan.clone()),
        inputs: &[],
        denials: Denials::default(),
        cancel: Cancel::default(),
    }
}

#[test]
fn a_program_gets_everything_that_is_its_own() {
    alone(|| {
        let made = plan("exit 1")?;
        let mut wanted = plan(r#"cat; echo " $GREETING $(pwd) $(cat /workspace/a/b)"; exit 7"#)?;
        wanted.program.stdin = Stdin::Inline("in".into());
        wanted.program.env.insert("GREETING".into(), "hello".into());
        wanted.program.cwd = "/tmp".into();
        wanted.files.push(InputFile {
            executable: false,
            source: FileSource::Inline("file".into()),
            target: "a/b".into(),
        });
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        blank.wait()?;
        assert!(blank.is_waiting());
        let mut cell = blank.begin(program(&wanted))?;
        let execution = cell.execute(Request {
            is_last: true,
            ..Request::default()
        })?;
        assert_eq!(super::stdout(execution), "in hello /tmp file\n");
        cell.end_processes(false, None)?;
        let (running, observed) = cell.parts();
        assert_eq!(running.start, Start::Blank);
        assert_eq!(observed.status.map(libc_exit), Some(7));
        // What was done before the program was asked for is not its set-up.
        assert_eq!(running.progress.began_ns(Step::Mount), None);
        assert!(running.progress.began_ns(Step::Exec).is_some());
        Ok(())
    });
}

fn libc_exit(status: i32) -> i32 {
    libc::WEXITSTATUS(status)
}

#[test]
fn a_failure_of_the_program_is_told_in_the_words_of_its_own_plan() {
    alone(|| {
        let made = plan("exit 1")?;
        let mut wanted = made.clone();
        wanted.program.candidates = vec!["/no/such/program".into()];
        wanted.program.argv = wanted.program.candidates.clone();
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        blank.wait()?;
        let mut cell = blank.begin(program(&wanted))?;
        cell.execute(Request::default())?;
        let failure = cell.end()?.failure.ok_or("no failure")?;
        assert!(
            failure.to_string().contains("/no/such/program"),
            "{failure}"
        );
        Ok(())
    });
}

#[test]
fn another_plan_is_refused_and_a_dropped_cell_leaves_nothing() {
    alone(|| {
        let made = plan("exit 1")?;
        let mut other = made.clone();
        other.hostname = "other".into();
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        blank.wait()?;
        let refused = blank.begin(program(&other)).err().ok_or("not refused")?;
        assert!(refused.to_string().contains("another plan"), "{refused}");
        // The refusal ended it; this one ends by being dropped.
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        blank.wait()?;
        drop(blank);
        assert_eq!(sys::process::reap(false), Err(Errno::ECHILD));
        Ok(())
    });
}

#[test]
fn a_failed_set_up_shows_before_there_is_a_program() {
    alone(|| {
        let mut made = plan("exit 1")?;
        made.hostname = "x".repeat(65);
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        let failure = blank.wait().err().ok_or("no failure")?;
        assert!(failure.to_string().contains("host name"), "{failure}");
        assert!(!blank.is_waiting());
        Ok(())
    });
}

#[test]
fn a_blank_cell_that_was_killed_is_seen() {
    alone(|| {
        let made = plan("exit 1")?;
        let mut blank = Blank::start(launch(&made), Cancel::default())?;
        blank.wait()?;
        let signal = nix::sys::signal::Signal::SIGKILL;
        sys::process::pidfd_send_signal(blank.as_fd(), signal)?;
        let deadline = std::time::Instant::now() + super::PATIENCE;
        assert!(jail::launch::wait_for(blank.as_fd(), deadline));
        assert!(!blank.is_waiting());
        let mut cell = blank.begin(program(&made))?;
        cell.execute(Request::default())?;
        assert!(cell.end()?.failure.is_some());
        Ok(())
    });
}

/// A cell made by `weaker` is told from one of the whole plan.
fn told_apart(weaken: fn(&mut Plan), what: &str) -> Done {
    let whole = plan("exit 1")?;
    let mut weaker = whole.clone();
    weaken(&mut weaker);
    is_refused(launch(&weaker), &whole, what)
}

/// A cell that is started like this is not one of `whole`.
fn is_refused(start: Launch<'_>, whole: &Plan, what: &str) -> Done {
    let mut blank = Blank::start(start, Cancel::default())?;
    assert!(blank.settle()?, "{what}");
    let complaint = supervise::verify(blank.running(), whole).err();
    let complaint = complaint.map_or_else(String::new, |error| error.to_string());
    assert!(complaint.contains(what), "{what}: {complaint:?}");
    Ok(())
}

#[test]
fn a_cell_with_a_capability_is_told_from_a_whole_one() {
    alone(|| {
        let whole = plan("exit 1")?;
        // A template's has one in its user namespace.
        let start = Launch {
            role: jail::launch::Role::Template,
            ..launch(&whole)
        };
        is_refused(start, &whole, "CapInh")
    });
}

/// The exit status of a script in a blank cell of `made` that leaves steps out and is not checked.
fn unseen(made: &Plan, left_out: &[&'static str]) -> Done<Option<i32>> {
    LEFT_OUT.set(left_out.to_vec());
    let blank = Blank::start(launch(made), Cancel::default());
    LEFT_OUT.take();
    let mut blank = blank?;
    if !blank.settle()? {
        // Fails with the reason.
        blank.wait()?;
    }
    let mut cell = blank.begin(program(made))?;
    cell.execute(Request {
        is_last: true,
        ..Request::default()
    })?;
    Ok(cell.end()?.status)
}

#[test]
fn a_cell_without_no_new_privs_is_told_from_a_whole_one() {
    alone(|| {
        // Landlock and filters require it, so these cells have neither.
        let mut whole = plan("grep -q 'NoNewPrivs:.0' /proc/self/status")?;
        (whole.landlock, whole.seccomp) = (None, None);
        let left_out = "no-new-privs";
        assert_eq!(unseen(&whole, &[])?.map(libc_exit), Some(1));
        assert_eq!(unseen(&whole, &[left_out])?, Some(0));
        LEFT_OUT.set(vec![left_out]);
        let refused = is_refused(launch(&whole), &whole, "NoNewPrivs");
        LEFT_OUT.take();
        refused
    });
}

#[test]
fn a_cell_without_landlock_is_never_ready() {
    alone(|| {
        let whole = plan(": > /dev/zero")?;
        assert_ne!(unseen(&whole, &[])?, Some(0));
        assert_eq!(unseen(&whole, &["landlock", "proof"])?, Some(0));
        let refused = unseen(&whole, &["landlock"]).err().ok_or("not refused")?;
        assert!(refused.to_string().contains("landlock"), "{refused}");
        Ok(())
    });
}

#[test]
fn a_cell_with_a_namespace_less_is_told_from_a_whole_one() {
    alone(|| {
        told_apart(|plan| without(plan, Namespace::Net), "the net namespace")?;
        told_apart(|plan| without(plan, Namespace::Uts), "the uts namespace")?;
        told_apart(|plan| without(plan, Namespace::Ipc), "the ipc namespace")?;
        told_apart(
            |plan| without(plan, Namespace::Cgroup),
            "the cgroup namespace",
        )
    });
}

#[test]
fn a_cell_with_other_mounts_or_ids_is_told_from_a_whole_one() {
    alone(|| {
        told_apart(unseal, "a mount")?;
        told_apart(|plan| plan.ids.inner_uid = 7, "uid_map")?;
        told_apart(|plan| plan.ids.inner_gid = 7, "gid_map")
    });
}

fn unseal(plan: &mut Plan) {
    if let MountKind::Tmpfs { seal, .. } = &mut plan.mounts[0].kind {
        *seal = Seal::Writable;
    }
}

fn without(plan: &mut Plan, namespace: Namespace) {
    plan.namespaces.retain(|other| *other != namespace);
}

#[test]
fn programs_share_a_key_and_other_cells_do_not() -> Done {
    let one = plan("one")?;
    let mut other = plan("other")?;
    other.limits.wall = None;
    other.program.env.insert("A".into(), "b".into());
    other.program.cwd = "/tmp".into();
    other.program.stdin = Stdin::Inline("text".into());
    assert!(one.key().is_some());
    assert_eq!(one.key(), other.key());
    let differs: [fn(&mut Plan); 6] = [
        |plan| plan.hostname.push('x'),
        |plan| without(plan, Namespace::Net),
        |plan| plan.landlock = None,
        |plan| plan.seccomp = None,
        |plan| plan.limits.cpus = Some(0.5),
        |plan| plan.mounts.truncate(3),
    ];
    for (index, change) in differs.into_iter().enumerate() {
        let mut changed = one.clone();
        change(&mut changed);
        assert_ne!(one.key(), changed.key(), "{index}");
    }
    let mut callers = one.clone();
    callers.program.stdin = Stdin::Inherit;
    assert_eq!(callers.key(), None);
    let mut passed = one.clone();
    passed.descriptors.push(Descriptor {
        record: DescriptorRecord {
            number: 3,
            kind: "pipe".into(),
            class: "unnamed".into(),
            mode: "read".into(),
        },
        is_network: false,
    });
    assert_eq!(passed.key(), None);
    Ok(())
}
