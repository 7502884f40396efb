//! By which files names are resolved inside.

use crate::probe::HostNames;
use spec::Network;

/// Files of `/etc` that a cell has of its own, because of its network.
#[derive(Clone, Debug, Default)]
pub(super) struct NameFiles {
    resolv_conf: Option<String>,
    /// Lines of hosts(5).
    pub(super) hosts: Option<String>,
}

impl NameFiles {
    pub(super) fn of(network: &Network, host: &HostNames) -> Self {
        match network {
            Network::None => Self::default(),
            Network::Hosts(_) => Self {
                resolv_conf: Some(super::egress::resolv_conf()),
                hosts: None,
            },
            Network::Host => Self {
                resolv_conf: host.resolv_conf.clone(),
                hosts: host.hosts.clone(),
            },
        }
    }

    /// Their names and contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let files = [("resolv.conf", &self.resolv_conf), ("hosts", &self.hosts)];
        files
            .into_iter()
            .filter_map(|(name, content)| Some((name, content.as_deref()?)))
    }
}
