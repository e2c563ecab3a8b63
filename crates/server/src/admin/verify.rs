//! Verifies the invariants on request.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use s3o_workers::VerifyScope;
use serde_json::Value;

use super::AdminParts;
use super::error::AdminError;

/// Checks everything and answers with what was found.
pub async fn run(
    State(parts): State<AdminParts>,
    scope: Result<Query<VerifyScope>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(scope) = scope?;
    Ok(Json(parts.verify.verify(scope).await))
}

/// How far a verification has come.
pub async fn progress(State(parts): State<AdminParts>) -> Json<Value> {
    Json(parts.verify.progress())
}
