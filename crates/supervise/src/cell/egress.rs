//! A cell's broker: started with the sockets that init made, and configured for its program.

use std::os::fd::OwnedFd;

use super::{Cell, config};
use crate::network::CellBroker;
use jail::child::report::Role;
use jail::launch::Signed;
use plan::EgressPlan;
use record::error::{Result, SetupError, Step};

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
        match (&self.broker, config::of(&self.plan)) {
            (Some(broker), Some(mut config)) if self.has_program => {
                let signed = self.running.signed.as_ref();
                config.certificate = signed.map(Signed::open);
                broker.configure(&config, &self.plan, signed)
            }
            _ => Ok(()),
        }
    }
}
