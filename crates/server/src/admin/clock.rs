//! Trusts the clock on request.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::AdminParts;
use super::error::AdminError;
use super::trail::RequestId;
use crate::audit::Cause;

/// Trusts the clock, which ends the pause of work that depends on it.
pub async fn accept(
    State(parts): State<AdminParts>,
    Extension(RequestId(id)): Extension<RequestId>,
) -> Result<Json<Value>, AdminError> {
    let held = parts.clock.accept().await;
    let held = held.map_err(|why| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", why))?;
    parts.audit.clock_accepted_by(held.as_deref(), Cause::Request(&id));
    Ok(Json(json!({"accepted": true, "held": held})))
}
