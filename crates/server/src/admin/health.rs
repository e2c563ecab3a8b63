//! Health checks.

use axum::extract::State;
use axum::http::StatusCode;

use super::AdminParts;

/// The process runs.
pub async fn live() -> &'static str {
    "ok"
}

/// Requests can be served.
pub async fn ready(State(parts): State<AdminParts>) -> (StatusCode, &'static str) {
    if parts.readiness.ready().await { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") }
}
