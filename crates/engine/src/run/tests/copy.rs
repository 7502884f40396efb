//! Cells whose program is forked from a template: what they can do, and that no layer is
//! missing that a cold cell has.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::Pid;

use super::program_of;
use crate::run::{FilterPolicy, hold_limits, instructions, resolve_on};
use crate::skip::skip;
use jail::child::{Content, Filter};
use jail::launch::{Launch, Role};
use languages::find;
use languages::frames::{Code, Request as DriverRequest, Work};
use plan::Plan;
use plan::probe::HostFacts;
use record::error::Step;
use spec::partial::PartialBind;
use spec::{self, Ask, Bytes, Mode as SpecMode, Partial, Stdin, Stdio};
use supervise::copy::{LEFT_OUT, Template, TemplateCell};
use supervise::{Cancel, Cell, Denials, Execution, Request};
use sys::alone::alone;

type Tested<T = ()> = Result<T, Box<dyn Error>>;

/// A cell for Python, as `run` has it.
struct Bench {
    plan: Rc<Plan>,
    policy: Option<FilterPolicy>,
    filter: Option<Filter>,
}

impl Bench {
    fn new() -> Tested<Self> {
        Self::with(Vec::new())
    }

    fn with(binds: Vec<PartialBind>) -> Tested<Self> {
        let ask = Ask {
            mode: SpecMode::Run,
            cwd: Path::new("/"),
            stdio: Stdio::Capture,
            lends: false,
        };
        let partial = Partial {
            language: Some("python".into()),
            code: Some("".into()),
            binds,
            ..Partial::default()
        };
        let mut spec = spec::load(&ask, None, None, partial)?;
        spec.stdin = Stdin::Null;
        let resolved = resolve_on(&spec, HostFacts::gather()?)?;
        let (_, fallback) = hold_limits(&resolved.plan, &mut Vec::new())?;
        let policy = resolved
            .filter
            .map(|policy| policy.without(fallback.unheld()));
        let policy = policy.transpose()?;
        let filter = policy.as_ref().map(|policy| Filter {
            program: instructions(policy.compiled(), resolved.plan.ids.inner_uid),
            notify: true,
        });
        Ok(Self {
            plan: Rc::new(resolved.plan),
            policy,
            filter,
        })
    }

    fn launch(&self) -> Tested<Launch<'_>> {
        let (cgroup, fallback) = hold_limits(&self.plan, &mut Vec::new())?;
        Ok(Launch {
            role: Role::Program,
            plan: Rc::clone(&self.plan),
            filter: self.filter.as_ref(),
            content: Content::default(),
            cgroup,
            fallback,
            until: Step::Exec,
            holds: false,
        })
    }

    fn denials(&self) -> Denials {
        let denials = self
            .policy
            .as_ref()
            .map(|policy| policy.denials(&[], None, None, false));
        denials.unwrap_or_default()
    }

    fn cold(&self) -> Tested<Box<Cell<'static>>> {
        Ok(Cell::start(
            self.launch()?,
            self.denials(),
            Cancel::default(),
        )?)
    }

    fn copy(&self, template: &Template) -> Tested<Box<Cell<'static>>> {
        Ok(Cell::fork(
            self.launch()?,
            template,
            false,
            self.denials(),
            Cancel::default(),
        )?)
    }
}

fn template(plan: Plan) -> Tested<TemplateCell<'static>> {
    Ok(TemplateCell::start(Rc::new(plan), Cancel::default())?)
}

fn request(execution: u64, code: &str) -> Tested<Request<'static>> {
    let message = DriverRequest {
        execution,
        follows_interrupt: false,
        is_restored: false,
        work: Work::Execute(Code {
            code: &code.into(),
            name: "main.py",
            directory: Path::new("/workspace"),
            has_file: false,
            args: &[],
            memory: None,
            is_last: true,
        }),
    };
    Ok(Request {
        execution,
        message: message.encode()?,
        is_last: false,
        results: Bytes(1 << 20),
        ..Request::default()
    })
}

fn output(execution: Execution) -> String {
    let error = execution
        .report
        .error
        .as_ref()
        .map(|error| format!("{error:?}"));
    let [stdout, stderr] = execution.output;
    let text = |capture: Option<supervise::capture::Capture>| {
        capture.map_or_else(String::new, |capture| capture.finish().text.to_string())
    };
    text(stdout) + &text(stderr) + &error.unwrap_or_default()
}

fn run(cell: &mut Box<Cell<'_>>, execution: u64, code: &str) -> Tested<String> {
    Ok(output(cell.execute(request(execution, code)?)?))
}

/// Whether the host has what these tests need.
fn is_possible() -> bool {
    let python = find("python").map_or(&[][..], |driver| driver.interpreters);
    let found = python.iter().any(|path| Path::new(path).exists());
    if !found {
        skip("no Python on this host");
    }
    found
}

