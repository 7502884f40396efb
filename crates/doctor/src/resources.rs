//! The cgroup that limits hold in, and interpreters: what cells can do without.

use std::time::Instant;

use cgroup::{Attempt, CellCgroup, CgroupLimits, CgroupSite, Controller};
use engine::run;
use hints::{self, Facts};
use languages::{self, Driver};
use plan::probe::Filters;
use plan::rootfs::Tree;
use record::error::{SetupError, Step};
use spec::{self, Ask, Bytes, CgroupChoice, Mode, Partial, RootfsRef, Stdin, Stdio};

use super::report::{CgroupFindings, Check, Checks, Limits, Tried};

const NAME: &str = "cgroup";

/// Makes a cell's cgroup as a launch does, with small limits, and removes it.
pub(super) fn cgroup(checks: &mut Checks<'_>) -> Option<CgroupFindings> {
    let mut findings = None;
    // A filter that kills would kill this process.
    let kills = Filters::current()
        .denied
        .iter()
        .any(|call| call.errno.is_none());
    let need = if kills { "system-calls" } else { "kernel" };
    checks.add_after(NAME, &[need], |facts| {
        let id = format!("doctor-{}", std::process::id());
        let limits = CgroupLimits {
            memory: Some(Bytes::mib(64)),
            processes: Some(16),
            cpus: Some(0.5),
        };
        match CgroupSite::find(&CgroupChoice::Auto).and_then(|site| site.cell(&id, &limits)) {
            Ok(attempt) => {
                let found = found(&attempt);
                let check = judge(&found, facts);
                findings = Some(found);
                match attempt.cell.map_or(Ok(()), CellCgroup::remove) {
                    Ok(()) => check,
                    Err(error) => degraded(&error, check.fixes),
                }
            }
            Err(error) => degraded(&error, error.hint.clone().into_iter().collect()),
        }
    });
    findings
}

fn degraded(error: &SetupError, fixes: Vec<String>) -> Check {
    Check {
        error: Some(error.clone()),
        ..Check::degraded(NAME, error.to_string(), fixes)
    }
}

fn found(attempt: &Attempt) -> CgroupFindings {
    let cell = attempt.cell.as_ref();
    let record = cell.map(CellCgroup::record);
    let enforced = cell.map(CellCgroup::enforced).unwrap_or_default();
    CgroupFindings {
        source: record.as_ref().map(|record| record.source.clone()),
        path: cell.map(|cell| cell.path().display().to_string()),
        controllers: record.map(|record| record.controllers).unwrap_or_default(),
        limits: Limits {
            memory: enforced.memory.map(|bytes| bytes.0),
            processes: enforced.processes,
            cpus: enforced.cpus,
        },
        tried: attempt
            .tried
            .iter()
            .map(|way| Tried {
                source: way.source.name().to_owned(),
                error: way.why.clone(),
            })
            .collect(),
        unenforced: cell
            .map(|cell| cell.unenforced().to_vec())
            .unwrap_or_default(),
    }
}

