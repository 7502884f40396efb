//! An attempt that must be refused, and the proof that it would work otherwise.

use nix::errno::Errno;
use nix::libc;

use record::{Outcome, Record};

use super::cell::Run;
use super::probe::Report;
use super::{Attempt, Check, Stage, fail, process};

/// One attempt of a hostile program.
///
/// It is made where it is live first, then in a cell, then in cells that give up the
/// layers that refuse it first, so that each layer is tested.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) attempt: fn() -> Attempt,
    live: Option<Live>,
    options: &'static [&'static str],
    refused: Refusal,
    weaker: &'static [Weaker],
}

/// Layers given up, and what still refuses the attack.
pub(crate) type Weaker = (&'static [&'static str], Refusal);

/// How an attempt is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It fails with one of these.
    With(&'static [Errno]),
    /// The filter kills the program.
    Killed,
    /// The program is killed, or the attempt fails with this.
    KilledOr(Errno),
}

/// Where an attack works, and how that shows.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    place: Place,
    /// The error that proves that the attempt passed the check in question and failed
    /// at a later one; `None` when it succeeds.
    behind: Option<Errno>,
    /// The errors of a kernel that lacks the feature under attack.
    absent: &'static [Errno],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Bare,
    BareRoot,
    Naive,
    Without(&'static [&'static str]),
}

/// It works for any program.
pub(crate) const fn bare() -> Live {
    Live::at(Place::Bare)
}

/// It works for root's programs.
pub(crate) const fn root() -> Live {
    Live::at(Place::BareRoot)
}

/// It works for root of a naive sandbox.
pub(crate) const fn naive() -> Live {
    Live::at(Place::Naive)
}

/// It works in a cell without these layers.
pub(crate) const fn without(layers: &'static [&'static str]) -> Live {
    Live::at(Place::Without(layers))
}

impl Live {
    const fn at(place: Place) -> Self {
        Self {
            place,
            behind: None,
            absent: &[],
        }
    }

    /// It does not succeed: this error comes from a later check.
    pub(crate) const fn behind(mut self, errno: Errno) -> Self {
        self.behind = Some(errno);
        self
    }

    /// Kernels may lack the feature under attack and answer with one of these.
    pub(crate) const fn unless(mut self, absent: &'static [Errno]) -> Self {
        self.absent = absent;
        self
    }
}

/// An attack that a whole cell refuses with EPERM, as its filter does.
pub(crate) const fn attack(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    Attack {
        name,
        attempt,
        live: None,
        options: &[],
        refused: Refusal::With(&[Errno::EPERM]),
        weaker: &[],
    }
}

impl Attack {
    /// Where it is live. Without this call, only the refusal is tested.
    pub(crate) const fn live(mut self, live: Live) -> Self {
        self.live = Some(live);
        self
    }

    /// The errors by which a whole cell refuses it.
    pub(crate) const fn refused(mut self, errnos: &'static [Errno]) -> Self {
        self.refused = Refusal::With(errnos);
        self
    }

    pub(crate) const fn stopped(mut self, refusal: Refusal) -> Self {
        self.refused = refusal;
        self
    }

    /// What still refuses it when layers are given up.
    pub(crate) const fn weaker(mut self, weaker: &'static [Weaker]) -> Self {
        self.weaker = weaker;
        self
    }

