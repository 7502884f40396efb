//! The hostile program: this executable, started with `--probe` in a cell.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::{Check, Suite, fail};

/// The result of one attempt: it worked, or the kernel's error.
pub(crate) type Attempt = Result<(), Errno>;

/// A program that plays a part in a scene.
pub(crate) struct Actor {
    pub(crate) name: &'static str,
    /// Gets its arguments; returns the exit status.
    pub(crate) run: fn(&[String]) -> i32,
}

/// The line that a probe prints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    probe: String,
    pub(crate) result: Verdict,
    /// The refusal's name, such as `EPERM`.
    errno: Option<String>,
    /// Its number.
    number: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Worked,
    Refused,
}

impl Report {
    /// Prints the result of the attempt.
    pub(crate) fn print(probe: &str, attempt: Attempt) {
        let report = Self {
            probe: probe.to_owned(),
            result: match attempt {
                Ok(()) => Verdict::Worked,
                Err(_) => Verdict::Refused,
            },
            errno: attempt.err().map(|errno| format!("{errno:?}")),
            number: attempt.err().map(|errno| errno as i32),
        };
        println!("{}", serde_json::json!(report));
    }

    /// Reads the line of `probe` back.
    pub(crate) fn find(probe: &str, output: &str) -> Check<Attempt> {
        output
            .lines()
            .filter_map(|line| serde_json::from_str::<Self>(line).ok())
            .find(|report| report.probe == probe)
            .map(|report| match report.number {
                Some(number) => Err(Errno::from_raw(number)),
                None => Ok(()),
            })
            .ok_or_else(|| fail(format!("{probe} reported nothing, its output: {output:?}")))
    }
}

/// Plays `name`: an attack, whose report it prints, or an actor.
pub(crate) fn play(suites: &[&Suite], name: &str, args: &[String]) -> i32 {
    let (suite, part) = name.split_once('/').unwrap_or((name, ""));
    let Some(suite) = suites.iter().find(|candidate| candidate.name == suite) else {
        eprintln!("no suite named {suite}");
        return 2;
    };
    if let Some(attack) = suite.attacks.iter().find(|attack| attack.name == part) {
        Report::print(name, (attack.attempt)());
        return 0;
    }
    match suite.actors.iter().find(|actor| actor.name == part) {
        Some(actor) => (actor.run)(args),
        None => {
            eprintln!("{} has no probe named {part}", suite.name);
            2
        }
    }
}