#[test]
fn copies_run_code_and_keep_state_apart() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let plan = bench.plan.for_template(&["json".to_owned()]);
        let template = template(plan)?;
        let mut one = bench.copy(template.template())?;
        let mut other = bench.copy(template.template())?;
        assert_eq!(
            run(&mut one, 1, "import json, os; x = 20; print(os.getppid())")?,
            "1\n"
        );
        assert_eq!(
            run(
                &mut one,
                2,
                "print(x + 1, 'json' in __import__('sys').modules)"
            )?,
            "21 True\n"
        );
        assert!(run(&mut other, 1, "print(x)")?.contains("NameError"));
        let ended = one.end()?;
        assert_eq!(ended.failure, None);
        assert!(ended.reaped.is_some());
        // The copies of a template that ends go on.
        shutdown(template.template().control.as_raw_fd(), Shutdown::Both)?;
        assert_eq!(run(&mut other, 2, "print(7)")?, "7\n");
        Ok(())
    });
}

#[test]
fn a_template_outlives_cells_whose_set_up_fails() {
    const TIMES: usize = 20;
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let template = template(bench.plan.for_template(&[]))?;
        let mut plan = (*bench.plan).clone();
        plan.hostname = "x".repeat(100);
        let mut failing = Bench::new()?;
        failing.plan = Rc::new(plan);
        // The template forks while these cells fail, and nobody receives its answer.
        for _ in 0..TIMES {
            let error = failing.copy(template.template()).err();
            let error = error.ok_or("the host name was accepted")?.to_string();
            assert!(error.contains("host name"), "{error}");
        }
        let mut copy = bench.copy(template.template())?;
        assert_eq!(run(&mut copy, 1, "print(7)")?, "7\n");
        Ok(())
    });
}

/// Whether a process has memory of its own that is executable.
fn has_code_in_memory(pid: Pid) -> Tested<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut fields = maps.lines().map(|line| line.split_ascii_whitespace());
    // Mappings of files have a name, and so has the vdso.
    Ok(fields.any(|mut line| line.nth(1) == Some("r-xp") && line.nth(3).is_none()))
}

/// Copies are forked by machine code, of which they keep nothing, or where the kernel makes no
/// memory executable, without it.
#[test]
fn copies_are_forked_with_and_without_machine_code() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let has_code = !sys::double_fork::code().is_empty();
        for is_denied in [false, true] {
            if is_denied && sys::memory::deny_write_execute().is_err() {
                skip("this kernel has no PR_SET_MDWE (Linux 6.3)");
                return Ok(());
            }
            let template = template(bench.plan.for_template(&[]))?;
            let mut copy = bench.copy(template.template())?;
            assert_eq!(run(&mut copy, 1, "print(7)")?, "7\n");
            let pid = template.pid()?;
            assert_eq!(has_code_in_memory(pid)?, has_code && !is_denied);
            assert!(!has_code_in_memory(program_of(&copy)?)?);
        }
        Ok(())
    });
}

/// glibc reads the number of the CPU from memory that the kernel keeps up to date (rseq(2)), but not
/// in a process that was forked by one without memory of its own.
#[test]
fn a_copy_knows_its_cpu() {
    const CODE: &str = "import ctypes, os
print(ctypes.CDLL(None).sched_getcpu(), 'GLIBC_TUNABLES' in os.environ)";
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let template = template(bench.plan.for_template(&[]))?;
        let mut copy = bench.copy(template.template())?;
        let pid = program_of(&copy)?;
        for (execution, cpu) in (1..).zip(sys::process::allowed_cpus()?) {
            let mut one = CpuSet::new();
            one.set(cpu)?;
            sched_setaffinity(pid, &one)?;
            let shown = run(&mut copy, execution, CODE)?;
            assert_eq!(shown, format!("{cpu} False\n"));
        }
        Ok(())
    });
}

#[test]
fn a_template_ends_if_a_process_that_shares_its_memory_is_killed() {
    const MOST: usize = 1000;
    if !is_possible() || sys::double_fork::code().is_empty() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let template = template(bench.plan.for_template(&[]))?;
        let pid = template.pid()?;
        // Kills what the template starts, until it has ended.
        let script = "while :; do read -r child <$0; [ -z \"$child\" ] || kill -KILL $child; done 2>/dev/null";
        let children = format!("/proc/{pid}/task/{pid}/children");
        let mut killer = Command::new("/bin/sh")
            .args(["-c", script, &children])
            .spawn()?;
        let mut copies = (0..MOST).map(|_| bench.copy(template.template()).map(drop));
        let error = copies.find_map(Result::err);
        killer.kill()?;
        killer.wait()?;
        let error = error.ok_or("no process was killed")?.to_string();
        assert!(error.contains("template"), "{error}");
        assert!(
            bench.copy(template.template()).is_err(),
            "the template is still there"
        );
        Ok(())
    });
}

