//! Completes the responses of the protocol library; object bodies pass unchanged.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use s3s::{Body, HttpResponse};

use super::credential_scope::REGION_HEADER;
use super::{error_body, xml_text};
use crate::middleware::{Observed, RequestContext, STALLED};
use crate::s3::refusal::{Refusal, default_answer};

/// Adds to error documents what the library leaves out, and makes every other document well-formed.
pub fn complete(mut response: HttpResponse, method: &Method, observed: &Observed) -> HttpResponse {
    if response.status().is_client_error() || response.status().is_server_error() || response.status().is_redirection()
    {
        return complete_error(&response, method, observed);
    }
    // The library answers 206 to GET only.
    if method == Method::HEAD && response.headers().contains_key(CONTENT_RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let is_xml = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/xml");
    if is_xml && let Some(bytes) = response.body().bytes() {
        let unquoted = observed.context().operation().is_some_and(|operation| operation.name == "GetObjectAttributes");
        let bytes = if unquoted { xml_text::without_etag_quotes(&bytes) } else { bytes };
        *response.body_mut() = Body::from(xml_text::well_formed(bytes));
    }
    response
}

fn complete_error(response: &HttpResponse, method: &Method, observed: &Observed) -> HttpResponse {
    let bytes = response.body().bytes().unwrap_or_default();
    let found = std::str::from_utf8(&bytes).ok().and_then(error_body::read);
    let (code, message) = found.unwrap_or_else(|| ("InternalError".to_owned(), None));
    let mut refusal = match body_fault(&code, message.as_deref(), method, observed.context()) {
        Some(code) => Refusal::new(code),
        None => Refusal {
            message: message
                .unwrap_or_else(|| default_answer(&code).map_or(code.clone(), |(_, text)| text.to_owned()))
                .into(),
            status: response.status(),
            code: code.into(),
            headers: Box::default(),
        },
    };
    *refusal.headers = response.headers().clone();
    refused(&refusal, method, observed)
}

/// The code for a body that the library could not read: it answers an internal error without a message, while our own
/// always have one. A stalled body takes precedence over every other error, because it causes them.
fn body_fault(code: &str, message: Option<&str>, method: &Method, context: &RequestContext) -> Option<&'static str> {
    if context.body_fault() == Some(STALLED) {
        return Some(STALLED);
    }
    let unread = code == "InternalError" && message.is_none() && matches!(*method, Method::PUT | Method::POST);
    unread.then(|| context.body_fault().unwrap_or("XAmzContentSHA256Mismatch"))
}

/// The response to a refused request, with an error document unless it is a HEAD request.
pub fn refused(refusal: &Refusal, method: &Method, observed: &Observed) -> HttpResponse {
    observed.context().set_error_code(&refusal.code);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = refusal.status;
    response.headers_mut().extend(refusal.headers.as_ref().clone());
    response.headers_mut().remove(CONTENT_LENGTH);
    let bodiless = method == Method::HEAD || refusal.status == StatusCode::NOT_MODIFIED;
    if !bodiless {
        let region = refusal.headers.get(REGION_HEADER).and_then(|region| region.to_str().ok());
        let error = (&*refusal.code, Some(&*refusal.message));
        let xml = error_body::write(error, region, observed.path(), observed.context().request_id());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        *response.body_mut() = Body::from(xml_text::well_formed(Bytes::from(xml)));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::body_fault;
    use crate::middleware::{RequestContext, STALLED};
    use http::Method;

    #[test]
    fn stalled_body_takes_precedence_over_every_error() {
        let context = RequestContext::new("id".into());
        assert_eq!(body_fault("IncompleteBody", Some("short"), &Method::PUT, &context), None);
        assert_eq!(body_fault("InternalError", None, &Method::PUT, &context), Some("XAmzContentSHA256Mismatch"));
        context.set_body_fault(STALLED);
        assert_eq!(body_fault("IncompleteBody", Some("short"), &Method::PUT, &context), Some("RequestTimeout"));
        assert_eq!(body_fault("InternalError", None, &Method::POST, &context), Some("RequestTimeout"));
    }
}
