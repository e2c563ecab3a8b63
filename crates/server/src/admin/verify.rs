//! Verifies the invariants on request.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::Value;

use super::AdminParts;
use super::error::AdminError;

/// How thoroughly.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    #[serde(default)]
    deep: bool,
}

/// Checks everything and answers with what was found.
pub async fn run(
    State(parts): State<AdminParts>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(wanted) = wanted?;
    Ok(Json(parts.verify.verify(wanted.deep).await))
}

/// How far a verification has come.
pub async fn progress(State(parts): State<AdminParts>) -> Json<Value> {
    Json(parts.verify.progress())
}
