//! The admin door: health, metrics, and the admin API behind a token.
//!
//! It knows the rest of the program only through the traits of [`AdminParts`], so that each can be
//! tested with its own answers.

mod auth;
mod backends;
mod control;
mod error;
mod health;
mod metrics;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

pub use auth::AdminToken;
pub use control::{AcceptError, BackendControl, Readiness, WorkerControl};
pub use metrics::{MetricsPage, Refresh};

/// What the admin door answers from.
#[derive(Clone)]
pub struct AdminParts {
    /// What opens the admin API.
    pub token: AdminToken,
    /// Whether requests can be served.
    pub readiness: Arc<dyn Readiness>,
    /// The metrics.
    pub metrics: MetricsPage,
    /// The workers.
    pub workers: Arc<dyn WorkerControl>,
    /// The backends.
    pub backends: Arc<dyn BackendControl>,
}

/// The admin door.
pub fn router(parts: AdminParts) -> Router {
    let api = Router::new()
        .route("/workers/{name}/run", post(workers::run))
        .route("/backends/{name}/accept", post(backends::accept))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(parts.token.clone(), auth::require));
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::page))
        .nest("/admin/api", api)
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .with_state(parts)
}

#[cfg(test)]
mod tests;
