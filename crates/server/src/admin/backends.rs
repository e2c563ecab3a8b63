//! Lets an operator accept a backend as it was found, and dismiss what another instance found.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use s3o_workers::{AcceptAnswer, AcceptView};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::audit::AdminRequestId;
use super::error::{AdminError, ErrorBody};
use crate::audit::Cause;

/// `found` is the hash that an earlier request was shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptQuery {
    found: Option<String>,
}

#[derive(Serialize)]
struct BackendAccepted {
    backend: String,
    accepted: bool,
}

/// Nothing was changed: what would be accepted, beside the error.
#[derive(Serialize)]
struct AcceptRefused {
    #[serde(flatten)]
    shown: Box<AcceptView>,
    error: ErrorBody,
}

/// `POST /admin/api/backends/{name}/accept`. Without `found`, only shows what would be accepted.
pub async fn accept(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    Path(backend): Path<String>,
    query: Result<Query<AcceptQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(AcceptQuery { found }) = query?;
    match state.identity.accept(&backend, found.as_deref()).await? {
        AcceptAnswer::Accepted => {
            state.audit.backend_accepted(&backend, found.as_deref(), Cause::Request(&id));
            Ok(Json(BackendAccepted { backend, accepted: true }).into_response())
        }
        AcceptAnswer::Refused { why, shown } => {
            let error = ErrorBody { code: "refused", message: why };
            Ok((StatusCode::CONFLICT, Json(AcceptRefused { shown, error })).into_response())
        }
    }
}

/// `host` is the instance whose record is dismissed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DismissQuery {
    host: String,
}

/// A record that no longer stops deletes.
#[derive(Debug, Serialize)]
pub struct RecordDismissed {
    backend: String,
    host: String,
    dismissed: bool,
}

/// `POST /admin/api/backends/{name}/dismiss`.
pub async fn dismiss(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    Path(backend): Path<String>,
    query: Result<Query<DismissQuery>, QueryRejection>,
) -> Result<Json<RecordDismissed>, AdminError> {
    let Query(DismissQuery { host }) = query?;
    if !state.identity.dismiss(&backend, &host).await? {
        let message = format!("instance {host} has no record of backend {backend}");
        return Err(AdminError::new(StatusCode::NOT_FOUND, "no_such_record", message));
    }
    state.audit.backend_dismissed(&backend, &host, Cause::Request(&id));
    Ok(Json(RecordDismissed { backend, host, dismissed: true }))
}
