//! Requests on the wire: one connection pool, every request signed, every answer bounded.
//!
//! A body of known length goes out in one request with its length announced and never in chunked
//! encoding. When a body fails, that failure is the answer, not the broken connection it causes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{CONTENT_LENGTH, DATE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::clock_hold::StoreTime;

use super::answer::Failure;
use super::attributes::parse_date;
use super::options::S3Options;
use super::sign::{Signed, Signer, UNSIGNED_PAYLOAD, canonical_query, escape_path, payload_hash};
use crate::{BodyError, ByteStream, Error, body};

/// A listing page of a thousand keys of the greatest length stays well below this.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below what services and load balancers allow, so that it is us who close idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

type Outgoing = UnsyncBoxBody<Bytes, BodyError>;

/// What a request carries.
pub(super) enum Payload {
    /// Bytes that are known, and signed.
    Known(Bytes),
    /// A stream of known length.
    Stream { size_bytes: u64, body: ByteStream },
}

/// A request to the bucket, or to a key in it.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) key: Option<&'a str>,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
}

impl<'a> Request<'a> {
    /// A request without a body.
    pub(super) fn new(method: Method, key: Option<&'a str>, query: &'a [(&'a str, &'a str)]) -> Self {
        Self { method, key, query, headers: HeaderMap::new(), payload: Payload::Known(Bytes::new()) }
    }

    pub(super) fn carrying(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// A whole answer that was a success.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no success to look at.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The service answered, and said no.
    Failed(Failure),
    /// There was no whole answer.
    Lost(Error),
}

impl From<NoAnswer> for Error {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Failed(failure) => failure.error(),
            NoAnswer::Lost(error) => error,
        }
    }
}

enum Pool {
    Plain(Client<HttpConnector, Outgoing>),
    Secure(Client<HttpsConnector<HttpConnector>, Outgoing>),
}

pub(super) struct Transport {
    pool: Pool,
    signer: Signer,
    clock: Arc<dyn Clock>,
    store_time: Option<Arc<StoreTime>>,
    scheme: Scheme,
    authority: Authority,
    /// What comes before the key in every path.
    base: String,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.base)
    }
}

impl Transport {
    pub(super) fn new(options: &S3Options, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let odd = || Error::Refused(format!("{:?} is not an endpoint", options.endpoint));
        let parts = options.endpoint.parse::<Uri>().map_err(|_| odd())?.into_parts();
        let (scheme, authority) = (parts.scheme.ok_or_else(odd)?, parts.authority.ok_or_else(odd)?);
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(odd());
        }
        let bucket = &options.bucket;
        let (authority, base) = if options.path_style {
            (authority, format!("/{}/", escape_path(bucket)))
        } else {
            (format!("{bucket}.{authority}").parse().map_err(|_| odd())?, "/".to_owned())
        };
        let signer = Signer {
            access_key_id: options.access_key_id.clone(),
            secret_access_key: options.secret_access_key.clone(),
            region: options.region.clone(),
        };
        Ok(Self { pool: pool(&scheme)?, signer, clock, store_time: None, scheme, authority, base })
    }

    /// The date of every answer is noted there from now on.
    pub(super) fn note_dates(&mut self, store_time: Arc<StoreTime>) {
        self.store_time = Some(store_time);
    }

    fn note_date(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| parse_date(date.to_str().ok()?));
        if let (Some(store_time), Some(seconds)) = (&self.store_time, date) {
            store_time.note(Timestamp::from_millis(seconds.saturating_mul(1000)), self.clock.since_boot());
        }
    }

    /// Our own wall clock, for comparing it with the service's.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn answer(&self, request: Request<'_>) -> Result<Answer, NoAnswer> {
        let response = self.send(request).await.map_err(NoAnswer::Lost)?;
        read_whole(response).await
    }

    /// Sends a request and hands on the answer with its body still to come.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<http::Response<Incoming>, Error> {
        let broken = Arc::new(Mutex::new(None));
        let request = self.signed(request, &broken)?;
        let sent = match &self.pool {
            Pool::Plain(client) => client.request(request).await,
            Pool::Secure(client) => client.request(request).await,
        };
        if let Ok(response) = &sent {
            self.note_date(response.headers());
        }
        sent.map_err(|error| match broken.lock().take() {
            Some(broken) => Error::Body(broken),
            None => Error::Away(with_causes(&error)),
        })
    }

    fn signed(&self, request: Request<'_>, broken: &Broken) -> Result<http::Request<Outgoing>, Error> {
        let Request { method, key, query, mut headers, payload } = request;
        let path = format!("{}{}", self.base, key.map(escape_path).unwrap_or_default());
        let query = canonical_query(query);
        let host = HeaderValue::from_str(self.authority.as_str());
        headers.insert(HOST, host.map_err(|_| Error::Refused("odd host".to_owned()))?);
        let (payload_hash, size_bytes) = match &payload {
            Payload::Known(bytes) => (payload_hash(bytes), bytes.len() as u64),
            Payload::Stream { size_bytes, .. } => (UNSIGNED_PAYLOAD.to_owned(), *size_bytes),
        };
        let signed = Signed { method: method.as_str(), path: &path, query: &query, payload_hash: &payload_hash };
        self.signer.sign(signed, self.clock.now(), &mut headers)?;
        // Not signed: some proxies drop or add it.
        if size_bytes > 0 || matches!(method, Method::PUT | Method::POST) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
        }
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(target);
        let uri = uri.build().map_err(|error| Error::Refused(format!("odd key: {error}")))?;
        let mut built = http::Request::new(outgoing(payload, broken));
        *built.method_mut() = method;
        *built.uri_mut() = uri;
        *built.headers_mut() = headers;
        Ok(built)
    }
}