/// A copy that leaves these steps out, and is whole otherwise, is refused with a message that names
/// what it lacks; without the check, it is handed over.
fn is_refused(
    bench: &Bench,
    template: &Template,
    left_out: &[(Step, Option<usize>)],
    what: &str,
) -> Tested {
    LEFT_OUT.set([left_out, &[UNSEEN]].concat());
    // This copy ends before the next one, whose cgroup has the same name.
    let unseen = bench.copy(template).map(drop);
    LEFT_OUT.set(left_out.to_vec());
    let refused = bench.copy(template).err().map(|error| error.to_string());
    LEFT_OUT.take();
    unseen.map_err(|error| format!("{left_out:?}: {error}"))?;
    let refused = refused.ok_or_else(|| format!("{left_out:?}: not refused"))?;
    assert!(refused.contains(what), "{left_out:?}: {refused}");
    // It is the step that is missed, and no other copy.
    drop(bench.copy(template)?);
    Ok(())
}

/// The check of a copy.
const UNSEEN: (Step, Option<usize>) = (Step::Supervise, None);

#[test]
fn a_copy_without_landlock_is_refused() {
    const ZERO: &str = "open('/dev/zero', 'wb'); print('open')";
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let cell = template(bench.plan.for_template(&[]))?;
        let of = cell.template();
        assert!(run(&mut bench.copy(of)?, 1, ZERO)?.contains("PermissionError"));
        // Neither applied nor tried: nothing else detects that it is missing.
        LEFT_OUT.set(vec![(Step::Landlock, None)]);
        let unseen = bench.copy(of);
        // Not applied, but tried.
        LEFT_OUT.set(vec![(Step::Landlock, Some(0))]);
        let refused = bench.copy(of).err().map(|error| error.to_string());
        LEFT_OUT.take();
        assert_eq!(run(&mut unseen?, 1, ZERO)?, "open\n");
        let refused = refused.ok_or("not refused")?;
        assert!(refused.contains("landlock"), "{refused}");
        Ok(())
    });
}

#[test]
fn a_copy_without_no_new_privs_is_refused() {
    const STATUS: &str =
        "print(open('/proc/self/status').read().partition('NoNewPrivs:\\t')[2][:1])";
    if !is_possible() {
        return;
    }
    alone(|| {
        // Landlock and filters require it, so these cells have neither.
        let mut bench = Bench::new()?;
        let mut plan = (*bench.plan).clone();
        (plan.landlock, plan.seccomp) = (None, None);
        (bench.plan, bench.filter) = (Rc::new(plan), None);
        // A copy inherits it from the template.
        jail::child::LEFT_OUT.set(vec!["no-new-privs"]);
        let cell = template(bench.plan.for_template(&[]));
        jail::child::LEFT_OUT.take();
        let cell = cell?;
        let of = cell.template();
        LEFT_OUT.set(vec![(Step::NoNewPrivs, None), UNSEEN]);
        let unseen = bench.copy(of);
        LEFT_OUT.take();
        assert_eq!(run(&mut unseen?, 1, STATUS)?, "0\n");
        is_refused(&bench, of, &[(Step::NoNewPrivs, None)], "NoNewPrivs")
    });
}

#[test]
fn a_copy_with_other_limits_or_in_another_cgroup_is_refused() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let cell = template(bench.plan.for_template(&[]))?;
        let of = cell.template();
        is_refused(&bench, of, &[(Step::Rlimits, None)], "RLIMIT_")?;
        if bench.launch()?.cgroup.is_none() {
            skip("the cgroup: cells have none on this host");
            return Ok(());
        }
        is_refused(&bench, of, &[(Step::Cgroup, None)], "cgroup")
    });
}

#[test]
fn a_copy_that_lacks_a_layer_is_refused() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let cell = template(bench.plan.for_template(&[]))?;
        let of = cell.template();
        is_refused(&bench, of, &[(Step::Capabilities, None)], "Cap")?;
        is_refused(&bench, of, &[(Step::Seccomp, None)], "Seccomp")?;
        // Its user namespace first: without it, it has no right to the others.
        let mut found = Vec::new();
        for place in 1..7 {
            let left_out = [(Step::Fork, Some(place))];
            LEFT_OUT.set(left_out.to_vec());
            let refused = bench.copy(of).err().map(|error| error.to_string());
            LEFT_OUT.take();
            found.extend(refused);
        }
        for kind in ["mnt", "net", "ipc", "uts", "cgroup"] {
            let word = format!("another namespace of kind {kind}");
            assert!(
                found.iter().any(|one| one.contains(&word)),
                "{kind}: {found:?}"
            );
        }
        Ok(())
    });
}

