//! Connections, within bounds.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use futures_util::future::select_all;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepIdle, TcpUserTimeout};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::Connector;

use super::access::{self, Guarded};
use super::places::{Place, Places};
use super::{FAREWELL, Listening};

/// The most bytes of a request line and its header fields.
const LONGEST_HEAD: usize = 64 << 10;
/// The most header fields.
const MOST_FIELDS: usize = 100;
/// How long a head may take, from the end of the answer before it.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take nothing of an answer, in milliseconds.
const WRITE_PATIENCE: u32 = 300_000;
/// Seconds of silence after which the kernel asks whether a client is still there.
const KEEP_ALIVE: u32 = 60;
/// How long no connection is accepted when there is no descriptor for it.
const BREATH: Duration = Duration::from_millis(100);

/// The most bytes that a client may send after the last answer, and how long it may.
const MOST_UNREAD: usize = 256 << 20;
const LINGER: Duration = Duration::from_secs(10);

/// What a connection gets when there are too many.
const TOO_MANY: &str =
    "{\"error\":{\"code\":\"busy\",\"message\":\"there are too many connections\"}}";

/// Accepts connections until the front is dropped.
pub(super) async fn accept(
    listening: Listening,
    connector: Connector,
    mut ended: watch::Receiver<()>,
) {
    let listeners = listening.sockets.into_iter().map(TcpListener::from_std);
    let Ok(listeners) = listeners.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let places = Places::new(listening.connections, listening.access.tokens());
    let mcp = crate::mcp::http::Shared::new(listening.about);
    let guarded = Guarded::new(
        listening.access,
        connector,
        listening.most,
        listening.e2b,
        mcp,
    );
    let router = crate::v1::router()
        .merge(crate::e2b::router())
        .merge(crate::fusion::router())
        .merge(crate::librechat::router())
        .merge(crate::mcp::http::router())
        .merge(crate::nemo::router())
        .fallback(access::nothing_here)
        .method_not_allowed_fallback(access::not_that_way)
        .layer(axum::middleware::from_fn_with_state(
            guarded.clone(),
            access::check,
        ))
        .merge(crate::page::router())
        // Paths of sandboxes are those of other doors, too.
        .layer(axum::middleware::from_fn_with_state(
            crate::e2b::Ports::new(&guarded),
            crate::e2b::dispatch,
        ))
        .with_state(guarded);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = ended.changed() => break,
            Some(_) = connections.join_next() => continue,
            accepted = next(&listeners) => accepted,
        };
        let (mut socket, place) = match accepted {
            Ok((socket, _)) => (socket, places.enter()),
            Err(_) => {
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        match place {
            Some(place) => {
                connections.spawn(serve(socket, place, router.clone(), ended.clone()));
            }
            None => {
                let answer = format!(
                    "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
                     content-type: application/json\r\ncontent-length: {}\r\n\r\n{TOO_MANY}",
                    TOO_MANY.len()
                );
                // A connection that was just made has room for it.
                let _ = tokio::time::timeout(BREATH, socket.write_all(answer.as_bytes())).await;
            }
        }
    }
    drop(listeners);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, all).await;
}

/// The next connection to any of the ports.
async fn next(listeners: &[TcpListener]) -> std::io::Result<(TcpStream, SocketAddr)> {
    let accepts = listeners.iter().map(|listener| Box::pin(listener.accept()));
    select_all(accepts).await.0
}

/// Serves one connection. When the client goes, so do its handlers, and with them the hub's
/// clients.
async fn serve(
    socket: TcpStream,
    place: Arc<Place>,
    router: Router,
    mut ended: watch::Receiver<()>,
) {
    let _ = socket.set_nodelay(true);
    // The kernel ends a connection whose client is gone, or takes nothing.
    let _ = setsockopt(&socket, TcpUserTimeout, &WRITE_PATIENCE);
    let _ = setsockopt(&socket, KeepAlive, &true);
    let _ = setsockopt(&socket, TcpKeepIdle, &KEEP_ALIVE);
    let Ok(watched) = duplicate(&socket) else {
        return;
    };
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&place));
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return drain(&watched).await,
        () = gone(&watched) => return,
        () = place.ended() => return,
        _ = ended.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
    drain(&watched).await;
}

/// Drops what a client still sends after the last answer, such as an upload that was refused. A socket
/// that is closed with unread input resets the connection, and the client may lose the answer. hyper
/// has ended the server's side by now.
async fn drain(socket: &TcpStream) {
    // A registration of its own begins with what has arrived.
    let Ok(socket) = duplicate(socket) else {
        return;
    };
    let all = async {
        let mut left = MOST_UNREAD;
        let mut buffer = vec![0; 64 << 10];
        while left > 0 && socket.readable().await.is_ok() {
            match socket.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::time::timeout(LINGER, all).await;
}

/// Another descriptor of a socket, whose readiness is tracked separately.
fn duplicate(socket: &TcpStream) -> std::io::Result<TcpStream> {
    let duplicate = socket.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(duplicate.into())
}

/// Waits until the client has ended its side of a connection. hyper does not read while bytes of a
/// further request wait, so it does not notice the end that follows them.
async fn gone(socket: &TcpStream) {
    while let Ok(found) = socket.ready(Interest::READABLE).await {
        // EPOLLRDHUP
        if found.is_read_closed() {
            return;
        }
        // Nothing is read here: this only clears the readiness, to wait for the next edge.
        let _ = socket.try_io(Interest::READABLE, || {
            Err::<(), _>(ErrorKind::WouldBlock.into())
        });
    }
}
