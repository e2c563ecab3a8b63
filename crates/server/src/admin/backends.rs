//! Changes backends on request.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::error::AdminError;
use super::trail::RequestId;
use super::{AcceptError, AdminParts};
use crate::audit::Cause;

/// Takes a backend's present identity as its own.
pub async fn accept(
    State(parts): State<AdminParts>,
    Extension(RequestId(id)): Extension<RequestId>,
    Path(name): Path<String>,
) -> Result<Json<Value>, AdminError> {
    parts.backends.accept(&name).await.map_err(|error| refuse(&error))?;
    parts.audit.backend_accepted(&name, Cause::Request(&id));
    Ok(Json(json!({"backend": name, "accepted": true})))
}

fn refuse(error: &AcceptError) -> AdminError {
    let (status, code) = match error {
        AcceptError::NotFound => (StatusCode::NOT_FOUND, "no_such_backend"),
        AcceptError::Refused(_) => (StatusCode::CONFLICT, "refused"),
        AcceptError::Away(_) => (StatusCode::SERVICE_UNAVAILABLE, "away"),
    };
    AdminError::new(status, code, error.to_string())
}
