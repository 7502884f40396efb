//! Output of processes, on its way to the clients that listen.
//!
//! It is passed on as long as every client that listens to the process has room for more. Otherwise
//! it is held, once for all clients. A supervisor stops reading from a process when the process's
//! share of the window has not been taken, so a client that does not read keeps one process
//! waiting, and not its context. Where no client listens, output is dropped.

use nix::sys::signal::Signal;
use supervisor::{Order, ProcessOrder};

use super::super::client::json_of;
use super::{Process, Processes};
use crate::hub::{Action, ClientId, Hub, LinkId};
use crate::protocol::{CallId, ProcessEvent};

/// Bytes of output after which a supervisor gets the order that they were taken: no more than
/// the smallest share that it lets be on its way.
const TAKEN: u64 = 8 << 10;

impl Hub {
    /// A process wrote `bytes` bytes, or has ended.
    pub(in crate::hub) fn process_event(
        &mut self,
        link: LinkId,
        number: u32,
        bytes: u64,
        event: ProcessEvent,
    ) {
        let process = self.process(link, number);
        let Some(process) = process.filter(|process| !process.has_ended()) else {
            return;
        };
        process.held.push_back((bytes, event));
        if process.held.len() == 1 {
            self.held.push_back((link, number));
        }
        self.pass_on();
    }

    /// Passes one held event on. False when no event is held for which all listeners have room.
    ///
    /// One at a time, since it can leave a client without room.
    pub fn pass_on(&mut self) -> bool {
        for _ in 0..self.held.len() {
            let Some((link, number)) = self.held.pop_front() else {
                break;
            };
            let session = self.sessions.get_mut(&link);
            let process = session.and_then(|session| session.processes.running.get_mut(&number));
            // The process may have ended with its cell.
            let Some(process) = process else {
                continue;
            };
            let clients = &self.clients;
            let is_full = |(client, _): &(ClientId, CallId)| {
                clients.get(client).is_some_and(|client| client.is_full)
            };
            if process.listeners.iter().any(is_full) {
                self.held.push_back((link, number));
                continue;
            }
            let Some((bytes, event)) = process.held.pop_front() else {
                continue;
            };
            if !process.held.is_empty() {
                self.held.push_back((link, number));
            }
            let listeners = process.listeners.clone();
            self.tell_all(&listeners, &event);
            match event {
                ProcessEvent::ProcessOutput { .. } => self.note_taken(link, number, bytes),
                ProcessEvent::ProcessEnded { .. } => self.remove_process(link, number),
            }
            return true;
        }
        false
    }

    /// Sends an event to all listeners, except empty output, which only counts bytes.
    fn tell_all(&mut self, listeners: &[(ClientId, CallId)], event: &ProcessEvent) {
        let is_empty = matches!(event, ProcessEvent::ProcessOutput { text, .. } if text.is_empty());
        if !listeners.is_empty() && !is_empty {
            let event = json_of(event);
            for (client, call) in listeners {
                self.tell(*client, Some(call), &event);
            }
        }
    }

    pub(super) fn process(&mut self, link: LinkId, number: u32) -> Option<&mut Process> {
        let session = self.sessions.get_mut(&link)?;
        session.processes.running.get_mut(&number)
    }

    fn remove_process(&mut self, link: LinkId, number: u32) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.processes.running.remove(&number);
        }
        self.touch_session(link);
    }

    /// Reports output as taken, so that the supervisor reads on from the process.
    fn note_taken(&mut self, link: LinkId, number: u32, bytes: u64) {
        let Some(process) = self.process(link, number) else {
            return;
        };
        process.owed = process.owed.saturating_add(bytes);
        if process.owed < TAKEN {
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

    /// Notes whether too much waits for a client, so that it gets no output of processes now.
    pub fn note_full(&mut self, client: ClientId, is_full: bool) {
        if let Some(state) = self.clients.get_mut(&client) {
            state.is_full = is_full;
        }
    }

    /// Notes that a client is gone: it no longer listens, and processes attached to it are ended.
    pub(in crate::hub) fn leave_processes(&mut self, client: ClientId) {
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
        for link in left {
            self.touch_session(link);
        }
    }

    /// Reports the end of all processes of a session that is gone. Held output goes only to clients
    /// that have room: otherwise it would have no bound when cells end one after another.
    pub(in crate::hub) fn end_processes(&mut self, processes: Processes, why: &str) {
        for (number, process) in processes.running {
            let ended = ProcessEvent::ProcessEnded {
                process: u64::from(number),
                exit_code: None,
                signal: None,
                why: Some(why.to_owned()),
            };
            let has_ended = process.has_ended();
            let held = process.held.iter().map(|(_, event)| event);
            let events = held.chain((!has_ended).then_some(&ended));
            let events: Vec<String> = events.map(json_of).collect();
            for (client, call) in process.listeners {
                let state = self.clients.get(&client);
                let skipped = match state.is_some_and(|client| client.is_full) {
                    true => events.len() - 1,
                    false => 0,
                };
                for event in &events[skipped..] {
                    self.tell(client, Some(&call), event);
                }
            }
        }
    }
}
