//! Starts, shows and cancels passes of reconcile.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use s3o_workers::PassView;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::AdminError;
use super::lists::present;

/// An unknown parameter is an error: the client may have misspelt `dry_run`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileQuery {
    backend: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// The newest pass of each backend.
#[derive(Debug, Serialize)]
pub struct ReconcileAnswer {
    passes: Vec<PassView>,
}

/// The backends whose pass was cancelled.
#[derive(Debug, Serialize)]
pub struct ReconcileCancelled {
    cancelled: Vec<String>,
}

/// `POST /admin/api/reconcile`: begins passes and answers when they ended; a dry run stores nothing.
pub async fn run(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<ReconcileQuery>, QueryRejection>,
) -> Result<Json<ReconcileAnswer>, AdminError> {
    let Query(ReconcileQuery { backend, dry_run }) = query?;
    let backend = present(backend.as_deref());
    let passes = if dry_run { state.reconcile.dry_run(backend).await? } else { state.reconcile.run(backend).await? };
    Ok(Json(ReconcileAnswer { passes }))
}

/// `GET /admin/api/reconcile`.
pub async fn show(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<ReconcileQuery>, QueryRejection>,
) -> Result<Json<ReconcileAnswer>, AdminError> {
    let Query(ReconcileQuery { backend, .. }) = query?;
    Ok(Json(ReconcileAnswer { passes: state.reconcile.show(present(backend.as_deref())).await? }))
}

/// `DELETE /admin/api/reconcile`.
pub async fn cancel(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<ReconcileQuery>, QueryRejection>,
) -> Result<Json<ReconcileCancelled>, AdminError> {
    let Query(ReconcileQuery { backend, .. }) = query?;
    Ok(Json(ReconcileCancelled { cancelled: state.reconcile.cancel(present(backend.as_deref())).await? }))
}
