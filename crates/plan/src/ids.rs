//! Who the program is, inside and outside.

use serde::Serialize;

use crate::probe::HostFacts;
use record::error::{Result, SetupError, Step};

/// First of the host ids for cells started by root: above every range that
/// distributions and systemd hand out, below 2^31. A supervisor's pid is added,
/// so that no two living cells share an id.
const OUTER_BASE: u32 = 0x7100_0000;

/// Uids and gids of the program. Inside, they are the only ones mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ids {
    /// Uid inside.
    pub inner_uid: u32,
    /// Gid inside.
    pub inner_gid: u32,
    /// The uid that this is in the supervisor's user namespace; never 0 of the host's.
    pub outer_uid: u32,
    /// The gid outside the cell.
    pub outer_gid: u32,
    /// Whether the supervisor may map other ids than its own, and init must
    /// leave its groups.
    pub privileged: bool,
}

impl Ids {
    /// The uid and gid of this cell's program in the user namespace of `template`.
    pub const fn within(&self, template: &Self) -> (u32, u32) {
        if self.outer_uid == template.outer_uid {
            (template.inner_uid, template.inner_gid)
        } else {
            (self.outer_uid, self.outer_gid)
        }
    }

    /// The ids that root's other cells may have, as lines of an id map that has them as
    /// they are: a template's copies are told apart outside like any cells.
    pub fn of_others(&self) -> String {
        /// The most that `kernel.pid_max` can be.
        const PIDS: u32 = 1 << 22;
        let range = |first: u32, end: u32| match end.saturating_sub(first) {
            0 => String::new(),
            count => format!("{first} {first} {count}\n"),
        };
        match self.outer_uid.checked_sub(OUTER_BASE) {
            Some(pid) if self.privileged && pid <= PIDS => {
                let (own, end) = (self.outer_uid, OUTER_BASE + PIDS + 1);
                range(OUTER_BASE, own) + &range(own + 1, end)
            }
            _ => String::new(),
        }
    }

    /// `inner` inside, and `wanted` or an id that no other cell has outside.
    pub(super) fn choose(inner: u32, wanted: Option<u32>, host: &HostFacts) -> Result<Self> {
        let (outer_uid, outer_gid, privileged) = match (host.uid, wanted) {
            (0, wanted) => {
                let id = for_root(wanted, host)?;
                (id, if id == 0 { host.gid } else { id }, id != 0)
            }
            (uid, None) => (uid, host.gid, false),
            (uid, Some(wanted)) if wanted == uid => (uid, host.gid, false),
            (uid, Some(_)) => {
                return Err(SetupError::new(
                    Step::Spec,
                    format!("only root may choose another outer uid; you are {uid}"),
                )
                .on("outer_uid")
                .hint("leave --outer-uid out: the program then runs as you, seen from outside"));
            }
        };
        Ok(Self {
            inner_uid: inner,
            inner_gid: inner,
            outer_uid,
            outer_gid,
            privileged,
        })
    }
}

/// An id for a cell that uid 0 starts. In a user namespace that maps only its
/// root to an ordinary user, that user is all there is to run as.
fn for_root(wanted: Option<u32>, host: &HostFacts) -> Result<u32> {
    let exists = |id: u32| {
        host.id_map
            .iter()
            .any(|(first, _, count)| id >= *first && id - first < *count)
    };
    if let Some(id) = wanted {
        return if id != 0 && exists(id) {
            Ok(id)
        } else {
            Err(SetupError::new(Step::Spec, format!("{id} is not an unprivileged id of this user namespace"))
                .on("outer_uid")
                .hint("code in a cell never runs as the host's root: name another id, or leave --outer-uid out"))
        };
    }
    if let Some(id) = OUTER_BASE.checked_add(host.pid).filter(|id| exists(*id)) {
        return Ok(id);
    }
    let last = host
        .id_map
        .iter()
        .filter_map(|(first, _, count)| first.checked_add(count - 1))
        .max();
    match last {
        Some(id) if id != 0 => Ok(id),
        _ if host.id_map.iter().any(|(_, above, _)| *above != 0) => Ok(0),
        _ => {
            Err(SetupError::new(Step::IdMap, "the only id here is root's").on("/proc/self/uid_map"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uid: u32, id_map: &[(u32, u32, u32)]) -> HostFacts {
        HostFacts {
            cpus: 1,
            release: "6.12".into(),
            version: "#1".into(),
            memory: 1 << 30,
            processor: String::new(),
            proc_covered: false,
            kernel: (6, 12),
            uid,
            gid: uid,
            pid: 77,
            landlock_abi: 6,
            id_map: id_map.to_vec(),
            names: crate::probe::HostNames::default(),
            devices: Vec::new(),
            repositories: Default::default(),
        }
    }

    #[test]
    fn a_plain_user_keeps_its_own_id_outside() {
        let ids = Ids::choose(1000, None, &host(1234, &[])).unwrap();
        assert_eq!(
            (ids.inner_uid, ids.outer_uid, ids.privileged),
            (1000, 1234, false)
        );
        assert!(Ids::choose(1000, Some(0), &host(1234, &[])).is_err());
    }

    #[test]
    fn a_template_maps_the_ids_of_roots_other_cells() {
        let real_root = host(0, &[(0, 0, u32::MAX)]);
        let template = Ids::choose(1000, None, &real_root).unwrap();
        let own = OUTER_BASE + 77;
        let last = OUTER_BASE + (1 << 22) - 77;
        assert_eq!(
            template.of_others(),
            format!(
                "{OUTER_BASE} {OUTER_BASE} 77\n{0} {0} {1}\n",
                own + 1,
                last - OUTER_BASE
            )
        );
        let other = Ids {
            outer_uid: own + 5,
            outer_gid: own + 5,
            ..template.clone()
        };
        assert_eq!(other.within(&template), (own + 5, own + 5));
        assert_eq!(template.within(&template), (1000, 1000));
        assert_eq!(
            Ids::choose(1000, None, &host(1234, &[]))
                .unwrap()
                .of_others(),
            ""
        );
    }

    #[test]
    fn root_never_runs_code_as_itself() {
        let real_root = host(0, &[(0, 0, u32::MAX)]);
        let ids = Ids::choose(1000, None, &real_root).unwrap();
        assert_eq!((ids.outer_uid, ids.privileged), (OUTER_BASE + 77, true));
        assert_eq!(
            Ids::choose(1000, Some(65534), &real_root)
                .unwrap()
                .outer_uid,
            65534
        );
        assert!(Ids::choose(1000, Some(0), &real_root).is_err());
    }

    #[test]
    fn root_of_a_user_namespace_takes_what_there_is() {
        let subuids = host(0, &[(0, 1000, 1), (1, 100_000, 65536)]);
        assert_eq!(Ids::choose(1000, None, &subuids).unwrap().outer_uid, 65536);
        let alone = host(0, &[(0, 1000, 1)]);
        assert_eq!(Ids::choose(1000, None, &alone).unwrap().outer_uid, 0);
        let only_root = host(0, &[(0, 0, 1)]);
        assert!(Ids::choose(1000, None, &only_root).is_err());
    }
}
