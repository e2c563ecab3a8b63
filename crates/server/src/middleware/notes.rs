//! What is learnt of a request on its way in, for its answer, its metrics and its log line.

use std::sync::{Arc, OnceLock};

/// Notes on one request, shared by all that touch it.
#[derive(Debug, Clone)]
pub struct RequestNotes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    request_id: String,
    operation: OnceLock<&'static str>,
    body_fault: OnceLock<&'static str>,
}

impl RequestNotes {
    /// Notes on a request with this identifier.
    #[must_use]
    pub fn new(request_id: String) -> Self {
        Self(Arc::new(Inner { request_id, operation: OnceLock::new(), body_fault: OnceLock::new() }))
    }

    /// The request's identifier.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.0.request_id
    }

    /// Notes which operation the request asks for; the first note stays.
    pub fn set_operation(&self, operation: &'static str) {
        self.0.operation.get_or_init(|| operation);
    }

    /// The operation, where the request came far enough to have one.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation.get().copied()
    }

    /// Notes the S3 code for a body that was found wrong while it was read; the first note stays.
    pub fn set_body_fault(&self, code: &'static str) {
        self.0.body_fault.get_or_init(|| code);
    }

    /// The S3 code for what is wrong with the body.
    #[must_use]
    pub fn body_fault(&self) -> Option<&'static str> {
        self.0.body_fault.get().copied()
    }
}
