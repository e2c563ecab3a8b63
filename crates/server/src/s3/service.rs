//! The S3 API as a hyper service: checks before the protocol library, the library, and completion of its responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use s3o_engine::Engine;
use s3o_workers::Budget;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use tracing::Instrument as _;

use super::access::SharedKeys;
use super::compat::header_compat::HeaderCompat;
use super::compat::responses::{complete, refused};
use super::compat::xml_body::{self, BucketStyle};
use super::compat::{framing, precheck, query_headers, signing_dates};
use super::grants::Grants;
use super::host::Domain;
use super::names::BucketNameValidation;
use super::refusal::Refusal;
use super::reserved_share::ReservedShare;
use super::s3_handler::S3Handler;
use crate::listener::ConnectionHandle;
use crate::middleware::{
    Admission, ConnectionFate, MeteredBody, Observed, Observer, RequestContext, Transfer, UnreadBody, watch,
};
use crate::{BoxError, ResponseBody};

/// The S3 error code when all request slots are in use.
const NO_SLOT: &str = "SlowDown";

/// Options of the S3 API.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The region of all buckets.
    pub region: String,
    /// The domain for virtual-hosted-style requests: `<bucket>.<domain>`.
    pub domain: Option<String>,
    /// Number of request slots; requests beyond it are answered with `SlowDown`.
    pub max_concurrent_requests: usize,
    /// When all slots are in use, transfers slower than this, in bytes per second, are ended.
    pub min_transfer_rate: u64,
    /// The share of the free capacity that unfinished writes of one access key may reserve.
    pub max_reserved_share: f64,
    /// Load limit that requests and background work share.
    pub budget: Arc<Budget>,
}

/// The S3 API as a hyper service.
#[derive(Clone)]
pub struct Service(Arc<ServiceState>);

struct ServiceState {
    inner: S3Service,
    domain: Option<Domain>,
    region: String,
    observer: Observer,
    admission: Admission,
}

/// Builds the S3 API over an engine.
#[must_use]
pub fn service(engine: Arc<Engine>, keys: SharedKeys, options: ServiceOptions, observer: Observer) -> Service {
    let region = options.region.clone();
    let reserved_share = ReservedShare::new(options.max_reserved_share);
    let handler =
        S3Handler { engine, keys: keys.clone(), region: options.region, reserved_share, audit: observer.audit() };
    let domain = options.domain.as_deref().map(Domain::new);
    let inner = builder(&handler, keys.clone(), domain.clone()).build();
    let mut outer = builder(&handler, keys, domain.clone());
    outer.set_route(HeaderCompat { inner });
    let admission = Admission::new(options.max_concurrent_requests, options.min_transfer_rate, options.budget);
    Service(Arc::new(ServiceState { inner: outer.build(), domain, region, observer, admission }))
}

fn builder(handler: &S3Handler, keys: SharedKeys, domain: Option<Domain>) -> S3ServiceBuilder {
    let mut builder = S3ServiceBuilder::new(handler.clone());
    let grants = Grants::new(keys);
    builder.set_auth(grants.clone());
    builder.set_access(grants);
    builder.set_validation(BucketNameValidation);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(protocol_limits()))));
    if let Some(domain) = domain {
        builder.set_host(domain);
    }
    builder
}

/// The error for a request when all slots are in use.
pub fn no_slot() -> Refusal {
    Refusal::new(NO_SLOT).with_header(RETRY_AFTER, "1")
}

fn protocol_limits() -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = xml_body::BYTES_MAX;
    // `precheck` refuses forms; these limits are the second guard.
    config.post_object_max_file_size = 1;
    config.form_max_field_size = 1;
    config.form_max_fields_size = 1;
    config.form_max_parts = 1;
    config
}

impl Service {
    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        self.0.answer(request).await
    }
}

impl ServiceState {
    async fn answer<B>(&self, mut request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let observed = self.observer.begin(&mut request);
        let transfer = Transfer::new(request.extensions().get::<ConnectionHandle>().cloned());
        let ticket = self.admission.ticket(&transfer);
        request.extensions_mut().insert(ticket.clone());
        let (parts, body) = request.into_parts();
        let method = parts.method.clone();
        let (body, rest) = match watch(&parts, body, observed.context(), &transfer) {
            Some((body, rest)) => (Body::http_body(body), Some(rest)),
            None => (Body::empty(), None),
        };
        // ERROR level, so that every log line of the request carries the ID that the client gets.
        let span = tracing::error_span!("request", request_id = observed.context().request_id());
        let request = Request::from_parts(parts, body);
        let answered = self.call(request, observed.context()).instrument(span).await;
        if observed.context().subject().is_none() {
            return self.answer_unauthenticated(answered, rest, (&method, observed)).await;
        }
        let mut response = match answered {
            Ok(response) => complete(response, &method, &observed),
            Err(refusal) => refused(&refusal, &method, &observed),
        };
        if observed.context().error_code() == Some(NO_SLOT) {
            self.observer.count_rejection();
        }
        if let Some(rest) = rest
            && rest.settle().await == ConnectionFate::Closes
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = response.map(|body| MeteredBody::new(body, ticket.into_slot()).boxed_unsync());
        self.observer.finish(observed, &mut response).await;
        response
    }

    /// Answers a request whose signature was not verified without reading its body, within the budget of such requests.
    async fn answer_unauthenticated<B>(
        &self,
        answered: Result<HttpResponse, Refusal>,
        rest: Option<UnreadBody<B>>,
        (method, observed): (&Method, Observed),
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let budgeted = self.admission.admit_unauthenticated();
        let mut response = match answered {
            _ if budgeted.is_none() => {
                self.observer.count_rejection();
                refused(&no_slot(), method, &observed)
            }
            Ok(response) => complete(response, method, &observed),
            Err(refusal) => refused(&refusal, method, &observed),
        };
        if rest.is_some_and(|rest| rest.abandon() == ConnectionFate::Closes) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = response.map(http_body_util::BodyExt::boxed_unsync);
        self.observer.finish(observed, &mut response).await;
        response
    }

    fn style(&self, request: &Parts) -> BucketStyle {
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match self.domain.as_ref().and_then(|domain| domain.bucket_of(host)) {
            Some(_) => BucketStyle::VirtualHost,
            None => BucketStyle::Path,
        }
    }

    async fn call(&self, request: Request<Body>, context: &RequestContext) -> Result<HttpResponse, Refusal> {
        let (mut parts, body) = request.into_parts();
        query_headers::apply(&mut parts);
        signing_dates::apply(&mut parts);
        precheck::check(&parts, &self.region)?;
        let body = framing::bounded(&parts.headers, body);
        let body = xml_body::watch(&parts, self.style(&parts), body, context)?;
        self.inner.call(Request::from_parts(parts, body)).await.map_err(|error| {
            tracing::error!(?error, "request failed, protocol library returned an error");
            Refusal::new("InternalError")
        })
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
