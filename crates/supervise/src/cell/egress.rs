//! A cell's broker: started with the sockets that init made, and configured for its program.

use std::os::fd::OwnedFd;

use broker::{Config, SecretHeader, Upstream};
use zeroize::Zeroizing;

use super::Cell;
use crate::network::CellBroker;
use jail::child::report::Role;
use jail::launch::Signed;
use plan::{EgressPlan, Plan, host_bundle};
use record::error::{Result, SetupError, Step};
use spec::{Egress, Limits, Network};

impl Cell<'_> {
    /// Takes sockets for the broker from init, and starts it with the last of them.
    ///
    /// # Errors
    /// Init sends more than the plan has, or the broker cannot be started.
    pub(crate) fn take_sockets(&mut self, fds: Vec<(Role, OwnedFd)>, are_last: bool) -> Result<()> {
        let most = self
            .plan
            .egress
            .as_ref()
            .map_or(0, EgressPlan::most_sockets);
        if self.broker.is_some() || self.sockets.len() + fds.len() > most {
            let message = "init sent more sockets than the plan has";
            return Err(SetupError::new(Step::Egress, message));
        }
        self.sockets.extend(fds);
        if !are_last {
            return Ok(());
        }
        let sockets = std::mem::take(&mut self.sockets);
        self.broker = Some(CellBroker::start(
            sockets,
            &self.plan,
            self.running.init.pid,
        )?);
        self.configure_broker()
    }

    /// Tells the broker what the program may reach.
    pub(crate) fn configure_broker(&self) -> Result<()> {
        match (&self.broker, config_of(&self.plan)) {
            (Some(broker), Some(mut config)) if self.has_program => {
                let signed = self.running.signed.as_ref();
                config.certificate = signed.map(Signed::open);
                broker.configure(&config, &self.plan, signed)
            }
            _ => Ok(()),
        }
    }
}

/// What the broker decides by, in a cell that has one.
fn config_of(plan: &Plan) -> Option<Config> {
    match &plan.network {
        Network::Hosts(egress) if plan.egress.is_some() => Some(config(egress, &plan.limits)),
        _ => None,
    }
}

/// What the broker decides by.
fn config(egress: &Egress, limits: &Limits) -> Config {
    Config {
        rules: egress.rules.clone(),
        check_names: egress.check_names,
        secrets: (egress.secrets.iter())
            .map(|secret| SecretHeader {
                host: secret.host.clone(),
                port: secret.port,
                tls: secret.tls,
                name: secret.name.clone(),
                value: Zeroizing::default(),
            })
            .collect(),
        upstream: Upstream {
            certificates: host_bundle(),
            ..Upstream::default()
        },
        limits: broker::Limits {
            sent_bytes: limits.net_sent.map(|bytes| bytes.0),
            received_bytes: limits.net_received.map(|bytes| bytes.0),
            // The ranges of the table fit.
            connections: u32::try_from(limits.connections).unwrap_or(u32::MAX),
            connections_total: limits.connections_total,
            connections_per_second: (limits.connection_rate)
                .map(|rate| u32::try_from(rate).unwrap_or(u32::MAX)),
            queries: limits.dns_queries,
            ..broker::Limits::default()
        },
        ..Config::default()
    }
}
