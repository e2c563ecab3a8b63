//! The door as a service: what is refused before the protocol library, and how answers leave.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use s3o_engine::Engine;
use s3o_workers::Budget;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use tracing::Instrument as _;

use super::access::SharedKeys;
use super::credential_scope::REGION_HEADER;
use super::door::Door;
use super::grants::Grants;
use super::host::Domain;
use super::leniency::Leniency;
use super::names::OurNames;
use super::refusal::{Refusal, usual};
use super::reserved_share::ReservedShare;
use super::xml_body::Style;
use super::{error_body, framing, gate, query_headers, signing_dates, xml_body, xml_text};
use crate::listener::ConnectionHandle;
use crate::middleware::{
    Admission, Connection, Metered, Observed, Observer, RequestNotes, Rest, STALLED, Transfer, watch,
};
use crate::{BoxError, ResponseBody};

/// The S3 code for a request that finds no slot.
const NO_SLOT: &str = "SlowDown";

/// How the door presents itself.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The region that buckets are in.
    pub region: String,
    /// The domain below which host names are buckets.
    pub domain: Option<String>,
    /// How many requests are answered at a time; more are told to slow down.
    pub max_concurrent_requests: usize,
    /// When all slots are taken, transfers slower than this, in bytes per second, are ended.
    pub min_transfer_rate: u64,
    /// The share of the free capacity that the writes under way of one access key may reserve.
    pub max_reserved_share: f64,
    /// What requests and background work share.
    pub budget: Arc<Budget>,
}

/// The S3 door, as a hyper service.
#[derive(Clone)]
pub struct Service {
    inner: S3Service,
    domain: Option<Domain>,
    region: Arc<str>,
    observer: Observer,
    admission: Admission,
}

/// Builds the S3 door.
#[must_use]
pub fn service(engine: Arc<Engine>, keys: SharedKeys, options: S3Options, observer: Observer) -> Service {
    let region = Arc::from(options.region.as_str());
    let reserved_share = ReservedShare::new(options.max_reserved_share);
    let door = Door { engine, keys: keys.clone(), region: options.region, reserved_share, audit: observer.audit() };
    let domain = options.domain.as_deref().map(Domain::new);
    let behind = builder(&door, keys.clone(), domain.clone()).build();
    let mut front = builder(&door, keys, domain.clone());
    front.set_route(Leniency { behind });
    let admission = Admission::new(options.max_concurrent_requests, options.min_transfer_rate, options.budget);
    Service { inner: front.build(), domain, region, observer, admission }
}

fn builder(door: &Door, keys: SharedKeys, domain: Option<Domain>) -> S3ServiceBuilder {
    let mut builder = S3ServiceBuilder::new(door.clone());
    let grants = Grants::new(keys);
    builder.set_auth(grants.clone());
    builder.set_access(grants);
    builder.set_validation(OurNames);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(protocol_limits()))));
    if let Some(domain) = domain {
        builder.set_host(domain);
    }
    builder
}

/// The answer to a request for which there is no slot.
pub fn no_slot() -> Refusal {
    Refusal::new(NO_SLOT).with_header(RETRY_AFTER, "1")
}

fn protocol_limits() -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = xml_body::BYTES_MAX;
    // Forms are refused before the library sees them; these limits hold should one get past that check.
    config.post_object_max_file_size = 1;
    config.form_max_field_size = 1;
    config.form_max_fields_size = 1;
    config.form_max_parts = 1;
    config
}

impl Service {
    /// Answers one request.
    pub async fn answer<B>(&self, mut request: Request<B>) -> Response<ResponseBody>
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
        let (body, rest) = watch(&parts, body, observed.notes(), &transfer);
        // Whatever is logged on the way, at any level, carries the identifier that the client is given.
        let span = tracing::error_span!("request", request_id = observed.notes().request_id());
        let request = Request::from_parts(parts, Body::http_body(body));
        let answered = self.call(request, observed.notes()).instrument(span).await;
        if observed.notes().subject().is_none() {
            return self.answer_unauthenticated(answered, rest, (&method, observed)).await;
        }
        let mut response = match answered {
            Ok(response) => finish_body(response, &method, &observed),
            Err(refusal) => refused(&refusal, &method, &observed),
        };
        if observed.notes().error_code() == Some(NO_SLOT) {
            self.observer.count_rejection();
        }
        if rest.settle().await == Connection::Ends {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = response.map(|body| Metered::new(body, ticket.into_slot()).boxed_unsync());
        self.observer.finish(observed, &mut response).await;
        response
    }

    /// Answers a request whose signature was not verified: from its head alone, within the budget of such requests.
    async fn answer_unauthenticated<B>(
        &self,
        answered: Result<HttpResponse, Refusal>,
        rest: Rest<B>,
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
            Ok(response) => finish_body(response, method, &observed),
            Err(refusal) => refused(&refusal, method, &observed),
        };
        if rest.abandon() == Connection::Ends {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = response.map(http_body_util::BodyExt::boxed_unsync);
        self.observer.finish(observed, &mut response).await;
        response
    }

