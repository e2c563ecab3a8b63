//! Follows one request from its header to its answer's header.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Response};
use s3o_model::entropy::Entropy;
use tokio::time::Instant;

use super::{RequestMetrics, RequestNotes};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// The operation of requests that were refused before they had one.
const NO_OPERATION: &str = "unknown";

/// Observes requests.
#[derive(Clone)]
pub struct Observer {
    metrics: RequestMetrics,
    entropy: Arc<dyn Entropy>,
}

/// A request under observation.
pub struct Observed {
    notes: RequestNotes,
    method: http::Method,
    path: String,
    started: Instant,
}

impl Observed {
    /// The notes on the request.
    #[must_use]
    pub fn notes(&self) -> &RequestNotes {
        &self.notes
    }

    /// The request's path as the client sent it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Observer {
    /// An observer that counts here and draws identifiers from there.
    #[must_use]
    pub fn new(metrics: RequestMetrics, entropy: Arc<dyn Entropy>) -> Self {
        Self { metrics, entropy }
    }

    /// Gives a request its identifier and starts its clock.
    pub fn begin<B>(&self, request: &mut Request<B>) -> Observed {
        let notes = RequestNotes::new(format!("{:016X}", self.entropy.next_u64()));
        request.extensions_mut().insert(notes.clone());
        Observed {
            notes,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            started: Instant::now(),
        }
    }

    /// Counts a request that found no place.
    pub fn count_rejection(&self) {
        self.metrics.reject();
    }

    /// Puts the identifier on the answer, counts it and logs it.
    pub fn finish<B>(&self, observed: &Observed, response: &mut Response<B>) {
        let notes = &observed.notes;
        if let Ok(value) = HeaderValue::from_str(notes.request_id()) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let operation = notes.operation().unwrap_or(NO_OPERATION);
        let status = response.status().as_u16();
        let duration = observed.started.elapsed();
        self.metrics.record(operation, status, duration);
        tracing::debug!(
            request_id = notes.request_id(),
            operation,
            status,
            method = %observed.method,
            path = observed.path,
            duration_us = duration.as_micros(),
            "s3 request"
        );
    }
}
