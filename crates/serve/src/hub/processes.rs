//! Processes in contexts' cells, beside their interpreters.
//!
//! Calls about them do not wait for executions. A process belongs to its context; clients
//! only listen to it, and its output goes to them by `output.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use record::bytes::RawText;
use record::error::SetupError;
use supervisor::{Order, ProcessOrder};

mod output;
mod start;

use super::client::{Caller, json_of};
use super::session::{Doing, Phase, Session, Work};
use super::{Action, ClientId, Hub, LinkId};
use crate::Share;
use crate::protocol::{
    CallId, Code, ContextName, Done, Failure, ProcessEvent, ProcessInfo, ProcessInput, ProcessList,
    ProcessName, ProcessResize, ProcessSignal, ProcessStarted,
};

/// The most unanswered calls about processes of one context. It applies separately to calls that
/// start a process or give it input, which can wait for long, and to all other calls.
const MOST_ORDERS: usize = 64;
/// Bytes of the longest input.
const LONGEST_INPUT: usize = 1 << 20;
/// Bytes of input to one context that processes have not taken.
const MOST_INPUT: usize = 4 << 20;
/// The most clients that listen to one process.
const MOST_LISTENERS: usize = 16;

/// The processes of a session.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// The number of the last process.
    last: u32,
    /// The number of the last order.
    orders: u64,
    /// Orders that were not answered.
    waiting: BTreeMap<u64, Waiting>,
    running: BTreeMap<u32, Process>,
}

#[derive(Debug)]
struct Waiting {
    caller: Caller,
    /// Bytes of input in it.
    bytes: usize,
    /// Whether its answer can wait for the process.
    is_slow: bool,
    /// The process that it starts.
    starts: Option<(u32, Process)>,
}

#[derive(Debug)]
struct Process {
    pid: i32,
    argv: Vec<RawText>,
    env: BTreeMap<String, RawText>,
    cwd: Option<PathBuf>,
    tag: Option<String>,
    has_terminal: bool,
    began: Instant,
    /// Bytes of arguments and variables.
    bytes: usize,
    /// The same as its party's share, as long as they are kept.
    _share: Share,
    /// Calls whose clients get its output, one of each client.
    listeners: Vec<(ClientId, CallId)>,
    /// The client with which it ends.
    attached_to: Option<ClientId>,
    /// Events that no client has got yet, each with its bytes of output.
    held: VecDeque<(u64, ProcessEvent)>,
    /// Bytes of output that have not been reported to the supervisor as taken.
    owed: u64,
}

impl Process {
    /// Whether its end is the last event that is held.
    fn has_ended(&self) -> bool {
        matches!(
            self.held.back(),
            Some((_, ProcessEvent::ProcessEnded { .. }))
        )
    }
}

impl Processes {
    /// Whether a process runs, or an order waits.
    pub(super) fn are_running(&self) -> bool {
        self.alive().next().is_some() || !self.waiting.is_empty()
    }

    /// The processes that have not ended.
    fn alive(&self) -> impl Iterator<Item = (&u32, &Process)> {
        (self.running.iter()).filter(|(_, process)| !process.has_ended())
    }

    /// Bytes of arguments and variables of all processes.
    fn started(&self) -> usize {
        let starts = self.waiting.values().filter_map(|one| one.starts.as_ref());
        let starts = starts.map(|(_, process)| process);
        let all = self.running.values().chain(starts);
        all.map(|process| process.bytes).sum()
    }

    /// Whether a client listens to a process.
    pub(super) fn are_listened_to(&self) -> bool {
        let mut running = self.running.values();
        running.any(|process| !process.listeners.is_empty())
    }

    /// Drops all orders; returns the calls that wait for them.
    pub(super) fn take_callers(&mut self) -> impl Iterator<Item = Caller> + use<> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().map(|waiting| waiting.caller)
    }

    /// Drops the order of a call.
    pub(super) fn forget(&mut self, caller: &Caller) {
        self.waiting.retain(|_, waiting| waiting.caller != *caller);
    }
}

