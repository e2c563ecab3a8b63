//! Changes backends on request.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::AdminError;
use super::{AcceptError, AdminParts};

/// Takes a backend's present identity as its own.
pub async fn accept(State(parts): State<AdminParts>, Path(name): Path<String>) -> Result<Json<Value>, AdminError> {
    parts.backends.accept(&name).await.map_err(|error| refuse(&error))?;
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
