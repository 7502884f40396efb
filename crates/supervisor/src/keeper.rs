//! Templates of a server, each in a process that forks the supervisors of its copies.
//!
//! A keeper is a spawner that has made a template: its supervisors inherit what they need
//! to fork it. Copies of one template share a hash seed and an address layout, so another
//! template is made after a while. The old one stays until the last of its copies ends. When the
//! host has changed, a template is of no use any more, and another one is made at once.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use super::Base;
use super::spawner::{self, Spawner};
use engine::run::{Resolved, Stock, StockCell};
use jail::launch::wait_for;
use record::error::{Result, SetupError, Step};

/// Replaced templates that are kept because contexts have their layout. A client could
/// otherwise have any number of them stay, each with all that it has loaded; with so many,
/// the current one is not renewed.
const MOST_OLD: usize = 8;

/// How long no other template is made after one could not be made, or after one was made that
/// has ended since.
const BACK_OFF: Duration = Duration::from_secs(10);
/// How often it is looked whether the host has changed: that takes as long as a cell's set-up.
const LOOK: Duration = Duration::from_secs(1);
/// How long the first template may take: its cell and its modules have deadlines of their
/// own, which end before.
const FIRST: Duration = Duration::from_secs(180);
/// The most bytes of an error.
const LONGEST: usize = 64 << 10;

/// The life of a keeper. It gets the number of its template. Its first report has the memory
/// that the template takes, or the reason why the template could not be made.
pub(super) fn serve(socket: &OwnedFd, base: &Base) -> i32 {
    let mut number = [0; size_of::<u64>()];
    if recv(socket.as_raw_fd(), &mut number, MsgFlags::empty()) != Ok(number.len()) {
        return 1;
    }
    let generation = u64::from_ne_bytes(number);
    let made = resolved(base)
        .and_then(|resolved| StockCell::make(resolved, &base.preload, generation))
        .map_err(hints::explain);
    let said: Said = match &made {
        Ok(of) => Ok(of.stock.memory()),
        Err(error) => Err(error.clone()),
    };
    let Ok(said) = serde_json::to_vec(&said) else {
        return 1;
    };
    match (
        send(socket.as_raw_fd(), &said, MsgFlags::MSG_NOSIGNAL),
        made,
    ) {
        (Ok(_), Ok(of)) => spawner::serve(socket, base, Some(&of.stock)),
        _ => 1,
    }
}

/// What a context of Python is made of now.
fn resolved(base: &Base) -> Result<Resolved> {
    let (spec, _) = base.request(r#"{"language":"python"}"#, true)?;
    engine::run::resolve(&spec)
}

/// Looks whether the host has changed since a template was made, as by the installation of a
/// package: cells that are made now are not like it, and could not fork it.
#[derive(Debug)]
pub(super) struct Freshness {
    looked: Instant,
}

impl Freshness {
    /// That of a template which was just made.
    pub(super) fn new() -> Self {
        Self {
            looked: Instant::now(),
        }
    }

    /// Whether cells of `base` still can fork the template. Looks once a second at most.
    pub(super) fn is_lost(&mut self, base: &Base, stock: &Stock) -> bool {
        let is_due = self.looked.elapsed() >= LOOK;
        if is_due {
            self.looked = Instant::now();
        }
        // If nothing can be made now, another template cannot be made either.
        is_due && resolved(base).is_ok_and(|resolved| !stock.fits(&resolved))
    }
}

/// What a keeper says first.
type Said = std::result::Result<u64, SetupError>;

/// When a server goes on to another template.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// The most supervisors of one template.
    pub copies: u64,
    /// How long a template gets new copies.
    pub life: Duration,
}

/// A template of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateInUse {
    /// Which of the server's templates, from 1 on.
    pub generation: u64,
    /// When it was made.
    pub since: Instant,
    /// The supervisors that were forked with it.
    pub copies: u64,
    /// Bytes of memory that it takes by itself.
    pub memory: u64,
}

impl Default for Renewal {
    fn default() -> Self {
        Self {
            copies: 500,
            life: Duration::from_secs(3600),
        }
    }
}

/// Where a server's supervisors come from that can fork a template.
#[derive(Debug)]
pub struct Templates<'s> {
    spawner: &'s Spawner,
    renewal: Renewal,
    now: RefCell<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// The one that gets new copies.
    current: Option<Generation>,
    /// Those before it, as long as contexts have their layout.
    old: Vec<Generation>,
    /// How many there have been.
    count: u64,
    /// A keeper that makes its template.
    next: Option<OwnedFd>,
    not_before: Option<Instant>,
}

/// A template that is there.
#[derive(Debug)]
struct Generation {
    number: u64,
    keeper: Spawner,
    copies: u64,
    since: Instant,
    memory: u64,
}

impl Generation {
    fn of(socket: OwnedFd, number: u64, memory: u64) -> Self {
        Self {
            number,
            keeper: Spawner::at(socket),
            copies: 0,
            since: Instant::now(),
            memory,
        }
    }
}

impl<'s> Templates<'s> {
    /// Makes the first template, and waits for it.
    ///
    /// # Errors
    /// Why the server has no template.
    pub fn make(spawner: &'s Spawner, renewal: Renewal) -> Result<Self> {
        let socket = spawner.keeper(1)?;
        let memory = hear_within(&socket, FIRST)?;
        let now = Now {
            current: Some(Generation::of(socket, 1, memory)),
            count: 1,
            ..Now::default()
        };
        Ok(Self {
            spawner,
            renewal,
            now: RefCell::new(now),
        })
    }