impl Session {
    /// Whether an order to start a process is carried out in the session's present cell.
    fn starts_processes(&self) -> bool {
        let is_changing = match self.current.as_ref().map(|current| current.doing) {
            None => self.suspension.is_some(),
            Some(doing) => !matches!(
                doing,
                Doing::Execute { .. }
                    | Doing::Describe
                    | Doing::File { .. }
                    | Doing::Compare { .. }
            ),
        };
        self.phase == Phase::Active && self.opened.is_some() && !is_changing
    }
}

impl Hub {
    /// `process.input`
    pub(super) fn give_input(
        &mut self,
        caller: &Caller,
        params: ProcessInput,
    ) -> Result<(), Failure> {
        let bytes = params.data.as_bytes().len();
        if bytes > LONGEST_INPUT {
            let message = format!("data: has {bytes} bytes, but wants at most {LONGEST_INPUT}");
            return Err(Failure::new(Code::BadParams, message).hint("give it in parts"));
        }
        let (link, process) = self.find_process(caller, &params.context, params.process)?;
        let data = params.data;
        self.order_process(
            link,
            caller,
            ProcessOrder::Input { process, data },
            bytes,
            None,
        )
    }

    /// `process.close_input`
    pub(super) fn close_input(
        &mut self,
        caller: &Caller,
        params: &ProcessName,
    ) -> Result<(), Failure> {
        let (link, process) = self.find_process(caller, &params.context, params.process)?;
        self.order_process(link, caller, ProcessOrder::CloseInput { process }, 0, None)
    }

    /// `process.signal`
    pub(super) fn signal_process(
        &mut self,
        caller: &Caller,
        params: &ProcessSignal,
    ) -> Result<(), Failure> {
        let signal = Signal::from_str(&params.signal).map_err(|_| {
            let shown: String = params.signal.chars().take(64).collect();
            let message = format!("signal: is {shown:?}, but wants a name such as SIGTERM");
            Failure::new(Code::BadParams, message).hint("signal(7) lists them")
        })?;
        let (link, process) = self.find_process(caller, &params.context, params.process)?;
        let signal = signal as i32;
        self.order_process(
            link,
            caller,
            ProcessOrder::Signal { process, signal },
            0,
            None,
        )
    }

    /// `process.resize`
    pub(super) fn resize_terminal(
        &mut self,
        caller: &Caller,
        params: &ProcessResize,
    ) -> Result<(), Failure> {
        let (link, process) = self.find_process(caller, &params.context, params.process)?;
        let terminal = params.terminal;
        self.order_process(
            link,
            caller,
            ProcessOrder::Resize { process, terminal },
            0,
            None,
        )
    }

