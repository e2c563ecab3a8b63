//! What the lifecycle rules would remove.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::AdminParts;
use super::error::AdminError;

/// What every rule in force would remove now; nothing is removed.
pub async fn preview(State(parts): State<AdminParts>) -> Result<Json<Value>, AdminError> {
    let shown = parts.lifecycle.preview().await;
    shown.map(Json).map_err(|why| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", why))
}
