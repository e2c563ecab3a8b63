//! Checks the invariants on request.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use s3o_workers::{VerifyProgress, VerifyReport, VerifyScope};

use super::AdminState;
use super::error::AdminError;

/// `POST /admin/api/verify`.
pub async fn run(
    State(state): State<Arc<AdminState>>,
    scope: Result<Query<VerifyScope>, QueryRejection>,
) -> Result<Json<VerifyReport>, AdminError> {
    let Query(scope) = scope?;
    Ok(Json(state.verifier.verify(scope).await))
}

/// `GET /admin/api/verify`.
pub async fn progress(State(state): State<Arc<AdminState>>) -> Json<VerifyProgress> {
    Json(state.verifier.progress())
}
