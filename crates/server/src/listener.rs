//! Serves HTTP on a socket until shutdown, then lets requests in flight finish.
//!
//! A response body that fails closes its connection: only a complete response ends cleanly.

mod connections;
mod guarded_stream;
mod strict_lines;

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::middleware::Next;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::BoxError;
use crate::admin::AdminError;
use crate::middleware::GuardedBody;
use connections::{Connections, OpenConnection};
use guarded_stream::GuardedStream;

pub(crate) use connections::ConnectionHandle;
pub use connections::ConnectionLimits;
use connections::RequestInFlight;

/// How long a client may take to send the request headers.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The most header fields of a request.
const HEADERS_MAX: usize = 128;
/// Size limit of the read buffer of a connection.
const BUFFER_BYTES: usize = 256 * 1024;
/// Size limit of the request line and headers; larger ones are answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Response to a refused connection.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long to wait after `accept` failed, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes, then waits up to `drain` for requests in flight.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let open_connections = Connections::new(limits);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match open_connections.open(peer.ip()) {
                    Some(open) => {
                        connections.spawn(serve_connection(stream, open, service.clone(), graceful.watcher()));
                    }
                    // If the socket buffer is full, the connection closes without this response.
                    None => drop(stream.try_write(REFUSAL)),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connection, retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    drain_connections(graceful, connections, drain).await;
}

/// An axum router as a service for [`serve`]; requests without a `Host` header get 400.
#[must_use]
pub fn router_service(router: axum::Router) -> TowerToHyperService<axum::Router> {
    TowerToHyperService::new(router.layer(axum::middleware::from_fn(require_host)))
}

async fn require_host(request: axum::extract::Request, next: Next) -> axum::response::Response {
    if request.headers().contains_key(HOST) {
        return next.run(request).await;
    }
    AdminError::new(StatusCode::BAD_REQUEST, "invalid_request", "the header Host is missing").into_response()
}

async fn drain_connections(graceful: GracefulShutdown, mut connections: JoinSet<()>, drain: Duration) {
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), ?drain, "requests in flight aborted, drain time exceeded");
    }
    connections.shutdown().await;
}

async fn serve_connection<S, B>(stream: TcpStream, open: OpenConnection, service: S, watcher: Watcher)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    // Otherwise a small response waits 40 ms for the client's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(
            TokioIo::new(GuardedStream::new(stream)),
            with_connection_state(service, open.handle().clone()),
        );
    tokio::select! {
        served = watcher.watch(connection) => {
            if let Err(error) = served {
                tracing::debug!(%error, "connection ended early");
            }
        }
        () = open.handle().ended() => tracing::debug!("connection closed to free capacity"),
    }
}

/// A response during which the request counts as in flight.
type InFlightResponse<B> = Response<GuardedBody<B, RequestInFlight>>;

/// Wraps a service: counts requests in flight on their connection, and closes the connection after a chunked request,
/// because [`strict_lines`] does not know where such a request ends.
fn with_connection_state<S, B>(
    service: S,
    handle: ConnectionHandle,
) -> impl Service<Request<Incoming>, Response = InFlightResponse<B>, Error = Infallible, Future: Send>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    B: Body + Send + Unpin + 'static,
{
    service_fn(move |mut request: Request<Incoming>| {
        let in_flight = handle.begin_request();
        let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
        request.extensions_mut().insert(handle.clone());
        let answering = service.call(request);
        async move {
            let mut response = answering.await?;
            if is_chunked {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| GuardedBody::new(body, in_flight)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{ConnectionLimits, router_service, serve};
    use axum::Router;
    use axum::body::Body;
    use axum::http::Response;
    use axum::routing::get;
    use bytes::Bytes;
    use futures_util::stream;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    struct RunningServer {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        served: JoinHandle<()>,
    }

    async fn start(router: Router, drain: Duration) -> RunningServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move { drop(stopped.await) };
        let limits = ConnectionLimits { total: 10, per_address: 10 };
        let served = tokio::spawn(serve(listener, router_service(router), limits, shutdown, drain));
        RunningServer { address, stop, served }
    }

    async fn ask(address: SocketAddr, path: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        (stream, String::new())
    }

    async fn slow() -> &'static str {
        tokio::time::sleep(Duration::from_millis(200)).await;
        "done"
    }

    async fn fails_halfway() -> Response<Body> {
        let pieces = stream::unfold(0, |step| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let piece = if step == 0 { Ok(Bytes::from_static(b"half")) } else { Err(std::io::Error::other("broken")) };
            (step < 2).then_some((piece, step + 1))
        });
        Response::builder().header("content-length", "8").body(Body::from_stream(pieces)).unwrap()
    }

    #[tokio::test]
    async fn request_in_flight_finishes_before_shutdown() {
        let running = start(Router::new().route("/", get(slow)), Duration::from_secs(5)).await;
        let (mut stream, mut answer) = ask(running.address, "/").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        running.stop.send(()).unwrap();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
        running.served.await.unwrap();
        assert!(TcpStream::connect(running.address).await.is_err());
    }

    #[tokio::test]
    async fn request_that_exceeds_the_drain_time_is_aborted() {
        let running = start(Router::new().route("/", get(slow)), Duration::from_millis(10)).await;
        let (mut stream, mut answer) = ask(running.address, "/").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        running.stop.send(()).unwrap();
        running.served.await.unwrap();
        assert!(!stream.read_to_string(&mut answer).await.is_ok_and(|_| answer.ends_with("done")));
    }

    #[tokio::test]
    async fn failed_response_body_closes_the_connection() {
        let running = start(Router::new().route("/", get(fails_halfway)), Duration::from_secs(1)).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection stayed open");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("content-length: 8") && text.ends_with("half"), "{text}");
    }
}
