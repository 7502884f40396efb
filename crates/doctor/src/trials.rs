//! Steps of the set-up, each tried in a cell that has nothing else.

use hosts::NameChecks;
use hosts::Rules;

use engine::run::Resolved;
use plan::{EgressPlan, Mount, MountKind, Namespace, Plan, Source};
use record::error::Step;
use spec::Egress;

use super::report::{Check, Checks};
use super::{bare, try_until};

/// One step, and the cell that it is tried in.
struct Trial {
    name: &'static str,
    /// Checks that must work before this one means anything.
    needs: &'static [&'static str],
    namespaces: &'static [Namespace],
    /// Which of a whole cell's mounts it has.
    mounts: fn(&Mount) -> bool,
    /// Whether it may reach a named host.
    hosts: bool,
    /// The last step that is taken.
    until: Step,
    detail: fn(&Plan) -> String,
}

use Namespace::{Cgroup, Ipc, Mount as Mnt, Net, Pid, User, Uts};

const NONE: fn(&Mount) -> bool = |_| false;
const ROOT: fn(&Mount) -> bool = |mount| mount.target.parent().is_none();
const SILENT: fn(&Plan) -> String = |_| String::new();

/// A namespace that comes with the clone.
const fn namespace(name: &'static str, namespaces: &'static [Namespace]) -> Trial {
    Trial {
        name,
        needs: &["user-namespace"],
        namespaces,
        mounts: NONE,
        hosts: false,
        until: Step::Clone,
        detail: SILENT,
    }
}

/// Something mounted on a root of its own.
const fn mount(name: &'static str, mounts: fn(&Mount) -> bool) -> Trial {
    Trial {
        name,
        needs: &["id-maps", "pid-namespace", "mount-namespace"],
        namespaces: &[User, Pid, Mnt],
        mounts,
        hosts: false,
        until: Step::Mount,
        detail: SILENT,
    }
}

const TABLE: [Trial; 19] = [
    Trial {
        needs: &["plan"],
        ..namespace("user-namespace", &[User])
    },
    Trial {
        name: "id-maps",
        until: Step::Ids,
        detail: |plan| {
            let ids = &plan.ids;
            format!("uid {} inside is {} outside", ids.inner_uid, ids.outer_uid)
        },
        ..namespace("", &[User])
    },
    // A security module may let user namespaces be made and take their
    // capabilities away: CAP_SYS_ADMIN is what a host name needs.
    Trial {
        name: "capabilities",
        needs: &["id-maps"],
        until: Step::Ids,
        ..namespace("", &[User, Uts])
    },
    namespace("pid-namespace", &[User, Pid]),
    namespace("mount-namespace", &[User, Mnt]),
    Trial {
        needs: &["pid-namespace"],
        // The network is entered late: once the root has changed.
        until: Step::CgroupNamespace,
        detail: |_| "its loopback is up".to_owned(),
        ..namespace("network-namespace", &[User, Pid, Net])
    },
    Trial {
        needs: &["network-namespace"],
        until: Step::CgroupNamespace,
        hosts: true,
        detail: |_| "routes and sockets for allowed hosts".to_owned(),
        ..namespace("egress", &[User, Pid, Net])
    },
    namespace("ipc-namespace", &[User, Ipc]),
    namespace("uts-namespace", &[User, Uts]),
    Trial {
        needs: &["id-maps"],
        until: Step::CgroupNamespace,
        ..namespace("cgroup-namespace", &[User, Cgroup])
    },
    Trial {
        detail: |_| "fsopen, fsmount, move_mount".to_owned(),
        ..mount("tmpfs", ROOT)
    },
    Trial {
        detail: |_| "/usr by open_tree and mount_setattr".to_owned(),
        ..mount("binds", |mount| {
            ROOT(mount)
                || matches!(
                    &mount.kind,
                    MountKind::Bind {
                        source: Source::Beneath { .. },
                        ..
                    }
                )
        })
    },
    mount("devices", |mount| {
        ROOT(mount) || matches!(mount.kind, MountKind::Bind { device: true, .. })
    }),
    mount("proc", |mount| {
        ROOT(mount) || matches!(mount.kind, MountKind::Proc | MountKind::Machine(_))
    }),
    mount("devpts", |mount| {
        ROOT(mount) || matches!(mount.kind, MountKind::Devpts { .. })
    }),
    Trial {
        needs: &["tmpfs"],
        until: Step::Pivot,
        ..mount("pivot-root", ROOT)
    },
    Trial {
        detail: |_| "user.max_user_namespaces=0 inside, and it holds".to_owned(),
        until: Step::Nesting,
        ..mount(NESTING, NONE)
    },
    Trial {
        needs: &["id-maps"],
        until: Step::Capabilities,
        ..namespace("dropped-capabilities", &[User])
    },
    Trial {
        needs: &["plan"],
        until: Step::NoNewPrivs,
        ..namespace("no-new-privs", &[])
    },
];

/// The one trial that limits nested user namespaces.
const NESTING: &str = "nesting-limit";

pub(super) fn all(checks: &mut Checks<'_>, resolved: Option<&Resolved>) {
    for trial in &TABLE {
        checks.add_after(trial.name, trial.needs, |facts| {
            let Some(resolved) = resolved else {
                return Check::works(trial.name, "");
            };
            let plan = trial.reduce(resolved);
            match try_until(&plan, None, trial.until) {
                Ok(()) => Check::works(trial.name, (trial.detail)(&plan)),
                Err(error) if trial.hosts => {
                    let failed = Check::fails(trial.name, error, facts);
                    let detail = format!("no cell can reach named hosts: {}", failed.detail);
                    Check::degraded(trial.name, detail, failed.fixes)
                }
                Err(error) => Check::fails(trial.name, error, facts),
            }
        });
    }
}

impl Trial {
    /// The whole cell's plan without all that this trial is not about.
    fn reduce(&self, resolved: &Resolved) -> Plan {
        let mut plan = bare(resolved);
        plan.namespaces = self.namespaces.to_vec();
        let mounts = resolved.plan.mounts.iter();
        plan.mounts = mounts
            .filter(|mount| (self.mounts)(mount))
            .cloned()
            .collect();
        plan.userns_limits = (resolved.plan.userns_limits).filter(|_| self.name == NESTING);
        plan.egress = self.hosts.then(|| EgressPlan::new(&example()));
        plan
    }
}

/// A host to reach, to which nothing is sent.
fn example() -> Egress {
    Egress {
        rules: Rules {
            allow: "example.com".parse().into_iter().collect(),
            deny: Vec::new(),
        },
        check_names: NameChecks::On,
        secrets: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trial_needs_is_tried_before_it() {
        let mut before = vec!["kernel", "plan"];
        for trial in &TABLE {
            for need in trial.needs {
                assert!(before.contains(need), "{} needs {need}", trial.name);
            }
            assert!(
                !before.contains(&trial.name),
                "{} is there twice",
                trial.name
            );
            before.push(trial.name);
        }
    }
}