    /// `process.connect`: from now on, output is sent as events of this call, and of no other call
    /// of its client.
    pub(super) fn connect_to_process(
        &mut self,
        caller: &Caller,
        params: &ProcessName,
    ) -> Result<(), Failure> {
        let (link, number) = self.find_process(caller, &params.context, params.process)?;
        let Some(process) = self.process(link, number) else {
            return Err(no_process(params.process));
        };
        // Once for each client, because events for a client that does not read are kept.
        process.listeners.retain(|(own, _)| *own != caller.client);
        if process.listeners.len() >= MOST_LISTENERS {
            let message = format!("{MOST_LISTENERS} clients listen to this process already");
            return Err(Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1)));
        }
        process.listeners.push((caller.client, caller.id.clone()));
        let started = ProcessStarted {
            context: params.context.clone(),
            process: params.process,
            pid: process.pid,
        };
        self.answer(caller, &started);
        Ok(())
    }

    /// `process.list`
    pub(super) fn list_processes(
        &mut self,
        caller: &Caller,
        params: &ContextName,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        let now = self.now;
        let session = self.sessions.get(&link);
        let bytes = session.map_or(0, |session| session.processes.started());
        if !self.unread.has_room(self.party_of(caller.client), bytes) {
            let message = "too many bytes wait to be read by this client's party already";
            return Err(Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1)));
        }
        let running = session.map(|session| session.processes.alive());
        let info = |(number, process): (&u32, &Process)| {
            let age = now.saturating_duration_since(process.began).as_millis();
            ProcessInfo {
                process: u64::from(*number),
                pid: process.pid,
                argv: process.argv.clone(),
                env: process.env.clone(),
                cwd: process.cwd.clone(),
                tag: process.tag.clone(),
                terminal: process.has_terminal,
                age_ms: u64::try_from(age).unwrap_or(u64::MAX),
            }
        };
        let processes = running.into_iter().flatten().map(info).collect();
        self.answer(caller, &ProcessList { processes });
        Ok(())
    }

    /// The session of a context; notes that it is used now.
    fn find_used(&mut self, caller: &Caller, context: &str) -> Result<LinkId, Failure> {
        let now = self.now;
        let context = self.find(caller, context)?;
        context.used = now;
        Ok(context.link)
    }

    /// Finds a process that runs in a context.
    fn find_process(
        &mut self,
        caller: &Caller,
        context: &str,
        process: u64,
    ) -> Result<(LinkId, u32), Failure> {
        let link = self.find_used(caller, context)?;
        let number = u32::try_from(process).ok();
        let found = number.filter(|number| {
            self.process(link, *number)
                .is_some_and(|process| !process.has_ended())
        });
        Ok((link, found.ok_or_else(|| no_process(process))?))
    }

    /// Sends an order about a process to the supervisor of a session.
    fn order_process(
        &mut self,
        link: LinkId,
        caller: &Caller,
        what: ProcessOrder,
        bytes: usize,
        starts: Option<(u32, Process)>,
    ) -> Result<(), Failure> {
        let Some(session) = self.sessions.get_mut(&link) else {
            return Err(Failure::new(Code::Lost, "the context's cell is gone"));
        };
        let processes = &mut session.processes;
        let waiting = processes.waiting.values().map(|waiting| waiting.bytes);
        let is_too_much = waiting.sum::<usize>() + bytes > MOST_INPUT;
        // Input that a process does not read must not keep it from being killed.
        let is_slow = matches!(what, ProcessOrder::Start(_) | ProcessOrder::Input { .. });
        let alike = processes.waiting.values();
        let alike = alike.filter(|waiting| waiting.is_slow == is_slow).count();
        if alike >= MOST_ORDERS || is_too_much {
            let message = "too many calls about processes of this context are unanswered";
            let failure = Failure::new(Code::Busy, message);
            return Err(failure.retry_after(Duration::from_millis(100)));
        }
        processes.orders += 1;
        let id = processes.orders;
        let is_start = starts.is_some();
        let caller = caller.clone();
        processes.waiting.insert(
            id,
            Waiting {
                caller: caller.clone(),
                bytes,
                is_slow,
                starts,
            },
        );
        let order = json_of(&Order::Process { id, what });
        if is_start && !session.starts_processes() {
            session.push(Some(caller.clone()), Work::Process(order));
            self.place(&caller, link);
            self.pump(link);
        } else {
            self.place(&caller, link);
            self.actions.push_back(Action::Order(link, order));
        }
        Ok(())
    }

    /// An order about a process was carried out.
    pub(super) fn process_done(&mut self, link: LinkId, id: u64, pid: Option<i32>) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let Some(waiting) = session.processes.waiting.remove(&id) else {
            return;
        };
        let Some((number, process)) = waiting.starts else {
            return self.answer(&waiting.caller, &Done { done: true });
        };
        let pid = pid.unwrap_or_default();
        let process = Process { pid, ..process };
        session.processes.running.insert(number, process);
        let context = session.kind.context().unwrap_or_default().to_owned();
        let started = ProcessStarted {
            context,
            process: u64::from(number),
            pid,
        };
        self.answer(&waiting.caller, &started);
        if !self.clients.contains_key(&waiting.caller.client) {
            self.leave_processes(waiting.caller.client);
        }
    }

    /// An order about a process was not carried out.
    pub(super) fn process_failed(&mut self, link: LinkId, id: Option<u64>, error: &SetupError) {
        let session = self.sessions.get_mut(&link);
        let waiting = session
            .zip(id)
            .and_then(|(session, id)| session.processes.waiting.remove(&id));
        if let Some(waiting) = waiting {
            self.fail(&waiting.caller, Failure::of(error));
        }
    }
}

fn no_process(number: u64) -> Failure {
    let message = format!("no process {number} runs in this context");
    Failure::new(Code::NotFound, message).hint("process.list shows those that run")
}
