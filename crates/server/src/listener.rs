//! Serves a door on a socket until told to stop, then lets requests in flight finish.
//!
//! A body that breaks off closes its connection: an answer never ends cleanly unless it is whole.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::BoxError;

/// How long a client may take to send a request's header.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The most headers that a request may have.
const HEADERS_MAX: usize = 128;
/// The read buffer of a connection; a request's header must fit into it.
const BUFFER_BYTES: usize = 256 * 1024;
/// How long to wait when the system has no socket to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes, then waits up to `drain` for requests in flight.
pub async fn serve<S, B>(listener: TcpListener, service: S, shutdown: impl Future<Output = ()>, drain: Duration)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, service.clone(), graceful.watcher()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    drain_connections(graceful, connections, drain).await;
}

/// An axum router as a service for [`serve`].
pub fn router_service(router: axum::Router) -> TowerToHyperService<axum::Router> {
    TowerToHyperService::new(router)
}

async fn drain_connections(graceful: GracefulShutdown, mut connections: JoinSet<()>, drain: Duration) {
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(open = connections.len(), "requests still in flight were cut off");
    }
    connections.shutdown().await;
}

async fn converse<S, B>(stream: TcpStream, service: S, watcher: Watcher)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // Without it a small answer waits for the client's delayed acknowledgement, 40 ms each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended early");
    }
}
