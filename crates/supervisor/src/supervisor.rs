//! The supervisor of one cell: carries out the front end's orders, in their sequence.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::guests::Place;
use super::mailbox::{Closed, Mailbox, Task};
use super::processes::cell_ended;
use super::{Base, Execute, FileOrder, Layout, Open, Order, OrderName, Report, State};
use engine::context::{Answer, Checkpoint, Context, Execution, Part, WorkspaceEdit};
use engine::run::{Ahead, Events, Stock};
use record::error::{Result, SetupError, Step};
use record::{Record, Start};
use spec::Spec;
use spec::counted::Files;
use supervise::{BlockedSignals, Cancel, Control};

/// How long the front end may take no report once the cell is gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of an error's words.
const LONGEST_WORDS: usize = 2000;
/// The name of code that has none.
const UNNAMED: &str = "main";

/// The life of a supervisor: orders come from `socket`, whose end ends the cell. An
/// interpreter can be forked from the template of `stock`.
pub(super) fn serve(socket: OwnedFd, base: &Base, stock: Option<&Stock>) -> ! {
    live(socket, base, stock, None)
}

/// Serves as the supervisor of an interpreter in another supervisor's cell, until that cell ends.
pub(super) fn serve_in(socket: OwnedFd, base: &Base, place: Place<'_>) -> ! {
    live(socket, base, None, Some(place))
}

fn live(socket: OwnedFd, base: &Base, stock: Option<&Stock>, place: Option<Place<'_>>) -> ! {
    let status = match (Mailbox::new(socket), BlockedSignals::block()) {
        (Ok(mailbox), Ok(signals)) => {
            Supervisor {
                mailbox,
                base,
                stock,
                place,
                signals: &signals,
                ahead: None,
                opened: None,
                last: 0,
            }
            .run();
            0
        }
        _ => 1,
    };
    sys::process::exit_now(status)
}

struct Supervisor<'s> {
    mailbox: Mailbox,
    base: &'s Base,
    stock: Option<&'s Stock>,
    /// Another supervisor's cell, in which its interpreter is.
    place: Option<Place<'s>>,
    signals: &'s BlockedSignals,
    /// A blank cell, until it is known what it is for.
    ahead: Option<Ahead<'s>>,
    opened: Option<Opened<'s>>,
    /// The number of the last execution.
    last: u64,
}

/// The cell, and how it is to be used.
struct Opened<'s> {
    context: Context<'s>,
    is_lasting: bool,
    /// Whether the request says what to execute.
    has_code: bool,
    idle: Option<Duration>,
    /// Since when it executes nothing.
    rests_since: Instant,
}

