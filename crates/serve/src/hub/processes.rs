//! Processes in contexts' cells, beside their interpreters.
//!
//! Calls about them do not wait for executions. A process belongs to its context; clients
//! only listen to it. Its output is taken as long as every client that listens has room for
//! more: a supervisor does not read on from a process of which a window was not taken, so
//! that a client that does not read keeps one process waiting, and not its context. Where
//! no client listens, output is dropped.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use cell::server::{Order, ProcessOrder, ProcessStart as StartOrder};
use nix::sys::signal::Signal;
use record::bytes::RawText;
use record::error::SetupError;

use super::client::{Caller, json_of};
use super::contexts::check_label;
use super::requests::millis;
use super::session::{Doing, Phase, Session, Work};
use super::{Action, ClientId, Hub, LinkId};
use crate::protocol::{
    CallId, Code, ContextName, Done, Failure, ProcessEvent, ProcessInfo, ProcessInput, ProcessList,
    ProcessName, ProcessResize, ProcessSignal, ProcessStart, ProcessStarted,
};

/// The most calls about processes of one context that are not answered.
const MOST_ORDERS: usize = 64;
/// Bytes of the longest input.
const LONGEST_INPUT: usize = 1 << 20;
/// Bytes of input to one context that processes have not taken.
const MOST_INPUT: usize = 4 << 20;
/// The most calls that listen to one process.
const MOST_LISTENERS: usize = 16;
/// Bytes of output after which a supervisor is told that they were taken: a part of what
/// it lets be on its way.
const TAKEN: u64 = 64 << 10;

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
    /// What it starts.
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
    /// Calls whose clients get its output.
    listeners: Vec<(ClientId, CallId)>,
    /// The client with which it ends.
    attached_to: Option<ClientId>,
    /// Bytes of output that the supervisor does not know to be taken.
    owed: u64,
}

