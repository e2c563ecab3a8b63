//! The cleanup queue and the dead letters: shown a page at a time, retried and discarded.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use s3o_model::cleanup::Selection;
use s3o_model::ids::DeadLetterId;
use s3o_workers::{Disposal, Disposed, Kept};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminParts;
use super::control::QueueControl;
use super::error::AdminError;
use super::lists::{self, LIMIT, LIMIT_MAX};
use super::trail::{ACTOR, RequestId};
use crate::audit::{Audit, Cause};

/// Which rows are wanted, and which page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    backend: Option<String>,
    reason: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// Which dead letters are meant. A word that is not known is refused: it may have been meant to
/// spare something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meant {
    backend: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    force: bool,
}

/// How one dead letter is discarded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manner {
    #[serde(default)]
    force: bool,
}

fn invalid(why: impl Into<String>) -> AdminError {
    AdminError::new(StatusCode::BAD_REQUEST, "invalid_query", why)
}

fn away(why: String) -> AdminError {
    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", why)
}

fn missing(id: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "no_such_dead_letter", format!("there is no dead letter {id}"))
}

/// What is given and empty counts as not given.
fn selection(backend: Option<String>, reason: Option<String>) -> Result<Selection, AdminError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let name = |text: String| text.parse().map_err(|_| invalid(format!("{text:?} is not the name of a backend")));
    if reason.as_ref().is_some_and(|text| text.contains('\0')) {
        return Err(invalid("a reason has no zero bytes"));
    }
    Ok(Selection { backend: given(backend).map(name).transpose()?, reason: given(reason) })
}

impl Wanted {
    /// The selection, behind which number to begin, and how many to show.
    fn read(self) -> Result<(Selection, i64, usize), AdminError> {
        let after = self.after.filter(|after| !after.is_empty());
        let after = after.map(|text| text.parse().map_err(|_| invalid(format!("{text:?} is not a number"))));
        let limit = self.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
        Ok((selection(self.backend, self.reason)?, after.transpose()?.unwrap_or(0), limit))
    }
}

/// Rows of the cleanup queue.
pub async fn cleanups(
    State(parts): State<AdminParts>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let (which, after, limit) = wanted?.0.read()?;
    // One more than shown tells whether there is another page.
    Ok(lists::numbered(parts.queues.cleanups(&which, after, limit + 1).await.map_err(away)?, limit))
}

/// Dead letters.
pub async fn dead_letters(
    State(parts): State<AdminParts>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let (which, after, limit) = wanted?.0.read()?;
    Ok(lists::numbered(parts.queues.dead_letters(&which, after, limit + 1).await.map_err(away)?, limit))
}

/// Sends one dead letter back to the queue.
pub async fn retry(
    State(parts): State<AdminParts>,
    Extension(RequestId(request)): Extension<RequestId>,
    Path(id): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let number = dispose_one(parts, request, Disposal::Retry, id).await?;
    Ok(Json(json!({"id": number, "retried": true})))
}

/// Discards one dead letter.
pub async fn discard(
    State(parts): State<AdminParts>,
    Extension(RequestId(request)): Extension<RequestId>,
    Path(id): Path<String>,
    manner: Result<Query<Manner>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(Manner { force }) = manner?;
    let number = dispose_one(parts, request, Disposal::Discard { force }, id).await?;
    Ok(Json(json!({"id": number, "discarded": true})))
}

/// Sends the dead letters that are meant back to the queue.
pub async fn retry_all(
    State(parts): State<AdminParts>,
    Extension(RequestId(request)): Extension<RequestId>,
    meant: Result<Query<Meant>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(Meant { backend, reason, force }) = meant?;
    if force {
        return Err(invalid("a retry needs no force"));
    }
    let (retried, _) = dispose_all(parts, request, Disposal::Retry, selection(backend, reason)?).await?;
    Ok(Json(json!({"retried": retried})))
}

/// Discards the dead letters that are meant.
pub async fn discard_all(
    State(parts): State<AdminParts>,
    Extension(RequestId(request)): Extension<RequestId>,
    meant: Result<Query<Meant>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(Meant { backend, reason, force }) = meant?;
    let which = selection(backend, reason)?;
    if which == Selection::default() {
        return Err(invalid("say of which backend, or with which reason"));
    }
    let (discarded, kept) = dispose_all(parts, request, Disposal::Discard { force }, which).await?;
    Ok(Json(json!({"discarded": discarded, "refused": kept})))
}

async fn dispose_one(parts: AdminParts, request: String, disposal: Disposal, id: String) -> Result<i64, AdminError> {
    let number: i64 = id.parse().map_err(|_| missing(&id))?;
    let (queues, audit) = (parts.queues, parts.audit);
    let disposed = to_its_end(async move {
        let disposed = queues.dispose_one(disposal, DeadLetterId(number)).await?;
        if let Some(disposed) = &disposed {
            tell(&audit, &request, disposed).await;
        }
        Ok(disposed)
    });
    let disposed = disposed.await?.ok_or_else(|| missing(&id))?;
    disposed.kept.first().map_or(Ok(number), |kept| Err(refuse(kept, &id)))
}

/// How many are dead letters no more, and how many stay.
async fn dispose_all(
    parts: AdminParts,
    request: String,
    disposal: Disposal,
    which: Selection,
) -> Result<(usize, usize), AdminError> {
    to_its_end(walk(parts.queues, parts.audit, request, disposal, which)).await
}

async fn walk(
    queues: Arc<dyn QueueControl>,
    audit: Arc<Audit>,
    request: String,
    disposal: Disposal,
    which: Selection,
) -> Result<(usize, usize), String> {
    let (mut gone, mut kept) = (0, 0);
    let mut bounds = queues.bounds().await?;
    while let Some(here) = bounds {
        let (disposed, rest) = queues.dispose_step(disposal, &which, here).await?;
        tell(&audit, &request, &disposed).await;
        gone += disposed.events.len();
        kept += disposed.kept.len();
        bounds = rest;
    }
    Ok((gone, kept))
}

/// In a task of its own: what was done is also told when the client hangs up meanwhile.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, AdminError> {
    let ended = tokio::spawn(work).await;
    let broken = |error: tokio::task::JoinError| {
        AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
    };
    ended.map_err(broken)?.map_err(away)
}

async fn tell(audit: &Audit, request: &str, disposed: &Disposed) {
    for event in &disposed.events {
        audit.room().await;
        audit.record(event.name, Cause::Request(request), ACTOR, event);
    }
}

fn refuse(kept: &Kept, id: &str) -> AdminError {
    let (code, why) = match kept {
        Kept::StillThere => ("still_there", format!("the bytes of dead letter {id} are there")),
        Kept::NotProven(why) => ("not_proven", format!("the bytes of dead letter {id} are not proven gone: {why}")),
    };
    AdminError::new(StatusCode::CONFLICT, code, why)
}
