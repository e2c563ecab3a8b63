//! The HTTP servers: the S3 API, the admin API, and the listener they share.
//!
//! - [`s3::service`] answers S3 requests from an `Arc<Engine>`; its access keys can be swapped
//!   while it runs.
//! - [`admin::router`] answers health checks, metrics and the admin API.
//! - [`listener::serve`] serves either on a socket until a shutdown signal, then drains.
//! - [`audit::Audit`] writes the audit log of this instance.
//! - [`middleware`] gives every S3 request its request ID, a slot, metrics, log and audit lines.
//!
//! No other crate of the server knows HTTP, XML or S3 error codes.

pub mod admin;
pub mod audit;
pub mod listener;
pub mod middleware;
pub mod s3;

/// An error while a body is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A stream of bytes; an error in it closes the connection.
pub type ResponseBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
