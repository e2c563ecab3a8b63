//! HTTP requests: one connection pool, every request signed, every response bounded.
//!
//! A body of known length is sent with Content-Length, never in chunked encoding. If a body fails,
//! the caller gets that error, not the connection error that it causes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::clock_hold::StoreTime;

use super::answer::ErrorResponse;
use super::attributes::parse_date;
use super::bodies::{BodyFault, OutgoingBody, StoreResponseBody};
use super::options::S3Options;
use super::sign::{SignedParts, Signer, UNSIGNED_PAYLOAD, canonical_query, escape_path, payload_hash};
use super::xml::XmlElement;
use crate::usage::BackendUsage;
use crate::{ByteStream, Error};

/// Larger than a listing page of a thousand keys of maximum length.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below the idle timeouts of services and load balancers, so that this side closes idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) enum Payload {
    /// Bytes known in advance, covered by the signature.
    Known(Bytes),
    /// A stream of known length, not covered by the signature.
    Stream { size_bytes: u64, body: ByteStream },
}

/// A request to the bucket, or to a key in it.
pub(super) struct S3Request<'a> {
    pub(super) method: Method,
    pub(super) key: Option<&'a str>,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
}

impl<'a> S3Request<'a> {
    /// A request without a body.
    pub(super) fn new(method: Method, key: Option<&'a str>, query: &'a [(&'a str, &'a str)]) -> Self {
        Self { method, key, query, headers: HeaderMap::new(), payload: Payload::Known(Bytes::new()) }
    }

    pub(super) fn with_payload(mut self, payload: Payload) -> Self {
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

/// A success response with its complete body.
#[derive(Debug)]
pub(super) struct SuccessResponse {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why a request has no success response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The service sent an error response.
    Response(ErrorResponse),
    /// No complete response arrived.
    Lost(Error),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Response(failure) => failure.error(),
            RequestError::Lost(error) => error,
        }
    }
}

enum Pool {
    Plain(Client<HttpConnector, OutgoingBody>),
    Secure(Client<HttpsConnector<HttpConnector>, OutgoingBody>),
}

pub(super) struct Transport {
    pool: Pool,
    signer: Signer,
    clock: Arc<dyn Clock>,
    store_time: Option<Arc<StoreTime>>,
    usage: Option<Arc<BackendUsage>>,
    scheme: Scheme,
    authority: Authority,
    /// Part of every path before the key.
    base: String,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.base)
    }
}