    /// Has a supervisor forked; the front end's end of its socket, and the number of its
    /// template. While there is no template, its interpreter is started as usual.
    ///
    /// # Errors
    /// The spawner is gone, or the kernel refuses.
    pub fn supervisor(&self) -> Result<(OwnedFd, Option<u64>)> {
        let mut now = self.now.borrow_mut();
        now.renew(self.spawner, self.renewal);
        if let Some(generation) = &mut now.current {
            match generation.keeper.supervisor() {
                Ok((socket, _)) => {
                    generation.copies += 1;
                    return Ok((socket, Some(generation.number)));
                }
                Err(error) if is_gone(&error) => {
                    // A template that ends whenever it is forked would be made again and again.
                    now.not_before = Some(generation.since + BACK_OFF);
                    now.current = None;
                    now.renew(self.spawner, self.renewal);
                }
                // The kernel refuses a process, and would refuse that of another template, too.
                Err(_) => {}
            }
        }
        let (socket, _) = self.spawner.supervisor()?;
        Ok((socket, None))
    }

    /// Has a supervisor forked that can fork the template with this number.
    ///
    /// # Errors
    /// The template has ended, or the kernel refuses.
    pub fn supervisor_of(&self, number: u64) -> Result<OwnedFd> {
        let mut now = self.now.borrow_mut();
        let Now { current, old, .. } = &mut *now;
        let found = (current.iter_mut().chain(old)).find(|one| one.number == number);
        let ended = || {
            SetupError::new(Step::Fork, "the template of the context has ended")
                .hint("replay the executions in a new context")
        };
        let generation = found.ok_or_else(ended)?;
        let forked = generation.keeper.supervisor();
        let (socket, _) = forked.map_err(|error| match is_gone(&error) {
            true => ended(),
            false => error,
        })?;
        generation.copies += 1;
        Ok(socket)
    }

    /// All templates that there are.
    pub fn in_use(&self) -> Vec<TemplateInUse> {
        let now = self.now.borrow();
        let of = |generation: &Generation| TemplateInUse {
            generation: generation.number,
            since: generation.since,
            copies: generation.copies,
            memory: generation.memory,
        };
        now.old.iter().chain(&now.current).map(of).collect()
    }

    /// Lets templates go that have been replaced and whose layout no context has; returns whether
    /// there were any.
    pub fn keep(&self, is_used: impl Fn(u64) -> bool) -> bool {
        let old = &mut self.now.borrow_mut().old;
        let before = old.len();
        old.retain(|generation| is_used(generation.number));
        old.len() < before
    }
}

impl Now {
    /// Goes on to the next template if there is one, or has it made if it is time.
    fn renew(&mut self, spawner: &Spawner, renewal: Renewal) {
        if let Some(socket) = self.next.take() {
            match hear(&socket, MsgFlags::MSG_DONTWAIT) {
                Ok(Some(memory)) => {
                    self.count += 1;
                    let next = Generation::of(socket, self.count, memory);
                    self.old.extend(self.current.replace(next));
                }
                Ok(None) => self.next = Some(socket),
                // Records say that the server has no template.
                Err(_) => self.not_before = Some(Instant::now() + BACK_OFF),
            }
        }
        let is_old = (self.current.as_ref()).is_none_or(|current| {
            self.old.len() < MOST_OLD
                && (current.copies >= renewal.copies || current.since.elapsed() >= renewal.life)
        });
        let is_early = self.not_before.is_some_and(|when| Instant::now() < when);
        if is_old && !is_early && self.next.is_none() {
            self.next = spawner.keeper(self.count + 1).ok();
        }
    }
}

/// Whether a keeper did not fork because it has ended, and its template with it.
fn is_gone(error: &SetupError) -> bool {
    let errno = error.errno.map(Errno::from_raw);
    errno.is_none_or(|errno| matches!(errno, Errno::EPIPE | Errno::ECONNRESET))
}

/// Waits for the template of a new keeper.
///
/// # Errors
/// Why it will not be there, or that nothing was heard of it in time.
fn hear_within(socket: &OwnedFd, patience: Duration) -> Result<u64> {
    let deadline = Instant::now() + patience;
    while wait_for(socket.as_fd(), deadline) {
        if let Some(memory) = hear(socket, MsgFlags::MSG_DONTWAIT)? {
            return Ok(memory);
        }
    }
    let message = format!("there was no template after {}s", patience.as_secs_f64());
    Err(SetupError::new(Step::Fork, message)
        .hint("preload less (--preload), or try again when the host has less to do"))
}

/// The memory of the template of a new keeper, if it is there.
///
/// # Errors
/// Why it will not be.
fn hear(socket: &OwnedFd, flags: MsgFlags) -> Result<Option<u64>> {
    let gone = || SetupError::new(Step::Fork, "the process that makes the template is gone");
    let mut bytes = vec![0; LONGEST];
    let length = loop {
        match recv(socket.as_raw_fd(), &mut bytes, flags) {
            Ok(length) => break length,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Err(SetupError::os(Step::Fork, "recv", errno)),
        }
    };
    match record::json::from_slice::<Said>(&bytes[..length]) {
        Ok(Ok(memory)) => Ok(Some(memory)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(gone()),
    }
}

// As the tests of the crate.
#[cfg(all(test, debug_assertions))]
mod tests;
