//! What a cell is, for other programs of the caller's: a line of JSON when its program was
//! started, with the names that bubblewrap gives them, and one when it has ended.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Map, Value, json};

use jail::launch::Running;
use plan::Plan;
use record::error::{Result, SetupError, Step};
use supervise::OnStart;

/// Where what a cell is goes. Nothing waits for its reader.
#[derive(Debug)]
pub struct Info {
    to: File,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first line, until it is written.
    waiting: Option<String>,
    is_started: bool,
    trouble: Option<String>,
}

impl Info {
    /// For a file or descriptor that is open for writing.
    pub fn new(to: File) -> Self {
        Self {
            to,
            state: RefCell::default(),
        }
    }

    /// Looks at a cell that waits for its program.
    ///
    /// # Errors
    /// The kernel does not show it.
    pub(super) fn look(&self, cell: &Running, plan: &Plan) -> Result<()> {
        let pid = cell.init.pid;
        let mut line = Map::new();
        line.insert("child-pid".to_owned(), json!(pid.as_raw()));
        for namespace in &plan.namespaces {
            let name = namespace.file();
            let path = format!("/proc/{pid}/ns/{name}");
            // Such as `net:[4026531840]`.
            let link = fs::read_link(&path)
                .map_err(|e| SetupError::io(Step::Supervise, "readlink", &e).on(&path))?;
            let link = link.to_string_lossy().into_owned();
            let number = link
                .split(['[', ']'])
                .nth(1)
                .and_then(|n| n.parse::<u64>().ok());
            line.insert(format!("{name}-namespace"), json!(number));
        }
        let cgroup = cell.cgroup.as_ref().map(|cgroup| cgroup.record().path);
        line.insert("cgroup".to_owned(), json!(cgroup));
        self.state.borrow_mut().waiting = Some(Value::from(line).to_string());
        Ok(())
    }

    /// The program has ended with this status, as cellblock will.
    ///
    /// # Errors
    /// A line could not be written.
    pub fn ended(&self, exit_code: i32) -> Result<()> {
        if self.state.borrow().is_started {
            self.write(&json!({ "exit-code": exit_code }).to_string());
        }
        match self.state.borrow_mut().trouble.take() {
            Some(trouble) => Err(SetupError::new(Step::Outputs, trouble)
                .on("--info-fd")
                .hint("its reader must have read the lines before, and must not have gone")),
            None => Ok(()),
        }
    }

    fn write(&self, line: &str) {
        // What is ready has room for PIPE_BUF bytes, and a line is shorter.
        let mut fds = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
        let written = match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) => Err("write: its reader does not read".to_owned()),
            _ => (&self.to)
                .write_all(format!("{line}\n").as_bytes())
                .map_err(|error| format!("write: {error}")),
        };
        if let Err(trouble) = written {
            self.state.borrow_mut().trouble.get_or_insert(trouble);
        }
    }
}

impl OnStart for Info {
    fn started(&self) {
        let waiting = self.state.borrow_mut().waiting.take();
        if let Some(line) = waiting {
            self.state.borrow_mut().is_started = true;
            self.write(&line);
        }
    }
}
