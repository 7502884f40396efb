//! What is executed, and with what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::arguments;
use super::trust::{self, Trust};
use crate::probe::HostFacts;
use languages::node;
use record::bytes::RawText;
use spec::limits::RESERVE;
use spec::quantity::AutoBound;
use spec::{Bytes, Spec, Stdin};

/// The program to execute.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Paths inside, tried in order while there is nothing at one.
    pub candidates: Vec<RawText>,
    /// Its argument vector.
    pub argv: Vec<RawText>,
    /// Its whole environment.
    pub env: BTreeMap<String, RawText>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Whether it has a driver's channel, from [`languages::CHANNEL_FD`] on.
    pub channel: bool,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// What each of its processes may map beyond the memory, where each mapping counts because no
    /// cgroup counts what is used; `None` where `data` does not follow the memory.
    pub reserve: Option<Bytes>,
    /// Whether its memory is laid out without randomisation, so that its state can be
    /// put into another cell.
    pub fixed_layout: bool,
}

/// What the caller of [`super::Plan::new`] decided about the program.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program's path inside, or a name to look for in `PATH`.
    pub program: RawText,
    /// Its argument vector.
    pub argv: Vec<RawText>,
    /// Whether it has a driver's channel, from [`languages::CHANNEL_FD`] on.
    pub channel: bool,
    /// What it may map beyond the memory, where `data` is to follow that.
    pub reserve: Bytes,
    /// Files to place below [`languages::DIRECTORY`].
    pub files: Vec<(PathBuf, RawText)>,
}

/// Variables by which libraries choose how many threads to start. Without it, each starts as
/// many as the host has CPUs: importing numpy alone then takes twice as long on
/// one of them, and each thread counts as a process.
pub(super) const THREADS: [&str; 5] = [
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
];

/// A variable by which Bun reserves less memory: it maps a gigabyte for the code that it compiles.
/// Where it gets less, it goes on without its compiler, many times slower, and does not say so.
const BUN: (&str, &str) = ("BUN_JSC_jitMemoryReservationSize", "67108864");

impl Program {
    /// Its environment as execve(2) takes it: `NAME=value`.
    pub fn variables(&self) -> impl Iterator<Item = RawText> + '_ {
        (self.env.iter())
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat().into())
    }

    /// Whether there is a program: a cell can have only processes, which are started later.
    pub fn exists(&self) -> bool {
        !self.argv.is_empty()
    }

    /// Another program for the same cell. It has this one's environment, in which `env` replaces
    /// variables, and nothing else of this one.
    pub fn beside(
        &self,
        argv: &[RawText],
        env: &BTreeMap<String, RawText>,
        cwd: Option<&Path>,
    ) -> Self {
        let mut all = self.env.clone();
        all.extend(
            env.iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        let program = argv.first().cloned().unwrap_or_default();
        Self {
            candidates: candidates(&program, all.get("PATH")),
            argv: arguments::split(argv),
            env: all,
            cwd: cwd.map_or_else(|| self.cwd.clone(), Into::into),
            channel: false,
            stdin: Stdin::Null,
            // It can be any program.
            reserve: self.reserve.map(|_| RESERVE),
            fixed_layout: false,
        }
    }

    pub(super) fn new(spec: &Spec, host: &HostFacts, request: Request) -> Self {
        let mut env = spec.env.clone();
        let left_out = |name: &&str| spec.env_clear || spec.env_unset.contains(*name);
        if spec.limits.memory.is_some() {
            let (name, value) = BUN;
            if !left_out(&name) {
                env.entry(name.to_owned()).or_insert_with(|| value.into());
            }
            let (name, option) = node::OPTIONS;
            if !left_out(&name) {
                let callers = env.get(name).map(RawText::as_bytes);
                let options = [Some(option.as_bytes()), callers];
                let options: Vec<_> = options.into_iter().flatten().collect();
                env.insert(name.to_owned(), options.join(&b' ').into());
            }
        }
        if let Some(cpus) = spec.limits.cpus {
            let threads = (cpus.ceil() as usize)
                .clamp(1, host.cpus.max(1))
                .to_string();
            for name in THREADS.into_iter().filter(|name| !left_out(name)) {
                // What the caller sets stays.
                env.entry(name.to_owned())
                    .or_insert_with(|| threads.as_str().into());
            }
        }
        if Trust::of(&spec.network).is_some() {
            for name in trust::VARIABLES {
                env.entry(name.to_owned())
                    .or_insert_with(|| trust::BUNDLE.into());
            }
        }
        Self {
            candidates: candidates(&request.program, spec.env.get("PATH")),
            argv: arguments::split(&request.argv),
            env,
            cwd: spec.cwd.clone(),
            channel: request.channel,
            stdin: spec.stdin.clone(),
            reserve: (spec.limits.data == AutoBound::Auto).then_some(request.reserve),
            fixed_layout: false,
        }
    }
}

/// Where execvp(3) would look for `program`.
fn candidates(program: &RawText, path: Option<&RawText>) -> Vec<RawText> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.clone()];
    }
    let path = path.map_or(
        &b"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"[..],
        RawText::as_bytes,
    );
    path.split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| [directory, b"/", program.as_bytes()].concat().into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_in_path() {
        let find = |program: &str, path: &str| -> Vec<String> {
            candidates(&program.into(), Some(&path.into()))
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(find("ls", "/usr/bin:/bin"), ["/usr/bin/ls", "/bin/ls"]);
        assert_eq!(find("./ls", "/usr/bin"), ["./ls"]);
        assert_eq!(find("ls", ":/bin:"), ["/bin/ls"]);
    }
}
