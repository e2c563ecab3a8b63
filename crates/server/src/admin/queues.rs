//! Lists the cleanup queue and the dead-letter queue; retries and discards dead letters.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use s3o_catalog::QueuedCleanup;
use s3o_model::cleanup::Selection;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::{CleanupId, DeadLetterId};
use s3o_model::names::BackendName;
use s3o_workers::{Disposal, Disposed, Kept};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::audit::{ACTOR, AdminRequestId};
use super::error::AdminError;
use super::lists::{AdminPage, after_row, limit, present};
use crate::audit::Cause;

/// Selects rows of a queue, and a page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsQuery {
    backend: Option<String>,
    reason: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// Selects dead letters to retry or discard. An unknown parameter is an error: it may be a misspelt restriction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisposeQuery {
    backend: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    force: bool,
}

/// How one dead letter is discarded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscardQuery {
    #[serde(default)]
    force: bool,
}

fn selection(backend: Option<&str>, reason: Option<&str>) -> Result<Selection, AdminError> {
    let name = |text: &str| {
        text.parse().map_err(|_| AdminError::invalid_query(format!("backend: {text:?} is not a backend name")))
    };
    if reason.is_some_and(|text| text.contains('\0')) {
        return Err(AdminError::invalid_query("reason must not contain zero bytes"));
    }
    Ok(Selection { backend: present(backend).map(name).transpose()?, reason: present(reason).map(str::to_owned) })
}

impl RowsQuery {
    /// The selection, the row number behind which the page begins, and how many rows it shows.
    fn read(&self) -> Result<(Selection, i64, usize), AdminError> {
        let which = selection(self.backend.as_deref(), self.reason.as_deref())?;
        Ok((which, after_row(self.after.as_deref())?, limit(self.limit)))
    }
}

/// A row of the cleanup queue as the admin API shows it; times in RFC 3339.
#[derive(Debug, Serialize)]
pub struct CleanupRow {
    id: CleanupId,
    backend: BackendName,
    physical_key: String,
    target: String,
    size_bytes: u64,
    reason: String,
    attempts: u32,
    last_error: Option<String>,
    due: String,
    claimed_by: Option<String>,
    created_at: String,
}

impl From<QueuedCleanup> for CleanupRow {
    fn from(row: QueuedCleanup) -> Self {
        Self {
            id: row.cleanup.id,
            backend: row.cleanup.backend,
            physical_key: row.cleanup.physical_key,
            target: row.cleanup.target.to_column(),
            size_bytes: row.cleanup.size_bytes,
            reason: row.cleanup.reason,
            attempts: row.cleanup.attempts,
            last_error: row.last_error,
            due: row.due.to_string(),
            claimed_by: row.claimed_by,
            created_at: row.created_at.to_string(),
        }
    }
}

/// `GET /admin/api/cleanup-queue`.
pub async fn cleanups(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<RowsQuery>, QueryRejection>,
) -> Result<Json<AdminPage<CleanupRow>>, AdminError> {
    let (which, after, limit) = query?.read()?;
    let rows = state.catalog.queued_cleanups(&which, after, limit + 1).await?;
    let rows = rows.into_iter().map(CleanupRow::from).collect();
    Ok(Json(AdminPage::new(rows, limit, |row: &CleanupRow| row.id.0.to_string())))
}

/// A dead letter as the admin API shows it; times in RFC 3339.
#[derive(Debug, Serialize)]
pub struct DeadLetterRow {
    id: DeadLetterId,
    original_id: CleanupId,
    backend: BackendName,
    physical_key: String,
    target: String,
    size_bytes: u64,
    reason: String,
    attempts: u32,
    last_error: Option<String>,
    created_at: String,
    dead_since: String,
}

impl From<DeadLetter> for DeadLetterRow {
    fn from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            original_id: letter.original_id,
            backend: letter.backend,
            physical_key: letter.physical_key,
            target: letter.target.to_column(),
            size_bytes: letter.size_bytes,
            reason: letter.reason,
            attempts: letter.attempts,
            last_error: letter.last_error,
            created_at: letter.created_at.to_string(),
            dead_since: letter.dead_since.to_string(),
        }
    }
}

/// `GET /admin/api/dlq`.
pub async fn dead_letters(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<RowsQuery>, QueryRejection>,
) -> Result<Json<AdminPage<DeadLetterRow>>, AdminError> {
    let (which, after, limit) = query?.read()?;
    let letters = state.catalog.dead_letters(&which, after, limit + 1).await?;
    let rows = letters.into_iter().map(DeadLetterRow::from).collect();
    Ok(Json(AdminPage::new(rows, limit, |row: &DeadLetterRow| row.id.0.to_string())))
}

#[derive(Debug, Serialize)]
pub struct LetterRetried {
    id: i64,
    retried: bool,
}

/// `POST /admin/api/dlq/{id}/retry`: moves the dead letter back to the cleanup queue.
pub async fn retry(
    State(state): State<Arc<AdminState>>,
    Extension(request): Extension<AdminRequestId>,
    Path(id): Path<String>,
) -> Result<Json<LetterRetried>, AdminError> {
    let id = dispose_one(state, request, Disposal::Retry, &id).await?;
    Ok(Json(LetterRetried { id, retried: true }))
}

