//! Changes backends on request.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::AdminError;
use super::trail::RequestId;
use super::{AcceptError, AdminParts};
use crate::audit::Cause;

/// What is accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accept {
    found: Option<String>,
}

/// Whose record is dismissed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dismiss {
    host: String,
}

/// Accepts a backend as it was found; without the hash of that, only shows it.
pub async fn accept(
    State(parts): State<AdminParts>,
    Extension(RequestId(id)): Extension<RequestId>,
    Path(name): Path<String>,
    query: Result<Query<Accept>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(Accept { found }) = query?;
    match parts.backends.accept(&name, found.as_deref()).await {
        Ok(()) => {
            parts.audit.backend_accepted(&name, found.as_deref(), Cause::Request(&id));
            Ok(Json(json!({"backend": name, "accepted": true})).into_response())
        }
        Err(AcceptError::Refused { why, shown }) => Ok(show(&why, shown)),
        Err(error) => Err(refuse(&error)),
    }
}

/// Dismisses what a host found at a backend.
pub async fn dismiss(
    State(parts): State<AdminParts>,
    Extension(RequestId(id)): Extension<RequestId>,
    Path(name): Path<String>,
    query: Result<Query<Dismiss>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(Dismiss { host }) = query?;
    parts.backends.dismiss(&name, &host).await.map_err(|error| refuse(&error))?;
    parts.audit.backend_dismissed(&name, &host, Cause::Request(&id));
    Ok(Json(json!({"backend": name, "host": host, "dismissed": true})))
}

/// Nothing was changed: the answer is what would be accepted, beside the error.
fn show(why: &str, shown: Value) -> Response {
    let mut body = shown;
    body["error"] = json!({"code": "refused", "message": why});
    (StatusCode::CONFLICT, Json(body)).into_response()
}

fn refuse(error: &AcceptError) -> AdminError {
    let (status, code) = match error {
        AcceptError::NotFound => (StatusCode::NOT_FOUND, "no_such_backend"),
        AcceptError::NoRecord => (StatusCode::NOT_FOUND, "no_such_record"),
        AcceptError::Refused { .. } => (StatusCode::CONFLICT, "refused"),
        AcceptError::Away(_) => (StatusCode::SERVICE_UNAVAILABLE, "away"),
    };
    AdminError::new(status, code, error.to_string())
}
