//! What a process is started with.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use record::bytes::RawText;
use supervisor::{ProcessOrder, ProcessStart as StartOrder};

use super::Process;
use crate::hub::Hub;
use crate::hub::client::Caller;
use crate::hub::contexts::check_label;
use crate::hub::requests::millis;
use crate::protocol::{Code, Failure, ProcessStart};

/// The most bytes of arguments and variables of one process: what execve(2) takes with the usual
/// limit of the stack.
const LARGEST_START: usize = 2 << 20;
/// Bytes of arguments and variables of all processes of a context, which the server keeps.
const MOST_STARTED: usize = 8 << 20;

impl Hub {
    /// `process.start`
    pub(in crate::hub) fn start_process(
        &mut self,
        caller: &Caller,
        params: ProcessStart,
    ) -> Result<(), Failure> {
        check_label("tag", params.tag.as_deref())?;
        let argv = argv_of(params.argv, params.command)?;
        check_environment(&params.env)?;
        if params.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
            return Err(Failure::new(Code::BadParams, "cwd: wants an absolute path"));
        }
        if (params.terminal).is_some_and(|size| size.rows == 0 || size.columns == 0) {
            let message = "terminal: wants at least 1 row and 1 column";
            return Err(Failure::new(Code::BadParams, message));
        }
        let bytes = size_of_start(&argv, &params.env)?;
        self.refuse_while_draining()?;
        let link = self.find_used(caller, &params.context)?;
        let now = self.now;
        let mut share = self.share_of(caller.client);
        share.try_set(bytes)?;
        let Some(session) = self.sessions.get_mut(&link) else {
            return Err(Failure::new(Code::Lost, "the context's cell is gone"));
        };
        if session.processes.started() + bytes > MOST_STARTED {
            let message = format!(
                "arguments and variables of this context's processes have more than \
                 {MOST_STARTED} bytes"
            );
            let failure = Failure::new(Code::Busy, message).hint("end some of them");
            return Err(failure.retry_after(Duration::from_secs(1)));
        }
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
            bytes,
            _share: share,
            listeners: match params.events {
                true => vec![(caller.client, caller.id.clone())],
                false => Vec::new(),
            },
            attached_to: params.attached.then_some(caller.client),
            held: VecDeque::new(),
            owed: 0,
        };
        self.order_process(link, caller, order, 0, Some((number, process)))
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
            "argv: has a byte 0, which no argument can contain",
        )),
        false => Ok(argv),
    }
}

/// Bytes of a process's arguments and variables, as execve(2) counts them.
fn size_of_start(argv: &[RawText], env: &BTreeMap<String, RawText>) -> Result<usize, Failure> {
    let each = size_of::<usize>() + 1;
    let of_argv = argv.iter().map(|text| text.as_bytes().len() + each);
    let of_env = env.iter();
    let of_env = of_env.map(|(name, value)| name.len() + 1 + value.as_bytes().len() + each);
    let bytes = of_argv.chain(of_env).sum();
    match bytes > LARGEST_START {
        false => Ok(bytes),
        true => {
            let message =
                format!("argv and env: have {bytes} bytes, but want at most {LARGEST_START}");
            Err(Failure::new(Code::BadParams, message).hint("put them in a file (file.write)"))
        }
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
