//! What is learnt of a request on its way in, for its answer, its metrics, its log and audit lines.

use std::sync::{Arc, OnceLock};

/// Notes on one request, shared by all that touch it.
#[derive(Debug, Clone)]
pub struct RequestNotes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    request_id: String,
    operation: OnceLock<&'static str>,
    subject: OnceLock<Subject>,
    keys: OnceLock<Vec<String>>,
    body_fault: OnceLock<&'static str>,
    error_code: OnceLock<String>,
}

/// Who asks, and about what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The access key whose signature holds.
    pub access_key_id: String,
    /// The bucket.
    pub bucket: Option<String>,
    /// The key in it.
    pub key: Option<String>,
}

impl RequestNotes {
    /// Notes on a request with this identifier.
    #[must_use]
    pub fn new(request_id: String) -> Self {
        Self(Arc::new(Inner {
            request_id,
            operation: OnceLock::new(),
            subject: OnceLock::new(),
            keys: OnceLock::new(),
            body_fault: OnceLock::new(),
            error_code: OnceLock::new(),
        }))
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

    /// Notes who asks, once the signature was found to hold; the first note stays.
    pub fn set_subject(&self, subject: Subject) {
        self.0.subject.get_or_init(|| subject);
    }

    /// Who asks, where the signature holds.
    #[must_use]
    pub fn subject(&self) -> Option<&Subject> {
        self.0.subject.get()
    }

    /// Notes the keys of a request that names several; the first note stays.
    pub fn set_keys(&self, keys: Vec<String>) {
        self.0.keys.get_or_init(|| keys);
    }

    /// The keys of a request that names several.
    #[must_use]
    pub fn keys(&self) -> Option<&[String]> {
        self.0.keys.get().map(Vec::as_slice)
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

    /// Notes the S3 code that the request is refused with; the first note stays.
    pub fn set_error_code(&self, code: &str) {
        self.0.error_code.get_or_init(|| code.to_owned());
    }

    /// The S3 code that the request is refused with.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.0.error_code.get().map(String::as_str)
    }
}
