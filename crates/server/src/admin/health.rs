//! Health checks.

use axum::extract::State;
use axum::http::StatusCode;

use super::AdminParts;

/// The process runs.
pub async fn live() -> &'static str {
    "ok"
}

/// Requests can be served. The first line says whether, each further line names something that is unavailable.
pub async fn ready(State(parts): State<AdminParts>) -> (StatusCode, String) {
    let report = parts.readiness.ready().await;
    let (status, word) =
        if report.ready { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") };
    let lines: Vec<&str> = std::iter::once(word).chain(report.unavailable.iter().map(String::as_str)).collect();
    (status, lines.join("\n"))
}
