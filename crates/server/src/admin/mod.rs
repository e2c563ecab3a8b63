//! The admin listener: health checks and metrics for everyone, the admin API for requests with the token.

mod audit;
mod auth;
mod backends;
mod catalog;
mod clock;
mod error;
mod findings;
mod gauges;
mod health;
mod json_errors;
mod lifecycle;
mod lists;
mod log_level;
mod metrics;
mod queues;
mod reconcile;
mod retirement;
mod stats;
mod status;
mod verify;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_backend::Fleet;
use s3o_cache::Cache;
use s3o_catalog::Catalog;
use s3o_engine::Engine;
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::ids::InstanceId;
use s3o_model::shared::Shared;
use s3o_workers::{
    ClockGuard, DeadLetterService, IdentityWorker, RebalanceSettings, ReconcileService, RetirementService, Runner,
    SharedRules, UsageLedger, Verifier,
};

use crate::audit::Audit;

pub use auth::AdminToken;
pub use catalog::report_damage;
pub(crate) use error::AdminError;
pub use gauges::{GaugeSources, Gauges};
pub use log_level::{InvalidLevel, LogLevel};
pub use stats::Stats;
pub use status::warn_unconfigured_backends;

/// The parts of the process that the admin API reads and changes.
pub struct AdminState {
    /// The token that requests to the admin API must carry.
    pub token: AdminToken,
    /// Metrics of the whole process.
    pub registry: Arc<Mutex<Registry>>,
    /// Gauges in that registry that are computed for each scrape.
    pub gauges: Gauges,
    /// Counts of objects and locations.
    pub stats: Arc<Stats>,
    /// Quota accounting, queues and findings are read from it.
    pub catalog: Arc<Catalog>,
    /// Tells operators how to restore a damaged catalog of this kind of database.
    pub restore_hint: &'static str,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Usage of the backends in this month.
    pub usage: Arc<UsageLedger>,
    /// The object cache; None if it is disabled.
    pub cache: Option<Arc<Cache>>,
    /// Compares and accepts the backends' identities.
    pub identity: Arc<IdentityWorker>,
    /// The workers.
    pub runner: Arc<Runner>,
    /// Retries and discards dead letters.
    pub dead_letters: DeadLetterService,
    /// Drains and removes backends.
    pub retirement: RetirementService,
    /// Checks the invariants.
    pub verifier: Verifier,
    /// Starts, shows and cancels passes of reconcile.
    pub reconcile: ReconcileService,
    /// The lifecycle rules of the configuration.
    pub lifecycle_rules: SharedRules,
    /// Reads the loads of the backends for a dry run of the rebalancer.
    pub engine: Engine,
    /// Settings of the rebalancer.
    pub rebalance: Shared<RebalanceSettings>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Decides whether the wall clock is trusted; None where the database's clock is used.
    pub clock_guard: Option<Arc<ClockGuard>>,
    /// Identifies this process.
    pub instance: InstanceId,
    /// The log level of this process.
    pub log_level: Arc<LogLevel>,
    /// The audit log of this instance.
    pub audit: Arc<Audit>,
    /// Source of request IDs.
    pub entropy: Arc<dyn Entropy>,
}

/// Passes of reconcile, and findings.
fn reconcile_routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/findings", get(findings::list))
        .route("/findings/{id}/approve", post(findings::approve))
        .route("/findings/{id}/dismiss", post(findings::dismiss))
        .route("/reconcile", get(reconcile::show).post(reconcile::run).delete(reconcile::cancel))
}

/// Builds the service of the admin listener.
pub fn router(state: AdminState) -> Router {
    let state = Arc::new(state);
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
        .merge(reconcile_routes())
        .route("/lifecycle/preview", get(lifecycle::preview))
        .route("/verify", get(verify::progress).post(verify::run))
        .route("/catalog/backup", post(catalog::backup))
        .route("/catalog/accept", post(catalog::accept))
        .route("/audit", get(audit::show))
        .route("/log-level", get(log_level::show).put(log_level::change))
        .route("/backends/{name}", delete(retirement::remove))
        .route("/backends/{name}/drain", get(retirement::show).post(retirement::drain).delete(retirement::undrain))
        .route("/backends/{name}/accept", post(backends::accept))
        .route("/backends/{name}/dismiss", post(backends::dismiss))
        .route("/clock/accept", post(clock::accept))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(state.token.clone(), auth::require))
        .layer(from_fn_with_state(Arc::clone(&state), audit::record));
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::page))
        .nest("/admin/api", api)
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn(json_errors::rewrite))
        .with_state(state)
}

#[cfg(test)]
mod tests;
