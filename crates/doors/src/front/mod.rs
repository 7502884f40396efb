//! Listening, in a thread of its own.

mod access;
mod connection;
pub(crate) mod held;
mod places;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::mcp::About;
use nix::sys::signal::{SigSet, SigmaskHow};
use record::error::{Result, SetupError, Step};
use tokio::runtime::Builder;
use tokio::sync::watch;
use wire::Connector;

use crate::e2b;
use crate::runs::Most;
use access::Access;
pub(crate) use access::{Guarded, is_same};
pub(crate) use places::count;

/// How long connections may take for their last answers.
const FAREWELL: Duration = Duration::from_secs(2);

/// Who may connect where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses to listen at, at least one.
    pub addresses: Vec<SocketAddr>,
    /// One of these must be in each request, if there are any. Each is a party of its own.
    pub tokens: Vec<String>,
    /// Names by which clients may call this host besides `localhost` and its addresses.
    pub hosts: Vec<String>,
    /// The most connections at once. Each token has a share of them.
    pub connections: usize,
    /// The most that a request may ask for.
    pub most: Most,
    /// How sandboxes of E2B's clients are made.
    pub e2b: e2b::Settings,
    /// What clients of MCP read about the cells.
    pub about: About,
}

/// Ports that are listened at, and served later.
#[derive(Debug)]
pub struct Listening {
    sockets: Vec<TcpListener>,
    access: Access,
    connections: usize,
    most: Most,
    e2b: e2b::Settings,
    about: About,
}

impl Listening {
    /// # Errors
    /// An address is not a loopback address and no token is demanded; or the kernel
    /// refuses.
    pub fn bind(settings: Settings) -> Result<Self> {
        let Settings {
            addresses,
            tokens,
            hosts,
            connections,
            most,
            e2b,
            about,
        } = settings;
        let is_open = tokens.is_empty();
        let access = Access::new(tokens, hosts)?;
        let sockets = addresses.into_iter().map(|address| bind(address, is_open));
        Ok(Self {
            sockets: sockets.collect::<Result<_>>()?,
            access,
            connections: connections.max(1),
            most,
            e2b,
            about,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let address = |socket: &TcpListener| {
            socket
                .local_addr()
                .map_err(|error| SetupError::io(Step::Inputs, "getsockname", &error))
        };
        self.sockets.iter().map(address).collect()
    }

    /// The most parties that requests come from.
    pub fn parties(&self) -> usize {
        self.access.tokens().max(1)
    }

    /// Serves, in a thread of its own, whose signals are left to this one.
    ///
    /// # Errors
    /// The kernel refuses what the thread needs.
    pub fn start(self, connector: Connector) -> Result<Front> {
        let failed = |call: &'static str| {
            move |error: std::io::Error| SetupError::io(Step::Inputs, call, &error).on("--http")
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed("epoll_create1"))?;
        let (ending, ended) = watch::channel(());
        let every = SigSet::all();
        let before = every
            .thread_swap_mask(SigmaskHow::SIG_SETMASK)
            .map_err(|errno| SetupError::os(Step::Inputs, "rt_sigprocmask", errno))?;
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || runtime.block_on(connection::accept(self, connector, ended)));
        let _ = before.thread_set_mask();
        let thread = thread.map_err(failed("clone"))?;
        Ok(Front { ending, thread })
    }
}

/// Connections that wait to be accepted; the kernel lowers it to `net.core.somaxconn`. A client
/// that finds no room tries again after a second. The standard library has 128.
const BACKLOG: i32 = 4096;

fn bind(address: SocketAddr, is_open: bool) -> Result<TcpListener> {
    if is_open && !address.ip().is_loopback() {
        let message = "is not a loopback address, and no token is demanded of clients";
        return Err(SetupError::new(Step::Inputs, message)
            .on(format!("--http {address}"))
            .hint("add --http-token FILE, or listen at 127.0.0.1 or [::1]"));
    }
    let failed = |call: &'static str| {
        move |error| SetupError::io(Step::Inputs, call, &error).on(format!("--http {address}"))
    };
    let socket = TcpListener::bind(address).map_err(failed("bind"))?;
    let listening = sys::net::listen(socket.as_fd(), BACKLOG);
    listening.map_err(|errno| failed("listen")(errno.into()))?;
    socket.set_nonblocking(true).map_err(failed("fcntl"))?;
    Ok(socket)
}

/// Ports that are served.
#[derive(Debug)]
pub struct Front {
    ending: watch::Sender<()>,
    thread: JoinHandle<()>,
}

impl Front {
    /// Accepts no more, and waits a little for the last answers.
    pub fn end(self) {
        drop(self.ending);
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// The kernel accepts as many as may wait, and drops what would begin another connection.
    #[test]
    fn many_connections_may_wait_to_be_accepted() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let address = socket.local_addr().unwrap();
        let patience = Duration::from_secs(5);
        let waiting: Vec<TcpStream> = (0..400)
            .map(|_| TcpStream::connect_timeout(&address, patience).unwrap())
            .collect();
        assert_eq!(waiting.len(), 400);
    }
}