/// Where a body leaves word of what broke it.
type Broken = Arc<Mutex<Option<BodyError>>>;

fn outgoing(payload: Payload, broken: &Broken) -> Outgoing {
    match payload {
        Payload::Known(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        Payload::Stream { size_bytes, body } => {
            let broken = Arc::clone(broken);
            let frames = body::exactly(body, size_bytes).map(move |chunk| match chunk {
                Ok(chunk) => Ok(Frame::data(chunk)),
                Err(error) => {
                    *broken.lock() = Some(error.clone());
                    Err(error)
                }
            });
            StreamBody::new(frames).boxed_unsync()
        }
    }
}

fn pool(scheme: &Scheme) -> Result<Pool, Error> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(POOL_IDLE_TIMEOUT);
    if *scheme == Scheme::HTTP {
        return Ok(Pool::Plain(builder.build(connector)));
    }
    let secure = HttpsConnectorBuilder::new()
        .with_native_roots()
        .map_err(|error| Error::Refused(format!("no root certificates: {error}")))?;
    Ok(Pool::Secure(builder.build(secure.https_only().enable_http1().wrap_connector(connector))))
}

/// Reads the body of an answer, and sorts successes from failures.
pub(super) async fn read_whole(response: http::Response<Incoming>) -> Result<Answer, NoAnswer> {
    let (head, body) = response.into_parts();
    let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = match collected {
        Ok(collected) => collected.to_bytes(),
        // A failure whose explanation broke off is a failure all the same.
        Err(_) if !head.status.is_success() => Bytes::new(),
        Err(error) => return Err(NoAnswer::Lost(Error::Unknown(format!("the answer broke off: {error}")))),
    };
    if head.status.is_success() {
        Ok(Answer { headers: head.headers, body })
    } else {
        Err(NoAnswer::Failed(Failure::read(head.status, &body)))
    }
}

/// A failure without a body, as HEAD gives it.
pub(super) fn is_bare_404(none: &NoAnswer) -> bool {
    matches!(none, NoAnswer::Failed(failure) if failure.status == StatusCode::NOT_FOUND && failure.code.is_empty())
}

/// The text of a header.
pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The ETag without its quotes.
pub(super) fn etag(headers: &HeaderMap) -> Option<String> {
    header_text(headers, "etag").map(unquote)
}

/// An ETag as stores write it, without quotes.
pub(super) fn unquote(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
