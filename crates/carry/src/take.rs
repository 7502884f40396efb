//! Taking the state of a process, which goes on afterwards.

use std::fs::File;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::calls::{Caller, answered, words};
use super::descriptors;
use super::image::{Image, RESOURCES, Rest, TIMERS};
use super::layout;
use super::maps::{self, Mapping};
use super::refusal::Refusal;
use super::status::{self, Status};
use super::{Extent, Subject, pages, signals};
use record::bytes::RawText;
use sys::memory::PAGE;
use sys::trace::{Registers, Tracee};

/// Takes the state of a process that waits for its next request, into an empty file. At
/// most `limit` bytes of pages are taken.
///
/// # Errors
/// Why it cannot be taken; the process goes on as before in any case.
pub fn take(
    subject: Subject<'_>,
    extent: Extent<'_>,
    limit: u64,
    into: File,
) -> Result<Image, Refusal> {
    let mut tracee = Tracee::stop(subject.pid).map_err(Refusal::of_stop)?;
    waits_for_request(&tracee)?;
    let status = Status::of(subject.pid)?;
    status.refuse_unfit(subject.pid)?;
    status::refuse_others(subject.pid, subject.init)?;
    let mappings = maps::of(subject.pid)?;
    layout::refuse_unfit(&mappings)?;
    let found = descriptors::of(subject.pid, subject.own)?;
    descriptors::refuse_unfit(&found)?;

    let mut rest = Rest::empty(tracee.registers());
    rest.extended = base64(
        &tracee
            .extended()
            .map_err(|e| Refusal::System("ptrace", e))?,
    );
    rest.blocked = tracee.blocked();
    rest.umask = status.umask;
    rest.filters = status.filters;
    rest.limits = limits(subject.pid)?;
    rest.descriptors = found;
    let (changed, inherited) = pages::take(&tracee, &mappings, extent, limit, &into)?;
    ask(&mut tracee, &mappings, &status, &mut rest)?;
    rest.set_pages(&changed, &inherited);
    rest.mappings = mappings;
    Image::complete(into, rest)
}

/// Whether the process seems to wait in read(2) on this descriptor, and is not stopped.
/// Where the kernel does not say, it may. `is_copy` is whether it was forked from a template.
///
/// # Errors
/// The process is one that this process may not look at.
pub fn waits(pid: Pid, descriptor: i32, is_copy: bool) -> Result<bool, Refusal> {
    // Until it executes its program, it is as undumpable as init. Looked at first, since it
    // may execute between two looks.
    if !is_copy && !status::has_executed(pid) {
        return Ok(false);
    }
    let prefix = format!("{} {descriptor:#x} ", libc::SYS_read);
    match status::read(pid, "syscall") {
        Ok(call) => {
            let stat = status::read(pid, "stat").unwrap_or_default();
            let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
            Ok(call.starts_with(&prefix) && state.starts_with('S'))
        }
        Err(Refusal::System(_, Errno::ENOENT)) => Ok(true),
        Err(Refusal::System(_, errno @ (Errno::EACCES | Errno::EPERM))) => {
            match status::is_undumpable(pid) {
                true => Err(Refusal::Undumpable),
                false => Err(Refusal::Tracing(errno)),
            }
        }
        Err(_) => Ok(false),
    }
}

/// Refuses a process that does not wait in read(2), by the instruction of a system call.
pub(super) fn waits_for_request(tracee: &Tracee) -> Result<(), Refusal> {
    match tracee.registers().waits_in() {
        Some((libc::SYS_read, _)) => {}
        _ => return Err(Refusal::Busy),
    }
    match has_call_at(tracee, tracee.registers()) {
        true => Ok(()),
        false => Err(Refusal::Busy),
    }
}

/// Whether the process has the instruction of a system call where `registers` wait.
pub(super) fn has_call_at(tracee: &Tracee, registers: &Registers) -> bool {
    let (at, expected) = registers.call_site();
    let mut found = vec![0; expected.len()];
    tracee.read_forced(at, &mut found).is_ok() && found == expected
}

pub(super) fn limits(pid: Pid) -> Result<Vec<(u64, u64)>, Refusal> {
    (0..RESOURCES)
        .map(|resource| sys::process::limit_of(pid, resource))
        .collect::<Result<_, _>>()
        .map_err(|errno| Refusal::System("prlimit", errno))
}

/// Has the process tell what `/proc` does not.
fn ask(
    tracee: &mut Tracee,
    mappings: &[Mapping],
    status: &Status,
    rest: &mut Rest,
) -> Result<(), Refusal> {
    let mut caller = Caller::new(tracee, mappings, &[])?;
    let asked = ask_with(&mut caller, status, rest);
    caller.finish().map_err(Refusal::of_stop)?;
    asked
}

fn ask_with(caller: &mut Caller<'_>, status: &Status, rest: &mut Rest) -> Result<(), Refusal> {
    rest.heap_end = answered("brk", caller.call(libc::SYS_brk, &[0]))?;
    let path = caller.ask::<{ PAGE as usize }>(libc::SYS_getcwd, |at| vec![at, PAGE]);
    let path = answered("getcwd", path)?;
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(0);
    rest.directory = RawText::from(path[..end].to_vec());
    if !descriptors::is_path(&rest.directory) {
        return Err(Refusal::Missing("the working directory".to_owned()));
    }
    rest.actions = signals::actions(caller, status.caught | status.ignored)?;
    let stack = caller.ask::<24>(libc::SYS_sigaltstack, |at| vec![0, at]);
    rest.signal_stack = words(&answered("sigaltstack", stack)?);
    for timer in 0..TIMERS {
        let left = caller.ask::<32>(libc::SYS_getitimer, |at| vec![timer as u64, at]);
        rest.timers[timer] = words(&answered("getitimer", left)?);
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