    fn style(&self, request: &Parts) -> Style {
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match self.domain.as_ref().and_then(|domain| domain.bucket_of(host)) {
            Some(_) => Style::VirtualHost,
            None => Style::Path,
        }
    }

    async fn call(&self, request: Request<Body>, notes: &RequestNotes) -> Result<HttpResponse, Refusal> {
        let (mut parts, body) = request.into_parts();
        query_headers::apply(&mut parts);
        signing_dates::apply(&mut parts);
        gate::check(&parts, &self.region)?;
        let body = framing::bounded(&parts.headers, body);
        let body = xml_body::watch(&parts, self.style(&parts), body, notes)?;
        self.inner.call(Request::from_parts(parts, body)).await.map_err(|error| {
            tracing::error!(?error, "the protocol library gave no answer");
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

/// Completes error documents and keeps others well-formed; object bodies pass untouched.
fn finish_body(mut response: HttpResponse, method: &Method, observed: &Observed) -> HttpResponse {
    if response.status().is_client_error() || response.status().is_server_error() || response.status().is_redirection()
    {
        return complete_error(&response, method, observed);
    }
    let ranged = method == Method::HEAD && response.headers().contains_key(CONTENT_RANGE);
    if ranged {
        // The library knows partial answers of GET only.
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let is_xml = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/xml");
    if is_xml && let Some(bytes) = response.body().bytes() {
        let unquoted = observed.notes().operation() == Some("GetObjectAttributes");
        let bytes = if unquoted { xml_text::without_etag_quotes(&bytes) } else { bytes };
        *response.body_mut() = Body::from(xml_text::well_formed(bytes));
    }
    response
}

fn complete_error(response: &HttpResponse, method: &Method, observed: &Observed) -> HttpResponse {
    let bytes = response.body().bytes().unwrap_or_default();
    let found = std::str::from_utf8(&bytes).ok().and_then(error_body::read);
    let (code, message) = found.unwrap_or_else(|| ("InternalError".to_owned(), None));
    let mut refusal = match body_fault(&code, message.as_deref(), method, observed.notes()) {
        Some(code) => Refusal::new(code),
        None => Refusal {
            message: message.unwrap_or_else(|| usual(&code).map_or(code.clone(), |(_, text)| text.to_owned())).into(),
            status: response.status(),
            code: code.into(),
            headers: Box::default(),
        },
    };
    *refusal.headers = response.headers().clone();
    refused(&refusal, method, observed)
}

/// The protocol library calls every body that it could not read an internal error, without a
/// message; ours always have one. A body that stalled explains whatever else went wrong.
fn body_fault(code: &str, message: Option<&str>, method: &Method, notes: &RequestNotes) -> Option<&'static str> {
    if notes.body_fault() == Some(STALLED) {
        return Some(STALLED);
    }
    let unread = code == "InternalError" && message.is_none() && matches!(*method, Method::PUT | Method::POST);
    unread.then(|| notes.body_fault().unwrap_or("XAmzContentSHA256Mismatch"))
}

fn refused(refusal: &Refusal, method: &Method, observed: &Observed) -> HttpResponse {
    observed.notes().set_error_code(&refusal.code);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = refusal.status;
    response.headers_mut().extend(refusal.headers.as_ref().clone());
    response.headers_mut().remove(CONTENT_LENGTH);
    let bodiless = method == Method::HEAD || refusal.status == StatusCode::NOT_MODIFIED;
    if !bodiless {
        let request_id = observed.notes().request_id();
        let region = refusal.headers.get(REGION_HEADER).and_then(|region| region.to_str().ok());
        let told = (&*refusal.code, Some(&*refusal.message));
        let xml = error_body::write(told, region, observed.path(), request_id);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        *response.body_mut() = Body::from(xml_text::well_formed(Bytes::from(xml)));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::body_fault;
    use crate::middleware::{RequestNotes, STALLED};
    use http::Method;

    #[test]
    fn a_body_that_stalled_explains_every_error() {
        let notes = RequestNotes::new("id".into());
        assert_eq!(body_fault("IncompleteBody", Some("short"), &Method::PUT, &notes), None);
        assert_eq!(body_fault("InternalError", None, &Method::PUT, &notes), Some("XAmzContentSHA256Mismatch"));
        notes.set_body_fault(STALLED);
        assert_eq!(body_fault("IncompleteBody", Some("short"), &Method::PUT, &notes), Some("RequestTimeout"));
        assert_eq!(body_fault("InternalError", None, &Method::POST, &notes), Some("RequestTimeout"));
    }
}