#[derive(Debug, Serialize)]
pub struct LetterDiscarded {
    id: i64,
    discarded: bool,
}

/// `POST /admin/api/dlq/{id}/discard`: deletes the dead letter if its bytes are gone, or with `force`.
pub async fn discard(
    State(state): State<Arc<AdminState>>,
    Extension(request): Extension<AdminRequestId>,
    Path(id): Path<String>,
    query: Result<Query<DiscardQuery>, QueryRejection>,
) -> Result<Json<LetterDiscarded>, AdminError> {
    let Query(DiscardQuery { force }) = query?;
    let id = dispose_one(state, request, Disposal::Discard { force }, &id).await?;
    Ok(Json(LetterDiscarded { id, discarded: true }))
}

#[derive(Debug, Serialize)]
pub struct RetriedCount {
    retried: usize,
}

/// `POST /admin/api/dlq/retry`: retries every selected dead letter.
pub async fn retry_all(
    State(state): State<Arc<AdminState>>,
    Extension(request): Extension<AdminRequestId>,
    query: Result<Query<DisposeQuery>, QueryRejection>,
) -> Result<Json<RetriedCount>, AdminError> {
    let Query(DisposeQuery { backend, reason, force }) = query?;
    if force {
        return Err(AdminError::invalid_query("force: only a discard can be forced"));
    }
    let which = selection(backend.as_deref(), reason.as_deref())?;
    let (retried, _) = dispose_all(state, request, Disposal::Retry, which).await?;
    Ok(Json(RetriedCount { retried }))
}

/// `refused` dead letters stay, because their bytes are not proven gone.
#[derive(Debug, Serialize)]
pub struct DiscardedCount {
    discarded: usize,
    refused: usize,
}

/// `POST /admin/api/dlq/discard`: discards every selected dead letter.
pub async fn discard_all(
    State(state): State<Arc<AdminState>>,
    Extension(request): Extension<AdminRequestId>,
    query: Result<Query<DisposeQuery>, QueryRejection>,
) -> Result<Json<DiscardedCount>, AdminError> {
    let Query(DisposeQuery { backend, reason, force }) = query?;
    let which = selection(backend.as_deref(), reason.as_deref())?;
    if which == Selection::default() {
        return Err(AdminError::invalid_query("backend or reason is required: a discard must not select everything"));
    }
    let (discarded, refused) = dispose_all(state, request, Disposal::Discard { force }, which).await?;
    Ok(Json(DiscardedCount { discarded, refused }))
}

/// Retries or discards one dead letter; its number is returned.
async fn dispose_one(
    state: Arc<AdminState>,
    request: AdminRequestId,
    disposal: Disposal,
    id: &str,
) -> Result<i64, AdminError> {
    let missing =
        || AdminError::new(StatusCode::NOT_FOUND, "no_such_dead_letter", format!("there is no dead letter {id}"));
    let number: i64 = id.parse().map_err(|_| missing())?;
    let disposed = detached(async move {
        let disposed = state.dead_letters.one(disposal, DeadLetterId(number)).await?;
        if let Some(disposed) = &disposed {
            audit(&state, &request, disposed).await;
        }
        Ok(disposed)
    });
    let disposed = disposed.await?.ok_or_else(missing)?;
    disposed.kept.first().map_or(Ok(number), |kept| Err(refused(kept, id)))
}

/// Retries or discards all selected dead letters; returns how many were, and how many were refused.
async fn dispose_all(
    state: Arc<AdminState>,
    request: AdminRequestId,
    disposal: Disposal,
    which: Selection,
) -> Result<(usize, usize), AdminError> {
    detached(async move {
        let (mut disposed_count, mut kept_count) = (0, 0);
        let mut bounds = state.dead_letters.bounds().await?;
        while let Some(current) = bounds {
            let (disposed, rest) = state.dead_letters.step(disposal, &which, current).await?;
            audit(&state, &request, &disposed).await;
            disposed_count += disposed.events.len();
            kept_count += disposed.kept.len();
            bounds = rest;
        }
        Ok((disposed_count, kept_count))
    })
    .await
}

/// Runs in a task of its own, so that a client that disconnects does not prevent the audit of what was done.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, s3o_workers::Error>> + Send + 'static,
) -> Result<T, AdminError> {
    let ended = tokio::spawn(work).await.map_err(|error| AdminError::internal(&error))?;
    Ok(ended?)
}

async fn audit(state: &AdminState, AdminRequestId(request): &AdminRequestId, disposed: &Disposed) {
    for event in &disposed.events {
        state.audit.wait_for_capacity().await;
        state.audit.record(event.name, Cause::Request(request), ACTOR, event);
    }
}

fn refused(kept: &Kept, id: &str) -> AdminError {
    let (code, why) = match kept {
        Kept::StillThere => ("still_there", format!("dead letter {id}: its bytes still exist, retry it or use force")),
        Kept::NotProven(why) => ("not_proven", format!("dead letter {id}: its bytes may still exist: {why}")),
    };
    AdminError::new(StatusCode::CONFLICT, code, why)
}