fn judge(found: &CgroupFindings, facts: &Facts) -> Check {
    let Limits {
        memory,
        processes,
        cpus,
    } = found.limits;
    let held = [
        ("memory", memory.is_some()),
        ("processes", processes.is_some()),
        ("cpus", cpus.is_some()),
    ];
    let list = |wanted: bool| {
        let names = held.iter().filter(|(_, holds)| *holds == wanted);
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let tried = found
        .tried
        .iter()
        .map(|way| format!("{}: {}", way.source, way.error));
    let Some(source) = &found.source else {
        let ways: Vec<String> = tried.collect();
        let detail = format!(
            "none, so limits fall back to rlimits and a watchdog, which are best effort for memory and CPU time; {}",
            ways.join("; ")
        );
        return Check::degraded(NAME, detail, fixes(found, facts));
    };
    if held.iter().all(|(_, holds)| *holds) {
        return Check::works(NAME, format!("{source}; {} read back", list(true)));
    }
    let detail = format!(
        "{source}, without {}: these fall back to rlimits and a watchdog{}",
        list(false),
        if memory.is_some() {
            ""
        } else {
            ", which are best effort for memory"
        }
    );
    Check::degraded(NAME, detail, fixes(found, facts))
}

/// The way out that this host needs, or what each way that failed suggests.
fn fixes(found: &CgroupFindings, facts: &Facts) -> Vec<String> {
    let missing: Vec<&str> = Controller::ALL
        .iter()
        .map(|controller| controller.name())
        .filter(|name| !found.controllers.iter().any(|held| held == name))
        .collect();
    if let Some(fix) = hints::for_read_only_cgroups(facts) {
        return vec![fix];
    }
    if let Some(fix) = hints::for_controllers(&missing, facts) {
        return vec![fix];
    }
    let tried = found.tried.iter().map(|way| &way.error);
    let mut all: Vec<String> = tried
        .chain(&found.unenforced)
        .filter_map(|error| error.hint.clone())
        .collect();
    all.dedup();
    all
}

/// Looks for the languages' interpreters where a cell would. Where an interpreter may not
/// be enough, it runs some code.
pub(super) fn interpreters(checks: &mut Checks<'_>) {
    let hidden = Filters::current().denial("openat2").is_some();
    let need = if hidden { "system-calls" } else { "kernel" };
    for driver in languages::TABLE {
        let name = format!("interpreter-{}", driver.name);
        checks.add_after(&name, &[need], |_| {
            let fix = format!("`cellblock rootfs build {}` brings it", driver.rootfs);
            let found = Tree::find(&RootfsRef::Auto, None, Some(driver.rootfs))
                .and_then(|tree| Ok((run::interpreter(&tree, driver)?, tree.label)));
            match (found, driver.trial.and_then(|code| fault(driver, code))) {
                (Ok((path, label)), None) => {
                    // Without the digest.
                    let rootfs = label.split('@').next().unwrap_or_default();
                    Check::works(&name, format!("{} in {rootfs}", path.display()))
                }
                (Ok((path, _)), Some(fault)) => {
                    let detail = format!("{}: {fault}", path.display());
                    Check::absent(&name, SetupError::new(Step::Exec, detail), fix)
                }
                (Err(error), _) => Check::absent(&name, error, fix),
            }
        });
    }
}

/// The error of this code in a cell, if it has one. A cell that cannot be set up has a
/// check of its own.
fn fault(driver: &Driver, code: &str) -> Option<String> {
    let ask = Ask {
        mode: Mode::Run,
        cwd: "/".as_ref(),
        stdio: Stdio::Capture,
        lends: false,
    };
    let partial = Partial {
        language: Some(driver.name.to_owned()),
        code: Some(code.into()),
        ..Partial::default()
    };
    let mut spec = spec::load(&ask, None, None, partial).ok()?;
    spec.stdin = Stdin::Null;
    let record = run::execute(&spec, Instant::now());
    record.error.map(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use record::error::Step;

    fn findings(controllers: &[&str], limits: Limits) -> CgroupFindings {
        CgroupFindings {
            source: Some("delegated".into()),
            path: Some("/sys/fs/cgroup/x".into()),
            controllers: controllers.iter().map(ToString::to_string).collect(),
            limits,
            tried: Vec::new(),
            unenforced: Vec::new(),
        }
    }

    #[test]
    fn a_cgroup_that_holds_everything_works() {
        let limits = Limits {
            memory: Some(1),
            processes: Some(1),
            cpus: Some(0.5),
        };
        let check = judge(
            &findings(&["cpu", "memory", "pids"], limits),
            &Facts::default(),
        );
        assert_eq!(check.status, Status::Works);
        assert!(check.detail.starts_with("delegated"), "{}", check.detail);
    }

    #[test]
    fn the_hosts_own_reason_comes_first() {
        let mut found = findings(&["cpu"], Limits::default());
        let error = SetupError::new(Step::Cgroup, "no memory").hint("have it delegated");
        found.unenforced = vec![error.clone(), error];
        let hybrid = Facts {
            cgroup_v1: vec!["memory".into()],
            systemd: true,
            ..Facts::default()
        };
        let check = judge(&found, &hybrid);
        assert_eq!(check.status, Status::Degraded);
        assert!(check.fixes[0].contains("systemd.unified_cgroup_hierarchy=1"));
        assert_eq!(
            judge(&found, &Facts::default()).fixes,
            ["have it delegated"]
        );
    }

    #[test]
    fn every_way_in_vain_is_told() {
        let mut found = findings(&[], Limits::default());
        found.source = None;
        found.tried = ["delegated", "systemd-user"]
            .map(|source| Tried {
                source: source.into(),
                error: SetupError::new(Step::Cgroup, format!("{source} says no"))
                    .hint(format!("ask {source}")),
            })
            .into();
        let check = judge(&found, &Facts::default());
        assert!(
            check
                .detail
                .contains("delegated: prepare the cgroup: delegated says no")
        );
        assert!(check.detail.contains("systemd-user says no"));
        assert_eq!(check.fixes, ["ask delegated", "ask systemd-user"]);
    }
}
