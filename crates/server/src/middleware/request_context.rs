//! Facts about a request that its response, metrics, log and audit lines need.

use std::sync::{Arc, OnceLock};

use crate::s3::operations::S3Operation;

/// State of one request. Clones share it; the S3 service puts one into the extensions of the request.
#[derive(Debug, Clone)]
pub struct RequestContext(Arc<ContextState>);

#[derive(Debug)]
struct ContextState {
    request_id: String,
    operation: OnceLock<&'static S3Operation>,
    subject: OnceLock<RequestSubject>,
    keys: OnceLock<Vec<String>>,
    body_fault: OnceLock<&'static str>,
    error_code: OnceLock<String>,
}

/// The signer of a request and its target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSubject {
    /// The access key whose signature was verified.
    pub access_key_id: String,
    /// The bucket; set for operations that may change something.
    pub bucket: Option<String>,
    /// The object key; set for operations that may change something.
    pub key: Option<String>,
}

impl RequestContext {
    /// The state of a new request, with nothing but its ID.
    #[must_use]
    pub fn new(request_id: String) -> Self {
        Self(Arc::new(ContextState {
            request_id,
            operation: OnceLock::new(),
            subject: OnceLock::new(),
            keys: OnceLock::new(),
            body_fault: OnceLock::new(),
            error_code: OnceLock::new(),
        }))
    }

    /// The ID that the client gets in `x-amz-request-id`.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.0.request_id
    }

    /// Sets the operation; the first call wins.
    pub fn set_operation(&self, operation: &'static S3Operation) {
        self.0.operation.get_or_init(|| operation);
    }

    /// The operation; `None` if the request was refused before it was known.
    #[must_use]
    pub fn operation(&self) -> Option<&'static S3Operation> {
        self.0.operation.get().copied()
    }

    /// Sets the signer after its signature was verified; the first call wins.
    pub fn set_subject(&self, subject: RequestSubject) {
        self.0.subject.get_or_init(|| subject);
    }

    /// The signer; `None` if no signature was verified.
    #[must_use]
    pub fn subject(&self) -> Option<&RequestSubject> {
        self.0.subject.get()
    }

    /// Sets the keys of `DeleteObjects`; the first call wins.
    pub fn set_keys(&self, keys: Vec<String>) {
        self.0.keys.get_or_init(|| keys);
    }

    /// The keys of `DeleteObjects`.
    #[must_use]
    pub fn keys(&self) -> Option<&[String]> {
        self.0.keys.get().map(Vec::as_slice)
    }

    /// Sets the S3 error code for a body that failed while it was read; the first call wins.
    pub fn set_body_fault(&self, code: &'static str) {
        self.0.body_fault.get_or_init(|| code);
    }

    /// The S3 error code for a failed body.
    #[must_use]
    pub fn body_fault(&self) -> Option<&'static str> {
        self.0.body_fault.get().copied()
    }

    /// Sets the S3 error code of the response; the first call wins.
    pub fn set_error_code(&self, code: &str) {
        self.0.error_code.get_or_init(|| code.to_owned());
    }

    /// The S3 error code of the response.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.0.error_code.get().map(String::as_str)
    }
}
