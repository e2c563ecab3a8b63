//! Runs workers on request.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::AdminParts;
use super::error::AdminError;

/// Runs a worker and answers with its report.
pub async fn run(
    State(parts): State<AdminParts>,
    Path(name): Path<String>,
) -> Result<Json<serde_json::Value>, AdminError> {
    let unknown = || AdminError::new(StatusCode::NOT_FOUND, "no_such_worker", format!("there is no worker {name}"));
    parts.workers.run(&name).await.map(Json).ok_or_else(unknown)
}
