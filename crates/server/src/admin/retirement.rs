//! Drains, undrains and removes backends.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use s3o_workers::{DrainView, RetirementRefused, WriteOffTotal};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::audit::AdminRequestId;
use super::error::AdminError;
use crate::audit::Cause;

/// A backend that s3o no longer uses.
#[derive(Debug, Serialize)]
pub struct BackendRemoved {
    backend: String,
    removed: bool,
    /// What was lost with a backend that was written off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    written_off: Vec<WriteOffTotal>,
}

/// Whether everything that the backend holds is written off: the name of the backend, once more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveQuery {
    write_off: Option<String>,
}

impl From<RetirementRefused> for AdminError {
    fn from(refused: RetirementRefused) -> Self {
        match refused {
            RetirementRefused::NoSuchBackend => {
                Self::new(StatusCode::NOT_FOUND, "no_such_backend", "no configured backend has this name")
            }
            RetirementRefused::TooFewRemain => conflict(
                "too_few_backends",
                "fewer backends than the replication factor would remain: add a backend or lower the factor first",
            ),
            RetirementRefused::NotEmpty(held) => {
                let message = format!(
                    "the backend still holds {} copies, {} writes under way, {} queued deletes and {} dead letters: \
                     drain it first, and retry or discard its dead letters",
                    held.locations, held.intents, held.cleanups, held.dead_letters
                );
                conflict("not_empty", message)
            }
            RetirementRefused::WritesUnderWay(writes) => conflict(
                "writes_under_way",
                format!(
                    "{writes} writes to the backend may still end: repeat the command when their leases have ended"
                ),
            ),
            RetirementRefused::MarkPlanned => conflict(
                "mark_planned",
                "an instance is writing the identity of the backend: repeat the command in a minute",
            ),
            RetirementRefused::Removed => conflict(
                "removed",
                "the backend was removed: delete it from the configuration, or run `s3o backend accept NAME`",
            ),
            RetirementRefused::NotOurs => conflict(
                "not_ours",
                "the path or bucket of the backend leads to a store of another cluster or backend: repair it first",
            ),
            RetirementRefused::Failed(error) => error.into(),
        }
    }
}

fn conflict(code: &'static str, message: impl Into<String>) -> AdminError {
    AdminError::new(StatusCode::CONFLICT, code, message)
}

/// `POST /admin/api/backends/{name}/drain`.
pub async fn drain(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    Path(backend): Path<String>,
) -> Result<Json<DrainView>, AdminError> {
    let view = state.retirement.drain(&backend).await?;
    state.audit.backend_changed("drain.started", &backend, Cause::Request(&id));
    Ok(Json(view))
}

/// `DELETE /admin/api/backends/{name}/drain`.
pub async fn undrain(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    Path(backend): Path<String>,
) -> Result<Json<DrainView>, AdminError> {
    let view = state.retirement.undrain(&backend).await?;
    state.audit.backend_changed("drain.cancelled", &backend, Cause::Request(&id));
    Ok(Json(view))
}

/// `GET /admin/api/backends/{name}/drain`.
pub async fn show(
    State(state): State<Arc<AdminState>>,
    Path(backend): Path<String>,
) -> Result<Json<DrainView>, AdminError> {
    Ok(Json(state.retirement.show(&backend).await?))
}

/// `DELETE /admin/api/backends/{name}[?write_off=NAME]`.
pub async fn remove(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    Path(backend): Path<String>,
    query: Result<Query<RemoveQuery>, QueryRejection>,
) -> Result<Json<BackendRemoved>, AdminError> {
    let written_off = match query?.0.write_off {
        None => state.retirement.remove(&backend).await.map(|()| Vec::new())?,
        Some(name) if name == backend => state.retirement.write_off(&backend).await?,
        Some(name) => {
            let message = format!("write_off names {name:?}, it must repeat the name of the backend: {backend:?}");
            return Err(AdminError::new(StatusCode::BAD_REQUEST, "invalid_write_off", message));
        }
    };
    state.audit.backend_changed("backend.removed", &backend, Cause::Request(&id));
    Ok(Json(BackendRemoved { backend, removed: true, written_off }))
}
