//! Lets an operator confirm the wall clock.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;

use super::AdminState;
use super::audit::AdminRequestId;
use super::error::AdminError;
use crate::audit::Cause;

/// The clock is trusted; `held` is why it was not.
#[derive(Debug, Serialize)]
pub struct ClockAccepted {
    accepted: bool,
    held: Option<String>,
}

/// `POST /admin/api/clock/accept`: work that depends on the clock continues.
pub async fn accept(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
) -> Result<Json<ClockAccepted>, AdminError> {
    let held = match &state.clock_guard {
        Some(guard) => guard.accept().await?.map(|hold| hold.reason),
        None => None,
    };
    state.audit.clock_accepted_by(held.as_deref(), Cause::Request(&id));
    Ok(Json(ClockAccepted { accepted: true, held }))
}
