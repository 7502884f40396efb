//! Carrying out orders about processes.

use std::os::fd::AsFd as _;
use std::time::Instant;

use nix::sys::signal::Signal;

use super::{
    MOST, MOST_LISTENERS, Output, ProcessOrder, ProcessStart, START_DEADLINE, Starting, closed,
};
use crate::cell::Cell;
use crate::watch::SHARED_DEADLINE;
use jail::child::command::{Command, ProcessStreams, send_process};
use jail::child::parcel;
use jail::launch::process_pipes;
use record::error::{Result, SetupError, Step};
use sys::process::take_descriptors;
use sys::terminal::Size;

impl Cell<'_> {
    /// Carries out an order; its answer may come later.
    pub(crate) fn order_process(&mut self, order: u64, what: ProcessOrder) {
        let done = match what {
            ProcessOrder::Start(start) => self.start_process(order, *start),
            ProcessOrder::Input(number, bytes) => self.give_input(order, number, bytes),
            ProcessOrder::CloseInput(number) => self.close_input(number).map(Some),
            ProcessOrder::Signal(number, signal) => self.signal_process(number, signal).map(Some),
            ProcessOrder::Resize(number, size) => self.resize_terminal(number, size).map(Some),
            ProcessOrder::Taken(number, bytes) => {
                if let Some(process) = self.processes.running.get_mut(&number) {
                    process.on_way = process.on_way.saturating_sub(bytes);
                }
                return;
            }
        };
        match done {
            Ok(None) => {}
            Ok(Some(())) => self.processes.answers.push((order, Ok(None))),
            Err(error) => self.processes.answers.push((order, Err(error))),
        }
    }

    fn start_process(&mut self, order: u64, start: ProcessStart) -> Result<Option<()>> {
        let most = match self.is_shared() {
            true => SHARED_DEADLINE,
            false => START_DEADLINE,
        };
        let processes = &mut self.processes;
        if processes.running.len() >= MOST {
            let message = format!("{MOST} processes run in this context already");
            return Err(SetupError::new(Step::Supervise, message).hint("end one of them"));
        }
        if processes.listeners.len() >= MOST_LISTENERS {
            let message = "too many processes have ended whose children still run";
            return Err(SetupError::new(Step::Supervise, message)
                .hint("end the children, or restart the context"));
        }
        let program = self
            .plan
            .program
            .beside(&start.argv, &start.env, start.cwd.as_deref());
        program.check_lengths()?;
        let parcel = parcel::pack_program(&program)?;
        let (pipes, streams) = match start.terminal {
            Some(size) => (None, ProcessStreams::Terminal(size)),
            None => {
                let (ours, theirs) = process_pipes(start.input)?;
                (Some(ours), ProcessStreams::Pipes(theirs))
            }
        };
        let report = self.running.report.as_fd();
        // Only the answer to this order carries descriptors. Older kernels do not have the option.
        let _ = take_descriptors(report, true);
        send_process(report, start.number, parcel.as_fd(), &streams)
            .map_err(|errno| SetupError::os(Step::Supervise, "sendmsg", errno))?;
        processes.starting = Some(Starting {
            order,
            number: start.number,
            program,
            pipes,
            wall: start.wall,
            deadline: Instant::now() + most,
        });
        Ok(None)
    }

    /// Notes that init has answered the order to start a process.
    pub(crate) fn process_is_started(&self) {
        let _ = take_descriptors(self.running.report.as_fd(), false);
    }

    fn give_input(&mut self, order: u64, number: u32, bytes: Vec<u8>) -> Result<Option<()>> {
        let input = self.processes.find(number)?.input.as_mut();
        let input = input
            .filter(|input| input.is_open())
            .ok_or_else(|| closed(number))?;
        input.add(order, bytes);
        self.processes.write(number);
        Ok(None)
    }

    fn close_input(&mut self, number: u32) -> Result<()> {
        let process = self.processes.find(number)?;
        if process.is_terminal {
            let message = "the input of a terminal does not end";
            return Err(SetupError::new(Step::Supervise, message)
                .on(number)
                .hint("give it the byte 4 (Ctrl-D) as input"));
        }
        process
            .input
            .as_mut()
            .ok_or_else(|| closed(number))?
            .close();
        self.processes.write(number);
        Ok(())
    }

    fn signal_process(&mut self, number: u32, signal: Signal) -> Result<()> {
        self.processes.find(number)?;
        match self.order(Command::SignalProcess(number, signal)) {
            true => Ok(()),
            false => Err(SetupError::new(Step::Supervise, "the cell is ending")),
        }
    }

    fn resize_terminal(&mut self, number: u32, [rows, columns]: [u16; 2]) -> Result<()> {
        let process = self.processes.find(number)?;
        let terminal = process.output.first().filter(|_| process.is_terminal);
        let fd = terminal.and_then(Output::fd).ok_or_else(|| {
            SetupError::new(Step::Supervise, "the process has no terminal").on(number)
        })?;
        (Size::new(rows, columns).apply(fd))
            .map_err(|errno| SetupError::os(Step::Supervise, "ioctl", errno).on(number))
    }

    /// Ends processes whose wall time is over; false when init does not start one in time.
    pub(crate) fn check_processes(&mut self, now: Instant) -> bool {
        let report = self.running.report.as_fd();
        let kill = |number| {
            let order = Command::SignalProcess(number, Signal::SIGKILL);
            order.send(report).is_ok()
        };
        self.processes.end_late(now, kill);
        let starting = self.processes.starting.as_ref();
        starting.is_none_or(|starting| starting.deadline > now)
    }

    /// Answers calls that were denied to processes.
    pub(crate) fn answer_denied(&mut self, index: usize) {
        let processes = &mut self.processes;
        let Some(listener) = processes.listeners.get(index) else {
            return;
        };
        let own = &self.denials;
        let denials = processes.denials.get_or_insert_with(|| own.clone());
        let pace = &mut self.paces.denials;
        if !pace.turn(|turn| denials.answer(listener.as_fd(), true, turn, |_| {})) {
            processes.listeners.swap_remove(index);
        }
        self.hasten_check();
    }
}