impl Transport {
    pub(super) fn new(options: &S3Options, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let invalid =
            || Error::Refused(format!("{:?} is not an endpoint, use a URL like https://host:port", options.endpoint));
        let parts = options.endpoint.parse::<Uri>().map_err(|_| invalid())?.into_parts();
        let (scheme, authority) = (parts.scheme.ok_or_else(invalid)?, parts.authority.ok_or_else(invalid)?);
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(invalid());
        }
        let bucket = &options.bucket;
        let (authority, base) = if options.path_style {
            (authority, format!("/{}/", escape_path(bucket)))
        } else {
            (format!("{bucket}.{authority}").parse().map_err(|_| invalid())?, "/".to_owned())
        };
        let signer = Signer {
            access_key_id: options.access_key_id.clone(),
            secret_access_key: options.secret_access_key.clone(),
            region: options.region.clone(),
        };
        Ok(Self { pool: pool(&scheme)?, signer, clock, store_time: None, usage: None, scheme, authority, base })
    }

    /// Records the `Date` of every response in `store_time` from now on.
    pub(super) fn record_dates(&mut self, store_time: Arc<StoreTime>) {
        self.store_time = Some(store_time);
    }

    /// Counts every request and the bytes of its bodies in `usage` from now on.
    pub(super) fn count_in(&mut self, usage: Arc<BackendUsage>) {
        self.usage = Some(usage);
    }

    fn record_date(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| parse_date(date.to_str().ok()?));
        if let (Some(store_time), Some(seconds)) = (&self.store_time, date) {
            store_time.note(Timestamp::from_millis(seconds.saturating_mul(1000)), self.clock.since_boot());
        }
    }

    /// The wall clock of this process, to compare with the service's.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Sends a request and reads the complete response.
    pub(super) async fn answer(&self, request: S3Request<'_>) -> Result<SuccessResponse, RequestError> {
        let response = self.send(request).await.map_err(RequestError::Lost)?;
        read_whole(response).await
    }

    /// Reads a listing of the bucket. A 404 is `Unknown`: it is not about a key.
    pub(super) async fn listing(&self, query: &[(&str, &str)]) -> Result<XmlElement, Error> {
        match self.answer(S3Request::new(Method::GET, None, query)).await.map_err(Error::from) {
            Ok(answer) => XmlElement::parse(&answer.body),
            Err(Error::NotFound) => Err(Error::Unknown("the listing returned 404".to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and returns the response before its body is read.
    pub(super) async fn send(&self, request: S3Request<'_>) -> Result<http::Response<StoreResponseBody>, Error> {
        let fault = Arc::new(Mutex::new(None));
        let request = self.signed(request, &fault)?;
        // Before the call: a request that is cancelled may have arrived.
        let counters = self.usage.as_ref().map(|usage| usage.count_request());
        let request = request.map(|body| body.counted(counters.clone()));
        let sent = match &self.pool {
            Pool::Plain(client) => client.request(request).await,
            Pool::Secure(client) => client.request(request).await,
        };
        match sent {
            Ok(response) => {
                self.record_date(response.headers());
                Ok(response.map(|body| StoreResponseBody::received(body, counters)))
            }
            Err(error) => {
                if let Some(counters) = counters.filter(|_| error.is_connect()) {
                    counters.uncount_request();
                }
                Err(fault.lock().take().map_or_else(|| Error::Away(with_causes(&error)), Error::Body))
            }
        }
    }

    fn signed(&self, request: S3Request<'_>, fault: &BodyFault) -> Result<http::Request<OutgoingBody>, Error> {
        let S3Request { method, key, query, mut headers, payload } = request;
        let path = format!("{}{}", self.base, key.map(escape_path).unwrap_or_default());
        let query = canonical_query(query);
        let host = HeaderValue::from_str(self.authority.as_str());
        headers.insert(HOST, host.map_err(|_| Error::Refused("the host is not a valid header value".to_owned()))?);
        let (payload_hash, size_bytes) = match &payload {
            Payload::Known(bytes) => (payload_hash(bytes), bytes.len() as u64),
            Payload::Stream { size_bytes, .. } => (UNSIGNED_PAYLOAD.to_owned(), *size_bytes),
        };
        let signed = SignedParts { method: method.as_str(), path: &path, query: &query, payload_hash: &payload_hash };
        self.signer.sign(signed, self.clock.now(), &mut headers)?;
        // Not signed: some proxies remove or add it.
        if size_bytes > 0 || matches!(method, Method::PUT | Method::POST) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
        }
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(target);
        let uri = uri.build().map_err(|error| Error::Refused(format!("the key cannot be part of a URL: {error}")))?;
        let mut built = http::Request::new(match payload {
            Payload::Known(bytes) => OutgoingBody::known(bytes),
            Payload::Stream { size_bytes, body } => OutgoingBody::stream(size_bytes, body, fault),
        });
        *built.method_mut() = method;
        *built.uri_mut() = uri;
        *built.headers_mut() = headers;
        Ok(built)
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
        .map_err(|error| Error::Refused(format!("root certificates not readable: {error}")))?;
    Ok(Pool::Secure(builder.build(secure.https_only().enable_http1().wrap_connector(connector))))
}

/// Reads the body of a response; an error status is an error.
pub(super) async fn read_whole(response: http::Response<StoreResponseBody>) -> Result<SuccessResponse, RequestError> {
    let (head, body) = response.into_parts();
    let collected = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let body = match collected {
        Ok(collected) => collected.to_bytes(),
        // An error response with an incomplete body is still an error response.
        Err(_) if !head.status.is_success() => Bytes::new(),
        Err(error) => return Err(RequestError::Lost(Error::Unknown(format!("the response was interrupted: {error}")))),
    };
    if head.status.is_success() {
        Ok(SuccessResponse { headers: head.headers, body })
    } else {
        Err(RequestError::Response(ErrorResponse::read(head.status, &body)))
    }
}

/// A 404 without an error code, as HEAD returns it.
pub(super) fn is_bare_404(error: &RequestError) -> bool {
    let RequestError::Response(response) = error else { return false };
    response.status == StatusCode::NOT_FOUND && response.code.is_empty()
}

/// A header value, if it is visible ASCII.
pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The ETag without its quotes.
pub(super) fn etag(headers: &HeaderMap) -> Option<String> {
    header_text(headers, "etag").map(unquote)
}

/// An ETag without weak prefix and quotes.
pub(super) fn unquote(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
