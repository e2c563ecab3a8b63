//! Measures, logs and audits each request, from its headers to the headers of its response.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use s3o_model::entropy::Entropy;
use tokio::time::Instant;

use super::audited::AuditedRequest;
use super::{RequestContext, RequestMetrics};
use crate::audit::Audit;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// Metric label of requests that were refused before their operation was known.
const NO_OPERATION: &str = "unknown";

/// Measures, logs and audits requests; clones share everything.
#[derive(Clone)]
pub struct Observer {
    metrics: RequestMetrics,
    entropy: Arc<dyn Entropy>,
    audit: Arc<Audit>,
}

/// An observed request. If it is dropped before its response it is still audited, because the operation may have taken
/// effect.
pub struct Observed {
    context: RequestContext,
    audited: AuditedRequest,
    started: Instant,
    audit: Option<Arc<Audit>>,
}

impl Observed {
    /// Shared state of the request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// The path as the client sent it.
    #[must_use]
    pub fn path(&self) -> &str {
        self.audited.path()
    }

    /// Writes the audit line once; returns the log whose queue the caller must wait for.
    fn record(&mut self, status: Option<StatusCode>) -> Option<Arc<Audit>> {
        let audit = self.audit.take()?;
        self.audited.record(&audit, &self.context, status);
        Some(audit)
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.record(None);
    }
}

impl Observer {
    /// `entropy` generates the request IDs.
    #[must_use]
    pub fn new(metrics: RequestMetrics, entropy: Arc<dyn Entropy>, audit: Arc<Audit>) -> Self {
        Self { metrics, entropy, audit }
    }

    /// Gives a request its ID and starts measuring its duration.
    pub fn begin<B>(&self, request: &mut Request<B>) -> Observed {
        let context = RequestContext::new(format!("{:016X}", self.entropy.next_u64()));
        request.extensions_mut().insert(context.clone());
        Observed {
            context,
            audited: AuditedRequest::of(request.method(), request.uri(), request.headers()),
            started: Instant::now(),
            audit: Some(Arc::clone(&self.audit)),
        }
    }

    /// The audit log of requests.
    #[must_use]
    pub fn audit(&self) -> Arc<Audit> {
        Arc::clone(&self.audit)
    }

    /// Counts a request that found no free slot.
    pub fn count_rejection(&self) {
        self.metrics.reject();
    }

    /// Adds the request ID to the response, counts, logs and audits the request.
    pub async fn finish<B>(&self, mut observed: Observed, response: &mut Response<B>) {
        let status = response.status();
        if let Ok(value) = HeaderValue::from_str(observed.context.request_id()) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let operation = observed.context.operation().map_or(NO_OPERATION, |operation| operation.name);
        let duration = observed.started.elapsed();
        self.metrics.record(operation, status.as_u16(), duration);
        tracing::debug!(
            request_id = observed.context.request_id(),
            operation,
            status = status.as_u16(),
            method = %observed.audited.method(),
            path = observed.path(),
            duration_us = duration.as_micros(),
            "s3 request"
        );
        if let Some(audit) = observed.record(Some(status)) {
            audit.wait_for_capacity().await;
        }
    }
}
