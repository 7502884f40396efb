//! Whether a waiting cell is what its plan says, as the kernel shows it from outside.
//!
//! Init has reported that every step succeeded. Before a program is handed to a cell that
//! was made ahead, the supervisor looks for itself: a step that was left out by mistake
//! must not become a cell with a layer less. Landlock's domain is the one thing that the
//! kernel shows nowhere; the seccomp filter is loaded with the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use nix::unistd::Pid;

use jail::launch::Running;
use plan::{Ids, Namespace, Plan};
use record::error::{Result, SetupError, Step};

/// Looks at a cell that waits for its program.
///
/// # Errors
/// The first thing that is not as the plan has it, or that cannot be looked at.
pub fn verify(cell: &Running, plan: &Plan) -> Result<()> {
    let init = Init(cell.init.pid);
    init.verify(plan)?;
    match &cell.cgroup {
        Some(cgroup) => cgroup.verify(cell.init.pid),
        None => Ok(()),
    }
}

/// The sets of capabilities in `/proc/PID/status`.
const CAPABILITIES: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

/// A cell's init.
struct Init(Pid);

impl Init {
    fn verify(&self, plan: &Plan) -> Result<()> {
        self.has_namespaces(plan)?;
        Self::has_status(plan, &self.read("status")?)?;
        if plan.has(Namespace::User) {
            self.has_map("uid_map", plan.ids.inner_uid, plan.ids.outer_uid)?;
            self.has_map("gid_map", plan.ids.inner_gid, plan.ids.outer_gid)?;
        }
        if plan.has(Namespace::Mount) && !plan.mounts.is_empty() {
            self.has_mounts()?;
        }
        Ok(())
    }

    /// Each namespace of the plan is another than ours.
    fn has_namespaces(&self, plan: &Plan) -> Result<()> {
        for namespace in &plan.namespaces {
            let file = namespace.file();
            let link = |process: &str| {
                let path = PathBuf::from(format!("/proc/{process}/ns/{file}"));
                fs::read_link(&path)
                    .map_err(|e| SetupError::io(Step::Supervise, "readlink", &e).on(path.display()))
            };
            if link(&self.0.to_string())? == link("self")? {
                return Err(differs(&format!("the {file} namespace"), "the host's"));
            }
        }
        Ok(())
    }

    /// Whether this is proc_pid_status(5) of an init by this plan.
    fn has_status(plan: &Plan, text: &str) -> Result<()> {
        let status: BTreeMap<&str, &str> = (text.lines())
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let mut wanted = vec![
            ("NoNewPrivs", "1".to_owned()),
            ("Threads", "1".to_owned()),
            ("TracerPid", "0".to_owned()),
        ];
        if plan.has(Namespace::User) {
            wanted.extend(CAPABILITIES.map(|set| (set, "0000000000000000".to_owned())));
            wanted.extend(credentials(&plan.ids));
        }
        for (name, value) in wanted {
            let found = status.get(name).copied().unwrap_or_default();
            let is_same = found.split_whitespace().eq(value.split_whitespace());
            if !is_same {
                return Err(differs(name, found));
            }
        }
        // Its number in each pid namespace, from ours to its own.
        let numbers = status.get("NSpid").copied().unwrap_or_default();
        let inner = numbers.split_whitespace().skip(1);
        if plan.has(Namespace::Pid) && inner.last() != Some("1") {
            return Err(differs("NSpid", numbers));
        }
        Ok(())
    }

    fn has_map(&self, name: &str, inner: u32, outer: u32) -> Result<()> {
        let text = self.read(name)?;
        let wanted = [inner, outer, 1].map(|number| number.to_string());
        if text
            .split_whitespace()
            .eq(wanted.iter().map(String::as_str))
        {
            Ok(())
        } else {
            Err(differs(name, text.trim()))
        }
    }

    /// The root is cellblock's own and read-only, and no mount has set-user-ID programs.
    fn has_mounts(&self) -> Result<()> {
        let text = self.read("mountinfo")?;
        let mut roots = 0;
        for line in text.lines() {
            // Number, parent, device, root, mount point, options (proc_pid_mountinfo(5)).
            let mut fields = line.split(' ').skip(4);
            let (target, options) = (fields.next(), fields.next().unwrap_or_default());
            let has = |option| options.split(',').any(|other| other == option);
            let is_root = target == Some("/");
            if !has("nosuid") || (is_root && !has("ro")) {
                return Err(differs("a mount", line));
            }
            roots += u32::from(is_root);
        }
        if roots == 1 {
            Ok(())
        } else {
            Err(differs(
                "the number of root directories",
                &roots.to_string(),
            ))
        }
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = format!("/proc/{}/{name}", self.0);
        fs::read_to_string(&path).map_err(|e| SetupError::io(Step::Supervise, "read", &e).on(path))
    }
}

/// Real, effective, saved and file system ids, and groups where init leaves them.
fn credentials(ids: &Ids) -> Vec<(&'static str, String)> {
    let four = |id: u32| [id; 4].map(|id| id.to_string()).join(" ");
    let mut wanted = vec![("Uid", four(ids.outer_uid)), ("Gid", four(ids.outer_gid))];
    if ids.privileged {
        wanted.push(("Groups", String::new()));
    }
    wanted
}

fn differs(what: &str, found: &str) -> SetupError {
    SetupError::new(
        Step::Supervise,
        format!("a waiting cell is not as planned: {what} is {found:?}"),
    )
    .hint("this is a fault of cellblock's: please report it")
}
