//! The admin door: health, metrics, and the admin API behind a token.
//!
//! It knows the rest of the program only through the traits of [`AdminParts`], so that each can be
//! tested with its own answers.

mod auth;
mod backends;
mod catalog;
mod clock;
mod control;
mod error;
mod findings;
mod health;
mod json_errors;
mod lifecycle;
mod lists;
mod log_level;
mod metrics;
mod queues;
mod status;
mod trail;
mod verify;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use s3o_model::entropy::Entropy;

use crate::audit::Audit;

pub use auth::AdminToken;
pub use catalog::CatalogControl;
pub use control::{
    AcceptError, BackendControl, ClockControl, InvalidLevel, LifecycleControl, LogLevel, QueueControl, Readiness,
    ReadyReport, StatusSource, VerifyControl, WorkerControl, WorkerError,
};
pub(crate) use error::AdminError;
pub use metrics::{MetricsPage, Refresh};
pub use status::{
    BackendStatus, BucketStatus, CacheStatus, CatalogStatus, ClockState, ClockStatus, Health, OldestDueStatus,
    QueueStatus, SharedHealth, Status,
};

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
    /// The cleanup queue and the dead letters.
    pub queues: Arc<dyn QueueControl>,
    /// The lifecycle rules.
    pub lifecycle: Arc<dyn LifecycleControl>,
    /// How the whole is.
    pub status: Arc<dyn StatusSource>,
    /// The clock.
    pub clock: Arc<dyn ClockControl>,
    /// Whether the invariants hold.
    pub verify: Arc<dyn VerifyControl>,
    /// The catalog itself.
    pub catalog: Arc<dyn CatalogControl>,
    /// What is logged.
    pub log_level: Arc<dyn LogLevel>,
    /// What is kept of changes.
    pub audit: Arc<Audit>,
    /// Where identifiers of requests come from.
    pub entropy: Arc<dyn Entropy>,
}

/// The admin door.
pub fn router(parts: AdminParts) -> Router {
    let api = Router::new()
        .route("/status", get(status::show))
        .route("/workers", get(workers::list))
        .route("/workers/{name}/run", post(workers::run))
        .route("/workers/{name}/pause", post(workers::pause))
        .route("/workers/{name}/resume", post(workers::resume))
        .route("/cleanup-queue", get(queues::cleanups))
        .route("/dlq", get(queues::dead_letters))
        .route("/dlq/retry", post(queues::retry_all))
        .route("/dlq/discard", post(queues::discard_all))
        .route("/dlq/{id}/retry", post(queues::retry))
        .route("/dlq/{id}/discard", post(queues::discard))
        .route("/findings", get(findings::list))
        .route("/lifecycle/preview", get(lifecycle::preview))
        .route("/verify", get(verify::progress).post(verify::run))
        .route("/catalog/backup", post(catalog::backup))
        .route("/catalog/accept", post(catalog::accept))
        .route("/audit", get(trail::show))
        .route("/log-level", get(log_level::show).put(log_level::change))
        .route("/backends/{name}/accept", post(backends::accept))
        .route("/backends/{name}/dismiss", post(backends::dismiss))
        .route("/clock/accept", post(clock::accept))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(parts.token.clone(), auth::require))
        .layer(from_fn_with_state(parts.clone(), trail::follow));
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::page))
        .nest("/admin/api", api)
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn(json_errors::rewrite))
        .with_state(parts)
}

#[cfg(test)]
mod tests;
