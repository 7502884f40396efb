//! The record's statements about a cell match what its program finds.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use record::{Enforced, Isolation};

use crate::cells::cell::{Cell, Run};
use crate::cells::host::landlock_abi;
use crate::cells::prelude::*;
use crate::cells::start::Start;

pub(crate) const SUITE: Suite = Suite {
    name: "truth",
    covers: &[30],
    attacks: &[],
    scenes: &[
        scene("namespaces", namespaces),
        scene("ids-and-privileges", ids_and_privileges),
        scene("layers-given-up", layers_given_up),
        scene("older-landlock", older_landlock).needs(&[Need::Landlock(6)]),
        scene("ports-need-landlock-4", ports_need_landlock_4).needs(&[Need::Landlock(4)]),
        scene("strict-refuses-fallbacks", strict_refuses_fallbacks),
        scene("usage", usage),
        python_scene("the-start-of-an-interpreter-is-timed", start_of_interpreter),
        scene("limits", limits),
    ],
    actors: &[
        // What /proc shows a process about itself, as `name value` lines.
        Actor {
            name: "introspect",
            run: |_| {
                for name in NAMESPACES {
                    let link = fs::read_link(format!("/proc/self/ns/{}", file_of(name)));
                    println!("{name} {}", link.unwrap_or_default().display());
                }
                for line in fs::read_to_string("/proc/self/status")
                    .unwrap_or_default()
                    .lines()
                {
                    println!("{}", line.replace(':', " "));
                }
                for map in ["uid_map", "gid_map"] {
                    let text = fs::read_to_string(format!("/proc/self/{map}"));
                    println!("{map} {}", text.unwrap_or_default().trim());
                }
                0
            },
        },
        Actor {
            name: "limits",
            run: |_| {
                print!(
                    "{}",
                    fs::read_to_string("/proc/self/limits").unwrap_or_default()
                );
                0
            },
        },
    ],
};

/// The names that the record uses.
const NAMESPACES: [&str; 7] = ["user", "pid", "mount", "net", "ipc", "uts", "cgroup"];

fn file_of(namespace: &str) -> &str {
    if namespace == "mount" {
        "mnt"
    } else {
        namespace
    }
}

/// What the program found, by name, with single spaces.
fn found(run: &Run) -> BTreeMap<String, String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    run.stdout()
        .lines()
        .map(words)
        .filter_map(|line| {
            line.split_once(' ')
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
        })
        .collect()
}

fn told(run: &Run) -> Check<Isolation> {
    run.record
        .isolation
        .clone()
        .ok_or_else(|| fail("no isolation in the record"))
}

fn introspect(cell: Cell<'_>) -> Check<(BTreeMap<String, String>, Isolation)> {
    let run = cell.run()?.ended(Outcome::Ok)?;
    Ok((found(&run), told(&run)?))
}

fn namespaces(stage: &Stage) -> Check {
    for network in ["none", "host"] {
        let cell = stage
            .probe("truth/introspect", [])
            .option(["--net", network]);
        let (found, told) = introspect(cell)?;
        for name in NAMESPACES {
            let own = fs::read_link(format!("/proc/self/ns/{}", file_of(name)))?;
            let differs = found[name] != own.to_string_lossy();
            let said = told.namespaces.iter().any(|said| said == name);
            assert_eq!(
                differs,
                said,
                "{name}: {} and {}",
                found[name],
                own.display()
            );
        }
        assert_eq!(told.network, network);
    }
    Ok(())
}

fn ids_and_privileges(stage: &Stage) -> Check {
    let (found, told) = introspect(stage.probe("truth/introspect", []))?;
    let (uid, gid) = (told.uid.clone(), told.gid.clone());
    let map = |inside, outside| match stage.start() {
        // Its user namespace is below the template's, which has the same ids inside.
        Start::Forked => format!("{inside} {inside} 1"),
        Start::Cold | Start::Blank | Start::Carried => format!("{inside} {outside} 1"),
    };
    assert_eq!(found["uid_map"], map(uid.inside, uid.outside));
    assert_eq!(found["gid_map"], map(gid.inside, gid.outside));
    for (name, id) in [("Uid", uid), ("Gid", gid)] {
        let id = id.inside;
        assert_eq!(found[name], format!("{id} {id} {id} {id}"));
        assert_ne!(id, 0);
    }
    assert!(told.uid.outside != 0 && told.gid.outside != 0);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(found[set], "0000000000000000", "{set}");
    }
    assert_eq!(told.capabilities, Vec::<String>::new());
    assert_eq!(
        (found["NoNewPrivs"].as_str(), told.no_new_privs),
        ("1", true)
    );
    assert_eq!(
        (found["Seccomp"].as_str(), told.seccomp.is_some()),
        ("2", true)
    );
    if stage.root() {
        // None of root's own groups; the line is then empty.
        assert!(!found.contains_key("Groups"), "{:?}", found.get("Groups"));
    }
    Ok(())
}

