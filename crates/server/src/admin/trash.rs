//! Deletes the objects of a prefix to trash, restores them, and empties the trash of a prefix.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use s3o_catalog::{PrefixCounts, PrefixOperation, PrefixOperationKind};
use s3o_engine::{PrefixEvent, PrefixRefused, PrefixRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::AdminState;
use super::audit::{ACTOR, AdminRequestId};
use super::error::{AdminError, ErrorBody};
use super::lists::AdminPage;
use crate::audit::{Audit, Cause};

/// `prefix` must be given, so that all keys of a bucket are never selected by mistake; it may be empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuery {
    bucket: String,
    prefix: String,
    /// Empties the trash of the prefix and touches no object.
    #[serde(default)]
    purge: bool,
}

/// The same without `purge`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreQuery {
    bucket: String,
    prefix: String,
}

/// An operation that has not ended, or the result of one that has.
#[derive(Debug, Serialize)]
pub struct OperationView {
    operation: String,
    kind: &'static str,
    bucket: String,
    prefix: String,
    started_at: String,
    /// Objects that were moved to trash, restored or purged.
    objects: u64,
    bytes: u64,
    /// Keys that were not restored because they have an object.
    existing: u64,
    /// Expired objects that were moved to trash, or keys that were not restored because their newest version expired.
    expired: u64,
}

/// Nothing was changed: the operation that works on keys of the prefix, beside the error.
#[derive(Serialize)]
struct BusyAnswer {
    running: OperationView,
    error: ErrorBody,
}

impl OperationView {
    fn new(operation: &PrefixOperation, counts: PrefixCounts) -> Self {
        let PrefixCounts { objects, bytes, existing, expired } = counts;
        Self {
            operation: operation.id.to_string(),
            kind: operation.kind.as_str(),
            bucket: operation.bucket_name.clone(),
            prefix: operation.prefix.clone(),
            started_at: operation.started_at.to_string(),
            objects,
            bytes,
            existing,
            expired,
        }
    }
}

/// The paths of this module.
pub fn routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/objects", axum::routing::delete(delete))
        .route("/objects/restore", axum::routing::post(restore))
        .route("/trash", axum::routing::get(running))
}

/// `DELETE /admin/api/objects?bucket=&prefix=[&purge=true]`: answers when the operation has ended.
pub async fn delete(
    state: State<Arc<AdminState>>,
    id: Extension<AdminRequestId>,
    query: Result<Query<DeleteQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(DeleteQuery { bucket, prefix, purge }) = query?;
    let kind = if purge { PrefixOperationKind::Purge } else { PrefixOperationKind::Rm };
    run(state, id, kind, (bucket, prefix)).await
}

/// `POST /admin/api/objects/restore?bucket=&prefix=`: answers when the operation has ended.
pub async fn restore(
    state: State<Arc<AdminState>>,
    id: Extension<AdminRequestId>,
    query: Result<Query<RestoreQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(RestoreQuery { bucket, prefix }) = query?;
    run(state, id, PrefixOperationKind::Restore, (bucket, prefix)).await
}

/// `GET /admin/api/trash`: the operations that have not ended, with their progress.
pub async fn running(State(state): State<Arc<AdminState>>) -> Result<Json<AdminPage<OperationView>>, AdminError> {
    let running = state.engine.prefix_operations().await.map_err(|error| AdminError::away(&error))?;
    Ok(Json(AdminPage::last(running.iter().map(|operation| OperationView::new(operation, operation.counts)).collect())))
}

async fn run(
    State(state): State<Arc<AdminState>>,
    Extension(AdminRequestId(id)): Extension<AdminRequestId>,
    kind: PrefixOperationKind,
    (bucket, prefix): (String, String),
) -> Result<Response, AdminError> {
    let Ok(name) = bucket.parse() else { return Err(no_such_bucket(&bucket)) };
    let request = PrefixRequest { kind, bucket: name, prefix, retention: *state.trash_retention.current() };
    let audit = Arc::clone(&state.audit);
    // The client may be gone by then.
    let report = move |event| record(&audit, &id, event);
    match state.engine.run_prefix_operation(request, report).await {
        Ok((operation, counts)) => Ok(Json(OperationView::new(&operation, counts)).into_response()),
        Err(PrefixRefused::Busy(first)) => Ok(busy(&first)),
        Err(PrefixRefused::Interrupted(why)) => {
            let message = format!("interrupted, an instance continues within a minute: {why}");
            Err(AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "interrupted", message))
        }
        Err(PrefixRefused::Failed(s3o_engine::Error::NoSuchBucket)) => Err(no_such_bucket(&bucket)),
        Err(PrefixRefused::Failed(error @ s3o_engine::Error::Internal(_))) => Err(AdminError::internal(&error)),
        Err(PrefixRefused::Failed(error)) => Err(AdminError::away(&error)),
    }
}

fn no_such_bucket(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "no_such_bucket", format!("no bucket has the name {name:?}"))
}

fn busy(first: &PrefixOperation) -> Response {
    let running = OperationView::new(first, first.counts);
    let message = format!(
        "{} of {}/{} has worked on these keys since {}: repeat the command when it has ended",
        running.kind, running.bucket, running.prefix, running.started_at
    );
    (StatusCode::CONFLICT, Json(BusyAnswer { running, error: ErrorBody { code: "busy", message } })).into_response()
}

fn record(audit: &Audit, request_id: &str, event: PrefixEvent) {
    match event {
        PrefixEvent::Purged(objects) => {
            for object in objects {
                let fields = json!({"bucket": object.bucket, "key": object.key, "size_bytes": object.size_bytes});
                audit.record("trash.purged", Cause::Request(request_id), ACTOR, &fields);
            }
        }
        PrefixEvent::Ended(operation, counts) => {
            let name = match operation.kind {
                PrefixOperationKind::Rm => "trash.deleted",
                PrefixOperationKind::Restore => "trash.restored",
                // Each purged object has an event of its own.
                PrefixOperationKind::Purge => return,
            };
            audit.record(name, Cause::Request(request_id), ACTOR, &OperationView::new(&operation, counts));
        }
    }
}