/// A copy's init has no id that may enter every directory of root's.
#[test]
fn a_copy_has_what_is_bound_from_a_directory_of_the_callers_own() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let home = tempfile::tempdir()?;
        std::fs::set_permissions(home.path(), Permissions::from_mode(0o700))?;
        std::fs::create_dir(home.path().join("data"))?;
        std::fs::write(home.path().join("data/file"), "found")?;
        let bench = Bench::with(vec![PartialBind {
            source: home.path().join("data"),
            target: Some("/data".into()),
            writable: false,
            optional: false,
        }])?;
        let template = template(bench.plan.for_template(&[]))?;
        let mut copy = bench.copy(template.template())?;
        let code = "print(open('/data/file').read())";
        assert_eq!(run(&mut copy, 1, code)?, "found\n");
        Ok(())
    });
}

/// What the kernel shows a program of itself, one fact in a line. Pids, times and
/// memory differ between any two processes.
const SELF: &str = r#"
import fcntl, os, re, resource, signal, sys
facts = {}
CHANGING = ("Pid|Ngid|PPid|Tgid|NStgid|NSpid|NSpgid|NSsid|Vm.*|Rss.*|HugetlbPages|FDSize"
            "|.*ctxt_switches|Cpus_allowed.*|Mems_allowed.*")
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if not re.fullmatch(CHANGING, name):
        facts["status " + name] = value.strip()
for line in open("/proc/self/limits"):
    facts["limit " + line[:26].strip()] = line[26:].strip()
for line in open("/proc/self/mountinfo"):
    fields = line.split()
    # Ids and device numbers are the kernel's next ones.
    facts["mount " + fields[4]] = " ".join(fields[3:4] + fields[5:])
for name in ("cgroup", "oom_score_adj", "comm", "personality", "timerslack_ns"):
    try:
        facts["proc " + name] = open("/proc/self/" + name).read().strip()
    except OSError as error:
        facts["proc " + name] = error.strerror
for name in sorted(os.listdir("/proc/self/fd")):
    try:
        target = re.sub(r"\d+", "N", os.readlink("/proc/self/fd/" + name))
        flags = fcntl.fcntl(int(name), fcntl.F_GETFL), fcntl.fcntl(int(name), fcntl.F_GETFD)
        facts["fd " + name] = f"{target} {flags}"
    except OSError:
        pass
for number in range(1, 65):
    try:
        # An object is at another address in each interpreter.
        facts[f"signal {number}"] = re.sub(" at 0x[0-9a-f]+", "", str(signal.getsignal(number)))
    except ValueError:
        pass
mask = os.umask(0); os.umask(mask)
facts.update({
    "umask": oct(mask), "cwd": os.getcwd(), "ids": str((os.getresuid(), os.getresgid(), os.getgroups())),
    "leads": str((os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid())),
    "environ": str(sorted(os.environ.items())), "hostname": str(os.uname()),
    "argv": str(sys.argv), "path": str(sys.path), "nice": str(os.nice(0)),
    "scheduler": str(os.sched_getscheduler(0)), "cpus": str(len(os.sched_getaffinity(0))),
    "files": str(sorted(os.listdir("/"))) + str(sorted(os.listdir("/dev"))) + str(os.listdir("/tmp")),
    "pids": str(sorted(name for name in os.listdir("/proc") if name.isdigit() and name not in ("1", str(os.getpid())))),
    "interfaces": open("/proc/net/dev").read().count(":") if os.path.exists("/proc/net/dev") else "none",
})
for name, value in sorted(facts.items()):
    print(name, "=", value)
"#;

fn facts(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(" = "))
        .collect()
}

#[test]
fn a_copy_has_every_layer_of_a_cold_cell() {
    if !is_possible() {
        return;
    }
    alone(|| {
        let bench = Bench::new()?;
        let plan = bench.plan.for_template(&[]);
        let template = template(plan)?;
        let cold = run(&mut bench.cold()?, 1, SELF)?;
        let copy = run(&mut bench.copy(template.template())?, 1, SELF)?;
        let (cold, copy) = (facts(&cold), facts(&copy));
        assert!(
            cold.len() > 80 && cold["status NoNewPrivs"] == "1",
            "{cold:?}"
        );
        let names: std::collections::BTreeSet<_> = cold.keys().chain(copy.keys()).collect();
        let differ: Vec<_> = (names.into_iter())
            .filter(|name| cold.get(*name) != copy.get(*name))
            .map(|name| {
                format!(
                    "{name}: cold {:?}, copy {:?}",
                    cold.get(name),
                    copy.get(name)
                )
            })
            .collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        Ok(())
    });
}
