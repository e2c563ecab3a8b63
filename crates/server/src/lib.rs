//! Who speaks to us: the S3 door, the admin door, and the listener they share.
//!
//! - [`s3::service`] answers S3 requests from an `Arc<Engine>`; its access keys can be swapped
//!   while it runs.
//! - [`admin::router`] answers health checks, metrics and the admin API.
//! - [`listener::serve`] serves either on a socket until a shutdown signal, then drains.
//! - [`audit::Audit`] keeps the audit trail of this instance.
//! - [`middleware`] gives every S3 request its identifier, its metrics and its log line.
//!
//! HTTP, XML and S3's error codes end here: the engine below knows none of them.

pub mod admin;
pub mod audit;
pub mod listener;
pub mod middleware;
pub mod s3;

/// An error of a body on its way.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A response body.
pub type ResponseBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