fn layers_given_up(stage: &Stage) -> Check {
    let (found, told) = introspect(stage.probe("truth/introspect", []).without("seccomp"))?;
    assert_eq!((found["Seccomp"].as_str(), told.seccomp), ("0", None));
    assert_eq!(told.given_up, ["seccomp"]);

    let (_, told) = introspect(stage.probe("truth/introspect", []).without("landlock"))?;
    assert_eq!((told.landlock_abi, told.landlock_scopes), (None, vec![]));
    assert_eq!(told.given_up, ["landlock"]);

    let (_, told) = introspect(stage.probe("truth/introspect", []).without("userns-limit"))?;
    assert_eq!(told.nested_userns, ["seccomp"]);
    let (_, told) = introspect(
        stage
            .probe("truth/introspect", [])
            .without_all(&["userns-limit", "seccomp"]),
    )?;
    assert!(told.nested_userns.is_empty(), "{:?}", told.nested_userns);

    let host = stage
        .probe("host-view/cat", ["/proc/version"])
        .without("proc")
        .run()?;
    assert!(host.stdout().starts_with("Linux"), "{}", host.stdout());
    let isolation = host.record.isolation;
    assert_eq!(
        isolation.map(|isolation| isolation.proc).as_deref(),
        Some("host")
    );
    Ok(())
}

/// An abstract socket of the host can be reached exactly when the record does not claim
/// the scope that forbids it.
fn older_landlock(stage: &Stage) -> Check {
    let name = format!("cellblock-truth-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    for abi in 1..=landlock_abi().min(7) {
        let run = stage
            .probe("channels/connect", [&name])
            .option(["--net", "host", "--landlock-max-abi", &abi.to_string()])
            .run()?
            .ended(Outcome::Ok)?;
        let told = told(&run)?;
        assert_eq!(told.landlock_abi, Some(abi));
        let claimed = told
            .landlock_scopes
            .iter()
            .any(|scope| scope == "abstract_unix_socket");
        assert_eq!(claimed, abi >= 6);
        assert_eq!(
            run.stdout(),
            if claimed { "Err(EPERM)\n" } else { "Ok(())\n" },
            "ABI {abi}"
        );
    }
    Ok(())
}

/// A rule that cannot be applied stops the run.
fn ports_need_landlock_4(stage: &Stage) -> Check {
    let cell =
        stage
            .exec(["/bin/true"])
            .option(["--tcp-connect", "443", "--landlock-max-abi", "3"]);
    let run = cell.run()?.ended(Outcome::Setup)?;
    let error = run
        .record
        .setup_error
        .ok_or_else(|| fail("no error in the record"))?;
    assert!(error.hint.is_some(), "{error}");
    Ok(())
}

fn strict_refuses_fallbacks(stage: &Stage) -> Check {
    let cell = stage.exec(["/bin/true"]).option(["--cgroup", "none"]);
    let weak = cell.clone().run()?.ended(Outcome::Ok)?;
    let fallback = weak
        .record
        .limits
        .values()
        .any(|limit| limit.by.contains("watchdog"));
    assert!(fallback, "nothing falls back: {}", weak.json);
    let strict = cell.option(["--strict"]).run()?.ended(Outcome::Setup)?;
    assert_eq!(strict.record.exit_code, 125);
    Ok(())
}

fn usage(stage: &Stage) -> Check {
    let idle = stage
        .probe("exit-codes/exit", ["0"])
        .run()?
        .ended(Outcome::Ok)?;
    let busy = stage
        .probe("time/burn-a-little", [])
        .run()?
        .ended(Outcome::Ok)?;
    let cpu = |run: &Run| {
        let usage = &run.record.usage;
        usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0)
    };
    // It uses 600 ms of CPU time in a grandchild; on a busy host, the start takes more or less.
    let more = cpu(&busy) - cpu(&idle);
    assert!((450.0..1_050.0).contains(&more), "{more} ms");
    assert!(
        busy.record.usage.wall_ms >= 590.0,
        "{}",
        busy.record.usage.wall_ms
    );
    Ok(())
}

fn start_of_interpreter(stage: &Stage) -> Check {
    let timing = &stage
        .code("python", "1")
        .run()?
        .ended(Outcome::Ok)?
        .record
        .timing;
    // The interpreter of a copy or of a context has started before.
    let least = match stage.start() {
        Start::Forked | Start::Carried => 0.0,
        Start::Cold | Start::Blank => 1.0,
    };
    assert!(
        timing.interpreter_ms.is_some_and(|ms| ms > least),
        "{timing:?}"
    );
    // What was done ahead of the call, or in another cell, is in no step.
    if stage.start() == Start::Cold {
        let whole = timing.setup_ms
            + timing.interpreter_ms.unwrap_or_default()
            + timing.code_ms
            + timing.teardown_ms;
        let steps: f64 = timing.steps.values().sum();
        assert!(
            (steps - whole).abs() < 0.1,
            "{steps} of {whole}: {timing:?}"
        );
    }
    Ok(())
}

/// The limits that the kernel applies to each process.
fn limits(stage: &Stage) -> Check {
    let run = stage
        .probe("truth/limits", [])
        .limit("open-files", "100")
        .limit("file-size", "3M")
        .limit("address-space", "512M")
        .limit("stack", "1M")
        .run()?
        .ended(Outcome::Ok)?;
    let line = |name: &str| -> Vec<String> {
        run.stdout()
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("")
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(line("Max open files")[..2], ["100", "100"]);
    assert_eq!(line("Max file size")[..2], ["3145728", "3145728"]);
    assert_eq!(line("Max core file size")[..2], ["1", "1"]);
    assert_eq!(line("Max address space")[..2], ["536870912", "536870912"]);
    assert_eq!(line("Max stack size")[..2], ["1048576", "1048576"]);
    for (name, value) in [
        ("open_files", 100.0),
        ("file_size", 3_145_728.0),
        ("address_space", 536_870_912.0),
        ("stack", 1_048_576.0),
    ] {
        let limit = &run.record.limits[name];
        assert_eq!(
            (limit.requested, limit.enforced, limit.by.as_str()),
            (value, Some(Enforced::Exactly(value)), "rlimit")
        );
    }
    Ok(())
}