impl<'s> Supervisor<'s> {
    /// Carries out orders until the end; reports why, unless it was ordered.
    fn run(&mut self) {
        let why = self.serve();
        if let Some(Opened { context, .. }) = self.opened.take() {
            context.end();
        }
        self.mailbox.check_processes(None);
        self.mailbox.refuse_process_orders(false, &cell_ended());
        self.mailbox.guests.refuse(&cell_ended());
        self.mailbox.report(&Report::Ended { why });
        let until = Instant::now() + PATIENCE;
        while let Some(fd) = self.mailbox.writes() {
            let mut ready = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLOUT)];
            if Instant::now() > until || nix::poll::poll(&mut ready, 100_u16).is_err() {
                break;
            }
            self.mailbox.flush();
        }
    }

    fn serve(&mut self) -> Option<String> {
        loop {
            let context = self.opened.as_ref().map(|opened| &opened.context);
            self.mailbox.check_watches(context);
            self.mailbox.check_processes(context);
            match self.mailbox.closed() {
                None => {}
                Some(Closed::Garbage(why)) => return Some(why),
                Some(Closed::Ordered | Closed::Gone) => return None,
            }
            if self.place.is_some_and(|place| place.cell.is_gone()) {
                return Some("the cell that it shared has ended".to_owned());
            }
            let mut until = self.opened.as_ref().and_then(Opened::ends_at);
            if let Some(task) = self.mailbox.next() {
                self.carry_out(task);
                if let Some(opened) = &mut self.opened {
                    opened.rests_since = Instant::now();
                }
                // Processes are served between two tasks.
                until = Some(Instant::now());
            } else if until.is_some_and(|until| until <= Instant::now()) {
                return Some("it exceeded its idle limit".to_owned());
            }
            if let Err(error) = self.rest(until) {
                return Some(error.to_string());
            }
        }
    }

    /// Watches the cell until this time, or until there is something else to do.
    fn rest(&mut self, until: Option<Instant>) -> Result<()> {
        let Some(Opened { context, .. }) = &mut self.opened else {
            self.mailbox.refuse_process_orders(false, &not_open());
            self.mailbox.guests.refuse(&not_open());
            return supervise::wait(&self.mailbox, until, None);
        };
        if self.mailbox.has_process_orders() && context.cell().is_none() {
            let gone = SetupError::new(Step::Supervise, "no process with this number runs");
            self.mailbox.refuse_process_orders(true, &gone);
            if self.mailbox.has_process_orders()
                && let Err(error) = context.prepare()
            {
                self.mailbox.refuse_process_orders(false, &error);
            }
        }
        if self.mailbox.guests.wait()
            && context.cell().is_none()
            && let Err(error) = context.prepare()
        {
            self.mailbox.guests.refuse(&error);
        }
        let had_cell = context.cell().is_some();
        context.rest(&self.mailbox, until)?;
        if had_cell && context.cell().is_none() {
            // The cell could not be made: these orders do not try it again for ever.
            self.mailbox.refuse_process_orders(false, &cell_ended());
            self.mailbox.guests.refuse(&cell_ended());
        }
        Ok(())
    }

    fn carry_out(&mut self, task: Task) {
        let order = match task {
            Task::Order(order) => order,
            Task::Refused(order, id, error) => return self.fail(order, id, error),
            Task::Cancelled(execution) => {
                if let Some(opened) = &self.opened {
                    self.answer(execution, opened.context.cancelled());
                }
                return;
            }
        };
        let (name, id) = order.name();
        let done = match order {
            Order::Open(open) => self.open(&open),
            Order::Execute(execute) => self.execute(&execute),
            Order::Restart => self.restart(),
            Order::Describe => self.describe(),
            Order::File { id, what } => self.file(id, what),
            Order::Checkpoint { id, to, most } => self.checkpoint(id, &to, most),
            Order::Restore {
                id,
                from,
                layout,
                why,
            } => self.restore(id, &from, layout, why),
            Order::Compare { id, with } => self.compare(id, &with),
            Order::Remember => self.remember(),
            Order::Resume { id } => self.resume(id),
            // These take effect when they arrive; the cell gets those about processes and guests.
            Order::Interrupt { .. }
            | Order::Cancel { .. }
            | Order::Stop { .. }
            | Order::Process { .. }
            | Order::Admit
            | Order::End => Ok(()),
        };
        self.mailbox.task_is_over();
        if let Err(error) = done {
            self.fail(name, id, error);
        }
    }

    fn fail(&self, order: OrderName, id: Option<u64>, error: SetupError) {
        let opened = match order {
            OrderName::Restore | OrderName::Resume | OrderName::Restart => self.opened.as_ref(),
            _ => None,
        };
        let (state, why) = opened.map(|opened| opened.context.next_state()).unzip();
        let mut error = hints::explain(error);
        // What a client sent can be part of it.
        for text in [Some(&mut error.message), error.operand.as_mut()] {
            if let Some(text) = text
                && let Some((head, gap, tail)) = record::words::ends(text, LONGEST_WORDS)
            {
                *text = format!("{head}[… {gap} left out …]{tail}");
            }
        }
        self.mailbox.report(&Report::Failed {
            order,
            id,
            error,
            state,
            why: why.flatten(),
        });
    }

    fn open(&mut self, open: &Open) -> Result<()> {
        if self.opened.is_some() {
            return Err(SetupError::new(Step::Spec, "the cell is open already").on("open"));
        }
        let cancel = Cancel {
            signals: Some(self.signals),
            parent: None,
        };
        let (spec, has_code) = self.base.request(open.request.get(), open.lasting)?;
        if open.blank {
            return self.open_blank(&spec, cancel);
        }
        let mut context = match self.place {
            None => {
                if open.lasting {
                    self.mailbox.guests.note_cell(self.base, &spec);
                }
                Context::new(spec, cancel, self.ahead.take())?
            }
            Some(place) => Context::in_shared(place.spec(spec)?, cancel, place.cell)?,
        };
        if open.fixed_layout {
            context.fix_layout();
        }
        if open.lasting {
            context.require_lasting()?;
            if open.forked {
                context.fork_from(self.stock, open.awaited);
            }
            if open.ready {
                context.prepare()?;
            }
        }
        self.mailbox.report(&Report::Opened {
            id: context.id().to_owned(),
            language: context.language().map(str::to_owned),
            rootfs: context.rootfs().to_owned(),
            forked: context.is_forked(),
            template: context.template().filter(|_| context.is_forked()),
        });
        self.opened = Some(Opened {
            context,
            is_lasting: open.lasting,
            has_code,
            idle: open.idle_ms.map(Duration::from_millis),
            rests_since: Instant::now(),
        });
        Ok(())
    }

    /// Makes a blank cell for a later `open`.
    fn open_blank(&mut self, spec: &Spec, cancel: Cancel<'s>) -> Result<()> {
        let resolved = engine::run::resolve(spec)?;
        let (id, rootfs) = resolved.plan.names();
        self.ahead = Some(Ahead::make(resolved, cancel)?);
        self.mailbox.report(&Report::Opened {
            id,
            language: spec.language().map(str::to_owned),
            rootfs,
            forked: false,
            template: None,
        });
        Ok(())
    }

    fn execute(&mut self, execute: &Execute) -> Result<()> {
        let number = execute.execution;
        let Some(opened) = &mut self.opened else {
            return Err(not_open());
        };
        if number <= self.last {
            let message = "an execution's number is larger than the one before";
            return Err(SetupError::new(Step::Spec, message).on(number));
        }
        self.last = number;
        if opened.is_lasting && opened.context.language().is_none() {
            let message = "the context has no interpreter, since it was created without a language";
            return Err(SetupError::new(Step::Spec, message)
                .hint("start an interpreter as a process, or create a context with a language"));
        }
        if execute.code.is_none() && !opened.has_code {
            return Err(SetupError::new(Step::Spec, "there is no code to execute").on("code"));
        }
        let code = (execute.code.as_ref()).map(|code| code.read("code"));
        let code = code.transpose()?;
        let events = execute.events.then(|| {
            let envelope = [
                format!("{{\"event\":{{\"execution\":{number},\"event\":"),
                "}}".to_owned(),
            ];
            Events::among_others(Rc::clone(self.mailbox.out()), envelope, Instant::now())
        });
        let name = execute.name.as_deref().unwrap_or(UNNAMED);
        let code = (code.as_ref()).map(|code| (code, name, execute.args.as_slice()));
        let execution = Execution {
            number,
            code,
            wall: execute.wall_ms.map(Duration::from_millis),
            grace: execute.grace_ms.map(Duration::from_millis),
            is_last: execute.last || !opened.is_lasting,
        };
        let control = Some(&self.mailbox as &dyn Control);
        let answer = opened.context.execute(&execution, events.as_ref(), control);
        self.answer(number, answer);
        self.mailbox.flush();
        if let Some(opened) = &mut self.opened {
            opened.context.clear();
        }
        Ok(())
    }

    fn answer(&self, execution: u64, answer: Answer) {
        let Answer { record, state, why } = answer;
        self.mailbox.report(&LargeReport::Answer {
            execution,
            state,
            why,
            start: record.start,
            is_alive: (self.opened.as_ref()).is_some_and(|opened| opened.context.is_alive()),
            record: &record,
        });
    }

    fn restart(&mut self) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        opened.context.restart()?;
        let id = opened.context.id().to_owned();
        self.mailbox.report(&Report::Restarted { id });
        Ok(())
    }

    fn describe(&mut self) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let description = raw(&opened.context.describe(&self.mailbox)?)?;
        self.mailbox.report(&Report::Described { description });
        Ok(())
    }

    fn checkpoint(&mut self, id: u64, to: &Path, most: Option<u64>) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let Checkpoint {
            bytes,
            layout,
            left_out,
        } = opened.context.checkpoint(to, most)?;
        self.mailbox.report(&Report::Checkpointed {
            id,
            bytes,
            layout,
            left_out,
        });
        Ok(())
    }

    fn restore(&mut self, id: u64, from: &Path, layout: Layout, why: Option<String>) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let control = Some(&self.mailbox as &dyn Control);
        let (state, why) = opened.context.restore(from, layout, why, control)?;
        self.mailbox.report(&Report::Restored { id, state, why });
        Ok(())
    }

    fn remember(&mut self) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        opened.context.keep_history();
        Ok(())
    }

    fn resume(&mut self, id: u64) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let control = Some(&self.mailbox as &dyn Control);
        let (state, why) = opened.context.resume(control)?;
        self.mailbox.report(&Report::Restored { id, state, why });
        Ok(())
    }

    fn compare(&mut self, id: u64, with: &Path) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let files = raw(&opened.context.compare(with)?)?;
        self.mailbox.report(&Report::Compared { id, files });
        Ok(())
    }

    fn file(&mut self, id: u64, what: FileOrder) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        let context = &mut opened.context;
        let answer = match what {
            FileOrder::Write {
                path,
                content,
                executable,
                append,
            } => context.edit(WorkspaceEdit::Write {
                path,
                content: content.read("content")?,
                executable,
                append,
            })?,
            FileOrder::WritePart {
                client,
                path,
                content,
                executable,
                is_first,
                is_last,
            } => context.edit(WorkspaceEdit::WritePart(Part {
                client,
                path,
                content: content.read("content")?,
                executable,
                is_first,
                is_last,
            }))?,
            FileOrder::DropParts { client } => context.drop_uploads(client),
            FileOrder::WriteAll { files } => {
                write_all(context, files.read("files")?)?;
                return self.report_file(id, &());
            }
            FileOrder::Stat { path } => context.in_workspace(|files| files.stat(&path))?,
            FileOrder::MakeDirectory { path } => {
                context.edit(WorkspaceEdit::MakeDirectory { path })?
            }
            FileOrder::Move { from, to } => context.edit(WorkspaceEdit::Move { from, to })?,
            FileOrder::Read {
                path,
                offset,
                limit,
            } => context.in_workspace(|files| files.read(&path, offset, limit))?,
            FileOrder::List { path, depth } => {
                context.in_workspace(|files| files.list(&path, depth))?
            }
            FileOrder::Remove { path } => context.edit(WorkspaceEdit::Remove { path })?,
            FileOrder::Watch { path } => self.mailbox.watch(context, id, &path)?,
            FileOrder::Unwatch { watch } => self.mailbox.unwatch(watch),
        };
        self.report_file(id, &answer)
    }

    fn report_file(&self, id: u64, answer: &impl Serialize) -> Result<()> {
        let answer = raw(answer)?;
        self.mailbox.report(&Report::File { id, answer });
        Ok(())
    }
}

/// Writes the files of a request.
fn write_all(context: &mut Context<'_>, files: Files) -> Result<()> {
    for file in files.0 {
        let (path, executable) = (file.path.clone(), file.executable);
        let content = file.content().map_err(|why| {
            SetupError::new(Step::Spec, why).on(format!("files: {}", path.display()))
        })?;
        context.edit(WorkspaceEdit::Write {
            path,
            content,
            executable,
            append: false,
        })?;
    }
    Ok(())
}

impl Opened<'_> {
    /// When it exceeds its idle limit.
    fn ends_at(&self) -> Option<Instant> {
        self.rests_since.checked_add(self.idle?)
    }
}

/// A [`Report`] whose value is written into the queue of reports at once: as text of its own, it
/// would be in memory twice.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LargeReport<'a> {
    Answer {
        execution: u64,
        state: State,
        why: Option<String>,
        start: Option<Start>,
        is_alive: bool,
        record: &'a Record,
    },
}

fn not_open() -> SetupError {
    SetupError::new(Step::Spec, "there is no cell").hint("`open` is the first order")
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    to_raw_value(value).map_err(|error| SetupError::new(Step::Outputs, error.to_string()))
}