    /// Options of the cells that it runs in.
    pub(crate) const fn options(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    /// Whether only root can show that it is live.
    pub(crate) fn is_live_for_root_only(&self) -> bool {
        self.live.is_some_and(|live| live.place == Place::BareRoot)
    }

    /// Shows that the attack is live, and that cells refuse it.
    pub(crate) fn run(&self, stage: &Stage, probe: &str) -> Check {
        let present = match self.live {
            None => true,
            Some(live) => self.show(live, stage, probe)?,
        };
        self.refused_in_cell(stage, probe, &[], self.refused)?;
        // Without the feature, the kernel's own answer hides the layers' ones.
        for (layers, refusal) in self.weaker.iter().filter(|_| present) {
            self.refused_in_cell(stage, probe, layers, *refusal)?;
        }
        Ok(())
    }

    /// Whether the kernel has the feature under attack; fails when the attack should
    /// work and does not.
    fn show(&self, live: Live, stage: &Stage, probe: &str) -> Check<bool> {
        let attempt = match live.place {
            Place::BareRoot if !stage.root() => {
                let attempt = outside(stage, "--probe", probe)?;
                stage.note("that it is live is shown as root only");
                return Ok(!attempt.is_err_and(|errno| live.absent.contains(&errno)));
            }
            Place::Bare | Place::BareRoot => outside(stage, "--probe", probe)?,
            Place::Naive => outside(stage, "--naive", probe)?,
            Place::Without(layers) => {
                let run = self.in_cell(stage, probe, layers)?;
                Report::find(probe, run.stdout())?
            }
        };
        match attempt {
            Err(errno) if live.absent.contains(&errno) => {
                stage.note(format!("not live: this kernel answers {errno:?}"));
                Ok(false)
            }
            attempt if attempt == live.behind.map_or(Ok(()), Err) => Ok(true),
            attempt => Err(fail(format!(
                "should be live ({:?}), but the attempt gave {attempt:?}",
                live.place
            ))),
        }
    }

    /// Whether it gets past every check in a cell without these layers.
    pub(crate) fn works_without(&self, stage: &Stage, probe: &str, layers: &[&str]) -> Check<bool> {
        let run = self.in_cell(stage, probe, layers)?;
        if killed_by_filter(&run.record) {
            return Ok(false);
        }
        // A program that ended without a report was stopped in another way.
        let Ok(attempt) = Report::find(probe, run.stdout()) else {
            return Ok(false);
        };
        let behind = self.live.and_then(|live| live.behind);
        Ok(attempt == behind.map_or(Ok(()), Err))
    }

    fn in_cell(&self, stage: &Stage, probe: &str, layers: &[&str]) -> Check<Run> {
        let mut cell = stage.probe(probe, []).without_all(layers);
        for word in self.options {
            cell = cell.option([word]);
        }
        cell.run()
    }

    fn refused_in_cell(
        &self,
        stage: &Stage,
        probe: &str,
        layers: &[&str],
        refusal: Refusal,
    ) -> Check {
        let run = self.in_cell(stage, probe, layers)?;
        let cell = match layers {
            [] => "in a whole cell".to_owned(),
            layers => format!("in a cell without {}", layers.join(" and ")),
        };
        let came = if killed_by_filter(&run.record) {
            None
        } else {
            let report = Report::find(probe, run.stdout());
            Some(report.map_err(|_| fail(format!("{cell} nothing was reported: {}", run.json)))?)
        };
        let as_expected = match (came, refusal) {
            (None, Refusal::Killed | Refusal::KilledOr(_)) => true,
            (Some(Err(errno)), Refusal::With(errnos)) => errnos.contains(&errno),
            (Some(Err(errno)), Refusal::KilledOr(other)) => errno == other,
            _ => false,
        };
        if as_expected {
            return Ok(());
        }
        let came = match came {
            None => "the program was killed".to_owned(),
            Some(Ok(())) => "THE ATTACK WORKED".to_owned(),
            Some(Err(errno)) => format!("it failed with {errno:?}"),
        };
        Err(fail(format!("{cell}: {came}; wanted {refusal:?}")))
    }
}

fn outside(stage: &Stage, how: &str, probe: &str) -> Check<Attempt> {
    let mut command = std::process::Command::new(&stage.probe);
    let process = process::finish(command.args([how, probe]), stage.patience())?;
    Report::find(probe, &String::from_utf8_lossy(&process.stdout))
        .map_err(|stop| fail(format!("{stop:?}, {}", process.complaint())))
}

/// SIGSYS, as the filter sends it. Any process can send it, so the record only names
/// the signal; what counts is that the program did not survive.
fn killed_by_filter(record: &Record) -> bool {
    record.outcome == Outcome::Signal
        && record.signal.as_deref() == Some("SIGSYS")
        && record.exit_code == 128 + libc::SIGSYS
}
