//! What a copy does to enter its cell and to confine itself, as system calls.
//!
//! They are the last steps of `jail/child/mod.rs` and `jail/child/program.rs`, in the same order,
//! for a process that is no child of init's by birth. The copy is forked from a process
//! that knows nothing of cellblock's plans, so the supervisor spells them out. Some
//! follow from its origin: it has the template's ids, and every capability in its new
//! user namespace.

use std::os::unix::ffi::OsStrExt as _;

use libc::c_long;
use nix::fcntl::OFlag;

use jail::child::Filter;
use languages::template::{Argument, Call, CopyRequest};
use plan::{LandlockPlan, Plan};
use record::error::Step;
use sys::process::{LOCKED_SECUREBITS, last_capability};

use Argument::{Bytes, Descriptor, Number};

/// The places of the descriptors that come with a request.
pub(super) struct Places {
    /// How many of them become the copy's own, from 0 on.
    pub(super) own: usize,
    /// Its namespaces except the pid namespace, the user namespace first.
    pub(super) namespaces: std::ops::Range<usize>,
    /// The Landlock rules, if there are any.
    pub(super) ruleset: Option<usize>,
}

/// The calls, each with the step that it belongs to.
pub(super) struct Calls {
    calls: Vec<Call>,
    steps: Vec<Step>,
    entered: usize,
}

impl Calls {
    /// The calls for a copy of this plan.
    pub(super) fn new(plan: &Plan, filter: Option<&Filter>, places: &Places) -> Self {
        let mut list = Self {
            calls: Vec::new(),
            steps: Vec::new(),
            entered: 0,
        };
        list.enter(plan, places);
        list.entered = list.calls.len();
        list.confine(plan, filter, places);
        list
    }

    fn add<const N: usize>(&mut self, step: Step, number: c_long, arguments: [Argument; N]) {
        self.steps.push(step);
        self.calls.push(Call {
            number,
            arguments: arguments.to_vec(),
            refused: None,
        });
    }

    fn prctl(&mut self, step: Step, option: i32, second: i64, third: i64) {
        let numbers = [i64::from(option), second, third, 0, 0].map(Number);
        self.add(step, libc::SYS_prctl, numbers);
    }

    fn enter(&mut self, plan: &Plan, places: &Places) {
        self.add(Step::Stdio, libc::SYS_setsid, []);
        for place in 0..places.own {
            let target = Number(place as i64);
            self.add(
                Step::Stdio,
                libc::SYS_dup3,
                [Descriptor(place), target, Number(0)],
            );
        }
        for place in places.namespaces.clone() {
            self.add(Step::Fork, libc::SYS_setns, [Descriptor(place), Number(0)]);
        }
        // Root's copies differ from their template in the ids outside.
        let (uid, gid) = (plan.ids.inner_uid.into(), plan.ids.inner_gid.into());
        self.add(Step::Ids, libc::SYS_setresgid, [gid; 3].map(Number));
        self.add(Step::Ids, libc::SYS_setresuid, [uid; 3].map(Number));
        // A change of ids takes this away, and execve(2) gives it back.
        self.prctl(Step::Ids, libc::PR_SET_DUMPABLE, 1, 0);
        let mut directory = plan.program.cwd.as_os_str().as_bytes().to_vec();
        directory.push(0);
        self.add(Step::Chdir, libc::SYS_chdir, [Bytes(directory)]);
    }

    fn confine(&mut self, plan: &Plan, filter: Option<&Filter>, places: &Places) {
        let securebits = i64::from(LOCKED_SECUREBITS);
        self.prctl(Step::Capabilities, libc::PR_SET_SECUREBITS, securebits, 0);
        for capability in 0..=last_capability() {
            let capability = i64::from(capability);
            self.prctl(Step::Capabilities, libc::PR_CAPBSET_DROP, capability, 0);
        }
        let clear = i64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL);
        self.prctl(Step::Capabilities, libc::PR_CAP_AMBIENT, clear, 0);
        // `_LINUX_CAPABILITY_VERSION_3`, the calling thread; three empty sets of 64.
        let header = [0x2008_0522_u32, 0].map(u32::to_ne_bytes).concat();
        let sets = [Bytes(header), Bytes(vec![0; 24])];
        self.add(Step::Capabilities, libc::SYS_capset, sets);
        self.prctl(Step::NoNewPrivs, libc::PR_SET_NO_NEW_PRIVS, 1, 0);
        if let Some(place) = places.ruleset {
            let flags = plan.landlock.iter().flat_map(LandlockPlan::flags);
            let flags = flags.fold(0, |bits, flag| bits | flag.bit);
            let rules = [Descriptor(place), Number(flags.into())];
            self.add(Step::Landlock, libc::SYS_landlock_restrict_self, rules);
            self.prove_landlock(plan);
        }
        if let Some(filter) = filter {
            let listen = if filter.notify {
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as i64
            } else {
                0
            };
            let mode = Number(libc::SECCOMP_SET_MODE_FILTER.into());
            let program = Argument::Filter(bytes(filter));
            self.add(
                Step::Seccomp,
                libc::SYS_seccomp,
                [mode, Number(listen), program],
            );
        }
    }

    /// Tries what the rules deny: nothing outside shows that they are in force.
    fn prove_landlock(&mut self, plan: &Plan) {
        let Some(denied) = plan.landlock.as_ref().and_then(|rules| rules.denied(plan)) else {
            return;
        };
        let path = [denied.path.as_bytes(), &[0]].concat();
        let flags = (denied.flags | OFlag::O_CLOEXEC).bits().into();
        let arguments = [
            Number(libc::AT_FDCWD.into()),
            Bytes(path),
            Number(flags),
            Number(0),
        ];
        self.add(Step::Landlock, libc::SYS_openat, arguments);
        if let Some(call) = self.calls.last_mut() {
            call.refused = Some(libc::EACCES);
        }
    }

    /// The same without those of a step, or without one of them: for tests of what sees that
    /// something is missing.
    #[cfg(debug_assertions)]
    pub(super) fn without(mut self, left_out: &[(Step, Option<usize>)]) -> Self {
        let mut seen = std::collections::BTreeMap::new();
        for place in (0..self.calls.len()).collect::<Vec<_>>() {
            let step = self.steps[place];
            let count = seen.entry(step as u16).or_insert(0);
            let is_out =
                left_out.contains(&(step, None)) || left_out.contains(&(step, Some(*count)));
            *count += 1;
            if is_out {
                // A call without effect keeps the places of the others.
                self.calls[place] = Call {
                    number: libc::SYS_getpid,
                    arguments: Vec::new(),
                    refused: None,
                };
            }
        }
        self
    }

    /// The request for a copy that makes them, and the step of each call.
    pub(super) fn request(self, plan: &Plan) -> (CopyRequest, Vec<Step>) {
        let environment = plan.program.env.iter();
        let request = CopyRequest {
            calls: self.calls,
            entered: self.entered,
            is_awaited: false,
            environment: environment
                .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
                .collect(),
        };
        (request, self.steps)
    }
}

/// A filter's instructions as the kernel takes them (struct sock_filter).
fn bytes(filter: &Filter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(filter.program.len() * 8);
    for instruction in &filter.program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}