impl Processes {
    /// Whether there is one, or will be.
    pub(super) fn are_running(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// Whether a client listens to one.
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

    /// The processes are gone; returns who listened to each.
    pub(super) fn take_listeners(&mut self) -> Vec<(u32, Vec<(ClientId, CallId)>)> {
        let running = std::mem::take(&mut self.running).into_iter();
        running
            .map(|(number, process)| (number, process.listeners))
            .collect()
    }
}

impl Session {
    /// Whether an order to start a process is carried out in the cell that it has now.
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
    /// `process.start`
    pub(super) fn start_process(
        &mut self,
        caller: &Caller,
        params: ProcessStart,
    ) -> Result<(), Failure> {
        check_label(params.tag.as_deref()).map_err(|failure| Failure {
            message: failure.message.replace("label:", "tag:"),
            ..failure
        })?;
        let argv = argv_of(params.argv, params.command)?;
        check_environment(&params.env)?;
        if params.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
            return Err(Failure::new(Code::BadParams, "cwd: wants an absolute path"));
        }
        if (params.terminal).is_some_and(|size| size.rows == 0 || size.columns == 0) {
            let message = "terminal: wants at least 1 row and 1 column";
            return Err(Failure::new(Code::BadParams, message));
        }
        self.refuse_while_draining()?;
        let link = self.find_used(caller, &params.context)?;
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&link) else {
            return Err(Failure::new(Code::Lost, "the context's cell is gone"));
        };
        session.processes.last += 1;
        let number = session.processes.last;
        let order = ProcessOrder::Start(StartOrder {
            process: number,
            argv: argv.clone(),
            env: params.env.clone(),
            cwd: params.cwd.clone(),
            input: params.input,
            terminal: params.terminal,
            wall_ms: params.wall.and_then(millis),
        });
        let process = Process {
            pid: 0,
            argv,
            env: params.env,
            cwd: params.cwd,
            tag: params.tag,
            has_terminal: params.terminal.is_some(),
            began: now,
            listeners: match params.events {
                true => vec![(caller.client, caller.id.clone())],
                false => Vec::new(),
            },
            attached_to: params.attached.then_some(caller.client),
            owed: 0,
        };
        self.order_process(link, caller, order, 0, Some((number, process)))
    }

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

    /// `process.connect`: output is events of this call from now on.
    pub(super) fn connect_to_process(
        &mut self,
        caller: &Caller,
        params: &ProcessName,
    ) -> Result<(), Failure> {
        let (link, number) = self.find_process(caller, &params.context, params.process)?;
        let processes = self
            .sessions
            .get_mut(&link)
            .map(|session| &mut session.processes);
        let process = processes.and_then(|processes| processes.running.get_mut(&number));
        let Some(process) = process else {
            return Err(no_process(params.process));
        };
        if process.listeners.len() >= MOST_LISTENERS {
            let message = format!("{MOST_LISTENERS} calls listen to this process already");
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
        let running = self
            .sessions
            .get(&link)
            .map(|session| &session.processes.running);
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

    /// The session of a context, which is used now.
    fn find_used(&mut self, caller: &Caller, context: &str) -> Result<LinkId, Failure> {
        let now = self.now;
        let context = self.find(caller, context)?;
        context.used = now;
        Ok(context.link)
    }

    /// A process that runs in a context.
    fn find_process(
        &mut self,
        caller: &Caller,
        context: &str,
        process: u64,
    ) -> Result<(LinkId, u32), Failure> {
        let link = self.find_used(caller, context)?;
        let running = self
            .sessions
            .get(&link)
            .map(|session| &session.processes.running);
        let number = u32::try_from(process).ok();
        let found = number.filter(|number| running.is_some_and(|all| all.contains_key(number)));
        Ok((link, found.ok_or_else(|| no_process(process))?))
    }

    /// Has the supervisor of a session do something with a process.
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
        if processes.waiting.len() >= MOST_ORDERS || is_too_much {
            let message = "too many calls about processes of this context are not answered";
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
        let context = match &session.kind {
            super::session::Kind::Context(key) => key.name.clone(),
            _ => String::new(),
        };
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

    /// A process wrote `bytes` bytes.
    pub(super) fn process_output(
        &mut self,
        link: LinkId,
        number: u32,
        bytes: u64,
        event: &ProcessEvent,
    ) {
        let Some(process) = self.process(link, number) else {
            return;
        };
        process.owed = process.owed.saturating_add(bytes);
        let listeners = process.listeners.clone();
        let is_empty = matches!(event, ProcessEvent::ProcessOutput { text, .. } if text.is_empty());
        if !listeners.is_empty() && !is_empty {
            let event = json_of(event);
            for (client, call) in &listeners {
                self.tell(*client, Some(call), &event);
            }
        }
        self.take_output(link, number);
    }

    /// A process has ended.
    pub(super) fn process_ended(&mut self, link: LinkId, number: u32, event: &ProcessEvent) {
        let session = self.sessions.get_mut(&link);
        let process = session.and_then(|session| session.processes.running.remove(&number));
        for (client, call) in process.into_iter().flat_map(|process| process.listeners) {
            self.tell(client, Some(&call), &json_of(event));
        }
        self.touch_session(link);
    }

    fn process(&mut self, link: LinkId, number: u32) -> Option<&mut Process> {
        let session = self.sessions.get_mut(&link)?;
        session.processes.running.get_mut(&number)
    }

    /// Has a supervisor read on from a process, if all that listen have room.
    fn take_output(&mut self, link: LinkId, number: u32) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let Some(process) = session.processes.running.get_mut(&number) else {
            return;
        };
        let clients = &self.clients;
        let is_full = |(client, _): &(ClientId, CallId)| {
            clients.get(client).is_some_and(|client| client.is_full)
        };
        if process.owed < TAKEN || process.listeners.iter().any(is_full) {
            return;
        }
        let what = ProcessOrder::Taken {
            process: number,
            bytes: std::mem::take(&mut process.owed),
        };
        // It has no answer, and so needs no number of its own.
        let order = json_of(&Order::Process { id: 0, what });
        self.actions.push_back(Action::Order(link, order));
    }

    /// Whether a client has too much to read before it gets more output of processes.
    pub fn note_full(&mut self, client: ClientId, is_full: bool) {
        let state = self.clients.get_mut(&client);
        let Some(state) = state.filter(|state| state.is_full != is_full) else {
            return;
        };
        state.is_full = is_full;
        if !is_full {
            self.take_output_for(|(own, _)| *own == client);
        }
    }

    /// A client is gone: it listens no more, and what is attached to it ends.
    pub(super) fn leave_processes(&mut self, client: ClientId) {
        let mut left = Vec::new();
        for (link, session) in &mut self.sessions {
            for (number, process) in &mut session.processes.running {
                if process.attached_to == Some(client) {
                    let what = ProcessOrder::Signal {
                        process: *number,
                        signal: Signal::SIGKILL as i32,
                    };
                    // No call waits for its answer.
                    let order = json_of(&Order::Process { id: 0, what });
                    self.actions.push_back(Action::Order(*link, order));
                }
                let before = process.listeners.len();
                process.listeners.retain(|(own, _)| *own != client);
                if process.listeners.len() < before {
                    left.push(*link);
                }
            }
        }
        for link in &left {
            self.touch_session(*link);
        }
        if !left.is_empty() {
            self.take_output_for(|_| true);
        }
    }

    /// Has supervisors read on from processes to which one of these listens, or no client.
    fn take_output_for(&mut self, is_meant: impl Fn(&(ClientId, CallId)) -> bool) {
        let mut found = Vec::new();
        for (link, session) in &self.sessions {
            for (number, process) in &session.processes.running {
                let listeners = &process.listeners;
                if listeners.is_empty() || listeners.iter().any(&is_meant) {
                    found.push((*link, *number));
                }
            }
        }
        for (link, number) in found {
            self.take_output(link, number);
        }
    }

    /// The processes of a session that is gone have ended.
    pub(super) fn end_processes(&mut self, mut processes: Processes, why: &str) {
        for (number, listeners) in processes.take_listeners() {
            let event = json_of(&ProcessEvent::ProcessEnded {
                process: u64::from(number),
                exit_code: None,
                signal: None,
                why: Some(why.to_owned()),
            });
            for (client, call) in listeners {
                self.tell(client, Some(&call), &event);
            }
        }
    }
}

fn argv_of(argv: Option<Vec<RawText>>, command: Option<RawText>) -> Result<Vec<RawText>, Failure> {
    let has_zero = |text: &RawText| text.as_bytes().contains(&0);
    let argv = match (argv, command) {
        (Some(argv), None) if !argv.is_empty() => argv,
        (None, Some(command)) => vec!["sh".into(), "-c".into(), command],
        _ => {
            let message = "wants exactly one of `argv`, with a program, and `command`";
            return Err(Failure::new(Code::BadParams, message));
        }
    };
    match argv.iter().any(has_zero) {
        true => Err(Failure::new(
            Code::BadParams,
            "argv: has a byte 0, and no argument can",
        )),
        false => Ok(argv),
    }
}

fn check_environment(env: &BTreeMap<String, RawText>) -> Result<(), Failure> {
    let is_odd = |(name, value): &(&String, &RawText)| {
        name.is_empty() || name.contains(['=', '\0']) || value.as_bytes().contains(&0)
    };
    match env.iter().find(is_odd) {
        None => Ok(()),
        Some((name, _)) => {
            let shown: String = name.chars().take(64).collect();
            let message =
                format!("env: {shown:?} is not a variable: it is empty, or has = or a byte 0");
            Err(Failure::new(Code::BadParams, message))
        }
    }
}

fn no_process(number: u64) -> Failure {
    let message = format!("no process {number} runs in this context");
    Failure::new(Code::NotFound, message).hint("process.list shows those that run")
}
