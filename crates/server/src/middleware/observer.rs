//! Follows one request from its header to its answer's header.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use s3o_model::entropy::Entropy;
use tokio::time::Instant;

use super::audited::Asked;
use super::{RequestMetrics, RequestNotes};
use crate::audit::Audit;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// The operation of requests that were refused before they had one.
const NO_OPERATION: &str = "unknown";

/// Observes requests.
#[derive(Clone)]
pub struct Observer {
    metrics: RequestMetrics,
    entropy: Arc<dyn Entropy>,
    audit: Arc<Audit>,
}

/// A request under observation. One that is dropped before its answer is audited all the same:
/// what it asked for may have been done.
pub struct Observed {
    notes: RequestNotes,
    asked: Asked,
    started: Instant,
    audit: Option<Arc<Audit>>,
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
        self.asked.path()
    }

    /// Writes the audit line, once; says where to wait for room.
    fn record(&mut self, status: Option<StatusCode>) -> Option<Arc<Audit>> {
        let audit = self.audit.take()?;
        self.asked.record(&audit, &self.notes, status);
        Some(audit)
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.record(None);
    }
}

impl Observer {
    /// An observer that counts and audits here and draws identifiers from there.
    #[must_use]
    pub fn new(metrics: RequestMetrics, entropy: Arc<dyn Entropy>, audit: Arc<Audit>) -> Self {
        Self { metrics, entropy, audit }
    }

    /// Gives a request its identifier and starts its clock.
    pub fn begin<B>(&self, request: &mut Request<B>) -> Observed {
        let notes = RequestNotes::new(format!("{:016X}", self.entropy.next_u64()));
        request.extensions_mut().insert(notes.clone());
        Observed {
            notes,
            asked: Asked::of(request.method(), request.uri(), request.headers()),
            started: Instant::now(),
            audit: Some(Arc::clone(&self.audit)),
        }
    }

    /// Where requests are audited.
    #[must_use]
    pub fn audit(&self) -> Arc<Audit> {
        Arc::clone(&self.audit)
    }

    /// Counts a request that found no place.
    pub fn count_rejection(&self) {
        self.metrics.reject();
    }

    /// Puts the identifier on the answer, counts it, logs it and audits it.
    pub async fn finish<B>(&self, mut observed: Observed, response: &mut Response<B>) {
        let status = response.status();
        if let Ok(value) = HeaderValue::from_str(observed.notes.request_id()) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let operation = observed.notes.operation().unwrap_or(NO_OPERATION);
        let duration = observed.started.elapsed();
        self.metrics.record(operation, status.as_u16(), duration);
        tracing::debug!(
            request_id = observed.notes.request_id(),
            operation,
            status = status.as_u16(),
            method = %observed.asked.method(),
            path = observed.path(),
            duration_us = duration.as_micros(),
            "s3 request"
        );
        if let Some(audit) = observed.record(Some(status)) {
            audit.room().await;
        }
    }
}
